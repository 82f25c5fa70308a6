"""Gradient and divergence between the centres of cells and their faces, each the other's adjoint."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from ..._checks import check_order
from ..._types import Args, RealScalarLike
from .. import _weights
from .._abstract_grid import AbstractGrid
from .._boundaries import Boundaries, as_boundary
from .._conditions import Extrapolate, Periodic
from .._diffusion import _between, _strip
from .._stencil import ORDERS, check_boundary
from ..geometry._flux_form import alike, gathered, slopes


def faces(boundary: Any, axis: int) -> tuple[str, ...]:
    """Returns the location of the faces across an axis: on the walls too, or once where it is periodic.

    Args:
        boundary: The conditions at the sides.
        axis: Across which axis, as a number.

    Example:
        ```python
        from sciml.spatial import Boundaries, Grid, Neumann, Periodic
        from sciml.spatial.staggered._gradient import faces

        boundary = Boundaries(Grid((4, 4)), {"x": Neumann(), "y": Periodic()})
        assert faces(boundary, 0) == ("node", "center") and faces(boundary, 1) == ("center", "lower")
        ```
    """
    across = "lower" if boundary.periodic[axis] else "node"
    return tuple(across if a == axis else "center" for a in range(boundary.grid.ndim))


class StaggeredGradient(eqx.Module):
    r"""The gradient at the faces of cells, from values at their centres.

    The result is a tuple with the slope across the faces of each axis, `(n + 1)` of them between walls and `n` along
    a periodic axis. `faces(axis)` is their location, as in `Grid.coordinates` and `Grid.integrate`. `divergence`, which
    takes such a tuple, is its adjoint:

    $$\sum \nabla p \cdot f\, V_f = -\sum p\, \nabla \cdot f\, V_c$$

    holds to rounding, with the volumes $V$ of `Grid.volumes`, where $p = 0$ or $f \cdot n = 0$ at the walls; at orders
    above 2 along periodic axes only.

    Attributes:
        grid: The grid.
        boundary: The conditions of the values; see `Boundaries`.
        order: The order of accuracy: 2, 4, 6 or 8.

    Raises:
        ValueError: If the order is unknown, or the grid too small.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Dirichlet, Grid, StaggeredGradient

        grid = Grid(4)
        gradient = StaggeredGradient(grid, {"x-": Dirichlet(0.0), "x+": Dirichlet(1.0)})
        (slope,) = gradient(grid.centers[0])
        assert slope.shape == (5,) and jnp.allclose(slope, 1.0)
        assert gradient.faces(0) == ("node",) and jnp.allclose(gradient.divergence((slope,)), 0.0, atol=1e-5)
        ```
    """

    grid: AbstractGrid
    boundary: Any
    order: int = eqx.field(static=True)

    def __init__(self, grid: AbstractGrid, boundary: Any, order: int = 2):
        self.grid, self.boundary = grid, as_boundary(grid, boundary)
        self.order = check_order(order, ORDERS, "StaggeredGradient")
        known = None if getattr(self.boundary, "body", None) is not None else self.order
        check_boundary(self.boundary, self.radius, self.accuracy, type(self).__name__, known)

    @property
    def radius(self) -> int:
        """How many ghost layers the stencil reads."""
        return self.order // 2

    @property
    def accuracy(self) -> int:
        """One more than the order, for the division by the spacing; two for reflections at the order two."""
        return 2 if self.order == 2 else self.order + 1

    @property
    def divergence(self) -> "StaggeredDivergence":
        """The divergence at the centres, from fluxes through the faces."""
        return StaggeredDivergence(self.grid, self.boundary, self.order)

    def faces(self, axis: int) -> tuple[str, ...]:
        """Returns the location of the faces across an axis: on the walls too, or once where it is periodic."""
        return faces(self.boundary, axis)

    def __call__(
        self, p: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None
    ) -> tuple[Array, ...]:
        """Returns the slopes across the faces of each axis; `t` and `args` go to boundary values that are functions."""
        ndim, width = self.grid.ndim, self.radius
        padded = self.boundary.pad(p, width, accuracy=self.accuracy, t=t, args=args)
        padded = jax.lax.optimization_barrier(padded)  # or ghost cells are computed once for each read, see `_stencil`
        found = []
        for axis in range(ndim):
            at = p.ndim - ndim + axis
            if alike(self.boundary):
                weights = _weights.midway(self.order, 1) / self.grid.spacing[axis]
                slope = _between(_strip(padded, ndim, width, axis), weights, at)
            else:
                slope = slopes(self.boundary, padded, axis)
            if self.boundary.periodic[axis]:  # the last face is the first
                slope = jax.lax.slice_in_dim(slope, 0, slope.shape[at] - 1, axis=at)
            found.append(slope)
        return tuple(found)


class StaggeredDivergence(eqx.Module):
    r"""The divergence at the centres of cells, from fluxes through their faces.

    It accepts a tuple as `StaggeredGradient` returns one. Its integral over the box is the flux through the walls, to
    rounding.

    Attributes:
        grid: The grid.
        boundary: The conditions at the sides, of which it only uses the periodic axes.
        order: The order of accuracy: 2, 4, 6 or 8.

    Raises:
        ValueError: If the order is unknown, the grid too small, or a flux has the wrong shape.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid, Neumann, StaggeredGradient

        grid = Grid((4, 4))
        x, _ = grid.coordinates(("node", "center"))
        fluxes = jnp.broadcast_to(x, (5, 4)), jnp.zeros((4, 5))
        assert jnp.allclose(StaggeredGradient(grid, Neumann()).divergence(fluxes), 1.0)
        ```
    """

    grid: AbstractGrid
    boundary: Any
    order: int = eqx.field(static=True)

    def __init__(self, grid: AbstractGrid, boundary: Any, order: int = 2):
        self.grid, self.boundary = grid, as_boundary(grid, boundary)
        self.order = check_order(order, ORDERS, "StaggeredDivergence")
        if not alike(self.boundary):
            known = None if getattr(self.boundary, "body", None) is not None else self.order
            check_boundary(self.boundary, 1, 2, type(self).__name__, known)
            return
        for axis in range(grid.ndim):
            self._faces(axis).check(self.radius, self.order + 1)

    @property
    def radius(self) -> int:
        """The number of faces beyond the faces of a cell that the stencil reads."""
        return self.order // 2 - 1

    def _faces(self, axis: int) -> Boundaries:
        names = self.grid.names
        sides = {name: Periodic() if p else Extrapolate() for name, p in zip(names, self.boundary.periodic)}
        return Boundaries(self.grid, sides, faces(self.boundary, axis))

    def __call__(self, fluxes: Sequence[Inexact[Array, "..."]]) -> Array:
        """Returns the divergence of fluxes, one array for the faces across each axis."""
        ndim = self.grid.ndim
        if len(fluxes) != ndim:
            raise ValueError(f"`fluxes` must be {ndim} arrays, one for the faces across each axis, not {len(fluxes)}.")
        if not alike(self.boundary):
            total: Any = sum(self._gathered(flux, axis) for axis, flux in enumerate(fluxes))
            return total
        total = None
        for axis, h in enumerate(self.grid.spacing):
            boundary, width = self._faces(axis), self.order // 2
            periodic = boundary.periodic[axis]
            accuracy = 2 if self.order == 2 else self.order + 1
            padded = boundary.pad(fluxes[axis], width if periodic else width - 1, accuracy=accuracy)
            padded = _strip(padded, ndim, width if periodic else width - 1, axis)
            at = padded.ndim - ndim + axis
            if periodic:  # the first face is the last one too
                padded = jax.lax.slice_in_dim(padded, 1, padded.shape[at], axis=at)
            term = _between(jax.lax.optimization_barrier(padded), _weights.midway(self.order, 1) / h, at)
            total = term if total is None else total + term
        assert total is not None
        return total

    def _gathered(self, flux: Array, axis: int) -> Array:
        """The flow through the faces across an axis of a non-uniform grid, over the volumes of cells."""
        if self.boundary.periodic[axis]:  # the first face is the last one too
            at = flux.ndim - self.grid.ndim + axis
            flux = jnp.concatenate([flux, jax.lax.slice_in_dim(flux, 0, 1, axis=at)], at)
        return gathered(self.boundary, flux, axis)
