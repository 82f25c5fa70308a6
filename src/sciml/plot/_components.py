"""Solutions as plain NumPy: components of states, and fields on grids, with their names."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from .._status import has_failed
from ._style import BAD, Colours

MOST = 64  # the most components that are drawn as lines; more could not be told apart


class Component(NamedTuple):
    """One scalar component: its name and its values (members, times); a value that is not finite is NaN.

    Attributes:
        name: Its name.
        values: At the saved times, (members, times).
        before: Before each event, (members, events); None without events.
        after: After each event.
    """

    name: str
    values: np.ndarray
    before: np.ndarray | None = None
    after: np.ndarray | None = None


class Paths(NamedTuple):
    """A solution, or a batch of them, with the batch flattened to one axis.

    Attributes:
        ts: Times, (members, times).
        components: Its components.
        failed: Whether each member failed, (members,).
        batched: Whether the solution had a batch axis at all.
        events: Times of events, (members, events), NaN where there is none; None for a solution without.
    """

    ts: np.ndarray
    components: list[Component]
    failed: np.ndarray
    batched: bool
    events: np.ndarray | None = None

    def line(self, component: Component, member: int | np.integer) -> tuple[np.ndarray, np.ndarray]:
        """The times and values of a member, with the states before and after each event in their places."""
        ts, values = self.ts[member], component.values[member]
        if self.events is None or component.before is None or component.after is None:
            return ts, values
        happened = np.isfinite(self.events[member])
        at = np.repeat(self.events[member][happened], 2)
        jumps = np.stack([component.before[member], component.after[member]], axis=-1)[happened].reshape(-1)
        ends = ts[np.isfinite(ts)]
        sign = -1 if ends.size and ends[-1] < ends[0] else 1
        places = np.searchsorted(sign * ts, sign * at)  # what is saved at the time of an event is the state after it
        return np.insert(ts, places, at), np.insert(values, places, jumps)


def finite(values: Any) -> np.ndarray:
    """Real values in double precision, NaN where they are not finite."""
    values = np.asarray(values)
    if np.iscomplexobj(values):
        raise ValueError(f"cannot draw complex values ({values.dtype}). Draw their real part or modulus instead.")
    values = values.astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def count_components(ys: Any, lead: int) -> int:
    """The number of scalar components behind `lead` axes, before anything is read."""
    return sum(math.prod(np.shape(leaf)[lead:]) for leaf in jax.tree.leaves(ys))


def check_few(count: int, what: str) -> None:
    """Refuses to draw more lines than can be distinguished."""
    if count > MOST:
        raise ValueError(
            f"`{what}` draws at most {MOST} components, got {count}. Select some of them, pass the grid of a field "
            "(`sol.plot(grid)`), or use `trajectory`, which draws them as an image."
        )


def split(ys: Any, batch: tuple[int, ...], times: int, labels: str | Sequence[str] | None) -> list[Component]:
    """Cut a PyTree with leaves (*batch, times, ...) into components."""
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(ys):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "y"
        shape = np.shape(leaf)
        lead = (*batch, times)
        if shape[: len(lead)] != lead:
            raise ValueError(f"ys: leaf {name} must have shape {lead} + its own, got {shape}.")
        own = shape[len(lead) :]
        flat = finite(leaf).reshape(int(np.prod(batch)), times, -1)
        for at, index in enumerate(np.ndindex(own)):
            suffix = f"[{', '.join(map(str, index))}]" if own else ""
            found.append(Component(name + suffix, flat[:, :, at]))
    if not found:
        raise ValueError("ys must have at least one array leaf, got none.")
    return rename(found, labels)


def rename(components: list[Component], labels: str | Sequence[str] | None) -> list[Component]:
    """The components with their names."""
    if labels is None:
        return components
    labels = [labels] if isinstance(labels, str) else labels
    if len(labels) != len(components):
        raise ValueError(f"labels must name each of the {len(components)} components, got {len(labels)} labels.")
    return [Component(str(label), component.values) for label, component in zip(labels, components, strict=True)]


def times_of(sol: Any) -> np.ndarray:
    """The saved times, (*batch, times), of which there are two at least."""
    ts = finite(sol.ts)
    if ts.ndim == 0 or ts.shape[-1] < 2:
        raise ValueError(
            f"sol must contain at least two saved times to be drawn, got ts of shape {ts.shape}. "
            "Solve with saveat=jnp.linspace(t0, t1, 100), for example."
        )
    return ts


def _between(sol: Any, count: int = 200) -> Any:
    """A solution that has dense output and one saved time, at times of the former."""
    dense = getattr(sol, "dense", None)
    if dense is None or np.ndim(sol.ts) != 1 or np.size(sol.ts) > 1:
        return sol
    ends = np.asarray(dense.ts)[np.isfinite(dense.ts)]
    ts = np.linspace(ends[0], ends[-1], count, dtype=ends.dtype)
    return eqx.tree_at(lambda s: (s.ts, s.ys), sol, (ts, sol.evaluate(ts)))


def read(sol: Any, labels: str | Sequence[str] | None = None) -> Paths:
    """Read anything with `ts`, `ys` and `status`."""
    sol = _between(sol)
    status = np.asarray(sol.status)
    ts = times_of(sol)
    times = ts.shape[-1]
    components = split(sol.ys, status.shape, times, labels)
    ts = np.broadcast_to(ts, (*status.shape, times)).reshape(-1, times)
    paths = Paths(ts, components, has_failed(status).reshape(-1), status.ndim > 0)
    return _with_events(paths, getattr(sol, "events", None), status.shape)


def _with_events(paths: Paths, events: Any, batch: tuple[int, ...]) -> Paths:
    """The same with the events that a solution keeps."""
    if events is None:
        return paths
    times = finite(events.times).reshape(len(paths.failed), -1)
    before, after = (split(ys, batch, times.shape[1], None) for ys in (events.states_before, events.states_after))
    components = [
        component._replace(before=b.values, after=a.values)
        for component, b, a in zip(paths.components, before, after, strict=True)
    ]
    return paths._replace(components=components, events=times)


def choose(members: Any, count: int, default: int) -> np.ndarray:
    """Indices of the members to draw: `default` evenly spaced ones, that many of them, or the ones named."""
    if members is None:
        members = default
    if np.ndim(members) == 0:
        if members < 0:
            raise ValueError(f"members must be a number of members or a list of their indices, got {members}.")
        return np.unique(np.linspace(0, count - 1, min(int(members), count)).round().astype(int))
    chosen = np.asarray(members, int)
    if chosen.size and (chosen.min() < -count or chosen.max() >= count):
        raise ValueError(f"members must be indices below {count}, got {chosen.tolist()}.")
    return chosen % count


class Fields(NamedTuple):
    """A solution on a grid.

    Attributes:
        ts: Times, (times,).
        components: Its fields, each (times, *grid).
        coordinates: The positions of the unknowns, one vector for each axis.
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
            f"grid must have {dimensions} axes for this picture, got {grid}. Use `space_time` for one-dimensional "
            "solutions, `frames` for two-dimensional and `slices` for three-dimensional ones."
        )
    if np.ndim(sol.status):
        raise ValueError(
            f"sol must be one solution, got a batch of shape {np.shape(sol.status)}. "
            "Draw one member: `jax.tree.map(lambda leaf: leaf[0], sol)`."
        )
    ts = np.asarray(sol.ts, np.float64)
    ys = sol.ys if of is None else _each_time(of, sol.ys, ts.size)
    return fields_of(ts, ys, grid, at, labels)


def fields_of(ts: np.ndarray, ys: Any, grid: Any, at: Any, labels: str | Sequence[str] | None) -> Fields:
    """The fields of a PyTree whose leaves have times first and end with the axes of a grid."""
    coordinates = [np.asarray(x, np.float64).ravel() for x in grid.coordinates(at)]
    components = _components(ys, tuple(grid.shape_at(at)))
    names: tuple[str, ...] = tuple(grid.names)
    corners: Any = None
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
                "times first. If unknowns are at nodes, set `at`; if the state contains more than fields, select the "
                "field with `of`, such as `of=lambda y: y[0]`."
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
    """A field over two axes, `values[i, j]` at `x[i]`, `y[j]`; values that are not finite stay grey."""
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
