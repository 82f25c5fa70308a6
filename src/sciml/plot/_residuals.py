"""What a fit leaves over: over time, its correlations, its quantiles."""

from typing import Any

import numpy as np

from ._style import PALETTE, new_axes, pyplot


def residuals(diagnostics: Any, *, title: str | None = None, label: str = "t") -> np.ndarray:
    """Draw residuals over time, their correlations by lag, and their quantiles beside normal ones.

    Correlations within the band are what independent residuals have in 95 of 100 cases, and normal residuals lie along
    the line.

    Args:
        diagnostics: What `sciml.inference.residual_diagnostics` returns.
        title: A title of the figure.
        label: What the residuals are ordered by, with its unit.

    Returns:
        The three `matplotlib.axes.Axes`, of a new figure.

    Raises:
        ImportError: If Matplotlib is not installed.

    Example:
        ```python
        import jax
        from sciml import inference, plot

        noise = jax.random.normal(jax.random.key(0), (50,))
        axes = plot.residuals(inference.residual_diagnostics(noise), title="noise")
        assert len(axes) == 3
        ```
    """
    figure, axes = pyplot().subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    left, middle, right = (new_axes(ax) for ax in axes)
    blue, vermilion = PALETTE[:2]
    d = diagnostics
    left.axhline(0, color="0.4", linewidth=0.8)
    left.plot(d.at, d.residuals, "o", color=blue, markersize=4)
    left.set(xlabel=label, ylabel="residual", title=_chance(f"{d.runs} runs of one sign", d.runs_p))

    lags = np.arange(1, len(d.autocorrelation) + 1)
    band = 1.96 / np.sqrt(len(d.residuals))
    middle.axhspan(-band, band, color=blue, alpha=0.15, linewidth=0)
    middle.axhline(0, color="0.4", linewidth=0.8)
    middle.vlines(lags, 0, d.autocorrelation, color=blue)
    middle.plot(lags, d.autocorrelation, "o", color=blue, markersize=4)
    middle.set(xlabel="lag", ylabel="autocorrelation", title=_chance("correlations", d.ljung_box_p))
    middle.set_ylim(*(np.array([-1, 1]) * max(0.5, 1.1 * np.abs(d.autocorrelation).max())))

    ends = np.array([d.quantiles[0], d.quantiles[-1]])
    right.plot(ends, d.mean + d.deviation * ends, color=vermilion, linewidth=1.2)
    right.plot(d.quantiles, np.sort(d.residuals), "o", color=blue, markersize=4)
    right.set(xlabel="normal quantile", ylabel="residual", title=_chance("normal", d.normal_p))
    if title is not None:
        figure.suptitle(title)
    return axes


def _chance(what: str, p: float) -> str:
    return f"{what}: p = {p:.2g}" if p >= 1e-4 else f"{what}: p < 0.0001"
