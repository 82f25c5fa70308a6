"""Advection with differences that lean against the flow."""

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
from ._stencil import along, check_boundary, cross, read

PHASES = np.linspace(0.0, np.pi, 33)[1:]
"""Wavenumbers times spacing at which eigenvalues are looked at."""


class Upwind(eqx.Module):
    r"""Advection $v \cdot \nabla u$ by differences that lean against the flow.

    The derivative along each axis uses one more point on the upstream side. Written as
    $v\, C u + |v|\, S u$, it is the central difference $C$ of the next higher order and a dissipation $S$ that
    damps what the grid cannot carry.

    Attributes:
        grid: The grid.
        boundary: The conditions at the sides; see `Boundaries`.
        order: The order of accuracy: 1, 3, 5 or 7, kept up to the walls.

    Raises:
        ValueError: If the order is unknown, the grid too small, or the velocity has the wrong shape.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid, Periodic, Upwind

        grid = Grid((32, 32), 0.0, 2 * jnp.pi)
        x, y = grid.centers
        advect = Upwind(grid, Periodic(), order=3)
        result = advect(jnp.sin(x + y), jnp.array([1.0, -1.0]))  # the flow runs along the crests
        assert jnp.max(jnp.abs(result)) < 1e-2
        ```
    """

    grid: AbstractGrid
    boundary: Any
    order: int = eqx.field(static=True)

    def __init__(self, grid: AbstractGrid, boundary: Any, order: int = 3):
        self.grid, self.boundary = grid, as_boundary(grid, boundary)
        self.order = check_order(order, (1, 3, 5, 7), "Upwind")
        check_boundary(self.boundary, self.radius, self.accuracy, "Upwind")

    @property
    def radius(self) -> int:
        """How many ghost layers the stencil reads."""
        return (self.order + 1) // 2

    @property
    def accuracy(self) -> int:
        """One more than the order, for the division by the spacing."""
        return self.order + 1

    @property
    def sparsity(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours that an unknown away from walls depends on."""
        return cross(self.grid.ndim, self.radius)

    @property
    def _halves(self) -> tuple[np.ndarray, np.ndarray]:
        """The parts of the derivative that are odd and even about the middle, for unit spacing."""
        points = tuple(range(-self.radius, self.radius))
        leaning = np.append(_weights.difference(points, 1), 0.0)
        return (leaning - leaning[::-1]) / 2, (leaning + leaning[::-1]) / 2

    def spectral_radius(self, velocity: Array) -> Array:
        """Returns a bound on the modulus of the eigenvalues, away from walls.

        Args:
            velocity: Of shape `(ndim,)` or `(ndim, *grid)`.
        """
        total = sum(np.sum(np.abs(half)) for half in self._halves)
        axes = tuple(range(1, velocity.ndim))
        fastest = jnp.max(jnp.abs(velocity), axis=axes) if axes else jnp.abs(velocity)
        return jnp.sum(fastest * jnp.asarray(total / np.array(self.grid.spacing), velocity.dtype))

    def spectrum(self, velocity: Array) -> Array:
        r"""Returns eigenvalues of $u \mapsto -v \cdot \nabla u$, away from walls, with the fastest flow everywhere.

        They belong to waves that run straight with the flow, of lengths from two cells to infinitely many.

        Args:
            velocity: Of shape `(ndim,)` or `(ndim, *grid)`.
        """
        axes = tuple(range(1, velocity.ndim))
        fastest = jnp.max(jnp.abs(velocity), axis=axes) if axes else jnp.abs(velocity)
        rate = jnp.sum(fastest / jnp.asarray(self.grid.spacing, velocity.dtype))
        odd, even = self._halves
        shifts = np.arange(-self.radius, self.radius + 1)
        symbol = np.exp(1j * np.outer(PHASES, shifts)) @ (odd + even)
        parts = np.real(symbol), np.imag(symbol)
        return jax.lax.complex(*(-rate * jnp.asarray(part, velocity.dtype) for part in parts))

    def symbol(self, *wavenumbers: Array, velocity: Array) -> Array:
        r"""Returns $\lambda$ where the operator maps $e^{i k x}$ to $\lambda e^{i k x}$, for a constant velocity.

        Args:
            wavenumbers: $k$ for each axis, arrays that broadcast.
            velocity: Of shape `(ndim,)`.
        """
        odd, even = self._halves
        real, imaginary = [], []
        for axis, (k, h) in enumerate(zip(wavenumbers, self.grid.spacing)):
            speed, size = velocity[axis] / h, jnp.abs(velocity[axis]) / h
            for j, (drift, damp) in zip(range(-self.radius, self.radius + 1), zip(odd, even)):
                weight = speed * float(drift) + size * float(damp)
                real.append(weight * jnp.cos(j * k * h))
                imaginary.append(weight * jnp.sin(j * k * h))
        return jax.lax.complex(sum(real[1:], real[0]), sum(imaginary[1:], imaginary[0]))

    def __call__(
        self,
        u: Inexact[Array, "..."],
        velocity: Inexact[Array, "..."],
        *,
        t: RealScalarLike | None = None,
        args: Args = None,
    ) -> Array:
        """Returns the advection of a field.

        Args:
            u: The field, with the grid's axes last.
            velocity: A vector of shape `(ndim,)`, or one at every unknown, of shape `(ndim, *grid)`.
            t: The time, for boundary values that are functions.
            args: Their second argument.
        """
        ndim, width = self.grid.ndim, self.radius
        padded = self.boundary.pad(u, width, accuracy=self.accuracy, t=t, args=args)
        if velocity.shape not in ((ndim,), (ndim, *u.shape[-ndim:])):
            raise ValueError(
                f"`velocity` must have shape ({ndim},) or {(ndim, *u.shape[-ndim:])}, but has {velocity.shape}."
            )
        padded = jax.lax.optimization_barrier(padded)  # or ghost cells are computed once for each read, see `_stencil`
        odd, even = self._halves
        total = None
        for axis, h in enumerate(self.grid.spacing):
            speed = velocity[axis]
            if speed.ndim:
                speed = speed.reshape((1,) * (u.ndim - ndim) + speed.shape)
            center = float(even[width] / h) * read(padded, ndim, width)
            drift, damp = jnp.zeros_like(center), center
            for j in range(1, width + 1):
                ahead = read(padded, ndim, width, along(axis, ndim, j))
                behind = read(padded, ndim, width, along(axis, ndim, -j))
                drift = drift + float(odd[width + j] / h) * (ahead - behind)
                damp = damp + float(even[width + j] / h) * (ahead + behind)
            term = speed * drift + jnp.abs(speed) * damp
            total = term if total is None else total + term
        assert total is not None
        return total
