"""Exact solutions for sound in a uniform medium."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def sound_of_a_point(
    signal: Callable[[Any], Any],
    distance: Float[Array, "..."],
    t: RealScalarLike,
    *,
    ndim: int,
    speed: RealScalarLike = 1.0,
    density: RealScalarLike = 1.0,
    points: int = 200,
) -> Float[Array, "..."]:
    r"""Returns the pressure that a point source radiates into an infinite medium in one, two or three dimensions.

    The source emits the volume $s(t)$ per time from $t = 0$ on; in one dimension it is a plane, and $s$ is a
    velocity, in two a line. With $\tau = t - r / c$

    $$p = \tfrac12 \rho c\, s(\tau), \qquad
      p = \frac{\rho}{2 \pi} \int_0^{\operatorname{arcosh}(c t / r)} s'(t - \tfrac{r}{c} \cosh \theta)\, d\theta, \qquad
      p = \frac{\rho\, s'(\tau)}{4 \pi r}$$

    Args:
        signal: $s$, a function of time that JAX can differentiate; it should begin smoothly.
        distance: $r$, any shape; positive.
        t: The time.
        ndim: The dimension, 1, 2 or 3.
        speed: $c$.
        density: $\rho$.
        points: The points of the quadrature in two dimensions.

    Returns:
        $p$ at the distances; zero where sound has not come yet.

    Raises:
        ValueError: If the dimension is another.

    Source:
        P. M. Morse, K. U. Ingard, Theoretical Acoustics, McGraw-Hill, 1968, chapter 7.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify
        from sciml.models import Ricker

        p = verify.reference("sound_of_a_point", Ricker(1.0), jnp.array([1.0, 2.0]), 2.5, ndim=1)
        assert p[0] == 0.5
        ```
    """
    if ndim not in (1, 2, 3):
        raise ValueError(f"`ndim` must be 1, 2 or 3, but is {ndim}.")
    dtype = distance.dtype
    time, c, rho = (jnp.asarray(q, dtype) for q in (t, speed, density))
    delay = distance / c
    late = time - delay
    if ndim == 1:
        return jnp.where(late > 0, rho * c / 2 * jax.vmap(signal)(late.ravel()).reshape(late.shape), 0)
    rate = jax.vmap(jax.grad(lambda t: jnp.asarray(signal(t))))
    if ndim == 3:
        slope = rate(late.ravel()).reshape(late.shape)
        return jnp.where(late > 0, rho * slope / (4 * math.pi * distance), 0)
    nodes, weights = (jnp.asarray(v, dtype) for v in np.polynomial.legendre.leggauss(points))
    end = jnp.arccosh(jnp.maximum(time / delay, 1))[..., None] / 2
    angle = end * (nodes + 1).reshape((1,) * delay.ndim + (-1,))
    slope = rate((time - delay[..., None] * jnp.cosh(angle)).ravel()).reshape(angle.shape)
    return rho / (2 * math.pi) * jnp.sum(end * weights.reshape((1,) * delay.ndim + (-1,)) * slope, axis=-1)
