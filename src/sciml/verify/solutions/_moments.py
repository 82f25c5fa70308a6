"""Means and variances of processes with noise."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike
from ...models import GeometricBrownian, OrnsteinUhlenbeck


def ornstein_uhlenbeck_moments(
    process: OrnsteinUhlenbeck, y0: RealScalarLike, t: RealScalarLike | Float[Array, "*times"]
) -> tuple[Float[Array, "*times"], Float[Array, "*times"]]:
    r"""Returns mean and variance of an Ornstein-Uhlenbeck process, which is normal.

    $$\langle x \rangle = m + (x_0 - m) e^{-\theta t}, \qquad
    \langle (x - \langle x \rangle)^2 \rangle = \frac{\sigma^2}{2 \theta} (1 - e^{-2 \theta t})$$

    Args:
        process: The process.
        y0: $x_0$, the state at time zero.
        t: Times, of any shape.

    Source:
        G. E. Uhlenbeck and L. S. Ornstein, Phys. Rev. 36:823, 1930.

    Example:
        ```python
        from sciml import models, verify

        model = models.OrnsteinUhlenbeck(1.0, 0.0, 2.0)
        mean, variance = verify.reference("ornstein_uhlenbeck_moments", model, 3.0, 50.0)
        assert abs(mean) < 1e-6 and abs(variance - 2.0) < 1e-6
        ```
    """
    t = jnp.asarray(t, jnp.result_type(float))
    mean = process.mean + (jnp.asarray(y0, t.dtype) - process.mean) * jnp.exp(-process.rate * t)
    return mean, process.volatility**2 / (2 * process.rate) * -jnp.expm1(-2 * process.rate * t)


def geometric_brownian_moments(
    process: GeometricBrownian, y0: RealScalarLike, t: RealScalarLike | Float[Array, "*times"]
) -> tuple[Float[Array, "*times"], Float[Array, "*times"]]:
    r"""Returns mean and variance of a geometric Brownian motion, whose logarithm is normal.

    $$\langle S \rangle = S_0 e^{\mu t}, \qquad
    \langle (S - \langle S \rangle)^2 \rangle = S_0^2 e^{2 \mu t} (e^{\sigma^2 t} - 1)$$

    Args:
        process: The process.
        y0: $S_0$, the state at time zero.
        t: Times, of any shape.

    Source:
        P. E. Kloeden and E. Platen, Numerical Solution of Stochastic Differential Equations, 1992, section 4.4.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import models, verify

        mean, variance = verify.reference("geometric_brownian_moments", models.GeometricBrownian(0.0, 1.0), 2.0, 1.0)
        assert mean == 2.0 and abs(variance - 4 * (jnp.e - 1)) < 1e-5
        ```
    """
    t = jnp.asarray(t, jnp.result_type(float))
    mean = jnp.asarray(y0, t.dtype) * jnp.exp(process.rate * t)
    return mean, mean**2 * jnp.expm1(process.volatility**2 * t)
