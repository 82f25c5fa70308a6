"""Each component of a solution on axes of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._colours import each_limit
from ._components import check_few, count_components, read
from ._style import colours, limit_lines, new_axes, pyplot
from ._trajectory import draw_paths, say_failed


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
    """Draw each component of a solution over time on axes of its own, one below another.

    For components of very different size, of which `trajectory` would show the largest alone.

    Args:
        sol: A `sciml.Solution`, or what is like one; see `trajectory`.
        labels: A name for each component, in the order of the leaves.
        members: Of a batch, the members to draw as lines; see `trajectory`.
        title: A title above the picture.
        cmap: A colour map of Matplotlib, or its name, to take the colours of the lines from.
        vmin: The lower end of the axes, a number or one for each component; that of the data if None.
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
