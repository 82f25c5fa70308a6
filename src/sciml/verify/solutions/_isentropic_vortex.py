"""A vortex of an ideal gas that is carried along without change."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def isentropic_vortex(
    x: Float[Array, "..."],
    y: Float[Array, "..."],
    t: float | Array = 0.0,
    *,
    velocity: tuple[float, float] = (1.0, 1.0),
    strength: float | Array = 5.0,
    gamma: float | Array = 1.4,
    period: float | None = None,
) -> Float[Array, "4 ..."]:
    r"""Returns a vortex in a uniform wind, an exact smooth solution of the Euler equations.

    With $r$ the distance from its centre $(\bar x, \bar y)$ and $\beta$ its strength,

    $$v = v_\infty + \frac{\beta}{2 \pi} e^{(1 - r^2) / 2} (-\bar y, \bar x), \qquad
      T = 1 - \frac{(\gamma - 1) \beta^2}{8 \gamma \pi^2} e^{1 - r^2}, \qquad
      \rho = T^{1 / (\gamma - 1)}, \qquad p = \rho T.$$

    Args:
        x: From where the centre is at the start, along the first axis.
        y: The same along the second; it broadcasts against `x`.
        t: The time.
        velocity: $v_\infty$.
        strength: $\beta$.
        gamma: The ratio of specific heats.
        period: The length of a periodic box, or None for the plane. In a box of 20 the vortex is zero to rounding at
            the sides; in one of 10, to about 1e-5.

    Returns:
        Density, both velocities and pressure, the primitive variables of `sciml.models.Euler`.

    Source:
        C.-W. Shu, in Advanced Numerical Approximation of Nonlinear Hyperbolic Equations, Lecture Notes in Mathematics
        1697, Springer, 1998, section 5.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        density, _, _, pressure = verify.reference("isentropic_vortex", jnp.zeros(1), jnp.zeros(1))
        assert abs(density[0] - 0.4938073) < 1e-6 and abs(pressure[0] - 0.3723750) < 1e-6
        ```
    """
    dtype = jnp.result_type(x, y)
    beta, gamma, t = (jnp.asarray(value, dtype) for value in (strength, gamma, t))
    offsets = []
    for place, speed in zip((x, y), velocity):
        moved = place - speed * t
        offsets.append(moved if period is None else (moved + period / 2) % period - period / 2)
    across, along = jnp.broadcast_arrays(*offsets)
    decay = jnp.exp((1 - across**2 - along**2) / 2)
    swirl = beta / (2 * jnp.pi) * decay
    temperature = 1 - (gamma - 1) / (8 * gamma) * (beta / jnp.pi * decay) ** 2
    density = temperature ** (1 / (gamma - 1))
    return jnp.stack([density, velocity[0] - swirl * along, velocity[1] + swirl * across, density * temperature])
