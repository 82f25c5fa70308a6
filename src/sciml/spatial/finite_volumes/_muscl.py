"""Constant and linear reconstruction."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ._limiters import van_leer
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
        limiter: The slope as a function `(behind, ahead)` of the differences to both neighbours: `minmod`, `van_leer`,
            `monotonized_central`, or one of your own.

    Source:
        B. van Leer, Towards the ultimate conservative difference scheme V, J. Comput. Phys. 32:101, 1979.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Muscl, minmod

        cells = [jnp.array(x) for x in (1.0, 2.0, 4.0)]
        assert Muscl(minmod).at_face(cells) == 2.5
        ```
    """

    limiter: Callable[[Array, Array], Array] = eqx.field(static=True, default=van_leer)
    radius: ClassVar[int] = 2
    linear: ClassVar[tuple[float, ...]] = (-0.25, 1.0, 0.25)

    def __check_init__(self):
        if not callable(self.limiter):
            raise TypeError(
                f"`Muscl(limiter=...)` must be a function of two differences such as `van_leer`, but is "
                f"{self.limiter!r}."
            )

    def at_face(self, cells: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
        """Returns the end of the line towards the last cell."""
        behind, here, ahead = cells
        return here + self.limiter(here - behind, ahead - here) / 2
