"""The steps of a loop from last to first, of which it has recorded the last ones alone.

Where a loop took more steps than are recorded, the backward pass begins by running it again and keeps evenly spread
checkpoints; it gets the steps between two of these by running that segment once more. Rounding may lead to other
steps than in the first run: in float32 the estimate of an error is known to a few digits only. So nothing of the
first run is used but its start, and the two other runs are iterations of one loop, which XLA compiles once and which
therefore chooses the same steps.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ..._jax._vma import to_varying, vma_of
from ._checkpoint_buffers import Buffers, Record, blank, get, put, thin
from ._integrator import Operands, State, StepRecord
from ._lane_integrator import LaneIntegrator
from ._result import Saves

_SHORTEST = 16
"""How many iterations a segment has at least: a loop over fewer would spend more on its start than on keeping all."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepRecords:
    """The records of the last iterations: that of iteration `n` in row `n` modulo their number.

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
    """What the backward pass needs of every member, lanes last on every array.

    Attributes:
        step_records: The records of the last iterations.
        y0: The initial state.
        saved_in: For each saved time, start and length of the step that it lies in.
        slopes: For each saved time, the derivative of the saved state with respect to it, or None.
    """

    step_records: PyTree
    y0: PyTree
    saved_in: tuple[Array, Array] | None
    slopes: PyTree | None


class LoopCounts(NamedTuple):
    """What the backward pass needs to know of the loop itself.

    Attributes:
        iterations: The number of iterations of the loop.
        saved_after: For each saved time, the number of iterations before it was saved.
    """

    iterations: Int[Array, ""]
    saved_after: Int[Array, " saves"] | None


class LoopCheckpoint(NamedTuple):
    """From where a loop continues.

    Attributes:
        state: The carry of the members, without their last step.
        inside: Start and length of that step, or None without saved times.
        reached: How many saved times have been reached.
    """

    state: State
    inside: tuple[Array, Array] | None
    reached: Int[Array, ""]


class Recorded(NamedTuple):
    """What is recorded of the iterations.

    Attributes:
        step_records: The records of the last of them.
        saved_after: As in `LoopCounts`.
        saved_in: As in `Residuals`.
    """

    step_records: StepRecords
    saved_after: Int[Array, " saves"] | None
    saved_in: tuple[Array, Array] | None

    def iterations(self, number: Int[Array, ""]) -> Int[Array, ""]:
        """Returns how many of so many iterations came before the last saved time."""
        return number if self.saved_after is None else self.saved_after[-1]


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

    def start(self, y0: PyTree) -> LoopCheckpoint:
        """Returns where the loop begins; `y0` is a lane value."""
        state = self.stepping.start(y0, self.operands)
        # of the last step its place alone: checkpoints are kept in many slots, and stages can be computed again
        inside = None if state.dense is None else (state.dense.elapsed, state.dense.h)
        return LoopCheckpoint(state._replace(dense=None), inside, jnp.zeros((), jnp.int32))

    def pending(self, checkpoint: LoopCheckpoint) -> Bool[Array, ""]:
        """Returns whether a member has yet to reach the next saved time, or the end where none is saved."""
        pending = jnp.any(self.stepping.pending(checkpoint.state, self._target(checkpoint.reached)))
        # devices that share a state continue as one, and the type has to say that the value is the same on all
        pending = self.stepping.integrator.collective.replicated(pending.astype(jnp.int32)) > 0
        return pending if self.saves is None else pending & (checkpoint.reached < self.saved)

    def until(
        self, number: Int[Array, ""], checkpoint: LoopCheckpoint, recorded: Recorded, stop: Int[Array, ""]
    ) -> tuple[Int[Array, ""], LoopCheckpoint, Recorded]:
        """Runs the iterations from `number` up to `stop` or to the end; returns the three as they are there."""
        stepping = self.stepping

        def iterate(carry):
            number, checkpoint, recorded = carry
            target = self._target(checkpoint.reached)
            state, step_record = stepping.attempt(checkpoint.state, self.operands, target)
            inside = stepping.lanes.carry(stepping.lanes.call(_inside, step_record, checkpoint.inside))
            recorded = recorded._replace(step_records=recorded.step_records.write(number, step_record))
            number += 1
            return number, *self.pass_saved(number, LoopCheckpoint(state, inside, checkpoint.reached), recorded)

        return self.while_loop(
            lambda c: (c[0] < stop) & self.pending(c[1]), iterate, (number, checkpoint, recorded), self.like
        )

    def pass_saved(
        self, number: Int[Array, ""], checkpoint: LoopCheckpoint, recorded: Recorded
    ) -> tuple[LoopCheckpoint, Recorded]:
        """Returns both after the saved times that have been reached, of which several may lie in one step."""
        if self.saves is None:
            return checkpoint, recorded

        def write(carry):
            index, after, inside = carry
            at = partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
            return index + 1, at(after, number), jax.tree.map(lambda all, x: at(all, x), inside, checkpoint.inside)

        def reached(carry):
            return (carry[0] < self.saved) & ~self.pending(checkpoint._replace(reached=carry[0]))

        carry = (checkpoint.reached, recorded.saved_after, recorded.saved_in)
        carry = self.while_loop(reached, write, carry, self.like)
        return checkpoint._replace(reached=carry[0]), Recorded(recorded.step_records, *carry[1:])

    @property
    def saved(self) -> int:
        """The number of saved times."""
        return 0 if self.saves is None else self.saves.times.shape[0]

    @property
    def like(self) -> tuple:
        """Over whose mesh axes a loop's carry varies."""
        return self.operands, self.saves

    def while_loop(self, cond: Callable, body: Callable, init: Any, like: PyTree) -> Any:
        """Loops, as often on all devices that hold parts of one state."""
        collective = self.stepping.integrator.collective.axes
        return self.stepping.while_loop(cond, body, init, like=like, collective=collective)

    def _target(self, index: Int[Array, ""]) -> PyTree:
        if self.saves is None:
            return self.operands.span
        time = jax.lax.dynamic_index_in_dim(self.saves.times, jnp.minimum(index, self.saved - 1), 0, False)
        return self.stepping.stop(time, self.saves, self.operands, jnp.zeros((), bool))


