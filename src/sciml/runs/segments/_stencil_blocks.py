"""StencilBlocks of fixed steps that a stencil kernel takes within a segment of a run.

A block never goes beyond the next time that the integration stops at. If it ends there up to rounding, it is made to
end there exactly; the remaining time before a time between steps is integrated in single steps. A block after which the
state is not finite is not taken, so that the integration finds the step that failed.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._choices import choices
from ..._jax._loops import while_loop
from ..._types import Y
from ...solvers.integrate._integrator import Dense, Integrator, Operands, State
from ...solvers.integrate._stencil_kernel import StencilSteps


class StencilBlocks(NamedTuple):
    """How an integration takes blocks of steps.

    Attributes:
        integrator: The integration.
        stencil_steps: How a kernel takes steps.
        size: The number of steps of a block.
    """

    integrator: Integrator
    stencil_steps: StencilSteps
    size: int

    def integrate_to(
        self, goal: Array, taken: Array, state: State, operands: Operands, steps: int
    ) -> tuple[Array, State]:
        """Returns the number of steps and the state after as many blocks as fit in before a time.

        Args:
            goal: The time, as elapsed time.
            taken: The number of steps so far in this segment.
            state: The state of the integration.
            operands: The inputs of the integration.
            steps: The most steps.
        """
        taken, state, _ = while_loop(
            lambda c: self.fits(c[1], goal, operands) & (c[0] + self.size <= steps) & c[2],
            lambda c: (c[0] + self.size, *self.take(c[1], goal, operands)),
            (taken, state, jnp.asarray(True)),
            like=(operands, goal),
        )
        return taken, state

    def fits(self, state: State, goal: Array, operands: Operands) -> Array:
        """Returns whether a block fits in before the goal."""
        few = state.accepted + state.rejected + self.size < operands.max_steps
        return few & self.integrator.pending(state, goal) & (self._reached(state) <= goal + _slack(operands))

    def take(self, state: State, goal: Array, operands: Operands) -> tuple[State, Array]:
        """Returns the state after a block, and whether it was taken."""
        checkpoint, reached = state.checkpoint, self._reached(state)
        field, direction = self.integrator.bound(operands), operands.direction
        time = self.integrator.time(checkpoint.elapsed, operands)
        y = self.stencil_steps.advance(field, operands.field, time, direction * checkpoint.h, checkpoint.y, self.size)
        good, there = self.integrator.collective.finite(y), reached >= goal - _slack(operands)
        elapsed = jnp.where(there, goal, reached)
        moved = self.size * checkpoint.h - checkpoint.compensation
        compensation = jnp.where(there, jnp.zeros_like(goal), (reached - checkpoint.elapsed) - moved)
        memory = self.integrator.stepper.init(field, self.integrator.time(elapsed, operands), y)
        dense = None if state.dense is None else _blank(self.integrator, elapsed, y)
        accepted = state.accepted + jnp.asarray(self.size, state.accepted.dtype)
        after = State(
            checkpoint._replace(elapsed=elapsed, compensation=compensation, y=y),
            memory,
            dense,
            accepted,
            state.rejected,
        )
        return jax.tree.map(lambda new, old: jnp.where(good, new, old), after, state), good

    def _reached(self, state: State) -> Array:
        return state.checkpoint.elapsed + (self.size * state.checkpoint.h - state.checkpoint.compensation)


def _blank(integrator: Integrator, elapsed: Array, y: Y) -> Dense:
    return Dense(elapsed, jnp.ones_like(elapsed), y, integrator.stepper.empty_dense(y))


def _slack(operands: Operands) -> Array:
    return 4 * jnp.finfo(operands.span.dtype).eps * operands.span


def size_of(elapsed: np.ndarray | None, span: float, dt: float, most: int) -> int:
    """Returns how many steps a block has: as many as divide the steps between saved times, if there are such.

    Args:
        elapsed: The saved times as elapsed times, or None.
        span: The elapsed time of the end.
        dt: The length of a step.
        most: The most steps of a segment.
    """
    gaps = np.diff(np.concatenate([[0.0], [span] if elapsed is None else elapsed.astype(np.float64)]))
    ratios = gaps[gaps > 0] / dt
    most = min(choices().runs.stencil_steps_at_most, most)
    if not len(ratios):
        return most
    steps = np.round(ratios).astype(int)
    least = max(1, int(np.min(ratios)))
    if elapsed is None:
        return min(most, least)
    common = math.gcd(*steps.tolist()) if np.all(np.abs(ratios - steps) < 0.01) else 1
    found = max((n for n in range(1, most + 1) if common % n == 0), default=1)
    return max(found, min(most, least // 4))
