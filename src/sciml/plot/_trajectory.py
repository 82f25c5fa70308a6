"""Components over time: lines, rows of axes, and bands of quantiles."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._status import has_failed
from ._components import (
    MOST,
    Component,
    Paths,
    check_few,
    choose,
    count_components,
    draw_image,
    finite,
    read,
    split,
    times_of,
)
from ._style import colours, colours_of, each_limit, limit_lines, name_components, new_axes, pyplot


def rows(
    sol: Any,
    *,
    labels: str | Sequence[str] | None = None,
    members: int | Sequence[int] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> np.ndarray:
    """Draw each component of a solution over time on separate axes, one below another.

    For components of very different size, of which `trajectory` would only show the largest.

    Args:
        sol: A `sciml.Solution`, or an object like one; see `trajectory`.
        labels: A name for each component, in the order of the leaves.
        members: For a batch, the members to draw as lines; see `trajectory`.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name, to take the colours of the lines from.
        vmin: The lower end of the axes, a number or one for each component; the minimum of the data if None.
        vmax: The upper end.

    Returns:
        The `matplotlib.axes.Axes`, an array with one for each component.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the solution has fewer than two saved times or more than 64 components, or an argument does not
            fit it.

    Example:
        ```python
        from types import SimpleNamespace

        import jax.numpy as jnp
        from sciml import plot

        ts = jnp.linspace(0.0, 6.0, 100)
        sol = SimpleNamespace(ts=ts, ys={"a": jnp.exp(-ts), "b": 1e-5 * jnp.sin(ts)}, status=jnp.asarray(0))
        top, bottom = plot.rows(sol)
        assert (top.get_ylabel(), bottom.get_ylabel()) == ("a", "b")
        ```
    """
    check_few(count_components(sol.ys, np.ndim(sol.status) + 1), "rows")
    paths = read(sol, labels)
    count = len(paths.components)
    figure, axes = pyplot().subplots(
        count, sharex=True, squeeze=False, layout="constrained", figsize=(6.4, max(3.0, 1.2 + 1.2 * count))
    )
    found = axes[:, 0]
    ends = each_limit(vmin, count, "vmin"), each_limit(vmax, count, "vmax")
    for ax, component, colour, low, high in zip(found, paths.components, colours(count, cmap), *ends, strict=True):
        draw_paths(new_axes(ax), paths._replace(components=[component]), members, [colour])
        ax.set_ylabel(component.name)
        limit_lines(ax, low, high)
    found[-1].set_xlabel("t")
    if title is not None:
        found[0].set_title(title, loc="left", fontsize="medium")
    say_failed(found[0], paths.failed, paths.batched)
    figure.align_ylabels(found)
    return found


def quantile_lines(values: np.ndarray, quantiles: Sequence[float]) -> np.ndarray:
    """Quantiles over the members that are finite at each time, (quantiles, times); NaN where none is."""
    found = np.full((len(quantiles), values.shape[1]), np.nan)
    alive = np.isfinite(values).any(axis=0)
    if alive.any():
        found[:, alive] = np.nanquantile(values[:, alive], quantiles, axis=0)
    return found


def draw_fan(ax: Any, ts: np.ndarray, values: np.ndarray, quantiles: Sequence[float], colour: Any, label: str) -> None:
    """Nested bands from the outermost pair of quantiles inwards; the middle one, if their number is odd, is a line."""
    lines = quantile_lines(values, quantiles)
    pairs = len(quantiles) // 2
    for i in range(pairs):
        ax.fill_between(
            ts, lines[i], lines[-1 - i], color=colour, alpha=0.2 + 0.2 * i / max(pairs, 1), linewidth=0, label=None
        )
    if len(quantiles) % 2:
        ax.plot(ts, lines[pairs], color=colour, linewidth=1.8, label=label)
    else:
        ax.plot([], [], color=colour, linewidth=6, alpha=0.4, label=label)


def check_quantiles(quantiles: Sequence[float]) -> list[float]:
    """Quantiles in increasing order within [0, 1]."""
    found = [float(q) for q in quantiles]
    if not found or any(not 0 <= q <= 1 for q in found) or found != sorted(found):
        raise ValueError(f"quantiles must increase within [0, 1], such as (0.05, 0.5, 0.95); got {tuple(quantiles)}.")
    return found


def bands(
    ts: Any,
    ys: Any,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    *,
    ax: Any = None,
    labels: str | Sequence[str] | None = None,
    title: str | None = None,
    cmap: Any = None,
    vmin: Any = None,
    vmax: Any = None,
) -> Any:
    """Draw an ensemble as bands of quantiles over time.

    Quantiles pair up from the outside in: `(0.05, 0.25, 0.5, 0.75, 0.95)` is a 90% band, a 50% band in it, and the
    median. At each time they are taken over the members that are finite there.

    Args:
        ts: Times, shape (times,), or (members, times) if all members have the same times.
        ys: A PyTree with leaves of shape (members, times, ...): `sols.ts` and `sols.ys` of what `jax.vmap` of a solve
            returns, whose `sols.plot()` draws such bands as well.
        quantiles: Increasing numbers within [0, 1].
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        labels: A name for each component.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name, to take the colours of the bands from.
        vmin: The lower end of the axis; the minimum of the data if None.
        vmax: The upper end.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the shapes do not fit together or the quantiles do not increase, or there are more than
            64 components.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import plot

        ts = jnp.linspace(0.0, 3.0, 50)
        rates = jnp.linspace(0.5, 1.5, 200)
        ax = plot.bands(ts, jnp.exp(-rates[:, None] * ts[None]), labels=["population"])
        assert ax.get_xlabel() == "t"
        ```
    """
    quantiles = check_quantiles(quantiles)
    times = np.asarray(ts, np.float64)
    members = next((np.shape(leaf)[0] for leaf in jax.tree.leaves(ys) if np.ndim(leaf)), 0)
    if times.ndim == 2 and len(times) == members and (times == times[:1]).all():
        times = times[0]
    if times.ndim != 1:
        raise ValueError(
            f"ts must have shape (times,), or (members, times) with the same times in each row, got {times.shape}."
        )
    check_few(count_components(ys, 2), "bands")
    components = split(ys, (members,), times.size, labels)
    ax = new_axes(ax)
    for component, colour in zip(components, colours(len(components), cmap), strict=True):
        draw_fan(ax, times, component.values, quantiles, colour, component.name)
    ax.set_xlabel("t")
    limit_lines(ax, vmin, vmax)
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    name_components(ax, [component.name for component in components])
    return ax


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
            "a batch with this many components can only be drawn if its members share their saved times, but these do "
            "not. Draw one member: `jax.tree.map(lambda leaf: leaf[0], sol)`."
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
            raise ValueError(
                f"labels must be one name if more than {MOST} components are drawn as an image, got {labels}."
            )
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
    """The components of one solution as lines, and the components of a batch as fans or as lines of some members."""
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

    A batch of solutions, as `jax.vmap` returns it, becomes a fan for each component: the median and the band that holds
    90% of the members. Up to ten members are drawn as lines instead. A member that failed ends in a cross; the fan
    continues with the remaining members, and the title shows the number of failed ones. Components of very different
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
        members: For a batch, the number of members to draw as lines, evenly spaced, or their indices; over
            the fan if there is one. For an image, the members whose median is drawn.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name, for the image, or to take the colours of the lines from.
        vmin: The lower end of the axis, or of the colours of the image; the minimum of the data if None.
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
        text = f"{number} of {count} members failed" if batched else "failed at the end of the curve"
        ax.set_title(text, loc="right", fontsize="small", color="0.3")
