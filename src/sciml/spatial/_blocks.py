"""A grid of which every device holds a block: the parts that models with unknowns at centres and at nodes need."""

import abc

import equinox as eqx
from jaxtyping import Array, Bool, Inexact, Int

from ._grid import Grid


class AbstractBlocks(eqx.Module):
    """How a grid is split where the code runs that is traced: within `Domain.run` in blocks, outside of it not at all.

    For waves a node between two blocks is an unknown of both, and they compute it alike.

    Attributes:
        grid: The whole grid.
    """

    grid: eqx.AbstractVar[Grid]

    @property
    def inside(self) -> bool:
        """Whether an axis is split where this is traced."""
        return any(self.devices(axis) > 1 for axis in range(self.grid.ndim))

    @abc.abstractmethod
    def devices(self, axis: int) -> int:
        """Returns over how many devices an axis is split where this is traced, 1 outside of `Domain.run`."""

    @abc.abstractmethod
    def planned(self, axis: int) -> int:
        """Returns over how many devices an axis is split within `Domain.run`."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """The mesh axes over which it is split where this is traced."""

    @abc.abstractmethod
    def first_cell(self, axis: int) -> Int[Array, ""]:
        """Returns which of the cells of the whole grid is the first of the block."""

    @abc.abstractmethod
    def neighbours(self, first: Array, last: Array, axis: int, closed: bool) -> tuple[Array, Array]:
        """Sends the first layers of a block down and its last ones up; returns what came from below and from above.

        Args:
            first: The first layers along the axis.
            last: The last ones.
            axis: The axis.
            closed: Whether the grid ends at its edges, with zeros beyond; else it is periodic.
        """

    @abc.abstractmethod
    def at_edges(self, made: tuple[Array, Array], others: tuple[Array, Array], axis: int) -> tuple[Array, Array]:
        """Returns the first pair at the two edges of the whole grid, and the second elsewhere."""

    @abc.abstractmethod
    def edges(self, axis: int) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Returns whether the block is the first along an axis, and whether it is the last."""

    @abc.abstractmethod
    def sum(self, x: Inexact[Array, "..."]) -> Inexact[Array, ""]:
        """Returns the sum over all elements of all blocks."""

    @abc.abstractmethod
    def max(self, x: Inexact[Array, "..."]) -> Inexact[Array, ""]:
        """Returns the largest of all elements of all blocks."""

    @abc.abstractmethod
    def whole(self, x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns a field at centres of which every device holds all, from the blocks that they hold."""

    @abc.abstractmethod
    def exchange_all(self, x: Array, axis: int, *, split: int, whole: int) -> Array:
        """Makes an array whole along one of its axes, which the devices along an axis of the grid share, by another.

        Args:
            x: The array.
            axis: The axis of the grid.
            split: The axis of the array that is split then.
            whole: The axis that is split now.
        """

    @abc.abstractmethod
    def part_of(self, x: Array, axis: int, at: int) -> Array:
        """Returns the part of an array along its axis `at` that belongs to this device's place along an axis."""
