"""Ghost layers around a device's block: from its neighbours, and at the edges from the boundary conditions.

Dimensions are padded one after another, each including the layers of the ones before, so that corners agree with the
whole field. Along a dimension that is split there are two messages, one each way, and then every device makes the ghost
layers of a wall, which only those at the edge use: the same function of the same layers as in a whole field, and so the
same bits.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..._structure_words import first_difference, structure_words
from ...spatial import AbstractWall, Boundaries, Extrapolate, OrthogonalGrid, Periodic
from ...spatial.geometry._ghosts import at_walls
from ._sharding import Axes, along, halo_error


class Halo(NamedTuple):
    """How ghost layers are made.

    Attributes:
        axes: For each dimension of space the mesh axis that splits it; None where it is whole.
        boundary: The conditions at the edges; None for a periodic field.
        accuracy: The order of the error of the ghost values at walls.
        t: The time.
        args: The second argument of conditions that are functions.
        free: Whether the field is subject to no condition, and extrapolated beyond walls.
    """

    axes: Axes
    boundary: Boundaries | None
    accuracy: int = 2
    t: Any = None
    args: Any = None
    free: bool = False

    def devices(self, axis: int) -> int:
        """Returns over how many devices a dimension of space is split."""
        name = self.axes[axis]
        return 1 if name is None else jax.lax.axis_size(name)

    def has_walls(self, axis: int) -> bool:
        """Returns whether a dimension of space is not periodic."""
        return self.boundary is not None and not isinstance(self.boundary.sides[axis][0], Periodic)


def pad(u: Array, width: int, halo: Halo) -> Array:
    """Returns a device's block with `width` ghost layers on all sides."""
    _check_block(u, halo)
    layers = [0] * len(halo.axes)
    for axis in range(len(halo.axes)):
        u = _pad_axis(u, width, axis, _walls(u, axis, layers, halo), halo)
        layers[axis] = width
    return u


def advance(stencil: Callable[[PyTree], PyTree], u: PyTree, width: int, halo: Halo, times: Sequence[Any]) -> PyTree:
    """Applies a stencil once for each time, with one exchange.

    Along dimensions that are split, the layers of all steps are fetched at first, and every step uses up `width` of
    them. At walls the ghost layers are computed again before every step. Other dimensions are padded before every step,
    which takes no message.
    """
    if len(times) == 1:
        halo = halo._replace(t=times[0])
        return _apply(stencil, jax.tree.map(lambda x: pad(x, width, halo), u), width, halo)
    split = [halo.devices(axis) > 1 for axis in range(len(halo.axes))]

    def fetch(x):
        _check_block(x, halo)
        for axis in range(len(split)):
            if split[axis]:
                x = _join(x, *neighbours(x, width * len(times), axis, halo, halo.has_walls(axis)), axis, halo)
        return x

    def surround(x, left, halo):
        layers = [left if wide else 0 for wide in split]
        for axis, wide in enumerate(split):
            walls = _walls(x, axis, layers, halo)
            if not wide:
                x = _pad_axis(x, width, axis, walls, halo)
                layers[axis] = width
            elif walls is not None:
                x = _renew(x, left, axis, walls, halo)
        return x

    u = jax.tree.map(fetch, u)
    for number, t in enumerate(times):
        now = halo._replace(t=t)
        left = width * (len(times) - number)
        u = _apply(stencil, jax.tree.map(lambda x, left=left, now=now: surround(x, left, now), u), width, halo)
    return u


def _apply(stencil: Callable[[PyTree], PyTree], padded: PyTree, width: int, halo: Halo) -> PyTree:
    out = stencil(padded)
    d = len(halo.axes)
    if jax.tree.structure(out) != jax.tree.structure(padded):
        raise ValueError(
            f"`Domain.map`: `stencil` must return the structure of its argument, {structure_words(padded)}, but "
            f"returned {structure_words(out)}.{first_difference(padded, out)}"
        )
    for before, after in zip(jax.tree.leaves(padded), jax.tree.leaves(out)):
        expected = before.shape[: before.ndim - d] + tuple(n - 2 * width for n in before.shape[before.ndim - d :])
        if jnp.shape(after) != expected:
            raise ValueError(
                f"`Domain.map`: `stencil` got a field of shape {before.shape}, with {width} ghost layers on every "
                f"side, and must return it without them, with shape {expected}, but returned shape {jnp.shape(after)}."
            )
    return out


