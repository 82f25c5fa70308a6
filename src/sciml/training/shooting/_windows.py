"""One trajectory of observations, cut into windows of equal length."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..._structure_words import first_difference, structure_words


class Windows(eqx.Module):
    """Windows of trajectories, the first axis of every array; each ends where the next one starts.

    Attributes:
        number: The place of each window, from 0, shape `(windows,)`.
        ts: The times of its observations, from its start to its end, shape `(windows, times)`. A last one that is
            shorter stays at its end.
        ys: The observations, each leaf of shape `(windows, times, ...)`; zero for missing values.
        seen: Whether a value was observed, like `ys`.
        experiment: The number of its experiment, from 0.
        followed: Whether the next window starts where it ends, that is, belongs to the same experiment.
    """

    number: Int[Array, " windows"]
    ts: Float[Array, "windows times"]
    ys: PyTree[Float[Array, "windows times ..."]]
    seen: PyTree[Bool[Array, "windows times ..."]]
    experiment: Int[Array, " windows"]
    followed: Bool[Array, " windows"]


def windows_of(ts: np.ndarray, ys: PyTree, length: int, stride: int | None = None) -> Windows:
    """Cuts a trajectory into windows of `length` intervals between observations, each `stride` after the one before."""
    stride = length if stride is None else stride
    count = max(1, -(-(len(ts) - 1 - max(length - stride, 0)) // stride))
    places = np.arange(count)[:, None] * stride + np.arange(length + 1)
    inside = places < len(ts)
    rows = np.minimum(places, len(ts) - 1)

    def cut(y: np.ndarray) -> tuple[Array, Array]:
        values = y[rows]
        seen = np.isfinite(values) & inside.reshape(inside.shape + (1,) * (y.ndim - 1))
        return jnp.asarray(np.where(seen, values, 0)), jnp.asarray(seen)

    leaves, treedef = jax.tree.flatten(ys)
    pieces = [cut(y) for y in leaves]
    values, seen = (jax.tree.unflatten(treedef, [piece[i] for piece in pieces]) for i in range(2))
    number = jnp.arange(count)
    return Windows(number, jnp.asarray(ts[rows]), values, seen, jnp.zeros_like(number), number < count - 1)


def joined(parts: Sequence[Windows]) -> Windows:
    """Returns the windows of several experiments one after another, all as long as the longest."""
    times = max(part.ts.shape[1] for part in parts)

    def longer(x: Array, mode: str) -> Array:
        return jnp.pad(x, ((0, 0), (0, times - x.shape[1])) + ((0, 0),) * (x.ndim - 2), mode=mode)

    full = [
        Windows(
            part.number,
            longer(part.ts, "edge"),
            jax.tree.map(lambda y: longer(y, "constant"), part.ys),
            jax.tree.map(lambda y: longer(y, "constant"), part.seen),
            jnp.full_like(part.number, k),
            part.followed,
        )
        for k, part in enumerate(parts)
    ]
    both = jax.tree.map(lambda *xs: jnp.concatenate(xs), *full)
    return eqx.tree_at(lambda windows: windows.number, both, jnp.arange(len(both.number)))


def experiments(ts: Any, ys: PyTree) -> Windows:
    """Returns records of several experiments side by side: of unequal length, at different times, with gaps.

    Each is a window from its start to its end. Shorter ones are padded with their last time, without observations.

    Args:
        ts: For each experiment the times of its observations, which ascend; a list of arrays of shape `(times,)`.
        ys: The observations, a list of PyTrees of arrays of shape `(times, ...)`; NaN for missing values.

    Returns:
        A `Windows`, rows of which make a batch for `sciml.training.train`, as `LatentLoss` takes them.

    Raises:
        ValueError: If times do not ascend, or observations are not one for each.
        TypeError: If observations are not real numbers.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import training

        ts = [jnp.linspace(0.0, 1.0, 6), jnp.linspace(0.0, 3.0, 4)]
        data = training.experiments(ts, [jnp.cos(t)[:, None] for t in ts])
        assert data.ts.shape == (2, 6) and int(data.seen.sum()) == 10
        ```
    """
    records = records_of(ts, ys, "experiments")
    return joined([windows_of(t, y, len(t) - 1) for t, y in records])


def is_several(ts: Any) -> bool:
    """Whether times belong to several experiments: a list or tuple of arrays."""
    return isinstance(ts, Sequence) and len(ts) > 0 and all(np.ndim(t) == 1 for t in ts)


def records_of(ts: Any, ys: Any, where: str) -> list[tuple[np.ndarray, PyTree]]:
    """Returns times and observations of one experiment or of several, as NumPy arrays.

    Raises:
        ValueError: If there are not as many records as arrays of times, or one of them makes no sense.
        TypeError: If observations are not real numbers.
    """
    if not is_several(ts):
        return [check_trajectory(ts, ys, where)]
    if not isinstance(ys, list | tuple) or len(ys) != len(ts):
        got = f"{len(ys)}" if isinstance(ys, list | tuple) else type(ys).__name__
        raise ValueError(f"`{where}`: `ys` must be a list of {len(ts)} records, one for each of `ts`, but is {got}.")
    found = [check_trajectory(t, y, where) for t, y in zip(ts, ys, strict=True)]
    first = found[0][1]
    for number, (_, y) in enumerate(found):
        if jax.tree.structure(y) != jax.tree.structure(first):
            raise ValueError(
                f"`{where}`: all records in `ys` must have one structure, {structure_words(first)}, but record "
                f"{number} is {structure_words(y)}.{first_difference(first, y)}"
            )
    return found


def filled(ts: np.ndarray, y: np.ndarray, where: str) -> np.ndarray:
    """Returns observations with those that are missing on straight lines between their neighbours in time.

    Raises:
        ValueError: If a component is missing at all times.
    """
    columns = y.reshape(len(ts), -1).copy()
    for j in range(columns.shape[1]):
        seen = np.isfinite(columns[:, j])
        if not seen.any():
            raise ValueError(
                f"`{where}`: a component of `ys` is missing at all times, so its start is unknown. Exclude it with "
                "`observe`, and pass `starts`."
            )
        columns[:, j] = np.interp(ts, ts[seen], columns[seen, j])
    return columns.reshape(y.shape)


def check_trajectory(ts: Any, ys: Any, where: str = "multiple_shooting") -> tuple[np.ndarray, PyTree]:
    """Returns times and observations as NumPy arrays.

    Raises:
        ValueError: If the times do not ascend, or the observations are not one for each.
        TypeError: If observations are not real numbers.
    """
    times = np.asarray([float(t) for t in ts] if isinstance(ts, Sequence) else ts)
    if times.ndim != 1 or len(times) < 2 or not np.all(np.isfinite(times)) or not np.all(np.diff(times) > 0):
        raise ValueError(
            f"`{where}`: `ts` must be two or more ascending times, of shape (times,), but has shape "
            f"{times.shape}{'' if times.ndim != 1 else ' and is not ascending'}."
        )
    leaves = jax.tree.leaves(ys)
    for y in leaves:
        if not isinstance(y, np.ndarray | jax.Array) or not jnp.issubdtype(y.dtype, jnp.floating):
            got = f"dtype {y.dtype}" if hasattr(y, "dtype") else type(y).__name__
            raise TypeError(f"`{where}`: `ys` must be floating-point arrays, with NaN for missing values, got {got}.")
        if y.ndim == 0 or len(y) != len(times):
            raise ValueError(
                f"`{where}`: `ys` must have a row for each of the {len(times)} times, but has shape {y.shape}."
            )
    if not leaves:
        raise ValueError(f"`{where}`: `ys` contains no array.")
    dtype = max((np.asarray(y).dtype for y in leaves), key=lambda dtype: dtype.itemsize)
    return times.astype(dtype), jax.tree.map(np.asarray, ys)
