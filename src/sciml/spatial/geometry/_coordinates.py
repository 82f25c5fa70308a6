r"""Orthogonal coordinates, by the sizes of their cells.

In all of them a volume, the area of a face and the distance between two centres are products of one factor for each
axis. So a grid needs no array of its shape: the factors are vectors.
"""

import abc
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Float


class AbstractCoordinates(eqx.Module):
    """Orthogonal coordinates, such as `Cartesian` or `Polar`.

    A custom coordinate system derives from this class. Its methods return vectors of NumPy, one number for each cell,
    or for each face, along one axis.

    Attributes:
        names: The names of the axes.
        most_axes: How many axes a grid may have.
        radial: Whether the first axis is a radius, which may begin at zero: there its faces have no area.
        turning: The axis that is an angle, or None.

    Example:
        ```python
        import numpy as np
        from sciml.spatial import Polar

        rings = Polar().measure(0, np.array([0.0, 1.0, 2.0]))
        assert np.allclose(rings, [0.5, 1.5])  # times the angle these are areas
        ```
    """

    names: ClassVar[tuple[str, ...]]
    most_axes: ClassVar[int]
    radial: ClassVar[bool] = False
    turning: ClassVar[int | None] = None

    @abc.abstractmethod
    def measure(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the factor of an axis in the volumes of cells."""

    @abc.abstractmethod
    def across(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " faces"]:
        """Returns the factor of an axis in the areas of the faces across it."""

    @abc.abstractmethod
    def beside(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the factor of another axis, with these faces, in the areas of the faces across an axis."""

    @abc.abstractmethod
    def scale(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the factor of another axis, with these faces, in lengths along an axis."""


class Cartesian(AbstractCoordinates):
    """The coordinates x, y and z.

    Example:
        ```python
        from sciml.spatial import OrthogonalGrid
        from sciml.spatial.geometry._coordinates import Cartesian

        grid = OrthogonalGrid([[0.0, 0.1, 0.3, 0.7, 1.5]], Cartesian())
        assert grid.names == ("x",)
        ```
    """

    names: ClassVar[tuple[str, ...]] = ("x", "y", "z")
    most_axes: ClassVar[int] = 3

    def measure(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the widths of the cells."""
        return np.diff(faces)

    def across(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " faces"]:
        """Returns ones."""
        return np.ones(len(faces))

    def beside(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the widths of the cells."""
        return np.diff(faces)

    def scale(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns ones."""
        return np.ones(len(faces) - 1)


class Polar(AbstractCoordinates):
    r"""Radius, angle and, on three axes, height: $x = r \cos \theta$, $y = r \sin \theta$, $z$.

    With one axis nothing depends on the angle: a disc by its radius, of which a cell is the ring over one radian.

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        from sciml.spatial import OrthogonalGrid, Polar

        disc = OrthogonalGrid([np.linspace(0.0, 1.0, 9), np.linspace(0.0, 2 * np.pi, 17)], Polar())
        assert abs(disc.integrate(jnp.ones(disc.shape)) - np.pi) < 1e-5
        ```
    """

    names: ClassVar[tuple[str, ...]] = ("r", "theta", "z")
    most_axes: ClassVar[int] = 3
    radial: ClassVar[bool] = True
    turning: ClassVar[int | None] = 1

    def measure(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        r"""Returns $\int r\, dr$ along the radius, or else the widths of the cells."""
        return np.diff(faces**2) / 2 if axis == 0 else np.diff(faces)

    def across(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " faces"]:
        """Returns the radius along the radius, or else ones."""
        return faces if axis == 0 else np.ones(len(faces))

    def beside(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the widths of the cells, or of the faces across the height the measure of the radius."""
        return np.diff(faces) if other or axis == 1 else np.diff(faces**2) / 2

    def scale(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the radius in the middle of the cells for lengths along the angle, or else ones."""
        turned = axis == 1 and other == 0
        return (faces[1:] + faces[:-1]) / 2 if turned else np.ones(len(faces) - 1)


class Axisymmetric(AbstractCoordinates):
    r"""Radius and height of fields that do not depend on the angle: cylindrical coordinates $r$, $z$.

    A cell is a whole ring, of the volume $\pi (r_+^2 - r_-^2) (z_+ - z_-)$. With one axis it is a ring of height one.

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        from sciml.spatial import Axisymmetric, OrthogonalGrid

        cylinder = OrthogonalGrid([np.linspace(0.0, 1.0, 9), np.linspace(0.0, 2.0, 7)], Axisymmetric())
        assert abs(cylinder.integrate(jnp.ones(cylinder.shape)) - 2 * np.pi) < 1e-5
        ```
    """

    names: ClassVar[tuple[str, ...]] = ("r", "z")
    most_axes: ClassVar[int] = 2
    radial: ClassVar[bool] = True

    def measure(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the areas of rings along the radius, or else the widths of the cells."""
        return np.pi * np.diff(faces**2) if axis == 0 else np.diff(faces)

    def across(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " faces"]:
        """Returns the circumference along the radius, or else ones."""
        return 2 * np.pi * faces if axis == 0 else np.ones(len(faces))

    def beside(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the measure of the other axis."""
        return self.measure(other, faces)

    def scale(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns ones."""
        return np.ones(len(faces) - 1)


class Spherical(AbstractCoordinates):
    r"""The distance from a point, for fields that depend only on it. A cell is a shell, $\tfrac43 \pi (r_+^3 - r_-^3)$.

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        from sciml.spatial import OrthogonalGrid, Spherical

        ball = OrthogonalGrid([np.linspace(0.0, 1.0, 9)], Spherical())
        assert abs(ball.integrate(jnp.ones(8)) - 4 / 3 * np.pi) < 1e-5
        ```
    """

    names: ClassVar[tuple[str, ...]] = ("r",)
    most_axes: ClassVar[int] = 1
    radial: ClassVar[bool] = True

    def measure(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns the volumes of shells."""
        return 4 / 3 * np.pi * np.diff(faces**3)

    def across(self, axis: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " faces"]:
        """Returns the areas of spheres."""
        return 4 * np.pi * faces**2

    def beside(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns ones: there is no other axis."""
        return np.ones(len(faces) - 1)

    def scale(self, axis: int, other: int, faces: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " cells"]:
        """Returns ones: there is no other axis."""
        return np.ones(len(faces) - 1)
