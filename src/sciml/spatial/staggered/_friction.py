"""Viscosity that varies from place to place."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import Args, RealScalarLike
from .._conditions import Periodic
from ._spacing import over_gaps, over_widths
from ._velocity import StaggeredVelocity, Velocity, cut, difference, mean


def magnitude(velocity: StaggeredVelocity, strain: dict[tuple[int, int], Array]) -> Float[Array, "..."]:
    r"""Returns $|S| = \sqrt{2 S_{ij} S_{ij}}$ at centres, with the derivative zero where it is zero."""
    square = None
    for (i, j), part in strain.items():
        term = 2 * part**2 if i == j else 4 * mean(mean(part**2, i), j)
        square = term if square is None else square + term
    assert square is not None
    moves = square > 0
    return jnp.where(moves, jnp.sqrt(jnp.where(moves, square, jnp.ones_like(square))), jnp.zeros_like(square))


def friction(
    velocity: StaggeredVelocity, strain: dict[tuple[int, int], Array], viscosity: Float[Array, "..."]
) -> Velocity:
    r"""Returns $\nabla \cdot (2 \nu S)$ at the unknown faces, with $\nu$ at centres and its mean at edges."""
    grid, ndim, periodic = velocity.grid, velocity.grid.ndim, velocity.pressure.periodic
    wide = velocity.pressure.extend(viscosity, 1, accuracy=1)
    found = []
    for i in range(ndim):
        total = None
        for j in range(ndim):
            if i == j:
                stress = _beyond(velocity, 2 * viscosity * strain[i, i], i)
            else:
                edges = mean(mean(cut(wide, [axis for axis in range(ndim) if axis not in (i, j)], 1), i), j)
                stress = velocity.to_unknown(2 * edges * strain[min(i, j), max(i, j)], i)
            if i == j:
                term = over_gaps(grid, difference(stress, j), j, periodic[j], velocity.component(i).location[i])
            else:
                term = over_widths(grid, difference(stress, j), j)
            total = term if total is None else total + term
        assert total is not None
        found.append(total)
    return tuple(found)


def laplacian(velocity: StaggeredVelocity, u: Velocity, t: RealScalarLike, args: Args) -> Velocity:
    r"""Returns $\nabla^2 u$ at the unknown faces of a grid whose cells differ."""
    grid, ndim, periodic, found = velocity.grid, velocity.grid.ndim, velocity.pressure.periodic, []
    for i, part in enumerate(u):
        padded, location = velocity.padded(i, part, t=t, args=args), velocity.component(i).location[i]
        total = None
        for j in range(ndim):
            change = difference(cut(padded, [axis for axis in range(ndim) if axis != j], 1), j)
            if i == j:
                slope = over_widths(grid, change, j, periodic[j], location)
                term = over_gaps(grid, difference(slope, j), j, periodic[j], location)
            else:
                term = over_widths(grid, difference(over_gaps(grid, change, j, periodic[j]), j), j)
            total = term if total is None else total + term
        assert total is not None
        found.append(total)
    return tuple(found)


def _beyond(velocity: StaggeredVelocity, stress: Array, axis: int) -> Array:
    """Normal stresses at centres, with those beyond a side where the face on it is unknown: there they vanish."""
    n, (low, _) = velocity.grid.shape[axis], velocity.sides[axis]
    first, last = jax.lax.slice_in_dim(stress, 0, 1, axis=axis), jax.lax.slice_in_dim(stress, n - 1, n, axis=axis)
    location = velocity.component(axis).location[axis]
    blocks = velocity.blocks
    if blocks is not None and blocks.devices(axis) > 1:
        walls = not isinstance(low, Periodic)
        beyond = blocks.neighbours(first, last, axis, walls)
        below, above = blocks.at_edges((-first, -last), beyond, axis) if walls else beyond
        return jnp.concatenate([stress, above] if location == "upper" else [below, stress], axis)
    if isinstance(low, Periodic):
        return jnp.concatenate([last, stress], axis)
    parts = [-first] if location in ("lower", "node") else []
    parts += [stress] + ([-last] if location in ("upper", "node") else [])
    return jnp.concatenate(parts, axis)
