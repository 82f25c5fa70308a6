"""Pictures of fields on grids: one field, frames over time, slices of three dimensions, space against time."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ._components import Fields, choose_times, draw_cells, draw_image, fields_of, read_fields
from ._style import Colours, colours, colours_of, limit_lines, name_components, new_axes, pyplot


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
    """Draw a field without time: the solution of an elliptic problem, a coefficient, an initial state.

    In one dimension its components are lines, in two each is an image, and in three each is a row of planes.

    Args:
        u: The field, or a PyTree of fields: arrays that end with the axes of the grid.
        grid: The `sciml.spatial.Grid`.
        at: The positions of the unknowns on the grid, as in `Grid.coordinates`.
        through: In three dimensions, the point that the planes go through; the middle of the box if None.
        ax: The `matplotlib.axes.Axes` to draw on, of lines or of one image; a new figure if None.
        labels: The labels of the colour bars or of the legend of lines: a name for each component, such as `"T [K]"`.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name; by default one with white at zero, and symmetric limits, if the
            sign changes, else one that grows in lightness. Lines take their colours from it.
        vmin: The value at the lower end of the colours, a number or one for each component, or of the axis of lines;
            the minimum of the data if None.
        vmax: The value at the upper end. A bar ends in a point if there are values beyond.

    Returns:
        The `matplotlib.axes.Axes`, an array: one in one dimension, one for each component in two, and of shape
        (components, 3) in three.

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
        raise ValueError(f"ax holds one picture, but the field has {pictures}. Leave it out, or draw one component.")
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
        sol: A `sciml.Solution`, or an object like one; see `space_time`.
        grid: The `sciml.spatial.Grid`, with two axes.
        times: How many of the saved times to draw, evenly spaced with the first and the last, or a list of times, of
            which the nearest saved ones are drawn.
        of: A function of one state that returns the field to draw; the state itself if None.
        at: The positions of the unknowns on the grid.
        labels: The labels of the colour bars, a name for each component, such as `"T [K]"`.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name; by default one with white at zero, and symmetric limits, if the
            sign changes, else one that grows in lightness.
        vmin: The value at the lower end of the colours, a number or one for each component; the minimum of the data if
            None.
        vmax: The value at the upper end. A bar ends in a point if there are values beyond.

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
    for row, component, shade in zip(axes, fields.components, shades, strict=True):
        for ax, i in zip(row, chosen, strict=True):
            draw_cells(ax, fields, component.values[i], shade)
        shade.bar(figure, row[0].collections[0], row.tolist(), component.name, shrink=0.9)
        row[0].set_ylabel(fields.names[1])
    for ax, i in zip(axes[0], chosen, strict=True):
        ax.set_title(f"t = {fields.ts[i]:.4g}", fontsize="medium")
    for ax in axes[-1]:
        ax.locator_params(axis="x", nbins=3)  # labels of neighbours would meet
        ax.set_xlabel(fields.names[0])
    if title is not None:
        figure.suptitle(title, fontsize="medium")
    return axes


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
        sol: A `sciml.Solution`, or an object like one; see `space_time`.
        grid: The `sciml.spatial.Grid`, with three axes.
        time: The time, of which the nearest saved one is drawn; the last if None.
        through: The point that the planes go through; the middle of the box if None.
        of: A function of one state that returns the field to draw; the state itself if None.
        at: The positions of the unknowns on the grid.
        labels: The labels of the colour bars, a name for each component, such as `"T [K]"`.
        title: A title above the picture, before the time.
        cmap: A colour map of Matplotlib, or its name; by default one with white at zero, and symmetric limits, if the
            sign changes, else one that grows in lightness.
        vmin: The value at the lower end of the colours, a number or one for each component; the minimum of the data if
            None.
        vmax: The value at the upper end. A bar ends in a point if there are values beyond.

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
    """Draw a solution on a one-dimensional grid over space and time, each component on separate axes.

    Fields that change sign have white at zero; values that are not finite stay grey.

    Args:
        sol: A `sciml.Solution`, or anything with `ts` (times,), `ys` (a PyTree with leaves (times, ..., *grid)) and
            `status`.
        grid: The `sciml.spatial.Grid`, with one axis.
        of: A function of one state that returns the field to draw, such as `lambda y: y["u"]` or `jnp.abs`; the state
            itself if None.
        at: The positions of the unknowns on the grid, as in `Grid.coordinates`.
        labels: The labels of the colour bars, a name for each component, such as `"T [K]"`.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name; by default one with white at zero, and symmetric limits, if the
            sign changes, else one that grows in lightness.
        vmin: The value at the lower end of the colours, a number or one for each component; the minimum of the data if
            None.
        vmax: The value at the upper end. A bar ends in a point if there are values beyond.

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
        raise ValueError("sol must contain at least two saved times to be drawn over time, got one. Pass `saveat`.")
    count = len(fields.components)
    figure, axes = pyplot().subplots(
        1, count, sharex=True, sharey=True, squeeze=False, layout="constrained", figsize=(1.6 + 4.2 * count, 4.0)
    )
    shades = colours_of([component.values for component in fields.components], cmap, vmin, vmax)
    for ax, component, shade in zip(axes[0], fields.components, shades, strict=True):
        picture = draw_image(ax, fields.coordinates[0], fields.ts, component.values.T, shade)
        shade.bar(figure, picture, ax, component.name)
        ax.set_xlabel(fields.names[0])
    axes[0, 0].set_ylabel("t")
    if title is not None:
        figure.suptitle(title, fontsize="medium")
    return axes[0]
