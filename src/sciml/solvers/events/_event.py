"""The events of a solve: how they are read, and what is static of them."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._checks import concrete, no_instance
from ..._interfaces._event_system import AbstractEventSystem
from ..._interfaces._events import Event, Schedule
from ..._jax._shards import sign_of
from ..._types import Args, RealScalarLike, Y

_DEFAULT_KEPT = 16
"""How many events are kept where some let the solve go on."""


class Layout(NamedTuple):
    """The static description of events.

    Attributes:
        is_schedule: The events that are schedules.
        directions: The direction of each; 0 for schedules.
        ends: The events that end the solve.
        updates: The events that change the state.
        kept: How many occurrences are kept.
        numbers: The place of each among those that were given.
        parts: The events that belong to a system of events: due executions, followed by its conditions.
        timed: The events whose times may have derivatives: not booleans, whose times are unknown here, nor fixed times.
        rates: Whether the rate just before each occurrence is also kept.
    """

    is_schedule: tuple[bool, ...]
    directions: tuple[int, ...]
    ends: tuple[bool, ...]
    updates: tuple[bool, ...]
    kept: int
    numbers: tuple[int, ...]
    parts: tuple[bool, ...]
    timed: tuple[bool, ...]
    rates: bool = False

    @property
    def due(self) -> int | None:
        """The place among schedules of the time that is due by a system of events; None without one."""
        return sum(self.is_schedule[: self.parts.index(True)]) if any(self.parts) else None


class SystemPart(eqx.Module):
    """A part of a system of events: the time that is due, which holds the system, or one of its conditions."""

    system: AbstractEventSystem | None


class GivenEvents(NamedTuple):
    """The events of a solve.

    Attributes:
        each: The events.
        layout: Their static description.
    """

    each: tuple[Event | Schedule | SystemPart, ...]
    layout: Layout


def resolution_of(t0: Array, t1: Array) -> Array:
    """Returns a few times what the times of a solve from one time to another are rounded by."""
    largest = jnp.maximum(jnp.maximum(jnp.abs(t0), jnp.abs(t1)), jnp.abs(t1 - t0))
    return jax.lax.stop_gradient(4 * jnp.finfo(t0.dtype).eps * largest)


class ModelWithEvents(eqx.Module):
    """A model with the events that are sought on its solution.

    Attributes:
        model: The model.
        events: The events.
        direction: 1 forwards in time, -1 backwards.
        resolution: A few times what the times of the solve are rounded by.
        t1: The end of the solve.
    """

    model: Callable
    events: tuple[Event | Schedule | SystemPart, ...]
    direction: Array
    resolution: Array
    t1: Array

    @classmethod
    def of(cls, model: Callable, events: tuple[Any, ...], t0: Array, t1: Array) -> "ModelWithEvents":
        """Returns a model with its events, for a solve from one time to another."""
        direction, resolution = sign_of(t1 >= t0, t0.dtype), resolution_of(t0, t1)
        events = _one_after_another(events, direction, resolution, t0, t1)
        return cls(model, events, direction, resolution, jnp.asarray(t1, t0.dtype))

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns the vector field."""
        return self.model(t, y, args)


