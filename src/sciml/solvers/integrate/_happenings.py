"""Events over lanes: steps that may have one are gathered from all lanes, and what has happened is written.

Most steps have no event, but among thousands of lanes a few have one at any time. So all lanes take the step without
events first, and leave those that may have one (`QuietSteps`). These are then taken by the whole method, some hundred
at a time over as many lanes, and put back. The record of events belongs to neither: events are written into the rows of
the lanes where they occur.

The true entries of a long boolean vector, for gathering the values that belong to them, some at a time.

`jnp.nonzero` and `jnp.cumsum` take as long on a CPU as a step of all members: XLA adds up a window of sixteen numbers
for each. So only the counts of short rows are added up, once, and within the row of an entry its place is counted.

Steps of many members within which nothing happens; where something may, a step is left to the whole method.

Among thousands of members some are at an event in nearly every step of the loop, and what finds it and makes the state
after it is as much work as the step itself. So all members first take the step that has no event, and those within
which a condition may change its sign are left where they are, for the loop to gather them.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ..._choices import choices
from ..._jax._loops import while_loop
from ..._jax._platform import default_platform
from ..._types import BoolScalarLike, RealScalarLike, Y
from ...kernels._lanes import Lanes, Unbatched, is_value
from ..events._closed_events import BoundFieldWithEvents
from ..events._event_state import EventRecord, EventState, Happening, with_record
from ..events._with_events import WithEvents
from ..methods._capabilities import Hooks, Traits
from ..methods._stepper import BoundField, Step
from ..methods.around._wrapped import AbstractWrappedStepper
from ._integrator import Integrator, Operands, State, StepRecord
from ._work import work_of_field

_ROW = 8


class Holding(NamedTuple):
    """The entries of a vector that hold.

    Attributes:
        rows: The entries in short rows, false beyond the last.
        until: How many hold in each row and those before it.
    """

    rows: Bool[Array, " rows columns"]
    until: Int[Array, " rows"]

    @classmethod
    def of(cls, holds: Bool[Array, " entries"]) -> "Holding":
        """Returns the true entries of a vector."""
        rows = jnp.pad(holds, (0, -holds.shape[0] % _ROW)).reshape(-1, _ROW)
        return cls(rows, jnp.cumsum(jnp.sum(rows, axis=1, dtype=jnp.int32), dtype=jnp.int32))

    @property
    def count(self) -> Int[Array, ""]:
        """How many hold."""
        return self.until[-1]

    def numbers(self, before: Int[Array, ""], width: int) -> Int[Array, " width"]:
        """Returns the numbers of the next entries that hold, ascending.

        Args:
            before: How many that hold are passed over.
            width: How many numbers to return; where fewer follow, numbers beyond the last entry do, each once.
        """
        rows, until = self
        ordinal = before + jnp.arange(1, width + 1, dtype=jnp.int32)
        row = jnp.minimum(jnp.searchsorted(until, ordinal).astype(jnp.int32), rows.shape[0] - 1)
        found = jnp.where(row > 0, until[jnp.maximum(row - 1, 0)], 0)
        place = jnp.zeros_like(row)
        for column in range(_ROW - 1):
            found = found + rows[row, column].astype(jnp.int32)
            place = place + (found < ordinal).astype(jnp.int32)
        return jnp.where(ordinal <= self.count, row * _ROW + place, rows.size + ordinal)


class QuietSteps(AbstractWrappedStepper):
    """A method that looks for events, but leaves every step that may have one.

    Attributes:
        base: The method.
    """

    base: WithEvents

    @property
    def traits(self) -> Traits:
        """The traits of the method."""
        return super().traits._replace(transforms_state=True)

    @property
    def hooks(self) -> Hooks:
        """The data of events after a step without any."""
        return super().hooks._replace(completed=self.completed)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances a state from `t` to `t + h`, or says that this is to be left."""
        assert isinstance(field, BoundFieldWithEvents)
        step = self.base.step(field, t, h, y, memory)
        return step._replace(left=self.base.may_come(self.base.attempted(field, t, h, y, step), y.rest.detection))

    def completed(
        self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, step: Step, good: BoolScalarLike
    ) -> Step:
        """Returns the step with what is known of events at its end."""
        assert isinstance(field, BoundFieldWithEvents)
        detection = y.rest.detection
        if not field.clock.given:
            return step
        after = self.base.quiet_detection(self.base.attempted(field, t, h, y, step), detection)
        after = after._replace(stop=jnp.where(good, after.stop, detection.stop))
        return step._replace(y1=step.y1._replace(rest=step.y1.rest._replace(detection=after)))


def without_record(state: State) -> tuple[State, EventRecord | None]:
    """Returns a loop's state without the record of events, and that; None where no events are sought."""
    y = state.checkpoint.y
    return joined_record(state, None), y.rest.record if isinstance(y, EventState) else None


def joined_record(state: State, record: EventRecord | None) -> State:
    """Returns a loop's state with a record of events, also in the part that a later solve resumes from.

    Entries that are not reached yet are beyond the number of events that it counts.
    """
    if not isinstance(state.checkpoint.y, EventState):
        return state
    checkpoint, kept = state.checkpoint, state.kept
    if kept is not None and kept.checkpoint is not None:
        kept = kept._replace(checkpoint=kept.checkpoint._replace(y=with_record(kept.checkpoint.y, record)))
    return state._replace(checkpoint=checkpoint._replace(y=with_record(checkpoint.y, record)), kept=kept)


def happenings(state: State) -> tuple[State, tuple[Happening, ...]]:
    """Returns a loop's state after a step and what has happened at its end."""
    y = state.checkpoint.y
    events = y.rest.record if isinstance(y, EventState) else None
    return joined_record(state, None), events or ()


