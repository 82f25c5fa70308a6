"""The outcomes of a loop's iterations, which the backward pass asks for from last to first.

Those of the last iterations are kept. Where a loop had more, the backward pass begins with running it again, keeps restart points
evenly spread, and comes to the outcomes between two of these by running that segment once more. Rounding may choose
other steps than the loop did the first time: in float32 the estimate of an error is known to a few digits only. So
nothing of the first time is used but where it started, and both other times are iterations of one loop, which XLA compiles
once and which therefore chooses the same steps.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ..._jax._vma import to_varying, vma_of
from ._checkpoint_buffers import BufferArrays, Buffers, Record, blank, get, power_of_two, put, thin
from ._integrator import Operands, State, StepRecord
from ._result import Saves

_SHORTEST = 16
"""How many iterations a segment has at least: a loop over fewer would spend more on beginning than on keeping them all."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepRecords:
    """The outcomes of the last iterations: that of turn `n` in row `n` modulo their number.

    Attributes:
        rows: The rows.
        count: Their number.
    """

    rows: Buffers
    count: int = dataclasses.field(metadata={"static": True})

    @classmethod
    def blank(cls, step_record: StepRecord, count: int) -> "StepRecords":
        """Returns room for `count` outcomes like a given one, of arrays or their shapes."""
        return cls(Buffers.blank(step_record, count), count)

    def write(self, number: Int[Array, ""], step_record: StepRecord) -> "StepRecords":
        """Returns them with the outcome of an iteration in place of the oldest."""
        return dataclasses.replace(self, rows=self.rows.write(self._row(number), self.rows.pack(step_record)))

    def read(self, number: Int[Array, ""]) -> StepRecord:
        """Returns the outcome of an iteration, one of the last."""
        return self.rows.unpack(self.rows.read(self._row(number)))

    def _row(self, number: Int[Array, ""]) -> Int[Array, ""]:
        return jax.lax.rem(number, jnp.asarray(self.count, number.dtype))


class Residuals(NamedTuple):
    """What the backward loop needs of every member, lanes last on every array.

    Attributes:
        step_records: Outcomes of the last iterations.
        y0: The initial state.
        saved_in: For each saved time, start and length of the step that it lies in.
        slopes: For each saved time, the derivative of the saved state with respect to it, or None.
    """

    step_records: BufferArrays
    y0: PyTree
    saved_in: tuple[Array, Array] | None
    slopes: PyTree | None


class LoopCounts(NamedTuple):
    """What the backward loop needs to know of the loop itself.

    Attributes:
        iterations: The number of iterations of the loop.
        saved_after: For each saved time, the number of iterations before it was saved.
    """

    iterations: Int[Array, ""]
    saved_after: Int[Array, " saves"] | None


class LoopCheckpoint(NamedTuple):
    """From where a loop goes on.

    Attributes:
        state: The integration, without its last step.
        inside: Start and length of that step, or None without saved times.
        reached: How many saved times have been reached.
    """

    state: State
    inside: tuple[Array, Array] | None
    reached: Int[Array, ""]


class Recorded(NamedTuple):
    """What is kept of the iterations.

    Attributes:
        step_records: Outcomes of the last of them.
        saved_after: As in `LoopCounts`.
        saved_in: As in `Residuals`.
    """

    step_records: StepRecords
    saved_after: Int[Array, " saves"] | None
    saved_in: tuple[Array, Array] | None


