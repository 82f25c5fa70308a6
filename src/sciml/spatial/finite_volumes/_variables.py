"""In which variables one reconstructs."""

import abc
from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Float

from ..._interfaces._conservation_law import AbstractConservationLaw
from ._reconstruction import AbstractReconstruction


class AbstractVariables(eqx.Module):
    """The variables in which values at the faces are reconstructed.

    Example:
        ```python
        from sciml.spatial import Characteristic
        from sciml.spatial.finite_volumes._variables import AbstractVariables, Componentwise

        assert all(issubclass(kind, AbstractVariables) for kind in (Componentwise, Characteristic))
        ```
    """

    @abc.abstractmethod
    def at_faces(
        self,
        law: AbstractConservationLaw,
        reconstruction: AbstractReconstruction,
        cells: Sequence[Float[Array, "..."]],
        axis: int,
    ) -> tuple[Array, Array]:
        """Returns the primitive states on the lower and on the upper side of faces.

        Args:
            law: The conservation law.
            reconstruction: How one component is continued.
            cells: The primitive states in the `2 radius` cells around each face, along the axis.
            axis: The axis across the faces.
        """


class Componentwise(AbstractVariables):
    """Each primitive variable separately, such as density, velocities and pressure.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import Constant, Grid, Outflow
        from sciml.spatial.finite_volumes._variables import Componentwise

        law = Euler(Grid(4), Outflow())
        left, right = Componentwise().at_faces(law, Constant(), [jnp.ones((3, 5)), 2 * jnp.ones((3, 5))], 0)
        assert left[0, 0] == 1.0 and right[0, 0] == 2.0
        ```
    """

    def at_faces(
        self,
        law: AbstractConservationLaw,
        reconstruction: AbstractReconstruction,
        cells: Sequence[Float[Array, "..."]],
        axis: int,
    ) -> tuple[Array, Array]:
        """Returns the primitive states at both sides of faces."""
        del law, axis
        return reconstruction.at_face(cells[:-1]), reconstruction.at_face(cells[:0:-1])


class Characteristic(AbstractVariables):
    """The amounts of the waves at each face, which move independently of one another.

    It reduces oscillations where several waves meet. It costs a change of variables for each cell around each
    face. For laws that define their `waves`.

    Source:
        A. Harten, B. Engquist, S. Osher, S. R. Chakravarthy, J. Comput. Phys. 71:231, 1987.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import Characteristic, Constant, Grid, Outflow

        law = Euler(Grid(4), Outflow())
        cells = [jnp.ones((3, 5)), 2 * jnp.ones((3, 5))]
        left, right = Characteristic().at_faces(law, Constant(), cells, 0)
        assert jnp.allclose(left, cells[0]) and jnp.allclose(right, cells[1], atol=1e-6)
        ```
    """

    def at_faces(
        self,
        law: AbstractConservationLaw,
        reconstruction: AbstractReconstruction,
        cells: Sequence[Float[Array, "..."]],
        axis: int,
    ) -> tuple[Array, Array]:
        """Returns the primitive states at both sides of faces."""
        middle = len(cells) // 2
        waves = law.waves(cells[middle - 1], cells[middle], axis)
        amounts = [waves.project(law.conserved(cell)) for cell in cells]
        ends = reconstruction.at_face(amounts[:-1]), reconstruction.at_face(amounts[:0:-1])
        left, right = (law.primitive(waves.combine(end)) for end in ends)
        return left, right
