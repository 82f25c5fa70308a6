"""Operators as differences of what flows through the faces of cells, over their volumes.

Every function takes a boundary, an object with `grid`, `sides`, `periodic` and perhaps a `body`, and works on all
faces across one axis, of which there is one more than cells. Along periodic axes the first and the last are the same.
A boundary of a block that a device holds takes its part of vectors along an axis, by a method `along`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._abstract_grid import AbstractGrid
from .._conditions import Dirichlet
from . import _metric
from ._ghosts import coefficients
from ._immersed import Surface, surface


def alike(boundary: Any) -> bool:
    """Whether the grid of a boundary is uniform without a body, which is also assumed if it does not define this."""
    return getattr(boundary, "uniform", True)


def strip(padded: Array, axis: int, ndim: int) -> Array:
    """Returns a field with one ghost layer, without the ghost layers of the other axes."""
    for other in range(ndim):
        if other != axis:
            at = padded.ndim - ndim + other
            padded = jax.lax.slice_in_dim(padded, 1, padded.shape[at] - 1, axis=at)
    return padded


def ends(x: Array, axis: int, ndim: int) -> tuple[Array, Array]:
    """Returns the values before and after every face of an array with one ghost layer along an axis."""
    at = x.ndim - ndim + axis
    n = x.shape[at]
    return jax.lax.slice_in_dim(x, 0, n - 1, axis=at), jax.lax.slice_in_dim(x, 1, n, axis=at)


def surface_of(boundary: Any, axis: int, dtype: Any) -> Surface | None:
    """Returns the geometry of the surface of the body at the faces across an axis; None without a body."""
    body = getattr(boundary, "body", None)
    return None if body is None else surface(body, axis, boundary.periodic[axis], jnp.finfo(dtype).dtype)


def slopes(boundary: Any, padded: Array, axis: int) -> Array:
    """Returns the slopes at the faces across an axis of a field that has one ghost layer."""
    grid = boundary.grid
    before, after = ends(strip(padded, axis, grid.ndim), axis, grid.ndim)
    spans = _metric.distances(grid, axis, boundary.periodic[axis])
    slope = _metric.times(after - before, grid.ndim, _metric.inverse(spans), _metric.here_of(boundary))
    faces = surface_of(boundary, axis, slope.dtype)
    if faces is None:
        return slope
    gain, given = at_surface(boundary, faces, axis, slope.dtype)
    outwards = over(given, slope) - over(gain, slope) * jnp.where(over(faces.lower, slope), before, after)
    return jnp.where(
        over(faces.open, slope),
        slope,
        jnp.where(over(faces.met, slope), jnp.where(over(faces.lower, slope), outwards, -outwards), 0.0),
    )


def at_surface(boundary: Any, faces: Surface, axis: int, dtype: Any) -> tuple[Array, Array]:
    r"""Returns $g$ and $s$ of the slope $s - g u$ out of the fluid cell with the value $u$, at every face."""
    grid, kind = boundary.grid, jnp.finfo(dtype).dtype
    gap = _metric.times(faces.share, grid.ndim, _metric.distances(grid, axis, boundary.periodic[axis]))
    a, b, c = (
        faces.of_fluid(jnp.asarray(x, kind), boundary.periodic[axis], axis, grid.ndim)
        for x in coefficients(boundary.body.condition)
    )
    below = b + a * gap
    return a / below, c / below


def over(x: Array, u: Array) -> Array:
    """Returns an array over the grid with the axes that a field has before those."""
    return x.reshape((1,) * (u.ndim - x.ndim) + x.shape)


def gathered(boundary: Any, flux: Array, axis: int) -> Array:
    """Returns the contribution of the fluxes through the faces across an axis to the rates of cells."""
    grid = boundary.grid
    areas = _metric.areas(grid, axis)
    here = _metric.here_of(boundary)
    through = _metric.times(flux, grid.ndim, {axis: areas.pop(axis)}, here)
    at = flux.ndim - grid.ndim + axis
    n = flux.shape[at] - 1
    change = jax.lax.slice_in_dim(through, 1, n + 1, axis=at) - jax.lax.slice_in_dim(through, 0, n, axis=at)
    return _metric.times(change, grid.ndim, _metric.combined(areas, _metric.inverse(_metric.volumes(grid))), here)


def in_fluid(boundary: Any, rates: Array) -> Array:
    """Returns rates, zero in the cells of a body."""
    body = getattr(boundary, "body", None)
    return rates if body is None else jnp.where(over(body.fluid, rates), rates, 0)


def diffused(boundary: Any, padded: Array, coefficient: Callable[[int], Array] | None) -> Array:
    r"""Returns $\nabla \cdot (k \nabla u)$ of a field with one ghost layer.

    Args:
        boundary: The boundary.
        padded: The field.
        coefficient: From an axis to $k$ at the faces across it; None for one.
    """
    total = None
    for axis in range(boundary.grid.ndim):
        flux = slopes(boundary, padded, axis)
        if coefficient is not None:
            k = coefficient(axis)
            flux = over(k, flux).astype(flux.dtype) * flux if k.ndim else k.astype(flux.dtype) * flux
        flux = jax.lax.optimization_barrier(flux)  # it is read twice
        term = gathered(boundary, flux, axis)
        total = term if total is None else total + term
    assert total is not None
    return in_fluid(boundary, total)


def gradient(boundary: Any, padded: Array) -> list[Array]:
    """Returns the slopes in cells along every axis, of parabolas through three points."""
    grid, found = boundary.grid, []
    for axis in range(grid.ndim):
        periodic = boundary.periodic[axis]
        slope = slopes(boundary, padded, axis)
        at = slope.ndim - grid.ndim + axis
        n = slope.shape[at] - 1
        # only along the axis: different lengths along the others change nothing
        steps = {axis: _metric.steps(grid, axis, periodic)}
        span = over(_metric.product(grid.ndim, steps, slope.dtype, _metric.here_of(boundary)), slope)
        faces = surface_of(boundary, axis, slope.dtype)
        if faces is not None:
            # the surface is one of the three points; under other conditions the cell has a mirror image behind it
            twice = 1.0 if isinstance(boundary.body.condition, Dirichlet) else 2.0
            span = jnp.where(over(faces.met, slope), twice * over(faces.share, slope) * span, span)
        before, after = (jax.lax.slice_in_dim(slope, i, n + i, axis=at) for i in (0, 1))
        behind, ahead = (jax.lax.slice_in_dim(span, i, n + i, axis=at) for i in (0, 1))
        found.append(in_fluid(boundary, (before * ahead + after * behind) / (behind + ahead)))
    return found


def divergence(boundaries: Sequence[Any], padded: Sequence[Array]) -> Array:
    """Returns what flows out of cells over their volumes; each component has one ghost layer and its conditions."""
    total = None
    for axis, (boundary, u) in enumerate(zip(boundaries, padded)):
        grid = boundary.grid
        before, after = ends(strip(u, axis, grid.ndim), axis, grid.ndim)
        # between the centres by their distances, so that linear functions are exact
        shares = {axis: _metric.shares(grid, axis, boundary.periodic[axis])}
        value = before + _metric.times(after - before, grid.ndim, shares, _metric.here_of(boundary))
        faces = surface_of(boundary, axis, value.dtype)
        if faces is not None:
            gain, given = at_surface(boundary, faces, axis, value.dtype)
            gap = _metric.times(faces.share, grid.ndim, _metric.distances(grid, axis, boundary.periodic[axis]))
            near = jnp.where(over(faces.lower, value), before, after)
            value = jnp.where(
                over(faces.met, value), near + over(gap, value) * (over(given, value) - over(gain, value) * near), value
            )
            value = jnp.where(over(faces.lower | faces.upper, value), value, 0)
        term = gathered(boundary, value, axis)
        total = term if total is None else total + term
    assert total is not None
    return in_fluid(boundaries[0], total)


def between_faces(boundary: Any, k: Array, axis: int, mean: Callable[[Array, Array], Array], series: bool) -> Array:
    """Returns a coefficient at the faces across an axis; at a body the cell's coefficient, as at a wall if in series.

    Args:
        boundary: The boundary.
        k: The coefficient, a number or a field.
        axis: The axis.
        mean: The coefficient between two cells that are alike.
        series: Whether both cells are in series, with weights by their widths.
    """
    if k.ndim == 0:
        return k
    if _metric.here_of(boundary) is not None:
        raise ValueError(
            "on an `OrthogonalGrid` that is split over devices a coefficient must be a number, but is an array of "
            f"shape {k.shape}."
        )
    grid, periodic = boundary.grid, boundary.periodic[axis]
    n = grid.shape[axis]
    first, last = jax.lax.slice_in_dim(k, 0, 1, axis=axis), jax.lax.slice_in_dim(k, n - 1, n, axis=axis)
    before = jnp.concatenate([last if periodic else first, k], axis)
    after = jnp.concatenate([k, first if periodic else last], axis)
    if series:
        share = _metric.product(grid.ndim, {axis: _metric.shares(grid, axis, periodic)}, k.dtype)
        below = share * after + (1 - share) * before
        face = jnp.where(below == 0, 0.0, before * after / jnp.where(below == 0, 1.0, below))
    else:
        if not periodic:
            beyond = _continued(grid, k, axis, False), _continued(grid, k, axis, True)
            before, after = jnp.concatenate([beyond[0], k], axis), jnp.concatenate([k, beyond[1]], axis)
        face = mean(before, after)
    faces = surface_of(boundary, axis, k.dtype)
    return face if faces is None else jnp.where(faces.met, jnp.where(faces.lower, before, after), face)


def _continued(grid: AbstractGrid, k: Array, axis: int, upper: bool) -> Array:
    """A coefficient in the ghost cell at a wall: along a line, within a factor of two of that in the cell."""
    n, widths = k.shape[axis], _metric.widths_of(grid, axis)
    first, second = (n - 1, max(n - 2, 0)) if upper else (0, min(1, n - 1))
    cell, next_one = (jax.lax.slice_in_dim(k, i, i + 1, axis=axis) for i in (first, second))
    ratio = 2 * float(widths[first] / (widths[first] + widths[second]))
    return jnp.clip(cell + ratio * (cell - next_one), 0.5 * cell, 2.0 * cell)
