"""Pictures of population models: goodness of fit, individual fits, residuals, effects, and predictive checks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._style import PALETTE, new_axes, pyplot


def _alike(**arrays: Any) -> list[np.ndarray]:
    found = {name: np.asarray(x, np.float64) for name, x in arrays.items()}
    if len({x.shape for x in found.values()}) > 1:
        shapes = ", ".join(f"`{name}` has {x.shape}" for name, x in found.items())
        raise ValueError(f"measurements and predictions must have one shape, but {shapes}.")
    return list(found.values())


def _bins(t: np.ndarray, bins: int | Sequence[float]) -> np.ndarray:
    """Returns the bin of each value: a number of equally full bins, or one for each value of a design, or edges."""
    distinct = np.unique(t)
    if isinstance(bins, int) and distinct.size <= bins:
        return np.searchsorted(distinct, t)
    edges = np.unique(np.quantile(t, np.linspace(0, 1, bins + 1))) if isinstance(bins, int) else np.asarray(bins, float)
    return np.clip(np.searchsorted(edges, t, side="right") - 1, 0, max(len(edges) - 2, 0))


def goodness_of_fit(
    dv: Any,
    pred: Any,
    *,
    ipred: Any = None,
    ax: Any = None,
    log: bool = False,
    labels: Sequence[str] = ("prediction", "measurement (DV)"),
    title: str | None = None,
) -> Any:
    """Draw measurements against predictions, with the line on which both are equal.

    Args:
        dv: The measurements (DV), of any shape; NaN if missing.
        pred: The predictions of a typical subject (PRED), of the same shape.
        ipred: The predictions with each subject's own effects (IPRED), of the same shape.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        log: Whether both axes are logarithmic.
        labels: Names of both axes.
        title: A title above the picture.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If shapes differ or nothing can be drawn.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import plot

        dv, pred = jnp.array([[1.1, 2.3], [2.9, jnp.nan]]), jnp.array([[1.0, 2.0], [3.0, 4.0]])
        ax = plot.goodness_of_fit(dv, pred, ipred=0.5 * (dv + pred))
        assert ax.get_xlabel() == "prediction"
        ```
    """
    given = {"PRED": pred} | ({} if ipred is None else {"IPRED": ipred})
    measured, *predicted = _alike(dv=dv, **given)
    shown = []
    ax = new_axes(ax)
    for name, values, colour, marker in zip(given, predicted, PALETTE, "o^", strict=False):
        there = np.isfinite(measured) & np.isfinite(values)
        if log:
            there &= (measured > 0) & (values > 0)
        ax.plot(values[there], measured[there], marker, color=colour, markersize=3.5, alpha=0.7, label=name)
        shown += [values[there], measured[there]]
    every = np.concatenate([x.ravel() for x in shown])
    if not every.size:
        raise ValueError("measurements and predictions must have finite numbers at the same places, but have none.")
    ends = [every.min(), every.max()]
    ax.plot(ends, ends, color="0.4", linewidth=1, zorder=0)
    if log:
        ax.set(xscale="log", yscale="log")
    ax.set(xlabel=labels[0], ylabel=labels[1])
    if ipred is not None:
        ax.legend(frameon=False)
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    return ax


def individual_fits(
    times: Any,
    dv: Any,
    ipred: Any,
    *,
    pred: Any = None,
    at: Any = None,
    ids: Sequence[Any] | None = None,
    columns: int = 4,
    log: bool = False,
    labels: Sequence[str] = ("time", "measurement"),
    title: str | None = None,
) -> np.ndarray:
    """Draw the measurements and predictions of each subject over time, in a panel each.

    Args:
        times: The times of the measurements, shape `(subjects, records)`.
        dv: The measurements (DV), of the same shape; NaN if missing.
        ipred: The predictions with each subject's own effects (IPRED), at `at`.
        pred: The predictions of a typical subject (PRED), at `at`.
        at: The times of the predictions, shape `(subjects, n)`; `times` by default.
        ids: The names of the subjects.
        columns: The most panels side by side.
        log: Whether the vertical axes are logarithmic.
        labels: Names of the axes.
        title: A title of the figure.

    Returns:
        The `matplotlib.axes.Axes` of the subjects, of a new figure.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If shapes differ, or `ids` are of another number.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import plot

        times = jnp.array([[1.0, 2.0, 4.0], [1.0, 3.0, 3.0]])
        dv = jnp.array([[0.7, 0.3, 0.1], [0.9, 0.2, jnp.nan]])
        axes = plot.individual_fits(times, dv, jnp.exp(-0.7 * times), ids=["7", "9"])
        assert axes.shape == (2,) and axes[1].get_title() == "9"
        ```
    """
    times, dv = _alike(times=times, dv=dv)
    at = times if at is None else np.asarray(at, np.float64)
    curves = {"IPRED": ipred} | ({} if pred is None else {"PRED": pred})
    at, *values = _alike(at=at, **curves)
    if dv.ndim != 2 or at.ndim != 2 or len(at) != len(dv):
        raise ValueError(f"subjects must be the leading axis of two, but shapes are {dv.shape} and {at.shape}.")
    names = [str(i + 1) for i in range(len(dv))] if ids is None else [str(x) for x in ids]
    if len(names) != len(dv):
        raise ValueError(f"`ids` must name the {len(dv)} subjects, but has {len(names)}.")
    across = min(columns, len(dv))
    down = -(-len(dv) // across)
    figure, grid = pyplot().subplots(
        down, across, figsize=(2.6 * across, 2.2 * down), layout="constrained", squeeze=False, sharex=True, sharey=True
    )
    axes = grid.reshape(-1)
    for ax in axes[len(dv) :]:
        ax.remove()
    for i, ax in enumerate(axes[: len(dv)]):
        new_axes(ax)
        order = np.argsort(at[i], kind="stable")
        for name, curve, colour, style in zip(curves, values, PALETTE, ("-", "--"), strict=False):
            ax.plot(at[i][order], curve[i][order], style, color=colour, linewidth=1.2, label=name)
        ax.plot(times[i], dv[i], "o", color="black", markersize=3.5, label="DV")
        ax.set_title(names[i], fontsize="small")
        if log:
            ax.set_yscale("log")
    axes[0].legend(frameon=False, fontsize="small")
    figure.supxlabel(labels[0], fontsize="medium")
    figure.supylabel(labels[1], fontsize="medium")
    if title is not None:
        figure.suptitle(title)
    return axes[: len(dv)]


def weighted_residuals(
    at: Any,
    values: Any,
    *,
    bins: int | Sequence[float] = 8,
    ax: Any = None,
    labels: Sequence[str] = ("time", "CWRES"),
    title: str | None = None,
) -> Any:
    """Draw weighted residuals, such as CWRES, IWRES or NPDE, against time or PRED.

    If the model is right, 95% of them are between the dashed lines, at -1.96 and 1.96, and the line through the medians
    of bins is close to zero.

    Args:
        at: Times, predictions, or covariates, of any shape.
        values: The residuals, of the same shape; NaN if missing.
        bins: The number of bins, with equal numbers of residuals, or one for each time if there are fewer times; or the
            edges of bins.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        labels: Names of both axes.
        title: A title above the picture.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If shapes differ or nothing can be drawn.

    Example:
        ```python
        import numpy as np
        from sciml import plot

        times = np.broadcast_to(np.array([1.0, 2.0, 4.0]), (50, 3))
        ax = plot.weighted_residuals(times, np.random.default_rng(0).normal(size=(50, 3)), labels=("time [h]", "NPDE"))
        assert ax.get_ylabel() == "NPDE"
        ```
    """
    at, values = _alike(at=at, residuals=values)
    there = np.isfinite(at) & np.isfinite(values)
    x, y = at[there], values[there]
    if not x.size:
        raise ValueError("`values` must have finite numbers to draw, but has none.")
    ax = new_axes(ax)
    ax.plot(x, y, "o", color=PALETTE[0], markersize=3.5, alpha=0.6)
    place = _bins(x, bins)
    middles = np.array([(np.median(x[place == k]), np.median(y[place == k])) for k in np.unique(place)])
    ax.plot(*middles.T, color=PALETTE[1], label="median")
    ax.axhline(0, color="0.4", linewidth=1)
    for end in (-1.96, 1.96):
        ax.axhline(end, color="0.4", linewidth=1, linestyle="--")
    ax.set(xlabel=labels[0], ylabel=labels[1])
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    return ax


def etas(
    effects: Any,
    scale: Any,
    *,
    covariates: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> np.ndarray:
    r"""Draw the random effects of all subjects: a histogram with shrinkage, and effects against covariates.

    The line on the histogram is the estimated distribution $N(0, \omega^2)$; it is wider than the histogram if effects
    shrink to zero. A slope against a covariate suggests a covariate model, but shrinkage flattens slopes.

    Args:
        effects: The most probable effects (ETA), shape `(subjects, q)` or `(subjects,)`, such as
            `Hierarchical.modes(model)[0]`.
        scale: Their estimated standard deviations $\omega$, shape `(q,)` or a number.
        covariates: Covariates by their names, each of shape `(subjects,)`.
        names: The names of the effects.
        title: A title of the figure.

    Returns:
        The `matplotlib.axes.Axes` of a new figure, shape `(q, 1 + covariates)`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If shapes do not fit together.

    Example:
        ```python
        import numpy as np
        from sciml import plot

        rng = np.random.default_rng(0)
        weight, effects = rng.normal(70.0, 10.0, 40), 0.2 * rng.normal(size=(40, 2))
        axes = plot.etas(effects, [0.25, 0.25], covariates={"WT": weight}, names=["CL", "V1"])
        assert axes.shape == (2, 2) and axes[1, 1].get_xlabel() == "WT"
        ```
    """
    effects = np.asarray(effects, np.float64)
    effects = effects[:, None] if effects.ndim == 1 else effects
    if effects.ndim != 2:
        raise ValueError(f"`effects` must have shape (subjects, q), but has {effects.shape}.")
    count, q = effects.shape
    scale = np.asarray(scale, np.float64)
    others = {name: np.asarray(x, np.float64) for name, x in (covariates or {}).items()}
    labels = [f"ETA{i + 1}" for i in range(q)] if names is None else [str(x) for x in names]
    if scale.shape not in ((), (q,)) or len(labels) != q or any(x.shape != (count,) for x in others.values()):
        raise ValueError(
            f"{q} effects of {count} subjects require `scale` of shape ({q},), {q} `names`, and covariates of shape "
            f"({count},), but got {scale.shape}, {len(labels)}, and {[x.shape for x in others.values()]}."
        )
    figure, axes = pyplot().subplots(
        q, 1 + len(others), figsize=(2.8 * (1 + len(others)), 2.3 * q), layout="constrained", squeeze=False
    )
    for row, eta, width, label in zip(axes, effects.T, np.broadcast_to(scale, q), labels, strict=True):
        for ax in row:
            new_axes(ax)
        known = np.isfinite(eta)
        row[0].hist(eta[known], bins="auto", density=True, color=PALETTE[0], alpha=0.5)
        x = np.linspace(-3 * width, 3 * width, 121)
        row[0].plot(x, np.exp(-0.5 * (x / width) ** 2) / (width * np.sqrt(2 * np.pi)), color=PALETTE[1])
        row[0].set(xlabel=label, ylabel="density")
        row[0].set_title(f"shrinkage {100 * (1 - np.std(eta[known], ddof=1) / width):.0f}%", fontsize="small")
        for ax, (name, values) in zip(row[1:], others.items(), strict=True):
            both = known & np.isfinite(values)
            ax.plot(values[both], eta[both], "o", color=PALETTE[0], markersize=3.5, alpha=0.7)
            ax.axhline(0, color="0.4", linewidth=1)
            ends = np.array([values[both].min(), values[both].max()])
            if ends[1] > ends[0]:
                ax.plot(ends, np.polyval(np.polyfit(values[both], eta[both], 1), ends), color=PALETTE[1])
            ax.set(xlabel=name, ylabel=label)
    if title is not None:
        figure.suptitle(title)
    return axes


def predictive_check(
    times: Any,
    dv: Any,
    simulated: Any,
    *,
    pred: Any = None,
    bins: int | Sequence[float] = 8,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    level: float = 0.9,
    ax: Any = None,
    log: bool = False,
    labels: Sequence[str] = ("time", "measurement"),
    title: str | None = None,
) -> Any:
    """Draw a visual predictive check (VPC): quantiles of the measurements, and of data that a model simulates.

    In each bin of times, a line shows a quantile of the measurements, and a band the range of the same quantile in
    simulated data sets. The model describes the data if lines stay within their bands.

    Args:
        times: The times of the measurements, of any shape.
        dv: The measurements (DV), of the same shape; NaN if missing.
        simulated: Simulated measurements, shape `(replicates, *dv.shape)`, such as draws of `LogDensity.predict`.
        pred: The predictions of a typical subject (PRED), of the shape of `dv`, for a prediction-corrected VPC: all
            values are multiplied by the median prediction of their bin, and divided by their own.
        bins: The number of bins, with equal numbers of measurements, or one for each time if there are fewer times; or
            the edges of bins.
        quantiles: The quantiles to show.
        level: The share of the simulated quantiles in a band.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        log: Whether the vertical axis is logarithmic.
        labels: Names of the axes.
        title: A title above the picture.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If shapes do not fit together.

    Example:
        ```python
        import numpy as np
        from sciml import plot

        rng = np.random.default_rng(0)
        times = np.broadcast_to(np.linspace(0.5, 12.0, 10), (30, 10))
        simulated = np.exp(-0.2 * times + 0.2 * rng.normal(size=(101, 30, 10)))
        ax = plot.predictive_check(times, simulated[0], simulated[1:])
        assert len(ax.collections) == 3  # a band for each quantile
        ```
    """
    times, dv = _alike(times=times, dv=dv)
    simulated = np.asarray(simulated, np.float64)
    if simulated.shape[1:] != dv.shape:
        raise ValueError(
            f"`simulated` must have shape (replicates, {', '.join(map(str, dv.shape))}), but has {simulated.shape}."
        )
    there = np.isfinite(dv) & np.isfinite(times)
    t, seen, drawn = times[there], dv[there], simulated[:, there]
    if not t.size:
        raise ValueError("`dv` must have finite numbers to draw, but has none.")
    place = _bins(t, bins)
    own = None if pred is None else _alike(dv=dv, pred=pred)[1][there]
    middles, observed, low, high = [], [], [], []
    tail = 0.5 * (1 - level)
    for k in np.unique(place):
        inside = place == k
        factor = np.ones(inside.sum()) if own is None else np.median(own[inside]) / own[inside]
        each = np.nanquantile(drawn[:, inside] * factor, quantiles, axis=1)  # of each replicate
        middles.append(np.median(t[inside]))
        observed.append(np.quantile(seen[inside] * factor, quantiles))
        low.append(np.quantile(each, tail, axis=1))
        high.append(np.quantile(each, 1 - tail, axis=1))
    ax = new_axes(ax)
    for i, q in enumerate(quantiles):
        colour = PALETTE[1] if q == 0.5 else PALETTE[0]
        ax.fill_between(middles, np.array(low)[:, i], np.array(high)[:, i], color=colour, alpha=0.25, linewidth=0)
        ax.plot(middles, np.array(observed)[:, i], color=colour, marker="o", markersize=3, label=f"{100 * q:g}%")
    ax.plot(t, seen if own is None else np.nan * seen, ".", color="0.6", markersize=3, zorder=0)
    if log:
        ax.set_yscale("log")
    ax.set(xlabel=labels[0], ylabel=labels[1] if own is None else f"{labels[1]}, prediction-corrected")
    ax.legend(frameon=False, title="DV quantile")
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    return ax
