"""The Laplacian, and its square."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
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
from .geometry._exchange import largest_rate
from .geometry._flux_form import alike, diffused


class Laplacian(AbstractStencil):
    r"""The Laplacian $\nabla^2 u$ by central differences.

    With `order=2` it is also symmetric at walls (its ghost cells reflect), so that it conserves the integral of `u`
    without flux through the sides, and a transform diagonalises it. The error *of a solution* then has second order,
    but the error of $\nabla^2 u$ itself does not in the cells at a wall. Higher orders are kept up to the walls, and
    the operator is not symmetric there; its eigenvalues have no positive real part.

    On an `OrthogonalGrid`, and around a body, `order=2` is what flows through the faces of a cell over its volume.

    Attributes:
        grid: The grid.
        boundary: The conditions at the sides; see `Boundaries`.
        order: The order of accuracy: 2, 4, 6 or 8.

    Args:
        grid: The grid.
        boundary: `Boundaries`, or the conditions to make them of, or an object with their methods.
        order: The order of accuracy.

    Raises:
        ValueError: If the order is unknown, or the grid too small.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Dirichlet, Grid, Laplacian, Periodic

        grid = Grid((16, 16))
        laplacian = Laplacian(grid, {"x": Periodic(), "y": Dirichlet(lambda t, args: t)}, order=4)
        u = jnp.ones((3, 16, 16))  # three components
        assert jnp.max(jnp.abs(laplacian(u, t=1.0))) < 1e-3
        ```
    """

    grid: AbstractGrid
    boundary: Any
    order: int = eqx.field(static=True)

    def __init__(self, grid: AbstractGrid, boundary: Any, order: int = 2):
        self.grid, self.boundary = grid, as_boundary(grid, boundary)
        self.order = check_order(order, ORDERS, "Laplacian")
        check_boundary(self.boundary, self.radius, self.accuracy, "Laplacian", self.order)

    @property
    def radius(self) -> int:
        """How many ghost layers the stencil reads."""
        return self.order // 2

    @property
    def accuracy(self) -> int:
        """Two more than the order, for the divisions by the spacing; two for reflections at the order two."""
        return 2 if self.order == 2 else self.order + 2

    @property
    def sparsity(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours that an unknown away from walls depends on."""
        return cross(self.grid.ndim, self.radius)

    @property
    def spectral_radius(self) -> float | Array:
        """The largest modulus of an eigenvalue; 2 over it is the limit of explicit Euler for the heat equation.

        On a non-uniform grid, and around a body, it is a bound, an array if the body is traced.
        """
        if not alike(self.boundary):
            return largest_rate(self.boundary)
        return sum(spectral_radius_along(self.boundary, a, w, self.accuracy) for a, w in enumerate(self._weights))

    @property
    def _weights(self) -> list[np.ndarray]:
        return [_weights.central(self.order, 2) / h**2 for h in self.grid.spacing]

    def symbol(self, *wavenumbers: Array) -> Array:
        r"""Returns $\lambda$ where the operator maps $e^{i k x}$ to $\lambda e^{i k x}$, away from walls.

        Args:
            wavenumbers: $k$ for each axis, arrays that broadcast.
        """
        parts = [symbol_of(w, k * h) for w, k, h in zip(self._weights, wavenumbers, self.grid.spacing)]
        return sum(parts[1:], parts[0])

    def on(self, padded: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the Laplacian of a field that has `radius` ghost layers."""
        if not alike(self.boundary):
            return diffused(self.boundary, padded, None)
        total = float(sum(w[self.radius] for w in self._weights)) * self.inside(padded)
        for axis, weights in enumerate(self._weights):
            total = total + difference(padded, weights, axis, self.grid.ndim, self.radius)
        return total

    def cell(self, nb: Callable[..., Array], field: str) -> Array:
        """Returns the Laplacian at one cell, for the function of a `sciml.kernels.stencil.StencilUpdate`.

        Args:
            nb: Returns neighbours, `nb(field, *shift)`.
            field: The name of the field.
        """
        total = float(sum(w[self.radius] for w in self._weights)) * nb(field)
        for axis, weights in enumerate(self._weights):
            for j in range(1, self.radius + 1):
                ahead, behind = (nb(field, *along(axis, self.grid.ndim, s)) for s in (j, -j))
                total = total + float(weights[self.radius + j]) * (ahead + behind)
        return total


class Biharmonic(eqx.Module):
    r"""The biharmonic operator $\nabla^4 u$, the Laplacian of the Laplacian.

    It needs two conditions at every wall, one of $u$ and one of $\nabla^2 u$. For a plate that is simply supported
    both are `Dirichlet(0.0)`; for a conserved density both are `Neumann(0.0)`. A clamped plate, with $u$ and its
    slope given, has another form.

    Between walls the inner Laplacian has an order two higher than requested: the outer one divides its error, which is
    not smooth next to a wall, by the spacing squared. So $\nabla^4 u$ keeps its order up to the walls. With order 2 it
    is the square of the symmetric Laplacian; its *solutions* are of second order. Order 8 requires periodic axes,
    because between walls rounding hides it.

    Attributes:
        inner: The Laplacian of $u$.
        outer: The Laplacian of the result.

    Args:
        grid: The grid.
        boundary: The conditions of $u$.
        laplacian: The conditions of $\nabla^2 u$; None for the conditions of `u` with zero values.
        order: The order of accuracy: 2, 4 or 6, or 8 if all axes are periodic.

    Raises:
        ValueError: If the order is unknown or not one for walls, or the grid too small.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Biharmonic, Dirichlet, Grid

        grid = Grid(16)
        (x,) = grid.centers
        u = jnp.sin(jnp.pi * x)
        assert jnp.allclose(Biharmonic(grid, Dirichlet(0.0))(u), jnp.pi**4 * u, atol=2.0)
        ```
    """

    inner: Laplacian
    outer: Laplacian

    def __init__(self, grid: AbstractGrid, boundary: Any, laplacian: Any = None, order: int = 2):
        order = check_order(order, ORDERS, "Biharmonic")
        boundary = as_boundary(grid, boundary)
        walls = not all(getattr(boundary, "periodic", (False,)))
        if walls and order == 8:
            raise ValueError("`Biharmonic(order=8)` requires periodic axes. Between walls use an order of at most 6.")
        self.inner = Laplacian(grid, boundary, order + 2 if walls and order > 2 else order)
        self.outer = Laplacian(grid, self.inner.boundary.homogeneous() if laplacian is None else laplacian, order)

    @property
    def grid(self) -> AbstractGrid:
        """The grid."""
        return self.inner.grid

    @property
    def radius(self) -> int:
        """How far away from an unknown those are that it depends on."""
        return self.inner.radius + self.outer.radius

    @property
    def sparsity(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours that an unknown away from walls depends on."""
        twice = {tuple(map(sum, zip(a, b))) for a in self.inner.sparsity for b in self.outer.sparsity}
        return tuple(sorted(twice))

    @property
    def spectral_radius(self) -> float | Array:
        """The largest modulus of an eigenvalue."""
        return self.inner.spectral_radius * self.outer.spectral_radius

    def symbol(self, *wavenumbers: Array) -> Array:
        """Returns the product of the two Laplacians' symbols."""
        return self.inner.symbol(*wavenumbers) * self.outer.symbol(*wavenumbers)

    def __call__(self, u: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None) -> Array:
        """Returns the operator applied to a field; `t` and `args` go to boundary values that are functions."""
        return self.outer(self.inner(u, t=t, args=args), t=t, args=args)
