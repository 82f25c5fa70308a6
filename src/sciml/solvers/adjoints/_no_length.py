r"""Derivatives by the times of a member that ends where it starts.

It takes no step, so that no step carries the derivatives $\partial y / \partial t_1 = f$ and $\partial y / \partial t_0
= -f$, which hold for it too. With a mass matrix, $f$ is the rate of a consistent state.
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
        operands: The inputs.
        result: The result.
    """
    known = all(map(concrete, (operands.span, operands.t0, operands.saves)))
    if known or not loop.integrator.stepper.traits.knows_rate:
        return result
    stepper, field = loop.integrator.stepper, loop.integrator.field
    inputs = operands._replace(tolerances=None, dt=None, saves=None)

    def rate_of(t: Array, y: PyTree, operands: list) -> PyTree:
        return stepper.coordinates.rate(field.bind(operands), t, y)

    def rate(t: Array, y: PyTree, inputs: Operands) -> PyTree:
        # members are mapped over here by JAX, which batches no program of theirs where they are sharded by their type
        run = members_apart(rate_of) if on_explicit_axes((t, y, inputs.field)) else rate_of
        return run(t, y, inputs.field)

    def moved(y: PyTree, elapsed: Array) -> PyTree:
        # the field was traced for operands that vary over every mesh axis over which any of them varies, and the state
        # must vary like its derivative, including its arrays without elements
        return _moved(rate)(*promote((y, elapsed, inputs)))

    states = saved_part(result.ys)
    along = moved(states, operands.span) if operands.saves is None else jax.vmap(moved)(states, operands.saves)
    return result._replace(ys=joined(along, result.ys))


def _moved(rate_of: Any) -> Any:
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

        return y, jax.tree.map(add, y_dot, rate_of(inputs.t0, y, inputs))

    state.defjvp(jvp, symbolic_zeros=True)
    return state


def _is_zero(x: Any) -> bool:
    return isinstance(x, SymbolicZero)


def _instantiated(tangent: Any, x: Array) -> Array:
    return jnp.zeros_like(x) if _is_zero(tangent) else tangent
