"""A solution on a grid as a film."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._components import Fields, read_fields
from ._pictures import draw_images, draw_lines
from ._style import colours_of, limit_lines, new_axes, pyplot


def animate(
    sol: Any,
    grid: Any,
    path: str | pathlib.Path,
    *,
    of: Callable[[Any], Any] | None = None,
    at: Any = "center",
    fps: int = 20,
    dpi: float = 100.0,
    labels: str | Sequence[str] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> pathlib.Path:
    """Write a film of a solution on a one- or two-dimensional grid, a frame for each saved time.

    Args:
        sol: A `sciml.Solution`, or an object like one; see `space_time`.
        grid: The `sciml.spatial.Grid`, with one or two axes.
        path: The file, which ends with `.gif`, or with `.mp4` if ffmpeg is installed.
        of: A function of one state that returns the field to draw; the state itself if None.
        at: The positions of the unknowns on the grid.
        fps: Frames per second.
        dpi: Dots per inch; a picture is 4 inches high.
        labels: The labels of the colour bars or of the legend of lines: a name for each component, such as `"T [K]"`.
        title: A title before the time.
        cmap: A colour map of Matplotlib, or its name; see `frames`. Lines take their colours from it.
        vmin: The value at the lower end of the colours, a number or one for each component, or of the axis of lines;
            the minimum over all times if None.
        vmax: The value at the upper end.

    Returns:
        The path.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the solution is a batch, does not fit the grid or is complex, or if the file type is not
            supported.
        RuntimeError: If ffmpeg is needed and not installed.

    Example:
        ```python
        from types import SimpleNamespace

        import jax.numpy as jnp
        from sciml import plot
        from sciml.spatial import Grid

        grid, ts = Grid(32), jnp.linspace(0.0, 1.0, 4)
        (x,) = grid.centers
        sol = SimpleNamespace(ts=ts, ys=jnp.sin(6.28 * (x[None] - ts[:, None])), status=jnp.asarray(0))
        assert plot.animate(sol, grid, "wave.gif", dpi=40).exists()
        ```
    """
    path = pathlib.Path(path)
    plt = pyplot()
    from matplotlib import animation

    if path.suffix == ".gif":
        writer = animation.PillowWriter(fps=fps)
    elif path.suffix == ".mp4":
        if not animation.FFMpegWriter.isAvailable():
            raise RuntimeError("an `.mp4` requires ffmpeg, which is not installed. Use a path that ends with `.gif`.")
        writer = animation.FFMpegWriter(fps=fps)
    else:
        raise ValueError(f"path must end with .gif or .mp4, got {path.name!r}.")
    fields = read_fields(sol, grid, of, at, (1, 2), labels)
    figure, draw = (_lines if grid.ndim == 1 else _images)(fields, cmap, vmin, vmax)
    text = figure.suptitle("", fontsize="medium")
    before = "" if title is None else f"{title}, "

    def update(i: int) -> list[Any]:
        text.set_text(f"{before}t = {fields.ts[i]:.4g}")
        return draw(i)

    try:
        film = animation.FuncAnimation(figure, update, frames=fields.ts.size, blit=False)
        film.save(path, writer=writer, dpi=dpi)
    finally:
        plt.close(figure)
    return path


def _lines(fields: Fields, cmap: Any, vmin: Any, vmax: Any) -> tuple[Any, Callable[[int], list[Any]]]:
    figure, ax = pyplot().subplots(layout="constrained", figsize=(6.4, 4.0))
    new_axes(ax)
    drawn = draw_lines(ax, fields, 0, cmap)
    stacked = np.stack([component.values for component in fields.components])
    low, high = np.nanmin(stacked), np.nanmax(stacked)
    margin = 0.05 * (high - low) or 1.0
    ax.set_ylim(low - margin, high + margin)
    limit_lines(ax, vmin, vmax)

    def update(i: int) -> list[Any]:
        for line, component in zip(drawn, fields.components, strict=True):
            line.set_ydata(component.values[i])
        return drawn

    return figure, update


def _images(fields: Fields, cmap: Any, vmin: Any, vmax: Any) -> tuple[Any, Callable[[int], list[Any]]]:
    shades = colours_of([component.values for component in fields.components], cmap, vmin, vmax)
    count = len(fields.components)
    figure, axes = pyplot().subplots(1, count, squeeze=False, layout="constrained", figsize=(0.6 + 4.6 * count, 4.0))
    drawn = draw_images(figure, axes[0], fields, 0, shades)

    def update(i: int) -> list[Any]:
        for picture, component in zip(drawn, fields.components, strict=True):
            picture.set_array(np.ma.masked_invalid(component.values[i]).T)
        return drawn

    return figure, update
