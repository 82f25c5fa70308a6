"""Where the unknowns of a model stand in space, for the labels of its frames."""

from typing import Any

import jax
import numpy as np

from ..spatial import Grid


def space_of(model: Any) -> dict[str, list[float]] | None:
    """Returns the coordinates of the unknowns by axis; None where the model has no grid, or several.

    The model itself, or parts of it such as `Boundaries` and `Spectral`, say it by a `grid` and a `location` on it.
    """

    def says(x: Any) -> bool:
        return isinstance(getattr(x, "grid", None), Grid) and hasattr(x, "location")

    found = [x for x in jax.tree.leaves(model, is_leaf=says) if says(x)]
    places = {(x.grid, tuple(x.location)) for x in found}
    if len(places) != 1:
        return None
    ((grid, location),) = places
    return {
        name: np.asarray(x, np.float64).reshape(-1).tolist()
        for name, x in zip(grid.names, grid.coordinates(location), strict=True)
    }
