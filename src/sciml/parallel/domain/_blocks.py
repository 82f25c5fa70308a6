"""A grid with unknowns at centres and at nodes, of which every device holds a block."""

import equinox as eqx
import jax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Inexact, Int

from ...spatial import Grid
from ...spatial._blocks import AbstractBlocks
from . import _collectives, _fft, _halo
from ._sharding import Axes, are_manual, choose_domain_mesh, gathered, part_of, suggestion


class SplitBlocks(AbstractBlocks):
    """The blocks of a grid on the devices of a domain.

    Attributes:
        grid: The whole grid.
        axes: For each axis of the grid the mesh axis that splits it, or None.
        mesh: The mesh; None for the one that is set.
    """

    grid: Grid
    axes: Axes = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True)

    def devices(self, axis: int) -> int:
        """Returns over how many devices an axis is split where this is traced."""
        return self._halo().devices(axis)

    def planned(self, axis: int) -> int:
        """Returns over how many devices an axis is split within `Domain.run`.

        Raises:
            ValueError: If there is no mesh, or it does not divide the cells.
        """
        axes = self.axes
        name = axes[axis]
        if name is None:
            return 1
        mesh = choose_domain_mesh(self.mesh, axes)
        if self.grid.shape[axis] % mesh.shape[name]:
            raise ValueError(
                f"`Domain`: the {self.grid.shape[axis]} cells along {self.grid.names[axis]} of {self.grid} cannot be "
                f'divided by mesh axis "{name}" into {mesh.shape[name]} equal parts. '
                f"{suggestion(self.grid.shape, axes, mesh, 1)}"
            )
        return mesh.shape[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The mesh axes over which it is split where this is traced."""
        return tuple(name for name in self._halo().axes if name)

    def first_cell(self, axis: int) -> Int[Array, ""]:
        """Returns which of the cells of the whole grid is the first of the block."""
        name = self.axes[axis]
        assert name is not None  # it is asked of axes that are split
        return jax.lax.axis_index(name) * (self.grid.shape[axis] // self.devices(axis))

    def neighbours(self, first: Array, last: Array, axis: int, closed: bool) -> tuple[Array, Array]:
        """Sends the first layers of a block down and its last ones up; returns what came from below and from above."""
        return _halo.exchange(first, last, axis, self._halo(), closed)

    def at_edges(self, made: tuple[Array, Array], others: tuple[Array, Array], axis: int) -> tuple[Array, Array]:
        """Returns the first pair at the two edges of the whole grid, and the second elsewhere."""
        return _halo.at_edges(made, others, axis, self._halo())

    def edges(self, axis: int) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Returns whether the block is the first along an axis, and whether it is the last."""
        return _halo.edges(axis, self._halo())

    def sum(self, x: Inexact[Array, "..."]) -> Inexact[Array, ""]:
        """Returns the sum over all elements of all blocks."""
        return _collectives.total(x, self.names)

    def max(self, x: Inexact[Array, "..."]) -> Inexact[Array, ""]:
        """Returns the largest of all elements of all blocks."""
        return _collectives.largest(x, self.names)

    def whole(self, x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns a field at centres of which every device holds all, from the blocks that they hold."""
        return gathered(x, self._halo().axes)

    def exchange_all(self, x: Array, axis: int, *, split: int, whole: int) -> Array:
        """Makes an array whole along one of its axes, which the devices along an axis of the grid share, by another."""
        name = self.axes[axis]
        assert name is not None  # it is asked of axes that are split
        return _fft.all_to_all(x, (name,), split=split, concat=whole)

    def part_of(self, x: Array, axis: int, at: int) -> Array:
        """Returns the part of an array along its axis `at` that belongs to this device's place along an axis."""
        return part_of(x, self.axes[axis], at)

    def _halo(self) -> _halo.Halo:
        axes = self.axes
        return _halo.Halo(axes if are_manual(axes) else (None,) * len(axes), None)
