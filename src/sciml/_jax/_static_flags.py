"""Truth values that the forward pass of a rule of reverse mode leaves for the backward pass.

Under `jax.jit`, JAX keeps the program of a forward pass for each set of arguments that are differentiated, but the
structure of what it leaves once for all, that of the pass traced last. A truth value in that structure would be another
pass's. As the shape of an empty array it belongs to the program.
"""

from collections.abc import Iterable

import jax.numpy as jnp
from jaxtyping import Array


def as_shapes(flags: Iterable[bool]) -> tuple[Array, ...]:
    """Returns an empty array for each truth value."""
    return tuple(jnp.zeros((int(flag), 0), jnp.bool_) for flag in flags)


def of_shapes(arrays: Iterable[Array]) -> tuple[bool, ...]:
    """Returns the truth values of empty arrays."""
    return tuple(x.shape[0] > 0 for x in arrays)
