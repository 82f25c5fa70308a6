"""Bands of quantiles over time."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ._components import check_few, count_components, split
from ._style import colours, limit_lines, name_components, new_axes


def quantile_lines(values: np.ndarray, quantiles: Sequence[float]) -> np.ndarray:
    """Quantiles over the members that are finite at each time, (quantiles, times); NaN where none is."""
    found = np.full((len(quantiles), values.shape[1]), np.nan)
    alive = np.isfinite(values).any(axis=0)
    if alive.any():
        found[:, alive] = np.nanquantile(values[:, alive], quantiles, axis=0)
    return found


def draw_fan(ax: Any, ts: np.ndarray, values: np.ndarray, quantiles: Sequence[float], colour: Any, label: str) -> None:
    """Nested bands from the outermost pair of quantiles inwards; the middle one, if their number is odd, is a line."""
    lines = quantile_lines(values, quantiles)
    pairs = len(quantiles) // 2
    for i in range(pairs):
        ax.fill_between(
            ts, lines[i], lines[-1 - i], color=colour, alpha=0.2 + 0.2 * i / max(pairs, 1), linewidth=0, label=None
        )
    if len(quantiles) % 2:
        ax.plot(ts, lines[pairs], color=colour, linewidth=1.8, label=label)
    else:
        ax.plot([], [], color=colour, linewidth=6, alpha=0.4, label=label)


def check_quantiles(quantiles: Sequence[float]) -> list[float]:
    """Quantiles in increasing order within [0, 1]."""
    found = [float(q) for q in quantiles]
    if not found or any(not 0 <= q <= 1 for q in found) or found != sorted(found):
        raise ValueError(f"quantiles must increase within [0, 1], such as (0.05, 0.5, 0.95); got {tuple(quantiles)}.")
    return found


def bands(
    ts: Any,
    ys: Any,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    *,
    ax: Any = None,
    labels: str | Sequence[str] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> Any:
    """Draw an ensemble as bands of quantiles over time.

    Quantiles pair up from the outside in: `(0.05, 0.25, 0.5, 0.75, 0.95)` is a 90% band, a 50% band in it, and the
    median. At each time they are taken over the members that are finite there.

    Args:
        ts: Times, shape (times,), or (members, times) where all members have the same.
        ys: A PyTree with leaves of shape (members, times, ...): `sols.ts` and `sols.ys` of what `jax.vmap` of a solve
            returns, whose `sols.plot()` draws such bands as well.
        quantiles: Increasing numbers within [0, 1].
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        labels: A name for each component.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name, to take the colours of the bands from.
        vmin: The lower end of the axis; that of the data if None.
        vmax: The upper end.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the shapes do not fit together or the quantiles do not increase, or there are more than
            64 components.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import plot

        ts = jnp.linspace(0.0, 3.0, 50)
        rates = jnp.linspace(0.5, 1.5, 200)
        ax = plot.bands(ts, jnp.exp(-rates[:, None] * ts[None]), labels=["population"])
        assert ax.get_xlabel() == "t"
        ```
    """
    quantiles = check_quantiles(quantiles)
    times = np.asarray(ts, np.float64)
    members = next((np.shape(leaf)[0] for leaf in jax.tree.leaves(ys) if np.ndim(leaf)), 0)
    if times.ndim == 2 and len(times) == members and (times == times[:1]).all():
        times = times[0]
    if times.ndim != 1:
        raise ValueError(
            f"ts must have shape (times,), or (members, times) with the same times in each row, got {times.shape}."
        )
    check_few(count_components(ys, 2), "bands")
    components = split(ys, (members,), times.size, labels)
    ax = new_axes(ax)
    for component, colour in zip(components, colours(len(components), cmap), strict=True):
        draw_fan(ax, times, component.values, quantiles, colour, component.name)
    ax.set_xlabel("t")
    limit_lines(ax, vmin, vmax)
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    name_components(ax, [component.name for component in components])
    return ax
