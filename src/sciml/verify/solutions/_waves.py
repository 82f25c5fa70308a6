"""Exact solutions for waves: the wave equation and its leapfrog scheme, sound, Klein-Gordon equations."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ..._types import RealScalarLike


def klein_gordon_wave(
    x: Float[Array, "..."],
    t: RealScalarLike,
    wavenumber: RealScalarLike,
    speed: RealScalarLike = 1.0,
    mass: RealScalarLike = 1.0,
) -> Float[Array, "..."]:
    r"""Returns $\cos(k x - \omega t)$ with $\omega = \sqrt{c^2 k^2 + m^2}$, a wave of the linear Klein-Gordon equation.

    Args:
        x: Places, any shape; in several dimensions $k \cdot x / |k|$.
        t: The time.
        wavenumber: $k$.
        speed: $c$.
        mass: $m$.

    Source:
        O. Klein, Z. Phys. 37:895, 1926; W. Gordon, Z. Phys. 40:117, 1926.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        assert jnp.allclose(reference("klein_gordon_wave", jnp.zeros(()), jnp.pi / 5, wavenumber=3.0, mass=4.0), -1.0)
        ```
    """
    k, c, m, time = (jnp.asarray(value, x.dtype) for value in (wavenumber, speed, mass, t))
    return jnp.cos(k * x - jnp.sqrt((c * k) ** 2 + m**2) * time)


def sine_gordon_breather(
    x: Float[Array, "..."], t: RealScalarLike, frequency: RealScalarLike = 0.5
) -> Float[Array, "..."]:
    r"""Returns a breather of the sine-Gordon equation $\partial_{tt} u = \partial_{xx} u - \sin u$.

    $$u = 4 \arctan\left(\frac{\kappa}{\omega} \frac{\sin \omega t}{\cosh \kappa x}\right), \qquad
      \kappa = \sqrt{1 - \omega^2}$$

    It stays in place, and its energy is $16 \kappa$. For other $c$ and $m$ give $m x / c$ and $m t$.

    Args:
        x: Places, any shape.
        t: The time; at 0 the field is flat and moves fastest.
        frequency: $\omega$, between 0 and 1.

    Source:
        M. J. Ablowitz, D. J. Kaup, A. C. Newell and H. Segur, Phys. Rev. Lett. 30:1262, 1973.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        top = reference("sine_gordon_breather", jnp.zeros(()), jnp.pi, frequency=0.5)
        assert jnp.allclose(top, 4 * jnp.pi / 3)
        ```
    """
    omega, time = jnp.asarray(frequency, x.dtype), jnp.asarray(t, x.dtype)
    kappa = jnp.sqrt(1 - omega**2)
    return 4 * jnp.arctan(kappa / omega * jnp.sin(omega * time) / jnp.cosh(kappa * x))


def sine_gordon_kink(x: Float[Array, "..."], t: RealScalarLike, velocity: RealScalarLike = 0.0) -> Float[Array, "..."]:
    r"""Returns a kink of the sine-Gordon equation $\partial_{tt} u = \partial_{xx} u - \sin u$.

    $$u = 4 \arctan e^{\gamma (x - v t)}, \qquad \gamma = 1 / \sqrt{1 - v^2}$$

    It rises once from 0 to $2 \pi$, with the energy $8 \gamma$. For other $c$ and $m$ give $m x / c$ and $m t$.

    Args:
        x: Places, any shape.
        t: The time.
        velocity: $v$, between -1 and 1.

    Source:
        J. K. Perring and T. H. R. Skyrme, Nucl. Phys. 31:550, 1962.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        assert jnp.allclose(reference("sine_gordon_kink", jnp.array(1.0), 2.0, velocity=0.5), jnp.pi)
        ```
    """
    v, time = jnp.asarray(velocity, x.dtype), jnp.asarray(t, x.dtype)
    return 4 * jnp.arctan(jnp.exp((x - v * time) / jnp.sqrt(1 - v**2)))


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
        displacement: $f$, a function of places; periodic or odd as required by the walls.
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
        raise ValueError(f"`ndim` must be 1 or 2, but is {ndim}; in three dimensions the kernel is a distribution.")
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
    dispersion relation of the scheme for waves: for order 2,
    $\sin^2 \tfrac12 \omega\, dt = \sum_i (c\, dt / h_i)^2 \sin^2 \tfrac12 k_i h_i$.

    Args:
        eigenvalue: $\lambda$, not positive, any shape.
        dt: The step.

    Returns:
        $\omega$; NaN if the step is beyond the limit of stability, $dt \sqrt{-\lambda} = 2$.

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
