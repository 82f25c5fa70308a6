"""Uniform grids: where the unknowns are and how much space belongs to each."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._abstract_grid import LOCATIONS, AbstractGrid, Location

AXES = ("x", "y", "z")


class Grid(AbstractGrid):
    r"""A uniform grid of cells over a box in one to three dimensions.

    The box $[l, u]$ is divided into `shape` cells of the sizes $h_i = (u_i - l_i) / n_i$. Unknowns are at one of
    these locations along every axis:

    | location | points | number |
    |---|---|---|
    | `"center"` | $l + (i + \tfrac12) h$, centres of cells | $n$ |
    | `"node"` | $l + i h$ with both ends | $n + 1$ |
    | `"inner"` | $l + i h$ without the ends | $n - 1$ |
    | `"lower"` | $l + i h$ with only the lower end; the nodes of a periodic axis | $n$ |
    | `"upper"` | $l + i h$ with only the upper end | $n$ |

    A location for each axis makes staggered grids: `("node", "center")` is where the faces across `x` are.

    A field is a plain array whose *last* axes are the axes of the grid. Components and members come in front of them,
    so that stacked fields and `jax.vmap` need nothing further, and the last axis, along which memory is contiguous,
    stays one of space.

    The grid holds no arrays: it is static and hashable.

    Attributes:
        shape: The number of cells along each axis.
        lower: The lower ends of the box, in the unit of length of the problem.
        upper: Its upper ends.

    Raises:
        ValueError: If there are more than three axes, no cells, or ends that are not finite and in order.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid

        grid = Grid((64, 32), lower=(0.0, 0.0), upper=(2.0, 1.0))
        x, y = grid.centers  # of shape (64, 1) and (1, 32): formulas broadcast
        u = jnp.exp(-x) * y
        assert u.shape == grid.shape
        assert abs(grid.integrate(u) - 0.5 * (1 - jnp.exp(-2.0))) < 1e-3
        ```
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    lower: tuple[float, ...] = eqx.field(static=True)
    upper: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, shape: int | Sequence[int], lower: Any = 0.0, upper: Any = 1.0):
        if not isinstance(shape, int | np.integer) and not np.ndim(shape):
            raise TypeError(f"`Grid(shape=...)` must be integer numbers of cells, one for each axis, but is {shape!r}.")
        cells = tuple([shape] if isinstance(shape, int | np.integer) else shape)
        if not 1 <= len(cells) <= 3:
            raise ValueError(f"`Grid(shape=...)` must have one to three axes, but has {len(cells)}: {cells}.")
        if any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1 for n in cells):
            raise ValueError(f"`Grid(shape=...)` must be positive numbers of cells, but is {cells}.")
        self.shape = tuple(int(n) for n in cells)
        self.lower = _ends(lower, len(cells), "lower")
        self.upper = _ends(upper, len(cells), "upper")
        for name, low, high in zip(AXES, self.lower, self.upper):
            if not low < high:
                raise ValueError(f"`Grid` requires lower < upper, but along {name} they are {low} and {high}.")

    def __hash__(self):
        return hash((self.shape, self.lower, self.upper))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes, of x, y, z."""
        return AXES[: self.ndim]

    @property
    def extent(self) -> tuple[float, ...]:
        """The lengths of the box along each axis."""
        return tuple(high - low for low, high in zip(self.lower, self.upper))

    @property
    def spacing(self) -> tuple[float, ...]:
        """The sizes of a cell along each axis."""
        return tuple(length / n for length, n in zip(self.extent, self.shape))

    @property
    def volume(self) -> float:
        """The volume of a cell: a length in one dimension, an area in two."""
        return math.prod(self.spacing)

    def coordinates(self, at: Location = "center") -> tuple[Array, ...]:
        """Returns the coordinates of the unknowns, one array for each axis that broadcasts against the others.

        Args:
            at: A location, or one for each axis.
        """
        found = []
        for axis, (name, n) in enumerate(zip(self.locations(at), self.shape_at(at))):
            points = self.lower[axis] + (np.arange(n) + LOCATIONS[name][0]) * self.spacing[axis]
            shape = [1] * self.ndim
            shape[axis] = n
            found.append(jnp.asarray(points.reshape(shape), jnp.result_type(float)))
        return tuple(found)

    def volumes(self, at: Location = "center") -> Array:
        """Returns the volume that belongs to each unknown, halved for those on a wall, as an array that broadcasts.

        Args:
            at: A location, or one for each axis.
        """
        product = np.ones((1,) * self.ndim)
        for axis, (name, n) in enumerate(zip(self.locations(at), self.shape_at(at))):
            weights = np.full(n, self.spacing[axis])
            if name == "node":
                weights[0] = weights[-1] = self.spacing[axis] / 2
            product = product * weights.reshape([n if other == axis else 1 for other in range(self.ndim)])
        return jnp.asarray(product, jnp.result_type(float))


def _ends(value: Any, ndim: int, name: str) -> tuple[float, ...]:
    ends = np.atleast_1d(np.asarray(value, np.float64))
    if ends.shape == (1,):
        ends = np.repeat(ends, ndim)
    if ends.shape != (ndim,) or not np.all(np.isfinite(ends)):
        raise ValueError(f"`Grid({name}=...)` must be a finite number, or one for each of {ndim} axes: got {value!r}.")
    return tuple(float(end) for end in ends)
