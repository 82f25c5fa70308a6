"""`ControlPlan`: an optimal trajectory with its controls."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._types import Y
from ..solvers.outputs._dense import at_times
from ._transcription import Variables, basis_of, to_powers


class Warm(NamedTuple):
    """The unknowns of an iteration with their sizes and the factor of the cost, from which another can start."""

    unknowns: Variables
    sizes: tuple[Array, Array, Array]
    scale: Array


class ControlPlan(eqx.Module):
    """An optimal trajectory with its controls, at the initial time and at all collocation points.

    Attributes:
        ts: The times; `ts[-1]` is the final time.
        ys: The states there, a PyTree like the state.
        us: The controls there, a PyTree like the control. If controls are held, each row is the control of the interval
            that ends there.
        cost: The cost.
        costates: The costates (adjoint variables) there, a PyTree like the state: derivatives of the remaining cost
            with respect to the state.
        multipliers: The multipliers of the path constraints at `ts[1:]`, a PyTree like the result of `path`; positive
            where the constraint is active.
        error: The residual of the optimality conditions.
        n_steps: The number of iterations.
        status: A code of `Status`. `infeasible` if the constraints cannot be satisfied near the guess.
        warm: The unknowns of the iteration, for the argument `guess` of another optimisation.
    """

    ts: Float[Array, " points"]
    ys: Y
    us: PyTree
    cost: Float[Array, ""]
    costates: Y
    multipliers: PyTree
    error: Float[Array, ""]
    n_steps: Int[Array, ""]
    status: Int[Array, ""]
    warm: Warm

    def evaluate(self, t: Any) -> tuple[Y, PyTree]:
        """Returns the state and the control at one time or many; NaN outside of the time of the plan."""
        return at_times(lambda plan, t: plan._at(t), self, t)

    def shifted(self) -> "ControlPlan":
        """Returns the plan one segment later, as a guess for the next optimisation of a receding horizon."""
        later = self.warm._replace(unknowns=self.warm.unknowns.later())
        return eqx.tree_at(lambda plan: plan.warm, self, later)

    def _at(self, t: Array) -> tuple[Y, PyTree]:
        degree = self.warm.unknowns.inner.shape[1]
        knots = self.ts[::degree]
        k = jnp.clip(jnp.sum(knots < t) - 1, 0, knots.size - 2)
        inside = (t >= knots[0]) & (t <= knots[-1])
        place = jnp.where(inside, (t - knots[k]) / (knots[k + 1] - knots[k]), jnp.nan)
        places = basis_of(degree, 0, self.ts.dtype).places

        def along(x: Array, nodes: np.ndarray, first: Array) -> Array:
            rows = jax.lax.dynamic_slice_in_dim(x, first, nodes.size)
            powers = jnp.vander(place[None], nodes.size, increasing=True)[0]
            return jnp.tensordot((powers @ to_powers(nodes).astype(place.dtype)).astype(x.dtype), rows, 1)

        ys = jax.tree.map(lambda x: along(x, np.append(0.0, places), degree * k), self.ys)
        return ys, jax.tree.map(lambda x: along(x, places, degree * k + 1), self.us)
