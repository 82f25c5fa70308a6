"""What all pictures share: Matplotlib on demand, the palette, plain axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

# Okabe and Ito (2008), "Color Universal Design", without yellow (too faint for a line) and with black last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FAINT = "0.85"


def pyplot() -> Any:
    """Import `matplotlib.pyplot`, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('sciml.plot needs Matplotlib, which is missing: pip install "sciml-jax[plot]"') from error
    return plt


def new_axes(ax: Any) -> Any:
    """`ax` itself, or the axes of a new figure; either way with light grid lines behind the data."""
    if ax is None:
        _, ax = pyplot().subplots(layout="constrained")
    ax.set_axisbelow(True)
    ax.grid(True, color=FAINT, linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def colours(count: int, cmap: Any = None) -> list[Any]:
    """`count` colours: the palette where it suffices, else an even cut through one that grows in lightness."""
    if cmap is None and count <= len(PALETTE):
        return list(PALETTE[:count])
    found = pyplot().get_cmap("cividis" if cmap is None else cmap)
    return [found(i / max(count - 1, 1)) for i in range(count)]


def name_components(ax: Any, names: Sequence[str]) -> None:
    """Say what is drawn: on the axis if it is one thing, else in a legend, beside the axes once it would cover them."""
    if len(names) == 1:
        ax.set_ylabel(names[0])
    elif len(names) <= len(PALETTE):
        ax.legend(frameon=True, framealpha=0.8, edgecolor="none")
    elif len(names) <= 16:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    else:
        ax.set_ylabel(f"{len(names)} components, {names[0]} (dark) to {names[-1]} (light)")


def limit_lines(ax: Any, vmin: Any, vmax: Any) -> None:
    """Limits of the axis of lines, which all share."""
    for name, limit in (("vmin", vmin), ("vmax", vmax)):
        if limit is not None and np.ndim(limit):
            raise ValueError(f"{name} must be one number where lines share an axis, got {limit}.")
    if vmin is not None or vmax is not None:
        ax.set_ylim(vmin, vmax)
