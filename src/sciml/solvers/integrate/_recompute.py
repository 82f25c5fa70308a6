"""The outcomes of a loop's turns, which the way back asks for from last to first.

Those of the last turns are kept. Where a loop had more, the way back begins with running it again, keeps restart points
evenly spread, and comes to the outcomes between two of these by running that stretch once more. Rounding may choose
other steps than the loop did the first time: in float32 the estimate of an error is known to a few digits only. So
nothing of the first time is used but where it started, and both other times are turns of one loop, which XLA compiles
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
from ._checkpoint_buffers import Buffers, Parts, Record, blank, get, power_of_two, put, thin
from ._integrator import Operands, Outcome, State
from ._result import Saves

_SHORTEST = 16
"""How many turns a stretch has at least: a loop over fewer would spend more on beginning than on keeping them all."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Outcomes:
    """The outcomes of the last turns: that of turn `n` in row `n` modulo their number.

    Attributes:
        rows: The rows.
        count: Their number.
    """

    rows: Buffers
    count: int = dataclasses.field(metadata={"static": True})

    @classmethod
    def blank(cls, outcome: Outcome, count: int) -> "Outcomes":
        """Returns room for `count` outcomes like a given one, of arrays or their shapes."""
        return cls(Buffers.blank(outcome, count), count)

    def write(self, number: Int[Array, ""], outcome: Outcome) -> "Outcomes":
        """Returns them with the outcome of a turn in place of the oldest."""
        return dataclasses.replace(self, rows=self.rows.write(self._row(number), self.rows.pack(outcome)))

    def read(self, number: Int[Array, ""]) -> Outcome:
        """Returns the outcome of a turn, one of the last."""
        return self.rows.unpack(self.rows.read(self._row(number)))

    def _row(self, number: Int[Array, ""]) -> Int[Array, ""]:
        return jax.lax.rem(number, jnp.asarray(self.count, number.dtype))


class Residuals(NamedTuple):
    """What the backward loop needs of every member, lanes last on every array.

    Attributes:
        outcomes: Outcomes of the last turns.
        y0: The initial state.
        saved_in: For each saved time, start and length of the step that it lies in.
        slopes: For each saved time, the derivative of the saved state with respect to it, or None.
    """

    outcomes: Parts
    y0: PyTree
    saved_in: tuple[Array, Array] | None
    slopes: PyTree | None


class Numbers(NamedTuple):
    """What the backward loop needs to know of the loop itself.

    Attributes:
        turns: The number of turns of the loop.
        saved_after: For each saved time, the number of turns before it was saved.
    """

    turns: Int[Array, ""]
    saved_after: Int[Array, " saves"] | None


class Point(NamedTuple):
    """From where a loop goes on.

    Attributes:
        state: The march, without its last step.
        inside: Start and length of that step, or None without saved times.
        reached: How many saved times have been reached.
    """

    state: State
    inside: tuple[Array, Array] | None
    reached: Int[Array, ""]


class Kept(NamedTuple):
    """What is kept of the turns.

    Attributes:
        outcomes: Outcomes of the last of them.
        saved_after: As in `Numbers`.
        saved_in: As in `Residuals`.
    """

    outcomes: Outcomes
    saved_after: Int[Array, " saves"] | None
    saved_in: tuple[Array, Array] | None


class Rerun(NamedTuple):
    """Runs a loop again.

    Attributes:
        loop: The `Loop` over the lanes of the way back.
        operands: Lane values.
        saves: The saved times.
    """

    loop: Any
    operands: Operands
    saves: Saves | None

    def start(self, y0: PyTree) -> Point:
        """Returns where the loop begins; `y0` is a lane value."""
        state = self.loop.start(y0, self.operands)
        inside = None if self.saves is None else (state.dense.elapsed, state.dense.h)
        return Point(state._replace(dense=None), inside, jnp.zeros((), jnp.int32))

    def pending(self, point: Point) -> Bool[Array, ""]:
        """Returns whether a member has yet to reach the next saved time, or the end where none is saved."""
        pending = jnp.any(self.loop.pending(point.state, self._target(point.reached)))
        pending = self.loop.march.together.agreed(pending.astype(jnp.int32)) > 0
        return pending if self.saves is None else pending & (point.reached < self.saved)

    def until(self, number: Int[Array, ""], point: Point, kept: Kept, stop: Int[Array, ""]) -> tuple:
        """Runs the turns from `number` up to `stop` or to the end; returns number, point and what is kept."""
        loop = self.loop

        def turn(carry):
            number, point, kept = carry
            state, outcome = loop.attempt(point.state, self.operands, self._target(point.reached))
            inside = loop.lanes.carry(loop.lanes.call(_inside, outcome, point.inside))
            kept = kept._replace(outcomes=kept.outcomes.write(number, outcome))
            number += 1
            return number, *self.pass_saved(number, Point(state, inside, point.reached), kept)

        return self._while_loop(lambda c: (c[0] < stop) & self.pending(c[1]), turn, (number, point, kept))

    def pass_saved(self, number: Int[Array, ""], point: Point, kept: Kept) -> tuple[Point, Kept]:
        """Returns them with the saved times that have been reached, all that lie in one step."""
        if self.saves is None:
            return point, kept

        def write(carry):
            index, after, inside = carry
            at = partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
            return index + 1, at(after, number), jax.tree.map(lambda all, x: at(all, x), inside, point.inside)

        def reached(carry):
            return (carry[0] < self.saved) & ~self.pending(point._replace(reached=carry[0]))

        carry = self._while_loop(reached, write, (point.reached, kept.saved_after, kept.saved_in))
        return point._replace(reached=carry[0]), Kept(kept.outcomes, *carry[1:])

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
        together = self.loop.march.together.axes
        return self.loop.while_loop(cond, body, init, like=(self.operands, self.saves), together=together)


