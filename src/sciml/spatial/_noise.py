r"""Noise in space and time: white on a grid, or coloured by a spectrum.

Noise of a field is $dW = \sum_k \sqrt{S(|k|)} \, e_k(x) \, d\beta_k$ with the modes $e_k$ of a box, of mean square one
over it, and independent Brownian motions $\beta_k$. In a large box its covariance in a unit of time is
$c(r) = (2 \pi)^{-d} \int S(|k|) e^{i k \cdot r} \, dk$. White noise has $S = 1$ and $c = \delta$: on a grid its
variance is one over the volume of a cell.

Source:
    G. J. Lord, C. E. Powell, T. Shardlow, An Introduction to Computational Stochastic PDEs, Cambridge (2014), sections
    6.2, 7.4 and 10.2.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact

from .._checks import no_instance
from .._interfaces._field_noise import AbstractFieldNoise
from .._parameters import Parameter, parameter
from ._conditions import Periodic
from ._grid import Grid, Location
from ._spectral import Spectral


class WhiteNoise(AbstractFieldNoise):
    r"""Noise that is white in space and time: $\langle dW(x) \, dW(x') \rangle = \delta(x - x') \, dt$.

    On a grid every unknown has a Brownian motion of its own, of a variance of one over the volume of its cell, so that
    a solution depends less and less on the grid, the finer that is, where it depends on space smoothly enough: in one
    dimension with diffusion it does, in more of them its variance grows as cells shrink.

    Attributes:
        grid: The grid.
        size: The root of one over the volume of each cell.

    Args:
        grid: The grid.
        at: The positions of the unknowns, see `Grid`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.spatial import Grid, Laplacian, Periodic, WhiteNoise

        grid = Grid(32)
        laplacian = Laplacian(grid, Periodic())
        heat = sciml.Stochastic(lambda t, u, args: 0.1 * laplacian(u), lambda t, u, args: 0.2, noise=WhiteNoise(grid))
        sol = sciml.solve(heat, jnp.zeros(32), t0=0.0, t1=0.1, dt=1e-3, key=jax.random.key(0))
        assert sol.ys.shape == (1, 32)
        ```
    """

    grid: Grid
    size: Array  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, grid: Grid, at: Location = "center"):
        self.grid, self.size = grid, 1 / jnp.sqrt(grid.volumes(at))

    def correlated(self, white: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the numbers as they are."""
        return white


class AbstractSpectrum(eqx.Module):
    """How strong noise is at each wavelength.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import AbstractSpectrum, ColouredNoise, Grid

        class Ring(AbstractSpectrum):
            '''Of one wavelength, or nearly.'''

            def density(self, k, ndim):
                return jnp.exp(-((k - 20.0) ** 2) / 50)

        assert ColouredNoise(Grid((32, 32)), Ring()).size > 0
        ```
    """

    @abc.abstractmethod
    def density(self, k: Float[Array, "..."], ndim: int) -> Float[Array, "..."]:
        """Returns $S(|k|)$ at wavenumbers, in radians over length, in a number of dimensions."""


class GaussianSpectrum(AbstractSpectrum):
    r"""The spectrum of smooth noise with the covariance $c(r) = \sigma^2 e^{-r^2 / (2 \ell^2)}$.

    $$S(k) = \sigma^2 (2 \pi)^{d/2} \ell^d e^{-k^2 \ell^2 / 2}$$

    Attributes:
        length: $\ell$, the correlation length.
        variance: $\sigma^2$, of the noise at a point in a unit of time.

    Example:
        ```python
        from sciml.spatial import ColouredNoise, GaussianSpectrum, Grid

        noise = ColouredNoise(Grid((64, 64)), GaussianSpectrum(0.05))
        assert abs(noise.size - 1.0) < 1e-3  # the root of the variance
        ```
    """

    length: Parameter = eqx.field(converter=parameter)
    variance: Parameter = eqx.field(default=1.0, converter=parameter)

    def density(self, k: Float[Array, "..."], ndim: int) -> Float[Array, "..."]:
        """Returns $S(|k|)$."""
        volume = (math.sqrt(2 * math.pi) * self.length) ** ndim
        return self.variance * volume * jnp.exp(-jnp.square(k * self.length) / 2)


class MaternSpectrum(AbstractSpectrum):
    r"""The spectrum of noise with the covariance of Matern, whose smoothness is a parameter.

    $$c(r) = \sigma^2 \frac{2^{1 - \nu}}{\Gamma(\nu)} \Big(\frac{\sqrt{2 \nu} \, r}{\ell}\Big)^\nu
    K_\nu\Big(\frac{\sqrt{2 \nu} \, r}{\ell}\Big), \qquad
    S(k) = \sigma^2 \frac{2^d \pi^{d/2} \Gamma(\nu + d/2) (2 \nu)^\nu}{\Gamma(\nu) \, \ell^{2 \nu}}
    \Big(\frac{2 \nu}{\ell^2} + k^2\Big)^{-\nu - d/2}$$

    With $\nu = 1/2$ it is $\sigma^2 e^{-r / \ell}$; for large $\nu$ it approaches a `GaussianSpectrum`.

    Attributes:
        length: $\ell$, the correlation length.
        smoothness: $\nu$, a positive number.
        variance: $\sigma^2$, of the noise at a point in a unit of time.

    Raises:
        ValueError: If the smoothness is not a positive number.

    Source:
        C. E. Rasmussen, C. K. I. Williams, Gaussian Processes for Machine Learning, MIT Press (2006), (4.14), (4.15).

    Example:
        ```python
        from sciml.spatial import ColouredNoise, Grid, MaternSpectrum

        noise = ColouredNoise(Grid(256), MaternSpectrum(0.05, smoothness=1.5, variance=4.0))
        assert abs(noise.size - 2.0) < 1e-2  # the root of the variance
        ```
    """

    length: Parameter = eqx.field(converter=parameter)
    smoothness: float = eqx.field(static=True, default=1.5)
    variance: Parameter = eqx.field(default=1.0, converter=parameter)

    def __check_init__(self):
        nu = self.smoothness
        if isinstance(nu, bool) or not isinstance(nu, int | float) or not 0 < nu < math.inf:
            raise ValueError(f"`smoothness` of a `MaternSpectrum` must be a positive number, but is {nu!r}.")

    def density(self, k: Float[Array, "..."], ndim: int) -> Float[Array, "..."]:
        """Returns $S(|k|)$."""
        nu, power = float(self.smoothness), self.smoothness + ndim / 2
        # with the length in one place, so that no power of it is out of range
        factor = math.exp(math.lgamma(power) - math.lgamma(nu)) * (4 * math.pi) ** (ndim / 2) / (2 * nu) ** (ndim / 2)
        return self.variance * factor * self.length**ndim * (1 + jnp.square(k * self.length) / (2 * nu)) ** -power


class PowerLawSpectrum(AbstractSpectrum):
    r"""A spectrum without a length of its own, $S(k) = a \, k^{-\gamma}$, and nothing of the mean.

    The noise at a point has a finite variance on any grid if $\gamma > d$.

    Attributes:
        exponent: $\gamma$.
        amplitude: $a$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import ColouredNoise, Grid, PowerLawSpectrum

        noise = ColouredNoise(Grid(64), PowerLawSpectrum(2.0))
        assert abs(noise.correlated(jnp.arange(64.0)).mean()) < 1e-4
        ```
    """

    exponent: Parameter = eqx.field(converter=parameter)
    amplitude: Parameter = eqx.field(default=1.0, converter=parameter)

    def density(self, k: Float[Array, "..."], ndim: int) -> Float[Array, "..."]:
        """Returns $S(|k|)$."""
        del ndim
        some = jnp.where(k > 0, k, jnp.ones_like(k))
        return jnp.where(k > 0, self.amplitude * some**-self.exponent, 0.0)


class ColouredNoise(AbstractFieldNoise):
    r"""Noise that is white in time and correlated in space, by its spectrum: a $Q$-Wiener process.

    $$dW = \sum_k \sqrt{S(|k|)} \, e_k(x) \, d\beta_k$$

    over the Fourier, sine or cosine modes $e_k$ that the conditions at the sides have, with as many independent
    Brownian motions $\beta_k$. Increments are made by two transforms of white noise. On a periodic axis the covariance
    is the covariance of the spectrum, summed over the periods: a box should be several times as long as the
    correlation. Between walls it is that with its mirror images.

    Attributes:
        spectral: The modes.
        factor: The root of $S$ over the volume of a cell, for each mode.
        size: The root of the variance at each point in a unit of time: a number if all axes are periodic.

    Args:
        grid: The grid.
        spectrum: A `GaussianSpectrum`, a `MaternSpectrum`, a `PowerLawSpectrum`, or another function of the array of
            $|k|$, in radians over length.
        boundary: The conditions at the sides, which have such modes: by default all are `Periodic`. See `Spectral`.

    Raises:
        TypeError: If the spectrum is not a function.
        ValueError: If the sides have no modes, or the unknowns between two `Neumann` sides are at nodes.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.spatial import ColouredNoise, Grid, MaternSpectrum, Periodic

        grid = Grid((32, 32))
        phases = sciml.models.AllenCahn(grid, Periodic(), width=0.05)
        noise = ColouredNoise(grid, MaternSpectrum(0.1))
        noisy = sciml.Stochastic(phases, lambda t, u, args: 0.1 * (1 - u**2), noise=noise)
        sol = sciml.solve(noisy, jnp.zeros((32, 32)), t0=0.0, t1=1.0, dt=0.05, key=jax.random.key(0))
        assert sol.solver == "StochasticETD1" and sol.ys.shape == (1, 32, 32)
        ```
    """

    spectral: Spectral
    factor: Array
    size: Array  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, grid: Grid, spectrum: Any, boundary: Any = None):
        self.spectral = spectral = Spectral(grid, Periodic() if boundary is None else boundary)
        for basis, at, name in zip(spectral.bases, spectral.location, grid.names):
            if basis == "cosine" and at != "center":
                raise ValueError(
                    f"`ColouredNoise` between two Neumann sides requires unknowns at cell centres, but along {name} "
                    f"they are at {at!r}."
                )
        k = jnp.sqrt(-spectral.laplacian)
        if isinstance(spectrum, AbstractSpectrum):
            density = spectrum.density(k, grid.ndim)
        elif callable(spectrum):
            density = jnp.asarray(spectrum(k))
        else:
            raise TypeError(
                "`spectrum` of a `ColouredNoise` must be a spectrum such as `MaternSpectrum(length)` or a function of "
                f"wavenumbers, but {no_instance(spectrum)}."
            )
        density = jnp.broadcast_to(density, k.shape) / grid.volume
        some = jnp.where(density > 0, density, jnp.ones_like(density))  # the root has no derivative at zero
        self.factor = jnp.where(density > 0, jnp.sqrt(some), jnp.where(density < 0, jnp.nan, 0.0))
        self.size = jnp.sqrt(_variance(spectral, density))

    def correlated(self, white: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns correlated numbers of variance one, of independent ones."""
        coloured = self.spectral.inverse(self.spectral.times(self.factor, self.spectral.transform(white)))
        size = self.size.astype(coloured.dtype)
        return coloured / size.reshape((1,) * (coloured.ndim - size.ndim) + size.shape)


