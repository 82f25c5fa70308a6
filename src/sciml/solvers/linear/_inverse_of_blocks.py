"""Inverses of many small blocks at once, the blocks last, each by elimination with exchanges of rows."""

import jax.numpy as jnp
from jaxtyping import Array

from ..._choices import choices
from ..._jax._vma import match
from ._written_out import factorised, substituted


def inverse_of_blocks(a: Array) -> Array:
    """Returns the inverses of blocks, of shape `(size, size, *blocks)`, by elimination with exchanges of rows."""
    flat = a.reshape(*a.shape[:2], -1)
    small = a.shape[0] <= choices().linear.inverse_at_most
    return (_inverse_written_out if small else _inverse_by_rows)(flat).reshape(a.shape)


def _inverse_written_out(a: Array) -> Array:
    n = a.shape[0]
    factors = factorised([list(row) for row in a], pivot=n > 1)
    one, zero = jnp.ones_like(a[0, 0]), jnp.zeros_like(a[0, 0])
    columns = [substituted(factors, [one if i == j else zero for i in range(n)]) for j in range(n)]
    return jnp.stack([jnp.stack(column) for column in columns], axis=1)


def _inverse_by_rows(a: Array) -> Array:
    """Gauss-Jordan elimination."""
    n = a.shape[0]
    one = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype)[:, :, None], a.shape)
    rows = jnp.concatenate([a, match(one, a)], axis=1)
    places = jnp.arange(n)[:, None]
    for k in range(n):
        sizes = jnp.where(places < k, -1, jnp.abs(rows[:, k]))
        best = places == jnp.argmax(sizes, axis=0)[None]
        chosen = jnp.sum(jnp.where(best[:, None], rows, 0), axis=0)
        rows = jnp.where(best[:, None], rows[k][None], rows)
        pivot = chosen / chosen[k][None]
        others = rows - rows[:, k, None] * pivot[None]
        rows = jnp.where((places == k)[:, None], pivot[None], others)
    return rows[:, n:]
