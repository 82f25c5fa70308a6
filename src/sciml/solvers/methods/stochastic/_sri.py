r"""A stochastic Runge-Kutta method of strong order 3/2 for diagonal and scalar noise in the Ito sense.

With $I_1 = \Delta W$, $I_{11} = \tfrac12 (I_1^2 - h)$, $I_{111} = \tfrac16 (I_1^3 - 3 h I_1)$ and
$I_{10} = \int (W_s - W_t) \, ds = h (\tfrac12 I_1 + H)$,

$$y_1 = y + h \sum_i \alpha_i f(t + c^0_i h, H^0_i) + \sum_i \Big(\beta^1_i I_1 + \beta^2_i \frac{I_{11}}{\sqrt h}
+ \beta^3_i \frac{I_{10}}{h} + \beta^4_i \frac{I_{111}}{h}\Big) g(t + c^1_i h, H^1_i)$$

Source:
    A. Roessler, Runge-Kutta methods for the strong approximation of solutions of stochastic differential equations,
    SIAM Journal on Numerical Analysis 48 (2010) 922, table 6.2.
"""

from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...._types import RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField, NoisyField
from ._abstract import AbstractStochasticStepper, combined, plus, scaled

_ALPHA = (1 / 3, 2 / 3)
_BETA = (-1.0, 4 / 3, 2 / 3, 0.0), (-1.0, 4 / 3, -1 / 3, 0.0), (2.0, -4 / 3, -2 / 3, 0.0), (-2.0, 5 / 3, -2 / 3, 1.0)
_DRIFT_ERROR = 1 / 6


class SRIW1(AbstractStochasticStepper):
    r"""The method SRIW1 of Roessler: strong order 3/2, with an estimate of its error.

    For noise that is scalar, or diagonal with elements that each depend only on their own element of the state. The
    error is estimated by what takes the strong order from 1 to 3/2.

    Its weak order is 2 where the third derivative of the diffusion is zero, as in growth, and else 3/2: the mean of the
    square after a step is off by $-\tfrac{1}{12} g^4 g''' h^{5/2}$. If only means matter, `PlatenWeak2` has weak order
    2.

    Source:
        A. Roessler, SIAM Journal on Numerical Analysis 48 (2010) 922. The estimate: C. Rackauckas, Q. Nie, Adaptive
        methods for stochastic differential equations via natural embeddings and rejection sampling with memory,
        Discrete and Continuous Dynamical Systems B 22 (2017) 2731.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        path = sciml.BrownianPath(jax.random.key(1), 0.0, 1.0)
        growth = sciml.Stochastic(lambda t, y, args: 0.1 * y, lambda t, y, args: 0.5 * y)
        solver = sciml.solvers.SRIW1()
        sol = sciml.solve(growth, 1.0, t0=0.0, t1=1.0, dt=2.0**-6, key=path, solver=solver)
        assert abs(sol.ys[-1] / jnp.exp(0.1 - 0.5**2 / 2 + 0.5 * path.increment(0.0, 1.0)) - 1) < 1e-3
        ```
    """

    with_area: ClassVar[bool] = True
    evaluations: ClassVar[int] = 2

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return True

    def check(self, field: NoisyField) -> None:
        """Checks that the noise is diagonal or scalar."""
        if field.noise.kind == "general" or not field.is_elementwise():
            raise ValueError(
                "`solver=SRIW1()` supports scalar noise, and diagonal noise whose elements each depend only on their "
                "own element of the state. Use `diffrax.SRA1()` for additive noise, or `diffrax.SPaRK()`."
            )

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, Y]:
        """Returns the state after a step and the estimate of its error."""
        w, area = field.increment(t, h)
        root = jnp.sqrt(jnp.where(h > 0, h, jnp.ones_like(h)))
        integral = jax.tree.map(lambda w, area: w / 2 + area, w, area)  # I_10 / h
        f0, g0 = field(t, y), field.diffusion(t, y)
        f1 = field(t + 0.75 * h, plus(y, scaled(0.75 * h, f0), scaled(1.5, field.times(g0, integral))))
        g1 = field.diffusion(t + 0.25 * h, plus(y, scaled(0.25 * h, f0), scaled(0.5 * root, g0)))
        g2 = field.diffusion(t + h, plus(y, scaled(h, f0), scaled(-root, g0)))
        third = combined((-5.0, 3.0, 0.5), [g0, g1, g2])
        g3 = field.diffusion(t + 0.25 * h, plus(y, scaled(0.25 * h, f0), *(scaled(root, x) for x in third)))
        noise, error = [], []
        for stage, g in enumerate((g0, g1, g2, g3)):
            higher = jax.tree.map(partial(_higher, h, stage), w, integral)
            error.append(field.times(g, higher))
            noise.append(plus(field.times(g, jax.tree.map(partial(_lower, h, root, stage), w)), error[-1]))
        drift = combined(_ALPHA, [scaled(h, f0), scaled(h, f1)])
        return plus(y, *drift, *noise), plus(*error, scaled(_DRIFT_ERROR * h, plus(f1, scaled(-1.0, f0))))


def _lower(h: Array, root: Array, stage: int, w: Array) -> Array:
    """Returns what a stage of the diffusion is multiplied with for strong order 1."""
    h, root = jnp.asarray(h, w.dtype), jnp.asarray(root, w.dtype)
    return _BETA[0][stage] * w + _BETA[1][stage] * (w**2 - h) / (2 * root)


def _higher(h: Array, stage: int, w: Array, integral: Array) -> Array:
    """Returns what is added to that for strong order 3/2, and estimates the error."""
    h = jnp.asarray(h, w.dtype)
    cubic = (w**3 - 3 * h * w) / (6 * jnp.where(h > 0, h, jnp.ones_like(h)))
    return _BETA[2][stage] * integral + _BETA[3][stage] * cubic
