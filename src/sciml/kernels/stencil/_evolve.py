"""`evolve`: many steps of a stencil update, by the way of running it that `select` chooses, and its gradient."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._jax._checkpointed_scan import checkpointed_scan
from ..._jax._loops import scan
from ..._jax._static_flags import as_shapes, of_shapes
from ..._jax._vma import promote
from .._use import asked
from ._adjoint import adjoint_step, reads_state, transposed
from ._closure import opened
from ._ghost_weights import NotForKernelsError
from ._reference import step
from ._select import Selection, first_plan, kernel_of, select
from ._sharded import Blocks, is_divided, several, several_by_kernel
from ._update import Fields, StencilUpdate, as_params


def evolve(
    update: StencilUpdate,
    state: PyTree,
    n_steps: int,
    params: PyTree = None,
    *,
    coefficients: Mapping[str, Any] | None = None,
    impl: str | None = None,
    steps_per_pass: int | None = None,
) -> PyTree:
    r"""Runs an update over a number of steps.

    Reverse mode has a rule of its own. It keeps about $2 \sqrt n$ states of $n$ steps, those at the starts of
    segments and those of one segment at a time, runs every segment twice, and derives each step by a
    stencil over the cotangents, which XLA runs. Where the update is linear in the fields and neither parameters nor
    coefficients are differentiated, it keeps none and runs nothing twice; if all axes are periodic too, a kernel that
    can hold the transpose runs backwards as it runs forwards.

    Args:
        update: The update.
        state: The fields, of one to three axes, those of the grid: an array where there is one field, else a tuple in
            the order of `update.fields`, or a mapping by name. `jax.vmap` runs members.
        n_steps: The number of steps.
        params: What `update.fn` takes beside neighbours, a PyTree. Its floating-point numbers take the dtype of the
            fields.
        coefficients: The fields named in `update.coefficients`, by name.
        impl: What runs, see `select`; without it, what the block of `kernels.use` says. `"xla"` is the reference
            without a rule of its own: slower in reverse mode, and open to forward mode and to derivatives of higher
            order.
        steps_per_pass: How many steps a kernel takes for each pass over memory; without it, the kernel chooses. XLA
            takes one at a time. Where the boundary is a `sciml.parallel.Domain`, so many steps are taken for each
            exchange between devices; without it, one, or what the kernel chooses.

    Returns:
        The state after the steps, in the form it came in.

    Raises:
        ValueError: If the state does not fit the update, or a number of steps is negative, or the
            kernel that `impl` asks for cannot run the update.
        TypeError: If the number of steps is no integer known now, or `update` no `StencilUpdate`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.kernels.stencil import StencilUpdate, evolve

        def gray_scott(nb, p):
            def laplacian(field):
                around = nb(field, -1, 0) + nb(field, 1, 0) + nb(field, 0, -1) + nb(field, 0, 1)
                return around - 4 * nb(field)

            u, v = nb("u"), nb("v")
            reaction = u * v * v
            return {
                "u": u + p["Du"] * laplacian("u") - reaction + p["F"] * (1 - u),
                "v": v + p["Dv"] * laplacian("v") + reaction - (p["F"] + p["k"]) * v,
            }

        update = StencilUpdate(gray_scott, fields=("u", "v"))
        state = {"u": jnp.ones((32, 32)), "v": jnp.zeros((32, 32)).at[12:20, 12:20].set(0.5)}
        params = {"Du": 0.16, "Dv": 0.08, "F": 0.035, "k": 0.065}
        end = evolve(update, state, 50, params)
        grad = jax.grad(lambda p: jnp.sum(evolve(update, state, 50, p)["v"]))(params)
        assert end["v"].shape == (32, 32) and set(grad) == set(params)
        ```
    """
    if isinstance(n_steps, bool) or not isinstance(n_steps, int | np.integer):
        raise TypeError(f"`evolve(n_steps=...)` must be an integer that is known when tracing, but is {n_steps!r}.")
    if n_steps < 0:
        raise ValueError(f"`evolve(n_steps=...)` must not be negative, but is {n_steps}.")
    if not isinstance(update, StencilUpdate):
        raise TypeError(f"`evolve(update=...)` must be a `StencilUpdate`, but is a {type(update).__name__}.")
    impl = asked(impl)
    fields, rest = update.arrays_of(state, coefficients)
    update = _without_periodic(update, fields[0].shape)
    params = as_params(params, fields[0].dtype)
    update.reads(fields[0].ndim, fields[0].dtype, params)  # for its errors
    update = opened(update, fields[0].ndim, fields[0].dtype, params)
    chosen = select(update, fields, params, coefficients=coefficients, impl=impl, steps_per_pass=steps_per_pass)
    if impl == "xla":
        found = fields
        for passes, k, one in _passes(update, params, fields[0], rest, int(n_steps), chosen):
            found, _ = checkpointed_scan(lambda s, _, one=one, k=k: (one(s, k), None), found, length=passes)
        return update.as_state(found, state)
    numbers, static = eqx.partition((update, params), eqx.is_inexact_array)
    numbers, fields, rest = promote((numbers, fields, rest))
    fields = _evolution(static, int(n_steps), chosen)(numbers, fields, rest)
    return update.as_state(fields, state)


def _without_periodic(update: StencilUpdate, shape: tuple[int, ...]) -> StencilUpdate:
    """The update with None for every boundary that is periodic along all axes, once its grid is seen to fit."""

    def plain(boundary: Any) -> Any:
        if any(map(callable, jax.tree.leaves(boundary))):
            raise ValueError(
                "a value of `StencilUpdate(boundary=...)` is a function of time, but `evolve` counts steps and knows "
                "no time: give numbers or arrays, or run a model with the same boundary by `sciml.solve`."
            )
        if boundary is not None and hasattr(boundary, "sides") and boundary.shape != shape:
            raise ValueError(f"the fields have shape {shape}, but their boundary is one of a grid of {boundary.shape}.")
        return None if all(getattr(boundary, "periodic", (False,))) else boundary

    boundaries = tuple(map(plain, update.boundaries))
    same = not isinstance(update.boundary, Mapping)
    return eqx.tree_at(
        lambda u: u.boundary,
        update,
        boundaries[0] if same else dict(zip(update.fields, boundaries)),
        is_leaf=lambda x: x is None,
    )


def _evolution(static: Any, n_steps: int, chosen: Selection) -> Any:
    """The function `(numbers, fields, coefficients) -> fields` with its rule for reverse mode."""

    def whole(numbers: Any) -> tuple[StencilUpdate, PyTree]:
        return eqx.combine(numbers, static)

    def steps(numbers: Any, state: Fields, rest: Fields, n: int) -> Fields:
        update, params = whole(numbers)
        if chosen.way != "xla" and not is_divided(update):
            advance = kernel_of(chosen.way, state[0].ndim).advance
            return advance(update, params, state, rest, n * update.turns, chosen.plan, chosen.interpreted)
        for passes, k, one in _passes(update, params, state[0], rest, n, chosen):
            state, _ = scan(lambda s, _, one=one, k=k: (one(s, k), None), state, length=passes, like=(numbers, rest))
        return state

    @jax.custom_vjp
    def run(numbers: Any, state: Fields, rest: Fields) -> Fields:
        return steps(numbers, state, rest, n_steps)

    def forward(numbers: Any, state: Any, rest: Any) -> Any:
        flags = [any(x.perturbed for x in jax.tree.leaves(tree, is_leaf=_is_primal)) for tree in (numbers, rest)]
        numbers, state, rest = jax.tree.map(lambda x: x.value, (numbers, state, rest), is_leaf=_is_primal)
        update, params = whole(numbers)
        frozen = not any(flags) and not reads_state(update, state[0].ndim, state[0].dtype, params)
        if frozen:
            none = [jax.tree.map(lambda x: x[None][:0], state) for _ in _segments(n_steps)]
            return run(numbers, state, rest), (numbers, none, state, rest, as_shapes((False, False, True)))
        starts, first = [], state
        for count, size in _segments(n_steps):

            def segment(s: Fields, _: None, size: int = size) -> tuple[Fields, Fields]:
                return steps(numbers, s, rest, size), s

            state, start = scan(segment, state, length=count, like=(numbers, rest))
            starts.append(start)
        return state, (numbers, starts, first, rest, as_shapes((*flags, False)))

    def backward(kept: Any, cotangent: Any) -> Any:
        numbers, starts, like, rest, flags = kept
        of_parameters, of_coefficients, frozen = of_shapes(flags)
        update, params = whole(numbers)
        cotangent = tuple(
            jnp.zeros_like(x) if isinstance(c, jax.custom_derivatives.SymbolicZero) else c
            for c, x in zip(cotangent, like)
        )
        total = jax.tree.map(jnp.zeros_like, (numbers, rest))

        def back(carry: Any, state: Fields) -> tuple[Any, None]:
            cotangent, total = carry
            cotangent, more = adjoint_step(
                update, state, params, rest, cotangent, wanted=(of_parameters, of_coefficients)
            )
            return (cotangent, jax.tree.map(jnp.add, total, more)), None

        def segment(carry: Any, start: Fields, size: int) -> tuple[Any, None]:
            def once(s: Fields, _: None) -> tuple[Fields, Fields]:
                return step(update, s, params, rest), s

            states = scan(once, start, length=size, like=(numbers, rest))[1]
            return scan(back, carry, states, reverse=True, like=(numbers, rest))

        carry = (cotangent, total)
        turned = _by_kernel(chosen, update, params, cotangent, rest, n_steps) if frozen else None
        if turned is not None:
            carry = turned, total
        elif frozen:
            carry, _ = scan(lambda c, _: back(c, like), carry, length=n_steps, like=(numbers, rest, like))
        else:
            for (_, size), start in reversed(list(zip(_segments(n_steps), starts))):
                carry, _ = scan(
                    lambda c, s, size=size: segment(c, s, size), carry, start, reverse=True, like=(numbers, rest)
                )
        cotangent, (of_numbers, of_rest) = carry
        return of_numbers, cotangent, of_rest

    run.defvjp(forward, backward, symbolic_zeros=True)
    return run


def _by_kernel(
    chosen: Selection, update: StencilUpdate, params: PyTree, cotangent: Fields, rest: Fields, n_steps: int
) -> Fields | None:
    """The cotangents before the steps of a linear update, by the kernel that ran it; None where it cannot."""
    like = cotangent[0]
    if chosen.plan is None or any(b is not None for b in update.boundaries):
        return None
    back = transposed(update, like.ndim, like.dtype, params)
    try:  # what suits one way suits the other, where it fits
        plan = first_plan(chosen.way, back, params, like, (chosen.plan.steps, chosen.plan.rows), (None,))
    except NotForKernelsError:
        return None
    return kernel_of(chosen.way, like.ndim).advance(back, params, cotangent, rest, n_steps, plan, chosen.interpreted)


def _passes(
    update: StencilUpdate, params: PyTree, like: Array, rest: Fields, n_steps: int, chosen: Selection
) -> list[tuple[int, int, Any]]:
    """Passes of several steps: their number, their steps, and the function `(state, steps) -> state` of one of them."""
    k = chosen.steps_per_pass
    if chosen.way != "xla":
        wide = tuple(map(Blocks(update, like.shape, chosen.plan.steps * update.radius).padded, rest))
        advance = partial(kernel_of(chosen.way, len(chosen.plan.shape)).advance, interpret=chosen.interpreted)

        def one(state: Fields, steps: int) -> Fields:
            return several_by_kernel(update, state, params, wide, steps, chosen.plan, advance)
    elif k == 1:

        def one(state: Fields, steps: int) -> Fields:
            return step(update, state, params, rest)
    else:
        wide = tuple(update.boundary.extend(c, k * update.radius) for c in rest)

        def one(state: Fields, steps: int) -> Fields:
            return several(update, state, params, wide, steps)

    whole, left = divmod(n_steps, k)
    return [(count, steps, one) for count, steps in ((whole, k), (1, left)) if count and steps]


def _is_primal(x: Any) -> bool:
    return hasattr(x, "perturbed")


def _segments(n_steps: int) -> list[tuple[int, int]]:
    """The number and the length of the segments of a run: equal ones, and one of what remains."""
    if n_steps == 0:
        return []
    size = max(1, math.isqrt(n_steps))
    whole, rest = divmod(n_steps, size)
    return [(whole, size)] + ([(1, rest)] if rest else [])
