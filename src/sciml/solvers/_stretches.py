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


class _Cache(NamedTuple):
    outcomes: Buffers
    stretch: Int[Array, ""]  # the number of the stretch of turns whose outcomes these are
    length: Int[Array, ""]  # the number of turns in a stretch


def outcomes_of(loop: Any, residuals: Residuals, numbers: Numbers, operands: Operands, saves: Saves | None) -> tuple:
    """Returns what brings the outcomes of a stretch of turns into a cache, what reads one, and an empty cache.

    Args:
        loop: The `Loop` over the lanes of the way back.
        residuals: What it recorded.
        numbers: Its numbers.
        operands: Lane values.
        saves: The saved times.
    """
    slots, stride = Buffers.of(residuals.slots), numbers.stride
    flat = stride == 1
    room = max(16, min(loop.slots // 4, power_of_two(loop.max_steps) // loop.slots))
    length = jnp.where(flat, loop.slots, jnp.minimum(stride, room))

    blank = Buffers.blank(jax.eval_shape(lambda n: slots.unpack(slots.read(n)), numbers.turns), room)
    blank = to_varying(blank, vma_of((operands, residuals)))

    def recorded(number):
        found = slots.read(number)
        # one member's record is kept in another form than that of many
        return found if slots.like == blank.like else blank.pack(slots.unpack(found))

    def read(cache, number):
        if loop.lanes.count is None:  # a few scalars are sooner read twice than branched over
            both = recorded(jnp.minimum(number, loop.slots)), cache.outcomes.read(jax.lax.rem(number, length))
            return jax.tree.map(lambda a, b: jnp.where(flat, a, b), *both)
        return jax.lax.cond(flat, recorded, lambda n: cache.outcomes.read(jax.lax.rem(n, length)), number)

    cache = _Cache(blank, jnp.where(flat, 0, -1).astype(jnp.int32), length)

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
            return number + 1, state, outcomes.write(jax.lax.rem(number, length), outcomes.pack(outcome))

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
            (first, state, cache.outcomes),
            like=(operands, residuals),
            together=loop.march.together.axes,
        )
        return stretch * length, _Cache(outcomes, stretch, length)

    return load, read, cache


def close(outcome: Outcome, end: Array, closing: Array) -> Outcome:
    """Returns an outcome that ends at a given time, where `closing`."""
    h = end - outcome.start.elapsed
    moves = jnp.abs(h) > 1e-3 * outcome.start.h  # otherwise the member waited or failed, and rounding is all there is
    closed = Outcome(outcome.start._replace(h=h), moves)
    return jax.tree.map(lambda a, b: jnp.where(closing, a, b), closed, outcome)
