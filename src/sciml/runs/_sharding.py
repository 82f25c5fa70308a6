"""The placement of the arrays of a run over devices: the same before every segment.

XLA compiles a program for each layout of its arguments, and two programs may round differently. A run resumed from
a checkpoint has the bits of one that was not interrupted only where both take every segment by the same program.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

_T = TypeVar("_T")


def settle(tree: _T) -> _T:
    """Returns arrays that are all on the mesh of the first one that is spread, replicated if they were elsewhere."""
    spread = [x.sharding for x in jax.tree.leaves(tree) if _is_spread(x) and isinstance(x.sharding, NamedSharding)]
    if not spread:
        return tree
    everywhere = NamedSharding(spread[0].mesh, PartitionSpec())
    return jax.tree.map(lambda x: x if _is_spread(x) else jax.device_put(x, everywhere), tree)


def laid_out_like(tree: _T, like: _T) -> _T:
    """Returns arrays with the placement of `like`, if these are spread over devices."""

    def place(x: jax.Array, like: jax.Array) -> jax.Array:
        return jax.device_put(x, like.sharding) if _is_spread(like) and x.sharding != like.sharding else x

    return jax.tree.map(place, tree, like)


def read_like(tree: Any, like: _T) -> _T:
    """Returns what was read from a checkpoint, on the devices of `like`."""

    def place(x: Any, like: jax.Array) -> jax.Array:
        if not _is_spread(like):
            return jnp.asarray(x)
        if isinstance(x, jax.Array) and x.sharding == like.sharding:
            return x
        return jax.make_array_from_callback(like.shape, like.sharding, lambda index: np.asarray(x)[index])

    return jax.tree.map(place, tree, like)


def _is_spread(x: jax.Array) -> bool:
    return len(x.sharding.device_set) > 1