class Recomputation(NamedTuple):
    """Runs a loop again.

    Attributes:
        loop: The `AdaptiveLoop` over the lanes of the backward pass.
        operands: Lane values.
        saves: The saved times.
    """

    loop: Any
    operands: Operands
    saves: Saves | None

    def start(self, y0: PyTree) -> LoopCheckpoint:
        """Returns where the loop begins; `y0` is a lane value."""
        state = self.loop.start(y0, self.operands)
        inside = None if self.saves is None else (state.dense.elapsed, state.dense.h)
        return LoopCheckpoint(state._replace(dense=None), inside, jnp.zeros((), jnp.int32))

    def pending(self, checkpoint: LoopCheckpoint) -> Bool[Array, ""]:
        """Returns whether a member has yet to reach the next saved time, or the end where none is saved."""
        pending = jnp.any(self.loop.pending(checkpoint.state, self._target(checkpoint.reached)))
        pending = self.loop.integrator.collective.replicated(pending.astype(jnp.int32)) > 0
        return pending if self.saves is None else pending & (checkpoint.reached < self.saved)

    def until(self, number: Int[Array, ""], checkpoint: LoopCheckpoint, kept: Recorded, stop: Int[Array, ""]) -> tuple:
        """Runs the iterations from `number` up to `stop` or to the end; returns number, point and what is kept."""
        loop = self.loop

        def iterate(carry):
            number, checkpoint, kept = carry
            state, step_record = loop.attempt(checkpoint.state, self.operands, self._target(checkpoint.reached))
            inside = loop.lanes.carry(loop.lanes.call(_inside, step_record, checkpoint.inside))
            kept = kept._replace(step_records=kept.step_records.write(number, step_record))
            number += 1
            return number, *self.pass_saved(number, LoopCheckpoint(state, inside, checkpoint.reached), kept)

        return self._while_loop(lambda c: (c[0] < stop) & self.pending(c[1]), iterate, (number, checkpoint, kept))

    def pass_saved(
        self, number: Int[Array, ""], checkpoint: LoopCheckpoint, kept: Recorded
    ) -> tuple[LoopCheckpoint, Recorded]:
        """Returns them with the saved times that have been reached, all that lie in one step."""
        if self.saves is None:
            return checkpoint, kept

        def write(carry):
            index, after, inside = carry
            at = partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
            return index + 1, at(after, number), jax.tree.map(lambda all, x: at(all, x), inside, checkpoint.inside)

        def reached(carry):
            return (carry[0] < self.saved) & ~self.pending(checkpoint._replace(reached=carry[0]))

        carry = self._while_loop(reached, write, (checkpoint.reached, kept.saved_after, kept.saved_in))
        return checkpoint._replace(reached=carry[0]), Recorded(kept.step_records, *carry[1:])

    @property
    def saved(self) -> int:
        """The number of saved times."""
        return 0 if self.saves is None else self.saves.times.shape[0]

    def _target(self, index: Int[Array, ""]) -> PyTree:
        if self.saves is None:
            return self.operands.span
        time = jax.lax.dynamic_index_in_dim(self.saves.times, jnp.minimum(index, self.saved - 1), 0, False)
        return self.loop.stop(time, self.saves, self.operands, jnp.zeros((), bool))

    def _while_loop(self, cond: Callable, body: Callable, init: tuple) -> tuple:
        collective = self.loop.integrator.collective.axes
        return self.loop.while_loop(cond, body, init, like=(self.operands, self.saves), collective=collective)


class BackwardState(NamedTuple):
    """What the backward pass carries.

    Attributes:
        number: The number of iterations still to go back through.
        left: The number of saved times still to come to.
        bar: Cotangents.
        kept: The outcomes at hand, with where saved times lie.
        first: The first iteration whose outcome is at hand.
        recomputing: Whether the loop is still being run again.
        at: How many iterations of that have been run.
        checkpoint: Where it is.
        checkpoints: A record of such points.
    """

    number: Int[Array, ""]
    left: Int[Array, ""]
    bar: PyTree
    kept: Recorded
    first: Int[Array, ""]
    recomputing: Bool[Array, ""]
    at: Int[Array, ""]
    checkpoint: LoopCheckpoint
    checkpoints: Record


