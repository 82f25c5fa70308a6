"""An initial value problem as the loops take it: the model closed, time counted from the start, the state prepared."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._jax._vma import promote
from .._types import Args, Y
from ._plan import Plan, Times
from .control._pid import Tolerances
from .integrate._integrator import Operands, known
from .methods._stepper import AbstractStepper
from .terms._field import Field
from .terms._split_field import bind


class MemberProblem(NamedTuple):
    """What an integration of one member starts from.

    Attributes:
        field: The closed model.
        stepper: The method.
        operands: What the integration depends on, without saved times.
    """

    field: Field
    stepper: AbstractStepper
    operands: Operands

    @property
    def signed_step(self) -> Array | None:
        """The size of the fixed or the first step, with the direction of time."""
        return None if self.operands.dt is None else self.operands.direction * self.operands.dt

    def start(self, y0: Y) -> "Start":
        """Returns the state that the loops start from."""
        # promoted to the axes that anything varies over, and before the loops, so that JAX differentiates it
        t0, y0, operands = promote((self.operands.t0, y0, self.operands.field))
        field = bind(self.field, operands)
        y0, found = self.stepper.prepare(field, t0, y0)
        return Start(y0, None, field) if found is None else Start(known(y0, found), jnp.asarray(found), field)


class Start(NamedTuple):
    """The state that the loops start from.

    Attributes:
        y0: The state, in the loop's variables.
        found: Whether a state consistent with the equations was found; None where every one is.
        field: The model with its operands, as the method evaluates it outside of the loops.
    """

    y0: Y
    found: Array | None
    field: Any


def open_problem(
    model: Callable, y0: Y, args: Args, times: Times, tolerances: Tolerances | None, plan: Plan, equal: bool
) -> MemberProblem:
    """Returns the problem of one member.

    Args:
        model: The model.
        y0: The initial state.
        args: What the model takes beside time and state.
        times: The times and the step.
        tolerances: The tolerances, or None for fixed steps.
        plan: How the solve runs.
        equal: Whether all steps but a shorter last one have the length of the first.
    """
    assert plan.stepper is not None  # else diffrax runs the solve
    if plan.forwards is None:
        direction = jnp.where(times.t1 >= times.t0, jnp.ones_like(times.t0), -jnp.ones_like(times.t0))
    else:
        direction = jnp.full_like(times.t0, 1 if plan.forwards else -1)
    dt = jax.tree.map(jnp.abs, times.dt)
    field, operands = plan.stepper.close(model, times.t0, y0, args, direction * dt if equal else None)
    span = direction * (times.t1 - times.t0)
    max_steps = jnp.asarray(plan.max_steps, jnp.int32)
    return MemberProblem(
        field, plan.stepper, Operands(operands, times.t0, span, None, direction, tolerances, dt, max_steps)
    )
