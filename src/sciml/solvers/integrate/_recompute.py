"""The steps of a loop from last to first, of which only the last ones are recorded.

If a loop took more steps than are recorded, the backward pass begins by running it again and stores evenly spread
checkpoints; it gets the steps between two of these by running that segment once more. Rounding may lead to other steps
than in the first run: in float32 the estimate of an error is known to a few digits only. So nothing of the first run is
used but its start, and the two other runs are iterations of one loop, which XLA compiles once and which therefore
chooses the same steps.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ..._choices import choices
from ..._jax._checkpointed_scan import bytes_of
from ..._jax._marks import step_number
from ..._jax._vma import to_varying, vma_of
from ._checkpoint_buffers import Buffers, Record, blank, get, put, thin
from ._happenings import without_record
from ._integrator import Operands, State, StepRecord
from ._lane_integrator import LaneIntegrator
from ._result import Saves


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepRecords:
    """The records of the last iterations: iteration `n` is in row `n` modulo their number.

    Attributes:
        rows: The rows.
        count: Their number.
    """

    rows: Buffers
    count: int = dataclasses.field(metadata={"static": True})

    @classmethod
    def blank(cls, step_record: StepRecord, count: int) -> "StepRecords":
        """Returns space for `count` records like a given one, of arrays or their shapes."""
        return cls(Buffers.blank(step_record, count), count)

    def write(self, number: Int[Array, ""], step_record: StepRecord) -> "StepRecords":
        """Returns them with the record of an iteration in place of the oldest."""
        return dataclasses.replace(self, rows=self.rows.write(self._row(number), self.rows.pack(step_record)))

    def read(self, number: Int[Array, ""]) -> StepRecord:
        """Returns the record of an iteration, one of the last."""
        return self.rows.unpack(self.rows.read(self._row(number)))

    def _row(self, number: Int[Array, ""]) -> Int[Array, ""]:
        return jax.lax.rem(number, jnp.asarray(self.count, number.dtype))


class Residuals(NamedTuple):
    """The inputs of the backward pass for every member, lanes last on every array.

    Attributes:
        step_records: The records of the last iterations.
        y0: The initial state.
        slopes: For each saved time, the derivative of the saved state with respect to it, or None.
    """

    step_records: PyTree
    y0: PyTree
    slopes: PyTree | None


class LoopCounts(NamedTuple):
    """The inputs of the backward pass from the loop itself.

    Attributes:
        iterations: The number of iterations of the loop.
        counting: How many of them count: those before the last saved time; all where none is saved, or if a state to
            continue from is kept.
    """

    iterations: Int[Array, ""]
    counting: Int[Array, ""]


class Recomputation(NamedTuple):
    """Runs a loop again.

    Attributes:
        stepping: The steps over the lanes of the backward pass.
        operands: Lane values.
        saves: The saved times.
        slots: How many step records are kept.
        checkpoints: How many checkpoints are kept.
    """

    stepping: LaneIntegrator
    operands: Operands
    saves: Saves | None
    slots: int
    checkpoints: int

    def start(self, y0: PyTree) -> State:
        """Returns where the loop begins; `y0` is a lane value."""
        # without the last step, the record of events and the state to go on from: checkpoints are kept in many slots,
        # and no step reads these
        state = self.stepping.start(y0, self.operands)
        kept = None if state.kept is None else state.kept._replace(checkpoint=None, memory=None)
        return without_record(state._replace(dense=None, kept=kept))[0]

    def pending(self, state: State) -> Bool[Array, ""]:
        """Returns whether a member has yet to reach the last time that counts."""
        pending = jnp.any(self.stepping.pending(state, self._last))
        # devices that share a state continue as one, and the type has to say that the value is the same on all
        return self.stepping.integrator.collective.replicated(pending.astype(jnp.int32)) > 0

    def until(
        self, number: Int[Array, ""], state: State, step_records: StepRecords, stop: Int[Array, ""]
    ) -> tuple[Int[Array, ""], State, StepRecords]:
        """Runs the iterations from `number` up to `stop` or to the end; returns the three as they are there."""

        def iterate(carry):
            number, state, step_records = carry
            number = step_number(number)
            state, step_record = self.stepping.attempt(state, self.operands, self._target(state))
            return number + 1, state, step_records.write(number, step_record)

        return self.while_loop(
            lambda c: (c[0] < stop) & self.pending(c[1]), iterate, (number, state, step_records), self.like
        )

    @property
    def like(self) -> tuple:
        """Over whose mesh axes a loop's carry varies."""
        return self.operands, self.saves

    def while_loop(self, cond: Callable, body: Callable, init: Any, like: PyTree) -> Any:
        """Loops, as often on all devices that hold parts of one state."""
        collective = self.stepping.integrator.collective.axes
        return self.stepping.while_loop(cond, body, init, like=like, collective=collective)

    @property
    def _last(self) -> PyTree:
        """The last time that counts, a lane value."""
        if self.saves is None or self.stepping.integrator.hands_out:
            return self.operands.span
        return self.stepping.target(self.saves.times[-1], self.saves)

    def _target(self, state: State) -> PyTree:
        """Returns the time to integrate to; for a method whose steps end at saved times, the next of them."""
        if self.saves is None or self.stepping.integrator.stepper.traits.dense:
            return self._last
        return self.stepping.next_saved(state, self.saves, self._last)


