"""`StepTimes`: runs a loop to see where its steps begin."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._checkpoint_levels import Budget
from ..._jax._vma import promote
from ...kernels._lanes import Lanes
from ..adjoints._abstract import AbstractAdjoint
from ..adjoints._discrete_rule import enter, members_of_loop
from ..integrate._abstract import AbstractLoop, FixedSteps
from ..integrate._batching import Batch
from ..integrate._integrator import Operands
from ..integrate._result import Result


class StepTimes(AbstractAdjoint):
    """Runs a loop, of which nothing is differentiated, and keeps when each of its accepted steps begins.

    Attributes:
        most: How many steps may be kept, those included that were rejected.
    """

    most: int = eqx.field(static=True)
    repeats_steps = True

    def for_diffrax(self) -> Any:
        """Refuses.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "Dense output, and what is saved at every step beside it, are for solves that run in sciml's own loops, "
            "and diffrax runs this one: take a method such as `diffrax.Tsit5()` or `sciml.solvers.Rodas5P()`."
        )

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop to the end."""
        del differentiate_times
        loop, fixed = loop.lockstep, loop.fixed
        y0, operands = jax.lax.stop_gradient(promote((y0, operands)))

        def run(batch: Batch, flags: Any, tree: PyTree) -> tuple[Result, Array]:
            engine = Lanes(batch.lanes, reverse=False)
            keeps = Budget(0) if fixed is not None else Budget(0, segments=self.most)
            here, y0, operands, _ = enter(loop, engine, flags, tree, 1, keeps)
            if fixed is not None:
                result = here.forward(y0, operands, None)
                return result, result.elapsed[None]
            result, kept, _ = here.forward_recorded(y0, operands, None)
            steps = kept.step_records
            (accepted,), (elapsed,) = map(jax.tree.leaves, (steps.accepted, steps.elapsed))  # lane values of one array
            return result, jnp.sort(jnp.where(accepted, elapsed, jnp.inf), axis=0)

        result, starts = members_of_loop(loop, y0)(run)((y0, operands))
        if fixed is not None:
            starts = _equal(fixed, operands, result)
        end = result.elapsed
        return result._replace(step_times=jnp.concatenate([jnp.where(starts < end, starts, end), end[None]]))


def _equal(fixed: FixedSteps, operands: Operands, result: Result) -> Array:
    """Returns where steps of one length begin."""
    assert operands.dt is not None  # fixed steps have their size
    return jnp.arange(fixed.number + fixed.tail, dtype=result.elapsed.dtype) * operands.dt
