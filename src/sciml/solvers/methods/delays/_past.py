"""The last steps of a solve with delays, and the past states and rates that they hold."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...._types import RealScalarLike, Y


class Past(NamedTuple):
    """The last steps, the newest last; before the first one all of them are the start.

    A state or a rate has one derivative by a delay on either side of a point at which the solution is not smooth, so
    that a step has states and rates of its own at both of its ends.

    Attributes:
        begins: The start of each step. That is the end of the step before it, except after an event: a change of the
            event's time moves where the next step begins, but not the polynomial of the step before it.
        times: The end of each step.
        states: The states there.
        starts: The states at its start.
        between: By what the polynomial of a step goes on between its ends: the rates at both ends, for a cubic one, or
            the states at its three `QUARTERS`; where there was no step, the rate.
    """

    begins: Float[Array, " kept"]
    times: Float[Array, " kept"]
    states: PyTree
    starts: PyTree
    between: tuple[PyTree, ...]

    @classmethod
    def of(cls, t: Array, y: Y, between: tuple[Y, ...], kept: int) -> "Past":
        """Returns the past of a start."""

        def rows(x: Array) -> Array:
            return jnp.broadcast_to(x[None], (kept, *x.shape))

        states, between = (jax.tree.map(rows, tree) for tree in (y, between))
        return cls(rows(t), rows(t), states, states, between)

    def then(self, begin: Array, t: Array, start: Y, y: Y, between: tuple[Y, ...]) -> "Past":
        """Returns the past with one step more, and without the oldest."""

        def add(rows: Array, x: Array) -> Array:
            return jnp.concatenate([rows[1:], x[None].astype(rows.dtype)])

        newest = Past(begin, t, y, start, between)
        return Past(*(jax.tree.map(add, rows, x) for rows, x in zip(self, newest)))

    def at(self, t: RealScalarLike, within: RealScalarLike) -> Y:
        """Returns the state at a time, by the polynomial of a step.

        Args:
            t: The time.
            within: A time within the step that it belongs to, where it is an end of two.
        """
        row = jnp.clip(jnp.sum((self.times <= within).astype(jnp.int32)) - 1, 0, self.times.shape[0] - 2)

        def taken(rows: Array, number: Array) -> Array:
            return jax.lax.dynamic_index_in_dim(rows, number, 0, False)

        start, end = taken(self.begins, row + 1), taken(self.times, row + 1)
        length = end - start
        some = length > 0
        theta = jnp.where(some, (t - start) / jnp.where(some, length, jnp.ones_like(length)), jnp.zeros_like(length))
        passed = jnp.where(some, jnp.zeros_like(length), t - start)  # from a start without a step: along its rate

        def cubic(states: Array, starts: Array, first: Array, last: Array) -> Array:
            y0, y1, f0, f1 = (taken(x, row + 1) for x in (starts, states, first, last))
            s, h, along = (x.astype(states.dtype) for x in (theta, length, passed))
            bend = s * (s - 1) * ((1 - 2 * s) * (y1 - y0) + h * ((s - 1) * f0 + s * f1))
            return y0 + s * (y1 - y0) + bend + along * f0

        def quartic(states: Array, starts: Array, *inner: Array) -> Array:
            y0, *others = (taken(x, row + 1) for x in (starts, *inner, states))
            along = passed.astype(states.dtype) * others[0]
            return jnp.where(some, _through_quarters(theta.astype(states.dtype), y0, others), y0 + along)

        of_leaf = cubic if len(self.between) == 2 else quartic
        return jax.tree.map(of_leaf, self.states, self.starts, *self.between)


QUARTERS = (0.25, 0.5, 0.75)
"""Where a step's dense output is stored; with both ends they hold a polynomial of degree four exactly."""


def _through_quarters(s: Array, y0: Array, others: list[Array]) -> Array:
    """Returns the polynomial of degree four through the states at 0, 1/4, 1/2, 3/4 and 1."""
    x = 4 * s
    a, b, c, d = x - 1, x - 2, x - 3, x - 4
    weights = (-(x * b * c * d) / 6, x * a * c * d / 4, -(x * a * b * d) / 6, x * a * b * c / 24)
    return y0 + sum(w * (y - y0) for w, y in zip(weights, others))
