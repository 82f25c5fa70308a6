"""The outcomes of a loop's turns, which the way back asks for from last to first.

Where every turn was recorded they are read from the record. Otherwise the turns of a stretch are run again, from the
last slot before it. Rounding may then choose other steps, so the last turn before the next slot is made to end where
that slot begins.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from .._loops import while_loop
from .._vma import to_varying, vma_of
from ._march import Operands, Outcome
from ._record import Buffers, Parts, power_of_two
from ._result import Saves


class Residuals(NamedTuple):
    """What the backward loop needs of every member, lanes last on every array.

    Attributes:
        slots: Outcomes of turns.
        elapsed: The time that the member reached.
        saved_in: For each saved time, start and length of the step that it lies in.
        slopes: For each saved time, the derivative of the saved state with respect to it, or None.
    """

    slots: Parts
    elapsed: PyTree
    saved_in: tuple[Array, Array] | None
    slopes: PyTree | None


class Numbers(NamedTuple):
    """What the backward loop needs to know of the loop itself.

    Attributes:
        stride: The number of turns between two slots.
        turns: The number of turns of the loop.
        saved_after: For each saved time, the number of turns before it was saved.
    """

    stride: Int[Array, ""]
    turns: Int[Array, ""]
    saved_after: Int[Array, " saves"] | None


class Cache(NamedTuple):
    """The outcomes that are at hand.

    Attributes:
        outcomes: The slots of the record, and after them those of a stretch of turns that was run again.
        stretch: The number of that stretch.
        length: The number of turns in a stretch.
    """

    outcomes: Buffers
    stretch: Int[Array, ""]
    length: Int[Array, ""]


def spare_slots(slots: int, max_steps: int) -> int:
    """Returns how many slots there are for the turns of a stretch, beside those of the record."""
    return max(16, min(slots // 4, power_of_two(max_steps) // slots))


def outcomes_of(loop: Any, residuals: Residuals, numbers: Numbers, operands: Operands, saves: Saves | None) -> tuple:
    """Returns what brings the outcomes of a stretch of turns into a cache, what reads one, and the first cache.

    Args:
        loop: The `Loop` over the lanes of the way back.
        residuals: What it recorded.
        numbers: Its numbers.
        operands: Lane values.
        saves: The saved times.
    """
    stride, spare = numbers.stride, loop.slots + 1
    flat = stride == 1
    length = jnp.where(flat, loop.slots, jnp.minimum(stride, spare_slots(loop.slots, loop.max_steps)))
    slots = to_varying(Buffers.of(residuals.slots), vma_of((operands, residuals)))
    cache = Cache(slots, jnp.where(flat, 0, -1).astype(jnp.int32), length)

    def read(cache, number):
        row = jnp.where(flat, number, spare + jax.lax.rem(number, length))
        return cache.outcomes.unpack(cache.outcomes.read(row))

    def target_of(number):
        if saves is None:
            return operands.span
        assert numbers.saved_after is not None  # as there are saved times
        index = jnp.searchsorted(numbers.saved_after, number, side="right")
        time = jax.lax.dynamic_index_in_dim(saves.times, jnp.minimum(index, saves.times.shape[0] - 1), 0, False)
        return loop.stop(time, saves, operands, index >= saves.times.shape[0])

    def load(number, cache):
        stretch = jax.lax.div(number, length)
        slot = jax.lax.div(number, stride)
        first, stop = slot * stride, (stretch + 1) * length

        def turn(carry):
            number, state, outcomes = carry
            closing = (number + 1 == jnp.minimum((slot + 1) * stride, numbers.turns)) & ~flat
            closing = end, loop.shared(closing)
            state, outcome = loop.attempt(state, operands, target_of(number))
            outcome = loop.lanes.carry(loop.lanes.call(close, outcome, *closing))
            row = spare + jax.lax.rem(number, length)
            return number + 1, state, outcomes.write(row, outcomes.pack(outcome))

        slots = cache.outcomes
        is_last = (slot + 1) * stride >= numbers.turns
        following = slots.unpack(slots.read(slot + 1)).start.elapsed
        end = jax.tree.map(lambda a, b: jnp.where(is_last, a, b), residuals.elapsed, following)
        restart = slots.unpack(slots.read(slot)).start
        state = loop.lanes.carry(loop.lanes.call(loop.march.resume, restart, operands))
        # a loop of no turns instead of a conditional, which would copy the cache
        first = jnp.where(cache.stretch == stretch, stop, first)
        _, _, outcomes = while_loop(
            lambda c: c[0] < stop,
            turn,
            (first, state, slots),
            like=(operands, residuals),
            together=loop.march.together.axes,
        )
        return stretch * length, Cache(outcomes, stretch, length)

    return load, read, cache


def close(outcome: Outcome, end: Array, closing: Array) -> Outcome:
    """Returns an outcome that ends at a given time, where `closing`."""
    h = end - outcome.start.elapsed
    moves = jnp.abs(h) > 1e-3 * outcome.start.h  # otherwise the member waited or failed, and rounding is all there is
    closed = Outcome(outcome.start._replace(h=h), moves)
    return jax.tree.map(lambda a, b: jnp.where(closing, a, b), closed, outcome)
