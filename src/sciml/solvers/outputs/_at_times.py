"""A function of time at one time or many."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._types import Y


def at_times(fn: Callable[[Array], Y], t: Any, ts: Array) -> Y:
    """Returns a function of time at one time or many.

    Raises:
        ValueError: If the solution is that of many members.
        TypeError: If the times are no real numbers.
    """
    if ts.ndim != 1:
        raise ValueError(
            "This is the solution of many members: write `jax.vmap(lambda sol: sol.evaluate(t))(sol)`, which takes "
            "one after another."
        )
    if not jnp.issubdtype(jnp.result_type(t), jnp.floating) and not jnp.issubdtype(jnp.result_type(t), jnp.integer):
        raise TypeError(f"`t` must be real numbers, but has dtype {jnp.result_type(t)}.")
    t = jnp.asarray(t, ts.dtype)
    found = jax.vmap(fn)(t.reshape(-1))
    return jax.tree.map(lambda x: x.reshape(t.shape + x.shape[1:]), found)
