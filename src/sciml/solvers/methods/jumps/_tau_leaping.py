"""Tau leaping: many reactions in a step, whose propensities hardly change in it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...._types import RealScalarLike
from ...noise._poisson import poisson
from ...noise._random_bits import uniforms
from .._stepper import Step
from ._abstract import AbstractReactionStepper, ReactionState, one_reaction, waiting_time, wide

_FEW_REACTIONS = 10.0  # reactions for which a leap is not worth while
_HIGHEST = 3.0  # by how much a propensity may change, relatively, for a small change of a count of at least one


class TauLeaping(AbstractReactionStepper):
    r"""Tau leaping with steps that are chosen such that propensities change by a small part of themselves.

    Over a step of length $\tau$ reaction $j$ happens a number of times that has a Poisson law with mean $a_j \tau$.
    With $\mu_i = \sum_j \nu_{ji} a_j$ and $\sigma_i^2 = \sum_j \nu_{ji}^2 a_j$,

    $$\tau = \min_i \min\Big(\frac{\max(\epsilon x_i / g, 1)}{|\mu_i|},
    \frac{\max(\epsilon x_i / g, 1)^2}{\sigma_i^2}\Big)$$

    with $g = 3$, enough for reactions of second order. If that is less than the time for ten reactions, they are
    simulated one by one, exactly. A step that leads to a negative count is tried again, half as long.

    Attributes:
        epsilon: $\epsilon$, how much propensities may change.

    Source:
        Y. Cao, D. T. Gillespie, L. R. Petzold, Efficient step size selection for the tau-leaping simulation method,
        Journal of Chemical Physics 124 (2006) 044109.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        decay = sciml.Reactions([[-1]], lambda x, args: x)
        sol = sciml.solve(
            decay, jnp.array([1e5]), t0=0.0, t1=1.0, key=jax.random.key(0), solver=sciml.solvers.TauLeaping()
        )
        assert abs(sol.ys[-1, 0] - 1e5 * jnp.exp(-1.0)) < 2000 and sol.stats.accepted < 1000
        ```
    """

    epsilon: float = eqx.field(static=True, default=0.03)

    def __check_init__(self):
        if isinstance(self.epsilon, bool) or not isinstance(self.epsilon, float | int) or not 0 < self.epsilon < 1:
            raise ValueError(f"`epsilon` of `TauLeaping` must be a number between 0 and 1, but is {self.epsilon!r}.")

    def plan(self, field: Any, t: RealScalarLike, counts: ReactionState) -> tuple[Array, Array]:
        """Returns the length of a leap, or the time until the next reaction."""
        del t
        rates, changes = field["rates"](counts.x), field["changes"](counts.x)
        mean = jnp.abs(jnp.sum(changes * rates[:, None], axis=0))
        variance = jnp.sum(changes**2 * rates[:, None], axis=0)
        allowed = jnp.maximum(self.epsilon * counts.x / _HIGHEST, 1.0)

        def least(bound: Array, of: Array) -> Array:
            moves = of > 0
            return jnp.min(jnp.where(moves, bound / jnp.where(moves, of, jnp.ones_like(of)), jnp.inf))

        leap = jnp.minimum(least(allowed, mean), least(allowed**2, variance))
        worth = leap * jnp.sum(rates) > _FEW_REACTIONS
        return jnp.where(worth, leap, waiting_time(field, counts)), worth.astype(counts.leaps.dtype)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any, memory: Any) -> Step:
        """Takes a leap, of the planned length or shorter, or waits for the next reaction."""
        del memory
        leaps = y.leaps > 0.5
        # numbers that belong to the draw and to the length, which is another where a leap is tried again
        length = jnp.asarray(h, jnp.float32)
        length = jax.lax.bitcast_convert_type(length, jnp.uint32)
        words = field["bits"](y.number.astype(jnp.uint32) ^ (y.rounds.astype(jnp.uint32) << 24), length)
        means = jnp.where(leaps, jnp.maximum(field["rates"](y.x) * jnp.asarray(h, y.x.dtype), 0), 0)
        means = means.astype(wide(y.x))
        uniform = uniforms(jnp.stack(words), jnp.zeros((), jnp.uint32), means.shape[0], means.dtype)
        times = poisson(means, uniform).astype(y.x.dtype)
        leapt = y.x + jnp.sum(field["changes"](y.x) * times[:, None], axis=0)
        x = jnp.where(leaps, leapt, one_reaction(field, y))
        step = self.after(field, t, h, y, x, leaps | (h >= y.left))
        return step._replace(admissible=jnp.all(x >= 0) | ~leaps)