def _at(u: Array, axis: int, halo: Halo) -> int:
    return u.ndim - len(halo.axes) + axis


def _check_block(u: Array, halo: Halo) -> None:
    d = len(halo.axes)
    if u.ndim < d:
        raise ValueError(f"`Domain`: a field must have at least the {d} dimensions of space, but has shape {u.shape}.")
    if halo.boundary is None:
        return
    whole = tuple(n * halo.devices(axis) for axis, n in enumerate(u.shape[u.ndim - d :]))
    if whole != halo.boundary.shape:
        raise ValueError(
            f"`Domain`: the boundary conditions require a field that ends with the axes {halo.boundary.shape}, "
            f"but got {whole}. Pass fields that should be split through `Domain.run`."
        )


def _slice(u: Array, start: int, stop: int, at: int) -> Array:
    return jax.lax.slice_in_dim(u, start, stop, axis=at)


def _join(u: Array, low: Array, high: Array, axis: int, halo: Halo) -> Array:
    return jnp.concatenate([low, u, high], axis=_at(u, axis, halo))


def _pad_axis(u: Array, width: int, axis: int, walls: tuple | None, halo: Halo) -> Array:
    split = halo.devices(axis) > 1
    if walls is None:
        return _join(u, *neighbours(u, width, axis, halo, False), axis, halo)
    ghosts = _ghosts(u, width, axis, walls, halo)
    if split:
        ghosts = at_edges(ghosts, neighbours(u, width, axis, halo, True), axis, halo)
    return _join(u, *ghosts, axis, halo)


def _renew(u: Array, width: int, axis: int, walls: tuple, halo: Halo) -> Array:
    """Makes the ghost layers of walls anew, around what is there."""
    at = _at(u, axis, halo)
    n = u.shape[at]
    inner = _slice(u, width, n - width, at)
    there = _slice(u, 0, width, at), _slice(u, n - width, n, at)
    ghosts = at_edges(_ghosts(inner, width, axis, walls, halo), there, axis, halo)
    return _join(inner, *ghosts, axis, halo)


def neighbours(u: Array, width: int, axis: int, halo: Halo, closed: bool) -> tuple[Array, Array]:
    """Returns the layers below and above a block.

    Args:
        u: The block.
        width: How many layers.
        axis: The dimension of space.
        halo: The mesh axes that split the field.
        closed: Whether the field ends at its edges, with zeros beyond; else it is periodic.
    """
    at = _at(u, axis, halo)
    n, devices, name = u.shape[at], halo.devices(axis), halo.axes[axis]
    if width > n:
        raise halo_error(width, n, axis, name, devices)
    return exchange(_slice(u, 0, width, at), _slice(u, n - width, n, at), axis, halo, closed)


def exchange(first: Array, last: Array, axis: int, halo: Halo, closed: bool) -> tuple[Array, Array]:
    """Sends the first layers of a block down and its last ones up; returns what came from below and from above.

    Args:
        first: The first layers.
        last: The last ones.
        axis: The dimension of space.
        halo: The mesh axes that split the field.
        closed: Whether the field ends at its edges, with zeros beyond; else it is periodic.
    """
    devices, name = halo.devices(axis), halo.axes[axis]
    if devices == 1:
        return last, first
    pairs = [(i, i + 1) for i in range(devices - 1)]
    if not closed:
        pairs.append((devices - 1, 0))
    below = jax.lax.ppermute(last, name, pairs) if last.size else last
    above = jax.lax.ppermute(first, name, [(j, i) for i, j in pairs]) if first.size else first
    return below, above


def at_edges(ghosts: tuple[Array, Array], others: tuple[Array, Array], axis: int, halo: Halo) -> tuple[Array, Array]:
    """Takes ghost layers at the two edges of the field, and the others elsewhere."""
    low, high = (jnp.where(edge, a, b) for edge, a, b in zip(edges(axis, halo), ghosts, others))
    return low, high


