"""The derivative of a saved state by its own time, where that is the end of a step.

Within a step the interpolation has it. The end of a step is a state that does not depend on the saved time, and after
an event it is the state of a time that moves: both are made up for at the rate that the state has after the event.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool

from ..._types import Y
from ..events._event_state import derivatives_alone
from ._integrator import Checkpoint, Dense, Integrator, Operands


def is_state(checkpoint: Checkpoint, dense: Dense, target: Array) -> Bool[Array, ""]:
    """Returns whether what is saved at an elapsed time is the state at the start or the end of a step."""
    beside = (target >= dense.elapsed + dense.h) | (target <= dense.elapsed)
    return beside & (target <= checkpoint.elapsed)


def knows_rate(integrator: Integrator) -> bool:
    """Returns whether the state moves at a rate that is known."""
    stepper = integrator.stepper
    return stepper.knows_rate and not stepper.jumps and not stepper.rough


def rate(integrator: Integrator, y: Y, operands: Operands, target: Array) -> Y:
    """Returns the derivative of a saved state by elapsed time, after what happens at that time."""
    field, time = integrator.bound(operands), integrator.time(target, operands)
    found = integrator.stepper.rate(field, time, y) if knows_rate(integrator) else field(time, y)
    return jax.tree.map(lambda x: x * operands.direction.astype(x.dtype), found)


def with_own_time(
    integrator: Integrator, y: Y, checkpoint: Checkpoint, dense: Dense, operands: Operands, target: Array
) -> Y:
    """Returns a saved state with the derivative by its time, also where that is the end of a step.

    Args:
        integrator: How the member is advanced.
        y: The saved state.
        checkpoint: The end of the last step.
        dense: The last step.
        operands: What the integration depends on.
        target: The elapsed time of the saved state.
    """
    if not knows_rate(integrator):
        return y
    later = derivatives_alone(target - integrator.elapsed(checkpoint.elapsed, checkpoint.y, operands))
    later = jnp.where(is_state(checkpoint, dense, target), later, jnp.zeros_like(later))
    return _moved(integrator, y, later, operands, target)


def _moved(integrator: Integrator, y: Y, later: Array, operands: Operands, target: Array) -> Y:
    """Returns a state with the derivatives of a time, at its rate, which is taken only where they are asked for."""

    @jax.custom_jvp
    def state(y, later, operands, target):
        del later, operands, target
        return y

    def jvp(primals, tangents):
        y_dot, later_dot, *_ = tangents
        y = state(*primals)  # so that second derivatives know that the rate is the one at the later time
        y_dot = jax.tree.map(lambda t, x: jnp.zeros_like(x) if _is_zero(t) else t, y_dot, y, is_leaf=_is_zero)
        if _is_zero(later_dot):
            return y, y_dot
        _, _, operands, target = primals

        def add(tangent: Array, rate: Array) -> Array:
            # a rate that is not finite must not reach the others, as zero times infinity would
            moves = later_dot.astype(rate.dtype) * rate
            return tangent + jnp.where(later_dot == 0, jnp.zeros_like(moves), moves)

        return y, jax.tree.map(add, y_dot, rate(integrator, y, operands, target))

    state.defjvp(jvp, symbolic_zeros=True)
    return state(y, later, operands, target)


def _is_zero(x: Any) -> bool:
    return isinstance(x, SymbolicZero)
