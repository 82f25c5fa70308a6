"""Read a solution on a grid into plain NumPy: times, coordinates, and one field per component."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ._colours import BAD, Colours
from ._components import Component, finite, rename


class Fields(NamedTuple):
    """A solution on a grid.

    Attributes:
        ts: Times, (times,).
        components: Its fields, each (times, *grid).
        coordinates: Where the unknowns are, one vector for each axis.
        names: The names of the axes.
        corners: Of two dimensions where cells differ, the corners of the cells, each (*grid + 1), in Cartesian
            coordinates; or None.
    """

    ts: np.ndarray
    components: list[Component]
    coordinates: list[np.ndarray]
    names: tuple[str, ...]
    corners: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def aspect(self) -> float:
        """How high a field of two dimensions is, over how wide."""
        wide, high = (np.ptp(x) for x in self.corners or self.coordinates)
        return float(high / wide) if wide else 1.0


def read_fields(
    sol: Any,
    grid: Any,
    of: Callable[[Any], Any] | None,
    at: Any,
    ndim: tuple[int, ...],
    labels: str | Sequence[str] | None = None,
) -> Fields:
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
    return fields_of(ts, ys, grid, at, labels)


def fields_of(ts: np.ndarray, ys: Any, grid: Any, at: Any, labels: str | Sequence[str] | None) -> Fields:
    """The fields of a PyTree whose leaves have times first and end with the axes of a grid."""
    coordinates = [np.asarray(x, np.float64).ravel() for x in grid.coordinates(at)]
    components = _components(ys, tuple(grid.shape_at(at)))
    names, corners = tuple(grid.names), None
    if hasattr(grid, "cartesian") and grid.ndim == 2:
        places = (np.asarray(x, np.float64) for x in grid.cartesian(*grid.coordinates("node")))
        corners = tuple(np.broadcast_arrays(*places))
        names = ("x", "y") if grid.system.turning is not None else names
    return Fields(ts, rename(components, labels), coordinates, names, corners)


def _each_time(of: Callable[[Any], Any], ys: Any, times: int) -> Any:
    states = [of(jax.tree.map(lambda leaf: leaf[i], ys)) for i in range(times)]
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)


def _components(ys: Any, shape: tuple[int, ...]) -> list[Component]:
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(ys):
        if np.shape(leaf)[1:][-len(shape) :] != shape:
            raise ValueError(
                f"the fields must end with the axes {shape} of the grid, got a leaf of shape {np.shape(leaf)} with the "
                "times first. Where unknowns are at nodes, say so with `at`; a state that is more than fields is "
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


def draw_image(ax: Any, x: np.ndarray, y: np.ndarray, values: np.ndarray, colours: Colours) -> Any:
    """A field over two axes, `values[i, j]` at `x[i]`, `y[j]`; what is not finite stays grey."""
    shown = np.ma.masked_invalid(values).T
    picture = ax.pcolormesh(x, y, shown, shading="nearest", rasterized=True, **colours.options)
    ax.patch.set_facecolor(BAD)
    return picture


def draw_cells(ax: Any, fields: Fields, values: np.ndarray, colours: Colours) -> Any:
    """A field of two dimensions over its grid, with lengths along both axes alike."""
    if fields.corners is None:
        x, y = fields.coordinates
        picture = draw_image(ax, x, y, values, colours)
    else:
        x, y = fields.corners
        picture = ax.pcolormesh(x.T, y.T, np.ma.masked_invalid(values).T, rasterized=True, **colours.options)
    set_aspect(ax, x, y)
    return picture


def set_aspect(ax: Any, x: np.ndarray, y: np.ndarray) -> None:
    """Lengths along both axes look alike, but for boxes so long and thin that nothing would be seen."""
    aspect = np.ptp(y) / np.ptp(x) if x.size > 1 and y.size > 1 else 0.0
    ax.set_aspect("equal" if 0.2 <= aspect <= 3 else "auto")
