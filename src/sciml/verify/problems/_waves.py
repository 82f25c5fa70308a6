"""Exact solutions of periodic wave equations, on the semilinear models of the library."""

import math

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._types import RealScalarLike
from ...models import GinzburgLandau, KortewegDeVries, NonlinearSchroedinger
from ._problem import Problem, floating


def kdv_soliton(
    speed: RealScalarLike = 4.0, *, points: int = 128, t1: RealScalarLike = 1.0, dtype: DTypeLike | None = None
) -> Problem:
    r"""Returns a soliton of the Korteweg-de Vries equation, $u = \frac{c}{2} \operatorname{sech}^2(\frac{\sqrt c}{2} (x - ct))$.

    It starts in the middle of a box of length 20, which is periodic: the solution adds what comes in at the ends.

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

    Afterwards the faster one is ahead by $\frac{2}{k_1} \log \frac{k_1 + k_2}{k_1 - k_2}$ of where it would have been
    alone. The box is 40 long, and what reaches its ends is below 1e-9.

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

    The box is 40 long, the soliton at its middle at first. Where the phase $vx$ is to fit into the box, $v$ is a multiple
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
