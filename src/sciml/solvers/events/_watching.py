"""A one-step method whose steps look for events.

A step that passes over an event is taken again up to it, `Step.again`, and a step that ends at one changes the state.
What has been found so far is part of the state of the loop, so that every discrete adjoint carries it: a gradient that
repeats a step finds the same events, and derivatives of their times follow from those of the conditions.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..._jax._vma import match
from ..._status import Status
from ..._types import Args, BoolScalarLike, RealScalarLike, Y
from ..methods._stepper import AbstractStepper, BoundField, Step
from ..methods._wrapped import AbstractWrappedStepper
from ._crossing import PLACES, Crossing, first_crossing
from ._event import Layout, WatchedModel
from ._watched_field import BoundWatchedField, Clock, close_events
from ._watched_state import EventRecord, Moving, Rest, Watch, Watched

_NEAR = 1e-5
"""How near to an event a step has to end, of its length; two corrections by Newton's method leave nothing of it."""

_LEFT = 1e-6
"""The size of a condition after its event, of that before, up to which it counts as zero."""

_STEEP = 1e-9
"""The slope of a condition over a step, of its size there, that is more than rounding."""

_CROWDED = 64
"""Events less than so many roundings of the time apart are crowded, and as many of them as the next end a solve."""

_MOST_CROWDED = 8


