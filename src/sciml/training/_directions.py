"""Directions among parameters, in words."""

from collections.abc import Sequence

import numpy as np


def in_words(direction: np.ndarray, names: Sequence[str], *, least: float = 0.1, most: int = 6) -> str:
    """Returns a direction as a sum, such as `0.71 absorption - 0.71 clearance`; parts below a tenth are left out.

    Args:
        direction: The change of each parameter along the direction.
        names: The parameters' names.
        least: The smallest part that is named, of the largest one.
        most: The most parts.
    """
    size = np.linalg.norm(direction)
    direction = direction / (size if size > 0 else 1)
    sizes = np.round(np.abs(direction), 6)  # equal ones in the order of the names, whatever the rounding
    order = [i for i in np.argsort(-sizes, kind="stable") if sizes[i] >= least * sizes.max()]
    if not order:
        return "none"
    if direction[order[0]] < 0:
        direction = -direction
    words = ""
    for i in order[:most]:
        sign = ("" if not words else "+ ") if direction[i] >= 0 else "- "
        words += f"{' ' if words else ''}{sign}{abs(direction[i]):.2f} `{names[i]}`"
    return words + (" and others" if len(order) > most else "")


def listed(names: Sequence[str], most: int = 10) -> str:
    """Returns names as a list in words."""
    return ", ".join(f"`{name}`" for name in names[:most]) + (", ..." if len(names) > most else "")