def fewest(stepper: WithEvents) -> int:
    """Returns from how many lanes on the steps with events are gathered."""
    return choices().events.gather_noisy_from if stepper.traits.rough else choices().events.gather_from


def quiet_integrator(
    integrator: Integrator, lanes: Lanes | Unbatched, state: State, operands: Operands
) -> Integrator | None:
    """Returns the integrator that leaves steps with events; None where every step is taken by the whole method."""
    stepper, y = integrator.stepper, state.checkpoint.y
    if not isinstance(stepper, WithEvents) or lanes.count is None or lanes.count < fewest(stepper):
        return None
    if default_platform() != "cpu" or stepper.base.traits.jumps or stepper.base.evaluations <= 0:
        return None
    work = stepper.base.evaluations * work_of_field(integrator.field, y.saved.y, operands)
    if work > choices().events.step_work_at_most:
        return None
    return dataclasses.replace(integrator, stepper=QuietSteps(stepper))


def attempt_gathered(
    integrator: Integrator,
    quiet: Integrator,
    lanes: Lanes,
    state: State,
    operands: Operands,
    target: PyTree,
    record: EventRecord | None,
    recorded: bool,
    steps: int = 1,
) -> tuple[State, StepRecord | None, EventRecord | None]:
    """Tries a step on every lane, or some before those with events; see `LaneIntegrator.attempt`.

    Args:
        integrator: How one member is advanced.
        quiet: The same, but that it leaves steps with events.
        lanes: The engine.
        state: The state without a record, lane values.
        operands: Lane values.
        target: The time to reach, a lane value.
        record: The record of events, arrays over all lanes.
        recorded: Whether what each step did is returned; then it is one step.
        steps: How many steps a lane may take before those that may have events are gathered.
    """
    assert lanes.count is not None and (steps == 1 or not recorded)
    width = -(-lanes.count // choices().events.gather_share // 8) * 8
    few = dataclasses.replace(lanes, count=width)

    def attempt(state: State) -> tuple[State, StepRecord, Any]:
        return lanes.carry(lanes.call(quiet.attempt_or_leave, state, operands, target))

    if steps > 1:
        attempt = jax.jit(attempt, inline=True)  # traced once
    for _ in range(steps - 1):  # a lane that leaves its step tries the same one again, and leaves it again
        state = attempt(state)[0]
    state, step_record, left = attempt(state)
    step_record = step_record if recorded else None

    def gather(carry):
        left, state, step_record, record = carry
        members = Holding.of(left).numbers(jnp.zeros((), jnp.int32), width)
        here, given = lanes.take((state, (operands, target)), members)
        new, new_step_record, events = _land(integrator, few, few.carry(here), *given, recorded)
        state, step_record = lanes.put((state, step_record), members, (new, new_step_record))
        left = left.at[members].set(False, mode="drop", unique_indices=True)
        return left, state, step_record, _written_at(record, events, few, members)

    # a loop, in whose place a conditional would copy the states of all lanes
    carry = (lanes.leave(left), state, step_record, record)
    return while_loop(lambda c: jnp.any(c[0]), gather, carry, like=(operands, target))[1:]


def _land(
    integrator: Integrator, few: Lanes, state: State, operands: Operands, target: PyTree, recorded: bool
) -> tuple[State, StepRecord | None, tuple[Happening, ...]]:
    """Tries a step of some members, and repeats it for the members that have passed over an event.

    Args:
        integrator: How one member is advanced.
        few: The lanes of these members.
        state: Their states.
        operands: Lane values.
        target: The time to reach, a lane value.
        recorded: Whether what each step did is returned.
    """

    def member(state, given):
        new, step_record = integrator.attempt(state, *given)
        new, events = happenings(new)
        return new, step_record if recorded else None, events, step_record.accepted

    def unless_done(before, found):
        return jax.tree.map(lambda old, x: jnp.where(before[-1], old, x), before, found)

    # traced once
    attempt = jax.jit(lambda state: few.carry(few.call(member, state, (operands, target))), inline=True)
    found = attempt(state)
    # on the line between both ends of a noisy step an event is found at once
    for _ in range(0 if integrator.stepper.traits.rough else choices().events.gather_tries - 1):
        found = few.carry(few.call(unless_done, found, attempt(found[0])))
    return found[:3]


def _written_at(
    record: EventRecord | None, events: tuple[Happening, ...], few: Lanes, members: Array
) -> EventRecord | None:
    """Returns a record with the events of some members."""
    if record is None:
        return None
    kept = record.times.shape[0]
    for event in events:
        row, new = few.leave((event.row, EventRecord.row_of(event)))
        # what has not happened is in a row that there is not
        row = jnp.where((row >= 0) & (row < kept), row, kept).astype(jnp.int32)

        def write(rows: Any, x: Array, row: Array = row) -> Any:
            y = rows.array.at[row, ..., members].set(jnp.moveaxis(x, -1, 0), mode="drop", unique_indices=True)
            return type(rows)(y, rows.ndim)

        record = jax.tree.map(write, record, new, is_leaf=is_value)
    return record


def written(lanes: Lanes | Unbatched, record: EventRecord | None, events: tuple[Happening, ...]) -> EventRecord | None:
    """Returns a record with what has happened on every lane; nothing is done where nothing has on any."""
    if record is None or not events:
        return record

    def any_happened(carry) -> Bool[Array, ""]:
        return carry[0]

    def write(carry):
        _, record = carry
        for event in events:
            record = lanes.call(EventRecord.written, record, event)
        return jnp.zeros_like(carry[0]), lanes.whole(record)

    rows = [lanes.leave(event.row) for event in events]
    first = jnp.any(jnp.stack([jnp.any(row >= 0) for row in rows]))
    return while_loop(any_happened, write, (first, record), like=events)[1]
