"""Reconstructions: from values in cells to the values at either side of a face."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

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

    A scheme of more than second order treats the values in cells as values at their centres, and interpolates;
    `correction` then makes the difference of fluxes at the middles of faces a derivative of that order, along each axis
    separately (Jiang, Shu and Zhang), so that it also has that order in two and three dimensions.

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
        """Returns the eigenvalues of the transport of smooth waves, which cross a number of cells per unit of time."""
        shifts = np.arange(len(self.linear)) - (self.radius - 1)
        face = np.exp(1j * np.outer(PHASES, shifts)) @ np.array(self.linear)
        if self.correction:
            around = np.arange(2 * self.radius) - (self.radius - 1)
            face = face + np.exp(1j * np.outer(PHASES, around)) @ np.array(self.correction)
        values = -face * (1 - np.exp(-1j * PHASES))
        return jax.lax.complex(*(rate * jnp.asarray(part, rate.dtype) for part in (np.real(values), np.imag(values))))


# Limited slopes: functions of the differences to both neighbours.
#
# Each is zero at an extremum, so that a reconstruction makes no new ones, and between the two differences elsewhere.
#
# Source:
#     B. van Leer, J. Comput. Phys. 14:361, 1974 and 23:276, 1977; P. L. Roe, Annu. Rev. Fluid Mech. 18:337, 1986.


def minmod(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the smaller of two differences, the most diffusive of the limited slopes.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.
    """
    return jnp.maximum(jnp.minimum(behind, ahead), jnp.minimum(jnp.maximum(behind, ahead), jnp.zeros_like(behind)))


def van_leer(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the harmonic mean of two differences: smooth, between `minmod` and `monotonized_central`.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.
    """
    product, total = behind * ahead, behind + ahead
    counts = product > 0
    return jnp.where(counts, 2 * product / jnp.where(counts, total, jnp.ones_like(total)), jnp.zeros_like(total))


def monotonized_central(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the mean of two differences, at most twice either: the least diffusive of these.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.
    """
    return minmod((behind + ahead) / 2, 2 * minmod(behind, ahead))


LIMITERS = {"minmod": minmod, "van_leer": van_leer, "monotonized_central": monotonized_central}


def as_limiter(limiter: Any) -> Callable[[Array, Array], Array]:
    """Returns the function that a limiter is given as, by name or itself.

    Raises:
        ValueError: If there is no limiter of this name.
        TypeError: If it is neither a name nor a function.
    """
    if isinstance(limiter, str):
        if limiter not in LIMITERS:
            raise ValueError(f"`limiter` must be one of {', '.join(map(repr, LIMITERS))}, but got {limiter!r}.")
        return LIMITERS[limiter]
    if not callable(limiter):
        raise TypeError(
            f"`limiter` must be a function of two differences or a name such as 'van_leer', but got {limiter!r}."
        )
    function: Any = limiter
    return function


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


# Weighted essentially non-oscillatory interpolation.
#
# The value at a face is a mean of polynomials through few cells each. Where the field is smooth their weights make it
# one of high order; a polynomial that runs across a jump gets none. How smooth one is says $\beta$, the sum of the
# squares of its derivatives over the cell.


IDEAL = (1 / 16, 10 / 16, 5 / 16)
"""The weights with which three parabolas are the polynomial of degree four."""

_LINEAR = (3 / 128, -20 / 128, 90 / 128, 60 / 128, -5 / 128)

# of the second derivative at a face, of fourth order, and of the fourth, both times powers of the spacing
_SECOND = (-5 / 48, 39 / 48, -34 / 48, -34 / 48, 39 / 48, -5 / 48)
_FOURTH = (0.5, -1.5, 1.0, 1.0, -1.5, 0.5)
_CORRECTION = tuple(-a / 24 + 7 * b / 5760 for a, b in zip(_SECOND, _FOURTH))

_LEAST_SMOOTHNESS = 1e-12
"""The addition to the smoothness, in units of the squares of the values: a jump of a millionth counts as none."""


def parabolas(cells: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    r"""Returns the values at the face of three parabolas, and their $\beta$."""
    a, b, c, d, e = cells
    values = [(3 * a - 10 * b + 15 * c) / 8, (-b + 6 * c + 3 * d) / 8, (3 * c + 6 * d - e) / 8]
    bends = (a - 2 * b + c, b - 2 * c + d, c - 2 * d + e)
    slopes = (a - 4 * b + 3 * c, b - d, 3 * c - 4 * d + e)
    return values, [13 / 12 * bend**2 + slope**2 / 4 for bend, slope in zip(bends, slopes)]


def floor_of(cells: Sequence[Array]) -> Array:
    r"""Returns the addition to each $\beta$, so that rounding of a constant field does not count as its shape."""
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
        r"""Returns the weights of the parabolas, not normalised, from their $\beta$ and its addition."""

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