def read_events(events: Any, max_events: Any) -> GivenEvents | None:
    """Returns events as they were given in any form, or None without any.

    Raises:
        TypeError: If something is not an event.
        ValueError: If `max_events` is not a positive number or is given without events.
    """
    if events is None:
        if max_events is not None:
            raise ValueError(
                f"`max_events`={max_events} is the number of `events` to record, but there are no `events`."
            )
        return None
    if isinstance(events, GivenEvents):  # as they were read
        return events
    given = list(events) if isinstance(events, Sequence) else [events]
    each = [x for one in given for x in _of_one(one)]
    if not each:
        raise ValueError("`events` must contain at least one event, but is empty. Leave it out if there are no events.")
    found, numbers = zip(*((x, number) for number, one in enumerate(each) for x in _apart(one)))
    parts = tuple(isinstance(x, SystemPart) for x in found)
    if sum(x.system is not None for x in found if isinstance(x, SystemPart)) > 1:
        raise ValueError("`events` must contain at most one model's system of events, but contains several.")
    schedules = tuple(isinstance(x, Schedule) or (isinstance(x, SystemPart) and x.system is not None) for x in found)
    ends = tuple(isinstance(x, Event) and x.update is None for x in found)
    if max_events is None:
        kept = 1 if all(ends) else _DEFAULT_KEPT
    elif isinstance(max_events, bool) or not isinstance(max_events, int | np.integer) or max_events < 1:
        raise ValueError(f"`max_events` must be a positive integer, but is {max_events!r}.")
    else:
        kept = int(max_events)
    directions = tuple(x.direction if isinstance(x, Event) else 0 for x in found)
    updates = tuple(not isinstance(x, SystemPart) and x.update is not None for x in found)
    timed = tuple(not (isinstance(x, Schedule) and concrete(x.times)) for x in found)
    return GivenEvents(found, Layout(schedules, directions, ends, updates, kept, numbers, parts, timed))


def check_order(events: tuple[Any, ...], forwards: bool | None) -> None:
    """Checks that the times of schedules are in the direction of time, where they are known.

    Raises:
        ValueError: If they are not, or a system of events is to run backwards.
    """
    if forwards is False and any(isinstance(event, SystemPart) for event in events):
        raise ValueError("SBML `events` that have delays or influence one another require `t1` after `t0`.")
    for schedule in events:
        if isinstance(schedule, Schedule) and concrete(schedule.times) and forwards is not None:
            times = np.asarray(schedule.times, float)
            steps = np.diff(times[np.isfinite(times)]) * (1 if forwards else -1)
            ended = np.isinf(times)
            if np.any(steps <= 0) or np.any(ended[:-1] & ~ended[1:]):
                order = "ascend" if forwards else "descend"
                raise ValueError(
                    f"`times` of a `Schedule` must {order}, in the direction of time, and infinite ones come last, but "
                    f"they are {times}."
                )


def out_of_order(model: "ModelWithEvents") -> Array | None:
    """Returns whether traced times of schedules are not in the direction of time; None where all are known.

    In a solve that is too short for steps between several rows, its end may only come once.
    """
    direction = model.direction
    wrong = []
    for schedule in model.events:
        if isinstance(schedule, Schedule) and not concrete(schedule.times):
            times = schedule.times.astype(direction.dtype)
            follows = (direction * (times[1:] - times[:-1]) >= 0) & jnp.isfinite(times[:-1]) | jnp.isinf(times[1:])
            at_end = jnp.abs(times - model.t1) <= _APART / 2 * model.resolution
            wrong.append(~jnp.all(follows) | jnp.isnan(times[0]) | jnp.any(at_end[1:] & at_end[:-1]))
    return jnp.any(jnp.stack(wrong)) if wrong else None


_APART = 8
"""How many resolutions of the time are between traced rows of schedules that come at one time."""


def _count_to(ascending: Array, values: Array, side: str) -> Array:
    """Returns what `jnp.searchsorted` does, which JAX 0.12 does not batch on a mesh with explicit axes."""
    compare = jnp.less_equal if side == "right" else jnp.less
    return jnp.sum(compare(ascending[None], values[:, None]).astype(jnp.int32), axis=1)


