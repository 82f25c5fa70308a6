"""A one-step method whose steps look for events.

A step that passes over an event is taken again up to it, `Step.again`, and a step that ends at one changes the state.
What has been found so far is part of the state of the loop, so that every discrete adjoint carries it: a gradient that
repeats a step finds the same events, and derivatives of their times follow from those of the conditions.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..._jax._vma import match
from ..._status import Status
from ..._types import Args, BoolScalarLike, RealScalarLike, Y
from ..methods._stepper import AbstractStepper, BoundField, Step, measured_by_state
from ..methods._wrapped import AbstractWrappedStepper
from ._closed_events import BoundFieldWithEvents, Clock, close_events
from ._event import Layout, ModelWithEvents
from ._event_state import Detection, EventMemory, EventRecord, EventState, ShiftedState
from ._landing import Attempt, Landing, at_event, landings, leaving

_CROWDED = 64
"""Events less than so many roundings of the time apart are crowded, and as many of them as the next end a solve."""

_MOST_CROWDED = 8


class WithEvents(AbstractWrappedStepper):
    """A method around another, which looks for events.

    Attributes:
        base: The other.
        layout: What is static of the events.
    """

    base: AbstractStepper
    layout: Layout = eqx.field(static=True)

    transforms_state: ClassVar[bool] = True
    elementwise_dense: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def evaluations(self) -> int:
        """How many it takes depends on the events."""
        return -1

    @property
    def batched_vjp(self) -> bool:
        """Whether a step of many members is transposed as a whole."""
        return False

    @property
    def field_is_rate(self) -> bool:
        """The vector field is not the rate of what is known of events."""
        return False

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns model and events as what the steps need of them, with their operands."""
        assert isinstance(model, ModelWithEvents)
        field, operands = self.base.close(model.model, t, y, args, h)
        return close_events(field, operands, model, self.layout, t, y, args)

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns the state to start from, with what is known of events; what is due at the start happens."""
        assert isinstance(field, BoundFieldWithEvents)
        t, (y, found) = jnp.asarray(t), self.base.prepare(field.base, t, y)
        shown, clock = self._shown(field, y), field.clock
        passed = [clock.direction * (x - t) < -clock.resolution for x in clock.given]
        rows = tuple(jnp.sum(x).astype(t.dtype) for x in passed)
        due = self._due(clock, t, rows)
        # of value zero: who moves a time away from the start has what comes before it, too
        shift = jnp.zeros_like(t)
        for given, row, land in zip(clock.given, rows, due):
            shift = jnp.where(land & (shift == 0), jnp.where(land, _row(given, row), t) - t, shift)
        shift = shift - jax.lax.stop_gradient(shift)
        if due and self.base.field_is_rate and not self.base.transforms_state:
            y = shown = jax.tree.map(lambda x, r: x + shift.astype(x.dtype) * r, y, field.base(t, y))
        lands = self._in_order([jnp.zeros((), bool) for _ in field.booleans], due)
        record = EventRecord.blank(self.layout.kept, t, shown)
        grazes = [jnp.zeros((), bool)] * len(lands)
        now, rows, record = self._happen(field, t + shift, shown, lands, grazes, rows, record)
        if any(self.layout.updates):
            y = _where(_any(lands), self._entered(field, t, y, now), y)
        sides = map(jnp.sign, field.conditions(t, now))
        away = leaving(self.base, field, t, y, now)
        sides = tuple(jnp.where(side == 0, new, side) for side, new in zip(sides, away))
        zero = jnp.zeros_like(t)
        detection = Detection(sides, rows, self._stop(clock, t, rows), zero, zero)
        state = EventState(ShiftedState(y, shift), EventMemory(detection, record))
        return match(state, (t, y, shown)), found

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the memory that a step from `(t, y)` starts with."""
        return self.base.init(_base(field), t, y.saved.y)

    def finish(self, field: BoundField, y: Y) -> Y:
        """Returns the model's state of what was saved."""
        return self._shown(field, y.y)

    def starting_step(self, *arguments: Any, **options: Any) -> Array:
        """Returns the size of a first step, positive."""
        field, t, y, *rest = arguments
        return self.base.starting_step(_base(field), t, y.saved.y, *rest, **options)

    def aligned(self, field: BoundField, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a step near one that error control chose."""
        return self.base.aligned(_base(field), t, h)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances a state from `t` to `t + h`, or says that an event comes before."""
        return self._with_events(field, t, h, y, self.base.step(_base(field), t, h, y.saved.y, memory))

    def step_for_vjp(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return self._with_events(field, t, h, y, self.base.step_for_vjp(_base(field), t, h, y.saved.y))

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns what is saved at `t + theta * h`, before what happened at the end of the step."""
        del y1
        before, stages = dense
        return ShiftedState(self.base.interpolate(theta, h, y0.y, before, stages), y0.shift)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns the dense output of a step that has not been taken."""
        y = y.saved.y if isinstance(y, EventState) else y.y
        return y, self.base.empty_dense(y)

    def _shown(self, field: BoundField, y: Y) -> Y:
        return self.base.finish(_base(field), y) if self.base.transforms_state else y

    def _entered(self, field: BoundFieldWithEvents, t: Array, y: Y, state: Y) -> Y:
        """Returns a state in the variables of the method, NaN where none is consistent with the equations.

        Args:
            field: The vector field with its events.
            t: The time.
            y: The state before the event, in these variables.
            state: The model's state after it.
        """
        y, found = self.base.entered(field.base, t, y, state)
        return (
            y if found is None else _where(jnp.asarray(found), y, jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), y))
        )

    def _with_events(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Any, step: Step) -> Step:
        """Returns a step of the method with what it finds of events, and what they make of the state."""
        assert isinstance(field, BoundFieldWithEvents)
        detection = y.rest.detection
        attempt = Attempt.of(self.base, field, jnp.asarray(t), jnp.asarray(h), y.saved.y, step)
        found = landings(attempt, detection, self._of_events(self.layout.directions))
        again = _any(x.early for x in found)
        due = self._due(attempt.clock, attempt.end, detection.rows)
        if self.base.rough:  # what is due at the end has to wait for what comes before
            due = tuple(x & ~_any(one.lands for one in found) for x in due)
        lands = [land & ~again for land in self._in_order([x.lands for x in found], due)]
        after, memory = self._after(attempt, y, found, lands)
        waiting = detection._replace(stop=_stop_at(attempt, detection, found), sought=jnp.ones_like(detection.sought))
        over = _any(land for land, ends in zip(lands, self.layout.ends) if ends)
        crowded = after.rest.detection.crowded >= _MOST_CROWDED
        code = jnp.where(crowded, int(Status.crowded_events), int(Status.successful))
        return step._replace(
            y1=_where(again, EventState(y.saved, y.rest._replace(detection=waiting)), after),
            dense=(step.y1, step.dense),
            memory=memory,
            measured=measured_by_state(step, y.saved.y),
            again=again,
            ends=jnp.where(over, int(Status.event), code),
        )

    def _after(
        self, attempt: Attempt, y: EventState, found: list[Landing], lands: list[Bool[Array, ""]]
    ) -> tuple[EventState, PyTree]:
        """Returns the state after a step and the events that it ends at, and what the next one reuses.

        Args:
            attempt: The step.
            y: The state at its start.
            found: What it finds of events whose condition is sought.
            lands: Which events and schedules it ends at.
        """
        field, clock, step, end = attempt.field, attempt.clock, attempt.step, attempt.end
        detection, record = y.rest
        comes = self._of_schedules(lands)
        given = [
            jnp.where(land, _row(times, row), end) - end for land, times, row in zip(comes, clock.given, detection.rows)
        ]
        first, delay, taken = [], jnp.zeros_like(end), jnp.zeros((), bool)
        for land, own in zip(lands, self._in_order([x.delay for x in found], given)):
            first.append(land & ~taken)
            delay, taken = jnp.where(first[-1], own, delay), taken | land
        sides = tuple(x.side for x in found)
        grazes = self._in_order([x.grazes for x in found], [jnp.zeros((), bool) for _ in comes])

        def happen():
            now, y1 = at_event(attempt, delay, self._of_events(first))
            shown, rows, kept = self._happen(field, now, attempt.shown(y1), lands, grazes, detection.rows, record)
            if any(self.layout.updates):
                y1 = self._entered(field, now, y1, shown)
            values, away = field.conditions(now, shown), leaving(self.base, field, now, y1, shown)
            signs = tuple(
                jnp.where(land & (jnp.abs(value) <= x.zero), new, jnp.where(value == 0, x.side, jnp.sign(value)))
                for land, value, x, new in zip(self._of_events(lands), values, found, away)
            )
            near = jnp.abs(now - record.last) < _CROWDED * clock.resolution
            crowded = jnp.where(near & (record.count > 0), detection.crowded + 1, jnp.zeros_like(detection.crowded))
            # at a given time a field may jump, and the next step is to begin after that
            beyond = jax.lax.stop_gradient(clock.direction * clock.resolution)
            later = jnp.where(_any(comes), now + beyond, now)
            return later, y1, self.base.init(field.base, later, y1), rows, kept, signs, crowded

        def stay():
            return end, step.y1, step.memory, detection.rows, record, sides, detection.crowded

        like = (attempt.t, attempt.h, y, step.y1, step.memory, delay)
        now, y1, memory, rows, record, sides, crowded = jax.lax.cond(
            taken, lambda: match(happen(), like), lambda: match(stay(), like)
        )
        stop = self._stop(clock, jax.lax.stop_gradient(now), rows)
        detection = Detection(sides, rows, stop, jnp.zeros_like(stop), crowded)
        saved = ShiftedState(y1, y.saved.shift + (now - end))
        return EventState(saved, EventMemory(detection, record)), memory

    def _happen(
        self,
        field: BoundFieldWithEvents,
        t: Array,
        y: Y,
        lands: Sequence[Bool[Array, ""]],
        grazes: Sequence[Bool[Array, ""]],
        rows: tuple[Array, ...],
        record: EventRecord,
    ) -> tuple[Y, tuple[Array, ...], EventRecord]:
        """Returns the state after all events of a time, one after another, with the next rows and the record."""
        every_row = self._in_order([jnp.zeros_like(t) for _ in field.booleans], rows)
        for number, (land, row) in enumerate(zip(lands, every_row)):
            before = y
            if self.layout.updates[number]:
                y = _where(land, field.updated(number, t, row.astype(jnp.int32), y), y)
            record = record.written(land, number, grazes[number], t, before, y)
        comes = self._of_schedules(lands)
        return y, tuple(jnp.where(land, row + 1, row) for land, row in zip(comes, rows)), record

    def _due(self, clock: Clock, t: Array, rows: tuple[Array, ...]) -> tuple[Bool[Array, ""], ...]:
        """Returns of which schedules the next time has come."""
        return tuple(
            (row < given.shape[0]) & (clock.direction * (_row(given, row) - t) <= 4 * clock.resolution)
            for given, row in zip(clock.given, rows)
        )

    def _stop(self, clock: Clock, t: Array, rows: tuple[Array, ...]) -> Array:
        """Returns the length of a step that ends just before the next time of a schedule."""
        stop = jnp.full_like(t, jnp.finfo(t.dtype).max)
        for given, row in zip(clock.given, rows):
            left = clock.direction * (_row(given, row) - t) - clock.resolution
            there = (row < given.shape[0]) & (left < stop)
            stop = jnp.where(there, jnp.maximum(left, clock.resolution), stop)
        return jax.lax.stop_gradient(stop)

    def _in_order(self, of_events: Sequence[Any], of_schedules: Sequence[Any]) -> list:
        """Returns what belongs to events and to schedules in the order in which all were given."""
        events, schedules = iter(of_events), iter(of_schedules)
        return [next(schedules) if is_schedule else next(events) for is_schedule in self.layout.is_schedule]

    def _of_events(self, items: Sequence[Any]) -> list:
        return [x for x, is_schedule in zip(items, self.layout.is_schedule) if not is_schedule]

    def _of_schedules(self, items: Sequence[Any]) -> list:
        return [x for x, is_schedule in zip(items, self.layout.is_schedule) if is_schedule]


def _stop_at(attempt: Attempt, detection: Detection, found: list[Landing]) -> Array:
    """Returns the length of a step up to the first event that the attempted one has passed over."""
    size = attempt.size
    cut = jnp.full_like(size, jnp.finfo(size.dtype).max)
    for x in found:
        cut = jnp.where(x.early, jnp.minimum(cut, x.place * size), cut)
    cut = jnp.minimum(jnp.maximum(cut, 2 * attempt.clock.resolution), (1 - 1e-6) * size)
    return jnp.minimum(cut, detection.stop)


def _base(field: Any) -> Any:
    return field.base


def _row(times: Array, row: Array) -> Array:
    """Returns a row of a schedule; the last one beyond its end."""
    number = jnp.minimum(row, jnp.full_like(row, times.shape[0] - 1)).astype(jnp.int32)
    return jax.lax.dynamic_index_in_dim(times, number, 0, False)


def _any(conditions: Iterable[Bool[Array, ""]]) -> Bool[Array, ""]:
    return functools.reduce(jnp.logical_or, conditions, jnp.zeros((), bool))


def _where(condition: Array, a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)
