"""A state as one real vector, for methods that factorise matrices."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import Y


def flattened(y: Y) -> Float[Array, " n"]:
    """Returns all elements of a state as one vector of the widest of its real dtypes.

    Of a complex element the real part comes first, the imaginary part next to it.
    """
    leaves = [_real(x) for x in jax.tree.leaves(y)]
    if len(leaves) == 1:
        return leaves[0].reshape(-1)
    dtype = max((x.dtype for x in leaves), key=lambda dtype: dtype.itemsize)
    return jnp.concatenate([x.reshape(-1).astype(dtype) for x in leaves])


def unflattened(x: Float[Array, " n"], like: Y) -> Y:
    """Returns a vector with the structure, shapes and dtypes of a state."""
    leaves, treedef = jax.tree.flatten(like)
    parts, start = [], 0
    for leaf in leaves:
        if jnp.iscomplexobj(leaf):
            count = 2 * math.prod(leaf.shape)
            pair = x[start : start + count].reshape(*leaf.shape, 2).astype(jnp.finfo(leaf.dtype).dtype)
            parts.append(jax.lax.complex(pair[..., 0], pair[..., 1]))
        else:
            count = math.prod(leaf.shape)
            parts.append(x[start : start + count].reshape(leaf.shape).astype(leaf.dtype))
        start += count
    return jax.tree.unflatten(treedef, parts)


def elements_of(y: Y) -> tuple[np.ndarray, np.ndarray]:
    """Returns of which element of the state each number of the vector is, and whether its imaginary part."""
    elements, imaginary, start = [], [], 0
    for leaf in jax.tree.leaves(y):
        parts = 2 if jnp.iscomplexobj(leaf) else 1
        numbers = start + np.arange(math.prod(leaf.shape))
        elements.append(np.repeat(numbers, parts))
        imaginary.append(np.tile(np.arange(parts), numbers.size))
        start += numbers.size
    return np.concatenate(elements), np.concatenate(imaginary) == 1


def _real(x: Array) -> Array:
    return jnp.stack([jnp.real(x), jnp.imag(x)], axis=-1) if jnp.iscomplexobj(x) else x
