r"""A method of weak order 2 for any noise in the Ito sense: what it gets right are means, not paths.

Source:
    P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), section 15.1,
    equation (1.3).
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...._types import RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField, NoisyField
from ._abstract import AbstractStochasticStepper, plus, scaled


class PlatenWeak2(AbstractStochasticStepper):
    r"""Platen's explicit method of weak order 2, for means of functions of the solution.

    For noise that is additive, scalar, or diagonal with elements that each depend only on their own element of the
    state. With $\bar y = y + h f + g \Delta W$ and $R_\pm = y + h f \pm \sqrt h \, g$,

    $$y_1 = y + \tfrac12 h (f(\bar y) + f) + \tfrac14 (g(R_+) + g(R_-) + 2 g) \Delta W
    + \tfrac14 (g(R_+) - g(R_-)) \frac{\Delta W^2 - h}{\sqrt h}$$

    Source:
        P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), (15.1.3).

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        growth = sciml.Stochastic(lambda t, y, args: y, lambda t, y, args: 0.1 * y)
        solve = lambda key: sciml.solve(
            growth, 1.0, t0=0.0, t1=1.0, dt=0.1, key=key, solver=sciml.solvers.PlatenWeak2()
        )
        end = jax.vmap(lambda key: solve(key).ys[-1])(jax.random.split(jax.random.key(0), 4000))
        assert abs(end.mean() - jnp.exp(1.0)) < 0.02
        ```
    """

    evaluations: ClassVar[int] = 2

    def check(self, field: NoisyField) -> None:
        """Checks that the noise is such that the method is of weak order 2."""
        if not field.noise.additive and not field.is_elementwise():
            raise ValueError(
                "`solver=PlatenWeak2()` supports additive and scalar noise, and diagonal noise whose elements each "
                "depend only on their own element of the state. Use `diffrax.SPaRK()` or `diffrax.Euler()` instead."
            )

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        w = field.increment(t, h).w
        f, g = field(t, y), field.diffusion(t, y)
        root = jnp.sqrt(jnp.where(h > 0, h, jnp.ones_like(h)))
        noise, there = field.times(g, w), plus(y, scaled(h, f))
        drift = scaled(0.5 * h, plus(f, field(t + h, plus(there, noise))))
        if field.noise.additive:
            return plus(y, drift, field.times(_mean(g, field.diffusion(t + h, y)), w)), None
        up, down = (field.diffusion(t, plus(there, scaled(sign * root, g))) for sign in (1, -1))
        squares = jax.tree.map(lambda w: (w**2 - jnp.asarray(h, w.dtype)) / jnp.asarray(root, w.dtype), w)
        mean = field.times(_mean(_mean(up, down), g), w)
        change = field.times(jax.tree.map(lambda a, b: 0.25 * (a - b), up, down), squares)
        return plus(y, drift, mean, change), None


def _mean(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: 0.5 * (a + b), a, b)
