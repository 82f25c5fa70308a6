"""Turns `jax.vmap` of a function into one call over lanes, however many `vmap`s are nested."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


def batched(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function over lanes into a function of one member that `jax.vmap` runs over lanes.

    Args:
        fn: `fn(count, flags, *arrays)` where `flags` says which of the arrays have members in a last
            axis of length `count`; the others are shared by all. Returns a PyTree of arrays, all with
            members last. Called with `count=None` and no flag set for one member. Must not close over
            traced values.

    Returns:
        A function of one member's arrays. Nested `vmap`s merge into one lane axis.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.kernels import lanes

        seen = []

        def double(count, flags, x):
            seen.append((count, x.shape))
            return 2 * x

        out = jax.vmap(jax.vmap(lanes.batched(double)))(jnp.ones((4, 5, 3)))
        assert out.shape == (4, 5, 3) and seen[-1] == (20, (3, 20))
        ```
    """

    @custom_vmap
    def single(*arrays):
        return fn(None, (False,) * len(arrays), *arrays)

    @single.def_vmap
    def _(size, in_batched, *arrays):
        arrays = [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(arrays, in_batched)]
        out = _over_lanes(fn, size, tuple(in_batched))(*arrays)
        return out, jax.tree.map(lambda _: True, out)

    return single


def _over_lanes(fn, count: int, flags: tuple[bool, ...]) -> Callable[..., Any]:
    @custom_vmap
    def run(*arrays):
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), fn(count, flags, *arrays))

    @run.def_vmap
    def _(size, in_batched, *arrays):
        merged = [_merge(x, old, new, count, size) for x, old, new in zip(arrays, flags, in_batched)]
        both = tuple(old or new for old, new in zip(flags, in_batched))
        out = _over_lanes(fn, count * size, both)(*merged)
        out = jax.tree.map(lambda x: jnp.moveaxis(x.reshape((count, size) + x.shape[1:]), 1, 0), out)
        return out, jax.tree.map(lambda _: True, out)

    return run


def _merge(x: Any, old: bool, new: bool, count: int, size: int) -> Any:
    """Joins an outer batch axis (first, where `new`) to the lanes (last, where `old`)."""
    if not old and not new:
        return x
    x = jnp.moveaxis(x, 0, -1) if new else x[..., None]
    x = x if old else x[..., None, :]
    shape = x.shape[:-2]
    return jnp.broadcast_to(x, shape + (count, size)).reshape(shape + (count * size,))
