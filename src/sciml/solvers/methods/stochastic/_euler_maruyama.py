r"""The Euler-Maruyama method, for growing drifts a tamed one, and the method of Euler and Heun.

Source:
    P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), chapter 10.
    M. Hutzenthaler, A. Jentzen, P. E. Kloeden, Strong convergence of an explicit numerical method for SDEs with
    nonglobally Lipschitz continuous coefficients, Annals of Applied Probability 22 (2012) 1611.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ...._types import RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField
from ._abstract import AbstractStochasticStepper, plus, scaled


class EulerMaruyama(AbstractStochasticStepper):
    r"""$y_1 = y + h f(t, y) + g(t, y) \Delta W$, for the Ito sense: strong order 1/2, 1 with additive noise."""

    evaluations: ClassVar[int] = 1

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
        return plus(y, scaled(h, field(t, y)), noise), None


class TamedEuler(AbstractStochasticStepper):
    r"""The Euler-Maruyama method with a drift that cannot run away, of strong order 1/2.

    $$y_1 = y + \frac{h f}{1 + h |f|} + g \, \Delta W$$

    If a drift grows faster than the state, such as $-y^3$, the moments of the Euler-Maruyama method are infinite
    however short its steps are, but the moments of this method are finite.

    Example:
        ```python
        import jax
        import sciml

        model = sciml.Stochastic(lambda t, y, args: y - y**3, lambda t, y, args: y, noise="scalar")
        sol = sciml.solve(
            model, 30.0, t0=0.0, t1=1.0, dt=0.01, key=jax.random.key(0), solver=sciml.solvers.TamedEuler()
        )
        assert abs(sol.ys[-1]) < 10
        ```
    """

    evaluations: ClassVar[int] = 1

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        change = scaled(h, field(t, y))
        noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
        squares = [jnp.sum(jnp.real(x * jnp.conj(x))) for x in jax.tree.leaves(change)]
        square = sum(squares[1:], squares[0])
        # the root has no derivative at zero
        size = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, jnp.ones_like(square))), 0 * square)
        return plus(y, scaled(1 / (1 + size), change), noise), None


class EulerHeun(AbstractStochasticStepper):
    r"""$y_1 = y + h f + \tfrac12 (g(y) + g(y + g \Delta W)) \Delta W$, for the Stratonovich sense."""

    interpretation: ClassVar[str] = "stratonovich"
    evaluations: ClassVar[int] = 1

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        w = field.increment(t, h).w
        noise = field.times(field.diffusion(t, y), w)
        there = field.times(field.diffusion(t, plus(y, noise)), w)
        return plus(y, scaled(h, field(t, y)), scaled(0.5, plus(noise, there))), None
