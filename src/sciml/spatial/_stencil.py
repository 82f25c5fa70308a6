"""Reads of shifted fields, and what every operator made of them can say about itself.

On the CPU, XLA computes ghost cells again for every read that it fuses them into. So a field is padded behind an
`optimization_barrier`, and all reads, including the centre, come from the padded array.
"""

import abc
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

from .._types import Args, RealScalarLike
from ._abstract_grid import AbstractGrid
from ._conditions import AbstractWall, Dirichlet, Neumann, Periodic
from .geometry._flux_form import alike

ORDERS = (2, 4, 6, 8)

_SAMPLE = 40
"""The maximum number of unknowns along an axis for the eigenvalues; the largest hardly depends on more."""


def check_boundary(boundary: Any, width: int, accuracy: int, name: str = "", order: int | None = None) -> None:
    """Checks that a grid is large enough for an operator, where the boundary can say, and its cells alike.

    Args:
        boundary: The boundary.
        width: How many ghost layers the operator reads.
        accuracy: The order of their error.
        name: The operator.
        order: Its order, where it has a form for cells that differ, and for bodies; None where it has not.

    Raises:
        ValueError: If they are not.
    """
    if not alike(boundary) and order != 2:
        what = "an `OrthogonalGrid`" if getattr(boundary, "body", None) is None else "a body within the grid"
        how = "does not support" if order is None else f"has order {order}, but only order 2 supports"
        raise ValueError(
            f"`{name}` {how} {what}. Use `Laplacian`, `VariableLaplacian`, `Gradient`, `Divergence` or "
            "`EllipticOperator` of order 2."
        )
    if not alike(boundary) and set(getattr(boundary, "location", ())) - {"center"}:
        raise ValueError(
            f"`{name}` requires unknowns at centres on a non-uniform grid, but they are at {boundary.location}."
        )
    if hasattr(boundary, "check"):
        boundary.check(width, accuracy)


def read(padded: Array, ndim: int, width: int, shift: Sequence[int] = ()) -> Array:
    """Returns the field inside of `width` ghost layers, shifted: its value at `i` is the one at `i + shift`."""
    lead = padded.ndim - ndim
    shift = (*shift, *(0,) * (ndim - len(shift)))
    start = [0] * lead + [width + s for s in shift]
    stop = list(padded.shape[:lead]) + [n - width + s for n, s in zip(padded.shape[lead:], shift)]
    return jax.lax.slice(padded, start, stop)


def along(axis: int, ndim: int, distance: int) -> tuple[int, ...]:
    """Returns the shift by a distance along one axis."""
    return tuple(distance if a == axis else 0 for a in range(ndim))


def difference(padded: Array, weights: np.ndarray, axis: int, ndim: int, width: int) -> Array:
    """Returns a central difference along an axis; its weights are even or odd about the middle."""
    radius = len(weights) // 2
    total = None
    for j in range(1, radius + 1):
        ahead = read(padded, ndim, width, along(axis, ndim, j))
        behind = read(padded, ndim, width, along(axis, ndim, -j))
        even = weights[radius + j] == weights[radius - j]
        term = float(weights[radius + j]) * (ahead + behind if even else ahead - behind)
        total = term if total is None else total + term
    assert total is not None
    return total


def symbol_of(weights: np.ndarray, phase: Array) -> Array:
    """Returns the Fourier symbol of central weights at a phase, wavenumber times spacing."""
    radius = len(weights) // 2
    ahead = [(j, 2 * float(weights[radius + j])) for j in range(1, radius + 1)]
    if np.all(weights == weights[::-1]):
        return sum((w * jnp.cos(j * phase) for j, w in ahead), float(weights[radius]) + 0 * phase)
    odd = sum((w * jnp.sin(j * phase) for j, w in ahead), 0 * phase)
    return jax.lax.complex(jnp.zeros_like(odd), odd)


