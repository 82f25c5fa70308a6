"""Means, differences and parts along axes."""

from collections.abc import Sequence

import jax
from jaxtyping import Array


def mean(u: Array, axis: int) -> Array:
    """Returns the means of neighbours along an axis."""
    n = u.shape[axis]
    return 0.5 * (jax.lax.slice_in_dim(u, 0, n - 1, axis=axis) + jax.lax.slice_in_dim(u, 1, n, axis=axis))


def difference(u: Array, axis: int) -> Array:
    """Returns the differences of neighbours along an axis."""
    n = u.shape[axis]
    return jax.lax.slice_in_dim(u, 1, n, axis=axis) - jax.lax.slice_in_dim(u, 0, n - 1, axis=axis)


def cut(u: Array, axes: Sequence[int], width: int) -> Array:
    """Returns an array without layers at both ends of axes."""
    for axis in axes:
        u = jax.lax.slice_in_dim(u, width, u.shape[axis] - width, axis=axis)
    return u
