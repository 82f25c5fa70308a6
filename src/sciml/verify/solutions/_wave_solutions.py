"""Exact solutions of the wave equation in one to three dimensions, and of its leapfrog scheme."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike

Profile = Callable[[Array], Array]
"""A function of places, elementwise."""


def dalembert(
    x: Float[Array, "..."],
    t: RealScalarLike,
    displacement: Profile,
    speed: RealScalarLike = 1.0,
    *,
    impulse: Profile | None = None,
) -> Float[Array, "2 ..."]:
    r"""Returns the solution of the wave equation on a line, displacement and rate.

    From $u_0 = f$ and $\dot u_0 = G'$ it is

    $$u = \tfrac12 \big(f(x - ct) + f(x + ct)\big) + \tfrac{1}{2c} \big(G(x + ct) - G(x - ct)\big)$$

    Args:
        x: Places, any shape.
        t: The time.
        displacement: $f$, a function of places; periodic or odd as the walls ask for.
        speed: $c$.
        impulse: $G$, an integral of the initial rate; None where that is zero.

    Returns:
        $(u, \dot u)$, the state of `sciml.models.Wave`.

    Source:
        J. d'Alembert, Hist. Acad. Sci. Berlin 3:214, 1747.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u, rate = verify.reference("dalembert", jnp.array([0.3, 0.8]), 0.5, lambda x: jnp.sin(2 * jnp.pi * x))
        assert jnp.allclose(u, -jnp.sin(2 * jnp.pi * jnp.array([0.3, 0.8])), atol=1e-5)  # half a period
        ```
    """
    c = jnp.asarray(speed, x.dtype)

    def at(time):
        ahead, behind = x + c * time, x - c * time
        u = (displacement(behind) + displacement(ahead)) / 2
        return u if impulse is None else u + (impulse(ahead) - impulse(behind)) / (2 * c)

    return _with_rate(at, t, x)


def spherical_wave(
    r: Float[Array, "..."], t: RealScalarLike, displacement: Profile, speed: RealScalarLike = 1.0
) -> Float[Array, "2 ..."]:
    r"""Returns the solution of the wave equation in space that starts at rest from a ball, displacement and rate.

    $$u = \frac{(r - ct)\, f(|r - ct|) + (r + ct)\, f(r + ct)}{2 r}$$

    Args:
        r: Distances from the centre, any shape; zero is allowed.
        t: The time.
        displacement: $f$, the initial displacement as a function of the distance.
        speed: $c$.

    Returns:
        $(u, \dot u)$, the state of `sciml.models.Wave`.

    Source:
        G. B. Whitham, Linear and Nonlinear Waves, Wiley, 1974, section 7.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u, rate = verify.reference("spherical_wave", jnp.array([0.0, 2.0]), 2.0, lambda r: jnp.exp(-(r**2)))
        assert abs(u[1]) < 1e-3  # in the shell that runs outwards, between its crest and its trough
        ```
    """
    c = jnp.asarray(speed, r.dtype)
    center = jnp.abs(r) < 1e-4 if r.dtype == jnp.float64 else jnp.abs(r) < 1e-2
    away = jnp.where(center, 1.0, r)

    def moment(s):
        return s * displacement(jnp.abs(s))

    def at(time):
        ct = c * time
        outside = (moment(away - ct) + moment(away + ct)) / (2 * away)
        slope = jax.jvp(moment, (ct,), (jnp.ones_like(ct),))[1]
        return jnp.where(center, slope, outside)

    return _with_rate(at, t, r)


def wave_kernel(
    r: Float[Array, "..."], t: RealScalarLike, speed: RealScalarLike = 1.0, *, ndim: int = 2
) -> Float[Array, "..."]:
    r"""Returns the Green's function of the wave equation, $u_{tt} = c^2 \nabla^2 u$ from the rate $\delta(x)$.

    $$u = \frac{1}{2 c}\, [r < ct] \;\text{ on a line}, \qquad
    u = \frac{[r < ct]}{2 \pi c \sqrt{c^2 t^2 - r^2}} \;\text{ in a plane}$$

    In a plane the wave leaves a wake. In space there is none, see `spherical_wave`.

    Args:
        r: Distances from the origin, any shape.
        t: The time.
        speed: $c$.
        ndim: The dimension of space, 1 or 2.

    Raises:
        ValueError: If the dimension is another.

    Source:
        G. B. Whitham, Linear and Nonlinear Waves, Wiley, 1974, section 7.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        assert jnp.all(verify.reference("wave_kernel", jnp.array([0.5, 1.5]), 1.0, ndim=1) == jnp.array([0.5, 0.0]))
        ```
    """
    if ndim not in (1, 2):
        raise ValueError(f"`ndim` must be 1 or 2, but is {ndim}: in three dimensions the kernel is no function.")
    c, time = jnp.asarray(speed, r.dtype), jnp.asarray(t, r.dtype)
    reached = jnp.abs(r) < c * time
    if ndim == 1:
        return jnp.where(reached, 1 / (2 * c), 0)
    square = jnp.where(reached, jnp.square(c * time) - jnp.square(r), 1)
    return jnp.where(reached, 1 / (2 * jnp.pi * c * jnp.sqrt(square)), 0)


def leapfrog_frequency(eigenvalue: Float[Array, "..."], dt: RealScalarLike) -> Float[Array, "..."]:
    r"""Returns the frequency that the leapfrog scheme gives to a mode of $\ddot q = \lambda q$.

    $$\sin \tfrac12 \omega\, dt = \tfrac12\, dt \sqrt{-\lambda}$$

    holds to rounding for `sciml.solvers.VelocityVerlet`. With the symbol of a Laplacian for $\lambda / c^2$ it is the
    dispersion relation of the scheme for waves: with that of order 2,
    $\sin^2 \tfrac12 \omega\, dt = \sum_i (c\, dt / h_i)^2 \sin^2 \tfrac12 k_i h_i$.

    Args:
        eigenvalue: $\lambda$, not positive, any shape.
        dt: The step.

    Returns:
        $\omega$; NaN where the step is beyond the limit of stability, $dt \sqrt{-\lambda} = 2$.

    Source:
        R. Courant, K. Friedrichs, H. Lewy, Math. Ann. 100:32, 1928; J. Virieux, Geophysics 51:889, 1986.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify
        from sciml.spatial import Grid, Laplacian, Periodic

        laplacian = Laplacian(Grid(64), Periodic())
        k = jnp.array(2 * jnp.pi)
        omega = verify.reference("leapfrog_frequency", laplacian.symbol(k), dt=1 / 64)
        assert abs(omega - k) < 1e-3  # with the step of one cell waves in one dimension travel at their exact speed
        ```
    """
    dt = jnp.asarray(dt, eigenvalue.dtype)
    return 2 / dt * jnp.arcsin(dt / 2 * jnp.sqrt(-eigenvalue))


def _with_rate(at: Callable[[Array], Array], t: RealScalarLike, like: Array) -> Array:
    time = jnp.asarray(t, like.dtype)
    return jnp.stack(jax.jvp(at, (time,), (jnp.ones_like(time),)))
