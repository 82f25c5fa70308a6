"""Checks of the contract of `sciml.parallel.AbstractReduction`."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


def check_reduction(
    reduction: Any, values: PyTree, *, blocks: Sequence[int] = (1, 3, 8), rtol: float = 1e-6, atol: float = 1e-12
) -> PyTree:
    """Checks that a reduction satisfies the requirements of `sweep(..., reduce=...)`; for custom reductions.

    The result does not depend on how the members are split into blocks, up to a tolerance; members that failed, and the
    copies that fill up the last block, do not count, for any values; a block in which all failed is allowed;
    `of_block` can be traced and returns arrays whose shapes depend only on the shapes of the values.

    Args:
        reduction: A `sciml.parallel.AbstractReduction`.
        values: The values of the members, arrays with a leading axis of five members or more.
        blocks: The numbers of members in a block to compare.
        rtol: How far the results may differ, relative to the first.
        atol: The allowed difference if it is nearly zero.

    Returns:
        The result for all members.

    Raises:
        AssertionError: If the reduction breaks a rule, which the message names.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import numpy as np
        from sciml import parallel, verify

        class Largest(parallel.AbstractReduction):
            def of_block(self, values, good, ids):
                def largest(x):
                    mask = good.reshape((-1,) + (1,) * (x.ndim - 1))
                    return jnp.max(jnp.where(mask, x, -jnp.inf), axis=0)

                return jax.tree.map(largest, values)

            def merge(self, so_far, block):
                return block if so_far is None else jax.tree.map(np.maximum, so_far, block)

            def result(self, merged):
                return merged

        states = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
        assert np.array_equal(verify.check_reduction(Largest(), states), states.max(axis=0))
        ```
    """
    values = jax.tree.map(np.asarray, values)
    sizes = {x.shape[:1] for x in jax.tree.leaves(values)}
    if len(sizes) != 1 or next(iter(sizes)) < (5,):
        raise ValueError(
            f"`values` must contain arrays with the same leading axis of at least five members, got {sizes}."
        )
    ((n,),) = sizes
    every, nobody = np.ones(n, bool), np.zeros(n, bool)
    whole = _reduced(reduction, values, every, n)
    for block in blocks:
        _check_close(_reduced(reduction, values, every, block), whole, rtol, atol, f"blocks of {block} members")
    good = np.arange(n) % 3 != 1
    rest = _reduced(reduction, values, good, 4)
    for other in (np.nan, 1e30, -1e30):
        spoilt = jax.tree.map(lambda x, other=other: _spoilt(x, good, other), values)
        _check_close(_reduced(reduction, spoilt, good, 4), rest, rtol, atol, f"failed members with values of {other}")
    _reduced(reduction, values, nobody, 4)  # may return anything, such as NaN, but must not fail
    late = _reduced(reduction, values, np.arange(n) >= 4, 4)
    _check_close(_reduced(reduction, values, np.arange(n) >= 4, n), late, rtol, atol, "a first block that failed")
    return whole


def _reduced(reduction: Any, values: PyTree, good: np.ndarray, block: int) -> PyTree:
    """Returns the result of a sweep over these members, in blocks of that size."""
    n, merged, of_block = good.size, None, jax.jit(reduction.of_block)
    shapes = None
    for first in range(0, n, block):
        ids = np.arange(first, first + block)
        there = np.minimum(ids, n - 1)  # the last member again fills up the last block, and does not count
        part = jax.tree.map(lambda x, there=there: jnp.asarray(x[there]), values)
        summary = of_block(part, jnp.asarray(good[there] & (ids < n)), jnp.asarray(there, jnp.int32))
        found = [(x.shape, x.dtype) for x in jax.tree.leaves(summary)]
        if shapes is not None and found != shapes:
            raise AssertionError(
                f"`of_block` must return the same shapes for every block, but returned {found} after {shapes}."
            )
        shapes = found
        merged = reduction.merge(merged, jax.tree.map(np.asarray, summary))
    return reduction.result(merged)


def _spoilt(x: np.ndarray, good: np.ndarray, other: float) -> np.ndarray:
    if not np.issubdtype(x.dtype, np.inexact):
        other = 0 if np.isnan(other) else np.sign(other) * 100
    x = x.copy()
    x[~good] = np.asarray(other).astype(x.dtype)
    return x


def _check_close(found: PyTree, expected: PyTree, rtol: float, atol: float, what: str) -> None:
    if jax.tree.structure(found) != jax.tree.structure(expected):
        raise AssertionError(f"The result must not depend on {what}, but its structure does.")
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if not np.shape(x) == np.shape(y) or not np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True):
            raise AssertionError(f"The result must not depend on {what}, but is {x} instead of {y}.")
