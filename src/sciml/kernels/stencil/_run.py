"""`StencilRun`: a number of steps by XLA or a kernel, with a rule of reverse mode.

Forwards it keeps the states at the starts of segments, about as many as there are steps in one. Backwards it runs each
segment again, step by step by the reference, and derives each step by a stencil over the cotangents (see `_adjoint`).
Where the adjoint reads no state, it keeps none and runs nothing again.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._loops import scan
from ..._jax._static_flags import as_shapes, of_shapes
from ._adjoint import adjoint_step, reads_state, transposed
from ._ghost_weights import NotForKernelsError
from ._reference import step
from ._select import StencilSelection, first_plan
from ._sharded import HaloBlock, is_sharded, several_steps, several_steps_by_kernel
from ._update import Fields, StencilUpdate


class _Residuals(NamedTuple):
    """What the backward pass needs of the forward pass.

    Attributes:
        leaves: The leaves of update and parameters.
        starts: The states at the starts of segments, for each kind of segment; without any where none is needed.
        like: A state.
        rest: The coefficients.
        flags: Whether leaves and coefficients are differentiated, and whether the adjoint reads no state.
    """

    leaves: Any
    starts: list
    like: Fields
    rest: Fields
    flags: Any


class StencilRun(NamedTuple):
    """A number of steps of an update; it has no arrays.

    Attributes:
        static: What of update and parameters is no floating-point array.
        n_steps: The number of steps.
        chosen: What runs them.
    """

    static: Any
    n_steps: int
    chosen: StencilSelection

    def differentiable(self) -> Callable[[Any, Fields, Fields], Fields]:
        """Returns the function `(leaves, fields, coefficients) -> fields` with its rule for reverse mode."""

        @jax.custom_vjp
        def run(leaves: Any, state: Fields, rest: Fields) -> Fields:
            return self.steps(leaves, state, rest, self.n_steps)

        def forward(leaves: Any, state: Any, rest: Any) -> Any:
            # with symbolic zeros JAX says of every input whether it is differentiated at all
            flags = [any(x.perturbed for x in jax.tree.leaves(tree, is_leaf=_is_primal)) for tree in (leaves, rest)]
            leaves, state, rest = jax.tree.map(lambda x: x.value, (leaves, state, rest), is_leaf=_is_primal)
            update, params = self.whole(leaves)
            if any(flags) or reads_state(update, state[0].ndim, state[0].dtype, params):
                end, starts = self.segments(leaves, state, rest)
                return end, _Residuals(leaves, starts, state, rest, as_shapes((*flags, False)))
            none = [jax.tree.map(lambda x: x[None][:0], state) for _ in _segments(self.n_steps)]
            return run(leaves, state, rest), _Residuals(leaves, none, state, rest, as_shapes((False, False, True)))

        run.defvjp(forward, self.backward, symbolic_zeros=True)
        return run

    def whole(self, leaves: Any) -> tuple[StencilUpdate, PyTree]:
        """Returns update and parameters."""
        return eqx.combine(leaves, self.static)

    def steps(self, leaves: Any, state: Fields, rest: Fields, n: int) -> Fields:
        """Returns the state some steps on."""
        (update, params), chosen = self.whole(leaves), self.chosen
        if chosen.kernel is not None and not is_sharded(update):
            stages = n * update.stages
            found = chosen.kernel.advance(update, params, state, rest, stages, chosen.plan, chosen.interpreted)
            return _checked(found, state, type(chosen.kernel).__name__)
        for passes, k, one in passes_of(update, params, state[0], rest, n, chosen):
            state, _ = scan(lambda s, _, one=one, k=k: (one(s, k), None), state, length=passes, like=(leaves, rest))
        return state

    def segments(self, leaves: Any, state: Fields, rest: Fields) -> tuple[Fields, list]:
        """Returns the state after all steps, and those at the starts of segments."""
        starts = []
        for count, size in _segments(self.n_steps):

            def segment(s: Fields, _: None, size: int = size) -> tuple[Fields, Fields]:
                return self.steps(leaves, s, rest, size), s

            state, start = scan(segment, state, length=count, like=(leaves, rest))
            starts.append(start)
        return state, starts

    def backward(self, kept: _Residuals, cotangent: Any) -> Any:
        """Returns the cotangents of leaves, state and coefficients."""
        leaves, starts, like, rest, flags = kept
        *wanted, frozen = of_shapes(flags)
        update, params = self.whole(leaves)
        cotangent = tuple(
            jnp.zeros_like(x) if isinstance(c, jax.custom_derivatives.SymbolicZero) else c
            for c, x in zip(cotangent, like)
        )
        total = jax.tree.map(jnp.zeros_like, (leaves, rest))  # zero to the end where they are not wanted

        def back(carry: Any, state: Fields) -> tuple[Any, None]:
            cotangent, total = carry
            cotangent, more = adjoint_step(update, state, params, rest, cotangent, wanted=tuple(wanted))
            return (cotangent, jax.tree.map(jnp.add, total, more)), None

        def segment(carry: Any, start: Fields, size: int) -> tuple[Any, None]:
            def once(s: Fields, _: None) -> tuple[Fields, Fields]:
                return step(update, s, params, rest), s

            # the reference runs them, whatever ran them forwards: its derivatives are those of these states
            states = scan(once, start, length=size, like=(leaves, rest))[1]
            return scan(back, carry, states, reverse=True, like=(leaves, rest))

        carry = (cotangent, total)
        by_kernel = _transpose_by_kernel(self.chosen, update, params, cotangent, rest, self.n_steps) if frozen else None
        if by_kernel is not None:
            carry = by_kernel, total
        elif frozen:  # any state will do where none is read
            carry, _ = scan(lambda c, _: back(c, like), carry, length=self.n_steps, like=(leaves, rest, like))
        else:
            for (_, size), start in reversed(list(zip(_segments(self.n_steps), starts))):
                carry, _ = scan(
                    lambda c, s, size=size: segment(c, s, size), carry, start, reverse=True, like=(leaves, rest)
                )
        cotangent, (of_leaves, of_rest) = carry
        return of_leaves, cotangent, of_rest


def passes_of(
    update: StencilUpdate, params: PyTree, like: Array, rest: Fields, n_steps: int, chosen: StencilSelection
) -> list[tuple[int, int, Callable[[Fields, int], Fields]]]:
    """Returns passes of several steps: their number, their steps, and the function `(state, steps) -> state` of one."""
    k, kernel = chosen.steps_per_pass, chosen.kernel
    if kernel is not None:
        wide = tuple(map(HaloBlock(update, like.shape, chosen.plan.steps * update.radius).padded, rest))

        def one(state: Fields, steps: int) -> Fields:
            plan, interpreted = chosen.plan, chosen.interpreted
            return several_steps_by_kernel(update, state, params, wide, steps, plan, kernel, interpreted)
    elif not chosen.one_exchange:

        def one(state: Fields, steps: int) -> Fields:
            return step(update, state, params, rest)
    else:
        wide = tuple(update.boundary.extend(c, k * update.stages * update.radius) for c in rest)

        def one(state: Fields, steps: int) -> Fields:
            return several_steps(update, state, params, wide, steps)

    whole, left = divmod(n_steps, k)
    return [(count, steps, one) for count, steps in ((whole, k), (1, left)) if count and steps]


def _transpose_by_kernel(
    chosen: StencilSelection, update: StencilUpdate, params: PyTree, cotangent: Fields, rest: Fields, n_steps: int
) -> Fields | None:
    """The cotangents before the steps of a linear update, by the kernel that ran it; None where it cannot."""
    like = cotangent[0]
    if chosen.kernel is None or any(b is not None for b in update.boundaries):
        return None
    back = transposed(update, like.ndim, like.dtype, params)
    try:  # what suits one direction suits the other, where it fits
        plan = first_plan(chosen.kernel, back, params, like, (chosen.plan.steps, chosen.plan.rows), (None,))
    except NotForKernelsError:
        return None
    return chosen.kernel.advance(back, params, cotangent, rest, n_steps, plan, chosen.interpreted)


def _is_primal(x: Any) -> bool:
    return hasattr(x, "perturbed")


def _segments(n_steps: int) -> list[tuple[int, int]]:
    """The number and the length of the segments of a run: equal ones, and one of what remains."""
    if n_steps == 0:
        return []
    size = max(1, math.isqrt(n_steps))
    whole, rest = divmod(n_steps, size)
    return [(whole, size)] + ([(1, rest)] if rest else [])


def _checked(found: Any, state: Fields, kernel: str) -> Fields:
    """Returns what a kernel returned.

    Raises:
        TypeError: If it is not like the fields that it was given.
    """
    got, right = ([(jnp.shape(x), jnp.result_type(x).name) for x in jax.tree.leaves(tree)] for tree in (found, state))
    if not isinstance(found, tuple | list) or got != right:
        what = f"{got} in a {type(found).__name__}" if isinstance(found, tuple | list) else type(found).__name__
        raise TypeError(f"`{kernel}.advance` must return a tuple of fields like `state`, {right}, but returns {what}.")
    return tuple(found)
