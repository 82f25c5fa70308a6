"""First and higher derivatives by central differences, and the vector operators made of them."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

from .._checks import check_order
from .._types import Args, RealScalarLike
from . import _weights
from ._abstract_grid import AbstractGrid
from ._boundaries import as_boundary
from ._stencil import (
    ORDERS,
    AbstractStencil,
    along,
    check_boundary,
    cross,
    difference,
    spectral_radius_along,
    symbol_of,
)
from .geometry import _flux_form


class Derivative(AbstractStencil):
    r"""A derivative along one axis, $\partial^m u / \partial x^m$, by central differences.

    Attributes:
        grid: The grid.
        boundary: The conditions at the sides; see `Boundaries`.
        axis: Along which axis, as a number.
        derivative: $m$, from 1 to 4.
        order: The order of accuracy: 2, 4, 6 or 8, kept up to the walls.

    Args:
        grid: The grid.
        boundary: `Boundaries`, or the conditions to make them of, or an object with their methods.
        axis: Along which axis, by name.
        derivative: The order of the derivative.
        order: The order of accuracy.

    Raises:
        ValueError: If the axis, derivative or order is unknown, or the grid too small.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Derivative, Grid, Periodic

        grid = Grid(64, 0.0, 2 * jnp.pi)
        (x,) = grid.centers
        slope = Derivative(grid, Periodic(), order=4)(jnp.sin(x))
        assert jnp.max(jnp.abs(slope - jnp.cos(x))) < 1e-4
        ```
    """

    grid: AbstractGrid
    boundary: Any
    axis: int = eqx.field(static=True)
    derivative: int = eqx.field(static=True)
    order: int = eqx.field(static=True)

    def __init__(self, grid: AbstractGrid, boundary: Any, axis: str = "x", derivative: int = 1, order: int = 2):
        if axis not in grid.names:
            raise ValueError(f"`Derivative(axis=...)` must be one of {', '.join(grid.names)}, but is {axis!r}.")
        self.grid, self.boundary = grid, as_boundary(grid, boundary)
        self.axis = grid.names.index(axis)
        self.derivative = check_order(derivative, (1, 2, 3, 4), "Derivative")
        self.order = check_order(order, ORDERS, "Derivative")
        check_boundary(self.boundary, self.radius, self.accuracy, "Derivative")

    @property
    def _weights(self) -> np.ndarray:
        return _weights.central(self.order, self.derivative) / self.grid.spacing[self.axis] ** self.derivative

    @property
    def radius(self) -> int:
        """How many ghost layers the stencil reads."""
        return len(_weights.central(self.order, self.derivative)) // 2

    @property
    def accuracy(self) -> int:
        """The order of the derivative and the number of divisions by the spacing."""
        return self.order + self.derivative

    @property
    def sparsity(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours along the axis."""
        arms = range(-self.radius, self.radius + 1)
        return tuple(along(self.axis, self.grid.ndim, j) for j in arms if j or self.derivative % 2 == 0)

    @property
    def spectral_radius(self) -> float:
        """The largest modulus of an eigenvalue."""
        return spectral_radius_along(self.boundary, self.axis, self._weights, self.accuracy)

    def symbol(self, *wavenumbers: Array) -> Array:
        r"""Returns $\lambda$ where the operator maps $e^{i k x}$ to $\lambda e^{i k x}$, away from walls.

        Args:
            wavenumbers: $k$ for each axis, arrays that broadcast.
        """
        return symbol_of(self._weights, wavenumbers[self.axis] * self.grid.spacing[self.axis])

    def on(self, padded: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the derivative of a field that has `radius` ghost layers."""
        total = difference(padded, self._weights, self.axis, self.grid.ndim, self.radius)
        if self.derivative % 2 == 0:
            total = total + float(self._weights[self.radius]) * self.inside(padded)
        return total


class Gradient(AbstractStencil):
    r"""The gradient $\nabla u$ at the places of the unknowns, by central differences.

    A field of shape `(..., *grid)` becomes one of shape `(..., ndim, *grid)`: the axis of vectors comes just before the
    axes of the grid, and the gradient of a vector field `[i]` is its Jacobian `[i, j]`.

    On an `OrthogonalGrid`, of order 2, the components are those along its axes, slopes by length: along the angle
    $\tfrac1r \partial_\theta u$. There the components of a vector cannot be differentiated separately.

    Attributes:
        grid: The grid.
        boundary: The conditions at the sides; see `Boundaries`.
        order: The order of accuracy: 2, 4, 6 or 8, kept up to the walls.

    Raises:
        ValueError: If the order is unknown, or the grid too small.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Extrapolate, Gradient, Grid

        grid = Grid((8, 8))
        x, y = grid.centers
        slopes = Gradient(grid, Extrapolate())(x * y)
        assert jnp.allclose(slopes[0], jnp.broadcast_to(y, grid.shape), atol=1e-5)
        ```
    """

    grid: AbstractGrid
    boundary: Any
    order: int = eqx.field(static=True)

    def __init__(self, grid: AbstractGrid, boundary: Any, order: int = 2):
        self.grid, self.boundary = grid, as_boundary(grid, boundary)
        self.order = check_order(order, ORDERS, "Gradient")
        check_boundary(self.boundary, self.radius, self.accuracy, "Gradient", self.order)

    @property
    def radius(self) -> int:
        """How many ghost layers the stencil reads."""
        return self.order // 2

    @property
    def accuracy(self) -> int:
        """One more than the order, for the division by the spacing."""
        return self.order + 1

    @property
    def sparsity(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours along the axes."""
        return cross(self.grid.ndim, self.radius, center=False)

    @property
    def spectral_radius(self) -> float:
        r"""The largest modulus of $\lambda$ in $\nabla u \to i \lambda u$, over all directions, if cells are alike."""
        found = [spectral_radius_along(self.boundary, a, w, self.accuracy) for a, w in enumerate(_first(self))]
        return float(np.linalg.norm(found))

    def symbol(self, *wavenumbers: Array) -> Array:
        """Returns the symbols of the derivatives along each axis, stacked in front."""
        parts = [symbol_of(w, k * h) for w, k, h in zip(_first(self), wavenumbers, self.grid.spacing)]
        return jnp.stack(jnp.broadcast_arrays(*parts))

    def on(self, padded: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the gradient of a field that has `radius` ghost layers."""
        ndim = self.grid.ndim
        if not _flux_form.alike(self.boundary):
            parts = _flux_form.gradient(self.boundary, padded)
            return jnp.stack(parts, axis=parts[0].ndim - ndim)
        parts = [difference(padded, w, axis, ndim, self.radius) for axis, w in enumerate(_first(self))]
        return jnp.stack(parts, axis=parts[0].ndim - ndim)


def _first(operator: Any) -> list[np.ndarray]:
    return [_weights.central(operator.order, 1) / h for h in operator.grid.spacing]


class _Vector(eqx.Module):
    """The common part of divergence and curl: a vector field whose components may have different conditions."""

    grid: AbstractGrid
    boundaries: tuple[Any, ...]
    order: int = eqx.field(static=True)

    def pad(self, v: Array, t: RealScalarLike | None, args: Args) -> list[Array]:
        ndim = self.grid.ndim
        if v.ndim <= ndim or v.shape[v.ndim - ndim - 1] != len(self.boundaries):
            raise ValueError(
                f"a vector field must have shape (..., {len(self.boundaries)}, *grid), with the grid's {ndim} axes "
                f"last, but has shape {v.shape}."
            )
        at = v.ndim - ndim - 1
        parts = [jax.lax.index_in_dim(v, i, at, keepdims=False) for i in range(len(self.boundaries))]
        width, accuracy = self.order // 2, self.order + 1
        if not all(map(_flux_form.alike, self.boundaries)):
            accuracy = 2  # the mean with a mirror image is the value at the wall
        padded = [b.pad(u, width, accuracy=accuracy, t=t, args=args) for b, u in zip(self.boundaries, parts)]
        # a barrier for each: one for all has no transpose with respect to a single component
        return [jax.lax.optimization_barrier(u) for u in padded]

    def difference(self, padded: Array, axis: int) -> Array:
        return difference(padded, _first(self)[axis], axis, self.grid.ndim, self.order // 2)


def _vector(grid: AbstractGrid, boundary: Any, order: Any, components: int, name: str) -> _Vector:
    several = isinstance(boundary, Sequence)
    found = tuple(as_boundary(grid, b) for b in (boundary if several else (boundary,) * components))
    if len(found) != components:
        raise ValueError(
            f"`{name}(boundary=...)` must be one boundary for all {components} components or one for each."
        )
    order = check_order(order, ORDERS, name)
    for each in found:
        check_boundary(each, order // 2, order + 1, name, order if name == "Divergence" else None)
    return _Vector(grid, found, order)


class Divergence(eqx.Module):
    r"""The divergence $\nabla \cdot v$ of vectors at the places of the unknowns, by central differences.

    A field of shape `(..., ndim, *grid)` becomes one of shape `(..., *grid)`. Fluxes through the faces of cells
    belong to `StaggeredDivergence`. On an `OrthogonalGrid`, and around bodies, it is the flow through the faces divided
    by the volume, of order 2, with the components along the axes of the grid; all components have the same body.

    Args:
        grid: The grid.
        boundary: The conditions at the sides, for all components, or a sequence with the conditions of each.
        order: The order of accuracy: 2, 4, 6 or 8, kept up to the walls.

    Raises:
        ValueError: If the order is unknown, the grid too small, or the field has the wrong shape.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Divergence, Extrapolate, Grid

        grid = Grid((8, 8))
        x, y = grid.centers
        v = jnp.stack([x + 0 * y, 2 * y + 0 * x])
        assert jnp.allclose(Divergence(grid, Extrapolate())(v), 3.0, atol=1e-4)
        ```
    """

    _vector: _Vector

    def __init__(self, grid: AbstractGrid, boundary: Any, order: int = 2):
        self._vector = _vector(grid, boundary, order, grid.ndim, "Divergence")

    def __call__(self, v: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None) -> Array:
        """Returns the divergence of a field of vectors; `t` and `args` go to boundary values that are functions."""
        padded = self._vector.pad(v, t, args)
        if not all(map(_flux_form.alike, self._vector.boundaries)):
            return _flux_form.divergence(self._vector.boundaries, padded)
        parts = [self._vector.difference(u, axis) for axis, u in enumerate(padded)]
        return sum(parts[1:], parts[0])


class Curl(eqx.Module):
    r"""The curl $\nabla \times v$ of vectors at the places of the unknowns, by central differences.

    In two dimensions it is the number $\partial_x v_y - \partial_y v_x$, of shape `(..., *grid)`, in three a
    vector.

    Args:
        grid: The grid, of two or three dimensions.
        boundary: The conditions at the sides, for all components, or a sequence with the conditions of each.
        order: The order of accuracy: 2, 4, 6 or 8, kept up to the walls.

    Raises:
        ValueError: If the grid has one dimension or is too small, the order is unknown, or the field has the wrong
            shape.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Curl, Extrapolate, Grid

        grid = Grid((8, 8))
        x, y = grid.centers
        rotation = jnp.stack([-y + 0 * x, x + 0 * y])
        assert jnp.allclose(Curl(grid, Extrapolate())(rotation), 2.0, atol=1e-4)
        ```
    """

    _vector: _Vector

    def __init__(self, grid: AbstractGrid, boundary: Any, order: int = 2):
        if grid.ndim == 1:
            raise ValueError("`Curl` requires a grid of two or three dimensions.")
        self._vector = _vector(grid, boundary, order, grid.ndim, "Curl")

    def __call__(self, v: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None) -> Array:
        """Returns the curl of a field of vectors; `t` and `args` go to boundary values that are functions."""
        padded, d = self._vector.pad(v, t, args), self._vector.difference
        if len(padded) == 2:
            return d(padded[1], 0) - d(padded[0], 1)
        parts = [d(padded[(i + 2) % 3], (i + 1) % 3) - d(padded[(i + 1) % 3], (i + 2) % 3) for i in range(3)]
        return jnp.stack(parts, axis=parts[0].ndim - 3)
