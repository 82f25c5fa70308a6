"""The wave that runs along the free surface of an elastic half space."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._jax._loops import scan
from ..._types import RealScalarLike


def rayleigh_speed(
    lame: RealScalarLike = 1.0, shear: RealScalarLike = 1.0, density: RealScalarLike = 1.0
) -> Float[Array, ""]:
    r"""Returns the speed of Rayleigh's wave along the free surface of an elastic half space.

    The root $c$ between 0 and $c_s$ of

    $$\Big(2 - \frac{c^2}{c_s^2}\Big)^2 = 4 \sqrt{1 - \frac{c^2}{c_p^2}} \sqrt{1 - \frac{c^2}{c_s^2}}, \qquad
      c_p^2 = \frac{\lambda + 2 \mu}{\rho}, \quad c_s^2 = \frac{\mu}{\rho}$$

    Args:
        lame: $\lambda$.
        shear: $\mu$.
        density: $\rho$.

    Returns:
        $c$; it can be differentiated.

    Source:
        Lord Rayleigh, Proc. Lond. Math. Soc. 17:4, 1885.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.reference("rayleigh_speed", 1.0, 1.0, 1.0) - 0.9194017) < 1e-6  # (2 - 2 / 3**0.5)**0.5
        ```
    """
    dtype = jnp.result_type(float)
    stiffness, mu, rho = (jnp.asarray(x).astype(dtype) for x in (lame, shear, density))
    ratio = mu / (stiffness + 2 * mu)

    def equation(x: Array, ratio: Array) -> Array:
        """Of the square of the speed over that of shear, without roots: x^3 - 8 x^2 + (24 - 16 r) x = 16 (1 - r)."""
        return ((x - 8) * x + 24 - 16 * ratio) * x - 16 * (1 - ratio)

    def halve(ends: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        low, high = ends
        middle = (low + high) / 2
        below = equation(middle, ratio) < 0
        return (jnp.where(below, middle, low), jnp.where(below, high, middle)), None

    (low, high), _ = scan(halve, (jnp.zeros_like(ratio), jnp.ones_like(ratio)), length=60, like=ratio)
    x = jax.lax.stop_gradient((low + high) / 2)
    slope = jax.lax.stop_gradient((3 * x - 16) * x + 24 - 16 * ratio)
    x = x - equation(x, ratio) / slope  # a step of Newton's method has the derivative
    return jnp.sqrt(x * mu / rho)


def rayleigh_wave(
    name: str,
    coordinates: Sequence[Float[Array, "..."]],
    t: RealScalarLike,
    *,
    wave_number: RealScalarLike,
    lame: RealScalarLike = 1.0,
    shear: RealScalarLike = 1.0,
    density: RealScalarLike = 1.0,
) -> Float[Array, "..."]:
    r"""Returns a field of Rayleigh's wave in the half space $y < 0$ below a free surface.

    With $a^2 = 1 - c^2 / c_p^2$, $b^2 = 1 - c^2 / c_s^2$ and $\theta = k (x - c t)$

    $$v_x = \Big(e^{k a y} - \frac{1 + b^2}{2} e^{k b y}\Big) \cos \theta, \qquad
      v_y = \Big(a e^{k a y} - \frac{1 + b^2}{2 b} e^{k b y}\Big) \sin \theta$$

    Args:
        name: The field: `"vx"`, `"vy"`, `"sxx"`, `"syy"` or `"sxy"`.
        coordinates: $x$ and $y$, arrays that broadcast against each other.
        t: The time.
        wave_number: $k$.
        lame: $\lambda$.
        shear: $\mu$.
        density: $\rho$.

    Raises:
        ValueError: If there is no such field.

    Source:
        L. D. Landau, E. M. Lifshitz, Theory of Elasticity, Pergamon, 1986, section 24.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        x = jnp.linspace(0.0, 1.0, 5)
        pull = verify.reference("rayleigh_wave", "syy", (x, 0 * x), 0.2, wave_number=6.0)
        assert jnp.allclose(pull, 0.0, atol=1e-5)  # the surface is free
        ```
    """
    x, y = coordinates
    dtype = x.dtype
    c = rayleigh_speed(lame, shear, density).astype(dtype)
    k, stiffness, mu, rho = (jnp.asarray(q).astype(dtype) for q in (wave_number, lame, shear, density))
    a, b = jnp.sqrt(1 - c**2 * rho / (stiffness + 2 * mu)), jnp.sqrt(1 - c**2 * rho / mu)
    theta = k * (x - c * jnp.asarray(t, dtype))
    deep, shallow = jnp.exp(k * a * y), jnp.exp(k * b * y)
    half = (1 + b**2) / 2
    across, along = deep - half * shallow, a * deep - half / b * shallow  # of v_x and v_y
    if name == "vx":
        return across * jnp.cos(theta)
    if name == "vy":
        return along * jnp.sin(theta)
    # the rates of stress over k; the integral of sin(theta) over time is cos(theta) / k c
    by_x, by_y = -across, a**2 * deep - half * shallow
    if name in ("sxx", "syy"):
        own, other = (by_x, by_y) if name == "sxx" else (by_y, by_x)
        return ((stiffness + 2 * mu) * own + stiffness * other) * jnp.cos(theta) / c
    if name == "sxy":
        return -mu * (2 * a * deep - half * (b + 1 / b) * shallow) * jnp.sin(theta) / c
    raise ValueError(f"there is no field {name!r} of Rayleigh's wave: they are vx, vy, sxx, syy, sxy.")
