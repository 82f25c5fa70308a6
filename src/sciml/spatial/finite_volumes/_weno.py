r"""Weighted essentially non-oscillatory interpolation.

The value at a face is a mean of polynomials through few cells each. Where the field is smooth their weights make it
one of high order; a polynomial that runs across a jump gets none. How smooth one is says $\beta$, the sum of the
squares of its derivatives over the cell.
"""

import abc
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._reconstruction import AbstractReconstruction

IDEAL = (1 / 16, 10 / 16, 5 / 16)
"""The weights with which three parabolas are the polynomial of degree four."""

_LINEAR = (3 / 128, -20 / 128, 90 / 128, 60 / 128, -5 / 128)

# of the second derivative at a face, of fourth order, and of the fourth, both times powers of the spacing
_SECOND = (-5 / 48, 39 / 48, -34 / 48, -34 / 48, 39 / 48, -5 / 48)
_FOURTH = (0.5, -1.5, 1.0, 1.0, -1.5, 0.5)
_CORRECTION = tuple(-a / 24 + 7 * b / 5760 for a, b in zip(_SECOND, _FOURTH))

_LEAST_SMOOTHNESS = 1e-12
"""What is added to the smoothness, in units of the squares of the values: a jump of a millionth is none."""


def parabolas(cells: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    r"""Returns the values at the face of three parabolas, and their $\beta$."""
    a, b, c, d, e = cells
    values = [(3 * a - 10 * b + 15 * c) / 8, (-b + 6 * c + 3 * d) / 8, (3 * c + 6 * d - e) / 8]
    bends = (a - 2 * b + c, b - 2 * c + d, c - 2 * d + e)
    slopes = (a - 4 * b + 3 * c, b - d, 3 * c - 4 * d + e)
    return values, [13 / 12 * bend**2 + slope**2 / 4 for bend, slope in zip(bends, slopes)]


def floor_of(cells: Sequence[Array]) -> Array:
    r"""Returns what is added to each $\beta$, so that rounding of a constant field does not count as its shape."""
    squares = [cell**2 for cell in cells]
    # and what has no shape at all does not divide by zero, nor do derivatives by the square of that
    return _LEAST_SMOOTHNESS * sum(squares[1:], squares[0]) + 1e3 * float(jnp.finfo(cells[0].dtype).tiny) ** 0.5


def mean(values: Sequence[Array], weights: Sequence[Array]) -> Array:
    """Returns a weighted mean."""
    total = sum(weights[1:], weights[0])
    products = [v * w for v, w in zip(values, weights)]
    return sum(products[1:], products[0]) / total


class WENO3(AbstractReconstruction):
    r"""Two lines, third order.

    Source:
        X.-D. Liu, S. Osher, T. Chan, J. Comput. Phys. 115:200, 1994; G.-S. Jiang, C.-W. Shu, J. Comput. Phys. 126:202,
        1996; with the weights of N. K. Yamaleev, M. H. Carpenter, J. Comput. Phys. 228:3025, 2009.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import WENO3

        cells = [jnp.array(x) for x in (1.0, 2.0, 3.0)]
        assert jnp.allclose(WENO3().at_face(cells), 2.5)
        ```
    """

    radius: ClassVar[int] = 2
    linear: ClassVar[tuple[float, ...]] = (-1 / 8, 6 / 8, 3 / 8)
    correction: ClassVar[tuple[float, ...]] = (-1 / 48, 1 / 48, 1 / 48, -1 / 48)

    def at_face(self, cells: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
        """Returns the weighted mean of both lines."""
        a, b, c = cells
        floor = floor_of(cells)
        bend = (a - 2 * b + c) ** 2
        weights = [
            ideal * (1 + bend / (beta + floor)) for ideal, beta in zip((1 / 4, 3 / 4), ((b - a) ** 2, (c - b) ** 2))
        ]
        return mean([(3 * b - a) / 2, (b + c) / 2], weights)


class AbstractWENO5(AbstractReconstruction):
    """Three parabolas, fifth order; what differs is how their weights follow from how smooth they are."""

    radius: ClassVar[int] = 3
    linear: ClassVar[tuple[float, ...]] = _LINEAR
    correction: ClassVar[tuple[float, ...]] = _CORRECTION

    @abc.abstractmethod
    def weights(self, smoothness: Sequence[Array], floor: Array) -> list[Array]:
        r"""Returns the weights of the parabolas, not normalised, from their $\beta$ and what is added to it."""

    def at_face(self, cells: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
        """Returns the weighted mean of the parabolas."""
        values, smoothness = parabolas(cells)
        return mean(values, self.weights(smoothness, floor_of(cells)))


class WENO5(AbstractWENO5):
    r"""The weights of Jiang and Shu, $\gamma_k / (\beta_k + \epsilon)^2$: robust, and of lower order at extrema.

    Source:
        G.-S. Jiang, C.-W. Shu, J. Comput. Phys. 126:202, 1996.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import WENO5

        cells = [jnp.array(x) for x in (0.0, 0.0, 0.0, 1.0, 1.0)]  # a jump at the face
        assert jnp.abs(WENO5().at_face(cells)) < 1e-6
        ```
    """

    def weights(self, smoothness: Sequence[Array], floor: Array) -> list[Array]:
        """Returns the weights of the parabolas."""
        least = jnp.minimum(jnp.minimum(smoothness[0], smoothness[1]), smoothness[2]) + floor
        return [ideal * (least / (beta + floor)) ** 2 for ideal, beta in zip(IDEAL, smoothness)]


class WENO5Z(AbstractWENO5):
    r"""The weights of Borges and others, $\gamma_k (1 + (\tau / (\beta_k + \epsilon))^2)$: sharper than `WENO5`.

    Source:
        R. Borges, M. Carmona, B. Costa, W. S. Don, J. Comput. Phys. 227:3191, 2008.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import WENO5Z

        x = jnp.arange(-2.0, 3.0)
        assert jnp.allclose(WENO5Z().at_face(list(x**2)), 0.25)
        ```
    """

    def weights(self, smoothness: Sequence[Array], floor: Array) -> list[Array]:
        """Returns the weights of the parabolas."""
        tau = jnp.abs(smoothness[0] - smoothness[2])
        return [ideal * (1 + (tau / (beta + floor)) ** 2) for ideal, beta in zip(IDEAL, smoothness)]


class TENO5(AbstractWENO5):
    r"""Parabolas count in full or not at all: the least dissipative of these.

    One counts where $\chi_k = (1 + \tau / (\beta_k + \epsilon))^6$ is at least $C_T$ of the sum of all.

    Attributes:
        cutoff: $C_T$.

    Source:
        L. Fu, X. Y. Hu, N. A. Adams, J. Comput. Phys. 305:333, 2016.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import TENO5

        cells = [jnp.array(x) for x in (0.0, 0.0, 0.0, 1.0, 1.0)]
        assert TENO5().at_face(cells) == 0.0
        ```
    """

    cutoff: float = eqx.field(static=True, default=1e-5)

    def weights(self, smoothness: Sequence[Array], floor: Array) -> list[Array]:
        """Returns the weights of the parabolas."""
        tau = jnp.abs(smoothness[0] - smoothness[2])
        ratios = [1 + tau / (beta + floor) for beta in smoothness]
        largest = jnp.maximum(jnp.maximum(ratios[0], ratios[1]), ratios[2])  # the sixth power overflows in float32
        shares = [(ratio / largest) ** 6 for ratio in ratios]
        total = shares[0] + shares[1] + shares[2]
        return [
            jnp.where(x < self.cutoff * total, jnp.zeros_like(x), jnp.full_like(x, g)) for g, x in zip(IDEAL, shares)
        ]
