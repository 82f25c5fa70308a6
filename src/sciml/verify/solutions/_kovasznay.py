"""A steady flow behind a grid of rods."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float


def kovasznay(
    x: Float[Array, "..."], y: Float[Array, "..."], reynolds: float | Array = 40.0
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    r"""Returns Kovasznay's flow, an exact steady solution of the Navier-Stokes equations in the plane.

    $$u = 1 - e^{\lambda x} \cos 2 \pi y, \quad v = \tfrac{\lambda}{2 \pi} e^{\lambda x} \sin 2 \pi y, \quad
      p = \tfrac12 (1 - e^{2 \lambda x}), \qquad \lambda = \tfrac{R}{2} - \sqrt{\tfrac{R^2}{4} + 4 \pi^2}$$

    with the viscosity $1 / R$. It is periodic along $y$, with the period 1.

    Args:
        x: Along the flow.
        y: Across it; it broadcasts against `x`.
        reynolds: $R$.

    Returns:
        Both components of the velocity, and the pressure over the density.

    Source:
        L. I. G. Kovasznay, Proc. Camb. Phil. Soc. 44:58, 1948.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u, v, p = verify.reference("kovasznay", jnp.zeros(1), jnp.zeros(1))
        assert u[0] == v[0] == p[0] == 0.0
        ```
    """
    dtype = jnp.result_type(x, y)
    half = jnp.asarray(reynolds, dtype) / 2
    rate = -4 * math.pi**2 / (half + jnp.sqrt(half**2 + 4 * math.pi**2))  # the same, without cancellation
    decay, phase = jnp.exp(rate * x), 2 * math.pi * y
    u = 1 - decay * jnp.cos(phase)
    v = rate / (2 * math.pi) * decay * jnp.sin(phase)
    return u, v, jnp.broadcast_to((1 - decay**2) / 2, u.shape)