class Watching(AbstractWrappedStepper):
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
        assert isinstance(model, WatchedModel)
        field, operands = self.base.close(model.model, t, y, args, h)
        return close_events(field, operands, model, self.layout, t, y, args)

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns the state to start from, with what is known of events; what is due at the start happens."""
        assert isinstance(field, BoundWatchedField)
        t, (y, found) = jnp.asarray(t), self.base.prepare(field.base, t, y)
        shown, zero, kept = self._shown(field, y), jnp.zeros_like(t), self.layout.kept
        rows = jax.tree.map(lambda x: jnp.zeros((kept, *x.shape), x.dtype), shown)
        of_times = jnp.zeros((kept,), t.dtype)
        record = EventRecord(of_times, rows, rows, of_times, zero, jnp.zeros_like(t))
        times = field.times(t, shown)
        passed = [times.direction * (x - t) < -times.resolution for x in times.given]
        numbers = tuple(jnp.sum(x).astype(t.dtype) for x in passed)
        due = self._due(times, t, numbers)
        none = jnp.zeros((), bool)
        rest = iter(due)
        lands = tuple(next(rest) if schedule else none for schedule in self.layout.is_schedule)
        delay = jnp.zeros_like(t)  # of value zero: who moves a time from the start has what comes before it, too
        for given, row, land in zip(times.given, numbers, due):
            delay = jnp.where(land & (delay == 0), jnp.where(land, _row(given, row), t) - t, delay)
        delay = delay - jax.lax.stop_gradient(delay)
        if self.layout.is_schedule.count(True) and self.base.field_is_rate and not self.base.transforms_state:
            y = jax.tree.map(lambda x, r: x + delay.astype(x.dtype) * r, y, field.base(t, y))
            shown = y
        now, numbers, record = self._happen(field, t + delay, shown, lands, numbers, record)
        if any(self.layout.updates):
            y = _where(_any(lands), self._entered(field, t, now), y)
        sides = tuple(map(jnp.sign, field.conditions(t, now)))
        if sides:
            leaving = self._leaving(field, t, y, now)
            sides = tuple(jnp.where(side == 0, new, side) for side, new in zip(sides, leaving))
        watch = Watch(sides, numbers, self._stop(times, t, numbers), zero, zero)
        state = Watched(Moving(y, delay), Rest(watch, record))
        return match(state, (t, y, shown)), found

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the memory that a step from `(t, y)` starts with."""
        return self.base.init(_base(field), t, y.moving.y)

    def finish(self, field: BoundField, y: Y) -> Y:
        """Returns the model's state of what was saved."""
        return self._shown(field, y.y)

    def starting_step(self, *arguments: Any, **options: Any) -> Array:
        """Returns the size of a first step, positive."""
        field, t, y, *rest = arguments
        return self.base.starting_step(_base(field), t, y.moving.y, *rest, **options)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances a state from `t` to `t + h`, or says that an event comes before."""
        return self._watched(field, t, h, y, self.base.step(_base(field), t, h, y.moving.y, memory))

    def step_for_vjp(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return self._watched(field, t, h, y, self.base.step_for_vjp(_base(field), t, h, y.moving.y))

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns what is saved at `t + theta * h`, before what happened at the end of the step."""
        del y1
        before, stages = dense
        return Moving(self.base.interpolate(theta, h, y0.y, before, stages), y0.shift)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns the dense output of a step that has not been taken."""
        y = y.moving.y if isinstance(y, Watched) else y.y
        return y, self.base.empty_dense(y)

    def _shown(self, field: BoundField, y: Y) -> Y:
        return self.base.finish(_base(field), y) if self.base.transforms_state else y

    def _entered(self, field: BoundWatchedField, t: Array, y: Y) -> Y:
        """Returns a state in the variables of the method, NaN where none is consistent with the equations."""
        y, found = self.base.prepare(field.base, t, y)
        return y if found is None else _where(jnp.asarray(found), y, jax.tree.map(lambda x: x * jnp.nan, y))

    def _watched(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Any, step: Step) -> Step:
        """Returns a step of the method with what it finds of events, and what they make of the state."""
        assert isinstance(field, BoundWatchedField)
        t, h = jnp.asarray(t), jnp.asarray(h)
        moving, (watch, record) = y
        path, end, one = self._path(field, t, h, moving.y, step), t + h, jnp.ones_like(t)
        _, rate = jax.jvp(path, (one,), (one,))
        times = field.times(t, self._shown(field, moving.y))
        size = times.direction * h
        lands, delays, crossings, small = [], [], [], []
        if not all(self.layout.is_schedule):
            crossings, scales = self._crossings(field, t, h, moving.y, step.y1, path, watch)
            lands, delays, small = self._landings(field, size, times, watch, crossings, scales, end, h, step.y1, rate)
        early = [c.found & ~land for c, land in zip(crossings, lands)]
        again = _any(early)
        far = jnp.full_like(size, jnp.finfo(size.dtype).max)
        cut = far
        for crossing, is_early in zip(crossings, early):
            cut = jnp.where(is_early, jnp.minimum(cut, crossing.place * size), cut)
        cut = jnp.minimum(jnp.maximum(cut, 2 * times.resolution), (1 - 1e-6) * size)

        found, late = iter(zip(lands, delays)), iter(zip(self._due(times, end, watch.rows), times.given, watch.rows))
        all_lands, first, delay, taken = [], [], jnp.zeros_like(t), jnp.zeros((), bool)
        beyond = jnp.zeros_like(t)  # at a given time a field may jump, and the next step is to begin after that
        for is_schedule in self.layout.is_schedule:
            if is_schedule:
                land, given, row = next(late)
                own = jnp.where(land, _row(given, row), end) - end
                beyond = jnp.where(land, jax.lax.stop_gradient(times.direction * times.resolution), beyond)
            else:
                land, own = next(found)
            land = land & ~again
            first.append(land & ~taken)
            delay, taken = jnp.where(first[-1], own, delay), taken | land
            all_lands.append(land)

        sides = tuple(c.side for c in crossings)

        def happen():
            now, moved = self._moved(field, t, h, path, 1 + delay / h, self._of_events(first))
            shown, rows, kept = self._happen(field, now, self._shown(field, moved), all_lands, watch.rows, record)
            y1 = moved
            if any(self.layout.updates):
                y1 = self._entered(field, now, shown)
            values, leaving = field.conditions(now, shown), self._leaving(field, now, y1, shown)
            signs = tuple(
                jnp.where(land & (jnp.abs(value) <= zero), new, _sign(value, side))
                for land, value, zero, side, new in zip(self._of_events(all_lands), values, small, sides, leaving)
            )
            near = jnp.abs(now - record.last) < _CROWDED * times.resolution
            crowded = jnp.where(near & (record.count > 0), watch.crowded + 1, jnp.zeros_like(watch.crowded))
            later = now + beyond
            memory = self.base.init(field.base, later, y1)
            return later, y1, memory, rows, kept, signs, crowded

        def stay():
            return end, step.y1, step.memory, watch.rows, record, sides, watch.crowded

        like = (t, h, y, step.y1, step.memory, delay)
        now, y1, memory, rows, record1, sides, crowded = jax.lax.cond(
            taken, lambda: match(happen(), like), lambda: match(stay(), like)
        )
        stop = self._stop(times, jax.lax.stop_gradient(now), rows)
        shift = moving.shift + (now - end)
        after = Watched(Moving(y1, shift), Rest(Watch(sides, rows, stop, jnp.zeros_like(stop), crowded), record1))
        waiting = watch._replace(stop=jnp.minimum(cut, watch.stop), sought=jnp.ones_like(stop))
        y1 = _where(again, Watched(moving, Rest(waiting, record)), after)
        over = _any([land for land, ends in zip(all_lands, self.layout.ends) if ends])
        code = jnp.where(crowded >= _MOST_CROWDED, int(Status.crowded_events), int(Status.successful))
        measured = step.measured
        if step.error is not None and measured is None:  # the tolerances are those of the state alone
            sizes = jax.tree.map(lambda a, b: jnp.maximum(jnp.abs(a), jnp.abs(b)), moving.y, step.y1)
            measured = (step.error, sizes)
        return step._replace(
            y1=y1,
            dense=(step.y1, step.dense),
            memory=memory,
            measured=measured,
            again=again,
            ends=jnp.where(over, int(Status.event), code),
        )

    def _path(self, field: BoundWatchedField, t: Array, h: Array, y: Y, step: Step) -> Callable[[Array], Y]:
        """Returns the solution within a step: of the method, or a cubic by the slopes at both ends."""
        if self.base.dense:
            return lambda place: self.base.interpolate(place, h, y, step.y1, step.dense)
        first, last = field.base(t, y), field.base(t + h, step.y1)

        def cubic(place):
            rest = 1 - place

            def of_leaf(a, b, f, g):
                x, r, length = (s.astype(a.dtype) for s in (place, rest, h))
                return r * a + x * b - x * r * ((r - x) * (b - a) + length * (x * g - r * f))

            return jax.tree.map(of_leaf, y, step.y1, first, last)

        return cubic

    def _moved(
        self,
        field: BoundWatchedField,
        t: Array,
        h: Array,
        path: Callable[[Array], Y],
        place: Array,
        first: list[Bool[Array, ""]],
    ) -> tuple[Array, Y]:
        """Returns time and state of an event from a first correction of its place, with second derivatives, too."""
        there, rate = jax.jvp(path, (place,), (jnp.ones_like(place),))
        now, more = t + place * h, jnp.zeros_like(place)
        if not all(field.booleans):
            inputs = (now, self._shown(field, there)), (h, self._shown(field, rate))
            values, slopes = jax.jvp(field.conditions, *inputs)
            for value, slope, chosen, boolean in zip(values, slopes, first, field.booleans):
                if not boolean:
                    steep = chosen & (slope != 0)
                    away = -value / jnp.where(steep, slope, jnp.ones_like(slope))
                    more = more + jnp.where(steep, away, jnp.zeros_like(away))
        moved = jax.tree.map(lambda x, r: x + more.astype(x.dtype) * r, there, rate)
        return now + more * h, moved

    def _leaving(self, field: BoundWatchedField, t: Array, y: Y, shown: Y) -> tuple[Array, ...]:
        """Returns to which side each condition leaves its zero, times two, or zero where that is not known."""
        if not field.booleans:
            return ()
        if not self.base.field_is_rate:
            return tuple(jnp.zeros_like(t) for _ in field.booleans)
        rate = self._shown(field, field.base(t, y))
        direction = field.times(t, shown).direction
        _, slopes = jax.jvp(field.conditions, (t, shown), (jnp.ones_like(t), rate))
        return tuple(jax.lax.stop_gradient(2 * direction * jnp.sign(slope)) for slope in slopes)

    def _crossings(
        self,
        field: BoundWatchedField,
        t: Array,
        h: Array,
        y0: Y,
        y1: Y,
        path: Callable[[Array], Y],
        watch: Watch,
    ) -> tuple[list[Crossing], tuple[Array, ...]]:
        """Returns where each condition first passes through zero within the step, and how large it is there."""

        def at(place: Array) -> tuple[Array, ...]:
            return field.conditions(t + place * h, self._shown(field, path(place)))

        start, end = field.conditions(t, self._shown(field, y0)), field.conditions(t + h, self._shown(field, y1))
        # where an event is depends on the landing alone
        values = jax.lax.stop_gradient([start, *(at(jnp.full_like(t, p)) for p in PLACES), end])
        found, scales = [], []
        for number, side in enumerate(watch.sides):
            mine = tuple(x[number] for x in values)
            boolean = (lambda p, n=number: at(p)[n]) if field.booleans[number] else None
            found.append(first_crossing(mine, side, self._direction(field, number), boolean))  # pyright: ignore[reportArgumentType]
            scales.append(jnp.max(jnp.abs(jnp.stack(mine))))
        return found, tuple(scales)

    def _landings(
        self,
        field: BoundWatchedField,
        size: Array,
        times: Clock,
        watch: Watch,
        crossings: list[Crossing],
        scales: tuple[Array, ...],
        end: Array,
        h: Array,
        y1: Y,
        rate: Y,
    ) -> tuple[list[Bool[Array, ""]], list[Array], list[Array]]:
        """Returns which events are where the step ends, how much later, in time, and what of a condition is zero."""
        shown, rate = self._shown(field, y1), self._shown(field, rate)
        values, slopes = jax.jvp(field.conditions, (end, shown), (h, rate))
        resolution = times.resolution
        # the step ends where an event was found
        aimed = (watch.sought > 0) & (size >= watch.stop - resolution)
        tiny = size <= 8 * resolution
        lands, delays, small = [], [], []
        for number, (crossing, value, slope, scale) in enumerate(zip(crossings, values, slopes, scales)):
            if field.booleans[number]:
                land, delay = crossing.found & ((crossing.late & aimed) | tiny), jnp.zeros_like(h)
            else:
                steep = jnp.abs(slope) > _STEEP * scale
                away = -value / jnp.where(steep, slope, jnp.ones_like(slope))
                near = steep & (jnp.abs(away) * size <= jnp.maximum(_NEAR * size, 2 * resolution)) | (value == 0)
                direction, heads = self._direction(field, number), jnp.sign(slope)
                ahead = aimed & (heads * crossing.side < 0) & ((direction == 0) | (heads == direction))
                land = near & ((crossing.found & crossing.late) | (~crossing.found & ahead)) | (crossing.found & tiny)
                delay = jnp.where(land & near & steep, away, jnp.zeros_like(away)) * h
            lands.append(land)
            delays.append(delay)
            rounding = jnp.abs(slope) * (16 * resolution / size)
            small.append(jax.lax.stop_gradient(jnp.maximum(_LEFT * scale, rounding)))
        return lands, delays, small

    def _happen(
        self,
        field: BoundWatchedField,
        t: Array,
        y: Y,
        lands: Any,
        rows: tuple[Array, ...],
        record: EventRecord,
    ) -> tuple[Y, tuple[Array, ...], EventRecord]:
        """Returns the state after all events of a time, one after another, with the next rows and the record."""
        new_rows, places = list(rows), jnp.arange(self.layout.kept, dtype=t.dtype)
        schedule = 0
        for number, land in enumerate(lands):
            before, row = y, jnp.zeros((), jnp.int32)
            if self.layout.is_schedule[number]:
                row = new_rows[schedule].astype(jnp.int32)
                new_rows[schedule] = jnp.where(land, new_rows[schedule] + 1, new_rows[schedule])
                schedule += 1
            if self.layout.updates[number]:
                y = _where(land, field.updated(number, t, row, y), y)
            here = (places == record.count) & land
            record = EventRecord(
                jnp.where(here, t, record.times),
                _written(here, before, record.before),
                _written(here, y, record.after),
                jnp.where(here, jnp.asarray(number, t.dtype), record.which),
                jnp.where(land, record.count + 1, record.count),
                jnp.where(land, t, record.last),
            )
        return y, tuple(new_rows), record

    def _due(self, times: Clock, t: Array, rows: tuple[Array, ...]) -> tuple[Bool[Array, ""], ...]:
        """Returns of which schedules the next time has come."""
        return tuple(
            (row < given.shape[0]) & (times.direction * (_row(given, row) - t) <= 4 * times.resolution)
            for given, row in zip(times.given, rows)
        )

    def _stop(self, times: Clock, t: Array, rows: tuple[Array, ...]) -> Array:
        """Returns the length of a step that ends just before the next time of a schedule."""
        stop = jnp.full_like(t, jnp.finfo(t.dtype).max)
        for given, row in zip(times.given, rows):
            left = times.direction * (_row(given, row) - t) - times.resolution
            there = (row < given.shape[0]) & (left < stop)
            stop = jnp.where(there, jnp.maximum(left, times.resolution), stop)
        return jax.lax.stop_gradient(stop)

    def _of_events(self, items: Any) -> list:
        return [x for x, is_schedule in zip(items, self.layout.is_schedule) if not is_schedule]

    def _direction(self, field: BoundWatchedField, number: int) -> int:
        return 1 if field.booleans[number] else self._of_events(self.layout.directions)[number]


def _base(field: Any) -> Any:
    return field.base


def _row(times: Array, row: Array) -> Array:
    """Returns a row of a schedule; the last one beyond its end."""
    number = jnp.minimum(row, jnp.full_like(row, times.shape[0] - 1)).astype(jnp.int32)
    return jax.lax.dynamic_index_in_dim(times, number, 0, False)


def _sign(value: Array, side: Array) -> Array:
    return jnp.where(value == 0, side, jnp.sign(value))


def _any(conditions: Any) -> Array:
    found = jnp.zeros((), bool)
    for condition in conditions:
        found = found | condition
    return found


def _written(here: Bool[Array, " kept"], y: PyTree, rows: PyTree) -> PyTree:
    def of_leaf(x, rows):
        return jnp.where(here.reshape(here.shape + (1,) * x.ndim), x[None], rows)

    return jax.tree.map(of_leaf, y, rows)


def _where(condition: Array, a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)
