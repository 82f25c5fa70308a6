"""Sums and largest values over a field of which every device holds a part.

Under the types of `jax.shard_map` an array that is the same on all devices is known to be, and counts once. If
`check_vma` is off, nothing is known, and every array is treated as a part.
"""

import functools as ft

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._largest import largest as largest_of
from ..._jax._vma import vma_of

Names = tuple[str, ...]


def split_over(x: Array, names: Names) -> Names:
    """Returns the mesh axes among `names` over which the parts of `x` differ."""
    if not names:
        return ()
    if not vma_of(jax.lax.axis_index(names[0])):  # `check_vma` is off
        return names
    varying = vma_of(x)
    return tuple(name for name in names if name in varying)


def total(x: Array, names: Names) -> Array:
    """Returns the sum of all elements, of all parts."""
    over = split_over(x, names)
    local = jnp.sum(x)
    return jax.lax.psum(local, over) if over else local


def largest(x: Array, names: Names) -> Array:
    """Returns the largest of all elements, NaN if any is."""
    over = split_over(x, names)
    return _largest(x, over) if over else largest_of(x)


@ft.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _largest(x: Array, over: Names) -> Array:
    local = largest_of(x)
    missing = jnp.isnan(local)
    # a maximum over devices need not pass NaN on
    found = jax.lax.pmax(jnp.stack([jnp.where(missing, -jnp.inf, local), missing.astype(local.dtype)]), over)
    return jnp.where(found[1] > 0, jnp.nan, found[0])


@_largest.defjvp
def _largest_jvp(over: Names, primals: tuple, tangents: tuple) -> tuple:
    # JAX has no derivative of a maximum over devices; equal elements share it, as in `jnp.max`
    (x,), (dx,) = primals, tangents
    found = _largest(x, over)
    chosen = (x == found).astype(x.dtype)
    return found, jax.lax.psum(jnp.sum(chosen * dx), over) / jax.lax.psum(jnp.sum(chosen), over)


def everywhere(holds: Array, names: Names) -> Array:
    """Returns whether all elements are true, of all parts."""
    over = split_over(holds, names)
    here = jnp.all(holds)
    return jax.lax.psum((~here).astype(jnp.int32), over) == 0 if over else here


def count(x: Array, names: Names) -> int:
    """Returns the number of elements, of all parts."""
    size = x.size
    for name in split_over(x, names):
        size *= jax.lax.axis_size(name)
    return size
