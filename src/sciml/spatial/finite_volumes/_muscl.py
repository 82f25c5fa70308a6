"""Constant and linear reconstruction."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ._limiters import as_limiter
from ._reconstruction import AbstractReconstruction


class Constant(AbstractReconstruction):
    """The value in a cell is that at its faces: Godunov's first-order scheme, which smears but never oscillates.

    Source:
        S. K. Godunov, Mat. Sb. 47:271, 1959.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Constant

        assert Constant().at_face([jnp.array(2.0)]) == 2.0
        ```
    """

    radius: ClassVar[int] = 1
    linear: ClassVar[tuple[float, ...]] = (1.0,)

    def at_face(self, cells: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
        """Returns the value in the cell."""
        return cells[0]


class Muscl(AbstractReconstruction):
    """A line in each cell, with a limited slope: second order where the field is smooth, without new extrema.

    Attributes:
        limiter: The slope. `"minmod"` takes the smaller of the differences to both neighbours, the most diffusive;
            `"van_leer"` takes their harmonic mean, which is smooth; `"monotonized_central"` takes their mean, at most
            twice either, and is the least diffusive. A function `(behind, ahead)` of the differences is your own.

    Source:
        B. van Leer, Towards the ultimate conservative difference scheme V, J. Comput. Phys. 32:101, 1979.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Muscl

        cells = [jnp.array(x) for x in (1.0, 2.0, 4.0)]
        assert Muscl("minmod").at_face(cells) == 2.5
        ```
    """

    limiter: Callable[[Array, Array], Array] = eqx.field(static=True, default="van_leer", converter=as_limiter)
    radius: ClassVar[int] = 2
    linear: ClassVar[tuple[float, ...]] = (-0.25, 1.0, 0.25)

    def at_face(self, cells: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
        """Returns the end of the line towards the last cell."""
        behind, here, ahead = cells
        return here + self.limiter(here - behind, ahead - here) / 2
