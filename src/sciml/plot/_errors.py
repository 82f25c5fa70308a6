"""Pictures of errors: against step sizes, and the residuals of a fit."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._style import PALETTE, colours, new_axes, pyplot

MARKERS = "osD^vP*"


def _slope(steps: np.ndarray, errors: np.ndarray) -> float:
    there = np.isfinite(errors) & (errors > 0)
    if there.sum() < 2:
        return float("nan")
    return float(np.polyfit(np.log(steps[there]), np.log(errors[there]), 1)[0])


def order(steps: Any, errors: Any, *, ax: Any = None, expected: int | float | None = None) -> Any:
    r"""Draw a convergence plot: errors $e$ against step sizes $h$, both logarithmic.

    The legend states the observed order $p$, the slope of the least-squares line through
    $\log e \approx p \log h + c$. Errors that are zero or not finite are left out.

    Args:
        steps: Step sizes or grid spacings, shape (count,), positive.
        errors: Errors, shape (count,); or a mapping from the name of a method to its errors.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        expected: The theoretical order; drawn as a dashed line below the data.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the shapes do not match or a step is not positive.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import plot

        steps = jnp.asarray([0.1, 0.05, 0.025])
        ax = plot.order(steps, {"Heun": 0.3 * steps**2}, expected=2)
        assert "2.00" in ax.get_legend().get_texts()[0].get_text()
        ```
    """
    steps = np.asarray(steps, np.float64)
    if steps.ndim != 1 or not np.all(steps > 0):
        raise ValueError(f"steps must be positive and of shape (count,), got {steps.tolist()}.")
    series = dict(errors) if isinstance(errors, Mapping) else {"": errors}
    ax = new_axes(ax)
    ax.set_xscale("log")
    ax.set_yscale("log")
    lowest = np.full(steps.shape, np.inf)
    for i, ((name, values), colour) in enumerate(zip(series.items(), colours(len(series)), strict=True)):
        values = np.asarray(values, np.float64)
        if values.shape != steps.shape:
            raise ValueError(f"errors {name!r} must have the shape of steps, {steps.shape}, got {values.shape}.")
        values = np.where(np.isfinite(values) & (values > 0), values, np.nan)
        lowest = np.fmin(lowest, values)
        label = f"{name}, order {_slope(steps, values):.2f}".lstrip(", ")
        ax.plot(steps, values, marker=MARKERS[i % len(MARKERS)], markersize=5, color=colour, label=label)
    if expected is not None and np.isfinite(lowest).any():
        scale = 0.5 * np.nanmin(np.where(np.isfinite(lowest), lowest, np.nan) / steps**expected)
        ends = np.array([steps.min(), steps.max()])
        ax.plot(ends, scale * ends**expected, color="0.4", linestyle="--", label=f"slope {expected:g}")
    ax.set_xlabel("step size")
    ax.set_ylabel("error")
    ax.legend(frameon=True, framealpha=0.8, edgecolor="none")
    return ax


def residuals(diagnostics: Any, *, title: str | None = None, label: str = "t") -> np.ndarray:
    """Draws residuals over time, their correlations by lag, and their quantiles against normal quantiles.

    Independent residuals have correlations within the band in 95 of 100 cases, and normal residuals are on the line.

    Args:
        diagnostics: The result of `sciml.inference.residual_diagnostics`.
        title: A title of the figure.
        label: The label of the order of the residuals, with its unit.

    Returns:
        The three `matplotlib.axes.Axes`, of a new figure.

    Raises:
        ImportError: If Matplotlib is not installed.

    Example:
        ```python
        import jax
        from sciml import inference

        noise = jax.random.normal(jax.random.key(0), (50,))
        axes = inference.residual_diagnostics(noise).plot(title="noise")
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
