r"""The last states of a solution as backward differences, from which methods of several steps are made.

Of states at equal distances $h$ in time, with $\nabla y_n = y_n - y_{n-1}$, the polynomial of degree $k$ through the
last $k + 1$ is

$$p(t_n + s h) = y_n + \sum_{j=1}^{k} \binom{s + j - 1}{j} \nabla^j y_n .$$

Its differences at another distance $r h$ are sums of the same ones, $\sum_{i \ge j} T_{ji}(r) \nabla^i y_n$, with

$$T_{ji}(r) = (-1)^{i+j} j! \sum_{m=j}^{i} a_{im} S(m, j)\, r^m, \qquad \binom{x}{i} = \sum_m a_{im} x^m,$$

where $S$ are Stirling's numbers of the second kind.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from ..linear._written_out import SPARSE

MOST = 5
"""The highest order of a method that is made from them."""

_FEW = 4
"""Rows of more unknowns are carried together. Over lanes a row of up to 16 is as many scalars, and what is done to all
rows in every step is most of the program: of 16 unknowns it is half as long with rows together, and as fast."""


class Differences(NamedTuple):
    """What is known of a solution before its last state.

    All of it are real numbers, which loops carry and record; lengths and orders are constant to derivatives.

    Attributes:
        rows: The differences from the first to one of order `MOST + 2`, each a vector, or all in one array; see
            `together`.
        order: Up to which order they are those of states that there were.
        length: The distance in time, with its sign.
        equal: How many steps of that length have been taken with this order.
    """

    rows: tuple[Float[Array, " n"], ...] | Float[Array, "rows n"]
    order: Real[Array, ""]
    length: Real[Array, ""]
    equal: Real[Array, ""]

    def apart(self) -> "Differences":
        """Returns them with one array for each row."""
        rows = self.rows
        return self if isinstance(rows, tuple) else self._replace(rows=tuple(rows[j] for j in range(rows.shape[0])))

    def together(self) -> "Differences":
        """Returns them as a loop carries them: with one array of all rows, where each would be one of many scalars."""
        rows = self.rows
        if isinstance(rows, tuple) and _FEW < rows[0].size <= SPARSE:
            return self._replace(rows=jnp.stack(rows))
        return self

    def at_distance(self, h: Real[Array, ""]) -> "Differences":
        """Returns the same polynomial by its differences at another distance."""
        order, length, equal = jax.lax.stop_gradient((self.order, self.length, self.equal))
        same = h == length
        ratio = jnp.where(same, jnp.ones_like(h), h / length).astype(order.dtype)
        powers = [ratio]
        while len(powers) < MOST:
            powers.append(powers[-1] * ratio)
        # numbers before vectors: XLA computes them together then, and once
        zero = jnp.zeros_like(ratio)
        weights = {
            (j, i): jnp.where(order >= i, _polynomial(change, powers, j), zero) for (j, i), change in _CHANGES.items()
        }
        rows = []
        for j, old in enumerate(self.rows, 1):
            terms = [weights[j, i] * self.rows[i - 1] for i in range(j, MOST + 1)]
            rows.append(jnp.where(same, old, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(old)))
        return Differences(tuple(rows), order, h, jnp.where(same, equal, jnp.zeros_like(equal)))

    def weighted(self, weights: Sequence[float]) -> Float[Array, " n"]:
        """Returns the sum of the differences up to the order by weights, the first of which is that of the first."""
        terms = [
            jnp.where(self.order >= j, jnp.full_like(self.order, w), jnp.zeros_like(self.order)) * row
            for j, (w, row) in enumerate(zip(weights, self.rows), 1)
        ]
        return sum(terms[1:], terms[0])

    def followed_by(self, gap: Float[Array, " n"]) -> "Differences":
        """Returns the differences after one more step, valid to one more order.

        Args:
            gap: By how much the new state differs from where the polynomial would have it.
        """
        rows: list[Array] = []
        for j in range(len(self.rows), 0, -1):
            old = self.rows[j - 1]
            row = old if not rows else jnp.where(self.order >= j, old + rows[-1], old)
            row = jnp.where(self.order == j - 1, gap, row)
            if j > 1:
                row = jnp.where(self.order == j - 2, gap - self.rows[j - 2], row)
            rows.append(row)
        return self._replace(rows=tuple(reversed(rows)))


def at_order(table: Sequence[float], order: Real[Array, ""]) -> Real[Array, ""]:
    """Returns the number that belongs to an order; the first is that of order zero."""
    found = jnp.zeros_like(order)
    for k, number in enumerate(table):
        found = jnp.where(order == k, jnp.full_like(order, number), found)
    return found


def newton_basis(s: Array) -> list[Array]:
    r"""Returns $\binom{s + j - 1}{j}$ from $j = 1$ on, the weights of the differences in the polynomial."""
    basis = [s]
    for j in range(2, MOST + 1):
        basis.append(basis[-1] * ((s + (j - 1)) / j))
    return basis


def _polynomial(coefficients: Sequence[float], powers: Sequence[Array], first: int) -> Array:
    terms = [c * powers[first - 1 + m] for m, c in enumerate(coefficients)]
    return sum(terms[1:], terms[0])


def _change(j: int, i: int) -> tuple[float, ...]:
    """Returns the coefficients of $T_{ji}$, from that of power j to that of power i."""
    binomial = (np.poly(np.arange(i)) / math.factorial(i))[::-1]
    return tuple(
        float((-1) ** (i + j) * binomial[m] * sum((-1) ** (j - n) * math.comb(j, n) * n**m for n in range(j + 1)))
        for m in range(j, i + 1)
    )


_CHANGES = {(j, i): _change(j, i) for i in range(1, MOST + 1) for j in range(1, i + 1)}
