"""One trajectory of observations, cut into windows of equal length."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree


class Windows(eqx.Module):
    """Windows of a trajectory, the first axis of every array; each ends where the next one starts.

    Attributes:
        number: The place of each window, from 0, shape `(windows,)`.
        ts: The times of its observations, from its start to its end, shape `(windows, times)`. A last one that is
            shorter stays at its end.
        ys: The observations, each leaf of shape `(windows, times, ...)`; zero where there is none.
        seen: Where there is one, like `ys`.
    """

    number: Int[Array, " windows"]
    ts: Float[Array, "windows times"]
    ys: PyTree[Float[Array, "windows times ..."]]
    seen: PyTree[Bool[Array, "windows times ..."]]


def windows_of(ts: np.ndarray, ys: PyTree, length: int) -> Windows:
    """Cuts a trajectory into windows of `length` intervals between observations."""
    count = -(-(len(ts) - 1) // length)
    places = np.arange(count)[:, None] * length + np.arange(length + 1)
    inside = places < len(ts)
    rows = np.minimum(places, len(ts) - 1)

    def cut(y: np.ndarray) -> tuple[Array, Array]:
        values = y[rows]
        seen = np.isfinite(values) & inside.reshape(inside.shape + (1,) * (y.ndim - 1))
        return jnp.asarray(np.where(seen, values, 0)), jnp.asarray(seen)

    leaves, treedef = jax.tree.flatten(ys)
    pieces = [cut(y) for y in leaves]
    values, seen = (jax.tree.unflatten(treedef, [piece[i] for piece in pieces]) for i in range(2))
    return Windows(jnp.arange(count), jnp.asarray(ts[rows]), values, seen)


def filled(ts: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns observations with those that are missing on straight lines between their neighbours in time.

    Raises:
        ValueError: If a component is missing at all times.
    """
    columns = y.reshape(len(ts), -1).copy()
    for j in range(columns.shape[1]):
        seen = np.isfinite(columns[:, j])
        if not seen.any():
            raise ValueError(
                "`multiple_shooting`: a component of `ys` is missing at all times, so that there is nothing to start "
                "from. Leave it out by `observe`, and give `starts`."
            )
        columns[:, j] = np.interp(ts, ts[seen], columns[seen, j])
    return columns.reshape(y.shape)


def check_trajectory(ts: Any, ys: Any) -> tuple[np.ndarray, PyTree]:
    """Returns times and observations as NumPy arrays.

    Raises:
        ValueError: If the times do not ascend, or the observations are not one for each.
        TypeError: If observations are no real numbers.
    """
    times = np.asarray([float(t) for t in ts] if isinstance(ts, Sequence) else ts)
    if times.ndim != 1 or len(times) < 2 or not np.all(np.isfinite(times)) or not np.all(np.diff(times) > 0):
        raise ValueError(
            f"`multiple_shooting`: `ts` must be two or more times that ascend, of shape (times,), but has shape "
            f"{times.shape}{'' if times.ndim != 1 else ' and does not ascend'}."
        )
    leaves = jax.tree.leaves(ys)
    for y in leaves:
        if not isinstance(y, np.ndarray | jax.Array) or not jnp.issubdtype(y.dtype, jnp.floating):
            got = f"dtype {y.dtype}" if hasattr(y, "dtype") else type(y).__name__
            raise TypeError(
                f"`multiple_shooting`: `ys` must be floating-point arrays, with NaN where nothing was seen, got {got}."
            )
        if y.ndim == 0 or len(y) != len(times):
            raise ValueError(
                f"`multiple_shooting`: `ys` must have a row for each of the {len(times)} times, but has shape "
                f"{y.shape}."
            )
    if not leaves:
        raise ValueError("`multiple_shooting`: `ys` holds no array.")
    dtype = max((np.asarray(y).dtype for y in leaves), key=lambda dtype: dtype.itemsize)
    return times.astype(dtype), jax.tree.map(np.asarray, ys)
