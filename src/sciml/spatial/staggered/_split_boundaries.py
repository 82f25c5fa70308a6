"""Conditions at the sides of a grid of which a device holds a block: ghosts from its neighbours, and beyond walls.

A block has as many faces across a split axis as cells: those at their lower ends, or at their upper ends where the
first face of the grid is given and the last is not. If both are given, the first block also has a place for the first
face, which is not an unknown: it is zero in states and rates, and `pad` replaces it by the given value.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._types import Args, RealScalarLike
from .._abstract_grid import LOCATIONS
from .._blocks import AbstractBlocks
from .._boundaries import Boundaries
from .._conditions import AbstractWall, Extrapolate, Periodic
from .._grid import Grid


class SplitBoundaries(eqx.Module):
    """The conditions of a field in the block that a device holds; it takes the place of `Boundaries`.

    Attributes:
        whole: The conditions of the whole grid.
        blocks: How it is split.
    """

    whole: Boundaries
    blocks: AbstractBlocks

    @property
    def grid(self) -> Grid:
        """A grid of the cells of a block."""
        return local_grid(self.blocks)

    @property
    def location(self) -> tuple[str, ...]:
        """The positions of the places along each axis of a block."""
        found = self.whole.location
        return tuple("lower" if name == "inner" and self._split(a) else name for a, name in enumerate(found))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a field in a block."""
        return self.grid.shape_at(self.location)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """The periodic axes within a block: not the split axes."""
        return tuple(p and not self._split(axis) for axis, p in enumerate(self.whole.periodic))

    @property
    def uniform(self) -> bool:
        """Whether all cells are alike."""
        return True

    @property
    def coordinates(self) -> tuple[Array, ...]:
        """The coordinates of the places in a block."""
        return tuple(self.part(x) for x in self.whole.coordinates)

    def homogeneous(self) -> "SplitBoundaries":
        """Returns the conditions with all values zero."""
        return SplitBoundaries(self.whole.homogeneous(), self.blocks)

    def check(self, width: int, accuracy: int = 2) -> None:
        """Checks that a block is large enough for ghost cells.

        Raises:
            ValueError: If it is not; the message names the axis.
        """
        del accuracy
        for axis, n in enumerate(self.grid.shape):
            if self._split(axis) and n < width + 1:
                devices = self.blocks.devices(axis)
                fits = [k for k in range(1, devices) if n * devices % k == 0 and n * devices // k > width]
                most = max(fits, default=1)
                raise ValueError(
                    f"{width} ghost layers of a flow require blocks of at least {width + 1} cells, but along "
                    f"{self.grid.names[axis]} {devices} devices hold {n} each. Use at most {most} devices along this "
                    "axis."
                )

    def part(self, x: Array) -> Array:
        """Returns the block of an array over all unknowns of the whole grid, or of one that broadcasts to them."""
        for axis, places in enumerate(self.whole.shape):
            at = x.ndim - len(self.whole.shape) + axis
            if self._split(axis) and x.shape[at] >= places > 1:
                x = self._along(x, axis, at)
        return x

    def unknown(self, u: Array) -> Array:
        """Returns a field with zero at the place that is not an unknown."""
        for axis in range(self.grid.ndim):
            if not self._inner(axis):
                continue
            at = u.ndim - self.grid.ndim + axis
            kept = jax.lax.slice_in_dim(u, 0, 1, axis=at)
            kept = jnp.where(self.blocks.edges(axis)[0], jnp.zeros_like(kept), kept)
            u = jnp.concatenate([kept, jax.lax.slice_in_dim(u, 1, u.shape[at], axis=at)], at)
        return u

    def pad(
        self, u: Array, width: int, *, accuracy: int = 2, t: RealScalarLike | None = None, args: Args = None
    ) -> Array:
        """Returns a field with ghost cells around it, as `Boundaries.pad` does."""
        self._check_field(u)
        self.check(width)
        for axis, pair in enumerate(self.whole.sides):
            pair = [side.at(t, args) if isinstance(side, AbstractWall) else side for side in pair]
            pair = [jax.tree.map(lambda v: self._over_side(v, u, axis, width, accuracy), side) for side in pair]
            u = self._pad_axis(u, width, axis, pair, accuracy)
        return u

    def extend(self, u: Array, width: int, *, accuracy: int = 2) -> Array:
        """Returns a field that is subject to no condition with ghost cells around it, as `Boundaries.extend` does."""
        self._check_field(u)
        for axis, pair in enumerate(self.whole.sides):
            pair = [side if isinstance(side, Periodic) else Extrapolate() for side in pair]
            u = self._pad_axis(u, width, axis, pair, accuracy)
        return u

    def _split(self, axis: int) -> bool:
        return self.blocks.devices(axis) > 1

    def _inner(self, axis: int) -> bool:
        return self._split(axis) and self.whole.location[axis] == "inner"

    def _check_field(self, u: Array) -> None:
        if u.shape[-self.grid.ndim :] != self.shape:
            raise ValueError(
                f"a block must end with the axes {self.shape} of {self.grid} at {self.location}, but has shape "
                f"{u.shape}. Convert it with `model.to_blocks` before `Domain.run`."
            )

    def _along(self, x: Array, axis: int, at: int) -> Array:
        """The part along an axis of an array at all unknowns, possibly with equally many ghosts beyond both ends."""
        if self.whole.location[axis] == "inner":
            x = jnp.concatenate([jax.lax.slice_in_dim(x, 0, 1, axis=at), x], at)
        cells = self.grid.shape[axis]
        size = cells + x.shape[at] - self.whole.grid.shape[axis]
        return jax.lax.dynamic_slice_in_dim(x, self.blocks.first_cell(axis), size, at)

    def _over_side(self, value: Any, u: Array, axis: int, width: int, accuracy: int) -> Array:
        value = self.whole._over_side(value, u, axis, width, accuracy)
        if value.ndim == 0:
            return value
        for other in range(self.grid.ndim):
            at = u.ndim - self.grid.ndim + other
            if other != axis and self._split(other) and value.shape[at] > 1:
                value = self._along(value, other, at)
        return value

    def _pad_axis(self, u: Array, width: int, axis: int, pair: Any, accuracy: int) -> Array:
        if not self._split(axis):
            return self.whole._pad_axis(u, width, axis, pair, accuracy)
        at = u.ndim - self.grid.ndim + axis
        n = u.shape[at]
        cut = lambda x, start, stop: jax.lax.slice_in_dim(x, start, stop, axis=at)  # noqa: E731
        walls = not isinstance(pair[0], Periodic)
        first = int(self._inner(axis))  # how many places of the first block are no unknowns
        low, high = self.blocks.neighbours(cut(u, 0, width), cut(u, n - width, n), axis, walls)
        low = jnp.concatenate([low, cut(u, 0, first)], at)
        if walls:
            wide = self.whole._pad_axis(cut(u, first, n), width + first, axis, pair, accuracy)
            made = cut(wide, 0, width + first), cut(wide, width + n, 2 * width + n)
            low, high = self.blocks.at_edges(made, (low, high), axis)
        return jnp.concatenate([low, cut(u, first, n), high], at)


def local_grid(blocks: AbstractBlocks) -> Grid:
    """Returns a grid of the cells of a block, which is the same for all blocks, without a position."""
    whole = blocks.grid
    shape = tuple(n // blocks.devices(axis) for axis, n in enumerate(whole.shape))
    return Grid(shape, 0.0, tuple(n * h for n, h in zip(shape, whole.spacing)))


def to_blocks(u: Array, boundary: Boundaries, blocks: AbstractBlocks) -> Array:
    """Returns a field of the whole grid as blocks side by side, which `Domain.run` hands to its devices.

    Raises:
        ValueError: If a split axis has a face more than cells.
    """
    for axis, name in enumerate(boundary.location):
        if blocks.planned(axis) > 1 and LOCATIONS[name][1] == -1:
            u = jnp.concatenate([jnp.zeros_like(jax.lax.slice_in_dim(u, 0, 1, axis=axis)), u], axis)
    return u


def to_whole(u: Array, boundary: Boundaries, blocks: AbstractBlocks) -> Array:
    """Returns what `to_blocks` was given."""
    for axis, name in enumerate(boundary.location):
        if blocks.planned(axis) > 1 and LOCATIONS[name][1] == -1:
            u = jax.lax.slice_in_dim(u, 1, u.shape[axis], axis=axis)
    return u
