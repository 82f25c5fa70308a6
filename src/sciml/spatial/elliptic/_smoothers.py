"""Smoothers: what takes the short waves out of an error, which a coarser grid cannot see."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..._checks import check_count
from ..._jax._loops import scan
from ..._types import RealScalarLike
from ._couplings import AbstractCouplings, inverse, order_of_colours

# Tridiagonal systems along the lines of a grid, factorised once.
#
# Elimination runs along the axis, over all lines at once. The lines of a periodic axis have two more entries in their
# corners. With $w$ the coupling of the last unknown with the first and $e = e_1 + e_n$, the cyclic matrix is $T - w e
# e^T$ for a tridiagonal $T$, so its inverse is the inverse of $T$ and a rank-one correction with $T^{-1} e$.


class LineFactors(NamedTuple):
    """The factors of all lines along an axis; the axis comes first.

    Attributes:
        lower: The coupling of every unknown with the one before it.
        ratio: The coupling with the one after it, over the pivot.
        pivot: The reciprocal of the pivot.
        closing: The closure of the lines, and `T^-1 e` over `1 - w e^T T^-1 e`; None at walls.
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


class AbstractSmoother(eqx.Module):
    """Sweeps of an iteration for $A u = f$, and the same sweeps backwards, their transpose.

    A cycle that smooths forwards on the way down and backwards on the way up is symmetric.
    """

    @abc.abstractmethod
    def prepare(self, operator: AbstractCouplings) -> Any:
        """Returns the data that can be computed from the operator only."""

    @abc.abstractmethod
    def smooth(
        self, operator: AbstractCouplings, state: Any, u: Array, f: Array, sweeps: int, backwards: bool
    ) -> Array:
        """Returns the field after some sweeps. They are iterations of a loop, so that the program stays short.

        Args:
            operator: The operator of the level.
            state: The result of `prepare`.
            u: The field.
            f: The right-hand side.
            sweeps: How many sweeps.
            backwards: Whether to sweep in the opposite order.
        """


class RedBlack(AbstractSmoother):
    """Gauss-Seidel on the cells of a chessboard: all red ones at once, then all black ones.

    Levels that couple cells across their corners need more than two colours, four in two dimensions and eight in three.

    The best smoother for equal coefficients. It is a point smoother: if the coupling along one axis is much weaker than
    along another, it only works if the grid is coarsened along the strong axes only. This happens automatically if the
    spacing makes the difference; use `Lines` if the coefficient does.

    Attributes:
        relaxation: The factor on every update, between 0 and 2; above 1 over-relaxes.

    Example:
        ```python
        from sciml.spatial import Multigrid, RedBlack

        solver = Multigrid(smoother=RedBlack(relaxation=1.1))
        ```
    """

    relaxation: RealScalarLike = 1.0

    def prepare(self, operator: AbstractCouplings) -> Any:
        """Returns the reciprocal of the diagonal, in the order that the operator's `relax` takes."""
        return operator.relaxation()

    def smooth(
        self, operator: AbstractCouplings, state: Any, u: Array, f: Array, sweeps: int, backwards: bool
    ) -> Array:
        """Returns the field after the colours are updated one after the other, or in the opposite order."""
        return operator.relax(state, u, f, self.relaxation, sweeps, backwards)