class BackwardState(NamedTuple):
    """What the backward pass carries.

    Attributes:
        number: The number of iterations still to go back through.
        left: The number of saved times still to come to.
        bar: Cotangents.
        recorded: The step records at hand, with where saved times lie.
        first: The first iteration whose record is at hand.
        recomputing: Whether the loop is still being run again.
        at: How many iterations of that run are done.
        checkpoint: Where that run is.
        checkpoints: A record of its checkpoints.
    """

    number: Int[Array, ""]
    left: Int[Array, ""]
    bar: PyTree
    recorded: Recorded
    first: Int[Array, ""]
    recomputing: Bool[Array, ""]
    at: Int[Array, ""]
    checkpoint: LoopCheckpoint
    checkpoints: Record


def backward_pass(
    recomputation: Recomputation,
    residuals: Residuals,
    counts: LoopCounts,
    y0: PyTree,
    bar: PyTree,
    step_vjp: Callable[[PyTree, StepRecord], PyTree],
    save_vjp: Callable[[PyTree, Int[Array, ""], Any, Bool[Array, ""]], PyTree] | None,
) -> PyTree:
    """Carries cotangents back through all iterations of a loop.

    Args:
        recomputation: Runs the loop again.
        residuals: What it recorded.
        counts: Its counts.
        y0: Its initial state, a lane value.
        bar: The cotangents after its last iteration.
        step_vjp: Returns the cotangents before an iteration, `(bar, step_record)`.
        save_vjp: Returns the cotangents with that of a saved state, `(bar, index, saved_in, used)`: as they are where
            it is not `used`. None without saved times.
    """
    like = (recomputation.operands, recomputation.saves, residuals, bar)

    # One body for both phases, in which one of the two runs no iterations: XLA would compile two bodies differently,
    # and the steps of one phase would then differ from the other's by rounding.
    def body(carry: BackwardState) -> BackwardState:
        carry = _load_segment(recomputation, carry)
        carry, after = _step_back(recomputation, carry, step_vjp, like)
        return carry if save_vjp is None else _pass_saved_state(carry, after, save_vjp)

    def pending(carry: BackwardState) -> Bool[Array, ""]:
        return carry.recomputing | (carry.number > 0) | (carry.left > 0)

    # the loops within promote their carries to the axes of all that they read, so this one is beforehand
    carry = to_varying(_start(recomputation, residuals, counts, y0, bar), vma_of(like))
    return recomputation.while_loop(pending, body, carry, like).bar


