"""Grids whose cells differ: given faces along each axis, in orthogonal coordinates."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._abstract_grid import AbstractGrid, Location
from ._coordinates import AbstractCoordinates, Cartesian


class OrthogonalGrid(AbstractGrid):
    r"""A grid of cells between given faces along each axis, in Cartesian, polar, cylindrical or spherical coordinates.

    A cell has a volume, and its faces have areas. Operators on it are differences of the flows through the faces,
    divided by the volume: nothing is lost, on the axis $r = 0$ either, where a face has no area. Unknowns are at the
    centres of cells, halfway between the faces.

    `Laplacian`, `VariableLaplacian`, `Gradient`, `Divergence`, `EllipticOperator` with `solve_elliptic`,
    `ImplicitDiffusion` and the models made of these take it as they take a `Grid`, of second order on faces that come
    from a smooth mapping, such as `clustered_faces`; finite volumes take it with `Constant` and `Muscl`. Fields on it
    are split over devices by `sciml.parallel.Domain`. Features that require a uniform grid (transforms, higher orders,
    kernels) raise an error. In Cartesian coordinates it also supports incompressible flow
    (`sciml.models.IncompressibleFlow`).

    The axis $r = 0$ is not a side: it has no condition. A full circle of angles is automatically `Periodic`.

    Attributes:
        faces: The faces along each axis, in rising order.
        system: The coordinates.

    Args:
        faces: For each axis the places of the faces, one more than cells.
        system: `Cartesian`, `Polar`, `Axisymmetric` or `Spherical`.

    Raises:
        ValueError: If faces do not rise, a radius is negative, or there are more axes than coordinates.

    Source:
        R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, Cambridge, 2002, chapter 6.17, for cells that
        differ.

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        from sciml.spatial import Dirichlet, Laplacian, OrthogonalGrid, Polar, clustered_faces

        pipe = OrthogonalGrid([clustered_faces(16, 0.0, 1.0, widest=0.0)], Polar())  # fine at the wall
        (r,) = pipe.centers
        laplacian = Laplacian(pipe, Dirichlet(0.0))
        assert jnp.allclose(laplacian(1 - r**2)[:-1], -4.0, rtol=0.1)
        ```
    """

    faces: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    system: AbstractCoordinates = eqx.field(static=True)

    def __init__(self, faces: Sequence[Any], system: AbstractCoordinates = Cartesian()):
        if not isinstance(system, AbstractCoordinates):
            raise TypeError(f"`OrthogonalGrid(system=...)` must be coordinates such as `Polar()`, but is {system!r}.")
        if any(np.ndim(x) == 0 for x in faces):
            raise ValueError(
                "`OrthogonalGrid(faces=...)` must contain the faces along each axis. Write [faces] for one axis."
            )
        if not 1 <= len(faces) <= system.most_axes:
            raise ValueError(
                f"`OrthogonalGrid(faces=...)` in {type(system).__name__} coordinates must have one to "
                f"{system.most_axes} axes, but has {len(faces)}."
            )
        self.system = system
        self.faces = tuple(_rising(x, name) for x, name in zip(faces, system.names))
        if system.radial and self.faces[0][0] < 0:
            raise ValueError(f"along r the faces must not be negative, but begin at {self.faces[0][0]}.")
        if self.turns and self.on_axis and self.shape[1] % 2:
            raise ValueError(
                f"around the axis r = 0 the number of angles must be even, so that each cell has an opposite, but is "
                f"{self.shape[1]}."
            )

    def __hash__(self):
        return hash((self.faces, type(self.system)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        return tuple(len(x) - 1 for x in self.faces)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes."""
        return self.system.names[: len(self.faces)]

    @property
    def lower(self) -> tuple[float, ...]:
        """The first face along each axis."""
        return tuple(x[0] for x in self.faces)

    @property
    def upper(self) -> tuple[float, ...]:
        """The last face along each axis."""
        return tuple(x[-1] for x in self.faces)

    @property
    def extent(self) -> tuple[float, ...]:
        """How far the coordinate along each axis runs."""
        return tuple(x[-1] - x[0] for x in self.faces)

    @property
    def on_axis(self) -> bool:
        """Whether the grid begins at the axis $r = 0$."""
        return self.system.radial and self.faces[0][0] == 0

    @property
    def turns(self) -> bool:
        """Whether the angles run once around."""
        axis = self.system.turning
        return axis is not None and axis < len(self.faces) and bool(np.isclose(self.extent[axis], 2 * np.pi))

    @property
    def spacing(self) -> tuple[float, ...]:
        """Not known: cells differ.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "this requires a uniform `Grid`, not an `OrthogonalGrid`. The operators `Laplacian`, `VariableLaplacian`, "
            "`Gradient`, `Divergence` and `EllipticOperator` of order 2 support it."
        )

    def widths(self, axis: int) -> Float[np.ndarray, " cells"]:
        """Returns how far the coordinate runs over each cell along an axis."""
        return np.diff(self.faces[axis])

    def coordinates(self, at: Location = "center") -> tuple[Array, ...]:
        """Returns the coordinates of the unknowns, one array for each axis that broadcasts against the others.

        Args:
            at: A location, or one for each axis.
        """
        found = []
        for axis, name in enumerate(self.locations(at)):
            faces = np.array(self.faces[axis])
            ends = {"node": faces, "inner": faces[1:-1], "lower": faces[:-1], "upper": faces[1:]}
            points = (faces[1:] + faces[:-1]) / 2 if name == "center" else ends[name]
            found.append(jnp.asarray(self._along(points, axis), jnp.result_type(float)))
        return tuple(found)

    def volumes(self, at: Location = "center") -> Array:
        """Returns the volume of each unknown: of a cell, or between the centres next to a face.

        Args:
            at: A location, or one for each axis; in other than Cartesian coordinates `"center"`.

        Raises:
            ValueError: If `at` is another location.
        """
        names = self.locations(at)
        if set(names) != {"center"} and not isinstance(self.system, Cartesian):
            raise ValueError(
                f"an `OrthogonalGrid` in {type(self.system).__name__} coordinates only supports volumes at cell "
                f"centres, but `at` is {at!r}."
            )
        product = jnp.ones((1,) * self.ndim, jnp.result_type(float))
        for axis, faces in enumerate(self.faces):
            factor = self.system.measure(axis, np.array(faces))
            if names[axis] != "center":
                factor = _around_faces(factor, names[axis])
            product = product * jnp.asarray(self._along(factor, axis), product.dtype)
        return product

    def cartesian(self, *coordinates: Array) -> tuple[Array, ...]:
        r"""Returns the Cartesian coordinates of places: $x, y$ and $z$ in the plane or the space of the grid.

        Only vectors in `Polar` with two or three axes rotate; all others are returned unchanged.

        Args:
            coordinates: The coordinates of the grid, such as `grid.coordinates("node")`.
        """
        if self.system.turning is None or len(coordinates) <= self.system.turning:
            return coordinates
        r, angle, *rest = coordinates
        return (r * jnp.cos(angle), r * jnp.sin(angle), *rest)

    def _along(self, values: np.ndarray, axis: int) -> np.ndarray:
        return values.reshape([-1 if other == axis else 1 for other in range(self.ndim)])


def _around_faces(widths: np.ndarray, location: str) -> np.ndarray:
    """Half of the cells on either side of faces; beyond a wall they go on, except for those at nodes."""
    between = (widths[1:] + widths[:-1]) / 2
    if location == "inner":
        return between
    if location == "lower":  # of a periodic axis
        return np.concatenate([widths[:1] / 2 + widths[-1:] / 2, between])
    if location == "upper":
        return np.concatenate([between, widths[-1:]])
    return np.concatenate([widths[:1] / 2, between, widths[-1:] / 2])


def _rising(faces: Any, name: str) -> tuple[float, ...]:
    found = np.asarray(faces, np.float64)
    if found.ndim != 1 or len(found) < 2 or not np.all(np.isfinite(found)) or not np.all(np.diff(found) > 0):
        raise ValueError(f"the faces along {name} must be at least two finite ascending numbers, but are {faces!r}.")
    return tuple(found.tolist())
