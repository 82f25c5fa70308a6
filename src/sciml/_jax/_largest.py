"""The largest of many numbers, NaN where one is.

On a CPU XLA takes the maximum of 4096 numbers and more by a library that passes over NaN (JAX 0.10.2 and 0.12.0.1), so
that a wrong solution looks like a right one where `jnp.max` of its error is asked for.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array


def largest(x: Array, initial: float | None = None) -> Array:
    """Returns the largest element of a real array, NaN if any is.

    Args:
        x: The array.
        initial: The smallest result; an array without elements needs it.
    """
    # NaN differs from itself; a sum of truth values goes through no such library
    missing = jnp.any(jax.lax.stop_gradient(x) != jax.lax.stop_gradient(x))
    found = jnp.max(x, initial=initial)
    return jnp.where(missing, jnp.full_like(found, jnp.nan), found)
