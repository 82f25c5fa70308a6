"""Laplacians with coefficients, as differences of fluxes: what leaves a cell enters its neighbour."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact

from .._checks import check_order
from .._parameters import parameter
from .._types import Args, RealScalarLike
from . import _weights
from ._abstract_grid import AbstractGrid
from ._boundaries import as_boundary
from ._stencil import ORDERS, along, box, check_boundary, cross, read, spectral_radius_along
from .geometry._exchange import largest_rate
from .geometry._flux_form import alike, between_faces, diffused


def arithmetic_mean(a: Array, b: Array) -> Array:
    """Returns half the sum: the coefficient between two cells where it varies smoothly."""
    return 0.5 * (a + b)


def harmonic_mean(a: Array, b: Array) -> Array:
    """Returns the inverse of the mean inverse: the coefficient between two cells where it jumps at their face."""
    return 2.0 * a * b / (a + b)


MEANS = {"arithmetic": arithmetic_mean, "harmonic": harmonic_mean}


def as_mean(mean: Any) -> Callable[[Array, Array], Array]:
    """Returns the function that a mean is given as, by name or itself.

    Raises:
        ValueError: If it is neither a function nor the name of one.
    """
    if callable(mean):
        function: Any = mean
        return function
    if not isinstance(mean, str) or mean not in MEANS:
        raise ValueError(f"`mean` must be 'arithmetic', 'harmonic' or a function of two coefficients, but is {mean!r}.")
    return MEANS[mean]


def positive_beyond(boundary: Any, k: Array) -> Array:
    """Returns a coefficient with a layer around it: at a wall too it must be positive, also where it jumps."""
    cell = boundary.extend(k, 1, accuracy=1)
    return jnp.clip(boundary.extend(k, 1, accuracy=2), 0.5 * cell, 2.0 * cell)


class VariableLaplacian(eqx.Module):
    r"""Diffusion with a coefficient that varies, $\nabla \cdot (k \nabla u)$, as a difference of fluxes.

    The flux through a face is $k$ between the cells times the slope there. With `order=2` it is symmetric, and
    conserves the integral of `u` without flux through the walls. So it does on an `OrthogonalGrid` and around a body,
    with `order=2` as the only order.

    Attributes:
        grid: The grid.
        boundary: The conditions at the sides; see `Boundaries`.
        coefficient: $k$: a number, or an array over the grid.
        order: The order of accuracy: 2, 4, 6 or 8.
        mean: The mean of two cells' coefficients at their face, for order 2: `"arithmetic"`, `"harmonic"` for
            coefficients that jump, or a function of both.

    Raises:
        ValueError: If the order is unknown, the grid too small, or the coefficient has the wrong shape.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid, Neumann, VariableLaplacian

        grid = Grid((8, 8))
        x, y = grid.centers
        operator = VariableLaplacian(grid, Neumann(0.0), coefficient=1.0 + x + y)
        assert abs(grid.integrate(operator(jnp.sin(5 * x * y)))) < 1e-4  # nothing is lost
        ```
    """

    grid: AbstractGrid
    boundary: Any
    coefficient: Float[Array, "..."]
    order: int = eqx.field(static=True)
    mean: Callable[[Array, Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        coefficient: Any,
        order: int = 2,
        mean: str | Callable[[Array, Array], Array] = "arithmetic",
    ):
        self.grid, self.boundary = grid, as_boundary(grid, boundary)
        self.coefficient = parameter(coefficient)
        self.order = check_order(order, ORDERS, "VariableLaplacian")
        self.mean = as_mean(mean)
        if self.coefficient.ndim not in (0, grid.ndim):
            raise ValueError(
                f"`VariableLaplacian(coefficient=...)` must be a number or an array over the {grid.ndim} axes of the "
                f"grid, but has shape {self.coefficient.shape}."
            )
        check_boundary(self.boundary, self.radius, self.accuracy, "VariableLaplacian", self.order)

    @property
    def radius(self) -> int:
        """How many ghost layers the stencil reads: a difference of differences."""
        return self.order - 1

    @property
    def accuracy(self) -> int:
        """Two more than the order, for the divisions by the spacing; two for reflections at the order two."""
        return 2 if self.order == 2 else self.order + 2

    @property
    def sparsity(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours that an unknown away from walls depends on."""
        return cross(self.grid.ndim, self.radius)

    @property
    def spectral_radius(self) -> Array:
        """A bound on the modulus of the eigenvalues."""
        if not alike(self.boundary):
            return jnp.max(jnp.abs(self.coefficient)) * largest_rate(self.boundary)
        slope = _weights.midway(self.order, 1)
        twice = np.convolve(slope, slope)
        found = [
            spectral_radius_along(self.boundary, axis, twice / h**2, self.accuracy)
            for axis, h in enumerate(self.grid.spacing)
        ]
        return jnp.max(jnp.abs(self.coefficient)) * sum(found)

    def symbol(self, *wavenumbers: Array) -> Array:
        r"""Returns $\lambda$ where the operator with $k = 1$ maps $e^{i k x}$ to $\lambda e^{i k x}$, away from walls.

        Args:
            wavenumbers: $k$ for each axis, arrays that broadcast.
        """
        parts = [-jnp.square(staggered_symbol(self.order, k * h) / h) for k, h in zip(wavenumbers, self.grid.spacing)]
        return sum(parts[1:], parts[0])

    def faces(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """Returns the coefficient at both faces of each cell by name, what `cell` reads; for order 2.

        Args:
            shape: The shape of a field.
        """
        k, ndim = jnp.broadcast_to(self.coefficient, shape), self.grid.ndim
        around, found = positive_beyond(self.boundary, k), {}
        for axis, name in enumerate(self.grid.names):
            strip = _strip(around, ndim, 1, axis)
            n = strip.shape[axis] - 1
            face = self.mean(*(jax.lax.slice_in_dim(strip, i, n + i, axis=axis) for i in range(2)))
            for i, end in enumerate("-+"):
                found[f"k {name}{end}"] = jax.lax.slice_in_dim(face, i, n - 1 + i, axis=axis)
        return found

    def cell(self, nb: Callable[..., Array], field: str) -> Array:
        """Returns the operator at one cell, for the function of a `sciml.kernels.stencil.StencilUpdate`; for order 2.

        Args:
            nb: Returns neighbours, `nb(field, *shift)`, and the coefficients of `faces`.
            field: The name of the field.
        """
        total, here = None, nb(field)
        for axis, (name, h) in enumerate(zip(self.grid.names, self.grid.spacing)):
            ahead, behind = (nb(field, *along(axis, self.grid.ndim, s)) for s in (1, -1))
            term = (nb(f"k {name}+") * (ahead - here) - nb(f"k {name}-") * (here - behind)) * (1 / h**2)
            total = term if total is None else total + term
        assert total is not None
        return total

    def __call__(self, u: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None) -> Array:
        """Returns the operator applied to a field; `t` and `args` go to boundary values that are functions."""
        if not alike(self.boundary):
            return self._through_faces(u, t, args)
        width, ndim = self.radius, self.grid.ndim
        k = self.coefficient.astype(jnp.finfo(u.dtype).dtype)
        # Behind a barrier ghost cells are computed once, see `_stencil`; one barrier for both has no transpose with
        # respect to the field only.
        padded = jax.lax.optimization_barrier(self.boundary.pad(u, width, accuracy=self.accuracy, t=t, args=args))
        if k.ndim:
            k = jnp.broadcast_to(k, u.shape[-ndim:])
            if self.order == 2:
                around = positive_beyond(self.boundary, k)
            else:
                around = self.boundary.extend(k, width, accuracy=self.accuracy)
            k = jax.lax.optimization_barrier(around)
        total = None
        for axis, h in enumerate(self.grid.spacing):
            flux = self._flux(padded, k, axis, h)
            term = _between(flux, _weights.midway(self.order, 1) / h, u.ndim - ndim + axis)
            total = term if total is None else total + term
        assert total is not None
        return total

    def _through_faces(self, u: Array, t: RealScalarLike | None, args: Args) -> Array:
        """The same for a non-uniform grid or a body."""
        padded = jax.lax.optimization_barrier(self.boundary.pad(u, 1, t=t, args=args))
        k = self.coefficient.astype(jnp.finfo(u.dtype).dtype)
        k = jnp.broadcast_to(k, getattr(self.boundary, "shape", k.shape)) if k.ndim else k
        series = self.mean is harmonic_mean
        return diffused(self.boundary, padded, lambda axis: between_faces(self.boundary, k, axis, self.mean, series))

    def _flux(self, padded: Array, k: Array, axis: int, h: float) -> Array:
        """The fluxes at the faces across an axis, on a strip without ghost cells along the others."""
        ndim, width = self.grid.ndim, self.radius
        at = padded.ndim - ndim + axis
        slope = _between(_strip(padded, ndim, width, axis), _weights.midway(self.order, 1) / h, at)
        if k.ndim == 0:
            return k.astype(slope.dtype) * slope
        strip = _strip(k, ndim, width, axis)
        if self.order == 2:
            n = strip.shape[axis]
            pair = [jax.lax.slice_in_dim(strip, i, n - 1 + i, axis=axis) for i in range(2)]
            face = self.mean(*pair)
        else:
            face = _between(strip, _weights.midway(self.order, 0), axis)
        return face.reshape((1,) * (slope.ndim - ndim) + face.shape).astype(slope.dtype) * slope


def staggered_symbol(order: int, phase: Array) -> Array:
    """Returns the symbol, over i, of the slope halfway between unknowns."""
    weights = _weights.midway(order, 1)
    half = order // 2
    return sum((2 * float(weights[half + j]) * jnp.sin((j + 0.5) * phase) for j in range(half)), 0 * phase)


def _strip(padded: Array, ndim: int, width: int, axis: int) -> Array:
    """A padded field without the ghost cells of the other axes."""
    for other in range(ndim):
        if other != axis:
            at = padded.ndim - ndim + other
            padded = jax.lax.slice_in_dim(padded, width, padded.shape[at] - width, axis=at)
    return padded


def _between(u: Array, weights: np.ndarray, at: int) -> Array:
    """Values in the middle of as many neighbours as there are weights, along an array's axis."""
    n, half = u.shape[at] - len(weights) + 1, len(weights) // 2
    even = weights[0] == weights[-1]
    total = None
    for j in range(half):
        ahead = jax.lax.slice_in_dim(u, half + j, half + j + n, axis=at)
        behind = jax.lax.slice_in_dim(u, half - 1 - j, half - 1 - j + n, axis=at)
        term = float(weights[half + j]) * (ahead + behind if even else ahead - behind)
        total = term if total is None else total + term
    assert total is not None
    return total


class AnisotropicLaplacian(eqx.Module):
    r"""Diffusion along directions, $\sum_{ij} \partial_i (K_{ij}\, \partial_j u)$, of second order.

    The diagonal of the tensor acts through the faces of cells as in `VariableLaplacian`; the rest is
    $\partial_i$ of $K_{ij} \partial_j u$ by central differences. It is symmetric away from walls if $K$ is.
    At a wall the condition is one of $u$: `Neumann` gives the slope along the normal, not the flux.

    Attributes:
        grid: The grid.
        boundary: The conditions at the sides; see `Boundaries`.
        tensor: $K$, of shape `(ndim, ndim)` or `(ndim, ndim, *grid)`; symmetric and positive definite if the equation
            is one of diffusion.

    Raises:
        ValueError: If the grid is too small, or the tensor has the wrong shape.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import AnisotropicLaplacian, Grid, Periodic

        grid = Grid((32, 32), 0.0, 2 * jnp.pi)
        x, y = grid.centers
        along = AnisotropicLaplacian(grid, Periodic(), jnp.array([[1.0, 1.0], [1.0, 1.0]]))
        assert jnp.max(jnp.abs(along(jnp.sin(x - y)))) < 0.1  # nothing varies in the direction (1, 1)
        ```
    """

    grid: AbstractGrid
    boundary: Any
    tensor: Float[Array, "..."]

    def __init__(self, grid: AbstractGrid, boundary: Any, tensor: Any):
        self.grid, self.boundary = grid, as_boundary(grid, boundary)
        self.tensor = parameter(tensor)
        n = grid.ndim
        if self.tensor.ndim not in (2, 2 + n) or self.tensor.shape[:2] != (n, n):
            raise ValueError(
                f"`AnisotropicLaplacian(tensor=...)` must have shape ({n}, {n}) or ({n}, {n}, *grid), but has "
                f"{self.tensor.shape}."
            )
        check_boundary(self.boundary, self.radius, 2, "AnisotropicLaplacian")

    @property
    def radius(self) -> int:
        """How many ghost layers the stencil reads."""
        return 1

    @property
    def sparsity(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours that an unknown depends on, those across edges included."""
        return tuple(s for s in box(self.grid.ndim, 1) if sum(map(abs, s)) <= 2)

    @property
    def spectral_radius(self) -> Array:
        r"""A bound on the modulus of the eigenvalues, $4 \sum_{ij} \max |K_{ij}| / (h_i h_j)$."""
        h = np.array(self.grid.spacing)
        largest = jnp.max(jnp.abs(self.tensor.reshape((*self.tensor.shape[:2], -1))), axis=2)
        return jnp.sum(largest * jnp.asarray(4 / np.outer(h, h), largest.dtype))

    def symbol(self, *wavenumbers: Array) -> Array:
        r"""Returns $\lambda$ where the operator maps $e^{i k x}$ to $\lambda e^{i k x}$, for a constant tensor.

        Args:
            wavenumbers: $k$ for each axis, arrays that broadcast.
        """
        h, total = self.grid.spacing, None
        for i, k in enumerate(wavenumbers):
            for j, other in enumerate(wavenumbers):
                if i == j:
                    part = 4 * jnp.square(jnp.sin(k * h[i] / 2)) / h[i] ** 2
                else:
                    part = jnp.sin(k * h[i]) * jnp.sin(other * h[j]) / (h[i] * h[j])
                term = -self.tensor[i, j] * part
                total = term if total is None else total + term
        assert total is not None
        return total

    def __call__(self, u: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None) -> Array:
        """Returns the operator applied to a field; `t` and `args` go to boundary values that are functions."""
        ndim, h = self.grid.ndim, self.grid.spacing
        k = self.tensor.astype(jnp.finfo(u.dtype).dtype)
        padded = self.boundary.pad(u, 1, accuracy=2, t=t, args=args)
        if k.ndim > 2:
            k = jnp.broadcast_to(k, (ndim, ndim, *u.shape[-ndim:]))
            k = self.boundary.extend(k, 1)
        padded, k = jax.lax.optimization_barrier(padded), jax.lax.optimization_barrier(k)
        lead = (1,) * (u.ndim - ndim)

        def at(i: int, j: int, shift: tuple[int, ...]) -> Array:
            value = k[i, j] if k.ndim == 2 else read(k[i, j], ndim, 1, shift)
            return value.reshape(lead + value.shape).astype(u.dtype) if value.ndim else value.astype(u.dtype)

        total, zero = None, (0,) * ndim
        center = read(padded, ndim, 1)
        for i in range(ndim):
            ahead, behind = along(i, ndim, 1), along(i, ndim, -1)
            flux = 0.5 * (at(i, i, zero) + at(i, i, ahead)) * (read(padded, ndim, 1, ahead) - center)
            flux = flux - 0.5 * (at(i, i, zero) + at(i, i, behind)) * (center - read(padded, ndim, 1, behind))
            term = flux / h[i] ** 2
            for j in range(ndim):
                if j != i:
                    for sign in (1, -1):
                        side = along(i, ndim, sign)
                        corners = [tuple(map(sum, zip(side, along(j, ndim, s)))) for s in (1, -1)]
                        slope = read(padded, ndim, 1, corners[0]) - read(padded, ndim, 1, corners[1])
                        term = term + sign * at(i, j, side) * slope / (4 * h[i] * h[j])
            total = term if total is None else total + term
        assert total is not None
        return total