def _one_after_another(
    events: tuple[Any, ...], direction: Array, resolution: Array, t0: Array, t1: Array
) -> tuple[Any, ...]:
    """Returns events whose schedules have a few roundings of the time between several traced rows at one time.

    The last row keeps its time, so that a state saved then, or at the end of the solve, is the one after all of them;
    rows at the start also keep theirs. The earlier rows have the derivatives of their own times. Of several schedules,
    all rows of the first come before those of the second.
    """
    several = [isinstance(x, Schedule) and not concrete(x.times) and x.times.shape[0] > 1 for x in events]
    if not any(several):
        return events
    space, later, found = _APART * resolution, [], []
    for event, traced in reversed(list(zip(events, several))):
        if isinstance(event, Schedule):
            times = jnp.asarray(event.times, t1.dtype)
            passed = jax.lax.stop_gradient(jnp.where(jnp.isinf(times), jnp.inf, direction * times))
            last = _count_to(passed, passed + space / 2, "right") - 1
            follow = jnp.maximum(last - jnp.arange(times.shape[0], dtype=last.dtype), 0)
            for other in later:
                ends = [_count_to(other, passed + x * space / 2, side) for x, side in _SIDES]
                follow = follow + jnp.maximum(ends[1] - ends[0] - 1, 0)
            early = follow.astype(times.dtype) * space
            early = jnp.where(passed - early > direction * t0 + space, early, 0)
            event = eqx.tree_at(lambda x: x.times, event, times - direction * early)
            later += [passed] if traced else []
        found.append(event)
    return tuple(reversed(found))


_SIDES = (-1, "left"), (1, "right")


def lacking(events: tuple[Any, ...], direction: Array, t0: Array, y0: Y) -> Array | None:
    """Returns whether a start lacks what a schedule has begun before it; None where no update can tell.

    An update can by a method `lacks(y0, values)`, of the values that have passed; zeros are in the place of the others.
    """
    found = []
    for schedule in events:
        update: Any = schedule.update if isinstance(schedule, Schedule) else None
        if hasattr(update, "lacks"):
            passed = direction * (jnp.asarray(schedule.times, t0.dtype) - t0) < 0
            values = jax.tree.map(lambda x, p=passed: jnp.where(p, x, jnp.zeros_like(x)), schedule.values)
            found.append(update.lacks(y0, values))
    return jnp.any(jnp.stack(found)) if found else None


def _apart(event: Event | Schedule | AbstractEventSystem) -> list[Event | Schedule | SystemPart]:
    """Returns a schedule as several, none of which has a time twice; where times are not known, as it is."""
    if isinstance(event, AbstractEventSystem):
        return [SystemPart(event), *[SystemPart(None)] * event.count]
    if not isinstance(event, Schedule) or not concrete(event.times):
        return [event]
    times = np.asarray(event.times)
    again = np.append(False, (times[1:] == times[:-1]) & np.isfinite(times[1:]))
    if not again.any():
        return [event]
    # how many of the times before each are the same
    rank = np.arange(len(times)) - np.maximum.accumulate(np.where(again, 0, np.arange(len(times))))
    rows = [np.flatnonzero(rank == number) for number in range(rank.max() + 1)]
    return [Schedule(times[x], event.update, jax.tree.map(lambda v, x=x: v[x], event.values)) for x in rows]


class _OfDiffrax(eqx.Module):
    """A condition of a `diffrax.Event`, which takes keyword arguments too."""

    condition: Callable

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Any:
        return self.condition(t, y, args)


def _of_one(event: Any) -> list[Event | Schedule | AbstractEventSystem]:
    if isinstance(event, Event | Schedule | AbstractEventSystem):
        return [event]
    if isinstance(event, diffrax.Event):
        conditions, structure = jax.tree.flatten(event.cond_fn, is_leaf=callable)
        directions = structure.flatten_up_to(event.direction)
        signs = {None: 0, True: 1, False: -1}
        return [Event(_OfDiffrax(fn), None, signs[sign]) for fn, sign in zip(conditions, directions, strict=True)]
    cure = " Make an event of the function: `sciml.Event(condition)`." if inspect.isfunction(event) else ""
    raise TypeError(
        f"`events` must be a `sciml.Event`, a `sciml.Schedule`, a `diffrax.Event` or several of them, but "
        f"{no_instance(event)}.{cure}"
    )
