"""A one-dimensional solution over space and time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._colours import colours_of
from ._fields import draw_image, read_fields
from ._style import pyplot


def space_time(
    sol: Any,
    grid: Any,
    *,
    of: Callable[[Any], Any] | None = None,
    at: Any = "center",
    labels: str | Sequence[str] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> np.ndarray:
    """Draw a solution on a one-dimensional grid over space and time, each component on axes of its own.

    Fields that change sign have white at zero; values that are not finite stay grey.

    Args:
        sol: A `sciml.Solution`, or anything with `ts` (times,), `ys` (a PyTree with leaves (times, ..., *grid)) and
            `status`.
        grid: The `sciml.spatial.Grid`, with one axis.
        of: A function of one state that returns the field to draw, such as `lambda y: y["u"]` or `jnp.abs`; the state
            itself if None.
        at: Where the unknowns are on the grid, as in `Grid.coordinates`.
        labels: What the bars of colours say, a name for each component, such as `"T [K]"`.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name; by default one with white at zero where the sign changes, else
            one that grows in lightness.
        vmin: The value at the lower end of the colours, a number or one for each component; that of the data if None.
        vmax: The value at the upper end. A bar ends in a point where values lie beyond.

    Returns:
        The `matplotlib.axes.Axes`, an array with one for each component.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the solution is a batch, does not fit the grid, or is complex (`of=jnp.abs` draws its modulus).

    Example:
        ```python
        from types import SimpleNamespace

        import jax.numpy as jnp
        from sciml import plot
        from sciml.spatial import Grid

        grid, ts = Grid(64), jnp.linspace(0.0, 1.0, 30)
        (x,) = grid.centers
        sol = SimpleNamespace(ts=ts, ys=jnp.sin(6.28 * (x[None] - ts[:, None])), status=jnp.asarray(0))
        (ax,) = plot.space_time(sol, grid)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "t")
        ```
    """
    fields = read_fields(sol, grid, of, at, (1,), labels)
    if fields.ts.size < 2:
        raise ValueError("sol must hold at least two saved times to be drawn over time, got one; pass `saveat`.")
    count = len(fields.components)
    figure, axes = pyplot().subplots(
        1, count, sharex=True, sharey=True, squeeze=False, layout="constrained", figsize=(1.6 + 4.2 * count, 4.0)
    )
    shades = colours_of([component.values for component in fields.components], cmap, vmin, vmax)
    for ax, component, colours in zip(axes[0], fields.components, shades, strict=True):
        picture = draw_image(ax, fields.coordinates[0], fields.ts, component.values.T, colours)
        colours.bar(figure, picture, ax, component.name)
        ax.set_xlabel(fields.names[0])
    axes[0, 0].set_ylabel("t")
    if title is not None:
        figure.suptitle(title, fontsize="medium")
    return axes[0]
