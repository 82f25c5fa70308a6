"""Fronts: exact ones, how fast they become, and where they are in a field."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def allen_cahn_front(x: Float[Array, "..."], t: RealScalarLike, width: RealScalarLike = 0.02) -> Float[Array, "..."]:
    r"""Returns the front by which the phase 1 of the Allen-Cahn equation invades the unstable state 0.

    $$u = \tfrac12 \left(1 - \tanh \frac{x - s t}{2 \sqrt 2\, \epsilon}\right), \qquad s = \frac{3 \epsilon}{\sqrt 2}$$

    Args:
        x: Places, any shape.
        t: The time.
        width: $\epsilon$.

    Returns:
        $u$ at the places, between 0 and 1.

    Source:
        T. Kawahara and M. Tanaka, Phys. Lett. A 97:311, 1983.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        moved = 3 * 0.1 / 2**0.5 * 2.0
        assert abs(verify.reference("allen_cahn_front", jnp.array(moved), 2.0, width=0.1) - 0.5) < 1e-6
        ```
    """
    width, time = jnp.asarray(width, x.dtype), jnp.asarray(t, x.dtype)
    return jax.nn.sigmoid((3 * width / 2**0.5 * time - x) / (2**0.5 * width))


def allen_cahn_radius(
    radius: RealScalarLike, t: RealScalarLike, width: RealScalarLike = 0.02, *, ndim: int = 2
) -> Float[Array, ""]:
    r"""Returns the radius of a shrinking disc or ball of one phase, $r^2 = r_0^2 - 2 (d - 1) \epsilon^2 t$.

    It is the motion by curvature that the Allen-Cahn equation has where $\epsilon$ is small against the radius.

    Args:
        radius: $r_0$.
        t: The time.
        width: $\epsilon$.
        ndim: $d$, the dimension of space, 2 or 3.

    Returns:
        The radius; zero once the disc has vanished.

    Source:
        S. M. Allen and J. W. Cahn, Acta Metall. 27:1085, 1979.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.reference("allen_cahn_radius", 0.5, 100.0, width=0.02) - 0.17**0.5) < 1e-6
        ```
    """
    radius, t, width = (jnp.asarray(v, jnp.result_type(float)) for v in (radius, t, width))
    return jnp.sqrt(jnp.maximum(radius**2 - 2 * (ndim - 1) * width**2 * t, 0.0))


def fisher_kpp_speed(
    t: RealScalarLike, diffusivity: RealScalarLike = 1.0, rate: RealScalarLike = 1.0
) -> Float[Array, ""]:
    r"""Returns the speed of a front of the Fisher-KPP equation that started as a step, long after.

    $$v(t) = v^* - \frac{3}{2 \lambda t} + \frac{3 \sqrt \pi}{2 \lambda^2 \sqrt{D}\, t^{3/2}} + O(t^{-2}),
    \qquad v^* = 2 \sqrt{r D}, \quad \lambda = \sqrt{r / D}$$

    Args:
        t: The time; large against $1 / r$, and infinite for $v^*$.
        diffusivity: $D$.
        rate: $r$.

    Source:
        M. Bramson, Mem. Amer. Math. Soc. 44, 1983; U. Ebert and W. van Saarloos, Physica D 146:1, 2000.

    Example:
        ```python
        from sciml import verify

        assert verify.reference("fisher_kpp_speed", float("inf"), diffusivity=4.0) == 4.0
        ```
    """
    t, d, r = (jnp.asarray(v, jnp.result_type(float)) for v in (t, diffusivity, rate))
    steepness = jnp.sqrt(r / d)
    slow = -3 / (2 * steepness * t) + 3 * jnp.pi**0.5 / (2 * steepness**2 * jnp.sqrt(d) * t**1.5)
    return 2 * jnp.sqrt(r * d) + slow


def front_position(
    x: Float[Array, " cells"], u: Float[Array, " cells"], level: RealScalarLike = 0.5
) -> Float[Array, ""]:
    """Returns where a field first crosses a level, by linear interpolation.

    The slope of the positions over time is the speed of a front.

    Args:
        x: The places, ascending.
        u: The field.
        level: The level.

    Returns:
        The place; NaN if the field does not cross the level.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import verify

        x, ts = jnp.linspace(0.0, 20.0, 101), jnp.linspace(2.0, 6.0, 9)
        fronts = jax.vmap(lambda t: verify.reference("fisher_kpp_front", x, t))(ts)
        places = jax.vmap(lambda u: verify.front_position(x, u, 0.25))(fronts)
        assert abs((places[-1] - places[0]) / 4.0 - 5 / 6**0.5) < 1e-2
        ```
    """
    away = u - jnp.asarray(level, u.dtype)
    crosses = (away[:-1] > 0) != (away[1:] > 0)
    i = jnp.argmax(crosses)
    place = x[i] + (x[i + 1] - x[i]) * away[i] / jnp.where(crosses[i], away[i] - away[i + 1], 1)
    return jnp.where(crosses[i], place, jnp.nan)
