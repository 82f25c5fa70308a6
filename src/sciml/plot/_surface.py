"""A quantity over a grid of two parameters."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._colours import BAD, colours_between
from ._style import new_axes, pyplot


def _axis(values: Any, argument: str) -> np.ndarray:
    found = np.asarray(values, np.float64)
    steps = np.diff(found) if found.ndim == 1 else np.zeros(1)
    if found.ndim != 1 or not (np.all(steps > 0) or np.all(steps < 0)):
        raise ValueError(f"{argument} must be one-dimensional and go one way, got shape {found.shape}.")
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
        vmin: The value at the lower end of the colours; that of the data if None.
        vmax: The value at the upper end. The bar ends in a point where values lie beyond.

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
        raise ValueError(f"values must hold something {'positive and ' if log else ''}finite to draw, got none.")
    shown = np.ma.masked_array(values, hidden)
    pyplot()
    from matplotlib.colors import LogNorm, Normalize

    ax = new_axes(ax)
    ax.grid(False)
    colours = colours_between(shown.compressed(), cmap or "viridis", vmin, vmax)
    low, high = colours.options["vmin"], colours.options["vmax"]
    if log and not low > 0:
        raise ValueError(f"vmin must be positive where the colours are logarithmic, got {vmin}.")
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
