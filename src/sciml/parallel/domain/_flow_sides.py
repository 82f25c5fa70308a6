"""What is around the block of a flow that a device holds: its neighbours' cells, and at the edges what sides say."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._conservation_law import AbstractConservationLaw
from ..._types import Args, RealScalarLike
from ...spatial import AbstractSides, Boundaries, Periodic, Sides
from ...spatial._abstract_grid import AbstractGrid
from . import _collectives, _halo
from ._sharding import Axes, along, are_manual, part_of


class SplitSides(AbstractSides):
    """The sides of a grid of which every device holds a block; outside of `Domain.run` those of the whole grid.

    Along an axis that is split there are two messages, one each way, of all components together. Then every device
    makes the ghost cells beyond the sides, which only those at the edges use: the same function of the same layers as
    on one device.

    Attributes:
        grid: The whole grid.
        sides: Those of the whole grid.
        axes: For each axis of the grid the mesh axis that splits it, or None.
    """

    grid: AbstractGrid
    sides: Sides
    axes: Axes = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a device's block."""
        halo = self._halo()
        return tuple(n // halo.devices(axis) for axis, n in enumerate(self.grid.shape))

    def pad(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> Float[Array, "..."]:
        """Returns primitive states with ghost cells along one axis."""
        halo = self._halo()
        closed = not self.sides.periodic[axis]
        around = _halo.neighbours(w, width, axis, halo, closed)
        if closed:
            lead = w.ndim - self.grid.ndim
            found = self.sides.ghosts(law, w, axis, width, t, args, lambda x: self._next_to(x, axis, lead))
            around = _halo.at_edges(found, around, axis, halo) if halo.devices(axis) > 1 else found
        low, high = around
        return jnp.concatenate([low, w, high], axis=w.ndim - self.grid.ndim + axis)

    def local(self, values: Array) -> Array:
        """Returns the part of an array over the whole grid that belongs to this device's block."""
        for axis, name in enumerate(self._halo().axes):
            values = part_of(values, name, values.ndim - self.grid.ndim + axis)
        return values

    def along(self, values: Array, axis: int) -> Array:
        """Returns the part of a vector along an axis of the whole grid that belongs to this device's block."""
        return along(values, self._halo().axes[axis], self.grid.shape[axis])

    def largest(self, x: Float[Array, "..."]) -> Float[Array, ""]:
        """Returns the largest number over all devices, NaN if one is."""
        return _collectives.largest(x, self._names())

    def everywhere(self, holds: Bool[Array, "..."]) -> Bool[Array, ""]:
        """Returns whether something holds on all devices."""
        return _collectives.everywhere(holds, self._names())

    def _next_to(self, value: Any, axis: int, lead: int) -> Any:
        """Returns what of a value at a side across an axis is next to this device's block.

        Args:
            value: The value, over the whole side if it has its axes, after those of components.
            axis: The axis across the side.
            lead: How many axes of components there are.
        """
        if not eqx.is_array(value) or self.grid.ndim == 1 or value.ndim != lead + self.grid.ndim - 1:
            return value
        others = [name for other, name in enumerate(self._halo().axes) if other != axis]
        for number, name in enumerate(others):
            if value.shape[lead + number] > 1:
                value = part_of(value, name, lead + number)
        return value

    def _names(self) -> tuple[str, ...]:
        return tuple(name for name in self._halo().axes if name)

    def _halo(self) -> _halo.Halo:
        return _halo.Halo(self.axes if are_manual(self.axes) else (None,) * len(self.axes), None)


def sides_of(axes: Axes, boundary: Boundaries | Sides | None, grid: AbstractGrid) -> SplitSides:
    """Returns the sides of a flow on a grid that is split.

    Args:
        axes: For each axis of the grid the mesh axis that splits it, or None.
        boundary: What is beyond the sides; None for a periodic flow.
        grid: The grid.

    Raises:
        TypeError: If the sides are those of fields, and not periodic.
        ValueError: If the grid is another than that of the sides, or has another number of axes.
    """
    if grid.ndim != len(axes):
        raise ValueError(
            f"`Domain`: `axes={axes}` must name a mesh axis, or None, for each axis of a grid; got {grid!r}."
        )
    if boundary is not None and boundary.grid != grid:
        raise ValueError(f"`Domain`: `boundary` is that of another grid, {boundary.grid}, than {grid}.")
    if isinstance(boundary, Sides):
        return SplitSides(grid, boundary, axes)
    if boundary is not None and not all(boundary.periodic):
        raise TypeError(
            "a conservation law takes a `Domain` with the sides of a flow, `Domain(axes, boundary=Sides(grid, "
            '{"x-": Inflow(state), ...}))`, but its `boundary` are `Boundaries` of fields.'
        )
    return SplitSides(grid, Sides(grid, Periodic()), axes)
