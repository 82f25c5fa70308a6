"""Runs on whose way something happens: events that are sought and times that are given."""

from typing import Any

import equinox as eqx
import jax

from ..solvers._plan import Plan, Times, plan_events
from ..solvers.adjoints import Checkpointed
from ..solvers.events._event import GivenEvents, ModelWithEvents


def with_events(
    model: Any, events: GivenEvents | None, in_axes: tuple | None, plan: Plan, times: Times
) -> tuple[Any, tuple | None, Plan]:
    """Returns a model with its events, which of the inputs have members then, and the plan.

    Args:
        model: The model.
        events: The events, which members share; or None.
        in_axes: Which of model, initial state and args have members in their first axis.
        plan: How the run goes on.
        times: Its times.

    Raises:
        ValueError: If the method cannot, or given times are out of order.
    """
    if events is None:
        return model, in_axes, plan
    plan = plan_events(plan, events, Checkpointed())
    found = ModelWithEvents.of(model, events.each, times.t0, times.t1)
    if in_axes is None or in_axes[0] is None:
        return found, in_axes, plan
    own = jax.tree.map(lambda x: None, found)
    own = eqx.tree_at(lambda m: m.model, own, in_axes[0], is_leaf=lambda x: x is None)
    return found, (own, *in_axes[1:]), plan
