"""Areas, volumes and distances of any grid, as factors along its axes: no array of the grid's shape is stored.

For a `Grid`, where they are the same for all cells, the volume counts as one and the area of a face across an axis as
one over the spacing: then fluxes through faces add up to the rate of a cell in both.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._abstract_grid import AbstractGrid
from .._grid import Grid
from ._orthogonal_grid import OrthogonalGrid

Factors = dict[int, np.ndarray]
"""For some axes a vector of NumPy; their product is what is meant."""

Here = Callable[[Array, int], Array] | None
"""From a vector along an axis of the whole grid to the part that is here; None where all of it is."""


def times(x: Array, ndim: int, factors: Factors, here: Here = None) -> Array:
    """Returns an array whose last axes are the axes of the grid, times the factors."""
    kind = jnp.finfo(x.dtype).dtype
    for axis, factor in factors.items():
        if not np.all(factor == 1):
            vector = jnp.asarray(factor, kind).astype(x.dtype)
            vector = vector if here is None else here(vector, axis)
            x = x * vector.reshape([-1 if at == x.ndim - ndim + axis else 1 for at in range(x.ndim)])
    return x


def product(ndim: int, factors: Factors, dtype: Any, here: Here = None) -> Array:
    """Returns the product of factors as an array that broadcasts to the grid."""
    return times(jnp.ones((1,) * ndim, dtype), ndim, factors, here)


def here_of(boundary: Any) -> Here:
    """Returns how a boundary takes parts of vectors; one of a whole grid does not."""
    return getattr(boundary, "along", None)


def inverse(factors: Factors) -> Factors:
    """Returns the reciprocals of factors."""
    return {axis: 1 / factor for axis, factor in factors.items()}


def combined(*parts: Factors) -> Factors:
    """Returns the products of factors along the same axes."""
    found: Factors = {}
    for part in parts:
        for axis, factor in part.items():
            found[axis] = found[axis] * factor if axis in found else factor
    return found


def volumes(grid: AbstractGrid) -> Factors:
    """Returns the volumes of cells."""
    if isinstance(grid, Grid):
        return {}
    assert isinstance(grid, OrthogonalGrid)
    return {axis: grid.system.measure(axis, np.array(faces)) for axis, faces in enumerate(grid.faces)}


def areas(grid: AbstractGrid, axis: int) -> Factors:
    """Returns the areas of the faces across an axis."""
    if isinstance(grid, Grid):
        return {axis: np.full(grid.shape[axis] + 1, 1 / grid.spacing[axis])}
    assert isinstance(grid, OrthogonalGrid)
    beside = grid.system.beside
    others = {b: beside(axis, b, np.array(faces)) for b, faces in enumerate(grid.faces) if b != axis}
    return {axis: grid.system.across(axis, np.array(grid.faces[axis])), **others}


def distances(grid: AbstractGrid, axis: int, periodic: bool) -> Factors:
    """Returns the distances of the centres on both sides of the faces across an axis.

    Beyond a wall the cell is the mirror image of the one before it.
    """
    return {axis: steps(grid, axis, periodic), **scales(grid, axis)}


def conductances(grid: AbstractGrid, axis: int, periodic: bool) -> Factors:
    """Returns the areas of the faces across an axis over the distances of the centres on both sides."""
    return combined(areas(grid, axis), inverse(distances(grid, axis, periodic)))


def around(grid: AbstractGrid, axis: int, periodic: bool) -> np.ndarray:
    """Returns the widths of cells along an axis, in its coordinate, with a ghost cell at both ends."""
    widths = widths_of(grid, axis)
    ends = (widths[-1:], widths[:1]) if periodic else (widths[:1], widths[-1:])
    return np.concatenate([ends[0], widths, ends[1]])


def steps(grid: AbstractGrid, axis: int, periodic: bool) -> np.ndarray:
    """Returns by how much the coordinate differs between the centres on both sides of the faces across an axis."""
    widths = around(grid, axis, periodic)
    return (widths[1:] + widths[:-1]) / 2


def shares(grid: AbstractGrid, axis: int, periodic: bool) -> np.ndarray:
    """Returns the share of the distance between two centres that is in the cell before the face."""
    widths = around(grid, axis, periodic)
    return widths[:-1] / (widths[:-1] + widths[1:])


def scales(grid: AbstractGrid, axis: int) -> Factors:
    """Returns how long a unit of the coordinate along an axis is."""
    if isinstance(grid, Grid):
        return {}
    assert isinstance(grid, OrthogonalGrid)
    scale = grid.system.scale
    return {b: scale(axis, b, np.array(faces)) for b, faces in enumerate(grid.faces) if b != axis}


def widths_of(grid: AbstractGrid, axis: int) -> np.ndarray:
    """Returns the widths of cells along an axis, in its coordinate."""
    if isinstance(grid, Grid):
        return np.full(grid.shape[axis], grid.spacing[axis])
    assert isinstance(grid, OrthogonalGrid)
    return grid.widths(axis)