class BackwardState(NamedTuple):
    """The carry of the backward pass.

    Attributes:
        number: The number of iterations still to go back through.
        bar: Cotangents.
        step_records: The step records at hand.
        first: The first iteration whose record is at hand.
        recomputing: Whether the loop is still being run again.
        at: How many iterations of that run are done.
        state: The current state of that run.
        checkpoints: A record of where it has been.
    """

    number: Int[Array, ""]
    bar: PyTree
    step_records: StepRecords
    first: Int[Array, ""]
    recomputing: Bool[Array, ""]
    at: Int[Array, ""]
    state: State
    checkpoints: Record


def backward_pass(
    recomputation: Recomputation,
    residuals: Residuals,
    counts: LoopCounts,
    y0: PyTree,
    bar: PyTree,
    step_vjp: Callable[[PyTree, StepRecord], PyTree],
) -> PyTree:
    """Carries cotangents back through all iterations of a loop.

    Args:
        recomputation: Runs the loop again.
        residuals: Its record.
        counts: Its counts, or larger ones: what was not recorded counts as no step.
        y0: Its initial state, a lane value.
        bar: The cotangents after its last iteration.
        step_vjp: Returns the cotangents before an iteration, `(bar, step_record)`.
    """
    like = (recomputation.operands, recomputation.saves, residuals, bar)

    # One body for both phases, in which one of the two runs no iterations: XLA would compile two bodies differently,
    # and the steps of one phase would then differ from the other's by rounding.
    def body(carry: BackwardState) -> BackwardState:
        return _step_back(recomputation, _load_segment(recomputation, carry), step_vjp, like)

    def pending(carry: BackwardState) -> Bool[Array, ""]:
        return carry.recomputing | (carry.number > 0)

    # the loops within promote their carries to the axes of all that they read, so this one is beforehand
    carry = to_varying(_start(recomputation, residuals, counts, y0, bar), vma_of(like))
    return recomputation.while_loop(pending, body, carry, like).bar


def _start(
    recomputation: Recomputation, residuals: Residuals, counts: LoopCounts, y0: PyTree, bar: PyTree
) -> BackwardState:
    """Returns the carry after the last iteration; a loop longer than its record is still to be run again."""
    slots = recomputation.slots
    state, table = recomputation.start(y0), choices().checkpoints
    return BackwardState(
        number=counts.counting,
        bar=bar,
        step_records=StepRecords(Buffers.of(residuals.step_records), slots),
        first=jnp.maximum(counts.iterations - slots, 0),
        recomputing=counts.iterations > slots,
        at=jnp.zeros((), jnp.int32),
        state=state,
        checkpoints=blank(state, _affordable(recomputation.checkpoints, state.memory), table.iterations_at_least),
    )


def _affordable(checkpoints: int, memory: PyTree) -> int:
    """Returns how many checkpoints are kept, fewer where the memory of a method is large, as with factors."""
    size, table = bytes_of(memory), choices().checkpoints
    while checkpoints > table.at_least and checkpoints * size > table.factors_at_most:
        checkpoints //= 2
    return checkpoints


def _load_segment(recomputation: Recomputation, carry: BackwardState) -> BackwardState:
    """Runs the next segment: of the whole loop while that is run again, later what is not at hand, if anything."""
    recomputing, number = carry.recomputing, carry.number
    # a loop of no iterations instead of a conditional, which would copy what is recorded
    there = ~recomputing & ((number == 0) | (number > carry.first))
    checkpoints = thin(carry.checkpoints, jnp.where(recomputing, carry.at, 0))  # going back, none is given up
    # going back nothing is stored: iteration 1 is not one to be kept, so the write goes into the bin
    checkpoints = put(checkpoints, jnp.where(recomputing, carry.at, 1), carry.state)
    begin, state = get(checkpoints.slots, checkpoints.stride, jnp.where(recomputing, carry.at, number - 1))
    stop = jnp.where(recomputing, begin + checkpoints.stride, jnp.where(there, begin, number))
    at, state, step_records = recomputation.until(begin, state, carry.step_records, stop)
    still = recomputing & recomputation.pending(state)
    number = jnp.where(recomputing, at, number)
    loaded = jnp.maximum(jnp.where(recomputing, 0, begin), at - recomputation.slots)
    first = jnp.where(there, carry.first, loaded)
    return BackwardState(number, carry.bar, step_records, first, still, at, state, checkpoints)


def _step_back(recomputation: Recomputation, carry: BackwardState, step_vjp: Callable, like: PyTree) -> BackwardState:
    """Goes back through what is at hand."""
    step_records = carry.step_records
    end = jnp.where(carry.recomputing, carry.number, carry.first)

    def back(carry):
        number = step_number(carry[0] - 1)
        return number, step_vjp(carry[1], step_records.read(number))

    number, bar = recomputation.while_loop(
        lambda c: c[0] > end,
        back,
        (carry.number, carry.bar),
        (like, step_records),
    )
    return carry._replace(number=number, bar=bar)
