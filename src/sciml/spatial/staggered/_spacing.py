"""Differences and means on grids whose cells are all alike, or differ along each axis."""

from jaxtyping import Array

from .._abstract_grid import LOCATIONS, AbstractGrid
from .._grid import Grid
from ..geometry import _metric
from ._differences import mean


def over_widths(grid: AbstractGrid, x: Array, axis: int, periodic: bool = False, location: str | None = None) -> Array:
    """Returns differences between faces, at the cells along an axis, over the widths of these.

    Args:
        grid: The grid.
        x: The differences, at all cells or at those on both sides of the faces of a location.
        axis: The axis.
        periodic: Whether it is periodic; beyond a wall cells are as wide as the last one before it.
        location: Of which faces; None for all cells.
    """
    if isinstance(grid, Grid):
        return x / grid.spacing[axis]
    widths = _metric.widths_of(grid, axis)
    if location is not None:
        first, extra = LOCATIONS[location]
        widths = _metric.around(grid, axis, periodic)[int(first) : int(first) + grid.shape[axis] + extra + 1]
    return _metric.times(x, grid.ndim, {axis: 1 / widths})


def over_gaps(grid: AbstractGrid, x: Array, axis: int, periodic: bool, location: str | None = None) -> Array:
    """Returns differences between cells, at the faces across an axis, over the distances of their centres.

    Args:
        grid: The grid.
        x: The differences, at all faces or at the faces of a location.
        axis: The axis.
        periodic: Whether it is periodic; beyond a wall cells are as wide as the last one before it.
        location: At which faces; None for all, one more than cells.
    """
    if isinstance(grid, Grid):
        return x / grid.spacing[axis]
    gaps = _metric.steps(grid, axis, periodic)
    if location is not None:
        first, extra = LOCATIONS[location]
        gaps = gaps[int(first) : int(first) + grid.shape[axis] + extra]
    return _metric.times(x, grid.ndim, {axis: 1 / gaps})


def mean_by_widths(grid: AbstractGrid, x: Array, axis: int, periodic: bool) -> Array:
    """Returns the means of neighbouring cells, of which each counts by its width; `x` has one ghost layer there."""
    if isinstance(grid, Grid):
        return mean(x, axis)
    widths = _metric.around(grid, axis, periodic)
    total = mean(_metric.times(x, grid.ndim, {axis: widths}), axis)
    return _metric.times(total, grid.ndim, {axis: 2 / (widths[1:] + widths[:-1])})


def finest(grid: AbstractGrid) -> tuple[float, ...]:
    """Returns the width of the finest cell along each axis."""
    return tuple(float(_metric.widths_of(grid, axis).min()) for axis in range(grid.ndim))


def broadest(grid: AbstractGrid) -> tuple[float, ...]:
    """Returns the width of the broadest cell along each axis."""
    return tuple(float(_metric.widths_of(grid, axis).max()) for axis in range(grid.ndim))
