"""The solution as a function of time, for the backward pass: the accepted steps with their dense output.

Within a step the method's own dense output is a polynomial. It is kept as the coefficients of
Chebyshev polynomials, which take less memory than the stages it is made of, and less work to evaluate.

A table has rows for a segment of iterations of the loop. A longer solve is integrated once more with a
checkpoint kept at the start of each segment (of every second, fourth, ... where they are many: see
`_checkpoint_buffers`), and in the backward pass the table of each segment is filled again from there. So
memory is bounded whatever the number of steps.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ...._choices import choices
from ...._jax._loops import while_loop
from ...._jax._shards import parts_of_members
from ...._jax._vma import match, to_varying, vma_of
from ...._types import RealScalarLike, Y
from ...integrate._checkpoint_buffers import Record, blank, get, put, thin
from ...integrate._integrator import Dense, Operands, State
from ...integrate._lane_integrator import LaneIntegrator
from ...methods._stepper import AbstractStepper


class Row(NamedTuple):
    """A step.

    Attributes:
        elapsed: The elapsed time at its start.
        h: Its length.
        y: The Chebyshev coefficients of the state within it, first axis.
    """

    elapsed: Array
    h: Array
    y: PyTree


class Table(NamedTuple):
    """Steps in the order of time, a row for each iteration; one without an accepted step repeats the row before it.

    Attributes:
        ends: The times at which the steps end; infinite where there is no row.
        rows: The steps, first axis.
        used: The number of rows.
    """

    ends: Array
    rows: Row
    used: Int[Array, ""]


def state_at(table: Table, s: RealScalarLike) -> Y:
    """Returns the state at elapsed time `s`, by the dense output of the step that it lies in."""
    row = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, _index(table, s), 0, False), table.rows)
    x = 2 * (s - row.elapsed) / row.h - 1
    values = [jnp.ones_like(x), x]
    for _ in range(jax.tree.leaves(row.y)[0].shape[0] - 2):
        values.append(2 * x * values[-1] - values[-2])
    basis = jnp.stack(values)

    def combined(rows):
        weights = basis.astype(rows.dtype).reshape((-1,) + (1,) * (rows.ndim - 1))
        return jnp.sum(weights * rows, axis=0)

    return jax.tree.map(combined, row.y)


def row_of(stepper: AbstractStepper, dense: Dense, y1: Y, direction: Array) -> Row:
    """Returns a step of the integration forwards as a row."""
    degree = max(stepper.order, 3)  # no method here has a dense output of a higher one
    angles = (np.arange(degree + 1) + 0.5) * np.pi / (degree + 1)
    matrix = 2 / (degree + 1) * np.cos(np.outer(np.arange(degree + 1), angles))
    matrix[0] /= 2  # from values at the Chebyshev points to coefficients

    def at(theta):
        return stepper.interpolate(theta, direction * dense.h, dense.y0, y1, dense.stages)

    thetas = match(jnp.asarray((np.cos(angles) + 1) / 2, dense.h.dtype), (dense, y1))
    values = jax.vmap(at)(thetas)

    def coefficients(x):
        return jnp.tensordot(jnp.asarray(matrix, x.dtype), x, axes=1, precision="highest")

    return Row(dense.elapsed, dense.h, jax.tree.map(coefficients, values))


def _index(table: Table, s: RealScalarLike) -> Int[Array, ""]:
    """Returns the number of the first step that ends no earlier than `s`: the block of steps, then the step."""
    size = table.ends.shape[0]
    block = 2 ** (int(math.log2(size)) // 2)  # two searches among about the square root of all rows
    blocks = table.ends.reshape(-1, block)
    first = jnp.minimum(jnp.sum(blocks[:, -1] < s, dtype=jnp.int32), size // block - 1)
    inner = jax.lax.dynamic_index_in_dim(blocks, first, 0, False)
    index = first * block + jnp.sum(inner < s, dtype=jnp.int32)
    return jnp.clip(index, 0, table.used - 1)


class Segments(NamedTuple):
    """An integration forwards, cut into segments.

    Attributes:
        number: How many segments there are.
        begin: The elapsed time at which the segment in the table begins, a lane value.
        table: The table of the last segment, arrays with lanes last.
        checkpoints: The starts of the segments whose number is a multiple of the stride.
    """

    number: Int[Array, ""]
    begin: PyTree
    table: Table
    checkpoints: Record


class Recorder(NamedTuple):
    """Fills tables.

    Attributes:
        stepping: The steps forwards, over lanes, with dense output.
        rows: The number of rows of a table, a power of two.
    """

    stepping: LaneIntegrator
    rows: int

    @classmethod
    def of(cls, stepping: LaneIntegrator, y0: PyTree, memory: int, max_steps: int) -> "Recorder":
        """Returns a recorder whose table takes about `memory` bytes for all members.

        Args:
            stepping: The steps, over lanes.
            y0: One member's state, arrays or their shapes.
            memory: How many bytes; a few large rows may take all of them, but since a table is filled
                beforehand, many small ones take no more than costs no time.
            max_steps: The limit on the attempted steps of a member.
        """
        coefficients = max(stepping.integrator.stepper.order, 3) + 1
        size = sum(24 + coefficients * x.size * x.dtype.itemsize for x in jax.tree.leaves(y0))
        size = (stepping.lanes.count or 1) * parts_of_members() * size
        table = choices().checkpoints
        few = min(memory // size, table.dense_rows_at_least)
        rows = max(min(memory, table.zeroed_at_most) // size, few, table.at_least)
        rows = min(rows, table.records_at_most, max(table.at_least, 2 * max_steps))
        return cls(stepping, 2 ** int(math.log2(rows)))

    @property
    def iterations(self) -> int:
        """The number of iterations of a segment: a few rows are spare, since rounding may lead to more steps."""
        return self.rows - max(4, self.rows // 16)

    def record(self, y0: PyTree, operands: Operands, until: PyTree) -> Segments:
        """Integrates every member until the elapsed time `until`; all are lane values."""
        state = self.stepping.start(y0, operands)
        table = self._blank(state, operands)
        like = (operands, until, state)
        count = jnp.zeros((), jnp.int32)
        checkpoints = blank(jax.eval_shape(lambda s: s.checkpoint, state), choices().checkpoints.continuous)

        def segment(carry):
            count, _, _, state, checkpoints = carry
            checkpoints = thin(checkpoints, count)
            checkpoints = put(checkpoints, count, state.checkpoint)
            begin = state.checkpoint.elapsed
            state, table = self._fill(state, operands, until, carry[2], jnp.asarray(self.iterations, jnp.int32))
            return count + 1, begin, table, state, checkpoints

        # the first segment always, so that the table is one
        carry = to_varying((count, state.checkpoint.elapsed, table, state, checkpoints), vma_of(like))
        count, begin, table, state, checkpoints = while_loop(
            lambda c: (c[0] == 0) | self._pending(c[3], until), segment, carry, like=like
        )
        return Segments(count, begin, table, checkpoints)

    def recompute(
        self, segments: Segments, number: Int[Array, ""], operands: Operands, until: PyTree
    ) -> tuple[Segments, PyTree]:
        """Returns `segments` with the table of an earlier segment, or as they are if it is the last one's.

        Args:
            segments: From `record`; their table may be of any segment.
            number: The number of the segment.
            operands: Lane values.
            until: The elapsed time up to which the table is needed, a lane value.

        Returns:
            The segments, and the elapsed time up to which the integration came, a lane value.
        """
        lanes, checkpoints = self.stepping.lanes, segments.checkpoints
        first, checkpoint = get(checkpoints.slots, checkpoints.stride, number)
        state = lanes.carry(lanes.call(self._resume, checkpoint, operands))
        is_last = number + 1 == segments.number
        span = lanes.carry(operands.span)

        def fill(carry):
            current, _, table, state = carry
            there = current == number
            target = jax.tree.map(lambda a, b: jnp.where(there, a, b), lanes.carry(until), span)
            begin = state.checkpoint.elapsed
            # the wanted segment may also fill the spare rows: rounding may have led to more steps than at first
            most = jnp.where(there, self.rows - 1, self.iterations)
            state, table = self._fill(state, operands, target, table, most)
            return current + 1, begin, table, state

        current = jnp.where(is_last, number + 1, first)  # no iterations where the table is the one wanted
        carry = (current, segments.begin, segments.table, state)
        like = (operands, until, segments)
        _, begin, table, state = while_loop(lambda c: c[0] <= number, fill, carry, like=like)
        reached = jax.tree.map(lambda a, b: jnp.where(is_last, a, b), lanes.carry(until), state.checkpoint.elapsed)
        return segments._replace(begin=begin, table=table), reached

    def _fill(self, state: State, operands: Operands, until: PyTree, table: Table, most: Array) -> tuple[State, Table]:
        """Integrates until `until`, for a limited number of iterations; the first row is the start."""
        table = table._replace(ends=jnp.full_like(table.ends, jnp.inf))
        table = self._write(table, jnp.zeros((), jnp.int32), state, operands)

        def iterate(carry):
            state, table = carry
            state, _ = self.stepping.attempt(state, operands, until)
            return state, self._write(table, table.used, state, operands)

        def more(carry):
            state, table = carry
            return self._pending(state, until) & (table.used <= most)

        return while_loop(more, iterate, (state, table), like=(operands, until))

    def _write(self, table: Table, number: Array, state: State, operands: Operands) -> Table:
        end, row = self._row(state, operands)
        ends, rows = jax.tree.map(
            lambda b, x: jax.lax.dynamic_update_index_in_dim(b, x, number, 0), (table.ends, table.rows), (end, row)
        )
        return Table(ends, rows, number + 1)

    def _blank(self, state: State, operands: Operands) -> Table:
        item = jax.eval_shape(self._row, state, operands)
        ends, rows = jax.tree.map(lambda x: jnp.zeros((self.rows, *x.shape), x.dtype), item)
        return Table(ends, rows, jnp.ones((), jnp.int32))

    def _row(self, state: State, operands: Operands) -> tuple[Array, Row]:
        """Returns where the last step ended, and the step, as arrays."""
        lanes, stepper = self.stepping.lanes, self.stepping.integrator.stepper

        def of_member(state, direction):
            return state.checkpoint.elapsed, row_of(stepper, state.dense, state.checkpoint.y, direction)

        return lanes.leave(lanes.call(of_member, state, operands.direction))

    def _resume(self, checkpoint, operands: Operands) -> State:
        y = checkpoint.y
        dense = Dense(
            checkpoint.elapsed, jnp.ones_like(checkpoint.h), y, self.stepping.integrator.stepper.empty_dense(y)
        )
        return self.stepping.integrator.resume(checkpoint, operands)._replace(dense=dense)

    def _pending(self, state: State, target: PyTree) -> Array:
        return self.stepping.any_pending(state, target)
