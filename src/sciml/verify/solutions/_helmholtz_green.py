"""The wave of one frequency that a point radiates."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ..._types import RealScalarLike


def helmholtz_green(
    distance: Float[Array, "..."], wave_number: RealScalarLike, *, ndim: int, points: int = 80
) -> Complex[Array, "..."]:
    r"""Returns the outgoing solution of $\nabla^2 G + k^2 G = -\delta(x)$ in one, two or three dimensions.

    $$G = \frac{i}{2 k} e^{i k r}, \qquad G = \frac{i}{4} H_0^{(1)}(k r), \qquad G = \frac{e^{i k r}}{4 \pi r}$$

    with time as $e^{-i \omega t}$. Hankel's function is a quadrature,
    $H_0^{(1)}(z) = \sqrt{2 / \pi^2 z}\; e^{i (z - \pi / 4)} \int e^{-s^2} (1 + i s^2 / 2 z)^{-1/2}\, ds$, by the
    rule of Gauss and Hermite: to seven digits for $z \ge 1$, to three for $z \ge 0.1$.

    Args:
        distance: $r$, any shape; positive.
        wave_number: $k$, positive.
        ndim: The dimension, 1, 2 or 3.
        points: The points of the quadrature in two dimensions.

    Raises:
        ValueError: If the dimension is another.

    Source:
        M. Abramowitz, I. Stegun, Handbook of Mathematical Functions, 1964, sections 9.1 and 9.6.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        g = verify.reference("helmholtz_green", jnp.array([2.0]), 1.0, ndim=2)[0]
        assert abs(g - 0.25j * (0.2238908 + 0.5103757j)) < 1e-6  # of J_0 + i Y_0
        ```
    """
    if ndim not in (1, 2, 3):
        raise ValueError(f"`ndim` must be 1, 2 or 3, but is {ndim}.")
    dtype = np.result_type(distance.dtype, np.complex64)
    k = jnp.asarray(wave_number, distance.dtype)
    z = k * distance
    wave = jnp.exp(1j * z.astype(dtype))
    if ndim == 1:
        return 0.5j * wave / k.astype(dtype)
    if ndim == 3:
        return wave / (4 * math.pi * distance).astype(dtype)
    nodes, weights = np.polynomial.hermite.hermgauss(points)
    rest = [1] * z.ndim + [points]
    square = jnp.asarray(nodes.reshape(rest) ** 2, z.dtype) / (2 * z[..., None])
    kernel = 1 / jnp.sqrt(1 + 1j * square.astype(dtype))
    total = jnp.sum(jnp.asarray(weights.reshape(rest), dtype) * kernel, axis=-1)
    size = jnp.sqrt(2 / (math.pi**2 * z)).astype(dtype)
    return 0.25j * size * wave * complex(math.sqrt(0.5), -math.sqrt(0.5)) * total
