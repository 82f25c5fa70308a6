"""Orbits, quantum states, vortices and periodic waves with exact solutions."""

import math

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Complex, Float

from ..._parameters import with_dtype
from ..._types import RealScalarLike
from ...models import GinzburgLandau, GrossPitaevskii, Kepler, KortewegDeVries, NonlinearSchroedinger, Vorticity
from ...spatial import Grid, Periodic
from ._problem import Problem, elapsed, floating


def kepler(eccentricity: float | int = 0.5, *, t1: RealScalarLike = 6.0, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns an ellipse of semi-major axis 1 from its pericentre; the period is $2\pi$.

    The exact solution holds for any ellipse and starting point, so it may be differentiated with
    respect to the initial state and to `mu`.

    Args:
        eccentricity: From 0, the circle, to 0.9.
        t1: The end time; the default is just short of one period, where the speed is high.
        dtype: The dtype of the state; the default floating type if None.

    Raises:
        ValueError: If `eccentricity` is not between 0 and 0.9.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        circle = verify.problem("kepler", eccentricity=0.0)
        assert jnp.allclose(circle.solution(jnp.pi), jnp.array([-1.0, 0.0, 0.0, -1.0]), atol=1e-5)
        ```
    """
    if not 0 <= eccentricity <= 0.9:
        raise ValueError(f"`eccentricity` must be between 0 and 0.9, but got {eccentricity}.")
    speed = ((1 + eccentricity) / (1 - eccentricity)) ** 0.5
    dtype = floating(dtype)
    return Problem(
        model=Kepler(),
        y0=jnp.asarray([1 - eccentricity, 0.0, 0.0, speed], dtype),
        t0=0.0,
        t1=t1,
        exact=_ellipse,
        name=f"Kepler, eccentricity {eccentricity}",
        source="exact: Lagrange's coefficients, R. H. Battin, Astrodynamics, section 4.3",
    )


def _ellipse(problem, t):
    r"""Returns the state at `t`.

    With $s = r_0 \cdot v_0 / \sqrt{\mu a}$ and $\chi$ the change of the eccentric anomaly,
    Kepler's equation between two points of an ellipse reads
    $$n (t - t_0) = \chi - (1 - r_0/a) \sin\chi + s (1 - \cos\chi).$$
    """
    y0 = problem.y0
    mu = with_dtype(problem.model, y0.dtype).mu
    time = elapsed(problem, t, y0.dtype)
    q, v = y0[:2], y0[2:]
    r0 = jnp.sqrt(jnp.sum(q**2))
    a = 1 / (2 / r0 - jnp.sum(v**2) / mu)
    mean_motion = jnp.sqrt(mu / a) / a
    c = 1 - r0 / a
    s = jnp.sum(q * v) / jnp.sqrt(mu * a)
    mean = mean_motion * time
    # From this side of the root Newton's method cannot overshoot if y0 is the pericentre.
    chi = mean + c * jnp.sign(jnp.sin(mean))
    for _ in range(12):
        kepler_equation = chi - c * jnp.sin(chi) + 2 * s * jnp.sin(chi / 2) ** 2 - mean
        chi = chi - kepler_equation / (1 - c * jnp.cos(chi) + s * jnp.sin(chi))
    rise = 2 * jnp.sin(chi / 2) ** 2  # 1 - cos(chi), without cancellation
    r = a * (1 - c * jnp.cos(chi) + s * jnp.sin(chi))
    f = 1 - a / r0 * rise
    g = time - (chi - jnp.sin(chi)) / mean_motion
    df = -jnp.sqrt(mu * a) / (r * r0) * jnp.sin(chi)
    dg = 1 - a / r * rise
    return jnp.concatenate([f * q + g * v, df * q + dg * v])


def oscillator_state(
    x: Float[Array, "..."], t: RealScalarLike, level: int = 0, frequency: RealScalarLike = 1.0
) -> Complex[Array, "..."]:
    r"""Returns the state of level $n$ of the Schroedinger equation in the trap $V = \tfrac12 \omega^2 x^2$.

    $$\psi_n = \sqrt[4]{\tfrac{\omega}{\pi}} \frac{1}{\sqrt{2^n n!}}\, H_n(\sqrt\omega x)\, e^{-\omega x^2 / 2}\,
      e^{-i E_n t}, \qquad E_n = (n + \tfrac12)\, \omega$$

    with the Hermite polynomials $H_n$, in units where $\hbar$ and the mass are one. $\int |\psi_n|^2 = 1$. In several
    dimensions products of such states are states.

    Args:
        x: Places, any shape.
        t: The time.
        level: $n$.
        frequency: $\omega$.

    Raises:
        ValueError: If the level is negative.

    Source:
        E. Schroedinger, Ann. Phys. 384:489, 1926.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        x = jnp.linspace(-8.0, 8.0, 161)
        psi = reference("oscillator_state", x, jnp.pi / 5, level=2)  # rotated by pi / 2
        assert jnp.max(jnp.abs(psi.real)) < 1e-5
        assert abs(0.1 * jnp.sum(jnp.abs(psi) ** 2) - 1) < 1e-5
        ```
    """
    if level < 0:
        raise ValueError(f"`level` must be at least zero, but is {level}.")
    omega, time = jnp.asarray(frequency, x.dtype), jnp.asarray(t, x.dtype)
    s = jnp.sqrt(omega) * x
    before, size = jnp.zeros_like(s), (omega / math.pi) ** 0.25 * jnp.exp(-s * s / 2)
    for n in range(level):  # of the normalised functions, which do not grow
        before, size = size, math.sqrt(2 / (n + 1)) * s * size - math.sqrt(n / (n + 1)) * before
    phase = (level + 0.5) * omega * time
    return jax.lax.complex(size * jnp.cos(phase), -size * jnp.sin(phase))


def coherent_state(
    x: Float[Array, "..."], t: RealScalarLike, amplitude: RealScalarLike = 1.0, frequency: RealScalarLike = 1.0
) -> Complex[Array, "..."]:
    r"""Returns the ground state of a harmonic trap, displaced by $a$: it oscillates and keeps its shape.

    $$\psi = \sqrt[4]{\tfrac{\omega}{\pi}} \exp\left(-\tfrac\omega2 (x - x_c)^2 + i p_c (x - \tfrac{x_c}2)
      - \tfrac{i}{2} \omega t\right), \qquad x_c = a \cos \omega t, \quad p_c = -a \omega \sin \omega t$$

    Args:
        x: Places, any shape.
        t: The time.
        amplitude: $a$.
        frequency: $\omega$.

    Source:
        E. Schroedinger, Naturwissenschaften 14:664, 1926.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        x = jnp.linspace(-8.0, 8.0, 161)
        density = jnp.abs(reference("coherent_state", x, jnp.pi / 3, amplitude=2.0)) ** 2
        assert abs(x[jnp.argmax(density)] - 1.0) < 0.06
        ```
    """
    omega, a, time = (jnp.asarray(value, x.dtype) for value in (frequency, amplitude, t))
    center, momentum = a * jnp.cos(omega * time), -a * omega * jnp.sin(omega * time)
    size = (omega / math.pi) ** 0.25 * jnp.exp(-omega / 2 * (x - center) ** 2)
    phase = momentum * (x - center / 2) - omega * time / 2
    return jax.lax.complex(size * jnp.cos(phase), size * jnp.sin(phase))


def schroedinger_level(
    level: int = 0, *, points: int = 64, t1: RealScalarLike = 2.0, dtype: DTypeLike | None = None
) -> Problem:
    r"""Returns a level of the harmonic trap, which rotates as $e^{-i (n + 1/2) t}$; see `oscillator_state`.

    The box is 20 long and periodic; the potential $\tfrac12 x^2$.

    Args:
        level: $n$, up to about 10 in this box.
        points: The number of points.
        t1: The end time.
        dtype: The dtype of the state, complex; the default if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("schroedinger_level", 1)
        assert abs(problem.model.energy(problem.y0) - 1.5) < 1e-4
        ```
    """
    dtype = jnp.zeros((), floating(None)).astype(complex).dtype if dtype is None else dtype
    (x,) = Grid(points, -10.0, 10.0).centers
    x = x.astype(jnp.finfo(dtype).dtype)
    model = GrossPitaevskii(Grid(points, -10.0, 10.0), Periodic(), potential=x**2 / 2, coupling=0.0)

    def exact(problem, t):
        return oscillator_state(x.astype(problem.y0.real.dtype), t, level)

    return Problem(
        model=model,
        y0=oscillator_state(x, 0.0, level),
        t0=0.0,
        t1=t1,
        exact=exact,
        accuracy=1e-10,
        name=f"level {level} of a harmonic trap",
        source="exact",
    )


def taylor_green_flow(
    x: Float[Array, "..."],
    y: Float[Array, "..."],
    t: float | Array = 0.0,
    *,
    viscosity: float | Array = 0.05,
    waves: int = 1,
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    r"""Returns velocity and pressure of the vortices of Taylor and Green in the plane.

    $$u = -\cos k x \sin k y\, e^{-2 \nu k^2 t}, \quad v = \sin k x \cos k y\, e^{-2 \nu k^2 t}, \quad
      p = -\tfrac14 (\cos 2 k x + \cos 2 k y)\, e^{-4 \nu k^2 t}$$

    Args:
        x: Along the first axis.
        y: Along the second; it broadcasts against `x`.
        t: The time.
        viscosity: $\nu$.
        waves: $k$, an integer for a box of length $2 \pi$.

    Returns:
        Both components of the velocity, and the pressure over the density.

    Source:
        G. I. Taylor, A. E. Green, Proc. R. Soc. A 158:499, 1937.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u, v, p = verify.reference("taylor_green_flow", jnp.zeros(1), jnp.full(1, jnp.pi / 2), 1.0, viscosity=0.5)
        assert abs(u[0] + jnp.exp(-1.0)) < 1e-6 and abs(v[0]) < 1e-6
        ```
    """
    dtype = jnp.result_type(x, y)
    decay = jnp.exp(-2 * waves**2 * jnp.asarray(viscosity, dtype) * jnp.asarray(t, dtype))
    x, y = waves * x, waves * y
    u, v = -jnp.cos(x) * jnp.sin(y) * decay, jnp.sin(x) * jnp.cos(y) * decay
    return u, v, -(jnp.cos(2 * x) + jnp.cos(2 * y)) / 4 * decay**2


def beltrami_flow(
    x: Float[Array, "..."],
    y: Float[Array, "..."],
    z: Float[Array, "..."],
    t: float | Array = 0.0,
    *,
    viscosity: float | Array = 0.05,
    amplitudes: tuple[float, float, float] = (1.0, 0.8, 0.6),
) -> Float[Array, "3 ..."]:
    r"""Returns the flow of Arnold, Beltrami and Childress, whose vorticity is its velocity, in three dimensions.

    $$u = \begin{pmatrix} A \sin z + C \cos y \\ B \sin x + A \cos z \\ C \sin y + B \cos x \end{pmatrix} e^{-\nu t}$$

    All of its transport is balanced by the pressure, so that it decays without a change of shape: an exact solution of
    the Navier-Stokes equations whose transport is not zero, in a periodic box of length $2 \pi$.

    Args:
        x: Along the first axis.
        y: Along the second.
        z: Along the third; all three broadcast.
        t: The time.
        viscosity: $\nu$.
        amplitudes: $A$, $B$ and $C$.

    Source:
        T. Dombre et al., Chaotic streamlines in the ABC flows, J. Fluid Mech. 167:353, 1986.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u = verify.reference("beltrami_flow", jnp.zeros(1), jnp.zeros(1), jnp.zeros(1))
        assert jnp.allclose(u[:, 0], jnp.array([0.6, 1.0, 0.8]))
        ```
    """
    dtype = jnp.result_type(x, y, z)
    a, b, c = amplitudes
    decay = jnp.exp(-jnp.asarray(viscosity, dtype) * jnp.asarray(t, dtype))
    parts = (a * jnp.sin(z) + c * jnp.cos(y), b * jnp.sin(x) + a * jnp.cos(z), c * jnp.sin(y) + b * jnp.cos(x))
    shape = jnp.broadcast_shapes(x.shape, y.shape, z.shape)
    return jnp.stack([jnp.broadcast_to(part, shape) for part in parts]) * decay


def taylor_green_vortex(
    viscosity: RealScalarLike = 0.05,
    *,
    waves: int = 1,
    points: int = 32,
    t1: RealScalarLike = 1.0,
    dtype: DTypeLike | None = None,
) -> Problem:
    r"""Returns the vortices of Taylor and Green, $\omega = 2 k \cos k x \cos k y\, e^{-2 \nu k^2 t}$, which decay.

    The velocity is $u = (-\cos k x \sin k y, \sin k x \cos k y)\, e^{-2 \nu k^2 t}$, in a periodic box of length
    $2 \pi$, and the mean energy $\tfrac14 e^{-4 \nu k^2 t}$. Transport and pressure cancel for any viscosity.

    Args:
        viscosity: $\nu$.
        waves: $k$, an integer.
        points: The number of points along each axis.
        t1: The end time.
        dtype: The dtype of the state; the default floating type if None.

    Source:
        G. I. Taylor, A. E. Green, Proc. R. Soc. A 158:499, 1937.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("taylor_green_vortex")
        assert abs(problem.model.energy(problem.y0) - 0.25) < 1e-6
        ```
    """
    dtype = floating(dtype)
    x = 2 * jnp.pi / points * jnp.arange(points, dtype=dtype)
    wave = jnp.cos(waves * x)
    return Problem(
        model=Vorticity((points, points), viscosity=viscosity),
        y0=2 * waves * wave[:, None] * wave[None, :],
        t0=0.0,
        t1=t1,
        exact=_decayed(2.0 * waves**2),
        accuracy=1e-12,
        name="vortices of Taylor and Green",
        source="exact",
    )


def _decayed(square: float):
    def exact(problem, t):
        dtype = problem.y0.dtype
        rate = square * problem.model.viscosity.astype(dtype) + problem.model.drag.astype(dtype)
        return problem.y0 * jnp.exp(-rate * elapsed(problem, t, dtype))

    return exact


def kdv_soliton(
    speed: RealScalarLike = 4.0, *, points: int = 128, t1: RealScalarLike = 1.0, dtype: DTypeLike | None = None
) -> Problem:
    r"""Returns a soliton of the Korteweg-de Vries equation, $u = \frac{c}{2} \operatorname{sech}^2(\frac{\sqrt c}{2} (x - ct))$.

    It starts in the middle of a box of length 20, which is periodic: the solution includes the periodic images.

    Args:
        speed: The speed $c$; the height is half of it.
        points: The number of points; 128 resolve the default to about 1e-9.
        t1: The end time.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("kdv_soliton")
        assert abs(problem.solution(0.5).max() - 2.0) < 0.01
        ```
    """  # noqa: E501
    dtype = floating(dtype)
    model = KortewegDeVries(points=points, length=20.0)

    def exact(problem, t):
        x = _grid(20.0, points, problem.y0.dtype)
        c = jnp.asarray(speed, problem.y0.dtype)
        at = x - 10 - c * jnp.asarray(t, x.dtype)
        wrapped = at - 20 * jnp.round(at / 20)
        return sum(c / 2 / jnp.cosh(jnp.sqrt(c) / 2 * (wrapped + 20 * n)) ** 2 for n in (-1, 0, 1))

    return _problem(model, exact, jnp.zeros(points, dtype), t1, 1e-7, "soliton of Korteweg and de Vries")


def kdv_two_solitons(*, points: int = 256, t1: RealScalarLike = 1.5, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns two solitons of the Korteweg-de Vries equation, of speeds 9 and 2.25, the faster overtaking the slower.

    $$u = 2\, \partial_{xx} \log\big(1 + e^{\eta_1} + e^{\eta_2} + \tfrac{(k_1 - k_2)^2}{(k_1 + k_2)^2}
      e^{\eta_1 + \eta_2}\big), \qquad \eta_i = k_i (x - k_i^2 t - x_i).$$

    Afterwards the faster one is ahead by $\frac{2}{k_1} \log \frac{k_1 + k_2}{k_1 - k_2}$ of its position without the
    interaction. The box is 40 long, and the solution at its ends is below 1e-9.

    Args:
        points: The number of points.
        t1: The end time.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("kdv_two_solitons")
        assert abs(problem.solution(1.5).max() - 4.5) < 0.1
        ```
    """
    dtype = floating(dtype)
    length, rates, places = 40.0, (3.0, 1.5), (-7.0, -2.0)
    model = KortewegDeVries(points=points, length=length)
    meeting = ((rates[0] - rates[1]) / (rates[0] + rates[1])) ** 2

    def exact(problem, t):
        x = _grid(length, points, problem.y0.dtype) - length / 2
        time = jnp.asarray(t, x.dtype)

        def log_of(x):
            first, second = (k * (x - k**2 * time - place) for k, place in zip(rates, places))
            parts = jnp.stack([jnp.zeros_like(x), first, second, first + second + math.log(meeting)])
            return jax.nn.logsumexp(parts)

        return 2 * jax.vmap(jax.grad(jax.grad(log_of)))(x)

    return _problem(model, exact, jnp.zeros(points, dtype), t1, 1e-7, "two solitons of Korteweg and de Vries")


def schroedinger_soliton(
    height: RealScalarLike = 1.0,
    speed: RealScalarLike = 0.0,
    *,
    points: int = 256,
    t1: RealScalarLike = 2.0,
    dtype: DTypeLike | None = None,
) -> Problem:
    r"""Returns $\psi = \eta \operatorname{sech}(\eta (x - vt))\, e^{i (v x + (\eta^2 - v^2) t / 2)}$, a bright soliton.

    The box is 40 long, the soliton at its middle at first. If the phase $vx$ must fit into the box, $v$ is a multiple
    of $2\pi / 40$; at the ends the soliton is below 1e-8.

    Args:
        height: The height $\eta$.
        speed: The speed $v$.
        points: The number of points.
        t1: The end time.
        dtype: The dtype of the state, complex; the default if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("schroedinger_soliton", height=2.0)
        assert abs(abs(problem.y0).max() - 2.0) < 1e-6
        ```
    """  # noqa: E501
    dtype = jnp.zeros((), floating(None)).astype(complex).dtype if dtype is None else dtype
    model = NonlinearSchroedinger(shape=(points,), length=40.0)

    def exact(problem, t):
        real = problem.y0.real.dtype
        x = _grid(40.0, points, real) - 20
        eta, v, time = (jnp.asarray(q, real) for q in (height, speed, t))
        size = eta / jnp.cosh(eta * (x - v * time))
        phase = v * x + (eta**2 - v**2) / 2 * time
        return jax.lax.complex(size * jnp.cos(phase), size * jnp.sin(phase))

    return _problem(model, exact, jnp.zeros(points, dtype), t1, 1e-7, "soliton of the nonlinear Schroedinger equation")


def ginzburg_landau_wave(
    alpha: RealScalarLike = 0.5,
    beta: RealScalarLike = -0.8,
    *,
    points: int = 64,
    t1: RealScalarLike = 4.0,
    dtype: DTypeLike | None = None,
) -> Problem:
    r"""Returns a plane wave, $A = \sqrt{1 - q^2}\, e^{i (q x - \omega t)}$, of the Ginzburg-Landau equation.

    Its frequency is $\omega = \alpha q^2 + \beta (1 - q^2)$. The box is 40 long and holds two waves, $q = \pi / 10$.

    Args:
        alpha: The linear dispersion $\alpha$.
        beta: The nonlinear dispersion $\beta$.
        points: The number of points.
        t1: The end time.
        dtype: The dtype of the state, complex; the default if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("ginzburg_landau_wave")
        assert abs(abs(problem.solution(3.0)[0]) - 0.9493) < 1e-3
        ```
    """
    dtype = jnp.zeros((), floating(None)).astype(complex).dtype if dtype is None else dtype
    model = GinzburgLandau(shape=(points,), length=40.0, alpha=alpha, beta=beta)
    q = math.pi / 10

    def exact(problem, t):
        real = problem.y0.real.dtype
        x, time = _grid(40.0, points, real), jnp.asarray(t, real)
        a, b = problem.model.alpha.astype(real), problem.model.beta.astype(real)
        phase = q * x - (a * q**2 + b * (1 - q**2)) * time
        size = math.sqrt(1 - q**2)
        return jax.lax.complex(size * jnp.cos(phase), size * jnp.sin(phase))

    return _problem(model, exact, jnp.zeros(points, dtype), t1, 1e-13, "plane wave of Ginzburg and Landau")


def _grid(length: float, points: int, dtype: DTypeLike) -> Float[Array, " points"]:
    return length / points * jnp.arange(points, dtype=dtype)


def _problem(model, exact, blank, t1, accuracy, name) -> Problem:
    problem = Problem(model=model, y0=blank, t0=0.0, t1=t1, exact=exact, accuracy=accuracy, name=name, source="exact")
    return Problem(
        model=model, y0=exact(problem, 0.0), t0=0.0, t1=t1, exact=exact, accuracy=accuracy, name=name, source="exact"
    )
