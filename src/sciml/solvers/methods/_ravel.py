"""A state as one vector, for methods that factorise matrices."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import Y


def flattened(y: Y) -> Float[Array, " n"]:
    """Returns all elements of a real state as one vector of the widest of its dtypes."""
    leaves = jax.tree.leaves(y)
    if len(leaves) == 1:
        return leaves[0].reshape(-1)
    dtype = max((x.dtype for x in leaves), key=lambda dtype: dtype.itemsize)
    return jnp.concatenate([x.reshape(-1).astype(dtype) for x in leaves])


def unflattened(x: Float[Array, " n"], like: Y) -> Y:
    """Returns a vector with the structure, shapes and dtypes of a state."""
    leaves, treedef = jax.tree.flatten(like)
    parts, start = [], 0
    for leaf in leaves:
        count = math.prod(leaf.shape)
        parts.append(x[start : start + count].reshape(leaf.shape).astype(leaf.dtype))
        start += count
    return jax.tree.unflatten(treedef, parts)
