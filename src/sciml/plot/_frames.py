"""A two-dimensional solution at some of its times."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._colours import colours_of
from ._fields import choose_times, draw_cells, read_fields
from ._style import pyplot


def frames(
    sol: Any,
    grid: Any,
    *,
    times: int | Sequence[float] = 4,
    of: Callable[[Any], Any] | None = None,
    at: Any = "center",
    labels: str | Sequence[str] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> np.ndarray:
    """Draw a solution on a two-dimensional grid at some of its saved times, one row for each component.

    All frames of a component share their colours, so that they can be compared. Fields that change sign have white at
    zero; values that are not finite stay grey.

    Args:
        sol: A `sciml.Solution`, or what is like one; see `space_time`.
        grid: The `sciml.spatial.Grid`, with two axes.
        times: How many of the saved times to draw, evenly spaced with the first and the last, or a list of times, of
            which the nearest saved ones are drawn.
        of: A function of one state that returns the field to draw; the state itself if None.
        at: Where the unknowns are on the grid.
        labels: What the bars of colours say, a name for each component, such as `"T [K]"`.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name; by default one with white at zero where the sign changes, else
            one that grows in lightness.
        vmin: The value at the lower end of the colours, a number or one for each component; that of the data if None.
        vmax: The value at the upper end. A bar ends in a point where values lie beyond.

    Returns:
        The `matplotlib.axes.Axes`, an array of shape (components, frames).

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the solution is a batch, does not fit the grid, or is complex.

    Example:
        ```python
        from types import SimpleNamespace

        import jax.numpy as jnp
        from sciml import plot
        from sciml.spatial import Grid

        grid, ts = Grid((32, 24)), jnp.linspace(0.0, 1.0, 9)
        x, y = grid.centers
        shape = jnp.sin(6.28 * x) * jnp.sin(6.28 * y)
        sol = SimpleNamespace(ts=ts, ys=jnp.exp(-ts)[:, None, None] * shape[None], status=jnp.asarray(0))
        assert plot.frames(sol, grid, times=[0.0, 0.5, 1.0]).shape == (1, 3)
        ```
    """
    fields = read_fields(sol, grid, of, at, (2,), labels)
    chosen = choose_times(fields.ts, times)
    width, height = 2.4, 2.4 * float(np.clip(fields.aspect, 0.25, 2.0))
    shape = len(fields.components), len(chosen)
    figure, axes = pyplot().subplots(
        *shape,
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
        figsize=(1.4 + width * shape[1], 0.6 + (height + 0.3) * shape[0]),
    )
    shades = colours_of([component.values[chosen] for component in fields.components], cmap, vmin, vmax)
    for row, component, colours in zip(axes, fields.components, shades, strict=True):
        for ax, i in zip(row, chosen, strict=True):
            draw_cells(ax, fields, component.values[i], colours)
        colours.bar(figure, row[0].collections[0], row.tolist(), component.name, shrink=0.9)
        row[0].set_ylabel(fields.names[1])
    for ax, i in zip(axes[0], chosen, strict=True):
        ax.set_title(f"t = {fields.ts[i]:.4g}", fontsize="medium")
    for ax in axes[-1]:
        ax.locator_params(axis="x", nbins=3)  # labels of neighbours would meet
        ax.set_xlabel(fields.names[0])
    if title is not None:
        figure.suptitle(title, fontsize="medium")
    return axes
