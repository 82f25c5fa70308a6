"""Any loop of a reversible method: forwards with a record of the accepted steps' lengths; back, see `_backward`.

The controller's choices cannot be reconstructed in the backward pass, so three numbers are stored for each accepted
step, but no state: its start, the rounding error of the start, and its length.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._loops import scan_to_end, while_loop
from ....kernels._lanes import Lanes, Unbatched, is_value
from ...control._pid import Tolerances
from ...integrate._abstract import FixedSteps
from ...integrate._integrator import Dense, Integrator, Operands, State
from ...integrate._lane_integrator import LaneIntegrator
from ...integrate._result import Cotangents, Result, Saves
from ._backward import BackwardPass, BackwardStart, Instant
from ._fixed_steps import AbstractReversibleLoop
from ._stepper import Pair, ReversibleStepper, SymmetricStepper


class ReversibleAdaptiveLoop(AbstractReversibleLoop):
    """An integration with a reversible method over lanes.

    Attributes:
        integrator: How one member is advanced; its method is a `ReversibleStepper` or a `SymmetricStepper`.
        lanes: The engine.
        max_steps: The limit on attempted steps of a member, and so on recorded ones.
        slopes: Whether saved times are differentiated.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched
    max_steps: int = eqx.field(static=True)
    slopes: bool = eqx.field(static=True)
    fixed: ClassVar[FixedSteps | None] = None

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Integrates every member to the end; `y0` and `operands` are lane values."""
        return self._forward(y0, operands, saves, 1)[0]

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, BackwardStart, None]:
        """Integrates every member to the end and keeps what `backward` needs."""
        return *self._forward(y0, operands, saves, self.max_steps), None

    def backward(
        self,
        cotangent: Cotangents,
        residuals: BackwardStart,
        common: None,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, PyTree]:
        """Carries the cotangents back; see `AbstractLoop.backward`."""
        del common
        back = BackwardPass(self.integrator, self.lanes, self.slopes)
        return back.run(cotangent.ys, residuals, operands, saves, differentiable, self._look_up_in(residuals))

    def errors(self, y0: PyTree, operands: Operands) -> tuple[Result, PyTree[Array]]:
        """Returns the result, and how far the backward pass misses the initial state, in each leaf relatively."""
        result, kept, _ = self.forward_recorded(y0, operands, None)
        return result, BackwardPass(self.integrator, self.lanes, False).errors(kept, operands, self._look_up_in(kept))

    def _look_up_in(self, kept: BackwardStart):
        lanes, record = self.lanes, kept.record
        assert record is not None

        def look_up(number, operands):
            del operands
            (index,) = lanes.leave((number,))
            # each member has taken another number of steps, so each reads a row of its own
            if lanes.count is None:
                row = jax.lax.dynamic_index_in_dim(record, index, 0, False)
            else:
                row = record[index, :, jnp.arange(lanes.count)].T
            return lanes.enter(Instant(*row), lanes.count is not None)

        return look_up

    def _forward(self, y0, operands, saves, rows):
        """Returns the result, and the start of the backward pass, with a record of a given number of rows."""
        lanes, stepping = self.lanes, LaneIntegrator(self.integrator, self.lanes)
        operands = operands._replace(tolerances=_for_pairs(operands.tolerances))

        def until(carry, target):
            def iterate(carry):
                iterations, state, record = carry
                new, step_record = stepping.attempt(state, operands, target)
                return iterations + 1, new, self._write(record, state, step_record)

            def pending(carry):
                return lanes.any(lanes.call(self.integrator.pending, carry[1], target))

            return while_loop(pending, iterate, carry, like=(operands, target))

        state = lanes.carry(lanes.call(self._start, y0, operands))
        (span,) = lanes.leave((operands.span,))
        # of length one where there is no step: interpolation divides by it
        blank = jnp.stack([jnp.zeros_like(span), jnp.zeros_like(span), jnp.ones_like(span)])
        record = jnp.broadcast_to(blank, (rows, *blank.shape))
        carry = (jnp.zeros((), jnp.int32), state, record)

        def advance(carry, time, beyond):
            carry, last = carry
            target = stepping.stop(time, saves, operands, beyond)
            carry = until(carry, target)
            last = lanes.carry(lanes.call(_last_reached, carry[1], target, last, lanes.enter(~beyond, False)))
            return carry, last

        def save(carry, time):
            (_, state, _), _ = carry
            inside = lanes.leave(lanes.call(lambda n: jnp.maximum(n - 1, 0), state.accepted))
            return stepping.saved(state, operands, lanes.enter(time, saves.batched)).y, inside

        if saves is None:
            iterations, state, record = until(carry, operands.span)
            ys, saved_in, last = stepping.end(state, operands).y, None, (state.checkpoint.y, state.accepted)
        else:
            carry = (carry, (state.checkpoint.y, state.accepted))
            carry, (ys, saved_in) = scan_to_end(advance, save, carry, saves.times, like=operands)
            (iterations, state, record), last = carry
        end, number, y0 = lanes.leave((*last, lanes.carry(y0)))
        return stepping.result(state, ys, iterations), BackwardStart(end, number, y0, saved_in, record)

    def _write(self, record, state, step_record):
        """Writes each member's step into its own next row, if it was accepted."""
        lanes = self.lanes
        *row, number, accepted = lanes.leave(
            (step_record.elapsed, state.checkpoint.compensation, step_record.h, state.accepted, step_record.accepted)
        )
        row = jnp.stack(row)
        index = jnp.where(accepted, number, record.shape[0])  # a row that is not there, so nothing is written
        if lanes.count is None:
            return record.at[index].set(row, mode="drop")
        return record.at[index, :, jnp.arange(lanes.count)].set(row.T, mode="drop")

    def _start(self, y0, operands):
        """Returns one member's carry before the first step, which is chosen as for the method itself."""
        method = self.integrator.stepper
        assert isinstance(method, ReversibleStepper | SymmetricStepper)
        # the first step is chosen for one copy of the state, then there are two
        state = dataclasses.replace(self.integrator, stepper=method.base).start(y0, operands)
        dense = state.dense
        if dense is not None:
            dense = Dense(dense.elapsed, dense.h, Pair(y0, y0), dense.stages)
        checkpoint = state.checkpoint._replace(y=Pair(y0, y0))
        return State(checkpoint, None, dense, state.accepted, state.rejected)


def _last_reached(state: State, target: Array, last: tuple, saved: Array) -> tuple:
    """Returns where a member is if it has reached a saved time, or where it was at the last that it reached."""
    here, there = (state.checkpoint.y, state.accepted), saved & (state.checkpoint.elapsed >= target)
    return jax.tree.map(lambda a, b: jnp.where(there, a, b), here, last)


def _for_pairs(tolerances: Tolerances | None) -> Tolerances | None:
    """Returns tolerances for both copies of a state, where they differ between its leaves."""
    if tolerances is None:
        return None
    several = (len(jax.tree.leaves(x, is_leaf=is_value)) > 1 for x in tolerances)
    return Tolerances(*(Pair(x, x) if s else x for x, s in zip(tolerances, several)))
