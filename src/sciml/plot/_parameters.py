"""Pictures over parameters: a surface, profiles of a likelihood, and where the starts of a fit ended."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ._style import BAD, PALETTE, colours_between, new_axes, pyplot


def _axis(values: Any, argument: str) -> np.ndarray:
    found = np.asarray(values, np.float64)
    steps = np.diff(found) if found.ndim == 1 else np.zeros(1)
    if found.ndim != 1 or not (np.all(steps > 0) or np.all(steps < 0)):
        raise ValueError(f"{argument} must be one-dimensional and strictly monotonic, got shape {found.shape}.")
    return found


def surface(
    x: Any,
    y: Any,
    values: Any,
    *,
    ax: Any = None,
    labels: Sequence[str] = ("x", "y", "value"),
    log: bool = False,
    levels: int | Sequence[float] | None = None,
    mark: tuple[Any, Any] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> Any:
    """Draw a quantity over a grid of two parameters, as a sweep returns it.

    Cells whose value is not finite (members that failed) stay grey; with `log`, so do those that are not positive.

    Args:
        x: Values of the first parameter, shape (nx,).
        y: Values of the second parameter, shape (ny,).
        values: The quantity, shape (nx, ny): `values[i, j]` belongs to `x[i]`, `y[j]`, as from
            `jnp.meshgrid(x, y, indexing="ij")`.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        labels: Names of the first parameter, the second and the quantity.
        log: Whether the colours are logarithmic in the quantity.
        levels: Number of contour lines, or the values to draw them at; none if None.
        mark: A point (x, y) to mark, such as the best fit.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name; by default one that grows in lightness.
        vmin: The value at the lower end of the colours; the minimum of the data if None.
        vmax: The value at the upper end. The bar ends in a point if there are values beyond.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the shapes do not fit together, or nothing can be drawn.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import plot

        x, y = jnp.linspace(0.5, 1.5, 40), jnp.linspace(1.0, 3.0, 30)
        misfit = (x[:, None] - 1) ** 2 + 0.1 * (y[None, :] - 2) ** 2 + 1e-4
        ax = plot.surface(x, y, misfit, labels=("alpha", "beta", "misfit"), log=True, mark=(1.0, 2.0))
        assert ax.get_ylabel() == "beta"
        ```
    """
    x, y = _axis(x, "x"), _axis(y, "y")
    values = np.asarray(values, np.float64)
    if values.shape != (x.size, y.size):
        hint = "; it looks transposed" if values.shape == (y.size, x.size) else ""
        raise ValueError(f"values must have shape (x.size, y.size) = {(x.size, y.size)}, got {values.shape}{hint}.")
    hidden = ~np.isfinite(values)
    if log:
        hidden |= ~(np.where(hidden, 0.0, values) > 0)
    if hidden.all():
        raise ValueError(f"values must contain {'positive and ' if log else ''}finite numbers to draw, but have none.")
    shown = np.ma.masked_array(values, hidden)
    pyplot()
    from matplotlib.colors import LogNorm, Normalize

    ax = new_axes(ax)
    ax.grid(False)
    colours = colours_between(shown.compressed(), cmap or "viridis", vmin, vmax)
    low, high = colours.options["vmin"], colours.options["vmax"]
    if log and not low > 0:
        raise ValueError(f"vmin must be positive for logarithmic colours, got {vmin}.")
    norm = LogNorm(low, high if high > low else 2 * low) if log else Normalize(low, high)
    picture = ax.pcolormesh(x, y, shown.T, cmap=colours.options["cmap"], norm=norm, shading="nearest", rasterized=True)
    colours.bar(ax.figure, picture, ax, labels[2])
    ax.patch.set_facecolor(BAD)
    if levels is not None and high > low:
        if isinstance(levels, int):
            space = np.geomspace if log else np.linspace
            levels = list(space(low, high, levels + 2)[1:-1])
        ax.contour(x, y, shown.T, levels=levels, colors="white", linewidths=0.8, alpha=0.8)
    if mark is not None:
        ax.plot(*mark, marker="o", markersize=9, markerfacecolor="none", markeredgecolor="black", markeredgewidth=3)
        ax.plot(*mark, marker="o", markersize=9, markerfacecolor="none", markeredgecolor="white", markeredgewidth=1.5)
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    return ax


# A positive parameter whose profile spans this factor has a logarithmic axis.
_DECADES = 30.0


def profiles(profile: Any, *, columns: int = 4, title: str | None = None) -> np.ndarray:
    """Draws the deviance along each parameter with all others fitted again, the threshold and the interval.

    A profile that stays below the threshold on a side leaves its parameter open there: its interval ends with an arrow.

    Args:
        profile: The result of `sciml.inference.profile_likelihood`.
        columns: The most panels side by side.
        title: A title of the figure.

    Returns:
        The `matplotlib.axes.Axes` of the parameters, shape `(k,)`, of a new figure.

    Raises:
        ImportError: If Matplotlib is not installed.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inference
        from sciml.training import Positive

        model = {"rate": jnp.array(2.0)}
        priors = [(lambda m: m["rate"], inference.Improper(Positive()))]
        counts = jnp.array([3.0, 1.0, 4.0])
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m["rate"]), counts, priors)
        axes = inference.profile_likelihood(density).plot()
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


if TYPE_CHECKING:
    from matplotlib.axes import Axes


def waterfall(
    losses: Float[np.ndarray, " starts"],
    *,
    within: float = 0.1,
    ax: "Axes | None" = None,
    title: str | None = None,
    label: str = "loss above the best",
) -> "Axes":
    """Draw the losses at which several starts of a fit ended, the best first.

    A plateau at the left means that many starts found the same optimum; steps behind it are other optima.

    Args:
        losses: The losses, such as minus the logarithms of likelihoods; those that are not finite are left out.
        within: Starts that end this close to the best are drawn in another colour and counted.
        ax: The axes; by default the axes of a new figure.
        title: A title.
        label: The label of the vertical axis.

    Returns:
        The `matplotlib.axes.Axes`, with a logarithmic axis from `within` on.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If no loss is finite, or `within` is not positive.

    Example:
        ```python
        import numpy as np
        from sciml import plot

        ax = plot.waterfall(np.array([3.0, 1.0, 1.01, np.inf, 1.0]), title="five starts")
        assert len(ax.lines) > 0
        ```
    """
    losses = np.asarray(losses, float).reshape(-1)
    found = np.sort(losses[np.isfinite(losses)])
    if not found.size:
        raise ValueError("`losses` must contain at least one finite value.")
    if not within > 0:
        raise ValueError(f"`within` must be positive, but is {within!r}.")
    axes = new_axes(ax)
    above, numbers = found - found[0], 1 + np.arange(found.size)
    near = above <= within
    blue, vermilion = PALETTE[:2]
    axes.plot(numbers, above, color="0.7", linewidth=0.8, zorder=1)
    axes.plot(numbers[near], above[near], "o", color=blue, markersize=4, label=f"{near.sum()} within {within:g}")
    if not near.all():
        axes.plot(numbers[~near], above[~near], "o", color=vermilion, markersize=4, label=f"{(~near).sum()} elsewhere")
    axes.set_yscale("symlog", linthresh=within)
    axes.set(xlabel=f"start, of {losses.size}", ylabel=label, ylim=(-0.3 * within, None))
    if title is not None:
        axes.set_title(title)
    axes.legend(frameon=False, loc="upper left")
    return axes
