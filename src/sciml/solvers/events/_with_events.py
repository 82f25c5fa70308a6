"""A one-step method whose steps look for events.

A step that passes over an event is taken again up to it, `Step.again`, and a step that ends at one changes the state.
In most steps nothing comes, which a few signs of the conditions tell: all else is behind one branch, which one member
seldom takes. Many members share their steps, and some of them would take it in nearly every step; so `QuietSteps` leave
these out, and the loop gathers them for the whole method. The record so far is part of the state of the loop, so every
discrete adjoint carries it: a gradient that repeats a step finds the same events, and derivatives of their times follow
from the derivatives of the conditions.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..._interfaces._event_system import never_of
from ..._jax._branches import cond
from ..._jax._vma import match
from ..._status import Status
from ..._types import Args, BoolScalarLike, RealScalarLike, Y
from ..control._pid import FirstStep
from ..methods._capabilities import Coordinates, Hooks, Limits, Traits
from ..methods._stepper import AbstractStepper, BoundField, Step, measured_by_state, step_for_vjp
from ..methods.around._wrapped import AbstractWrappedStepper
from ._closed_events import BoundFieldWithEvents, Clock, close_events
from ._event import Layout, ModelWithEvents
from ._event_state import (
    Detection,
    EventMemory,
    EventRecord,
    EventState,
    Happening,
    ShiftedState,
    SystemState,
    derivatives_alone,
)
from ._landing import Attempt, Landing, arrival, cut_at_first, landings, leaving, passing
from ._sides import advanced, beside, knows_rate, one_sided, rate_beside

_CROWDED = 64
"""Events closer than this number of roundings of the time are crowded; as many crowded events as the next constant end
a solve."""

_MOST_CROWDED = 8


class WithEvents(AbstractWrappedStepper):
    """A method around another, which looks for events.

    Attributes:
        base: The other.
        layout: The static description of the events.
    """

    base: AbstractStepper
    layout: Layout = eqx.field(static=True)

    @property
    def traits(self) -> Traits:
        """Its state is a state with the data of events; rates are rates in the model's variables."""
        of_base = self.base.traits
        return super().traits._replace(
            elementwise_dense=False,
            batched_vjp=False,
            transforms_state=True,
            field_is_rate=of_base.field_is_rate and not of_base.transforms_state,
            knows_rate=knows_rate(self.base),
        )

    @property
    def limits(self) -> Limits:
        """The limits of the other method, for its own field."""
        return super().limits._replace(aligned=self.aligned, rest=self.rest)

    @property
    def coordinates(self) -> Coordinates:
        """A state with the data of events."""
        return Coordinates(self.close, self.starting_step, prepare=self.prepare, finish=self.finish, rate=self.rate)

    @property
    def hooks(self) -> Hooks:
        """The events at the end of a step, also for steps in gradients."""
        return super().hooks._replace(completed=self.completed, step_for_vjp=self.step_for_vjp)

    @property
    def evaluations(self) -> int:
        """How many it takes depends on the events."""
        return -1

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns model and events as what the steps need of them, with their operands."""
        assert isinstance(model, ModelWithEvents)
        field, operands = self.base.coordinates.close(model.model, t, y, args, h)
        return close_events(field, operands, model, self.layout, t, y, args)

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns the initial state, with the data of events; events due at the start fire."""
        assert isinstance(field, BoundFieldWithEvents)
        t, (y, found) = jnp.asarray(t), self.base.coordinates.prepare(field.base, t, y)
        shown, clock = self._shown(field, y), field.clock
        passed = [clock.direction * (x - t) < -clock.resolution for x in clock.given]
        rows = tuple(jnp.sum(x).astype(t.dtype) for x in passed)
        due = self._due(clock, t, rows)
        # a time that moves away from the start also includes what comes before it
        none, zero = jnp.zeros((), bool), jnp.zeros_like(t)
        given = [jnp.where(land, _row(times, row), t) for times, row, land in zip(clock.given, rows, due)]
        lands, times = [self._in_order([x for _ in field.booleans], xs) for x, xs in ((none, due), (t, given))]
        system = None
        if self.layout.due is not None:
            system = SystemState(field.start(t, shown), jnp.full_like(t, never_of(t.dtype)), zero)
        detection = Detection((), rows, zero, zero, zero, zero, zero, system)
        whole = y if self._enters_each else None
        start = _Moment(t, shown, jax.tree.map(jnp.zeros_like, shown), jnp.ones((), bool), none, whole)
        moment, detection, events, own = self._happen(field, start, times, lands, [none] * len(lands), detection)
        record = EventRecord.blank(self.layout.kept, t, shown, self.layout.rates)
        for event in events:
            record = record.written(event)
        if not self.base.traits.transforms_state:
            y = moment.y
        elif moment.whole is not None:
            y = moment.whole
        elif self._enters:
            happened = _any(lands) if system is None else _any([*lands, events[-1].row >= 0])
            y = _where(happened, self._entered(field, t, y, moment.y), y)
        now, shift = moment.y, moment.t - t
        sides = map(jnp.sign, field.conditions(t, now))
        rate = self.base.coordinates.rate(field.base, t, y) if field.booleans and knows_rate(self.base) else None
        away = self._sides_of(own, leaving(field, t, now, None if rate is None else self._shown(field, rate)))
        sides = tuple(jnp.where(side == 0, new, side) for side, new in zip(sides, away))
        detection = detection._replace(sides=sides)
        detection = detection._replace(stop=self._stop(self._clock(field, detection), t, detection.rows))
        state = EventState(ShiftedState(y, shift), EventMemory(detection, record))
        return match(state, (t, y, shown)), found

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the memory that a step from `(t, y)` starts with."""
        return self.base.init(_base(field), t, y.saved.y)

    def finish(self, field: BoundField, y: Y) -> Y:
        """Returns the model's state of what was saved."""
        return self._shown(field, y.y)

    def rate(self, field: BoundField, t: RealScalarLike, y: Y) -> Y:
        """Returns the rate of what is saved, strictly after the events of a time."""
        assert isinstance(field, BoundFieldWithEvents)
        return ShiftedState(rate_beside(self.base, field, jnp.asarray(t), y.y, 1.0), jnp.zeros_like(y.shift))

    def starting_step(self, field: BoundField, start: FirstStep) -> Array:
        """Returns the size of a first step, positive."""
        return self.base.coordinates.starting_step(_base(field), start._replace(y=start.y.saved.y))

    def aligned(self, field: BoundField, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a step near one that error control chose."""
        return self.base.limits.aligned(_base(field), t, h)

    def rest(self, field: BoundField, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a fixed step: what is left of one that an event has cut."""
        return self.base.limits.rest(_base(field), t, h)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances a state from `t` to `t + h`, as if there were no events; see `completed`."""
        return _without_events(y, self.base.step(_base(field), t, h, y.saved.y, memory))

    def step_for_vjp(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return _without_events(y, step_for_vjp(self.base, _base(field), t, h, y.saved.y))

    def completed(
        self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, step: Step, good: BoolScalarLike
    ) -> Step:
        """Returns a step with what happens at its end, or one that says that an event comes before."""
        assert isinstance(field, BoundFieldWithEvents)
        attempt = self.attempted(field, t, h, y, step)

        like = (attempt.t, attempt.h, y, step.y1, step.memory)
        found = cond(
            good & self.may_come(attempt, y.rest.detection),
            lambda: self._with_events(attempt, y),
            lambda: self._quiet(attempt, y),
            like=like,
        )
        ends = found.ends if step.ends is None else jnp.where(found.ends != 0, found.ends, step.ends).astype(jnp.int8)
        return step._replace(y1=found.y1, memory=found.memory, again=found.again, ends=ends)

    def attempted(
        self, field: "BoundFieldWithEvents", t: RealScalarLike, h: RealScalarLike, y: Y, step: Step
    ) -> Attempt:
        """Returns a step of this method as what events are sought within."""
        own = step._replace(y1=step.y1.saved.y, dense=step.dense[1])
        clock = self._clock(field, y.rest.detection)
        return Attempt.of(self.base, field, jnp.asarray(t), jnp.asarray(h), y.saved.y, own)._replace(clock=clock)

    def may_come(self, attempt: Attempt, detection: Detection) -> Bool[Array, ""]:
        """Returns whether anything may happen within a step or at its end: where not, it need not be looked at."""
        due = self._due(attempt.clock, attempt.end, detection.rows)
        failed = jnp.zeros((), bool) if detection.system is None else detection.system.code > 0
        return passing(attempt, detection) | _any(due) | failed

    def quiet_detection(self, attempt: Attempt, detection: Detection) -> Detection:
        """Returns what is known of events after a step within which and at whose end nothing happens."""
        if not attempt.clock.given:
            return detection
        return detection._replace(stop=self._stop(attempt.clock, jax.lax.stop_gradient(attempt.end), detection.rows))

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
        return self.base.coordinates.finish(_base(field), y) if self.base.traits.transforms_state else y

    def _entered(self, field: BoundFieldWithEvents, t: Array, y: Y, state: Y) -> Y:
        """Returns a state in the variables of the method, NaN where none is consistent with the equations.

        Args:
            field: The vector field with its events.
            t: The time.
            y: The state before the event, in these variables.
            state: The model's state after it.
        """
        y, found = self.base.coordinates.after_event(field.base, t, y, state)
        return (
            y if found is None else _where(jnp.asarray(found), y, jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), y))
        )

    def _consistent(
        self, field: BoundFieldWithEvents, t: Array, land: Array, before: Y, y: Y, whole: Y | None
    ) -> tuple[Y, Y | None]:
        """Returns the model's state, and the one of the method, after an event with consistent algebraic variables."""
        entered = self._entered(field, t, before if whole is None else whole, y)
        if whole is None:
            return _where(land, entered, y), None
        return _where(land, self._shown(field, entered), y), _where(land, entered, whole)

    def _quiet(self, attempt: Attempt, y: EventState) -> "_Completed":
        """Returns what follows from a step within which and at whose end nothing happens."""
        memory = EventMemory(self.quiet_detection(attempt, y.rest.detection), self._nothing(attempt))
        state = EventState(ShiftedState(attempt.step.y1, y.saved.shift), memory)
        return _Completed(state, attempt.step.memory, jnp.zeros((), bool), jnp.zeros((), jnp.int8))

    def _nothing(self, attempt: Attempt) -> tuple[Happening, ...]:
        """Returns in the place of every event that it has not happened."""
        y = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(attempt.shown, attempt.y))
        zero = jnp.zeros_like(attempt.t)
        nothing = Happening(zero - 1, zero, zero, y, y, y if self.layout.rates else None)
        return (nothing,) * (self.layout.parts.count(False) + any(self.layout.parts))

    def _with_events(self, attempt: Attempt, y: EventState) -> "_Completed":
        """Returns the events found in a step, and the state after them."""
        detection = y.rest.detection
        seen, attempt = attempt, one_sided(attempt)
        due = self._due(attempt.clock, attempt.end, detection.rows)
        together = _any(due) if due else None
        found = landings(attempt, detection, self._of_events(self.layout.directions), together)
        again = _any(x.early for x in found)
        if self.base.traits.rough:  # what is due at the end has to wait for what comes before
            due = tuple(x & ~_any(one.lands for one in found) for x in due)
        lands = [land & ~again for land in self._in_order([x.lands for x in found], due)]
        over = _any(land for land, ends in zip(lands, self.layout.ends) if ends)
        after, memory = self._after(attempt, y, found, lands, over)
        waiting = detection._replace(
            stop=cut_at_first(seen, found, detection.stop), sought=jnp.ones_like(detection.sought)
        )
        crowded = after.rest.detection.crowded >= _MOST_CROWDED
        code = jnp.where(crowded, int(Status.crowded_events), int(Status.successful))
        if detection.system is not None:
            failed = after.rest.detection.system.code
            code = jnp.where(failed > 0, failed.astype(code.dtype), code)
        return _Completed(
            EventState(
                _where(again, y.saved, after.saved),
                EventMemory(_where(again, waiting, after.rest.detection), after.rest.record),
            ),
            memory,
            again,
            jnp.where(over, int(Status.event), code).astype(jnp.int8),
        )

    def _after(
        self, attempt: Attempt, y: EventState, found: list[Landing], lands: list[Bool[Array, ""]], over: Bool[Array, ""]
    ) -> tuple[EventState, PyTree]:
        """Returns the state after a step and the events at its end, and the values that the next one reuses.

        Args:
            attempt: The step.
            y: The state at its start.
            found: The located events of conditions in it.
            lands: The events and schedules at which it ends.
            over: Whether one of them ends the solve.
        """
        field, clock, step, end = attempt.field, attempt.clock, attempt.step, attempt.end
        detection = y.rest.detection
        comes = self._of_schedules(lands)
        given = [jnp.where(land, _row(times, row), end) for land, times, row in zip(comes, clock.given, detection.rows)]
        first, delay, taken = [], jnp.zeros_like(end), jnp.zeros((), bool)
        for land, own in zip(lands, self._in_order([x.delay for x in found], [x - end for x in given])):
            first.append(land & ~taken)
            delay, taken = jnp.where(first[-1], own, delay), taken | land
        sides = tuple(x.side for x in found)
        grazes = self._in_order([x.grazes for x in found], [jnp.zeros((), bool) for _ in comes])

        def happen():
            here = arrival(attempt, delay, self._of_events(first))
            no, whole = jnp.zeros((), bool), here.y if self._enters_each else None
            moment = _Moment(here.t, attempt.shown(here.y), attempt.shown(here.rate), no, no, whole)
            times = self._in_order(here.times, given)
            moment, changed, events, own = self._happen(field, moment, times, lands, grazes, detection, found)
            now, shown, y1 = moment.t, moment.y, here.y
            if not self.base.traits.transforms_state:
                y1 = moment.y
            elif moment.whole is not None:
                y1 = moment.whole
            elif self._enters:
                y1 = self._entered(field, now, y1, shown)
            later, y1, away = self._beyond(attempt, moment, y1, _any(comes), over)
            values = field.conditions(now, shown)
            kept = self._sides_of(own, tuple(x.side for x in found))
            signs = tuple(
                jnp.where(land & (jnp.abs(value) <= x.zero), new, jnp.where(value == 0, side, jnp.sign(value)))
                for land, value, x, new, side in zip(self._of_events(lands), values, found, away, kept)
            )
            near = (detection.count > 0) & (jnp.abs(now - detection.last) < _CROWDED * clock.resolution)
            kinds = zip(lands, self.layout.is_schedule, self.layout.parts)
            endless = _any(land for land, listed, part in kinds if part or not listed)
            crowded = jnp.where(near & endless, detection.crowded + 1, jnp.zeros_like(detection.crowded))
            memory = self.base.init(field.base, later, y1)
            return later, y1, memory, changed._replace(sides=signs, crowded=crowded), events

        def stay():
            return end, step.y1, step.memory, detection._replace(sides=sides), self._nothing(attempt)

        like = (attempt.t, attempt.h, y, step.y1, step.memory, delay)
        now, y1, memory, changed, events = cond(taken, happen, stay, like=like)
        stop = self._stop(self._clock(field, changed), jax.lax.stop_gradient(now), changed.rows)
        changed = changed._replace(stop=stop, sought=jnp.zeros_like(stop))
        return EventState(ShiftedState(y1, y.saved.shift + (now - end)), EventMemory(changed, events)), memory

    def _beyond(
        self, attempt: Attempt, moment: "_Moment", y: Y, given: Bool[Array, ""], over: Bool[Array, ""]
    ) -> tuple[Array, Y, tuple[Array, ...]]:
        """Returns time and state from which the next step goes on, strictly after, and where conditions leave to.

        Args:
            attempt: The step that ends at the events.
            moment: The state after the events.
            y: The same, in the variables of the method.
            given: Whether one of them came at a given time.
            over: Whether one of them ends the solve.
        """
        base, field, clock = self.base, attempt.field, attempt.clock
        beyond = jax.lax.stop_gradient(clock.direction * clock.resolution)
        if not knows_rate(base):
            return jnp.where(given, moment.t + beyond, moment.t), y, leaving(field, moment.t, moment.y, None)
        later = moment.t + beyond
        if base.traits.field_is_rate and not base.traits.transforms_state:
            # a field that jumps together with the state must also have jumped
            still = jax.lax.stop_gradient(jnp.where(moment.changed, jnp.zeros_like(beyond), beyond))
            y = advanced(y, jax.lax.stop_gradient(moment.rate), still)
        rate = base.coordinates.rate(field.base, later, y)
        away = leaving(field, moment.t, moment.y, self._shown(field, rate))
        # no later step would end at the end time of the solve instead of the time of the event
        last = (clock.direction * (clock.t1 - moment.t) <= 4 * clock.resolution) & ~over
        left = jnp.where(last, derivatives_alone(clock.t1 - later), jnp.zeros_like(later))
        return later + left, advanced(y, rate, left), away

    def _happen(
        self,
        field: BoundFieldWithEvents,
        moment: "_Moment",
        times: Sequence[Array],
        lands: Sequence[Bool[Array, ""]],
        grazes: Sequence[Bool[Array, ""]],
        detection: Detection,
        found: Sequence[Landing] | None = None,
    ) -> tuple["_Moment", Detection, tuple[Happening, ...], Array | None]:
        r"""Returns what all events of a time make of the state, one after another, and what is to be known of them.

        Their times are the same, but their derivatives differ: from one to the next the state moves at the rate $f$
        that it has between them, $\mathrm{d}y = f (\mathrm{d}t_2 - \mathrm{d}t_1)$. An event that changes no state is
        one where the field jumps. The last item has the signs of the conditions of a system of events, None without
        one.

        Args:
            field: The vector field with its events.
            moment: The time of the first of them, or of the start of the solve.
            times: When each happens by itself.
            lands: The events that fire.
            grazes: The conditions that only graze zero.
            detection: The earlier data.
            found: The events found in a step; None at the start.
        """
        every_row = self._in_order([jnp.zeros_like(moment.t) for _ in field.booleans], detection.rows)
        booleans = self._in_order(field.booleans, [False for _ in detection.rows])
        timed = [x and not boolean for x, boolean in zip(self.layout.timed, booleans)]
        moves = knows_rate(self.base) and not self.base.traits.transforms_state
        consistent = moves and not self.base.traits.field_is_rate
        whole = moment.whole
        count, last, events, sides = detection.count, detection.last, [], None
        t, y, rate, taken, jumped = moment.t, moment.y, moment.rate, moment.taken, jnp.zeros((), bool)
        changed = moment.changed
        for number, (land, row) in enumerate(zip(lands, every_row)):
            if self.layout.parts[number]:
                taken = taken | land
                continue
            if moves and any(timed[: number + 1]) and (number or found is None):
                further = land & taken
                between = rate_beside(self.base, field, t, y, jnp.where(jumped, 1.0, -1.0).astype(t.dtype))
                later = jnp.where(further, derivatives_alone(times[number] - t), jnp.zeros_like(t))
                rate = _where(further, between, rate)
                t, y = t + later, advanced(y, between, later)
            before = y
            if self.layout.updates[number]:
                y = _where(land, field.updated(number, t, row.astype(jnp.int32), y), y)
            changes = _any(jnp.any(a != b) for a, b in zip(*map(jax.tree.leaves, (before, y))))
            jumped, changed = jumped | (land & ~changes), changed | changes
            if consistent or whole is not None:
                side = jnp.where(jumped | ~_any(lands[number + 1 :]), 1.0, -1.0).astype(t.dtype)
                y, whole = self._consistent(field, beside(field.clock, t, side), land, before, y, whole)
            which = self.layout.numbers[number] + 0.5 * grazes[number].astype(t.dtype)
            place, kept = jnp.where(land, count, -jnp.ones_like(count)), rate if self.layout.rates else None
            events.append(Happening(place, which, t, before, y, kept))
            count, last, taken = jnp.where(land, count + 1, count), jnp.where(land, t, last), taken | land
        due = self.layout.due
        if due is not None:
            before, (y, system, happened, sides) = y, self._of_system(field, t, y, lands, detection, found)
            changed = changed | _any(jnp.any(a != b) for a, b in zip(*map(jax.tree.leaves, (before, y))))
            if consistent or whole is not None:
                y, whole = self._consistent(field, beside(field.clock, t, 1), happened, before, y, whole)
            row = jnp.where(happened, count, -jnp.ones_like(count))
            which = jnp.full_like(t, self.layout.numbers[self.layout.parts.index(True)])
            events.append(Happening(row, which, t, before, y, rate if self.layout.rates else None))
            count, last = jnp.where(happened, count + 1, count), jnp.where(happened, t, last)
            detection = detection._replace(system=system)
        comes = self._of_schedules(lands)
        rows = tuple(
            row if number == due else jnp.where(land, row + 1, row)
            for number, (land, row) in enumerate(zip(comes, detection.rows))
        )
        moment = _Moment(t, y, rate, taken, changed, whole)
        return moment, detection._replace(rows=rows, count=count, last=last), tuple(events), sides

    def _of_system(
        self,
        field: BoundFieldWithEvents,
        t: Array,
        y: Y,
        lands: Sequence[Bool[Array, ""]],
        detection: Detection,
        found: Sequence[Landing] | None,
    ) -> tuple[Y, SystemState, Bool[Array, ""], Array]:
        """Returns the update of a system of events at a time: the state, its data, whether it acted, and signs."""
        zero, known = jnp.zeros_like(t), detection.system
        assert known is not None
        mine = self._of_events(self.layout.parts)
        here = [(x, land) for x, land, own in zip(found or (), self._of_events(lands), mine) if own]
        none = jnp.zeros((sum(mine),), t.dtype)
        sides = jnp.stack([jnp.where(land, jnp.sign(x.after), zero) for x, land in here]) if here else none
        zeros = jnp.stack([x.zero for x, _ in here]) if here else none
        started = jnp.full((), found is not None)
        result = field.happen(t, y, known.memory, sides, zeros, started, field.clock.resolution)
        code = jnp.where(known.code > 0, known.code, result.code.astype(t.dtype))
        due = jnp.asarray(result.due, t.dtype)
        return result.y, SystemState(result.memory, due, code), result.any, result.sides.astype(t.dtype)

    def _sides_of(self, own: Array | None, others: Sequence[Array]) -> tuple[Array, ...]:
        """Returns the signs of all conditions; a system of events provides its own."""
        if own is None:
            return tuple(others)
        signs = iter(own[i] for i in range(own.shape[0]))
        return tuple(next(signs) if mine else x for mine, x in zip(self._of_events(self.layout.parts), others))

    @property
    def _enters(self) -> bool:
        """Whether the method has to know of events: they may change the state, or it stores where its rate jumps."""
        changes = any(self.layout.updates) or self.layout.due is not None
        return changes or self.base.hooks.for_events is not None

    @property
    def _enters_each(self) -> bool:
        """Whether algebraic variables, which the method holds with others, have to be consistent after each event."""
        traits = self.base.traits
        return self._enters and knows_rate(self.base) and traits.transforms_state and not traits.field_is_rate

    def _clock(self, field: BoundFieldWithEvents, detection: Detection) -> Clock:
        """Returns what is known of times, with that at which a system of events is due."""
        clock, number = field.clock, self.layout.due
        if number is None:
            return clock
        assert detection.system is not None
        due = detection.system.due
        due = jnp.where(due >= never_of(due.dtype), clock.given[number][0], due)[None]
        return clock._replace(given=(*clock.given[:number], due, *clock.given[number + 1 :]))

    def _due(self, clock: Clock, t: Array, rows: tuple[Array, ...]) -> tuple[Bool[Array, ""], ...]:
        """Returns of which schedules the next time has come; a schedule waits for all traced rows of earlier ones."""
        due, waits = [], jnp.zeros((), bool)
        for given, row, traced in zip(clock.given, rows, self._of_schedules(self.layout.timed)):
            due.append(self._has_come(clock, t, given, row) & ~waits)
            if traced and len(due) < len(rows):
                waits = waits | self._has_come(clock, t, given, row + 1)
        return tuple(due)

    def _has_come(self, clock: Clock, t: Array, given: Array, row: Array) -> Bool[Array, ""]:
        return (row < given.shape[0]) & (clock.direction * (_row(given, row) - t) <= 4 * clock.resolution)

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


class _Moment(NamedTuple):
    """A time at which events happen one after another.

    Attributes:
        t: The time.
        y: The model's state.
        rate: The rate of it just before the last event.
        taken: Whether one has happened, or the solve has just started.
        changed: Whether one has changed the state.
        whole: The state in the variables of the method, if each event must leave one that satisfies equations.
    """

    t: Array
    y: Y
    rate: Y
    taken: Bool[Array, ""]
    changed: Bool[Array, ""]
    whole: Y | None = None


class _Completed(NamedTuple):
    """The changes of events to a `Step`."""

    y1: EventState
    memory: PyTree
    again: Bool[Array, ""]
    ends: Array


def _without_events(y: EventState, step: Step) -> Step:
    """Returns a step of the method for the state as a step of a loop that locates events."""
    return step._replace(
        y1=EventState(ShiftedState(step.y1, y.saved.shift), y.rest),
        dense=(step.y1, step.dense),
        measured=measured_by_state(step, y.saved.y),
    )


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