class Way(NamedTuple):
    """What the way back carries.

    Attributes:
        number: The number of turns still to go back through.
        left: The number of saved times still to come to.
        bar: Cotangents.
        kept: The outcomes at hand, with where saved times lie.
        first: The first turn whose outcome is at hand.
        rerunning: Whether the loop is still being run again.
        at: How many turns of that have been run.
        point: Where it is.
        restarts: A record of such points.
    """

    number: Int[Array, ""]
    left: Int[Array, ""]
    bar: PyTree
    kept: Kept
    first: Int[Array, ""]
    rerunning: Bool[Array, ""]
    at: Int[Array, ""]
    point: Point
    restarts: Record


def way_back(
    rerun: Rerun,
    residuals: Residuals,
    numbers: Numbers,
    y0: PyTree,
    bar: PyTree,
    retreat: Callable[[PyTree, Outcome], PyTree],
    unsave: Callable[[PyTree, Int[Array, ""], Any, Bool[Array, ""]], PyTree] | None,
) -> PyTree:
    """Carries cotangents back through all turns of a loop.

    Args:
        rerun: Runs the loop again.
        residuals: What it recorded.
        numbers: Its numbers.
        y0: Its initial state, a lane value.
        bar: The cotangents after its last turn.
        retreat: Returns the cotangents before a turn, `(bar, outcome)`.
        unsave: Returns the cotangents with that of a saved state, `(bar, index, saved_in, used)`: as they are where it
            is not `used`. None without saved times.
    """
    loop, slots = rerun.loop, rerun.loop.slots

    def last_of(kept, turns):
        return turns if kept.saved_after is None else kept.saved_after[-1]

    def stretch(way):
        """Runs a stretch if none is at hand, then goes back through what is, or to the next saved time."""
        # a loop of no turns instead of a conditional, which would copy what is kept
        there = ~way.rerunning & ((way.number == 0) | (way.number > way.first))
        restarts = thin(way.restarts, jnp.where(way.rerunning, way.at, 0))
        restarts = put(restarts, jnp.where(way.rerunning, way.at, 1), way.point)  # the first turn is never kept
        begin, point = get(restarts.slots, restarts.stride, jnp.where(way.rerunning, way.at, way.number - 1))
        stop = jnp.where(way.rerunning, begin + restarts.stride, jnp.where(there, begin, way.number))
        at, point, kept = rerun.until(begin, point, way.kept, stop)

        rerunning = way.rerunning & rerun.pending(point)
        number = jnp.where(way.rerunning, last_of(kept, at), way.number)
        loaded = jnp.maximum(jnp.where(way.rerunning, 0, begin), at - slots)
        first = jnp.where(there, way.first, loaded)

        left, after = way.left, jnp.zeros((), jnp.int32)
        if kept.saved_after is not None:
            after = jnp.where(left > 0, kept.saved_after[jnp.maximum(left - 1, 0)], 0)
        end = jnp.where(rerunning, number, jnp.maximum(first, after))
        number, bar = loop.while_loop(
            lambda c: c[0] > end,
            lambda c: (c[0] - 1, retreat(c[1], kept.outcomes.read(c[0] - 1))),
            (number, way.bar),
            like=(like, kept),
            together=together,
        )
        if unsave is not None:
            used = ~rerunning & (left > 0) & (number == after)
            row = jnp.maximum(left - 1, 0)
            inside = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, row, 0, False), kept.saved_in)
            bar = unsave(bar, row, inside, used)
            left = left - used.astype(left.dtype)
        return Way(number, left, bar, kept, first, rerunning, at, point, restarts)

    like, together = (rerun.operands, rerun.saves, residuals, bar), loop.march.together.axes
    rows = Outcomes(Buffers.of(residuals.outcomes), slots)
    kept = Kept(rows, numbers.saved_after, residuals.saved_in)
    zero = jnp.zeros((), jnp.int32)
    point = rerun.start(y0)
    point, kept = rerun.pass_saved(zero, point, kept)
    way = Way(
        number=last_of(kept, numbers.turns),
        left=jnp.full((), rerun.saved, jnp.int32),
        bar=bar,
        kept=kept,
        first=jnp.maximum(numbers.turns - slots, 0),
        rerunning=numbers.turns > slots,
        at=zero,
        point=point,
        restarts=blank(point, max(16, min(slots // 4, power_of_two(loop.max_steps) // slots)), _SHORTEST),
    )
    way = to_varying(way, vma_of(like))
    way = loop.while_loop(
        lambda way: way.rerunning | (way.number > 0) | (way.left > 0), stretch, way, like=like, together=together
    )
    return way.bar


def _inside(outcome: Outcome, before: tuple[Array, Array] | None) -> tuple[Array, Array] | None:
    """Returns start and length of a member's last step."""
    if before is None:
        return None
    here = (outcome.elapsed, outcome.h)
    return jax.tree.map(lambda a, b: jnp.where(outcome.accepted, a, b), here, before)
