"""A choice of branches whose closures vary over the same mesh axes.

When JAX batches `jax.lax.cond` inside `shard_map`, it makes all values that the branches close over vary alike and
reuses the programs that it had traced, which refuse to promote values that already vary.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jaxtyping import Array, Bool, Int

from ._promoted import run_program
from ._vma import to_varying, vma_of

_T = TypeVar("_T")


def cond(predicate: Bool[Array, ""], one: Callable[[], _T], other: Callable[[], _T], *, like: Any) -> _T:
    """`jax.lax.cond` of functions without arguments, whose results vary over the axes that `like` varies over.

    Args:
        predicate: The selection.
        one: The value if it holds.
        other: The value if it does not.
        like: Values that both close over.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return jax.lax.cond(predicate, one, other)
    (first, run_first), (second, run_second) = _opened((one, other), vma_of((predicate, like)))
    return jax.lax.cond(predicate, lambda a, _: run_first(a), lambda _, b: run_second(b), first, second)


def switch(index: Int[Array, ""], branches: Sequence[Callable[[], _T]], *, like: Any) -> _T:
    """`jax.lax.switch` of functions without arguments, whose results vary over the axes that `like` varies over.

    Args:
        index: The index of the selected branch.
        branches: The functions.
        like: Values that they close over.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return jax.lax.switch(index, branches)
    opened = _opened(branches, vma_of((index, like)))
    chosen = [lambda given, n=n, run=run: run(given[n]) for n, (_, run) in enumerate(opened)]
    return jax.lax.switch(index, chosen, [consts for consts, _ in opened])


def _opened(branches: Sequence[Callable[[], _T]], axes: frozenset) -> list[tuple[list, Callable[[list], _T]]]:
    """Returns for each branch the values it closes over, and a function of them; both vary over the axes."""

    def one(branch: Callable[[], _T]) -> tuple[list, Callable[[list], _T]]:
        program, shape = jax.make_jaxpr(branch, return_shape=True)()
        consts = to_varying(list(program.consts), axes)

        def run(consts: list) -> _T:
            results = to_varying(run_program(program.jaxpr, consts), axes)
            return jax.tree.unflatten(jax.tree.structure(shape), results)

        return consts, run

    return list(map(one, branches))
