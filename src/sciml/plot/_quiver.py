"""A vector field in the plane."""

from typing import Any

import numpy as np

from ._style import PALETTE, new_axes


def quiver(
    u: Any, v: Any, grid: Any, *, at: Any = "center", ax: Any = None, arrows: int = 24, colour: str = PALETTE[6]
) -> Any:
    """Draw the arrows of a vector field on a two-dimensional grid, over what is on the axes already.

    Args:
        u: The first component, on the grid.
        v: The second component.
        grid: The `sciml.spatial.Grid`, with two axes.
        at: Where both components are on the grid.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        arrows: At most how many arrows along the longer axis.
        colour: Their colour.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the components do not have the grid's shape.

    Example:
        ```python
        from sciml import plot
        from sciml.spatial import Grid

        grid = Grid((40, 40), lower=-1.0)
        x, y = grid.centers
        ax = plot.quiver(-y + 0 * x, x + 0 * y, grid, arrows=10)
        assert ax.get_xlabel() == "x"
        ```
    """
    shape = tuple(grid.shape_at(at))
    found = [np.asarray(component, np.float64) for component in (u, v)]
    if len(shape) != 2 or any(component.shape != shape for component in found):
        shapes = " and ".join(str(component.shape) for component in found)
        raise ValueError(f"u and v must have the shape {shape} of a two-dimensional grid, got {shapes}.")
    every = max(1, -(-max(shape) // max(arrows, 1)))
    x, y = (np.asarray(axis, np.float64).ravel() for axis in grid.coordinates(at))
    cut = (slice(every // 2, None, every),) * 2
    ax = new_axes(ax)
    ax.grid(False)
    ax.quiver(x[cut[0]], y[cut[1]], found[0][cut].T, found[1][cut].T, color=colour, pivot="mid", angles="xy")
    ax.set_aspect("equal")
    ax.set_xlabel(grid.names[0])
    ax.set_ylabel(grid.names[1])
    return ax
