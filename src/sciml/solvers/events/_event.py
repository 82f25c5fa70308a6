"""`Event` and `Schedule`: what happens when a condition changes its sign, and what at times that are given."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._checks import concrete, no_instance
from ..._types import Args, RealScalarLike, Y

_DEFAULT_KEPT = 16
"""How many events are kept where some let the solve go on."""


class Event(eqx.Module):
    r"""What happens when $g(t, y, \mathrm{args})$ passes through zero, or a condition becomes true.

    The time is sought on the solution within a step, and the step is then taken again up to it, so that it is as
    accurate as the steps are. What holds at the start of a solve is no event; neither is a zero that is touched and
    not passed, nor one that the `update` of another event jumps over. Derivatives know that the time of an event
    depends on what the solution depends on: $\mathrm{d}t^* = -\mathrm{d}g / (\mathrm{d}g/\mathrm{d}t)$.

    Attributes:
        condition: $g$, a function `condition(t, y, args)` that returns a real number, whose passing through zero is
            sought, or a boolean, whose becoming true is. A boolean's time has no derivative.
        update: The state after the event, `update(t, y, args) -> y`; without it the solve ends there, with
            `Status.event`.
        direction: 1 where $g$ has to rise through zero, -1 where it has to fall, 0 for both.

    Raises:
        TypeError: If condition or update is no function.
        ValueError: If the direction is none of these.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        ball = lambda t, y, args: jnp.stack([y[1], -9.81])
        bounce = sciml.Event(lambda t, y, args: y[0], lambda t, y, args: jnp.stack([y[0], -0.8 * y[1]]), direction=-1)
        sol = sciml.solve(ball, jnp.array([1.0, 0.0]), t0=0.0, t1=1.2, events=bounce)
        assert sol.events.count == 2
        assert abs(sol.events.times[0] - (2 / 9.81) ** 0.5) < 1e-6
        ```
    """

    condition: Callable[[RealScalarLike, Y, Args], Any]
    update: Callable[[RealScalarLike, Y, Args], Y] | None = None
    direction: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        if not callable(self.condition):
            raise TypeError(
                f"`condition` must be a function `condition(t, y, args)`, but {no_instance(self.condition)}."
            )
        if self.update is not None and not callable(self.update):
            raise TypeError(
                f"`update` must be a function `update(t, y, args)` that returns the state after the event, or None "
                f"where the solve ends, but {no_instance(self.update)}."
            )
        if isinstance(self.direction, bool) or self.direction not in (-1, 0, 1):
            raise ValueError(f"`direction` must be 1, -1 or 0, but is {self.direction!r}.")


class Schedule(eqx.Module):
    """What happens at given times: doses, resets, steps of a forcing.

    Steps end at these times and go on after them with the length that they had. Times before the start of a solve have
    passed; one at the start happens there. Times and values may be traced, differ between members, and be
    differentiated by. A list that is shorter for some members ends with infinite times for them.

    Attributes:
        times: The times, in the direction of time, of shape `(times,)`.
        update: The state after each, `update(t, y, args) -> y`, or `update(t, y, args, value)` where there are values.
            Without it steps end at these times, and nothing changes: where the vector field itself jumps.
        values: A PyTree of arrays with one row for each time.

    Raises:
        TypeError: If the times are no real numbers or `update` is no function.
        ValueError: If the times are not in order or the values are of another number.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        doses = sciml.Schedule(jnp.array([0.0, 8.0]), lambda t, y, args, dose: y + dose, jnp.array([100.0, 50.0]))
        sol = sciml.solve(lambda t, y, args: -0.1 * y, jnp.array(0.0), t0=0.0, t1=8.0, events=doses)
        assert abs(sol.ys[-1] - (100 * jnp.exp(-0.8) + 50)) < 1e-3
        ```
    """

    times: Any
    update: Callable[..., Y] | None = None
    values: PyTree = None

    def __init__(self, times: Any, update: Callable[..., Y] | None = None, values: PyTree = None):
        known = not isinstance(times, jax.Array) and all(map(concrete, jax.tree.leaves(times)))
        self.times = np.asarray(times) if known else jnp.asarray(times)
        self.update = update
        self.values = jax.tree.map(jnp.asarray, values)

    def __check_init__(self):
        dtype, shape = self.times.dtype, self.times.shape
        if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
            raise TypeError(f"`times` of a `Schedule` must be real numbers, but have dtype {dtype}.")
        if len(shape) != 1 or shape[0] == 0:
            raise ValueError(f"`times` of a `Schedule` must have shape `(times,)`, one at least, but have {shape}.")
        if self.update is not None and not callable(self.update):
            raise TypeError(f"`update` of a `Schedule` must be a function, but {no_instance(self.update)}.")
        for path, x in jax.tree_util.tree_leaves_with_path(self.values):
            if x.shape[:1] != shape:
                where = jax.tree_util.keystr(path)
                raise ValueError(
                    f"`values{where}` of a `Schedule` must have a row for each of its {shape[0]} times, but has shape "
                    f"{x.shape}."
                )
        if self.values is not None and self.update is None:
            raise ValueError("`values` of a `Schedule` are for its `update(t, y, args, value)`, which is missing.")
        if concrete(self.times) and np.any(np.isnan(np.asarray(self.times))):
            raise ValueError("`times` of a `Schedule` must be no NaN; a time that never comes is infinite.")


class Layout(NamedTuple):
    """What is static of events.

    Attributes:
        is_schedule: Which are schedules.
        directions: The direction of each; 0 for schedules.
        ends: Which end the solve.
        updates: Which change the state.
        kept: How many occurrences are kept.
    """

    is_schedule: tuple[bool, ...]
    directions: tuple[int, ...]
    ends: tuple[bool, ...]
    updates: tuple[bool, ...]
    kept: int


class GivenEvents(NamedTuple):
    """The events of a solve.

    Attributes:
        each: The events.
        layout: What is static of them.
    """

    each: tuple[Event | Schedule, ...]
    layout: Layout


class ModelWithEvents(eqx.Module):
    """A model with the events that are sought on its solution.

    Attributes:
        model: The model.
        events: The events.
        direction: 1 forwards in time, -1 backwards.
        resolution: A few times what the times of the solve are rounded by.
    """

    model: Callable
    events: tuple[Event | Schedule, ...]
    direction: Array
    resolution: Array

    @classmethod
    def of(cls, model: Callable, events: tuple[Event | Schedule, ...], t0: Array, t1: Array) -> "ModelWithEvents":
        """Returns a model with its events, for a solve from one time to another."""
        direction = jnp.where(t1 >= t0, jnp.ones_like(t0), -jnp.ones_like(t0))
        largest = jnp.maximum(jnp.maximum(jnp.abs(t0), jnp.abs(t1)), jnp.abs(t1 - t0))
        return cls(model, events, direction, jax.lax.stop_gradient(4 * jnp.finfo(t0.dtype).eps * largest))

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns the vector field."""
        return self.model(t, y, args)


