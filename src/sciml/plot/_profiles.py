"""Profiles of a likelihood."""

from typing import Any

import numpy as np

from ._style import PALETTE, new_axes, pyplot

# A positive parameter whose profile spans this factor has a logarithmic axis.
_DECADES = 30.0


def profiles(profile: Any, *, columns: int = 4, title: str | None = None) -> np.ndarray:
    """Draw the deviance along each parameter with all others fitted again, the threshold and the interval.

    A profile that stays below the threshold on a side leaves its parameter open there: its interval ends with an arrow.

    Args:
        profile: What `sciml.inference.profile_likelihood` returns.
        columns: The most panels side by side.
        title: A title of the figure.

    Returns:
        The `matplotlib.axes.Axes` of the parameters, shape `(k,)`, of a new figure.

    Raises:
        ImportError: If Matplotlib is not installed.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inference, plot
        from sciml.training import Positive

        model = {"rate": jnp.array(2.0)}
        priors = [(lambda m: m["rate"], inference.Improper(Positive()))]
        counts = jnp.array([3.0, 1.0, 4.0])
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m["rate"]), counts, priors)
        axes = plot.profiles(inference.profile_likelihood(density))
        assert axes[0].get_xlabel() == "rate"
        ```
    """
    count = len(profile.names)
    across = min(columns, count)
    down = -(-count // across)
    figure, grid = pyplot().subplots(
        down, across, figsize=(3.1 * across, 2.7 * down), layout="constrained", squeeze=False, sharey=True
    )
    axes = grid.reshape(-1)
    for ax in axes[count:]:
        ax.remove()
    for i, name in enumerate(profile.names):
        _draw(new_axes(axes[i]), profile, i)
        axes[i].set_xlabel(name)
    for row in grid:
        row[0].set_ylabel("deviance")
    if title is not None:
        figure.suptitle(title)
    return axes[:count]


def _draw(ax: Any, profile: Any, i: int) -> None:
    blue, vermilion = PALETTE[:2]
    top = 1.5 * profile.threshold
    values, deviances = profile.values[i], profile.deviances[i]
    there = np.isfinite(values) & np.isfinite(deviances)
    ax.plot(values[there], deviances[there], color=blue, marker="o", markersize=3, linewidth=1.2)
    ax.axhline(profile.threshold, color="0.4", linestyle="--", linewidth=0.8)
    low, high = profile.intervals[i]
    closed = low >= values[there].min(), high <= values[there].max()
    ends = np.clip(profile.intervals[i], values[there].min(), values[there].max())
    shown = np.concatenate([values[there & (deviances <= top)], ends])
    ax.plot(ends, [profile.threshold] * 2, color=vermilion, linewidth=2.5, solid_capstyle="butt")
    for end, is_closed, marker in zip(ends, closed, "<>", strict=True):
        ax.plot(end, profile.threshold, marker="|" if is_closed else marker, color=vermilion, markersize=9)
    ax.plot(profile.best[i], 0.0, marker="o", color="black", markersize=4)
    ax.set_ylim(-0.03 * top, top)
    width = shown.max() - shown.min()
    if shown.min() > 0 and shown.max() > _DECADES * shown.min():
        ax.set_xscale("log")
        ax.set_xlim(shown.min() / 1.2, shown.max() * 1.2)
    else:
        ax.set_xlim(shown.min() - 0.05 * width, shown.max() + 0.05 * width)