def _variance(spectral: Spectral, density: Array) -> Array:
    """Returns the variance at each point, the sum of squares of all modes there times their densities."""
    found = density
    for axis, basis in enumerate(spectral.bases):
        squares = _squares(basis, spectral.shape[axis], density.shape[axis], spectral.location[axis])
        along = jnp.moveaxis(found, axis, -1)
        # products and sums: a product of matrices may be less precise
        squares = jnp.asarray(squares.reshape((1,) * (along.ndim - 1) + squares.shape), along.dtype)
        along = jnp.sum(along[..., None] * squares, axis=-2)
        found = jnp.moveaxis(along, -1, axis)
    return found.reshape(()) if found.size == 1 else found


def _squares(basis: str, points: int, modes: int, location: str) -> np.ndarray:
    """Returns the squares of normalised modes at points, `(modes, points)`; one column where all points are alike."""
    if basis == "fourier":
        weights = np.full(modes, 1 / points)
        if modes < points:  # half of the modes stand for their conjugates, too
            weights[1 : (points + 1) // 2] *= 2
        return weights[:, None]
    places = (np.arange(points) + 0.5) / points if location == "center" else np.arange(1, points + 1) / (points + 1)
    numbers = np.arange(modes) + (basis == "sine")
    values = (np.sin if basis == "sine" else np.cos)(np.pi * numbers[:, None] * places[None]) ** 2
    return values / values.sum(axis=1, keepdims=True)
