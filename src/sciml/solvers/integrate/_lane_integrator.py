"""One step of every member: the functions of an `Integrator` over lanes.

The loops differ in when they step, save and stop, and in what they record; what they do to the lanes is the same.

The derivative of a saved state by its own time, where that is the end of a step.

Within a step the interpolation has it. The end of a step is a state that does not depend on the saved time, and after
an event it is the state of a time that moves: both are made up for at the rate that the state has after the event.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Int, PyTree

from ..._jax._loops import packed_while_loop, while_loop
from ..._jax._marks import chosen
from ..._status import Status
from ..._types import Y
from ...kernels._lanes import Lanes, Unbatched
from ..events._event_state import EventState, derivatives_alone, saved_part
from ._happenings import attempt_gathered, happenings, joined_record, quiet_integrator, without_record, written
from ._integrator import Checkpoint, Dense, Integrator, Operands, State, StepRecord, known
from ._result import Result, Saves


def is_state(checkpoint: Checkpoint, dense: Dense, target: Array) -> Bool[Array, ""]:
    """Returns whether what is saved at an elapsed time is the state at the start or the end of a step."""
    beside = (target >= dense.elapsed + dense.h) | (target <= dense.elapsed)
    return beside & (target <= checkpoint.elapsed)


def knows_rate(integrator: Integrator) -> bool:
    """Returns whether the state moves at a rate that is known."""
    stepper = integrator.stepper
    return stepper.traits.knows_rate and not stepper.traits.jumps and not stepper.traits.rough


def rate_of(integrator: Integrator, y: Y, operands: Operands, target: Array) -> Y:
    """Returns the derivative of a saved state by elapsed time, after what happens at that time."""
    field, time = integrator.bound(operands), integrator.time(target, operands)
    found = integrator.stepper.coordinates.rate(field, time, y) if knows_rate(integrator) else field(time, y)
    return jax.tree.map(lambda x: x * operands.direction.astype(x.dtype), found)


def with_own_time(
    integrator: Integrator, y: Y, checkpoint: Checkpoint, dense: Dense, operands: Operands, target: Array
) -> Y:
    """Returns a saved state with the derivative by its time, also where that is the end of a step.

    Args:
        integrator: How the member is advanced.
        y: The saved state.
        checkpoint: The end of the last step.
        dense: The last step.
        operands: The inputs of the integration.
        target: The elapsed time of the saved state.
    """
    if not knows_rate(integrator):
        return y
    later = derivatives_alone(target - integrator.elapsed(checkpoint.elapsed, checkpoint.y, operands))
    later = jnp.where(is_state(checkpoint, dense, target), later, jnp.zeros_like(later))
    return _moved(integrator, y, later, operands, target)


def _moved(integrator: Integrator, y: Y, later: Array, operands: Operands, target: Array) -> Y:
    """Returns a state with the derivatives of a time, at its rate, which is taken only where they are asked for."""

    @jax.custom_jvp
    def state(y, later, operands, target):
        del later, operands, target
        return y

    def jvp(primals, tangents):
        y_dot, later_dot, *_ = tangents
        y = state(*primals)  # so that second derivatives know that the rate is the one at the later time
        y_dot = jax.tree.map(lambda t, x: jnp.zeros_like(x) if _is_zero(t) else t, y_dot, y, is_leaf=_is_zero)
        if _is_zero(later_dot):
            return y, y_dot
        _, _, operands, target = primals

        def add(tangent: Array, rate: Array) -> Array:
            # a rate that is not finite must not reach the others, as zero times infinity would
            moves = later_dot.astype(rate.dtype) * rate
            return tangent + jnp.where(later_dot == 0, jnp.zeros_like(moves), moves)

        return y, jax.tree.map(add, y_dot, rate_of(integrator, y, operands, target))

    state.defjvp(jvp, symbolic_zeros=True)
    return state(y, later, operands, target)


def _is_zero(x: Any) -> bool:
    return isinstance(x, SymbolicZero)


class LaneIntegrator(eqx.Module):
    """An integrator over lanes.

    Attributes:
        integrator: How one member is advanced.
        lanes: The engine.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched

    @property
    def while_loop(self) -> Any:
        """The loop for what has a gradient, whose carry is large: where there are no lanes, of many scalars."""
        return packed_while_loop if self.lanes.count is None else while_loop

    def start(self, y0: PyTree, operands: Operands) -> State:
        """Returns the carry of all members before their first step."""
        return _constant_step_sizes(self.carry(self.lanes.call(self.integrator.start, y0, operands)))

    def carry(self, state: State) -> State:
        """Returns lane values such that a loop's carry keeps its type."""
        state, record = without_record(state)
        return joined_record(self.lanes.carry(state), None if record is None else self.lanes.whole(record))

    def attempt(self, state: State, operands: Operands, target: PyTree) -> tuple[State, StepRecord]:
        """Tries a step on every lane whose member has yet to reach `target`."""
        state, step_record = self._attempt(state, operands, target, True)
        assert step_record is not None  # as asked for
        return state, step_record

    def advance(self, state: State, operands: Operands, target: PyTree, steps: int = 1) -> State:
        """Tries a step like `attempt`, or several where those with events are gathered; nothing is recorded."""
        return self._attempt(state, operands, target, False, steps)[0]

    def _attempt(
        self, state: State, operands: Operands, target: PyTree, recorded: bool, steps: int = 1
    ) -> tuple[State, StepRecord | None]:
        state, record = without_record(state)
        quiet = quiet_integrator(self.integrator, self.lanes, state, operands)
        if quiet is not None:
            assert isinstance(self.lanes, Lanes)  # many members
            with chosen("events.gather_noisy_from" if self.integrator.stepper.traits.rough else "events.gather_from"):
                state, step_record, record = attempt_gathered(
                    self.integrator, quiet, self.lanes, state, operands, target, record, recorded, steps
                )
        else:
            assert steps == 1
            state, step_record = self.lanes.carry(self.lanes.call(self.integrator.attempt, state, operands, target))
            state, events = happenings(state)
            record = written(self.lanes, record, events)
        # in the carry, so that forward mode through this loop, or through a gradient's, does not see the controller
        return _constant_step_sizes(joined_record(state, record)), step_record

    def shapes_of_record(self, state: State, operands: Operands) -> StepRecord:
        """Returns what `attempt` records of a step as shapes, without a trace of a step."""

        def record(state: State, operands: Operands) -> StepRecord:
            checkpoint, accepted = state.checkpoint, self.integrator.pending(state, operands.span)
            kept = None if state.kept is None else accepted
            return StepRecord(checkpoint.elapsed, checkpoint.h, checkpoint.y, accepted, kept)

        state = without_record(state)[0]
        return jax.eval_shape(lambda s: self.lanes.carry(self.lanes.call(record, s, operands)), state)

    def pending(self, state: State, target: PyTree) -> Bool[Array, "*lanes"]:
        """Returns which members have yet to reach `target`."""
        return self.lanes.leave(self.lanes.call(self.integrator.pending, state, target))

    def any_pending(self, state: State, target: PyTree, left: int = 0) -> Bool[Array, ""]:
        """Returns whether more members than `left` have yet to reach `target`."""
        pending = self.pending(state, target)
        return jnp.sum(pending, dtype=jnp.int32) > left if left else jnp.any(pending)

    def stop(self, time: Array, saves: Saves, operands: Operands, beyond: Bool[Array, ""]) -> PyTree:
        """Returns the next time to integrate to: a saved one, or the end beyond the last of them."""
        beyond, time = self.shared(beyond), self.target(time, saves)
        return self.lanes.call(lambda beyond, time, span: jnp.where(beyond, span, time), beyond, time, operands.span)

    def end(self, state: State, operands: Operands) -> PyTree[Array]:
        """Returns the end states as arrays, NaN where the end was not reached, with what is returned once."""

        def end(checkpoint: Checkpoint, span):
            reached = (checkpoint.status == 0) & (checkpoint.elapsed >= span)
            return known(saved_part(checkpoint.y), reached | (checkpoint.status == int(Status.event)))

        return self.with_rest(self.lanes.leave(self.lanes.call(end, state.checkpoint, operands.span)), state)

    def with_rest(self, ys: PyTree[Array], state: State) -> PyTree[Array]:
        """Returns what was saved with what is carried to the end and returned once, if anything."""
        y = state.checkpoint.y
        return EventState(ys, self.lanes.leave(y.rest)) if isinstance(y, EventState) else ys

    def saved(self, state: State, operands: Operands, target: PyTree) -> PyTree[Array]:
        """Returns the states at `target`, within the last step, as arrays, NaN where that was not reached."""

        def saved(checkpoint: Checkpoint, dense, operands, target):
            y = self.integrator.saved(checkpoint.y, dense, operands, target)
            y = with_own_time(self.integrator, y, checkpoint, dense, operands, target)
            return known(y, target <= checkpoint.elapsed)

        return self.lanes.leave(self.lanes.call(saved, state.checkpoint, state.dense, operands, target))

    def slope(self, state: State, operands: Operands, target: PyTree) -> PyTree[Array]:
        """Returns the derivatives of the saved states with respect to the time `target`, as arrays."""

        def slope(checkpoint: Checkpoint, dense, operands, target):
            def at(theta):
                h = operands.direction * dense.h
                return self.integrator.stepper.interpolate(theta, h, dense.y0, checkpoint.y, dense.stages)

            y = with_own_time(self.integrator, saved_part(checkpoint.y), checkpoint, dense, operands, target)
            reached = target + jax.lax.stop_gradient(jnp.clip(target, 0, checkpoint.elapsed) - target)
            settled = rate_of(self.integrator, y, operands, reached)
            if not self.integrator.stepper.traits.dense:  # the state saved is the step's end
                return settled
            theta = (target - dense.elapsed) / dense.h
            _, rate = jax.jvp(at, (theta,), (jnp.ones_like(theta),))
            known_rate = is_state(checkpoint, dense, target)
            if not knows_rate(self.integrator):
                known_rate = target <= 0  # no step has been taken at the very start

            def choose(rate, settled):
                return jnp.where(known_rate, settled, rate / dense.h.astype(rate.dtype))

            return jax.tree.map(choose, rate, settled)

        return self.lanes.leave(self.lanes.call(slope, state.checkpoint, state.dense, operands, target))

    def result(self, state: State, ys: PyTree[Array], iterations: Int[Array, ""]) -> Result:
        """Returns the result of an integration that has ended, after a number of iterations of the loop."""
        checkpoint = state.checkpoint
        status, *numbers = self.lanes.leave((checkpoint.status, checkpoint.elapsed, state.accepted, state.rejected))
        executed = jnp.broadcast_to(iterations, status.shape)
        kept = None if state.kept is None else self.lanes.leave(state.kept)
        return Result(ys, status.astype(jnp.int32), *numbers, executed=executed, kept=kept)

    def enter(self, tree: PyTree[Array]) -> PyTree:
        """Returns arrays with members last as lane values."""
        return self.lanes.enter(tree, self.lanes.count is not None)

    def shared(self, value: Array) -> Any:
        """Returns what all members share as a lane value."""
        return self.lanes.enter(value, False)

    def target(self, time: Array, saves: Saves) -> PyTree:
        """Returns a saved time as a lane value."""
        return self.lanes.enter(time, saves.batched)

    def next_saved(self, state: State, saves: Saves, last: PyTree) -> PyTree:
        """Returns the next saved time of each member, a lane value, or a last time beyond all of them."""
        elapsed, end = self.lanes.leave((state.checkpoint.elapsed, last))
        times = saves.times if self.lanes.count is None or saves.batched else saves.times[:, None]
        return self.enter(jnp.min(jnp.where(times > elapsed[None], times, end[None]), axis=0))


def _constant_step_sizes(state: State) -> State:
    """Returns a state whose step sizes are constant to derivatives of any mode and order."""
    h, errors, kept = jax.tree.map(jax.lax.stop_gradient, (state.checkpoint.h, state.checkpoint.errors, state.kept))
    if state.kept is not None and state.kept.checkpoint is not None:  # of what is kept the state alone has derivatives
        kept = kept._replace(checkpoint=kept.checkpoint._replace(y=state.kept.checkpoint.y))
    return state._replace(checkpoint=state.checkpoint._replace(h=h, errors=errors), kept=kept)