def edges(axis: int, halo: Halo) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Returns whether a block is the first along a dimension, and whether it is the last."""
    place = jax.lax.axis_index(halo.axes[axis])
    return place == 0, place == halo.devices(axis) - 1


def _ghosts(u: Array, width: int, axis: int, walls: tuple, halo: Halo) -> tuple[Array, Array]:
    boundary, at = halo.boundary, _at(u, axis, halo)
    assert boundary is not None  # a periodic field has no walls
    n = u.shape[at]
    if isinstance(boundary.grid, OrthogonalGrid):
        boundary.check(width)
        if n < min(2, boundary.shape[axis]):  # what is continued along a line reads two cells
            raise halo_error(2, n, axis, halo.axes[axis], halo.devices(axis))
        grid, axes = boundary.grid, halo.axes
        here = lambda x, other: along(x, axes[other], grid.shape[other])  # noqa: E731
        return at_walls(u, grid, axis, walls, halo.accuracy, here)
    below, above = boundary.offsets(axis)
    accuracy = min(halo.accuracy, boundary.shape[axis]) if halo.free else halo.accuracy
    near = walls[0].points(below, accuracy), walls[1].points(above, accuracy)
    if max(near) > n:
        raise halo_error(max(near), n, axis, halo.axes[axis], halo.devices(axis))
    rest = {"axis": at, "spacing": boundary.grid.spacing[axis], "accuracy": accuracy}
    low = walls[0].ghosts(_slice(u, 0, near[0], at), width, offset=below, **rest)
    high = walls[1].ghosts(jnp.flip(_slice(u, n - near[1], n, at), at), width, offset=above, **rest)
    return jnp.flip(low, at), high


def _walls(u: Array, axis: int, layers: Sequence[int], halo: Halo) -> tuple[AbstractWall, AbstractWall] | None:
    """Returns the conditions across a dimension, their values those along this device's block; None if periodic.

    Args:
        u: The block with the ghost layers that it has by now.
        axis: The dimension.
        layers: How many ghost layers the block has along each dimension of space.
        halo: How ghost layers are made.
    """
    if not halo.has_walls(axis):
        return None
    if halo.free:
        return Extrapolate(), Extrapolate()
    assert halo.boundary is not None  # a periodic field has no walls

    def here(value):
        return value if jnp.ndim(value) == 0 else _along(value, u, axis, layers, halo)

    low, high = cast(tuple[AbstractWall, AbstractWall], halo.boundary.sides[axis])
    return jax.tree.map(here, (low.at(halo.t, halo.args), high.at(halo.t, halo.args)))


def _along(value: Array, u: Array, axis: int, layers: Sequence[int], halo: Halo) -> Array:
    """Returns the part of a value over a side that lies along this device's block, in the shape of ghost layers."""
    assert halo.boundary is not None  # a periodic field has no walls
    shape, at = halo.boundary.shape, _at(u, axis, halo)
    full = (*u.shape[: u.ndim - len(shape)], *shape)
    side = full[:at] + full[at + 1 :]
    sizes = (1,) * (len(side) - value.ndim) + value.shape
    if len(sizes) != len(side) or any(n not in (1, m) for n, m in zip(sizes, side)):
        name = halo.boundary.grid.names[axis]
        raise ValueError(f"a value at a side across {name} must broadcast to {side}, but has shape {value.shape}.")
    value = value.reshape(sizes[:at] + (1,) + sizes[at:])
    whole = halo._replace(axes=(None,) * len(shape), free=True)  # every device holds all of it: no message
    for other, width in enumerate(layers):
        where = _at(u, other, halo)
        if other == axis or value.shape[where] == 1:
            continue
        n = value.shape[where] // halo.devices(other)
        if width:
            value = _pad_axis(value, width, other, _walls(value, other, (), whole), whole)
        if halo.devices(other) > 1:
            start = jax.lax.axis_index(halo.axes[other]) * n
            value = jax.lax.dynamic_slice_in_dim(value, start, n + 2 * width, where)
    return value
