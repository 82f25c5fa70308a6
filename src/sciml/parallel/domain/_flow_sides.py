"""What is around the block of a flow that a device holds: its neighbours' cells, and at the edges what sides say."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float

from ..._interfaces._conservation_law import AbstractConservationLaw
from ..._types import Args, RealScalarLike
from ...spatial import Boundaries, Periodic, Sides
from ...spatial._abstract_grid import AbstractGrid
from ...spatial.finite_volumes._sides import AbstractSides
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
        """Returns the sides of the block with so many layers of its neighbours; see `WideSides`."""
        from ._wide_sides import WideSides  # which is made of these

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


def next_to(value: Any, axis: int, lead: int, ndim: int, part: Callable[[Array, int, int], Array]) -> Any:
    """Returns what of a value at a side across an axis is next to a device's block.

    Args:
        value: The value, over the whole side if it has its axes, after those of components.
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
        boundary: What is beyond the sides; None for a periodic flow.
        grid: The grid.
        exchange: For what there is one exchange.

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
        return SplitSides(grid, boundary, axes, exchange)
    if boundary is not None and not all(boundary.periodic):
        raise TypeError(
            "a conservation law takes a `Domain` with the sides of a flow, `Domain(axes, boundary=Sides(grid, "
            '{"x-": Inflow(state), ...}))`, but its `boundary` are `Boundaries` of fields.'
        )
    return SplitSides(grid, Sides(grid, Periodic()), axes, exchange)
