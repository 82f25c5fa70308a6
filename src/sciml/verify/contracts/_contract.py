"""Comparisons shared by the checks of contracts, which report failures with numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ..._jax._largest import largest


def check(condition: bool, message: str) -> None:
    """Raises an AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(f"{message}.")


def check_same_arrays(found: PyTree, expected: PyTree, rule: str) -> None:
    """Checks that two PyTrees have the same structure, shapes and dtypes."""
    trees = jax.tree.structure(found), jax.tree.structure(expected)
    check(trees[0] == trees[1], f"{rule}, but its structure is {trees[0]} instead of {trees[1]}")
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        where = jax.tree_util.keystr(path) or "the array"
        check(
            a.shape == b.shape and a.dtype == b.dtype,
            f"{rule}, but {where} is {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}",
        )


def check_close(found: PyTree, expected: PyTree, rtol: float, what: str, other: str, atol: float = 1e-10) -> None:
    """Checks that two PyTrees agree, relative to the largest element of each leaf, or to 1 in part.

    Raises:
        AssertionError: With the worst element of the first leaf that differs.
    """
    pairs = zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True)
    for (path, a), b in pairs:
        a, b = np.asarray(a), np.asarray(b)
        check(a.shape == b.shape, f"{what} has shape {a.shape}, but {other} {b.shape}")
        if not b.size:
            continue
        off = np.abs(a - b)
        worst = np.unravel_index(np.argmax(np.where(np.isnan(off), np.inf, off)), off.shape)
        allowed = atol + rtol * max(float(np.max(np.abs(b))), 0.01)
        check(
            bool(off[worst] <= allowed),
            f"{what} differs from {other} at {jax.tree_util.keystr(path)}{list(map(int, worst))}: {a[worst]} instead "
            f"of {b[worst]}, more than {allowed:.1e}",
        )


def largest_difference(a: Any, b: Any) -> Any:
    """Returns by how much two arrays differ at most."""
    return largest(jnp.abs(a - b))


def converted(tree: PyTree, dtype: DTypeLike) -> PyTree:
    """Returns a PyTree with its floating-point arrays in that precision, and complex ones likewise."""

    def convert(x: Any) -> Any:
        if not eqx.is_inexact_array(x):
            return x
        complex_dtype = jnp.complex128 if jnp.dtype(dtype) == jnp.float64 else jnp.complex64
        return jnp.asarray(x, complex_dtype if jnp.iscomplexobj(x) else dtype)

    return jax.tree.map(convert, tree)


def perturbed(tree: PyTree, members: int) -> PyTree:
    """Returns a PyTree of members that differ in all floating-point arrays, each with an axis in front."""
    return jax.tree.map(lambda x: jnp.stack([x * (1 + 0.04 * i) for i in range(members)]), tree)


def stacked(trees: Sequence[PyTree]) -> PyTree:
    """Returns members joined along an axis in front."""
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def counted(model: Callable) -> tuple[Callable, Callable[[], int]]:
    """Returns a function that calls a model, and one that returns the number of calls."""
    calls = []

    def count(t, y, args):
        calls.append(None)
        return model(t, y, args)

    return count, lambda: len(calls)
