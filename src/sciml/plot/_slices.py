"""A three-dimensional solution, cut along the three planes through a point."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._colours import colours_of
from ._fields import Fields, choose_times, draw_image, read_fields
from ._style import pyplot


def slices(
    sol: Any,
    grid: Any,
    *,
    time: float | None = None,
    through: Sequence[float] | None = None,
    of: Callable[[Any], Any] | None = None,
    at: Any = "center",
    labels: str | Sequence[str] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> np.ndarray:
    """Draw a solution on a three-dimensional grid on the planes through a point, one row for each component.

    Args:
        sol: A `sciml.Solution`, or what is like one; see `space_time`.
        grid: The `sciml.spatial.Grid`, with three axes.
        time: The time, of which the nearest saved one is drawn; the last if None.
        through: The point that the planes go through; the middle of the box if None.
        of: A function of one state that returns the field to draw; the state itself if None.
        at: Where the unknowns are on the grid.
        labels: What the bars of colours say, a name for each component, such as `"T [K]"`.
        title: A title above the picture, before the time.
        cmap: A colour map of Matplotlib, or its name; by default one with white at zero where the sign changes, else
            one that grows in lightness.
        vmin: The value at the lower end of the colours, a number or one for each component; that of the data if None.
        vmax: The value at the upper end. A bar ends in a point where values lie beyond.

    Returns:
        The `matplotlib.axes.Axes`, an array of shape (components, 3): the planes xy, xz and yz.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the solution is a batch, does not fit the grid, or is complex.

    Example:
        ```python
        from types import SimpleNamespace

        import jax.numpy as jnp
        from sciml import plot
        from sciml.spatial import Grid

        grid = Grid((16, 12, 8), upper=(2.0, 1.5, 1.0))
        x, y, z = grid.centers
        ball = jnp.exp(-4 * ((x - 1) ** 2 + (y - 0.75) ** 2 + (z - 0.5) ** 2))
        sol = SimpleNamespace(ts=jnp.zeros(1), ys=ball[None], status=jnp.asarray(0))
        axes = plot.slices(sol, grid)
        assert [ax.get_ylabel() for ax in axes[0]] == ["y", "z", "z"]
        ```
    """
    fields = read_fields(sol, grid, of, at, (3,), labels)
    moment = fields.ts.size - 1 if time is None else int(choose_times(fields.ts, [time])[0])
    said = f"t = {fields.ts[moment]:.4g}"
    return draw_planes(
        fields, moment, grid, through, said if title is None else f"{title}, {said}", cmap=cmap, vmin=vmin, vmax=vmax
    )


def draw_planes(fields: Fields, moment: int, grid: Any, through: Any, title: str | None, **colours: Any) -> np.ndarray:
    """The three planes through a point, one row for each component."""
    middle = [(low + high) / 2 for low, high in zip(grid.lower, grid.upper, strict=True)]
    point = np.asarray(middle if through is None else through, np.float64)
    if point.shape != (3,):
        raise ValueError(f"through must be a point of three coordinates, got {through}.")
    cut = [int(np.argmin(np.abs(x - p))) for x, p in zip(fields.coordinates, point, strict=True)]
    shades = colours_of([component.values[moment] for component in fields.components], **colours)
    figure, axes = pyplot().subplots(
        len(fields.components),
        3,
        squeeze=False,
        layout="constrained",
        figsize=(9.6, 0.5 + 2.8 * len(fields.components)),
    )
    for row, component, shade in zip(axes, fields.components, shades, strict=True):
        for ax, normal in zip(row, (2, 1, 0), strict=True):
            a, b = (axis for axis in range(3) if axis != normal)
            plane = np.take(component.values[moment], cut[normal], axis=normal)
            draw_image(ax, fields.coordinates[a], fields.coordinates[b], plane, shade)
            ax.set_aspect("equal")
            ax.set_xlabel(fields.names[a])
            ax.set_ylabel(fields.names[b])
            ax.set_title(f"{fields.names[normal]} = {fields.coordinates[normal][cut[normal]]:.4g}", fontsize="medium")
        shade.bar(figure, row[0].collections[0], row.tolist(), component.name, shrink=0.9)
    if title is not None:
        figure.suptitle(title, fontsize="medium")
    return axes
