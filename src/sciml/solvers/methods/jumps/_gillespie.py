"""Gillespie's direct method: one reaction after another."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...._types import RealScalarLike
from .._stepper import Step
from ._abstract import AbstractReactionStepper, ReactionState, one_reaction, waiting_time


class Gillespie(AbstractReactionStepper):
    r"""Gillespie's direct method, which is exact: each step is one reaction.

    The time until the next reaction has an exponential law with the rate $\sum_j a_j$, and it is reaction $j$ with
    probability $a_j / \sum_k a_k$.

    Source:
        D. T. Gillespie, Journal of Physical Chemistry 81 (1977) 2340.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        decay = sciml.Reactions([[-1]], lambda x, args: args * x)
        sol = sciml.solve(
            decay, jnp.array([50.0]), t0=0.0, t1=100.0, args=jnp.array(1.0), key=jax.random.key(0),
            solver=sciml.solvers.Gillespie(),
        )
        assert sol.ys[-1, 0] == 0 and sol.stats.accepted == 51  # fifty decays, and then nothing
        ```
    """

    traits = AbstractReactionStepper.traits._replace(dense=True)

    def plan(self, field: Any, t: RealScalarLike, counts: ReactionState) -> tuple[Array, Array]:
        """Returns the time until the next reaction."""
        del t
        return waiting_time(field, counts), jnp.zeros_like(counts.leaps)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any, memory: Any) -> Step:
        """Waits for the next reaction, which happens if the step is long enough."""
        del memory
        return self.after(field, t, h, y, one_reaction(field, y), h >= y.left)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Any, y1: Any, dense: Any) -> Any:
        """Returns the state at the start: between reactions nothing changes."""
        del h, dense
        return jax.tree.map(lambda a, b: jnp.where(jnp.asarray(theta, a.dtype) >= 1, b, a), y0, y1)
