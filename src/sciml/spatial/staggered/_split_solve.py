"""Solves by transforms of a field that is split over devices, whose places need not all be unknowns."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..elliptic import _split_transform as split_transform
from ..elliptic._separable import eigenvalues, separate
from ..elliptic._transform_solver import divide
from ._split_boundaries import SplitBoundaries


def divide_split(boundary: SplitBoundaries, f: Array, denominator: Callable[[Array], Array]) -> Array:
    """Returns the block of the field whose coefficients are those of `f` over a function of the eigenvalues.

    Where that is zero they are zero.

    Args:
        boundary: The conditions.
        f: The block of a real field, with any number where a place is no unknown.
        denominator: The function of the eigenvalues of the Laplacian.

    Raises:
        ValueError: If some axis has no fast transform; the message names it.
    """
    blocks, whole = boundary.blocks, boundary.whole
    axes, ndim = separate(whole, 2), boundary.grid.ndim
    devices = [blocks.devices(axis) for axis in range(ndim)]
    steps = split_transform.plan(axes, devices, [name == "inner" for name in whole.location])
    if steps is not None:
        return split_transform.divide(axes, steps, f, blocks, denominator)
    # a transform needs whole axes, and none is whole: each device solves all of it
    everywhere = blocks.whole(f)
    for axis, name in enumerate(whole.location):
        if name == "inner" and devices[axis] > 1:
            at = f.ndim - ndim + axis
            everywhere = jax.lax.slice_in_dim(everywhere, 1, everywhere.shape[at], axis=at)
    values = denominator(eigenvalues(axes, [jnp.ones((), f.dtype)] * ndim, True))
    return boundary.unknown(boundary.part(divide(axes, everywhere, values)))
