"""Pictures of a fit: the estimates of its starts, and each observable with its measurements."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._style import PALETTE, colours, new_axes, pyplot


def parameters(
    xs: Any,
    losses: Any,
    *,
    names: Sequence[str] | None = None,
    lower: Any = None,
    upper: Any = None,
    reference: Any = None,
    within: float = 0.1,
    ax: Any = None,
    label: str = "estimate",
    title: str | None = None,
) -> Any:
    """Draw the estimates of the starts of a fit, a row for each parameter.

    A parameter that differs between starts with the same loss is not determined by the data.

    Args:
        xs: The estimates, shape `(starts, p)`.
        losses: The losses of the starts, such as minus the logarithms of likelihoods, shape `(starts,)`; starts whose
            loss is not finite are left out.
        names: The names of the parameters; their numbers by default.
        lower: The lower bounds, shape `(p,)`.
        upper: The upper bounds, likewise.
        reference: Other values, such as published ones, shape `(p,)`.
        within: Starts that end this close to the best are drawn in another colour.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        label: The name of the horizontal axis, such as "estimate, log10".
        title: A title above the picture.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If shapes differ, or no loss is finite.

    Example:
        ```python
        import numpy as np
        from sciml import plot

        xs = np.array([[0.1, 2.0], [0.1, 1.9], [0.4, -1.0]])
        ax = plot.parameters(xs, [10.0, 10.01, 14.0], names=["k1", "k2"], lower=[-3, -3], upper=[3, 3])
        assert [text.get_text() for text in ax.get_yticklabels()] == ["k1", "k2"]
        ```
    """
    xs, losses = np.asarray(xs, np.float64), np.asarray(losses, np.float64)
    if xs.ndim != 2 or losses.shape != xs.shape[:1]:
        raise ValueError(
            f"`xs` and `losses` must have shapes (starts, p) and (starts,), not {xs.shape}, {losses.shape}."
        )
    p = xs.shape[1]
    given = {"names": names, "lower": lower, "upper": upper, "reference": reference}
    for name, value in given.items():
        if value is not None and np.shape(value) != (p,):
            raise ValueError(f"`{name}` must have one entry for each of the {p} parameters, but has {np.shape(value)}.")
    finite = np.isfinite(losses)
    if not finite.any():
        raise ValueError("`losses` must contain at least one finite value.")
    xs, losses = xs[finite], losses[finite]
    order = np.argsort(-losses, kind="stable")  # the best is drawn last
    near = losses[order] <= losses.min() + within
    rows = np.arange(p)
    ax = new_axes(ax)
    for x, good in zip(xs[order], near, strict=True):
        style = {"color": PALETTE[0], "alpha": 0.5, "zorder": 3} if good else {"color": "0.75", "zorder": 1}
        ax.plot(x, rows, "o-", markersize=3, linewidth=0.6, **style)
    ax.plot(xs[order[-1]], rows, "o-", color=PALETTE[1], markersize=4, linewidth=1, zorder=4, label="best")
    for bound in (lower, upper):
        if bound is not None:
            ax.plot(bound, rows, "|", color="0.4", markersize=9, label="bounds" if bound is upper else None)
    if reference is not None:
        ax.plot(reference, rows, "|", color="black", markersize=14, markeredgewidth=1.6, zorder=5, label="reference")
    ax.set_yticks(rows, [str(i) for i in rows] if names is None else [str(name) for name in names])
    ax.invert_yaxis()
    ax.set_xlabel(label)
    ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    return ax


def observables(
    names: Sequence[str],
    times: Any,
    data: Any,
    predicted: Any,
    *,
    band: tuple[Any, Any] | None = None,
    conditions: Sequence[str] | None = None,
    columns: int = 3,
    labels: Sequence[str] = ("time", "measurement"),
    title: str | None = None,
) -> np.ndarray:
    """Draw measurements and predictions over time, in a panel for each observable and a colour for each condition.

    Measurements at infinite times (of steady states) are left out.

    Args:
        names: The observable of each measurement, such as `PEtabProblem.observables`.
        times: The times, shape `(measurements,)`.
        data: The measurements, of the same shape.
        predicted: The predictions, likewise.
        band: The ends of bands around the predictions, such as one standard deviation below and above.
        conditions: The condition of each measurement.
        columns: The most panels side by side.
        labels: Names of the axes.
        title: A title of the figure.

    Returns:
        The `matplotlib.axes.Axes` of the observables, in the order in which they first occur, of a new figure.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If lengths differ.

    Example:
        ```python
        import numpy as np
        from sciml import plot

        times = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0])
        data = np.array([1.0, 0.6, 0.4, 0.0, 0.4, 0.6])
        axes = plot.observables(["A"] * 3 + ["B"] * 3, times, data, data + 0.01)
        assert axes.shape == (2,) and axes[1].get_title() == "B"
        ```
    """
    arrays = {"times": times, "data": data, "predicted": predicted}
    arrays |= {} if band is None else {"band[0]": band[0], "band[1]": band[1]}
    arrays = {name: np.asarray(x, np.float64) for name, x in arrays.items()}
    of = np.asarray(list(names), object)
    groups = np.full(of.shape, "", object) if conditions is None else np.asarray(list(conditions), object)
    for name, x in (arrays | {"conditions": groups}).items():
        if x.shape != of.shape:
            raise ValueError(f"`{name}` must have shape {of.shape}, one for each of `names`, but has {x.shape}.")
    panels = list(dict.fromkeys(of))
    across = min(columns, len(panels))
    down = -(-len(panels) // across)
    figure, grid = pyplot().subplots(
        down, across, figsize=(3.6 * across, 2.7 * down), layout="constrained", squeeze=False
    )
    axes = grid.reshape(-1)
    for ax in axes[len(panels) :]:
        ax.remove()
    every = list(dict.fromkeys(groups))
    finite = np.isfinite(arrays["times"])
    for panel, ax in zip(panels, axes, strict=False):
        new_axes(ax)
        ax.set_title(str(panel), fontsize="medium")
        for condition, colour in zip(every, colours(len(every)), strict=True):
            rows = np.flatnonzero((of == panel) & (groups == condition) & finite)
            if not rows.size:
                continue
            rows = rows[np.argsort(arrays["times"][rows], kind="stable")]
            t, seen, mean = (arrays[name][rows] for name in ("times", "data", "predicted"))
            if band is not None:
                ends = (arrays[name][rows] for name in ("band[0]", "band[1]"))
                ax.fill_between(t, *ends, color=colour, alpha=0.2, linewidth=0)
            ax.plot(t, mean, color=colour, linewidth=1.2, label=str(condition) or None)
            ax.plot(t, seen, "o", color=colour, markersize=3.5)
    if len(every) > 1 and len(every) <= len(PALETTE):
        handles = {text: line for ax in axes for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize="small")
    figure.supxlabel(labels[0], fontsize="medium")
    figure.supylabel(labels[1], fontsize="medium")
    if title is not None:
        figure.suptitle(title)
    return axes[: len(panels)]
