"""The outcomes of a loop's turns, which the way back asks for from last to first.

Those of the last turns are kept. Turns before them are run again a stretch at a time, from the last restart point that
was kept. Rounding may then choose other steps, so the last turn of a stretch is made to end where the next one begins.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from .._loops import while_loop
from .._vma import to_varying, vma_of
from ._march import Operands, Outcome, Restart
from ._record import Buffers, Parts, Record, blank, get, power_of_two
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


def blank_restarts(restart: Restart, outcomes: int, max_steps: int) -> Record:
    """Returns a record for restart points: enough for stretches of so many outcomes up to the limit on steps."""
    return blank(restart, max(16, min(outcomes // 4, power_of_two(max_steps) // outcomes)), _SHORTEST)


class Residuals(NamedTuple):
    """What the backward loop needs of every member, lanes last on every array.

    Attributes:
        outcomes: Outcomes of the last turns.
        restarts: Restart points.
        saved_in: For each saved time, start and length of the step that it lies in.
        slopes: For each saved time, the derivative of the saved state with respect to it, or None.
    """

    outcomes: Parts
    restarts: Parts
    saved_in: tuple[Array, Array] | None
    slopes: PyTree | None


class Numbers(NamedTuple):
    """What the backward loop needs to know of the loop itself.

    Attributes:
        stride: The number of turns between two restart points.
        turns: The number of turns of the loop.
        saved_after: For each saved time, the number of turns before it was saved.
    """

    stride: Int[Array, ""]
    turns: Int[Array, ""]
    saved_after: Int[Array, " saves"] | None


class Cache(NamedTuple):
    """The outcomes that are at hand.

    Attributes:
        outcomes: Those of the turns that were kept or run again last.
        first: The first of these turns.
    """

    outcomes: Outcomes
    first: Int[Array, ""]


def outcomes_of(loop: Any, residuals: Residuals, numbers: Numbers, operands: Operands, saves: Saves | None) -> tuple:
    """Returns what brings the outcomes up to a turn into a cache, what reads one, and the first cache.

    Args:
        loop: The `Loop` over the lanes of the way back.
        residuals: What it recorded.
        numbers: Its numbers.
        operands: Lane values.
        saves: The saved times.
    """
    restarts = Buffers.of(residuals.restarts)
    rows = to_varying(Buffers.of(residuals.outcomes), vma_of((operands, residuals)))
    cache = Cache(Outcomes(rows, loop.slots), jnp.maximum(numbers.turns - loop.slots, 0))

    def read(cache, number):
        return cache.outcomes.read(number)

    def target_of(number):
        if saves is None:
            return operands.span
        assert numbers.saved_after is not None  # as there are saved times
        index = jnp.searchsorted(numbers.saved_after, number, side="right")
        time = jax.lax.dynamic_index_in_dim(saves.times, jnp.minimum(index, saves.times.shape[0] - 1), 0, False)
        return loop.stop(time, saves, operands, index >= saves.times.shape[0])

    def load(number, cache):
        # the way back has just been at the next turn, so that its outcome is at hand
        end = cache.outcomes.read(number + 1).elapsed

        def turn(carry):
            current, state, outcomes = carry
            state, outcome = loop.attempt(state, operands, target_of(current))
            outcome = loop.lanes.carry(loop.lanes.call(close, outcome, end, loop.shared(current == number)))
            return current + 1, state, outcomes.write(current, outcome)

        first, restart = get(restarts, numbers.stride, number)
        state = loop.lanes.carry(loop.lanes.call(loop.march.resume, restart, operands))
        # a loop of no turns instead of a conditional, which would copy the cache
        there = number >= cache.first
        _, _, outcomes = while_loop(
            lambda c: c[0] <= number,
            turn,
            (jnp.where(there, number + 1, first), state, cache.outcomes),
            like=(operands, residuals),
            together=loop.march.together.axes,
        )
        first = jnp.where(there, cache.first, jnp.maximum(first, number + 1 - loop.slots))
        return first, Cache(outcomes, first)

    return load, read, cache


def close(outcome: Outcome, end: Array, closing: Array) -> Outcome:
    """Returns an outcome that ends at a given time, where `closing`."""
    h = end - outcome.elapsed
    moves = jnp.abs(h) > 1e-3 * outcome.h  # otherwise the member waited or failed, and rounding is all there is
    closed = outcome._replace(h=h, accepted=moves)
    return jax.tree.map(lambda a, b: jnp.where(closing, a, b), closed, outcome)
