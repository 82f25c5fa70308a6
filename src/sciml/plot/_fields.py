"""Read a solution on a grid into plain NumPy: times, coordinates, and one field per component."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ._components import Component, finite
from ._style import pyplot


class Fields(NamedTuple):
    """A solution on a grid.

    Attributes:
        ts: Times, (times,).
        components: Its fields, each (times, *grid).
        coordinates: Where the unknowns stand, one vector for each axis.
        names: The names of the axes.
    """

    ts: np.ndarray
    components: list[Component]
    coordinates: list[np.ndarray]
    names: tuple[str, ...]


def read_fields(sol: Any, grid: Any, of: Callable[[Any], Any] | None, at: Any, ndim: tuple[int, ...]) -> Fields:
    """Read anything with `ts`, `ys` and `status` whose leaves end with the axes of a grid."""
    if grid.ndim not in ndim:
        dimensions = " or ".join(map(str, ndim))
        raise ValueError(
            f"grid must have {dimensions} axes for this picture, got {grid}: `space_time` draws one-dimensional "
            "solutions, `frames` two-dimensional ones, `slices` three-dimensional ones."
        )
    if np.ndim(sol.status):
        raise ValueError(
            f"sol must be one solution, got a batch of shape {np.shape(sol.status)}; "
            "draw one member: `jax.tree.map(lambda leaf: leaf[0], sol)`."
        )
    ts = np.asarray(sol.ts, np.float64)
    ys = sol.ys if of is None else _each_time(of, sol.ys, ts.size)
    shape = tuple(grid.shape_at(at))
    coordinates = [np.asarray(x, np.float64).ravel() for x in grid.coordinates(at)]
    return Fields(ts, _components(ys, shape), coordinates, tuple(grid.names))


def _each_time(of: Callable[[Any], Any], ys: Any, times: int) -> Any:
    states = [of(jax.tree.map(lambda leaf: leaf[i], ys)) for i in range(times)]
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)


def _components(ys: Any, shape: tuple[int, ...]) -> list[Component]:
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(ys):
        if np.shape(leaf)[1:][-len(shape) :] != shape:
            raise ValueError(
                f"the fields must end with the axes {shape} of the grid, got a leaf of shape {np.shape(leaf)} with the "
                "times first. Where unknowns stand at nodes, say so with `at`; a state that is more than fields is "
                "made into one by `of`, such as `of=lambda y: y[0]`."
            )
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "u"
        lead = np.shape(leaf)[1 : np.ndim(leaf) - len(shape)]
        values = finite(leaf)
        for index in np.ndindex(lead):
            suffix = f"[{', '.join(map(str, index))}]" if lead else ""
            found.append(Component(name + suffix, values[(slice(None), *index)]))
    if not found:
        raise ValueError("ys must have at least one array leaf, got none.")
    return found


def choose_times(ts: np.ndarray, times: int | Any) -> np.ndarray:
    """Indices of the saved times to draw: that many, evenly spaced, or those nearest to the ones named."""
    if np.ndim(times) == 0:
        if times < 1:
            raise ValueError(f"times must be a number of frames or a list of times, got {times}.")
        return np.unique(np.linspace(0, ts.size - 1, min(int(times), ts.size)).round().astype(int))
    return np.array([np.argmin(np.abs(ts - t)) for t in np.asarray(times, np.float64)])


def colours_of(values: np.ndarray) -> dict[str, Any]:
    """A map and its limits: one that grows in lightness, or one with white at zero where the sign changes."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise ValueError("the field must hold something finite to draw, got none.")
    low, high = float(finite.min()), float(finite.max())
    bad = {"bad": "0.8"}
    if low < 0 < high and min(-low, high) > 0.05 * max(-low, high):
        size = max(-low, high)
        return {"cmap": pyplot().get_cmap("RdBu_r").with_extremes(**bad), "vmin": -size, "vmax": size}
    return {"cmap": pyplot().get_cmap("viridis").with_extremes(**bad), "vmin": low, "vmax": high}


def draw_image(ax: Any, x: np.ndarray, y: np.ndarray, values: np.ndarray, **colours: Any) -> Any:
    """A field over two axes, `values[i, j]` at `x[i]`, `y[j]`; what is not finite stays grey."""
    picture = ax.pcolormesh(x, y, np.ma.masked_invalid(values).T, shading="nearest", rasterized=True, **colours)
    ax.patch.set_facecolor("0.8")
    return picture
