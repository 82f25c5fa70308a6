"""Whether a problem without a value at any side has a solution at all."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._checks import concrete
from .._boundaries import Boundaries
from .._grid import Grid
from ..geometry._flux_form import in_fluid


def mean(boundary: Boundaries, f: Array) -> Array:
    """Returns the means of fields over the box, or over the fluid around a body."""
    grid = boundary.grid
    weights = grid.volumes(boundary.location)
    if isinstance(grid, Grid) and boundary.body is None:
        weights = weights / float(np.prod(grid.extent))
    else:
        weights = in_fluid(boundary, jnp.broadcast_to(weights, boundary.shape))
        weights = weights / jnp.sum(weights)
    weights = (
        jnp.broadcast_to(weights, boundary.shape).astype(f.dtype).reshape((1,) * (f.ndim - grid.ndim) + boundary.shape)
    )
    return jnp.sum(f * weights, axis=tuple(range(-grid.ndim, 0)), keepdims=True)


def without_mean(boundary: Boundaries, f: Array, data: Any) -> Array:
    """Returns a right-hand side, values at the walls included, without its mean.

    Args:
        boundary: The boundary, which gives a value at no side.
        f: The right-hand side.
        data: The user's data; if they are known, they are checked.

    Raises:
        ValueError: If the data is known and incompatible.
    """
    found = mean(boundary, f)
    if all(map(concrete, data)) and concrete(f):
        size = float(jnp.max(jnp.abs(f), initial=0.0))
        worst = float(jnp.max(jnp.abs(found), initial=0.0))
        if worst > float(jnp.finfo(f.dtype).eps) ** 0.5 * size:
            raise ValueError(
                f"the data is incompatible: with only `Neumann` and `Periodic` sides, the source and the slopes at the "
                f"walls must balance, but their mean over the box is {worst:.3g} (largest value {size:.3g}). "
                "Subtract the mean from the right-hand side, or use `Dirichlet` at some side."
            )
    return in_fluid(boundary, f - found)
