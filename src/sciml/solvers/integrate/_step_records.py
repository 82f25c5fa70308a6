"""What a loop records for its gradient: its last steps, where it started, and in which steps states were saved."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ._checkpoint_buffers import BufferArrays, Buffers
from ._integrator import StepRecord


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

    step_records: BufferArrays
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
