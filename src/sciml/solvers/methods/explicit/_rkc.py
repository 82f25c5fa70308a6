"""The stabilised methods of Chebyshev and Legendre polynomials."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ...._checks import check_count
from ...._types import Y
from .._structured_solver import AbstractStructuredSolver
from ._stabilised_rk import AbstractFamily, Stabilised, Stage, check_radius

_DAMPING = 2 / 13
_TERMS = 8


class ChebyshevFamily(AbstractFamily):
    r"""The coefficients of RKC2, from $T_j$, $T_j'$ and $T_j''$ at $w_0 = \cosh \alpha$, slightly above 1.

    With $S(x) = \sinh(x) / x = 1 + x^2 s(x)$ and $\cosh x = 1 + x^2 c(x)$, written without the cancellation that
    recurrences from 1 suffer in float32:

    $$T_j' = j^2 \frac{S(j\alpha)}{S(\alpha)}, \qquad
      T_j'' = \frac{j^2}{S(\alpha)^3} \big(j^2 (c_j - s_j) - (c_1 - s_1) + j^2 \alpha^2 (c_j s_1 - s_j c_1)\big).$$
    """

    def stages(self, stiffness: Array) -> Array:
        """Returns how many stages are stable."""
        return 1 + jnp.sqrt(1.54 * stiffness + 1).astype(jnp.int32)

    def reach(self, stages: int) -> float:
        """Returns the stability limit of a number of stages."""
        return 0.99 * ((stages - 1) ** 2 - 1) / 1.54

    def first(self, stages: Array) -> Array:
        """Returns the first coefficient and node."""
        alpha, scale = _angle(stages)
        return _weight(jnp.full_like(stages, 2), alpha) * scale

    def stage(self, number: Array, stages: Array) -> Stage:
        """Returns the coefficients of a stage."""
        alpha, scale = _angle(stages)
        two = jnp.full_like(number, 2)
        b, b1, b2 = (_weight(jnp.maximum(number - k, two), alpha) for k in range(3))
        cosh = 1 + _DAMPING / stages**2
        slope = 2 * b / b1 * scale
        before = b1 * _cosh((number - 1) * alpha)
        _, first, second = _chebyshev(number, alpha)
        return Stage(2 * b / b1 * cosh, -b / b2, slope, (before - 1) * slope, scale * second / first)


class LegendreFamily(AbstractFamily):
    """The coefficients of RKL2."""

    def stages(self, stiffness: Array) -> Array:
        """Returns how many stages are stable, an odd number of at least three."""
        needed = jnp.ceil((jnp.sqrt(9 + 8 * 1.02 * stiffness) - 1) / 2).astype(jnp.int32)
        return jnp.maximum(needed + 1 - needed % 2, 3)

    def reach(self, stages: int) -> float:
        """Returns the stability limit of a number of stages."""
        odd = stages - 1 + stages % 2
        return 0.99 * (odd**2 + odd - 2) / 2 / 1.02

    def first(self, stages: Array) -> Array:
        """Returns the first coefficient and node."""
        return 4 / (3 * (stages**2 + stages - 2))

    def stage(self, number: Array, stages: Array) -> Stage:
        """Returns the coefficients of a stage."""

        def weight(j):
            j = jnp.maximum(j, 2 * jnp.ones_like(j))
            return (j**2 + j - 2) / (2 * j * (j + 1))

        scale = 4 / (stages**2 + stages - 2)
        b, b1, b2 = weight(number), weight(number - 1), weight(number - 2)
        mu = (2 * number - 1) / number * b / b1
        slope = mu * scale
        nu = -(number - 1) / number * b / b2
        return Stage(mu, nu, slope, (b1 - 1) * slope, (number**2 + number - 2) / (stages**2 + stages - 2))


def _series(x: Array, start: int) -> Array:
    """Returns the sum over n of x^(2n) / (2n + start)!, for x below one."""
    # `cosh(x) - 1` and `sinh(x) - x` would cancel where x is small
    total = jnp.zeros_like(x)
    for n in reversed(range(_TERMS)):
        total = total * x**2 + 1 / math.factorial(2 * n + start)
    return total


def _cosh(x: Array) -> Array:
    return 1 + x**2 * _series(x, 2)


def _chebyshev(j: Array, alpha: Array) -> tuple[Array, Array, Array]:
    """Returns a Chebyshev polynomial and its derivatives at cosh(alpha)."""
    x = j * alpha
    c, s, c1, s1 = _series(x, 2), _series(x, 3), _series(alpha, 2), _series(alpha, 3)
    scale = 1 + alpha**2 * s1
    first = j**2 * (1 + x**2 * s) / scale
    second = j**2 / scale**3 * (j**2 * (c - s) - (c1 - s1) + x**2 * (c * s1 - s * c1))
    return 1 + x**2 * c, first, second


def _weight(j: Array, alpha: Array) -> Array:
    _, first, second = _chebyshev(j, alpha)
    return second / first**2


def _angle(stages: Array) -> tuple[Array, Array]:
    r"""Returns $\alpha$ and $w_1$."""
    excess = _DAMPING / stages**2
    alpha = jnp.log1p(excess + jnp.sqrt(excess * (2 + excess)))  # arcosh of what is 1 but for the excess
    _, first, second = _chebyshev(stages, alpha)
    return alpha, first / second


class RKC2(AbstractStructuredSolver):
    r"""The Runge-Kutta-Chebyshev method of order two, explicit and stable for diffusion.

    A step of $s$ evaluations is stable up to $h \rho \approx 0.65 s^2$, where $\rho$ is the spectral radius of the
    derivative $\partial f / \partial y$, whose eigenvalues should be near the negative real axis. A diffusion takes the
    square root of the evaluations that a Runge-Kutta method takes, without a linear system. It is not for stiff
    chemistry, nor for waves. `Stats.evaluations` is -1, since the number of stages differs from step to step.

    The number of stages follows from the step and the spectral radius at its start. This is, in this
    order: `spectral_radius`; the method `spectral_radius(t, y, args)` of the model; an estimate of thirty
    products with the derivative at each step, which is not free. A bound from above is good; for $\nu \nabla^2$ by
    central differences it is $4 \nu \sum_i 1 / \Delta x_i^2$.

    With error control the step is kept so short that `max_stages` stages suffice; a fixed step that needs more gives
    NaN. A gradient in reverse mode repeats every step as a loop of `max_stages` iterations, and keeps $2 \sqrt s$
    states meanwhile; under `jax.vmap` each of these iterations costs an evaluation.

    Attributes:
        spectral_radius: A number, a function `(t, y, args)`, or None.
        max_stages: The largest number of stages.

    Source:
        B. P. Sommeijer, L. F. Shampine, J. G. Verwer, RKC: an explicit solver for parabolic PDEs, J. Comput. Appl.
        Math. 88 (1998), doi:10.1016/S0377-0427(97)00219-7.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def heat(t, u, args):
            wide = jnp.concatenate([-u[:1], u, -u[-1:]])  # zero at both ends of cells of width 1/64
            return 64**2 * (wide[2:] - 2 * u + wide[:-2])

        x = (jnp.arange(64.0) + 0.5) / 64
        solver = sciml.solvers.RKC2(spectral_radius=4 * 64**2)
        sol = sciml.solve(heat, jnp.sin(jnp.pi * x), t0=0.0, t1=0.1, dt=0.005, solver=solver)
        assert abs(sol.ys[-1] - jnp.exp(-jnp.pi**2 * 0.1) * jnp.sin(jnp.pi * x)).max() < 1e-3
        ```
    """

    spectral_radius: float | Callable | None = eqx.field(
        default=None, static=True, converter=lambda r: float(r) if isinstance(r, int) else r
    )
    max_stages: int = eqx.field(default=200, static=True)

    def __check_init__(self):
        _check(self.spectral_radius, self.max_stages, "RKC2")

    def stepper(self, y0: Y) -> Stabilised:
        """Returns the one-step method."""
        del y0
        return Stabilised(ChebyshevFamily(), self.spectral_radius, self.max_stages)


class RKL2(AbstractStructuredSolver):
    r"""The Runge-Kutta-Legendre method of order two, explicit and stable for diffusion.

    A step of $s$ evaluations is stable up to $h \rho \approx s^2 / 2$, a little less than for `RKC2`; modes of all
    lengths are damped, and a monotone profile stays monotone. Everything in the documentation of `RKC2` applies.

    Attributes:
        spectral_radius: A number, a function `(t, y, args)`, or None.
        max_stages: The largest number of stages.

    Source:
        C. D. Meyer, D. S. Balsara, T. D. Aslam, A stabilized Runge-Kutta-Legendre method for explicit super-time-
        stepping of parabolic and mixed equations, J. Comput. Phys. 257 (2014), doi:10.1016/j.jcp.2013.08.021.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        decay = lambda t, y, args: -jnp.array([1.0, 30.0, 1000.0]) * y
        sol = sciml.solve(decay, jnp.ones(3), t0=0.0, t1=1.0, dt=0.05, solver=sciml.solvers.RKL2(spectral_radius=1e3))
        assert abs(float(sol.ys[-1, 0]) - 0.3679) < 1e-3 and abs(sol.ys[-1, 2]) < 1e-3
        ```
    """

    spectral_radius: float | Callable | None = eqx.field(
        default=None, static=True, converter=lambda r: float(r) if isinstance(r, int) else r
    )
    max_stages: int = eqx.field(default=200, static=True)

    def __check_init__(self):
        _check(self.spectral_radius, self.max_stages, "RKL2")

    def stepper(self, y0: Y) -> Stabilised:
        """Returns the one-step method."""
        del y0
        return Stabilised(LegendreFamily(), self.spectral_radius, self.max_stages)


def _check(radius, most: int, name: str) -> None:
    check_radius(radius, name)
    if check_count(most, "max_stages", name) < 3:
        raise ValueError(f"`{name}(max_stages=...)` must be at least 3, but is {most}.")