class ChebyshevSmoother(AbstractSmoother):
    r"""A Chebyshev polynomial of the operator scaled by its diagonal: every unknown at once.

    With the degree 1 it is damped Jacobi. It needs one application of the operator per degree and no colours, so it is
    the smoother for wide parallel machines.

    Attributes:
        degree: The degree of the polynomial.
        lowest: The lower end of the range of eigenvalues that is damped, as a part of the upper end, 2.

    Source:
        M. Adams, M. Brezina, J. Hu and R. Tuminaro, J. Comput. Phys. 188:593, 2003.

    Example:
        ```python
        from sciml.spatial import ChebyshevSmoother, Multigrid

        solver = Multigrid(smoother=ChebyshevSmoother(degree=2), pre=1, post=1)
        ```
    """

    degree: int = eqx.field(static=True, default=2)
    lowest: float = eqx.field(static=True, default=0.25)

    def __check_init__(self):
        check_count(self.degree, "degree", "ChebyshevSmoother")
        if not 0 < self.lowest < 1:
            raise ValueError(f"`ChebyshevSmoother(lowest=...)` must be between 0 and 1, but is {self.lowest}.")

    def prepare(self, operator: AbstractCouplings) -> tuple[Array, Array]:
        """Returns the diagonal and its reciprocal."""
        diagonal = operator.diagonal()
        return diagonal, inverse(diagonal)

    def smooth(
        self, operator: AbstractCouplings, state: tuple[Array, Array], u: Array, f: Array, sweeps: int, backwards: bool
    ) -> Array:
        """Returns the field after some polynomials, each of which is its own transpose."""
        del backwards
        sweep = lambda u, _: (self._sweep(operator, state, u, f), None)  # noqa: E731
        return scan(sweep, u, length=sweeps, like=(operator, state, f))[0]

    def _sweep(self, operator: AbstractCouplings, state: tuple[Array, Array], u: Array, f: Array) -> Array:
        diagonal, reciprocal = state
        middle, half = 1.0 + self.lowest, 1.0 - self.lowest  # of the range from 2 * lowest to 2
        ratio = half / middle
        residual = f - diagonal * u + operator.neighbours(u)
        step = reciprocal * residual / middle
        u = u + step
        for _ in range(self.degree - 1):
            following = 1 / (2 * middle / half - ratio)
            residual = f - diagonal * u + operator.neighbours(u)
            step = following * ratio * step + (2 * following / half) * (reciprocal * residual)
            u, ratio = u + step, following
        return u


class Lines(AbstractSmoother):
    """Gauss-Seidel on whole lines, every second one at once, along one axis after the other.

    It smooths well if the coefficients along different axes differ in size. The lines are tridiagonal systems.

    Attributes:
        axes: The axes along which the lines run, in this order; None for all.

    Example:
        ```python
        from sciml.spatial import Lines, Multigrid

        solver = Multigrid(smoother=Lines(), pre=1, post=1)
        ```
    """

    axes: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _axes(self, operator: AbstractCouplings) -> tuple[int, ...]:
        axes = tuple(range(operator.ndim)) if self.axes is None else self.axes
        if not all(0 <= axis < operator.ndim for axis in axes) or not axes:
            raise ValueError(f"`Lines(axes=...)` must be among the {operator.ndim} axes of the grid, but is {axes}.")
        if operator.ndim == 1:
            raise ValueError("`Lines` requires a grid of two or three axes; a grid of one axis is a single line.")
        return axes

    def prepare(self, operator: AbstractCouplings) -> tuple[LineFactors, ...]:
        """Returns the factors of the tridiagonal systems along each axis."""
        return tuple(factorise(operator, axis) for axis in self._axes(operator))

    def smooth(
        self,
        operator: AbstractCouplings,
        state: tuple[LineFactors, ...],
        u: Array,
        f: Array,
        sweeps: int,
        backwards: bool,
    ) -> Array:
        """Returns the field after the lines along every axis are solved, every second one at once."""
        directions = list(zip(self._axes(operator), state))

        def sweep(u: Array, _: None) -> tuple[Array, None]:
            for axis, factors in reversed(directions) if backwards else directions:
                # every second line across the axis, so that neighbouring lines are never updated at once
                others = tuple(a for a in range(operator.ndim) if a != axis)
                colour, colours = operator.colours(others)

                def update(u: Array, now: Array) -> tuple[Array, None]:
                    new = solve_lines(factors, axis, f + operator.neighbours(u, axis))
                    return jnp.where(colour == now, new, u), None

                u, _ = scan(update, u, order_of_colours(colours, 1, backwards), like=(operator, state, f))
            return u, None

        return scan(sweep, u, length=sweeps, like=(operator, state, f))[0]
