"""Fields to start from, drawn with a key."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import check_count
from .._types import Key, RealScalarLike
from ._conditions import Periodic
from ._grid import Grid
from ._spectral import Spectral


def gaussian_random_field(grid: Grid, spectrum: Callable[[Array], Array], *, key: Key) -> Float[Array, "..."]:
    r"""Returns a Gaussian random field on a periodic grid, of a given spectrum and of mean zero.

    $$u(x) = \sum_{k \ne 0} \sqrt{S(|k|)}\, \xi_k\, e^{i k x}$$

    with independent complex $\xi_k$ of unit variance, so that $\langle u^2 \rangle = \sum_k S(|k|)$.

    Args:
        grid: The grid.
        spectrum: $S$, a function of the array of $|k|$, in radians over length.
        key: The random key.

    Returns:
        The field at centres, of the grid's shape and the default floating type.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Grid, gaussian_random_field

        grid = Grid((32, 32))
        u = gaussian_random_field(grid, lambda k: (k**2 + 25.0) ** -2.0, key=jax.random.key(0))
        assert u.shape == (32, 32) and abs(jnp.mean(u)) < 1e-6
        ```
    """
    spectral = Spectral(grid, Periodic())
    noise = jax.random.normal(key, grid.shape)
    modes = spectral.transform(noise) * math.prod(grid.shape) ** 0.5  # unit variance in every mode
    size = -spectral.laplacian
    zero = size == 0
    amplitude = jnp.where(zero, 0.0, jnp.sqrt(spectrum(jnp.sqrt(jnp.where(zero, 1.0, size)))))
    return spectral.inverse(modes * amplitude.astype(modes.dtype))


def random_fourier_series(
    grid: Grid, modes: int = 5, *, amplitude: RealScalarLike = 1.0, key: Key
) -> Float[Array, "..."]:
    r"""Returns a sum of the longest waves on a periodic grid with random amplitudes, of mean zero.

    The amplitudes of the waves with at most `modes` periods along every axis are normal, and the field is scaled to the
    largest modulus `amplitude`.

    Args:
        grid: The grid.
        modes: The largest number of periods along an axis.
        amplitude: The largest modulus of the field.
        key: The random key.

    Raises:
        ValueError: If the grid has no such waves.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Grid, random_fourier_series

        u = random_fourier_series(Grid(64), 3, key=jax.random.key(0))
        assert jnp.isclose(jnp.max(jnp.abs(u)), 1.0)
        ```
    """
    modes = check_count(modes, "modes", "random_fourier_series")
    if any(2 * modes >= n for n in grid.shape):
        raise ValueError(f"`modes` must be below half of every axis of {grid}, but is {modes}.")
    spectral = Spectral(grid, Periodic())
    coefficients = spectral.transform(jax.random.normal(key, grid.shape))
    keep = jnp.ones((), bool)
    for k, length in zip(spectral.wavenumbers, grid.extent):
        keep = keep & (jnp.abs(k) * length / (2 * np.pi) <= modes + 0.5)
    keep = keep & (spectral.laplacian != 0)
    u = spectral.inverse(jnp.where(keep, coefficients, 0.0))
    return u * (amplitude / jnp.max(jnp.abs(u)))


def random_spots(grid: Grid, n: int = 5, *, radius: RealScalarLike = 0.05, key: Key) -> Float[Array, "..."]:
    r"""Returns smooth spots at random places, $1 - \prod_i (1 - e^{-|x - c_i|^2 / (2 r^2)})$, between 0 and 1.

    Distances are periodic over the box.

    Args:
        grid: The grid.
        n: The number of spots.
        radius: Their size $r$, as a part of the shortest side of the box.
        key: The random key.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Grid, random_spots

        spots = random_spots(Grid((64, 64)), 10, key=jax.random.key(0))
        y0 = jnp.stack([1.0 - 0.5 * spots, 0.25 * spots])  # for Gray-Scott
        assert float(jnp.min(spots)) >= 0.0 and float(jnp.max(spots)) <= 1.0
        ```
    """
    n = check_count(n, "n", "random_spots")
    places = _places(grid, n, key)
    bells = jnp.exp(-_distances(grid, places) / (2 * (radius * min(grid.extent)) ** 2))
    return 1 - jnp.prod(1 - bells, axis=0)


def pulse(grid: Grid, center: Any = None, *, width: RealScalarLike = 0.1) -> Float[Array, "..."]:
    r"""Returns a Gaussian pulse, $e^{-|x - c|^2 / (2 w^2)}$.

    Args:
        grid: The grid.
        center: $c$, a number for each axis; the middle of the box if None.
        width: $w$, as a part of the shortest side of the box.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid, pulse

        assert jnp.argmax(pulse(Grid(101), 0.25)) == 25
        ```
    """
    ends = zip(grid.lower, grid.upper)
    center = jnp.asarray([(low + high) / 2 for low, high in ends] if center is None else center)
    center = jnp.broadcast_to(center.astype(jnp.result_type(float)), (grid.ndim,))
    squares = [jnp.square(x - center[axis]) for axis, x in enumerate(grid.centers)]
    return jnp.exp(-sum(squares[1:], squares[0]) / (2 * (width * min(grid.extent)) ** 2))


def random_vortices(grid: Grid, n: int = 10, *, radius: RealScalarLike = 0.05, key: Key) -> Float[Array, "..."]:
    r"""Returns the vorticity of Gaussian vortices at random places, of random strength and of mean zero.

    Distances are periodic over the box; each vortex has the peak $\omega_i$, drawn from a normal distribution.

    Args:
        grid: The grid, of two dimensions.
        n: The number of vortices.
        radius: Their size, as a part of the shortest side of the box.
        key: The random key.

    Raises:
        ValueError: If the grid is not of two dimensions.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Grid, random_vortices

        vorticity = random_vortices(Grid((64, 64)), key=jax.random.key(1))
        assert abs(jnp.mean(vorticity)) < 1e-5
        ```
    """
    if grid.ndim != 2:
        raise ValueError(f"`random_vortices` requires a grid of two dimensions, but {grid} has {grid.ndim}.")
    n = check_count(n, "n", "random_vortices")
    where, strength = jax.random.split(key)
    bells = jnp.exp(-_distances(grid, _places(grid, n, where)) / (2 * (radius * min(grid.extent)) ** 2))
    vorticity = jnp.tensordot(jax.random.normal(strength, (n,)), bells, 1, precision="highest")
    return vorticity - jnp.mean(vorticity)


def _places(grid: Grid, count: int, key: Key) -> Array:
    unit = jax.random.uniform(key, (count, grid.ndim))
    return jnp.asarray(grid.lower)[None] + unit * jnp.asarray(grid.extent)[None]


def _distances(grid: Grid, places: Array) -> Array:
    """Squares of periodic distances from each place, of shape `(count, *grid)`."""
    total = None
    for axis, (x, length) in enumerate(zip(grid.centers, grid.extent)):
        apart = x[None] - places[:, axis].reshape((-1,) + (1,) * grid.ndim)
        apart = apart - length * jnp.round(apart / length)
        term = jnp.square(apart)
        total = term if total is None else total + term
    assert total is not None
    return total
