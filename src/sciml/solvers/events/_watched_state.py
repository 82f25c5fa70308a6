"""What a loop carries where events are sought: the state, what is known of the events, and their record."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._types import Y


class Moving(NamedTuple):
    """What moves between events, and is saved.

    Attributes:
        y: The state, in the variables of the method.
        shift: By how much all events together have ended their steps later than these said, in time. It is small, and
            carries the derivatives that times have after an event.
    """

    y: Y
    shift: Array


class Watch(NamedTuple):
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
        which: Which event each was.
        count: How many have happened.
        last: The time of the last one.
    """

    times: Array
    before: PyTree
    after: PyTree
    which: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    last: Array


class Rest(NamedTuple):
    """What is carried beside what is saved."""

    watch: Watch
    record: EventRecord


class Watched(NamedTuple):
    """A state of a loop whose steps look for events."""

    moving: Moving
    rest: Rest


def moving_of(y: PyTree) -> PyTree:
    """Returns what is saved of a state of a loop: all of it where no events are sought."""
    return y.moving if isinstance(y, Watched) else y


def joined(moving: PyTree, like: PyTree) -> PyTree:
    """Returns a state of a loop whose saved part is given, all else as of another."""
    return like._replace(moving=moving) if isinstance(like, Watched) else moving


def derivative_of_shift(y: PyTree, direction: Array) -> Array | None:
    """Returns zero with the derivatives that elapsed time has after events; None where none are sought."""
    y = moving_of(y)
    if not isinstance(y, Moving):
        return None
    return direction * (y.shift - jax.lax.stop_gradient(y.shift))


def moved_by_events(y0: PyTree, y1: PyTree, direction: Array) -> Array | None:
    """Returns by how much events have moved the end of a step, in elapsed time; None where none are sought."""
    if not isinstance(y0, Watched):
        return None
    return jax.lax.stop_gradient(direction * (y1.moving.shift - y0.moving.shift))


def settled(y0: PyTree, y1: PyTree, last: Array) -> PyTree:
    """Returns the end of a step; one at a given time has not the derivative of the time of its start."""
    if not isinstance(y0, Watched):
        return y1
    shift = y0.moving.shift
    own = jnp.where(last, shift - jax.lax.stop_gradient(shift), jnp.zeros_like(shift))
    return y1._replace(moving=y1.moving._replace(shift=y1.moving.shift - own))


def stop_of(y: PyTree) -> Array | None:
    """Returns the longest step that passes over no event that is known; None where none are sought."""
    return jax.lax.stop_gradient(y.rest.watch.stop) if isinstance(y, Watched) else None
