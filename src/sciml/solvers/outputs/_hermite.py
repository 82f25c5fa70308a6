"""A solution that is a cubic between nodes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Real

from ..._jax._shards import sign_of
from ..._types import Y
from ._at_times import at_times


class HermiteOutput(eqx.Module):
    """A solution that is a cubic between nodes, by states and rates there; see `Solution.evaluate`.

    Attributes:
        ts: The nodes, ascending or descending.
        ys: The states there.
        rates: Their rates.
    """

    ts: Real[Array, "*members nodes"]
    ys: PyTree
    rates: PyTree

    @staticmethod
    def between(place: Any, h: Array, y0: Array, y1: Array, f0: Array, f1: Array) -> tuple[Array, Array]:
        """Returns cubic and rate at a place from 0 to 1 of intervals, or of one."""
        h = h.reshape(h.shape + (1,) * (y0.ndim - h.ndim)).astype(y0.dtype)
        p = jnp.asarray(place, y0.dtype)
        r = 1 - p
        step, a, b = y1 - y0, h * f0, h * f1
        y = r * y0 + p * y1 + p * r * ((p - r) * step + r * a - p * b)
        rate = (6 * p * r * step + r * (r - 2 * p) * a + p * (p - 2 * r) * b) / h
        return y, rate

    def evaluate(self, t: Any) -> Y:
        """Returns the states at one time or many."""
        return at_times(lambda self, t: self._both(t, 0), self, t)

    def derivative(self, t: Any) -> Y:
        """Returns the rates at one time or many."""
        return at_times(lambda self, t: self._both(t, 1), self, t)

    def _both(self, t: Array, which: int) -> Y:
        direction = sign_of(self.ts[-1] >= self.ts[0], t.dtype)
        row = jnp.clip(jnp.sum(direction * (self.ts - t) <= 0) - 1, 0, self.ts.shape[0] - 2)
        start, end = self.ts[row], self.ts[row + 1]
        place = (t - start) / (end - start)
        outside = (direction * (t - self.ts[0]) < 0) | (direction * (t - self.ts[-1]) > 0)
        place = jnp.where(outside, jnp.full_like(place, jnp.nan), place)

        def of_leaf(y: Array, f: Array) -> Array:
            return self.between(place, end - start, y[row], y[row + 1], f[row], f[row + 1])[which]

        return jax.tree.map(of_leaf, self.ys, self.rates)
