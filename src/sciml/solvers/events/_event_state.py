"""The carry of a loop with events: the state, the data of the events, and their record."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._vma import promote
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


class SystemState(NamedTuple):
    """The data of a system of events.

    Attributes:
        memory: Its carried memory.
        due: The next time at which something is to happen; `never_of` if nothing is.
        code: The status by which it has failed, zero if it has not.
    """

    memory: PyTree
    due: Array
    code: Array


class Detection(NamedTuple):
    """The data of the events; numbers, because gradients carry them.

    Attributes:
        sides: The sign that each condition has had; since its own event twice the one that it was going to have, or 0
            where that is not known.
        rows: The next row of each schedule.
        stop: The length of a step up to the next time of a schedule, or to an event that was found; else very large.
        sought: 1 where the next step is to end at an event that was found.
        crowded: How many events have followed one another within rounding.
        count: How many have happened.
        last: The time of the last one.
        system: The data of a system of events; None without one.
    """

    sides: tuple[Array, ...]
    rows: tuple[Array, ...]
    stop: Array
    sought: Array
    crowded: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    last: Array
    system: SystemState | None


class Happening(NamedTuple):
    """An event that may have happened at the end of a step.

    Attributes:
        row: Its row in the record; -1 where it has not happened.
        which: The index of the event, plus one half if its condition only grazed zero.
        time: Its time.
        before: The state before it.
        after: The state after it.
        rate: The rate of the state just before it; None where that is not kept.
    """

    row: Array
    which: Array
    time: Array
    before: PyTree
    after: PyTree
    rate: PyTree = None


class EventRecord(NamedTuple):
    """The first events that have happened, each array with a row for each.

    Steps read nothing of it, so the loops take it out of the state before a step, and write what has happened after.

    Attributes:
        times: Their times.
        before: The states before them.
        after: The states after them.
        which: The index of each event, plus one half if its condition only grazed zero.
        rates: The rates just before them; None where these are not kept.
    """

    times: Array
    before: PyTree
    after: PyTree
    which: Array
    rates: PyTree = None

    @classmethod
    def blank(cls, kept: int, t: Array, y: Y, rates: bool) -> "EventRecord":
        """Returns space for a number of events of a state, with their rates or without."""
        rows = jax.tree.map(lambda x: jnp.zeros((kept, *x.shape), x.dtype), y)
        numbers = jnp.zeros((kept,), t.dtype)
        return cls(numbers, rows, rows, numbers, rows if rates else None)

    @classmethod
    def row_of(cls, event: Happening) -> "EventRecord":
        """Returns what is in the row of an event."""
        return cls(event.time, event.before, event.after, event.which, event.rate)

    def written(self, event: Happening) -> "EventRecord":
        """Returns the record with an event, if it has happened and there is space."""
        here = jnp.arange(self.times.shape[0], dtype=event.row.dtype) == event.row
        return jax.tree.map(lambda rows, x: jnp.where(_beside(here, x), x[None], rows), self, self.row_of(event))

    def at(self, event: Happening) -> Happening:
        """Returns what is in the row of an event in the place of what it was, zero where it has not happened."""
        here = jnp.arange(self.times.shape[0], dtype=event.row.dtype) == event.row
        row = jax.tree.map(lambda rows: jnp.sum(jnp.where(_beside(here, rows[0]), rows, jnp.zeros_like(rows)), 0), self)
        return Happening(jnp.zeros_like(event.row), row.which, row.times, row.before, row.after, row.rates)


class EventMemory(NamedTuple):
    """The values carried in addition to the saved values.

    Attributes:
        detection: The values that steps read and change.
        record: The record of events, an `EventRecord`; None before a step, and after it the events at its end.
    """

    detection: Detection
    record: EventRecord | tuple[Happening, ...] | None


class EventState(NamedTuple):
    """A state of a loop whose steps look for events."""

    saved: ShiftedState
    rest: EventMemory


def with_record(y: PyTree, record: Any) -> PyTree:
    """Returns a state of a loop with another record of events; as it is where none are sought."""
    return y._replace(rest=y.rest._replace(record=record)) if isinstance(y, EventState) else y


def saved_part(y: PyTree) -> PyTree:
    """Returns what is saved of a state of a loop: all of it where no events are sought."""
    return y.saved if isinstance(y, EventState) else y


def joined(saved: PyTree, like: PyTree) -> PyTree:
    """Returns a state of a loop whose saved part is given, all else as of another."""
    return like._replace(saved=saved) if isinstance(like, EventState) else saved


def going_on(y: PyTree) -> PyTree:
    """Returns a state of a loop that goes on from it: of what is known of events two parts have derivatives.

    These are the last time, and a system of events. Of what is carried they are what later steps depend on;
    `with_earlier` gives the derivatives of the record.
    """
    if not isinstance(y, EventState):
        return y
    rest = jax.lax.stop_gradient(y.rest)
    known = y.rest.detection
    return y._replace(rest=rest._replace(detection=rest.detection._replace(last=known.last, system=known.system)))


def with_earlier(y: PyTree, earlier: PyTree) -> PyTree:
    """Returns a state of a loop that went on from an earlier one, with the derivatives of the events before that."""
    if not isinstance(y, EventState):
        return y
    record, count = earlier.rest.record, jax.lax.stop_gradient(earlier.rest.detection.count)
    before = jnp.arange(record.times.shape[0], dtype=count.dtype) < count
    return with_record(y, jax.tree.map(lambda a, b: jnp.where(_beside(before, a[0]), a, b), record, y.rest.record))


def derivative_of_shift(y: PyTree, direction: Array) -> Array | None:
    """Returns zero with the derivatives that elapsed time has after events; None where none are sought."""
    y = saved_part(y)
    return direction * derivatives_alone(y.shift) if isinstance(y, ShiftedState) else None


def moved_by_events(y0: PyTree, y1: PyTree, direction: Array) -> Array | None:
    """Returns by how much events have moved the end of a step, in elapsed time; None where none have."""
    if not isinstance(y0, EventState) or y1.saved.shift is y0.saved.shift:
        return None
    return jax.lax.stop_gradient(direction * (y1.saved.shift - y0.saved.shift))


def settled(y0: PyTree, y1: PyTree, last: Array) -> PyTree:
    """Returns the end of a step; one at a given time has not the derivative of the time of its start."""
    if not isinstance(y0, EventState):
        return y1
    shift = _without_moves(*promote((y1.saved.shift, y0.saved.shift, last)))
    return y1._replace(saved=y1.saved._replace(shift=shift))


@jax.custom_jvp
def derivatives_alone(x: Array) -> Array:
    """Returns zero, with the derivatives of an array."""
    # computed from the array, so that it has its members and varies over its mesh axes, as JAX requires of derivatives;
    # a choice between two equal constants would be simplified to one, which has neither
    return jnp.where(jnp.isfinite(x), x - x, jnp.zeros_like(x))


@derivatives_alone.defjvp
def _(primals, tangents):
    # not zeros, which have no derivatives when the rule is differentiated
    return derivatives_alone(primals[0]), tangents[0]


@jax.custom_jvp
def _without_moves(x: Array, other: Array, where: Array) -> Array:
    """Returns a number without the derivatives of another in some places; a step without any reads neither."""
    del other, where
    return x


@_without_moves.defjvp
def _(primals, tangents):
    where, (moves, others, _) = primals[2], tangents
    return _without_moves(*primals), moves - jnp.where(where, others, jnp.zeros_like(others))


def stop_of(y: PyTree) -> Array | None:
    """Returns the longest step that passes over no event that is known; None where none are sought."""
    return jax.lax.stop_gradient(y.rest.detection.stop) if isinstance(y, EventState) else None


def _beside(rows: Array, y: Array) -> Array:
    return rows.reshape(rows.shape + (1,) * y.ndim)
