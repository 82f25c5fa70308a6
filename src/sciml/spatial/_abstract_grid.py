"""The interface of every grid of cells."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Inexact

Location = str | Sequence[str]
"""A name of `LOCATIONS`, or one for each axis."""

# The first point in units of the spacing from the lower end, and the points beyond the number of cells.
LOCATIONS = {"center": (0.5, 0), "node": (0.0, 1), "inner": (1.0, -1), "lower": (0.0, 0), "upper": (1.0, 0)}


class AbstractGrid(eqx.Module):
    """A grid of cells: `Grid`, whose cells are all alike, or `OrthogonalGrid`, whose cells differ.

    A field is a plain array whose *last* axes are the axes of the grid. The grid holds no arrays: it is static and
    hashable.

    Attributes:
        shape: The number of cells along each axis.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the axes."""

    @property
    @abc.abstractmethod
    def extent(self) -> tuple[float, ...]:
        """How far the coordinate along each axis runs."""

    @property
    @abc.abstractmethod
    def spacing(self) -> tuple[float, ...]:
        """The sizes of a cell along each axis, where all cells are alike."""

    @abc.abstractmethod
    def coordinates(self, at: Location = "center") -> tuple[Array, ...]:
        """Returns the coordinates of the unknowns, one array for each axis that broadcasts against the others."""

    @abc.abstractmethod
    def volumes(self, at: Location = "center") -> Array:
        """Returns the volume that belongs to each unknown, as an array that broadcasts."""

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def centers(self) -> tuple[Array, ...]:
        """The coordinates of the cells' centres, one array for each axis that broadcasts against the others."""
        return self.coordinates("center")

    def locations(self, at: Location = "center") -> tuple[str, ...]:
        """Returns a location as one name for each axis.

        Raises:
            ValueError: If a name is unknown, or if there is not one for each axis.
        """
        names = (at,) * self.ndim if isinstance(at, str) else tuple(at)
        if len(names) != self.ndim or any(name not in LOCATIONS for name in names):
            raise ValueError(f"`at` must be one of {', '.join(LOCATIONS)}, or one for each axis of {self}: got {at!r}.")
        return names

    def shape_at(self, at: Location = "center") -> tuple[int, ...]:
        """Returns the shape of a field whose unknowns are at a location."""
        return tuple(n + LOCATIONS[name][1] for n, name in zip(self.shape, self.locations(at)))

    def integrate(self, u: Inexact[Array, "..."], at: Location = "center") -> Array:
        """Returns the integral of a field over the box: by the midpoint rule at centres, by trapezia at nodes.

        Args:
            u: The field, with the grid's axes last.
            at: The positions of its unknowns.

        Raises:
            ValueError: If the field does not have the grid's shape.
        """
        shape = self.shape_at(at)
        if u.shape[-self.ndim :] != shape:
            raise ValueError(f"`u` must end with the axes {shape} of {self} at {at!r}, but has shape {u.shape}.")
        weights = self.volumes(at).astype(jnp.finfo(u.dtype).dtype)
        weights = weights.reshape((1,) * (u.ndim - self.ndim) + weights.shape)
        if jnp.iscomplexobj(u):
            weights = weights.astype(u.dtype)
        return jnp.sum(u * weights, axis=tuple(range(-self.ndim, 0)))