def _start(
    recomputation: Recomputation, residuals: Residuals, counts: LoopCounts, y0: PyTree, bar: PyTree
) -> BackwardState:
    """Returns the carry after the last iteration; a loop longer than its record is still to be run again."""
    slots = recomputation.slots
    rows = StepRecords(Buffers.of(residuals.step_records), slots)
    recorded = Recorded(rows, counts.saved_after, residuals.saved_in)
    zero = jnp.zeros((), jnp.int32)
    checkpoint, recorded = recomputation.pass_saved(zero, recomputation.start(y0), recorded)
    return BackwardState(
        number=recorded.iterations(counts.iterations),
        left=jnp.full((), recomputation.saved, jnp.int32),
        bar=bar,
        recorded=recorded,
        first=jnp.maximum(counts.iterations - slots, 0),
        recomputing=counts.iterations > slots,
        at=zero,
        checkpoint=checkpoint,
        checkpoints=blank(checkpoint, recomputation.checkpoints, _SHORTEST),
    )


def _load_segment(recomputation: Recomputation, carry: BackwardState) -> BackwardState:
    """Runs the next segment: of the whole loop while that is run again, later what is not at hand, if anything."""
    recomputing, number = carry.recomputing, carry.number
    # a loop of no iterations instead of a conditional, which would copy what is recorded
    there = ~recomputing & ((number == 0) | (number > carry.first))
    checkpoints = thin(carry.checkpoints, jnp.where(recomputing, carry.at, 0))  # going back, none is given up
    # going back nothing is stored: iteration 1 is not one to be kept, so the write goes into the bin
    checkpoints = put(checkpoints, jnp.where(recomputing, carry.at, 1), carry.checkpoint)
    begin, checkpoint = get(checkpoints.slots, checkpoints.stride, jnp.where(recomputing, carry.at, number - 1))
    stop = jnp.where(recomputing, begin + checkpoints.stride, jnp.where(there, begin, number))
    at, checkpoint, recorded = recomputation.until(begin, checkpoint, carry.recorded, stop)
    still = recomputing & recomputation.pending(checkpoint)
    number = jnp.where(recomputing, recorded.iterations(at), number)
    loaded = jnp.maximum(jnp.where(recomputing, 0, begin), at - recomputation.slots)
    first = jnp.where(there, carry.first, loaded)
    return BackwardState(number, carry.left, carry.bar, recorded, first, still, at, checkpoint, checkpoints)


def _step_back(
    recomputation: Recomputation, carry: BackwardState, step_vjp: Callable, like: PyTree
) -> tuple[BackwardState, Int[Array, ""]]:
    """Goes back through what is at hand, or to the next saved time.

    Returns:
        The carry, and the iteration after which that time was saved.
    """
    recorded, after = carry.recorded, jnp.zeros((), jnp.int32)
    if recorded.saved_after is not None:
        after = jnp.where(carry.left > 0, recorded.saved_after[jnp.maximum(carry.left - 1, 0)], 0)
    end = jnp.where(carry.recomputing, carry.number, jnp.maximum(carry.first, after))
    number, bar = recomputation.while_loop(
        lambda c: c[0] > end,
        lambda c: (c[0] - 1, step_vjp(c[1], recorded.step_records.read(c[0] - 1))),
        (carry.number, carry.bar),
        (like, recorded),
    )
    return carry._replace(number=number, bar=bar), after


def _pass_saved_state(carry: BackwardState, after: Int[Array, ""], save_vjp: Callable) -> BackwardState:
    """Adds the cotangent of the next saved state, where the pass has come to it."""
    used = ~carry.recomputing & (carry.left > 0) & (carry.number == after)
    row = jnp.maximum(carry.left - 1, 0)
    inside = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, row, 0, False), carry.recorded.saved_in)
    bar = save_vjp(carry.bar, row, inside, used)
    return carry._replace(bar=bar, left=carry.left - used.astype(carry.left.dtype))


def _inside(step_record: StepRecord, before: tuple[Array, Array] | None) -> tuple[Array, Array] | None:
    """Returns start and length of a member's last step."""
    if before is None:
        return None
    here = (step_record.elapsed, step_record.h)
    return jax.tree.map(lambda a, b: jnp.where(step_record.accepted, a, b), here, before)
