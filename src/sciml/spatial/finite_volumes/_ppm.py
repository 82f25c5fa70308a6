"""Parabolic reconstruction."""

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._limiters import monotonized_central
from ._reconstruction import AbstractReconstruction


class PPM(AbstractReconstruction):
    """A parabola in each cell, through interpolated values at its faces, limited so that it is monotone.

    Its values are means over cells. It is sharper than `Muscl`; at smooth extrema it is flat, and in several dimensions
    it is of second order.

    Source:
        P. Colella, P. R. Woodward, J. Comput. Phys. 54:174, 1984, equations 1.6 to 1.10.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import PPM

        cells = [jnp.array(x) for x in (1.0, 2.0, 3.0, 4.0, 5.0)]
        assert jnp.allclose(PPM().at_face(cells), 3.5)
        ```
    """

    radius: ClassVar[int] = 3
    linear: ClassVar[tuple[float, ...]] = (0.0, -1 / 12, 7 / 12, 7 / 12, -1 / 12)

    def at_face(self, cells: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
        """Returns the value of the parabola at the face towards the last cell."""
        slopes = [monotonized_central(b - a, c - b) for a, b, c in zip(cells, cells[1:], cells[2:])]
        here = cells[2]
        lower = (cells[1] + here) / 2 - (slopes[1] - slopes[0]) / 6
        upper = (here + cells[3]) / 2 - (slopes[2] - slopes[1]) / 6
        # an extremum within the cell is moved to a face; an extremum of the cells is made flat
        extremum = (upper - here) * (here - lower) <= 0
        jump, middle = upper - lower, here - (lower + upper) / 2
        steep = jump * middle < -(jump**2) / 6
        return jnp.where(extremum, here, jnp.where(steep, 3 * here - 2 * lower, upper))
