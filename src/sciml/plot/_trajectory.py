"""The components of a solution over time."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._status import has_failed
from ._bands import draw_fan, quantile_lines
from ._colours import colours_of
from ._components import MOST, Component, Paths, choose, count_components, finite, read, times_of
from ._fields import draw_image
from ._style import colours, limit_lines, name_components, new_axes

# A solution of very many components: an image over time and index instead of lines.
ROWS = 2048  # no screen shows more


def image(sol: Any, ax: Any, labels: Any, members: Any, cmap: Any, vmin: Any, vmax: Any) -> tuple[Any, np.ndarray]:
    """Draw all components over time and index, of a batch the median over its members.

    Returns:
        The axes, and whether each member failed.
    """
    times, failed = times_of(sol), has_failed(np.asarray(sol.status).reshape(-1))
    batched, lead = np.ndim(sol.status) > 0, np.shape(times)
    ts = times.reshape(-1, lead[-1])
    if not bool(np.all(ts[:1] == ts)):
        raise ValueError(
            "a batch of so many components is drawn where its members share their saved times, and these do not; "
            "draw one member: `jax.tree.map(lambda leaf: leaf[0], sol)`."
        )
    leaves = [
        (jax.tree_util.keystr(path, simple=True, separator=".") or "y", leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(sol.ys)
    ]
    for name, leaf in leaves:
        if np.shape(leaf)[: len(lead)] != lead:
            raise ValueError(f"ys: leaf {name} must have shape {lead} + its own, got {np.shape(leaf)}.")
    flat = np.concatenate([np.asarray(leaf).reshape(*ts.shape, -1) for _, leaf in leaves], axis=-1)
    chosen = choose(members, len(failed), len(failed)) if batched else np.array([0])
    index = np.arange(0, flat.shape[-1], -(-flat.shape[-1] // ROWS))
    values = finite(flat[chosen][:, :, index])
    middle = values[0] if len(chosen) == 1 else quantile_lines(values.reshape(len(chosen), -1), [0.5])[0]
    middle = middle.reshape(ts.shape[1], index.size)
    ax = new_axes(ax)
    ax.grid(False)
    (colours,) = colours_of([middle], cmap, vmin, vmax)
    picture = draw_image(ax, ts[0], index, middle, colours)
    colours.bar(ax.figure, picture, ax, _label(labels, [name for name, _ in leaves], len(chosen)))
    ax.set_xlabel("t")
    ax.set_ylabel(f"index of {flat.shape[-1]} components")
    return ax, failed


def _label(labels: str | Sequence[str] | None, names: list[str], members: int) -> str:
    if labels is not None:
        labels = [labels] if isinstance(labels, str) else labels
        if len(labels) != 1:
            raise ValueError(f"labels must be one name where more than {MOST} components are an image, got {labels}.")
        names = [str(labels[0])]
    found = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
    return found if members == 1 else f"{found} (median of {members} members)"


FEW = 10  # up to so many members, each is drawn
QUANTILES = (0.05, 0.5, 0.95)


def draw_line(ax: Any, x: np.ndarray, y: np.ndarray, *, failed: bool, **style: Any) -> None:
    """A line that stops where its values do; a failed one ends in a cross."""
    ax.plot(x, y, **style)
    there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if failed and there.size:
        end = there[-1]
        ax.plot(x[end], y[end], marker="x", markersize=6, color=style["color"], linestyle="none")


def mark_events(
    ax: Any, x: np.ndarray | None, y: np.ndarray | None, colour: Any, alpha: float | np.floating = 1.0
) -> None:
    """A small ring at each event."""
    if x is not None and y is not None and np.isfinite(x).any():
        ring = dict(marker="o", markersize=3.5, markerfacecolor="white", markeredgewidth=1.0, linestyle="none")
        ax.plot(x, y, color=colour, alpha=alpha, **ring)


def draw_paths(ax: Any, paths: Paths, members: Any, palette: list[Any]) -> None:
    """The components of one solution as lines, those of a batch as fans or as lines of some members."""
    if paths.batched:
        return _draw_batch(ax, paths, members, palette)
    for component, colour in zip(paths.components, palette, strict=True):
        style = dict(color=colour, linewidth=1.6, label=component.name)
        draw_line(ax, *paths.line(component, 0), failed=bool(paths.failed[0]), **style)
        _mark(ax, paths, component, 0, colour)


def _mark(ax: Any, paths: Paths, component: Component, member: int | np.integer, colour: Any, alpha: Any = 1.0) -> None:
    if paths.events is not None and component.after is not None:
        mark_events(ax, paths.events[member], component.after[member], colour, alpha)


def _draw_batch(ax: Any, paths: Paths, members: Any, palette: list[Any]) -> None:
    count = len(paths.failed)
    shared = bool(np.all(paths.ts[:1] == paths.ts))  # a fan needs the same times in every member
    fan = count > FEW and shared
    chosen = choose(members, count, 0 if fan else (count if count <= FEW else 50))
    alpha = 0.4 if fan else max(0.3, 1 / np.sqrt(max(chosen.size, 1)))
    for component, colour in zip(paths.components, palette, strict=True):
        if fan:
            draw_fan(ax, paths.ts[0], component.values, QUANTILES, colour, component.name)
        else:
            ax.plot([], [], color=colour, label=component.name)
        for i in chosen:
            style = dict(color=colour, alpha=alpha, linewidth=0.8 if fan else 1.2)
            draw_line(ax, *paths.line(component, i), failed=bool(paths.failed[i]), **style)
            _mark(ax, paths, component, i, colour, alpha)


def trajectory(
    sol: Any,
    *,
    ax: Any = None,
    labels: str | Sequence[str] | None = None,
    members: int | Sequence[int] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> Any:
    """Draw the components of a solution over time.

    A batch of solutions, as `jax.vmap` returns it, becomes a fan for each component: the median and the band that
    holds 90% of the members. Up to ten members are drawn as lines instead. A member that failed ends in a cross;
    the fan goes on with those that are left, and the title says how many failed. Components of very different
    size are better drawn by `rows`.

    Events that `Solution.events` keeps are marked by a small ring at the state after each, and lines jump there; fans
    do not show them.

    More than 64 components are an image over time and their index, of a batch the median of the members. A field is
    better drawn with its grid, by `space_time`, `frames` or `slices`.

    Args:
        sol: A `sciml.Solution`, or anything with `ts` (times,), `ys` (a PyTree with leaves (times, ...)) and
            `status`; in a batch, each with the same leading axes.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        labels: A name for each component, in the order of the leaves, such as `"T [K]"`; one for an image.
        members: Of a batch, how many members to draw as lines, evenly spaced, or the indices of those to draw; over
            the fan if there is one. Of an image, the members whose median is drawn.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name, for the image, or to take the colours of the lines from.
        vmin: The lower end of the axis, or of the colours of the image; that of the data if None.
        vmax: The upper end.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the solution has fewer than two saved times, or `labels` or `members` do not fit it.

    Example:
        ```python
        from types import SimpleNamespace

        import jax.numpy as jnp
        from sciml import plot

        ts = jnp.linspace(0.0, 6.0, 100)
        sol = SimpleNamespace(ts=ts, ys={"x": jnp.cos(ts), "v": -jnp.sin(ts)}, status=jnp.asarray(0))
        ax = plot.trajectory(sol)
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["v", "x"]
        ```
    """
    if count_components(sol.ys, np.ndim(sol.status) + 1) > MOST:
        ax, failed = image(sol, ax, labels, members, cmap, vmin, vmax)
    else:
        paths = read(sol, labels)
        failed = paths.failed
        ax = new_axes(ax)
        draw_paths(ax, paths, members, colours(len(paths.components), cmap))
        ax.set_xlabel("t")
        limit_lines(ax, vmin, vmax)
        name_components(ax, [component.name for component in paths.components])
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    say_failed(ax, failed, np.ndim(sol.status) > 0)
    return ax


def say_failed(ax: Any, failed: np.ndarray, batched: bool) -> None:
    """Name the failures above the axes."""
    number, count = int(failed.sum()), len(failed)
    if number:
        text = f"{number} of {count} members failed" if batched else "failed where what is drawn ends"
        ax.set_title(text, loc="right", fontsize="small", color="0.3")
