r"""The Euler-Maruyama method with an implicit linear part.

Source:
    G. J. Lord, C. E. Powell, T. Shardlow, An Introduction to Computational Stochastic PDEs, Cambridge (2014), section
    10.5.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...._checks import concrete
from ...._types import Args, RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField
from ..split._additive_rk import Additive, ImplicitExplicit
from ._abstract import plus, scaled
from ._structured import (
    AbstractStructuredNoiseStepper,
    close_structured_noise,
    noise_of,
    rest_with_correction,
    state_of,
)

_EULER = Additive(
    nodes=(0.0, 1.0), explicit=((), (1.0,)), implicit=((), (0.0,)), diagonal=(0.0, 1.0), weights=None, error=None,
    order=1, error_order=1,
)  # fmt: skip


class SemiImplicitEuler(AbstractStructuredNoiseStepper):
    r"""The Euler-Maruyama method with an implicit linear part, for diffusion with noise: strong order 1/2 or 1.

    For a drift $A y + N(t, y)$, an `sciml.AbstractSplit` such as `sciml.models.AllenCahn`, or an
    `sciml.AbstractSemilinear`,

    $$y_1 = y + h A ((1 - \theta) y + \theta y_1) + h N(t, y) + g(t, y) \, \Delta W,$$

    one solve a step by whatever is fastest for the model, and steps as long as $N$ and $g$ allow. In the sense of Ito;
    the order is 1 with additive noise. Of a linear equation a mode that decays at the rate $\lambda$ has at rest
    $1 / (1 + (\theta - \tfrac12) \lambda h)$ of its variance: all of it with $\theta = \tfrac12$, which does not damp
    what is faster than a step, but flips its sign. `StochasticETD1` is exact there, for drifts that have modes.

    Attributes:
        theta: $\theta$, from 1/2 to 1.

    Raises:
        ValueError: If it is not.

    Source:
        G. J. Lord, C. E. Powell, T. Shardlow, An Introduction to Computational Stochastic PDEs, Cambridge (2014),
        section 10.5.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        grid = sciml.spatial.Grid(64)
        phases = sciml.models.AllenCahn(grid, sciml.spatial.Neumann(), width=0.1)
        noisy = sciml.Stochastic(phases, lambda t, u, args: 0.05, noise=sciml.spatial.WhiteNoise(grid))
        sol = sciml.solve(
            noisy, jnp.ones(64), t0=0.0, t1=1.0, dt=0.02, key=jax.random.key(0),
            solver=sciml.solvers.SemiImplicitEuler(),
        )
        assert abs(sol.ys[-1].mean() - 1.0) < 0.2
        ```
    """

    theta: float = eqx.field(static=True, default=1.0)
    evaluations: ClassVar[int] = 1

    def __check_init__(self):
        number = concrete(self.theta) and isinstance(self.theta, int | float) and not isinstance(self.theta, bool)
        if not number or not 0.5 <= self.theta <= 1:
            raise ValueError(f"`theta` of `SemiImplicitEuler` must be a number from 0.5 to 1, but is {self.theta!r}.")

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the parts of the drift, the diffusion and increments as closed functions, with their operands."""
        del h
        return close_structured_noise(model, t, y, args, self._without_noise.functions)

    @property
    def _without_noise(self) -> ImplicitExplicit:
        return ImplicitExplicit(_EULER, "SemiImplicitEuler")

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        h, state = jnp.asarray(h), state_of(field, y)
        parts = [rest_with_correction(field, "explicit", t, y, state)]
        if self.theta < 1:
            parts.append(scaled(1 - self.theta, field["stiff"](y)))
        if "inverse" not in field:  # a constant in the linear part, such as what flows in at walls, is taken whole
            parts.append(scaled(self.theta, field["stiff"](jax.tree.map(jnp.zeros_like, y))))
        right = plus(y, scaled(h, plus(*parts)), noise_of(field, t, h, state))
        return field["solve"](self.theta * h, right), None