def backward_pass(
    recomputation: Recomputation,
    residuals: Residuals,
    numbers: LoopCounts,
    y0: PyTree,
    bar: PyTree,
    step_vjp: Callable[[PyTree, StepRecord], PyTree],
    save_vjp: Callable[[PyTree, Int[Array, ""], Any, Bool[Array, ""]], PyTree] | None,
) -> PyTree:
    """Carries cotangents back through all iterations of a loop.

    Args:
        recomputation: Runs the loop again.
        residuals: What it recorded.
        numbers: Its numbers.
        y0: Its initial state, a lane value.
        bar: The cotangents after its last iteration.
        step_vjp: Returns the cotangents before an iteration, `(bar, step_record)`.
        save_vjp: Returns the cotangents with that of a saved state, `(bar, index, saved_in, used)`: as they are where it
            is not `used`. None without saved times.
    """
    loop, slots = recomputation.loop, recomputation.loop.slots

    def last_of(kept, iterations):
        return iterations if kept.saved_after is None else kept.saved_after[-1]

    def segment(carry):
        """Runs a segment if none is at hand, then goes back through what is, or to the next saved time."""
        # a loop of no iterations instead of a conditional, which would copy what is kept
        there = ~carry.recomputing & ((carry.number == 0) | (carry.number > carry.first))
        checkpoints = thin(carry.checkpoints, jnp.where(carry.recomputing, carry.at, 0))
        checkpoints = put(
            checkpoints, jnp.where(carry.recomputing, carry.at, 1), carry.checkpoint
        )  # the first iteration is never kept
        begin, checkpoint = get(
            checkpoints.slots, checkpoints.stride, jnp.where(carry.recomputing, carry.at, carry.number - 1)
        )
        stop = jnp.where(carry.recomputing, begin + checkpoints.stride, jnp.where(there, begin, carry.number))
        at, checkpoint, kept = recomputation.until(begin, checkpoint, carry.kept, stop)

        recomputing = carry.recomputing & recomputation.pending(checkpoint)
        number = jnp.where(carry.recomputing, last_of(kept, at), carry.number)
        loaded = jnp.maximum(jnp.where(carry.recomputing, 0, begin), at - slots)
        first = jnp.where(there, carry.first, loaded)

        left, after = carry.left, jnp.zeros((), jnp.int32)
        if kept.saved_after is not None:
            after = jnp.where(left > 0, kept.saved_after[jnp.maximum(left - 1, 0)], 0)
        end = jnp.where(recomputing, number, jnp.maximum(first, after))
        number, bar = loop.while_loop(
            lambda c: c[0] > end,
            lambda c: (c[0] - 1, step_vjp(c[1], kept.step_records.read(c[0] - 1))),
            (number, carry.bar),
            like=(like, kept),
            collective=collective,
        )
        if save_vjp is not None:
            used = ~recomputing & (left > 0) & (number == after)
            row = jnp.maximum(left - 1, 0)
            inside = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, row, 0, False), kept.saved_in)
            bar = save_vjp(bar, row, inside, used)
            left = left - used.astype(left.dtype)
        return BackwardState(number, left, bar, kept, first, recomputing, at, checkpoint, checkpoints)

    like, collective = (recomputation.operands, recomputation.saves, residuals, bar), loop.integrator.collective.axes
    rows = StepRecords(Buffers.of(residuals.step_records), slots)
    kept = Recorded(rows, numbers.saved_after, residuals.saved_in)
    zero = jnp.zeros((), jnp.int32)
    checkpoint = recomputation.start(y0)
    checkpoint, kept = recomputation.pass_saved(zero, checkpoint, kept)
    carry = BackwardState(
        number=last_of(kept, numbers.iterations),
        left=jnp.full((), recomputation.saved, jnp.int32),
        bar=bar,
        kept=kept,
        first=jnp.maximum(numbers.iterations - slots, 0),
        recomputing=numbers.iterations > slots,
        at=zero,
        checkpoint=checkpoint,
        checkpoints=blank(checkpoint, max(16, min(slots // 4, power_of_two(loop.max_steps) // slots)), _SHORTEST),
    )
    carry = to_varying(carry, vma_of(like))
    carry = loop.while_loop(
        lambda carry: carry.recomputing | (carry.number > 0) | (carry.left > 0),
        segment,
        carry,
        like=like,
        collective=collective,
    )
    return carry.bar


def _inside(step_record: StepRecord, before: tuple[Array, Array] | None) -> tuple[Array, Array] | None:
    """Returns start and length of a member's last step."""
    if before is None:
        return None
    here = (step_record.elapsed, step_record.h)
    return jax.tree.map(lambda a, b: jnp.where(step_record.accepted, a, b), here, before)
