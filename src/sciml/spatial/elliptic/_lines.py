r"""Tridiagonal systems along the lines of a grid, factorised once.

Elimination runs along the axis, over all lines at once. The lines of a periodic axis have two more entries in their
corners. With $w$ what couples the last unknown with the first and $e = e_1 + e_n$, the cyclic matrix is
$T - w e e^T$ for a tridiagonal $T$, so that its inverse is that of $T$ and a rank-one correction with $T^{-1} e$.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._loops import scan
from ._couplings import AbstractCouplings


class LineFactors(NamedTuple):
    """The factors of all lines along an axis; the axis comes first.

    Attributes:
        lower: What couples every unknown with the one before it.
        ratio: What couples it with the one after it, over the pivot.
        pivot: The reciprocal of the pivot.
        closing: What closes the lines, and `T^-1 e` over `1 - w e^T T^-1 e`; None at walls.
    """

    lower: Array
    ratio: Array
    pivot: Array
    closing: tuple[Array, Array] | None


def factorise(operator: AbstractCouplings, axis: int) -> LineFactors:
    """Returns the factors of the lines along an axis."""
    shape = operator.shape
    diagonal = jnp.moveaxis(operator.diagonal(), axis, 0)
    lower = jnp.moveaxis(jnp.broadcast_to(operator.lower(axis), shape), axis, 0)
    upper = jnp.moveaxis(jnp.broadcast_to(operator.upper(axis), shape), axis, 0)
    closed = operator.periodic[axis]
    corner = lower[:1]
    lower = lower.at[0].set(0.0)
    if closed:  # T = A + w e e^T, see above: its diagonal grows at both ends, and its corners are zero
        diagonal = diagonal.at[0].add(corner[0]).at[-1].add(corner[0])

    def eliminate(ratio: Array, row: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        d, low, up = row
        pivot = d - low * ratio
        # a row without couplings, as between cells that conduct nothing, has the solution zero
        pivot = jnp.where(pivot == 0, 0.0, 1 / jnp.where(pivot == 0, 1.0, pivot))
        return up * pivot, (up * pivot, pivot)

    _, (ratio, pivot) = scan(eliminate, jnp.zeros_like(corner[0]), (diagonal, lower, upper))
    factors = LineFactors(lower, ratio, pivot, None)
    if not closed:
        return factors
    ends = jnp.zeros_like(diagonal).at[0].set(1.0).at[-1].add(1.0)
    answer = _substitute(factors, ends)
    return LineFactors(lower, ratio, pivot, (corner, answer / (1 - corner * (answer[:1] + answer[-1:]))))


def solve_lines(factors: LineFactors, axis: int, f: Array) -> Array:
    """Returns the solutions of all lines along an axis."""
    u = _substitute(factors, jnp.moveaxis(f, axis, 0))
    if factors.closing is not None:
        corner, answer = factors.closing
        u = u + corner * (u[:1] + u[-1:]) * answer
    return jnp.moveaxis(u, 0, axis)


def _substitute(factors: LineFactors, f: Array) -> Array:
    def forwards(y: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        right, low, pivot = row
        y = (right + low * y) * pivot
        return y, y

    def backwards(u: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        y, ratio = row
        u = y + ratio * u
        return u, u

    start = jnp.zeros_like(f[0])
    _, y = scan(forwards, start, (f, factors.lower, factors.pivot), like=factors)
    _, u = scan(backwards, start, (y, factors.ratio), reverse=True, like=factors)
    return u
