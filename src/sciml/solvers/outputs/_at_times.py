"""A function of time at one time or many."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._members_apart import members_apart
from ..._types import Y


def at_times(fn: Callable[[Any, Array], Y], output: Any, t: Any, no_forward_mode: str | None = None) -> Y:
    """Returns `fn(output, t)` at one time or many; `output.ts` are the times of the solution.

    Args:
        fn: The function.
        output: Its other input, in addition to the time.
        t: The times.
        no_forward_mode: The error of forward mode, if the function only has reverse mode.

    Raises:
        ValueError: If the solution holds many members.
        TypeError: If the times are not real numbers.
    """
    ts = output.ts
    if ts.ndim != 1:
        raise ValueError(
            "This solution holds many members. Write `jax.vmap(lambda sol: sol.evaluate(t))(sol)` to evaluate each "
            "of them."
        )
    if not jnp.issubdtype(jnp.result_type(t), jnp.floating) and not jnp.issubdtype(jnp.result_type(t), jnp.integer):
        raise TypeError(f"`t` must be real numbers, but has dtype {jnp.result_type(t)}.")
    t = jnp.asarray(t, ts.dtype)
    found = members_apart(jax.vmap(fn, in_axes=(None, 0)), no_forward_mode)(output, t.reshape(-1))
    return jax.tree.map(lambda x: x.reshape(t.shape + x.shape[1:]), found)
