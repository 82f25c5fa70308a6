r"""Derivatives by the times of a member that ends where it starts.

It takes no step, so that no step carries the derivatives $\partial y / \partial t_1 = f$ and $\partial y / \partial t_0
= -f$, which hold for it too.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, PyTree

from ..._checks import concrete
from ..._jax._members_apart import members_apart
from ..._jax._vma import on_explicit_axes, promote
from ..events._event_state import joined, saved_part
from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result


def with_rates_by_times(loop: AbstractLoop, operands: Operands, result: Result) -> Result:
    """Returns a result whose states depend on the times to which they belong, also where no step was taken.

    Args:
        loop: The loop of one member.
        operands: What it depended on.
        result: What it returned.
    """
    known = all(map(concrete, (operands.span, operands.t0, operands.saves)))
    if known or not loop.integrator.stepper.traits.field_is_rate:
        return result
    field = loop.integrator.field
    inputs = operands._replace(tolerances=None, dt=None, saves=None)

    def rate(t: Array, y: PyTree, inputs: Operands) -> PyTree:
        # the field was traced for operands that vary over all axes of a mesh over which any of them varies
        t, y, inputs = promote((t, y, inputs))
        # members are mapped over here by JAX, which batches no program of theirs where they are sharded by their type
        run = members_apart(field) if on_explicit_axes((t, y, inputs.field)) else field
        return run(t, y, inputs.field)

    def moved(y: PyTree, elapsed: Array) -> PyTree:
        return _moved(rate)(y, elapsed, inputs)

    if operands.saves is None:
        return result._replace(ys=moved(result.ys, operands.span))
    saved = jax.vmap(lambda y, elapsed: saved_part(moved(joined(y, result.ys), elapsed)))
    return result._replace(ys=joined(saved(saved_part(result.ys), operands.saves), result.ys))


def _moved(field: Any) -> Any:
    @jax.custom_jvp
    def state(y, elapsed, inputs):
        del elapsed, inputs
        return y

    def jvp(primals, tangents):
        y, _, inputs = primals
        y_dot, elapsed_dot, _ = tangents
        y_dot = jax.tree.map(_instantiated, y_dot, y, is_leaf=_is_zero)
        if _is_zero(elapsed_dot):
            return y, y_dot
        here = inputs.span == 0

        def add(tangent, rate):
            # a rate that is not finite must not reach the others, as zero times infinity would
            rate = jnp.where(here, rate, jnp.zeros_like(rate))
            return tangent + (inputs.direction * elapsed_dot).astype(rate.dtype) * rate

        return y, jax.tree.map(add, y_dot, field(inputs.t0, y, inputs))

    state.defjvp(jvp, symbolic_zeros=True)
    return state


def _is_zero(x: Any) -> bool:
    return isinstance(x, SymbolicZero)


def _instantiated(tangent: Any, x: Array) -> Array:
    return jnp.zeros_like(x) if _is_zero(tangent) else tangent
