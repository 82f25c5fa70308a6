"""What a loop carries where events are sought: the state, what is known of the events, and their record."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._types import Y


class ShiftedState(NamedTuple):
    """A state whose time events have shifted: what moves between them, and is saved.

    Attributes:
        y: The state, in the variables of the method.
        shift: By how much all events together have ended their steps later than these said, in time. It is small, and
            carries the derivatives that times have after an event.
    """

    y: Y
    shift: Array


class Detection(NamedTuple):
    """What is known of the events; numbers, since gradients carry them.

    Attributes:
        sides: The sign that each condition has had; after its own event twice the one that it is going to have, or 0
            where that is not known.
        rows: The next row of each schedule.
        stop: The length of a step up to the next time of a schedule, or to an event that was found; else very large.
        sought: 1 where the next step is to end at an event that was found.
        crowded: How many events have followed one another within rounding.
    """

    sides: tuple[Array, ...]
    rows: tuple[Array, ...]
    stop: Array
    sought: Array
    crowded: Array


class EventRecord(NamedTuple):
    """The first events that have happened, each array with a row for each.

    Attributes:
        times: Their times.
        before: The states before them.
        after: The states after them.
        which: Which event each was, and a half more where its condition only grazed zero.
        count: How many have happened.
        last: The time of the last one.
    """

    times: Array
    before: PyTree
    after: PyTree
    which: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    last: Array

    @classmethod
    def blank(cls, kept: int, t: Array, y: Y) -> "EventRecord":
        """Returns space for so many events of a state."""
        rows = jax.tree.map(lambda x: jnp.zeros((kept, *x.shape), x.dtype), y)
        numbers = jnp.zeros((kept,), t.dtype)
        return cls(numbers, rows, rows, numbers, jnp.zeros_like(t), jnp.zeros_like(t))

    def written(self, happens: Array, number: int, grazes: Array, t: Array, before: Y, after: Y) -> "EventRecord":
        """Returns the record with an event where it happens."""
        here = (jnp.arange(self.times.shape[0], dtype=t.dtype) == self.count) & happens

        def of_leaf(x: Array, rows: Array) -> Array:
            return jnp.where(here.reshape(here.shape + (1,) * x.ndim), x[None], rows)

        return EventRecord(
            jnp.where(here, t, self.times),
            jax.tree.map(of_leaf, before, self.before),
            jax.tree.map(of_leaf, after, self.after),
            jnp.where(here, number + 0.5 * grazes.astype(t.dtype), self.which),
            jnp.where(happens, self.count + 1, self.count),
            jnp.where(happens, t, self.last),
        )


class EventMemory(NamedTuple):
    """What is carried beside what is saved."""

    detection: Detection
    record: EventRecord


class EventState(NamedTuple):
    """A state of a loop whose steps look for events."""

    saved: ShiftedState
    rest: EventMemory


def saved_part(y: PyTree) -> PyTree:
    """Returns what is saved of a state of a loop: all of it where no events are sought."""
    return y.saved if isinstance(y, EventState) else y


def joined(saved: PyTree, like: PyTree) -> PyTree:
    """Returns a state of a loop whose saved part is given, all else as of another."""
    return like._replace(saved=saved) if isinstance(like, EventState) else saved


def derivative_of_shift(y: PyTree, direction: Array) -> Array | None:
    """Returns zero with the derivatives that elapsed time has after events; None where none are sought."""
    y = saved_part(y)
    if not isinstance(y, ShiftedState):
        return None
    return direction * (y.shift - jax.lax.stop_gradient(y.shift))


def moved_by_events(y0: PyTree, y1: PyTree, direction: Array) -> Array | None:
    """Returns by how much events have moved the end of a step, in elapsed time; None where none are sought."""
    if not isinstance(y0, EventState):
        return None
    return jax.lax.stop_gradient(direction * (y1.saved.shift - y0.saved.shift))


def settled(y0: PyTree, y1: PyTree, last: Array) -> PyTree:
    """Returns the end of a step; one at a given time has not the derivative of the time of its start."""
    if not isinstance(y0, EventState):
        return y1
    shift = y0.saved.shift
    own = jnp.where(last, shift - jax.lax.stop_gradient(shift), jnp.zeros_like(shift))
    return y1._replace(saved=y1.saved._replace(shift=y1.saved.shift - own))


def stop_of(y: PyTree) -> Array | None:
    """Returns the longest step that passes over no event that is known; None where none are sought."""
    return jax.lax.stop_gradient(y.rest.detection.stop) if isinstance(y, EventState) else None
