r"""Where a condition passes through zero within a step.

Its values at the ends of the step and at two places between make a cubic. Of the first of the three intervals in which
its sign changes as asked for, a few safeguarded Newton iterations give a zero of the cubic. That is near enough: the
step is taken again up to there, its cubic is better the shorter it is, and the last correction is that of Newton's
method for the condition itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

PLACES = (1 / 3, 2 / 3)
"""Where a condition is evaluated within a step."""

_CLEARLY = 1e-3
"""How far a cubic has to come back beyond zero, of the value at the start, to be looked at more closely."""

_ZERO = 1e-6
"""How small a condition is where it is just leaving zero, of its size in the step."""

_ITERATIONS = 4
_HALVINGS = 40


class Crossing(NamedTuple):
    """The first passing of a condition through zero within a step.

    Attributes:
        found: Whether it passes.
        place: Where, from 0 to 1.
        late: Whether after the last place within the step.
        side: Its sign at the end of the step.
    """

    found: Bool[Array, ""]
    place: Array
    late: Bool[Array, ""]
    side: Array


def first_crossing(
    values: tuple[Array, Array, Array, Array],
    side: Array,
    direction: int,
    boolean: Callable[[Array], Array] | None,
) -> Crossing:
    """Returns where a condition first passes through zero.

    Args:
        values: Its values at the start, at `PLACES` and at the end.
        side: Its sign before, twice that since it has been zero; 0 where that is not known.
        direction: In which direction it has to pass; 0 for both.
        boolean: For one that jumps, its value at a place; else None.
    """
    edges, cubic = (0.0, *PLACES, 1.0), _cubic(values)
    leaves = (jnp.abs(side) != 1) & (jnp.abs(values[0]) <= _ZERO * jnp.max(jnp.abs(jnp.stack(values))))
    side = before = jnp.where(side == 0, jnp.sign(cubic[1]), jnp.sign(side))
    found = jnp.zeros((), bool)
    low, high, after, late = jnp.zeros_like(side), jnp.ones_like(side), jnp.zeros_like(side), found
    for number in range(1, 4):
        here = jnp.sign(values[number])
        passes = (here * side < 0) & ~found
        if direction:
            passes = passes & (here == direction)
        low = jnp.where(passes, jnp.full_like(low, edges[number - 1]), low)
        high = jnp.where(passes, jnp.full_like(high, edges[number]), high)
        after, late = jnp.where(passes, here, after), passes if number == 3 else late
        found = found | passes
        side = jnp.where(here == 0, side, here)
    if boolean is not None:
        return Crossing(found, _jump(boolean, low, high), late, side)
    for turn in _turns(cubic):  # it may pass and come back between two places
        beyond = _value(cubic, turn)
        passes = (beyond * before < -_CLEARLY * jnp.abs(values[0])) & ~found & (turn > 0) & (turn < 1)
        if direction:
            passes = passes & (before == -direction)
        low = jnp.where(passes, jnp.floor(3 * turn) / 3, low)
        high, after = jnp.where(passes, turn, high), jnp.where(passes, -before, after)
        found = found | passes
    place = _zero_of_cubic(cubic, low, high, after)
    # a cubic that starts at zero may have no other zero, while the condition first moves away from it
    place = jnp.where(leaves & (low == 0), jnp.maximum(place, high / 20), place)
    return Crossing(found, place, late, side)


def _cubic(values: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    """Returns the coefficients of the cubic with these values, of ascending powers."""
    a, b, c, d = values
    c1 = (-11 * a + 18 * b - 9 * c + 2 * d) / 2
    c2 = 9 * (2 * a - 5 * b + 4 * c - d) / 2
    c3 = 9 * (-a + 3 * b - 3 * c + d) / 2
    return a, c1, c2, c3


def _value(cubic: tuple[Array, Array, Array, Array], place: Array) -> Array:
    a, c1, c2, c3 = cubic
    return a + place * (c1 + place * (c2 + place * c3))


def _turns(cubic: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
    """Returns where the slope of a cubic is zero; places out of reach where it is nowhere."""
    _, c1, c2, c3 = cubic
    square = c2 * c2 - 3 * c1 * c3
    root = jnp.sqrt(jnp.maximum(square, jnp.zeros_like(square)))
    sum_ = -(c2 + jnp.where(c2 >= 0, root, -root))  # no digits cancel
    none = -jnp.ones_like(c1)
    first = jnp.where(c3 != 0, sum_ / jnp.where(c3 != 0, 3 * c3, none), none)
    second = jnp.where(sum_ != 0, c1 / jnp.where(sum_ != 0, sum_, none), none)
    real = square > 0
    return jnp.where(real, jnp.minimum(first, second), none), jnp.where(real, jnp.maximum(first, second), none)


def _zero_of_cubic(cubic: tuple[Array, Array, Array, Array], low: Array, high: Array, after: Array) -> Array:
    """Returns a zero between two places, after which the cubic has a given sign."""
    _, c1, c2, c3 = cubic
    place = (low + high) / 2
    for _ in range(_ITERATIONS):
        value = _value(cubic, place)
        slope = c1 + place * (2 * c2 + place * (3 * c3))
        beyond = value * after >= 0
        low, high = jnp.where(beyond, low, place), jnp.where(beyond, place, high)
        steep = slope * after > 0
        guess = place - value / jnp.where(steep, slope, jnp.ones_like(slope))
        place = jnp.where(steep & (guess > low) & (guess <= high), guess, (low + high) / 2)
    return place


def _jump(condition: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Returns where a condition has just become true, by halving."""

    def halve(carry, _):
        low, high = carry
        middle = (low + high) / 2
        true = condition(middle) > 0
        return (jnp.where(true, low, middle), jnp.where(true, middle, high)), None

    (_, high), _ = jax.lax.scan(halve, (low, high), None, length=_HALVINGS)
    return high
