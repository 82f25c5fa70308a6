"""The solution as a function of time, for the way back: the accepted steps with their dense output.

A table has room for a stretch of turns of the loop. A longer solve is marched once more with a
restart point kept at the start of each stretch (of every second, fourth, ... where they are many:
see `_record`), and on the way back the table of each stretch is filled again from there. So memory is
bounded whatever the number of steps.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..._loops import while_loop
from ..._types import RealScalarLike, Y
from ..._vma import to_varying, vma_of
from .._loop import Loop
from .._march import Dense, Operands, State
from .._record import Record, blank, put, thin
from .._stepper import AbstractStepper

_ZEROED_AT_MOST = 2**24
_RESTARTS = 32


class Row(NamedTuple):
    """A step: where it starts, its length, the states at its ends and what lies between."""

    elapsed: Array
    h: Array
    y0: PyTree
    y1: PyTree
    stages: PyTree


class Table(NamedTuple):
    """Steps in the order of time, each turn of a loop a row; a turn that moved nothing repeats the last step.

    Attributes:
        ends: The times at which the steps end; infinite where there is no row.
        rows: The steps, first axis.
        used: The number of rows.
    """

    ends: Array
    rows: Row
    used: Int[Array, ""]


def state_at(stepper: AbstractStepper, table: Table, s: RealScalarLike, direction: Array) -> Y:
    """Returns the state at elapsed time `s`, by the dense output of the step that it lies in."""
    row = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, _index(table, s), 0, False), table.rows)
    return stepper.interpolate((s - row.elapsed) / row.h, direction * row.h, row.y0, row.y1, row.stages)


def _index(table: Table, s: RealScalarLike) -> Int[Array, ""]:
    """Returns the number of the first step that ends no earlier than `s`: the block of steps, then the step."""
    size = table.ends.shape[0]
    block = 2 ** (int(math.log2(size)) // 2)
    blocks = table.ends.reshape(-1, block)
    first = jnp.minimum(jnp.sum(blocks[:, -1] < s, dtype=jnp.int32), size // block - 1)
    inner = jax.lax.dynamic_index_in_dim(blocks, first, 0, False)
    index = first * block + jnp.sum(inner < s, dtype=jnp.int32)
    return jnp.clip(index, 0, table.used - 1)


class Stretches(NamedTuple):
    """A march forwards, cut into stretches.

    Attributes:
        count: The number of stretches.
        begin: The elapsed time at which the stretch in the table begins, a lane value.
        table: The table of the last stretch, arrays with lanes last.
        restarts: A restart point for the stretches whose number divides by the stride.
    """

    count: Int[Array, ""]
    begin: PyTree
    table: Table
    restarts: Record


class Recorder(NamedTuple):
    """Fills tables.

    Attributes:
        loop: The march forwards, over lanes, with dense output.
        rows: The number of rows of a table, a power of two.
    """

    loop: Loop
    rows: int

    @classmethod
    def of(cls, loop: Loop, y0: PyTree, memory: int) -> "Recorder":
        """Returns a recorder of `loop` whose table takes about `memory` bytes for all members together.

        Args:
            loop: The march, over lanes.
            y0: One member's state, arrays or their shapes.
            memory: How many bytes; few rows that are large may take all of them, but since
                a table is filled beforehand, many small ones take no more than costs no time.
        """
        item = jax.eval_shape(lambda y: (y, y, loop.march.stepper.blank_dense(y)), y0)
        size = (loop.lanes.count or 1) * sum(24 + x.size * x.dtype.itemsize for x in jax.tree.leaves(item))
        rows = max(min(memory, _ZEROED_AT_MOST) // size, min(memory // size, 64), 16)
        rows = min(rows, 1024, max(16, 2 * loop.max_steps))
        return cls(loop, 2 ** int(math.log2(rows)))

    @property
    def turns(self) -> int:
        """The number of turns of a stretch: with room for some more, since rounding may choose other steps."""
        return self.rows - max(4, self.rows // 16)

    def record(self, y0: PyTree, operands: Operands, until: PyTree) -> Stretches:
        """Marches every member until the elapsed time `until`; all are lane values."""
        state = self.loop.start(y0, operands)
        table = self._blank(state)
        like = (operands, until, state)
        count = jnp.zeros((), jnp.int32)
        restarts = blank(jax.eval_shape(lambda s: s.restart, state), _RESTARTS)

        def stretch(carry):
            count, _, _, state, restarts = carry
            restarts = put(thin(restarts, count), count, state.restart)
            begin = state.restart.elapsed
            state, table = self._fill(state, operands, until, carry[2], jnp.asarray(self.turns, jnp.int32))
            return count + 1, begin, table, state, restarts

        # the first stretch always, so that the table is one
        carry = to_varying((count, state.restart.elapsed, table, state, restarts), vma_of(like))
        count, begin, table, state, restarts = while_loop(
            lambda c: (c[0] == 0) | self._pending(c[3], until), stretch, carry, like=like
        )
        return Stretches(count, begin, table, restarts)

    def reload(
        self, stretches: Stretches, number: Int[Array, ""], operands: Operands, until: PyTree
    ) -> tuple[Stretches, PyTree]:
        """Returns `stretches` with the table of an earlier stretch, or as they are if it is the last one's.

        Args:
            stretches: From `record`; their table may be of any stretch.
            number: The number of the stretch.
            operands: Lane values.
            until: The elapsed time up to which the table is needed, a lane value.

        Returns:
            The stretches, and the elapsed time up to which the march came, a lane value.
        """
        lanes, restarts = self.loop.lanes, stretches.restarts
        first = jax.lax.div(number, restarts.stride)
        state = lanes.carry(lanes.call(self._resume, restarts.slots.read(first), operands))
        is_last = number + 1 == stretches.count
        span = lanes.carry(operands.span)

        def fill(carry):
            current, _, table, state = carry
            there = current == number
            target = jax.tree.map(lambda a, b: jnp.where(there, a, b), lanes.carry(until), span)
            begin = state.restart.elapsed
            most = jnp.where(there, self.rows - 1, self.turns)
            state, table = self._fill(state, operands, target, table, most)
            return current + 1, begin, table, state

        current = jnp.where(is_last, number + 1, first * restarts.stride)
        carry = (current, stretches.begin, stretches.table, state)
        like = (operands, until, stretches)
        _, begin, table, state = while_loop(lambda c: c[0] <= number, fill, carry, like=like)
        reached = jax.tree.map(lambda a, b: jnp.where(is_last, a, b), lanes.carry(until), state.restart.elapsed)
        return stretches._replace(begin=begin, table=table), reached

    def _fill(self, state: State, operands: Operands, until: PyTree, table: Table, most: Array) -> tuple[State, Table]:
        """Marches until `until`, for at most so many turns; the first row stands for the start."""
        table = self._write(table._replace(ends=jnp.full_like(table.ends, jnp.inf)), jnp.zeros((), jnp.int32), state)

        def turn(carry):
            state, table = carry
            state, _ = self.loop.attempt(state, operands, until)
            return state, self._write(table, table.used, state)

        def more(carry):
            state, table = carry
            return self._pending(state, until) & (table.used <= most)

        return while_loop(more, turn, (state, table), like=(operands, until))

    def _write(self, table: Table, number: Array, state: State) -> Table:
        dense: Dense = state.dense  # pyright: ignore[reportAssignmentType]
        row = Row(dense.elapsed, dense.h, dense.y0, state.restart.y, dense.stages)
        end, row = self.loop.lanes.leave((state.restart.elapsed, row))
        ends, rows = jax.tree.map(
            lambda b, x: jax.lax.dynamic_update_index_in_dim(b, x, number, 0), (table.ends, table.rows), (end, row)
        )
        return Table(ends, rows, number + 1)

    def _blank(self, state: State) -> Table:
        def shape(state):
            dense: Dense = state.dense  # pyright: ignore[reportAssignmentType]
            row = Row(dense.elapsed, dense.h, dense.y0, state.restart.y, dense.stages)
            return self.loop.lanes.leave((state.restart.elapsed, row))

        ends, rows = jax.tree.map(
            lambda x: jnp.zeros((self.rows, *x.shape), x.dtype), jax.eval_shape(shape, state)
        )
        return Table(ends, rows, jnp.ones((), jnp.int32))

    def _resume(self, restart, operands: Operands) -> State:
        y = restart.y
        dense = Dense(restart.elapsed, jnp.ones_like(restart.h), y, self.loop.march.stepper.blank_dense(y))
        return self.loop.march.resume(restart, operands)._replace(dense=dense)

    def _pending(self, state: State, target: PyTree) -> Array:
        return self.loop.lanes.any(self.loop.lanes.call(self.loop.march.pending, state, target))