def read_events(events: Any, max_events: Any) -> GivenEvents | None:
    """Returns events as they were given in any form, or None without any.

    Raises:
        TypeError: If something is no event.
        ValueError: If `max_events` is no positive number or is given without events.
    """
    if events is None:
        if max_events is not None:
            raise ValueError(f"`max_events`={max_events} is how many of the `events` are kept, and there are none.")
        return None
    given = list(events) if isinstance(events, Sequence) else [events]
    found = tuple(x for one in given for x in _of_one(one))
    if not found:
        raise ValueError("`events` must be an event or several, but is empty; leave it out where there are none.")
    schedules = tuple(isinstance(x, Schedule) for x in found)
    ends = tuple(isinstance(x, Event) and x.update is None for x in found)
    if max_events is None:
        kept = 1 if all(ends) else _DEFAULT_KEPT
    elif isinstance(max_events, bool) or not isinstance(max_events, int | np.integer) or max_events < 1:
        raise ValueError(f"`max_events` must be a positive integer, but is {max_events!r}.")
    else:
        kept = int(max_events)
    directions = tuple(0 if isinstance(x, Schedule) else x.direction for x in found)
    return GivenEvents(found, Layout(schedules, directions, ends, tuple(x.update is not None for x in found), kept))


def check_order(events: tuple[Event | Schedule, ...], forwards: bool | None) -> None:
    """Checks that the times of schedules are in the direction of time, where they are known.

    Raises:
        ValueError: If they are not.
    """
    for schedule in events:
        if isinstance(schedule, Schedule) and concrete(schedule.times) and forwards is not None:
            times = np.asarray(schedule.times, float)
            steps = np.diff(times[np.isfinite(times)]) * (1 if forwards else -1)
            ended = np.isinf(times)
            if np.any(steps <= 0) or np.any(ended[:-1] & ~ended[1:]):
                order = "ascend" if forwards else "descend"
                raise ValueError(
                    f"`times` of a `Schedule` must strictly {order}, in the direction of time, and infinite ones come "
                    f"last, but they are {times}."
                )


def out_of_order(events: tuple[Event | Schedule, ...], direction: Array) -> Array | None:
    """Returns whether traced times of schedules are not in the direction of time; None where all are known."""
    wrong = []
    for schedule in events:
        if isinstance(schedule, Schedule) and not concrete(schedule.times):
            times = schedule.times.astype(direction.dtype)
            follows = (direction * (times[1:] - times[:-1]) > 0) & jnp.isfinite(times[:-1]) | jnp.isinf(times[1:])
            wrong.append(~jnp.all(follows) | jnp.isnan(times[0]))
    return jnp.any(jnp.stack(wrong)) if wrong else None


class _OfDiffrax(eqx.Module):
    """A condition of a `diffrax.Event`, which takes keyword arguments too."""

    condition: Callable

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Any:
        return self.condition(t, y, args)


def _of_one(event: Any) -> list[Event | Schedule]:
    if isinstance(event, Event | Schedule):
        return [event]
    if isinstance(event, diffrax.Event):
        conditions, structure = jax.tree.flatten(event.cond_fn, is_leaf=callable)
        directions = structure.flatten_up_to(event.direction)
        signs = {None: 0, True: 1, False: -1}
        return [Event(_OfDiffrax(fn), None, signs[sign]) for fn, sign in zip(conditions, directions, strict=True)]
    raise TypeError(
        f"`events` must be a `sciml.Event`, a `sciml.Schedule`, a `diffrax.Event` or several of them, but "
        f"{no_instance(event)}."
    )
