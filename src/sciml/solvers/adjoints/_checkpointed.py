"""`Checkpointed`: reverse mode by running the accepted steps again."""

from typing import ClassVar

import diffrax
import equinox as eqx
from jaxtyping import PyTree

from ..._choices import choices
from ..._jax._checkpoint_levels import Budget, check_policy
from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result
from . import _discrete_rule
from ._abstract import AbstractAdjoint
from ._no_length import with_rates_by_times


class Checkpointed(AbstractAdjoint):
    """Reverse mode with checkpointing: runs the accepted steps again from last to first; the default adjoint.

    The gradient is exact for the computed solution, with constant step sizes. Under `jax.vmap` the forward and the
    backward loop run over lanes. Forward mode without reverse mode (`jax.jvp`, `jax.jacfwd`) requires `Direct` or
    `Forward`; forward mode of a gradient, as in `jax.hessian`, works.

    For a known number of fixed steps, states are stored in levels as by `sciml.checkpointed_scan`. This holds for the
    end state, and for known saved times with a method that interpolates. All states are stored if they fit in `memory`;
    otherwise $c_1$ of them evenly spread, $c_2$ between two of these when the gradient reaches them, and so on, at the
    cost of one more solve for each level after the first. Any other loop stores a fixed number of steps, its last ones.
    If more steps are needed, the backward pass runs the loop again and stores evenly spread states, and runs each
    interval between two of them once more. This costs two more solves, and more if there are hundreds of times more
    steps than records. The gradient then belongs to the second run, in which rounding may have chosen other steps.

    At most one of the three arguments may be given. `sciml.inspect.adjoint_memory` reports the memory of each.

    Attributes:
        memory: The approximate size of the record in bytes, for all members of a `vmap`; by default 256 MiB. It selects
            the fewest levels that fit, or if none fit, the levels with the fewest states. With error control at most 16
            MiB are used, because the record is allocated before the number of steps is known. Implicit methods, whose
            steps take longer than that, use all of it for up to 256 steps of states of 64 bytes or more, and within 16
            MiB for up to 512 steps.
        levels: The number of levels, for a known number of fixed steps; 1 stores all states.
        segments: The number of segments of two levels; with error control or traced times the number of stored steps,
            rounded up to a power of two and to at least 16.

    Raises:
        ValueError: If more than one is given or one is not positive; in the solve, if `levels` are given for a loop
            whose number of steps is not known.
        TypeError: If one is not an integer.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            sol = sciml.solve(lambda t, y, args: -rate * y, jnp.ones(()), t0=0.0, t1=1.0, dt=0.01)
            return sol.ys[-1]

        gradient = jax.grad(end)(jnp.array(2.0))
        assert abs(float(gradient) + 0.1353353) < 1e-4
        ```
    """

    runs_in_kernel: ClassVar[bool] = True
    runs_on_split_state: ClassVar[bool] = True
    repeats_steps: ClassVar[bool] = True
    keeps_steps: ClassVar[bool] = True
    memory: int | None = eqx.field(static=True, default=None)
    levels: int | None = eqx.field(static=True, default=None)
    segments: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_policy(self.memory, self.levels, self.segments, "Checkpointed")

    def for_diffrax(self) -> diffrax.AbstractAdjoint:
        """Returns diffrax's recursive checkpointing, which chooses its checkpoints itself."""
        if self.levels is not None:
            raise ValueError(
                f"`Checkpointed(levels={self.levels})` requires one of sciml's own loops with a constant number of "
                "steps, but diffrax runs this solve because of its `solver`, `stepsize_controller` or `saveat`, and "
                "chooses its own checkpoints. Leave `levels` out."
            )
        return diffrax.RecursiveCheckpointAdjoint()

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop with the custom rule of reverse mode."""
        budget = Budget(self.memory or choices().checkpoints.memory, self.levels, self.segments)
        result = _discrete_rule.run(loop, y0, operands, differentiate_times, budget)
        return result if operands.saves is not None else with_rates_by_times(loop, operands, result)
