"""Ghost cells of grids whose cells differ: one layer, each the mirror image of the cell at the wall."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._conditions import AbstractWall, Dirichlet, Extrapolate, Neumann, Periodic, Robin
from . import _metric
from ._orthogonal_grid import OrthogonalGrid

KINDS = (Periodic, Dirichlet, Neumann, Robin, Extrapolate)


def coefficients(side: AbstractWall) -> tuple[Any, Any, Any]:
    r"""Returns $a$, $b$ and $c$ of a condition $a u + b\, \partial u / \partial n = c$."""
    if isinstance(side, Dirichlet):
        return 1.0, 0.0, side.value
    if isinstance(side, Neumann):
        return 0.0, 1.0, side.slope
    assert isinstance(side, Robin)
    return side.a, side.b, side.c


def pad_axis(u: Array, grid: OrthogonalGrid, axis: int, pair: Any, accuracy: int) -> Array:
    """Returns a field with one ghost layer at both ends of an axis; the axes before it may be padded already.

    Args:
        u: The field.
        grid: The grid.
        axis: The axis.
        pair: The conditions at both ends; their values have the axes of the field, or none.
        accuracy: 2 for mirror images, 3 for polynomials through two cells.
    """
    at = u.ndim - grid.ndim + axis
    n = u.shape[at]
    if isinstance(pair[0], Periodic):
        first, last = jax.lax.slice_in_dim(u, 0, 1, axis=at), jax.lax.slice_in_dim(u, n - 1, n, axis=at)
        return jnp.concatenate([last, u, first], axis=at)
    low, high = at_walls(u, grid, axis, pair, accuracy)
    return jnp.concatenate([low, u, high], axis=at)


def at_walls(
    u: Array, grid: OrthogonalGrid, axis: int, pair: Any, accuracy: int, here: _metric.Here = None
) -> tuple[Array, Array]:
    """Returns the ghost layers at both ends of an axis that is not periodic.

    Args:
        u: The field, or a block of it.
        grid: The whole grid.
        axis: The axis.
        pair: The conditions at both ends.
        accuracy: 2 for mirror images, 3 for polynomials through two cells.
        here: The parts of vectors that belong to a block.
    """
    if axis == 0 and grid.on_axis:
        low = across_the_axis(jax.lax.slice_in_dim(u, 0, 1, axis=u.ndim - grid.ndim), grid)
    else:
        low = _ghost(u, grid, axis, pair[0], accuracy, False, here)
    return low, _ghost(u, grid, axis, pair[1], accuracy, True, here)


def across_the_axis(first: Array, grid: OrthogonalGrid) -> Array:
    """Returns the values on the other side of the axis, if all angles are present: the cells half a turn away."""
    return jnp.roll(first, grid.shape[1] // 2, 1 - grid.ndim) if grid.turns else first


def _ghost(
    u: Array, grid: OrthogonalGrid, axis: int, side: Any, accuracy: int, upper: bool, here: _metric.Here
) -> Array:
    at = u.ndim - grid.ndim + axis
    n, widths = u.shape[at], _metric.widths_of(grid, axis)
    if upper:
        widths = widths[::-1]
    points = 2 if (accuracy > 2 or isinstance(side, Extrapolate)) and n > 1 else 1
    if isinstance(side, Extrapolate) and accuracy == 1:
        points = 1
    places = [float(widths[0]) / 2]
    if points == 2:
        places.append(float(widths[0] + widths[1] / 2))
    take = [n - 1 - j if upper else j for j in range(points)]
    layers = [jax.lax.slice_in_dim(u, j, j + 1, axis=at) for j in take]
    outside = -places[0]  # distances from the wall count inwards

    if points == 1:
        share, slope, beyond = [1.0], [0.0], [1.0]
        vanishing = (-places[0], 1.0, outside - places[0])  # at the wall, its slope there, at the ghost
    else:
        p, q = places
        share, slope = [q / (q - p), -p / (q - p)], [-1 / (q - p), 1 / (q - p)]
        beyond = [(q - outside) / (q - p), (outside - p) / (q - p)]
        vanishing = (p * q, -(p + q), (outside - p) * (outside - q))
    continued = sum(w * x for w, x in zip(beyond[1:], layers[1:])) + beyond[0] * layers[0]
    if isinstance(side, Extrapolate):
        return continued

    a, b, c = (_value(x, u) for x in coefficients(side))
    length = _length(u, grid, axis, here)
    b = b if length is None else b / length
    value = sum(w * x for w, x in zip(share, layers))
    change = sum(w * x for w, x in zip(slope, layers))  # inwards
    # what vanishes at the cells is added as often as the condition needs
    factor = (c - a * value + b * change) / (a * vanishing[0] - b * vanishing[1])
    return continued + vanishing[2] * factor


def _value(x: Any, u: Array) -> Any:
    return x if isinstance(x, float) else jnp.asarray(x, u.dtype)


def _length(u: Array, grid: OrthogonalGrid, axis: int, here: _metric.Here) -> Array | None:
    """How long a unit of the coordinate is, over a side; the axes before may have ghost cells."""
    found = {other: factor for other, factor in _metric.scales(grid, axis).items() if not np.all(factor == 1)}
    if not found:
        return None
    lead = u.ndim - grid.ndim
    cells = {b: len(x) if here is None else here(jnp.asarray(x), b).shape[0] for b, x in found.items()}
    wider = {b: np.pad(x, 1, mode="edge") if u.shape[lead + b] == cells[b] + 2 else x for b, x in found.items()}
    return _metric.times(jnp.ones((1,) * u.ndim, u.dtype), grid.ndim, wider, here)
