"""Steps that are longer than a delay and read their own dense output, and breaking points within a step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ...._jax._loops import while_loop
from ...._jax._promoted import run_program
from ...._types import Y
from .._ravel import flattened, unflattened
from .._stepper import Step
from ..implicit._known_root import known_root
from ._delay_field import Pieces, slack_of

_PASSES = 30
"""Repetitions of a step that reads itself."""

_ROUNDINGS = 16.0
"""Roundings by which a polynomial may change in the last repetition."""

_CONVERGED = 1e3
"""Roundings by which it may change if the repetitions have come to their end."""

_ROOT_ITERATIONS = 60
"""Iterations for the place of a breaking point."""

Row = tuple[Y, tuple]
"""The state at the end of a step and what its polynomial goes on by; see `Past.then`."""


def solved_within(
    attempt: Callable[[Row], tuple[Step, Row]], guess: Row, reads_itself: Callable[[Step], Bool[Array, ""]]
) -> tuple[Step, Row, Bool[Array, ""]]:
    """Returns a step that reads its own polynomial, that polynomial, and whether the iterations for it converged.

    The step is repeated with its last polynomial, until that no longer changes; each repetition gains an order, and a
    factor of the length. A step that does not read itself is not repeated. Derivatives are those of the fixed point.

    Args:
        attempt: A step with the polynomial that it reads, and its own polynomial.
        guess: The first polynomial.
        reads_itself: Whether a step reads its own polynomial.
    """
    like = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(attempt, guess))
    numbers, rest = eqx.partition(like, eqx.is_inexact_array)

    def as_vector(found: tuple[Step, Row]) -> Array:
        return flattened(eqx.filter(found, eqx.is_inexact_array))

    def repeated(z: Array) -> tuple[Array, list, Array, Array]:
        row = unflattened(z, numbers)[1]
        step, new = attempt(row)
        change = jnp.max(jnp.abs(flattened(new) - flattened(row)))
        others = jax.tree.leaves(eqx.filter((step, new), eqx.is_inexact_array, inverse=True))
        return as_vector((step, new)), others, change / jnp.max(jnp.abs(flattened(new))), reads_itself(step)

    z = as_vector((numbers[0], guess))
    eps = float(jnp.finfo(z.dtype).eps)
    program, shape = jax.make_jaxpr(repeated, return_shape=True)(z)
    consts, z = jax.lax.stop_gradient((list(program.consts), z))

    def again(z: Array) -> tuple:
        return jax.tree.unflatten(jax.tree.structure(shape), run_program(program.jaxpr, consts, z))

    def going(carry: tuple) -> Bool[Array, ""]:
        count, (_, _, change, itself) = carry
        return itself & (change > _ROUNDINGS * eps) & (count < _PASSES)

    start = jnp.zeros((), jnp.int32), again(z)
    found = while_loop(going, lambda c: (c[0] + 1, again(c[1][0])), start, like=(z, consts))[1]
    z, others, change, itself = found
    z = known_root(lambda z: z - repeated(z)[0], z, lambda _, b: b, lambda _, b: b, lambda z: (), exact=False)
    step, row = eqx.combine(unflattened(z, numbers), jax.tree.unflatten(jax.tree.structure(rest), others))
    return step, row, ~itself | (change <= _CONVERGED * eps)


def first_crossing(field: Any, t: Array, h: Array, y: Y, path: Callable[[Array], Y], pieces: Pieces) -> Array:
    """Returns the place within a step at which a past state first passes a breaking point; one if none does.

    Args:
        field: The functions of the equation.
        t: The time at the start of the step.
        h: Its length.
        y: The state at its start.
        path: The state within it, a function of the place from 0 to 1.
        pieces: The breaking points between which past states are at the start.
    """
    then = t - field.lags(t, y)
    slack = slack_of(t + h, field.t0, jnp.max(jnp.abs(t - then)))
    # a past state that leaves a breaking point at the start does not pass it again
    low = jnp.where(then > pieces.low + slack, pieces.low, -jnp.inf)
    high = jnp.where(then < pieces.high - slack, pieces.high, jnp.inf)

    def room(place: Array) -> Array:
        """How far the past states are from the next breaking points; negative behind them."""
        time = t + place * h
        then = time - field.lags(time, path(place))
        return jnp.minimum(jnp.min(jnp.minimum(high - then, then - low)), jnp.finfo(h.dtype).max / 4)

    zero, one = jnp.zeros_like(h), jnp.ones_like(h)
    program = jax.make_jaxpr(room)(one)
    consts, slack = jax.lax.stop_gradient((list(program.consts), slack))

    def at(place: Array) -> Array:
        return run_program(program.jaxpr, consts, place)[0]

    def going(carry: tuple) -> Bool[Array, ""]:
        count, (low, _), (high, _), _, value = carry
        return (jnp.abs(value) > slack / 8) & (count < _ROOT_ITERATIONS) & (high - low > jnp.finfo(h.dtype).eps)

    def iterate(carry: tuple) -> tuple:
        count, (low, before), (high, after), _, _ = carry
        share = jnp.where(count % 3 == 2, 0.5, before / (before - after))  # a line through both ends, or a half
        place = jnp.clip(low + (high - low) * share, low, high)
        value = at(place)
        passed = value < 0
        ends = (low, before), (place, value), (high, after)
        ends = jax.tree.map(lambda a, b: jnp.where(passed, a, b), ends[:2], ends[1:])
        return count + 1, *ends, place, value

    first, last = at(zero), at(one)
    passes = last < -slack
    start = jnp.zeros((), jnp.int32), (zero, first), (one, last), one, jnp.where(passes, last, zero)
    return while_loop(going, iterate, start, like=(consts, slack))[3]