class AbstractStencil(eqx.Module):
    """A linear operator that combines the neighbours of every unknown.

    Called as `operator(u, t=..., args=...)` it pads `u` by its boundary and applies the stencil; `t` and `args` go to
    boundary values that are functions. To share the ghost cells among operators or terms, pad once by `pad` and
    apply `on` to the result.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Gradient, Grid, Periodic

        grid = Grid((8, 8), 0.0, 2 * jnp.pi)
        x, y = grid.centers
        gradient = Gradient(grid, Periodic())
        padded = gradient.pad(jnp.sin(x) * jnp.cos(y))
        slopes, u = gradient.on(padded), gradient.inside(padded)
        assert slopes.shape == (2, 8, 8) and u.shape == (8, 8)
        ```

    Attributes:
        grid: The grid.
        boundary: The boundary: `Boundaries` or an object with its methods.
        order: The order of accuracy.
    """

    grid: eqx.AbstractVar[AbstractGrid]
    boundary: eqx.AbstractVar[Any]
    order: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def radius(self) -> int:
        """How many ghost layers the stencil reads."""

    @property
    @abc.abstractmethod
    def accuracy(self) -> int:
        """The order of the error of the ghost values that keeps the order of the operator."""

    @abc.abstractmethod
    def on(self, padded: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the operator applied to a field that has `radius` ghost layers."""

    @property
    @abc.abstractmethod
    def sparsity(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours that an unknown away from walls depends on, as shifts along each axis."""

    def pad(self, u: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None) -> Array:
        """Returns a field with the ghost cells that `on` reads, computed once."""
        return jax.lax.optimization_barrier(self.boundary.pad(u, self.radius, accuracy=self.accuracy, t=t, args=args))

    def inside(self, padded: Inexact[Array, "..."]) -> Array:
        """Returns a padded field without its ghost cells, which is cheaper together with `on` than the field itself."""
        return read(padded, self.grid.ndim, self.radius)

    def __call__(self, u: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None) -> Array:
        """Returns the operator applied to a field.

        Args:
            u: The field, with the grid's axes last.
            t: The time, for boundary values that are functions.
            args: Their second argument.
        """
        return self.on(self.pad(u, t=t, args=args))


def cross(ndim: int, radius: int, center: bool = True) -> tuple[tuple[int, ...], ...]:
    """Returns the shifts of a stencil along the axes."""
    arms = [along(axis, ndim, j) for axis in range(ndim) for j in range(-radius, radius + 1) if j]
    return (*(((0,) * ndim,) if center else ()), *arms)


def box(ndim: int, radius: int) -> tuple[tuple[int, ...], ...]:
    """Returns the shifts of a stencil that fills a box."""
    return tuple(itertools.product(range(-radius, radius + 1), repeat=ndim))


def spectral_radius_along(boundary: Any, axis: int, weights: np.ndarray, accuracy: int) -> float:
    """Returns the largest modulus of an eigenvalue of a difference along one axis, for unit spacing.

    Near walls it is the spectrum of the matrix with the conditions in place; a condition whose weights depend on its
    coefficients counts as the larger of Dirichlet and Neumann.
    """
    phase = np.linspace(0, np.pi, 257)
    radius = len(weights) // 2
    inside = float(np.max(np.abs(np.exp(1j * np.outer(phase, np.arange(-radius, radius + 1))) @ weights)))
    sides = getattr(boundary, "sides", None)
    if sides is None or isinstance(sides[axis][0], Periodic):
        return inside
    offsets = boundary.offsets(axis)
    kinds = [_linear_parts(side, offset) for side, offset in zip(sides[axis], offsets)]
    n = min(boundary.shape[axis], _SAMPLE)
    found = [_largest_eigenvalue(tuple(weights), *pair, offsets, accuracy, n) for pair in itertools.product(*kinds)]
    return max(inside, *found)


def _linear_parts(side: AbstractWall, offset: float) -> list:
    linear = getattr(type(side), "linear", None)
    if linear is not None:
        return [linear]
    return [Neumann.linear] if offset == 0 else [Dirichlet.linear, Neumann.linear]


@functools.cache
def _largest_eigenvalue(weights: tuple, below: Any, above: Any, offsets: tuple, accuracy: int, n: int) -> float:
    radius = len(weights) // 2
    padded = np.zeros((n + 2 * radius, n))
    padded[radius : n + radius] = np.eye(n)
    low, high = below(radius, offsets[0], accuracy), above(radius, offsets[1], accuracy)
    padded[:radius, : low.shape[1]] = low[::-1]
    padded[n + radius :, n - high.shape[1] :] = high[:, ::-1]
    matrix = sum(w * padded[k : k + n] for k, w in enumerate(weights))
    return float(np.max(np.abs(np.linalg.eigvals(matrix))))
