"""A solution of very many components: an image over time and index instead of lines."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._status import has_failed
from ._colours import colours_of
from ._components import MOST, choose, finite, times_of
from ._ensemble import quantile_lines
from ._fields import draw_image
from ._style import new_axes

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
