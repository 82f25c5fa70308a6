"""The surroundings of a device's block of a flow: its neighbours' cells, and the sides' conditions at the edges."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._interfaces._conservation_law import AbstractConservationLaw
from ..._types import Args, RealScalarLike
from ...spatial import Boundaries, Periodic, Sides
from ...spatial._abstract_grid import AbstractGrid
from ...spatial.finite_volumes._sides import AbstractSides, ends
from . import _collectives, _halo
from ._sharding import Axes, along, are_manual, part_of


class SplitSides(AbstractSides):
    """The sides of a grid of which every device holds a block; outside of `Domain.run` the sides of the whole grid.

    Along an axis that is split there are two messages, one each way, of all components together. Then every device
    makes the ghost cells beyond the sides, which only those at the edges use: the same function of the same layers as
    on one device.

    Attributes:
        grid: The whole grid.
        sides: The sides of the whole grid.
        axes: For each axis of the grid the mesh axis that splits it, or None.
        exchange: "stage" or "step", for what there is one exchange.
    """

    grid: AbstractGrid
    sides: Sides
    axes: Axes = eqx.field(static=True)
    exchange: str = eqx.field(static=True, default="stage")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a device's block."""
        halo = self.halo()
        return tuple(n // halo.devices(axis) for axis, n in enumerate(self.grid.shape))

    def around(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> tuple[Array, Array]:
        """Returns the ghost cells beyond both ends of an axis."""
        halo = self.halo()
        closed = not self.sides.periodic[axis]
        around = _halo.neighbours(w, width, axis, halo, closed)
        if closed:
            lead, names = w.ndim - self.grid.ndim, halo.axes

            def here(value: Any) -> Any:
                return next_to(value, axis, lead, self.grid.ndim, lambda x, other, at: part_of(x, names[other], at))

            found = self.sides.ghosts(law, w, axis, width, t, args, here)
            around = _halo.at_edges(found, around, axis, halo) if halo.devices(axis) > 1 else found
        return around

    def wide(self, depth: int) -> AbstractSides:
        """Returns the sides of the block with a number of layers of its neighbours; see `WideSides`."""
        return WideSides(self.grid, self, depth)

    def local(self, values: Array) -> Array:
        """Returns the part of an array over the whole grid that belongs to this device's block."""
        for axis, name in enumerate(self.halo().axes):
            values = part_of(values, name, values.ndim - self.grid.ndim + axis)
        return values

    def along(self, values: Array, axis: int) -> Array:
        """Returns the part of a vector along an axis of the whole grid that belongs to this device's block."""
        return along(values, self.halo().axes[axis], self.grid.shape[axis])

    def largest(self, x: Float[Array, "..."]) -> Float[Array, ""]:
        """Returns the largest number over all devices, NaN if one is."""
        return _collectives.largest(x, self._names())

    def everywhere(self, holds: Bool[Array, "..."]) -> Bool[Array, ""]:
        """Returns whether something holds on all devices."""
        return _collectives.everywhere(holds, self._names())

    def _names(self) -> tuple[str, ...]:
        return tuple(name for name in self.halo().axes if name)

    def halo(self) -> _halo.Halo:
        """Returns along which axes there are neighbours where the code runs that is traced."""
        return _halo.Halo(self.axes if are_manual(self.axes) else (None,) * len(self.axes), None)


class WideSides(AbstractSides):
    """The sides of a block with layers of its neighbours' cells: one exchange of messages for several stages.

    Each stage of a method reads a few cells further, so a block with as many layers as all stages read needs no
    neighbour until the step ends. The layers are computed twice, by both devices that hold them. At the outermost ones
    a stage has no cells to read: wrong values there move inwards with every stage, through the layers that are then cut
    off. Layers beyond a side of the whole grid are computed again from its condition for every stage.

    Attributes:
        grid: The whole grid.
        split: The sides of the block without them.
        depth: The number of layers.
    """

    grid: AbstractGrid
    split: SplitSides
    depth: int = eqx.field(static=True)

    @property
    def depths(self) -> tuple[int, ...]:
        """The number of layers at either end of each axis."""
        halo = self.split.halo()
        return tuple(self.depth * (halo.devices(axis) > 1) for axis in range(self.grid.ndim))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the block with its layers."""
        return tuple(n + 2 * d for n, d in zip(self.split.shape, self.depths))

    def widened(self, law: AbstractConservationLaw, y: Float[Array, "..."], t: RealScalarLike, args: Args) -> Array:
        """Returns a block's conserved state with the layers of its neighbours, and at sides of its conditions."""
        halo, lead = self.split.halo(), law.volumes.lead(y)
        for axis, depth in enumerate(self.depths):
            if depth:
                closed = self._closed(axis)
                low, high = _halo.neighbours(y, depth, axis, halo, closed)
                if closed:
                    # zeros came from beyond the sides, which no law takes for a state; the next stage makes them anew
                    first, last = ends(y, 1, lead + axis)
                    still = (jnp.broadcast_to(first, low.shape), jnp.broadcast_to(last, high.shape))
                    low, high = _halo.at_edges(still, (low, high), axis, halo)
                y = jnp.concatenate([low, y, high], axis=lead + axis)
        return y

    def cut(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the block without its layers."""
        for axis, depth in enumerate(self.depths):
            at = y.ndim - self.grid.ndim + axis
            y = jax.lax.slice_in_dim(y, depth, y.shape[at] - depth, axis=at)
        return y

    def pad(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> Float[Array, "..."]:
        """Returns primitive states with ghost cells along one axis, and layers beyond sides anew."""
        at = w.ndim - self.grid.ndim + axis
        if self.depths[axis] and self._closed(axis):
            depth = self.depths[axis]
            inner = jax.lax.slice_in_dim(w, depth, w.shape[at] - depth, axis=at)
            made = self._made(law, inner, axis, depth, t, args)
            low, high = _halo.at_edges(made, ends(w, depth, at), axis, self.split.halo())
            w = jnp.concatenate([low, inner, high], axis=at)
        low, high = self.around(law, w, axis, width, t, args)
        return jnp.concatenate([low, w, high], axis=at)

    def around(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> tuple[Array, Array]:
        """Returns the ghost cells beyond both ends of an axis; beyond layers they are of no meaning, but states."""
        at = w.ndim - self.grid.ndim + axis
        if self.depths[axis]:
            return tuple(jnp.repeat(end, width, axis=at) for end in ends(w, 1, at))  # type: ignore[return-value]
        if self._closed(axis):
            return self._made(law, w, axis, width, t, args)
        first, last = ends(w, width, at)
        return last, first

    def renewed(self, law: AbstractConservationLaw, y: Float[Array, "..."], t: RealScalarLike, args: Args) -> Array:
        """Returns a conserved state with new layers beyond sides, for kernels, which do not compute them."""
        for axis, depth in enumerate(self.depths):
            if depth and self._closed(axis):
                at = law.volumes.lead(y) + axis
                inner = jax.lax.slice_in_dim(y, depth, y.shape[at] - depth, axis=at)
                near = law.primitive(jnp.concatenate(ends(inner, depth, at), axis=at))
                made = self._made(law, near, axis, depth, t, args)
                made = law.conserved(made[0]), law.conserved(made[1])
                low, high = _halo.at_edges(made, ends(y, depth, at), axis, self.split.halo())
                y = jnp.concatenate([low, inner, high], axis=at)
        return y

    def local(self, values: Array) -> Array:
        """Returns the part of an array over the whole grid that lies along the block with its layers."""
        for axis in range(self.grid.ndim):
            values = self._part(values, axis, values.ndim - self.grid.ndim + axis)
        return values

    def largest(self, x: Float[Array, "..."]) -> Float[Array, ""]:
        """Returns the largest number over all devices, NaN if one is."""
        return self.split.largest(x)

    def everywhere(self, holds: Bool[Array, "..."]) -> Bool[Array, ""]:
        """Returns whether something holds on all devices."""
        return self.split.everywhere(holds)

    def _closed(self, axis: int) -> bool:
        return not self.split.sides.periodic[axis]

    def _made(
        self, law: AbstractConservationLaw, w: Array, axis: int, width: int, t: RealScalarLike, args: Args
    ) -> tuple[Array, Array]:
        """The ghost cells that the conditions make at both ends of an axis."""
        lead = w.ndim - self.grid.ndim

        def here(value: Array) -> Array:
            return next_to(value, axis, lead, self.grid.ndim, self._part)

        return self.split.sides.ghosts(law, w, axis, width, t, args, here)

    def _part(self, values: Array, axis: int, at: int) -> Array:
        """The part along one axis."""
        depth, name = self.depths[axis], self.split.axes[axis]
        if not depth or name is None:
            return part_of(values, self.split.halo().axes[axis], at)
        n, devices = values.shape[at], jax.lax.axis_size(name)
        room = [(depth, depth) if k == at else (0, 0) for k in range(values.ndim)]
        values = jnp.pad(values, room, mode="edge" if self._closed(axis) else "wrap")
        size = n // devices
        return jax.lax.dynamic_slice_in_dim(values, jax.lax.axis_index(name) * size, size + 2 * depth, at)


def next_to(value: Any, axis: int, lead: int, ndim: int, part: Callable[[Array, int, int], Array]) -> Any:
    """Returns what of a value at a side across an axis is next to a device's block.

    Args:
        value: The value, over the whole side if it has its axes, after the axes of components.
        axis: The axis across the side.
        lead: How many axes of components there are.
        ndim: How many axes the grid has.
        part: `(value, other, at)`, the part of a value along another axis of the grid, its axis `at`.
    """
    if not eqx.is_array(value) or ndim == 1 or value.ndim != lead + ndim - 1:
        return value
    for number, other in enumerate(k for k in range(ndim) if k != axis):
        if value.shape[lead + number] > 1:
            value = part(value, other, lead + number)
    return value


def sides_of(
    axes: Axes, boundary: Boundaries | Sides | None, grid: AbstractGrid, exchange: str = "stage"
) -> SplitSides:
    """Returns the sides of a flow on a grid that is split.

    Args:
        axes: For each axis of the grid the mesh axis that splits it, or None.
        boundary: The conditions beyond the sides; None for a periodic flow.
        grid: The grid.
        exchange: For what there is one exchange.

    Raises:
        TypeError: If the sides are sides of fields, and not periodic.
        ValueError: If the grid differs from the grid of the sides, or has another number of axes.
    """
    if grid.ndim != len(axes):
        raise ValueError(
            f"`Domain`: `axes={axes}` must contain a mesh axis, or None, for each axis of the grid {grid!r}."
        )
    if boundary is not None and boundary.grid != grid:
        raise ValueError(f"`Domain`: `boundary` belongs to another grid, {boundary.grid}, instead of {grid}.")
    if isinstance(boundary, Sides):
        return SplitSides(grid, boundary, axes, exchange)
    if boundary is not None and not all(boundary.periodic):
        raise TypeError(
            "a conservation law requires a `Domain` with the sides of a flow, `Domain(axes, boundary=Sides(grid, "
            '{"x-": Inflow(state), ...}))`, but its `boundary` are `Boundaries` of fields.'
        )
    return SplitSides(grid, Sides(grid, Periodic()), axes, exchange)
