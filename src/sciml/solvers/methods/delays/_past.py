"""The last steps of a solve, and states between them."""

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
        times: Where each step ended.
        states: The states there.
        starts: The states at its start.
        first: The rates at its start.
        last: The rates at its end.
    """

    times: Float[Array, " kept"]
    states: PyTree
    starts: PyTree
    first: PyTree
    last: PyTree

    @classmethod
    def of(cls, t: Array, y: Y, rate: Y, kept: int) -> "Past":
        """Returns the past of a start."""

        def rows(x: Array) -> Array:
            return jnp.broadcast_to(x[None], (kept, *x.shape))

        states, rates = (jax.tree.map(rows, tree) for tree in (y, rate))
        return cls(rows(t), states, states, rates, rates)

    def then(self, t: Array, start: Y, y: Y, first: Y, last: Y) -> "Past":
        """Returns the past with one step more, and without the oldest."""

        def add(rows: Array, x: Array) -> Array:
            return jnp.concatenate([rows[1:], x[None].astype(rows.dtype)])

        newest = Past(t, y, start, first, last)
        return Past(*(jax.tree.map(add, rows, x) for rows, x in zip(self, newest)))

    def at(self, t: RealScalarLike, within: RealScalarLike) -> Y:
        """Returns the state at a time, by the cubic polynomial through states and rates at both ends of a step.

        Args:
            t: The time.
            within: A time within the step that it belongs to, where it is an end of two.
        """
        row = jnp.clip(jnp.sum((self.times <= within).astype(jnp.int32)) - 1, 0, self.times.shape[0] - 2)

        def taken(rows: Array, number: Array) -> Array:
            return jax.lax.dynamic_index_in_dim(rows, number, 0, False)

        start, end = taken(self.times, row), taken(self.times, row + 1)
        length = end - start
        some = length > 0
        theta = jnp.where(some, (t - start) / jnp.where(some, length, jnp.ones_like(length)), jnp.zeros_like(length))
        passed = jnp.where(some, jnp.zeros_like(length), t - start)  # from a start without a step: along its rate

        def of_leaf(states: Array, starts: Array, first: Array, last: Array) -> Array:
            y0, y1, f0, f1 = (taken(x, row + 1) for x in (starts, states, first, last))
            s, h, along = (x.astype(jnp.finfo(states.dtype).dtype) for x in (theta, length, passed))
            bend = s * (s - 1) * ((1 - 2 * s) * (y1 - y0) + h * ((s - 1) * f0 + s * f1))
            return y0 + s * (y1 - y0) + bend + along * f0

        return jax.tree.map(of_leaf, self.states, self.starts, self.first, self.last)
