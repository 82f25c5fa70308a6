"""Which colours stand for which values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._style import pyplot

BAD = "0.8"  # of what is not finite


class Colours(NamedTuple):
    """The colours of one component.

    Attributes:
        options: The map and its limits, as `pcolormesh` takes them.
        extend: Which ends of the bar are pointed, for there are values beyond them.
    """

    options: dict[str, Any]
    extend: str

    def bar(self, figure: Any, picture: Any, axes: Any, label: str, **style: Any) -> None:
        """Draw the bar beside the axes."""
        figure.colorbar(picture, ax=axes, label=label, extend=self.extend, **style)


def colours_of(fields: Sequence[np.ndarray], cmap: Any, vmin: Any, vmax: Any) -> list[Colours]:
    """A map and limits for each of some components.

    What is not given follows from the values: limits that hold all of them, symmetric where the sign changes, and a map
    with white in the middle of symmetric limits or else one that grows in lightness.
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
        raise ValueError("the field must hold something finite to draw, got none.")
    low, high = float(finite.min()), float(finite.max())
    if vmin is None and vmax is None and low < 0 < high and min(-low, high) > 0.05 * max(-low, high):
        vmax = max(-low, high)
        vmin = -vmax
    symmetric = vmin is not None and vmax is not None and vmin == -vmax
    return colours_between(finite, cmap or ("RdBu_r" if symmetric else "viridis"), vmin, vmax)


def colours_between(finite: np.ndarray, cmap: Any, vmin: float | None, vmax: float | None) -> Colours:
    """A map between limits, which are those of the values where they are not given."""
    least, most = float(finite.min()), float(finite.max())
    low, high = least if vmin is None else vmin, most if vmax is None else vmax
    if low > high or (low == high and least != most):
        raise ValueError(f"vmin must be below vmax, got {low:g} and {high:g} for values from {least:g} to {most:g}.")
    found = pyplot().get_cmap(cmap).with_extremes(bad=BAD)
    beyond = (least < low, most > high)
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]
    return Colours({"cmap": found, "vmin": low, "vmax": high}, extend)
