"""Matplotlib on demand, the palette, colour scales, and plain axes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# Okabe and Ito (2008), "Color Universal Design", without yellow (too faint for a line) and with black last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FAINT = "0.85"


def pyplot() -> Any:
    """Import `matplotlib.pyplot`, or report how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('sciml.plot requires Matplotlib, which is missing: pip install "sciml-jax[plot]"') from error
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
    """Label the content: on the axis if it is one thing, otherwise in a legend (outside if it would cover lines)."""
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
            raise ValueError(f"{name} must be one number if lines share an axis, got {limit}.")
    if vmin is not None or vmax is not None:
        ax.set_ylim(vmin, vmax)


BAD = "0.8"  # of what is not finite


class Colours(NamedTuple):
    """The colours of one component.

    Attributes:
        options: The map and its limits, as `pcolormesh` takes them.
        extend: The ends of the bar that are pointed, because there are values beyond them.
    """

    options: dict[str, Any]
    extend: str

    def bar(self, figure: Any, picture: Any, axes: Any, label: str, **style: Any) -> None:
        """Draw the bar next to the axes."""
        figure.colorbar(picture, ax=axes, label=label, extend=self.extend, **style)


def colours_of(fields: Sequence[np.ndarray], cmap: Any, vmin: Any, vmax: Any) -> list[Colours]:
    """A map and limits for each of some components.

    Missing arguments follow from the values: limits that contain all of them, and a map with white in the middle of
    symmetric limits or otherwise one that grows in lightness. Without a map, limits are symmetric if the sign changes.
    """
    lows, highs = each_limit(vmin, len(fields), "vmin"), each_limit(vmax, len(fields), "vmax")
    return [_colours(values, cmap, low, high) for values, low, high in zip(fields, lows, highs, strict=True)]


def each_limit(limit: Any, count: int, name: str) -> list[float | None]:
    """One limit for each component."""
    if limit is None or np.ndim(limit) == 0:
        return [None if limit is None else float(limit)] * count
    if np.shape(limit) != (count,):
        raise ValueError(f"{name} must be a number, or one for each of the {count} components, got {limit}.")
    return [None if x is None else float(x) for x in limit]


def _colours(values: np.ndarray, cmap: Any, vmin: float | None, vmax: float | None) -> Colours:
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise ValueError("the field must contain finite values to draw, but has none.")
    low, high = float(finite.min()), float(finite.max())
    free = cmap is None and vmin is None and vmax is None
    if free and low < 0 < high and min(-low, high) > 0.05 * max(-low, high):
        vmax = max(-low, high)
        vmin = -vmax
    symmetric = vmin is not None and vmax is not None and vmin == -vmax
    return colours_between(finite, cmap or ("RdBu_r" if symmetric else "viridis"), vmin, vmax)


def colours_between(finite: np.ndarray, cmap: Any, vmin: float | None, vmax: float | None) -> Colours:
    """A map between limits, which follow from the values if they are not given."""
    least, most = float(finite.min()), float(finite.max())
    low, high = least if vmin is None else vmin, most if vmax is None else vmax
    if low > high or (low == high and least != most):
        raise ValueError(f"vmin must be below vmax, got {low:g} and {high:g} for values from {least:g} to {most:g}.")
    found = pyplot().get_cmap(cmap).with_extremes(bad=BAD)
    beyond = (least < low, most > high)
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]
    return Colours({"cmap": found, "vmin": low, "vmax": high}, extend)
