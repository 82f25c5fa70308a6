"""Work on small arrays, kept apart from large ones that a loop writes to or reads from.

On the CPU, XLA runs the operations of a program one after another where all arrays that they touch are small. If one of
them touches a larger array, it puts all operations of that program into a queue for several threads, and each then
takes several times as long. A step of an implicit method is some hundred of them on scalars, after XLA has fused what
it can, so a loop that writes to a record of its steps would lose most of its time to the queue. The branch of a
conditional is a program of its own. It costs some copies, which shorter steps are not worth.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.extend as jex
from jaxtyping import Array, Bool, PyTree

from .._vma import promote, to_varying, vma_of

_Out = TypeVar("_Out")

SMALL = 512
"""The size in bytes up to which an array is small to XLA."""

MANY = 1000
"""How many operations, before XLA fuses them, are worth a branch."""


def in_sequence(
    holds: Bool[Array, ""],
    work: Callable[..., _Out],
    otherwise: Callable[..., _Out],
    *inputs: PyTree[Array],
) -> _Out:
    """Returns what `work` makes of its inputs, on a CPU from a branch of its own where they are small and it is long.

    Args:
        holds: Whether there is anything to do; the compiler must not know.
        work: What is to be done.
        otherwise: What stands for it where there is nothing to do: `work` may have run all the same.
        inputs: All that both read.
    """
    leaves, treedef = jax.tree.flatten(inputs)
    if jax.default_backend() != "cpu" or any(x.size * x.dtype.itemsize > SMALL for x in leaves):
        return work(*inputs)
    leaves = promote(leaves)
    axes = vma_of(leaves)

    def branch(fn):
        return lambda *leaves: to_varying(fn(*jax.tree.unflatten(treedef, leaves)), axes)

    closed, out = jax.make_jaxpr(branch(work), return_shape=True)(*leaves)
    traced = jex.core.jaxpr_as_fun(closed)
    if len(closed.jaxpr.eqns) < MANY:
        found = traced(*leaves)
    else:
        rest = branch(otherwise)
        found = jax.lax.cond(to_varying(holds, axes), traced, lambda *xs: jax.tree.leaves(rest(*xs)), *leaves)
    return jax.tree.unflatten(jax.tree.structure(out), found)
