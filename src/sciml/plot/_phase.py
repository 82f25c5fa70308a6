"""The plane of two components: solutions and vector fields."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._components import Component, Paths, choose, read
from ._style import PALETTE, new_axes
from ._trajectory import draw_line, mark_events, say_failed


def _pick(paths: Paths, which: int | str, argument: str) -> Component:
    names = [component.name for component in paths.components]
    if isinstance(which, str):
        if which not in names:
            raise ValueError(f"{argument} must name a component, one of {names}; got {which!r}.")
        return paths.components[names.index(which)]
    if not -len(names) <= which < len(names):
        raise ValueError(f"{argument} must be the index of one of {len(names)} components, {names}; got {which}.")
    return paths.components[which]


def phase(
    sol: Any,
    x: int | str = 0,
    y: int | str = 1,
    *,
    ax: Any = None,
    labels: str | Sequence[str] | None = None,
    members: int | Sequence[int] | None = None,
    title: str | None = None,
) -> Any:
    """Draw one component of a solution against another.

    A filled circle marks the start, an open square the end, a cross the last state of a member that failed. Small rings
    mark the states after events.

    Args:
        sol: A `sciml.Solution`, or anything with `ts`, `ys` and `status`; batched or not.
        x: The component along the horizontal axis: its index in the order of the leaves, or its name.
        y: The component along the vertical axis.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        labels: A name for each component.
        members: For a batch, the number of members to draw, evenly spaced, or their indices; by default
            at most 20.
        title: A title above the picture.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If there is no such component, or the solution has fewer than two saved times.

    Example:
        ```python
        from types import SimpleNamespace

        import jax.numpy as jnp
        from sciml import plot

        ts = jnp.linspace(0.0, 5.0, 100)
        sol = SimpleNamespace(ts=ts, ys=jnp.stack([jnp.cos(ts), -jnp.sin(ts)], axis=-1), status=jnp.asarray(0))
        ax = plot.phase(sol, labels=["position", "velocity"])
        assert ax.get_xlabel() == "position"
        ```
    """
    paths = read(sol, labels)
    along, up = _pick(paths, x, "x"), _pick(paths, y, "y")
    chosen = choose(members, len(paths.failed), 20)
    ax = new_axes(ax)
    alpha = max(0.4, 1 / np.sqrt(max(chosen.size, 1)))
    for order, i in enumerate(chosen):
        colour = PALETTE[order % len(PALETTE)] if chosen.size <= len(PALETTE) else PALETTE[0]
        (_, a), (_, b), failed = paths.line(along, i), paths.line(up, i), bool(paths.failed[i])
        draw_line(ax, a, b, failed=failed, color=colour, linewidth=1.2, alpha=alpha)
        if along.after is not None and up.after is not None:
            mark_events(ax, along.after[i], up.after[i], colour, alpha)
        there = np.flatnonzero(np.isfinite(a) & np.isfinite(b))
        if there.size:
            first, last = there[0], there[-1]
            ax.plot(a[first], b[first], marker="o", markersize=5, color=colour)
            if not failed:
                ax.plot(a[last], b[last], marker="s", markersize=5, markerfacecolor="white", color=colour)
    ax.set_xlabel(along.name)
    ax.set_ylabel(up.name)
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    say_failed(ax, paths.failed, paths.batched)
    return ax


def quiver(
    u: Any, v: Any, grid: Any, *, at: Any = "center", ax: Any = None, arrows: int = 24, colour: str = PALETTE[6]
) -> Any:
    """Draw the arrows of a vector field on a two-dimensional grid, over the contents of the axes.

    Args:
        u: The first component, on the grid.
        v: The second component.
        grid: The `sciml.spatial.Grid`, with two axes.
        at: The positions of both components on the grid.
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
