"""Runs of equations with delays: the past is part of the resumable state."""

from typing import Any

import equinox as eqx
import jax

from .._interfaces._delayed import AbstractDelayed
from ..solvers._plan import Plan, Times
from ..solvers.methods.delays._delay_field import DelayedFrom
from ..solvers.methods.delays._method_of_steps import MethodOfSteps


def with_past(model: Any, in_axes: tuple | None, times: Times) -> tuple[Any, tuple | None]:
    """Returns a delay equation with the time at which it starts, and which of the inputs have members then.

    Args:
        model: The model.
        in_axes: The parts of model, initial state and args that have members in their first axis.
        times: The times of the run.
    """
    if not isinstance(model, AbstractDelayed):
        return model, in_axes
    found = DelayedFrom(model, times.t0)
    if in_axes is None or in_axes[0] is None:
        return found, in_axes
    own = jax.tree.map(lambda x: None, found)
    own = eqx.tree_at(lambda m: m.model, own, in_axes[0], is_leaf=lambda x: x is None)
    return found, (own, *in_axes[1:])


def copies_of_state(plan: Plan) -> int:
    """Returns how many states there are in one of the loop's."""
    stepper = plan.stepper
    while stepper is not None and not isinstance(stepper, MethodOfSteps):
        stepper = getattr(stepper, "base", None)
    return 1 if stepper is None else 5 * stepper.kept + 1
