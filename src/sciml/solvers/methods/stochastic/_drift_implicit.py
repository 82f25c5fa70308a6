r"""The Euler-Maruyama method with an implicit drift.

Source:
    P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), section 12.2.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._types import Args, RealScalarLike, Y
from ...linear._structured_field import BoundStructuredField
from ...noise._closed_noise import BoundNoisyField, NoisyField
from .._collocation import AbstractCollocation, Collocation, collocation
from .._stepper import Step
from ._abstract import AbstractStochasticStepper, plus


class _BackwardEuler(AbstractCollocation):
    """The implicit method of Euler."""

    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = False
    method: ClassVar[Collocation] = collocation((1.0,), ((1.0,),), (1.0,))


class DriftImplicitEuler(AbstractStochasticStepper):
    r"""The Euler-Maruyama method with an implicit drift, for stiff drifts: strong order 1/2, 1 with additive noise.

    $$y_1 = y + h f(t + h, y_1) + g(t, y) \, \Delta W$$

    The sense is that of Ito. Steps are as long as accuracy asks for, however fast the drift pulls back; what is faster
    than a step has less variance than it should, $1 / (1 + \lambda h / 2)$ of it. $y_1$ is solved for by Newton's
    iteration with the structure of the drift's Jacobian, as in `Radau5`. For a drift with a linear stiff part, as
    diffusion on a grid, `SemiImplicitEuler` and `StochasticETD1` cost less.

    Source:
        P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), (12.2.2).

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        stiff = sciml.Stochastic(lambda t, y, args: 1e4 * (jnp.cos(t) - y), lambda t, y, args: 1.0, noise="additive")
        sol = sciml.solve(
            stiff, 1.0, t0=0.0, t1=1.0, dt=0.02, key=jax.random.key(0), solver=sciml.solvers.DriftImplicitEuler()
        )
        assert abs(sol.ys[-1] - jnp.cos(1.0)) < 0.05
        ```
    """

    evaluations: ClassVar[int] = -1
    elementwise: ClassVar[bool] = False  # as of other methods that iterate
    batched_vjp: ClassVar[bool] = False

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns drift, diffusion and increments as closed functions, with their operands."""
        field, operands = super().close(model, t, y, args, h)
        structures = _BackwardEuler().structures(lambda t, y: model(t, y, args), t, y)
        return NoisyField(field.functions, field.noise, field.is_elementwise, structures), operands

    def use_full_budget(self, state_bytes: int) -> bool:
        """Whether a step takes far longer than to set up its record."""
        return state_bytes >= 64

    def step(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`: a step of the implicit method from where the noise alone leads."""
        noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
        drift = BoundStructuredField(field, field.structures)
        step = _BackwardEuler().step(drift, jnp.asarray(t), jnp.asarray(h), plus(y, noise), None)
        return Step(step.y1, memory=memory, solvable=step.solvable)

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        return self.step(field, t, h, y, None).y1, None
