"""The exchange between cells through their faces, as a symmetric matrix: couplings of neighbours and walls."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._checks import concrete
from ..._types import Args, RealScalarLike
from .._conditions import Neumann
from . import _metric
from ._flux_form import at_surface, in_fluid, surface_of


def conductances(boundary: Any, axis: int, dtype: Any) -> Array:
    """Returns the areas of the faces across an axis over the distances of the centres on both sides."""
    factors = _metric.conductances(boundary.grid, axis, boundary.periodic[axis])
    return _metric.product(boundary.grid.ndim, factors, dtype)


def exchange(boundary: Any, coefficient: Callable[[int], Array], dtype: Any) -> tuple[tuple[Array, ...], Array]:
    """Returns what couples neighbours, for each axis on its faces, and what else the diagonal has.

    Cells of a body are coupled with nothing, and have a diagonal of the size of the others.

    Args:
        boundary: The boundary.
        coefficient: From an axis to the coefficient at the faces across it.
        dtype: The floating type.
    """
    grid, shape = boundary.grid, boundary.grid.shape
    ghosts = boundary.homogeneous().pad(jnp.ones(shape, dtype), 1)
    couplings, own, idle = [], jnp.zeros((1,) * grid.ndim, dtype), jnp.zeros((), dtype)
    for axis in range(grid.ndim):
        n = shape[axis]
        k = conductances(boundary, axis, dtype) * coefficient(axis)
        k = jnp.broadcast_to(k, [n + 1 if a == axis else m for a, m in enumerate(shape)])
        if not boundary.periodic[axis]:
            # a ghost cell is a multiple of the first one, so the flux is that to a zero with another coupling
            low, high = (1 - beyond(ghosts, axis, end) for end in (0, 1))
            inner = jax.lax.slice_in_dim(k, 1, n, axis=axis)
            ends = jax.lax.slice_in_dim(k, 0, 1, axis=axis), jax.lax.slice_in_dim(k, n, n + 1, axis=axis)
            k = jnp.concatenate([ends[0] * low, inner, ends[1] * high], axis)
        faces = surface_of(boundary, axis, dtype)
        if faces is not None:
            idle = idle + _of_cells(k, k, axis)
            own = own + _to_fluid(faces, _through(boundary, faces, axis, coefficient(axis), dtype)[0], axis)
            k = jnp.where(faces.open, k, 0)
        couplings.append(k)
    if boundary.body is not None:
        own = jnp.where(boundary.body.fluid, own, idle)
    return tuple(couplings), own


def given(
    boundary: Any, coefficient: Callable[[int], Array], dtype: Any, t: RealScalarLike | None, args: Args
) -> Array:
    """Returns what values at walls and at a body add to the right-hand side, for the matrix of `exchange`.

    Args:
        boundary: The boundary.
        coefficient: From an axis to the coefficient at the faces across it.
        dtype: The floating type.
        t: The time, for values that are functions.
        args: Their second argument.
    """
    grid, shape = boundary.grid, boundary.grid.shape
    ghosts = boundary.pad(jnp.zeros(shape, dtype), 1, t=t, args=args)
    total = jnp.zeros(shape, dtype)
    for axis in range(grid.ndim):
        n = shape[axis]
        if not boundary.periodic[axis]:
            k = conductances(boundary, axis, dtype) * coefficient(axis)
            for end in (0, 1):
                at_wall = jax.lax.slice_in_dim(k, end * n, end * n + 1, axis=axis) * beyond(ghosts, axis, end)
                rest = [(0, 0)] * grid.ndim
                rest[axis] = (0, n - 1) if end == 0 else (n - 1, 0)
                total = total + jnp.pad(at_wall, rest)
        faces = surface_of(boundary, axis, dtype)
        if faces is not None:
            total = total + _to_fluid(faces, _through(boundary, faces, axis, coefficient(axis), dtype)[1], axis)
    return in_fluid(boundary, total)


def beyond(padded: Array, axis: int, end: int) -> Array:
    """Returns the ghost layer at one end of an axis, without corners."""
    start, stop = [1] * padded.ndim, [n - 1 for n in padded.shape]
    start[axis] = end * (padded.shape[axis] - 1)
    stop[axis] = start[axis] + 1
    return jax.lax.slice(padded, start, stop)


def _through(boundary: Any, faces: Any, axis: int, k: Array, dtype: Any) -> tuple[Array, Array]:
    """The outflow of a fluid cell through the surface at each face, per unit of its value, and the constant inflow."""
    gain, source = at_surface(boundary, faces, axis, dtype)
    area, ndim = _metric.areas(boundary.grid, axis), boundary.grid.ndim
    return _metric.times(k * gain, ndim, area), _metric.times(k * source, ndim, area)


def _to_fluid(faces: Any, x: Array, axis: int) -> Array:
    """The faces of each cell on the surface of the body, if the cell is not in it."""
    return _of_cells(jnp.where(faces.met & faces.upper, x, 0), jnp.where(faces.met & faces.lower, x, 0), axis)


def _of_cells(below: Array, above: Array, axis: int) -> Array:
    """The sum of what belongs to the lower and to the upper face of each cell."""
    n = below.shape[axis] - 1
    return jax.lax.slice_in_dim(below, 0, n, axis=axis) + jax.lax.slice_in_dim(above, 1, n + 1, axis=axis)


def largest_rate(boundary: Any) -> Any:
    """Returns a bound on the eigenvalues of the Laplacian, by Gershgorin's circles; a number if all is known."""
    boundary = getattr(boundary, "boundary", boundary)  # a whole one, of which a device holds a block
    grid, total = boundary.grid, 0.0
    for axis in range(grid.ndim):
        factors = _metric.combined(_metric.conductances(grid, axis, boundary.periodic[axis]))
        faces = factors.pop(axis)
        for end, side in zip((0, -1), boundary.sides[axis]):
            faces[end] = 0.0 if isinstance(side, Neumann) else faces[end]
        volumes = _metric.volumes(grid)
        cells = (faces[:-1] + faces[1:]) / volumes.pop(axis, 1.0)
        others = _metric.combined(factors, _metric.inverse(volumes))
        rate = 2 * float(np.max(cells) * np.prod([np.max(x) for x in others.values()]))
        total = total + rate * _nearest(boundary, axis)
    return total


def _nearest(boundary: Any, axis: int) -> Any:
    """By how much the surface of a body raises the bound, where it is nearer than half of the way."""
    body = boundary.body
    if body is None or isinstance(body.condition, Neumann):
        return 1.0
    if concrete(body.levels):
        with jax.ensure_compile_time_eval():
            return float(_raised(boundary, axis))
    return _raised(boundary, axis)


def _raised(boundary: Any, axis: int) -> Array:
    faces = surface_of(boundary, axis, boundary.body.levels.dtype)
    assert faces is not None
    return jnp.max(jnp.where(faces.met, 0.5 / faces.share, 1.0))
