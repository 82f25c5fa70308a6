"""What every reconstruction is: from values in cells to the values at either side of a face."""

import abc
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

PHASES = np.linspace(0.0, np.pi, 33)[1:]
"""Wavenumbers times spacing at which eigenvalues are looked at."""


class AbstractReconstruction(eqx.Module):
    r"""From values in cells to values at either side of a face.

    One formula serves both sides: `at_face` gets `2 radius - 1` cells in a row and returns the value in the middle one
    at its face towards the last. For the other side of a face it gets the cells in the opposite order.

    A scheme of more than second order takes the values in cells as those at their centres, and interpolates;
    `correction` then makes the difference of fluxes at the middles of faces a derivative of that order, along each
    axis alone (Jiang, Shu and Zhang), so that it is of that order in two and three dimensions, too.

    Attributes:
        radius: How many cells at either side of a face it reads.
        linear: The weights of the cells where the field is smooth.
        correction: The weights of the fluxes in the `2 radius` cells around a face that are added to the flux there, or
            none.

    Source:
        Y. Jiang, C.-W. Shu, M. Zhang, An alternative formulation of finite difference weighted ENO schemes with
        Lax-Wendroff time discretization for conservation laws, SIAM J. Sci. Comput. 35:A1137, 2013.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import AbstractReconstruction

        class Centred(AbstractReconstruction):  # no limiter: waves, but no shocks
            radius = 2
            linear = (0.0, 0.5, 0.5)

            def at_face(self, cells):
                return (cells[1] + cells[2]) / 2

        assert Centred().at_face([jnp.array(x) for x in (1.0, 2.0, 3.0)]) == 2.5
        ```
    """

    radius: eqx.AbstractClassVar[int]
    linear: eqx.AbstractClassVar[tuple[float, ...]]
    correction: ClassVar[tuple[float, ...]] = ()

    @abc.abstractmethod
    def at_face(self, cells: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
        """Returns the value at the face of the middle cell that is towards the last.

        Args:
            cells: The values in `2 radius - 1` cells in a row.
        """

    def spectrum(self, rate: Float[Array, ""]) -> Complex[Array, " waves"]:
        """Returns the eigenvalues of the transport of smooth waves, which cross so many cells in a unit of time."""
        shifts = np.arange(len(self.linear)) - (self.radius - 1)
        face = np.exp(1j * np.outer(PHASES, shifts)) @ np.array(self.linear)
        if self.correction:
            around = np.arange(2 * self.radius) - (self.radius - 1)
            face = face + np.exp(1j * np.outer(PHASES, around)) @ np.array(self.correction)
        values = -face * (1 - np.exp(-1j * PHASES))
        return jax.lax.complex(*(rate * jnp.asarray(part, rate.dtype) for part in (np.real(values), np.imag(values))))
