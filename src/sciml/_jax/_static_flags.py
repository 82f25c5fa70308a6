"""Truth values and numbers that the forward pass of a rule of reverse mode leaves for the backward pass.

Under `jax.jit`, JAX keeps the program of a forward pass for each set of differentiated arguments, but the structure of
its residuals only once, from the pass traced last. A truth value in that structure would be another pass's. As the
shape of a small array it belongs to the program. The array is not empty: XLA of JAX 0.11.2 ends the process where an
empty one leaves a `shard_map`.
"""

from collections.abc import Iterable

import jax.numpy as jnp
from jaxtyping import Array


def as_shapes(flags: Iterable[bool]) -> tuple[Array, ...]:
    """Returns a small array for each truth value."""
    return tuple(_of_length(int(flag)) for flag in flags)


def of_shapes(arrays: Iterable[Array]) -> tuple[bool, ...]:
    """Returns the truth values of small arrays."""
    return tuple(x.shape[0] > 1 for x in arrays)


def number_as_shape(number: int) -> Array:
    """Returns a small array for a small number, which is not negative."""
    return _of_length(number)


def number_of_shape(array: Array) -> int:
    """Returns the number of a small array, which may have other axes after the first."""
    return array.shape[0] - 1


def _of_length(number: int) -> Array:
    return jnp.zeros((number + 1,), jnp.bool_)
