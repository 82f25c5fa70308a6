"""One field on a grid: a steady state, a coefficient, an initial state."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ._colours import Colours, colours_of
from ._fields import Fields, draw_cells, fields_of
from ._slices import draw_planes
from ._style import colours, limit_lines, name_components, new_axes, pyplot


def field(
    u: Any,
    grid: Any,
    *,
    at: Any = "center",
    through: Sequence[float] | None = None,
    ax: Any = None,
    labels: str | Sequence[str] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> np.ndarray:
    """Draw a field that has no time: what an elliptic solver returns, a coefficient, an initial state.

    In one dimension its components are lines, in two each is an image, and in three each is a row of planes.

    Args:
        u: The field, or a PyTree of fields: arrays that end with the axes of the grid.
        grid: The `sciml.spatial.Grid`.
        at: Where the unknowns are on the grid, as in `Grid.coordinates`.
        through: In three dimensions, the point that the planes go through; the middle of the box if None.
        ax: The `matplotlib.axes.Axes` to draw on, of lines or of one image; a new figure if None.
        labels: What the bars of colours say, or the legend of lines: a name for each component, such as `"T [K]"`.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name; by default one with white at zero where the sign changes, else
            one that grows in lightness. Lines take their colours from it.
        vmin: The value at the lower end of the colours, a number or one for each component, or of the axis of lines;
            that of the data if None.
        vmax: The value at the upper end. A bar ends in a point where values lie beyond.

    Returns:
        The `matplotlib.axes.Axes`, an array: one in one dimension, one for each component in two, and those of the
        shape (components, 3) in three.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the field does not fit the grid or is complex, or there are more pictures than `ax` holds.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import plot
        from sciml.spatial import Boundaries, Dirichlet, Grid, Poisson

        grid = Grid((32, 24), upper=(2.0, 1.5))
        u = Poisson(Boundaries(grid, Dirichlet(0.0)))(-jnp.ones(grid.shape))
        (ax,) = plot.field(u, grid, labels="deflection [mm]", cmap="magma", vmin=0.0)
        assert ax.get_aspect() == 1.0
        ```
    """
    fields = fields_of(np.zeros(1), jax.tree.map(lambda leaf: np.asarray(leaf)[None], u), grid, at, labels)
    count = len(fields.components)
    if ax is not None and (grid.ndim == 3 or (grid.ndim == 2 and count > 1)):
        pictures = 3 * count if grid.ndim == 3 else count
        raise ValueError(f"ax holds one picture, but the field has {pictures}; leave it out, or draw one component.")
    if grid.ndim == 3:
        return draw_planes(fields, 0, grid, through, title, cmap=cmap, vmin=vmin, vmax=vmax)
    if grid.ndim == 1:
        ax = new_axes(ax)
        draw_lines(ax, fields, 0, cmap)
        limit_lines(ax, vmin, vmax)
        figure, axes = ax.figure, np.array([ax])
    else:
        shades = colours_of([component.values for component in fields.components], cmap, vmin, vmax)
        figure, axes = (ax.figure, np.array([ax])) if ax is not None else _side_by_side(count, fields)
        draw_images(figure, axes, fields, 0, shades)
    if title is not None:
        ax.set_title(title, fontsize="medium") if ax is not None else figure.suptitle(title, fontsize="medium")
    return axes


def _side_by_side(count: int, fields: Fields) -> tuple[Any, np.ndarray]:
    aspect = float(np.clip(fields.aspect, 0.25, 2.0))
    size = (1.2 + 4.2 * count, 0.6 + 3.4 * max(min(aspect, 1.5), 0.5))
    figure, axes = pyplot().subplots(1, count, sharey=True, squeeze=False, layout="constrained", figsize=size)
    return figure, axes[0]


def draw_lines(ax: Any, fields: Fields, moment: int, cmap: Any) -> list[Any]:
    """The components of a one-dimensional field as lines."""
    drawn = [
        ax.plot(fields.coordinates[0], component.values[moment], color=colour, label=component.name)[0]
        for component, colour in zip(fields.components, colours(len(fields.components), cmap), strict=True)
    ]
    ax.set_xlabel(fields.names[0])
    name_components(ax, [component.name for component in fields.components])
    return drawn


def draw_images(figure: Any, axes: np.ndarray, fields: Fields, moment: int, shades: list[Colours]) -> list[Any]:
    """The components of a two-dimensional field as images side by side, each with its bar."""
    drawn = []
    for ax, component, shade in zip(axes, fields.components, shades, strict=True):
        drawn.append(draw_cells(ax, fields, component.values[moment], shade))
        shade.bar(figure, drawn[-1], ax, component.name)
        ax.set_xlabel(fields.names[0])
    axes[0].set_ylabel(fields.names[1])
    return drawn
