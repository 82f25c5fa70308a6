"""The integration: steps of one member from t0 to t1, as functions of that member.

Everything here speaks of one member and closes over no traced value, so that the loops can run it
over lanes. Time is kept as the time elapsed since t0, always positive, in compensated form: a
million small steps do not drift, and the end is hit exactly. The step is signed only where it meets
the vector field.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._choices import choices_of_one
from ..._status import Status
from ..._types import BoolScalarLike, Y
from ..control._collective import CollectiveSteps
from ..control._criterion import Criterion
from ..control._pid import Control, FirstStep, Tolerances, scaled_error
from ..events._event_state import (
    EventState,
    derivative_of_shift,
    derivatives_alone,
    joined,
    moved_by_events,
    saved_part,
    settled,
    stop_of,
    with_record,
)
from ..methods._stepper import AbstractStepper, Step, error_order_of, step_for_vjp, take_step
from ..methods.around._wrapped import judged
from ..terms._field import AbstractField
from ._saved_rows import SavedRows


class Operands(NamedTuple):
    """The differentiable inputs of an integration, in addition to the initial state.

    Attributes:
        field: The vector field's operands.
        t0: The start time.
        span: The time from start to end, positive.
        saves: The saved times as elapsed times, of shape `(saves,)`, or None for the end only.
        direction: 1 forwards in time, -1 backwards.
        tolerances: Relative and absolute tolerance; None with fixed steps.
        dt: The first or the fixed step size, positive; None to choose the first step.
        max_steps: The limit on attempted steps.
        resume: The state to resume from instead of the start, or None.
        rows: The rows that each of a known number of steps saves, if these are also known; otherwise None.
    """

    field: list[Array]
    t0: Array
    span: Array
    saves: Array | None
    direction: Array
    tolerances: Tolerances | None
    dt: Array | None
    max_steps: Array
    resume: Any = None
    rows: SavedRows | None = None


class Dense(NamedTuple):
    """The last accepted step, for interpolation.

    Attributes:
        elapsed: The time at its start.
        h: Its length, positive.
        y0: The state at its start.
        stages: The data for the stepper's `interpolate`.
    """

    elapsed: Array
    h: Array
    y0: Y
    stages: PyTree


class Checkpoint(NamedTuple):
    """A state, with all that the following steps depend on, from which an integration can continue.

    Attributes:
        elapsed: The time since t0.
        compensation: Its rounding error (Kahan's compensation).
        h: The size of the step to try next.
        errors: The scaled errors of the last accepted steps.
        y: The state.
        status: A code of `Status`, in a byte.
    """

    elapsed: Array
    compensation: Array
    h: Array
    errors: tuple
    y: Y
    status: Array


class Restart(NamedTuple):
    """The start of a later solve, as if this one had not ended.

    Attributes:
        checkpoint: The state before the first step that the end has cut short; None where steps are only repeated.
        memory: The values that this step reuses from the one before.
        frozen: Whether there was such a step.
        passed: Whether a step from there was accepted.
    """

    checkpoint: Checkpoint | None
    memory: PyTree
    frozen: Array
    passed: Array

    @classmethod
    def blank(cls, checkpoint: Checkpoint | None, memory: PyTree) -> "Restart":
        """Returns what it is before the first step."""
        return cls(checkpoint, memory, jnp.zeros((), bool), jnp.zeros((), bool))

    def after(self, cut: Array, accepted: Array, checkpoint: Checkpoint, memory: PyTree) -> tuple["Restart", Array]:
        """Returns what it is after a step was tried, and whether that was accepted and begins where it is.

        Args:
            cut: Whether the end has cut the step short.
            accepted: Whether it was accepted.
            checkpoint: The state after it.
            memory: The values that the next step reuses from it.
        """
        frozen = self.frozen | cut
        begins = frozen & ~self.passed & accepted
        here = None, None
        if self.checkpoint is not None:
            here = checkpoint._replace(y=with_record(checkpoint.y, None)), memory
            here = _where(frozen, (self.checkpoint, self.memory), here)
        return Restart(*here, frozen, self.passed | begins), begins


class State(NamedTuple):
    """The carry of an integration.

    Attributes:
        checkpoint: The current state.
        memory: The values that the next step reuses from the last one.
        dense: The last accepted step, where states are saved within steps.
        accepted: The number of accepted steps.
        rejected: The number of rejected steps.
        kept: The start of a later solve, if requested.
    """

    checkpoint: Checkpoint
    memory: PyTree
    dense: Dense | None
    accepted: Array
    rejected: Array
    kept: Restart | None = None


class StepRecord(NamedTuple):
    """The record of an attempted step, enough to repeat it.

    Attributes:
        elapsed: The time since t0 at its start.
        h: The length that was tried.
        y: The state at its start.
        accepted: Whether it was accepted.
        from_kept: Whether it was, and begins where a later solve continues; None where that is not kept.
    """

    elapsed: Array
    h: Array
    y: Y
    accepted: Array
    from_kept: Array | None = None


class _Trial(NamedTuple):
    """A step that is to be tried.

    Attributes:
        field: The vector field.
        time: The time at its start.
        h: The length, positive.
        whole: The length without an event at a given time, and without an even division of the rest.
        cut: Whether a fixed step only ends one that an event has cut; None where none is.
        shortens: Whether it may be shorter than the whole one.
        end: The time since t0 at which steps end: the span, or the next saved time.
        last: Whether it ends there.
        by_end: Whether this end has set its length.
    """

    field: Any
    time: Array
    h: Array
    whole: Array
    cut: Array | None
    shortens: bool
    end: Array
    last: Array
    by_end: Array


class _Verdict(NamedTuple):
    """The outcome of a step.

    Attributes:
        good: Whether it is good enough.
        accepted: Whether the member moves on: it is good, and need not be taken again up to an event.
        next_h: The length of the next one.
        errors: The scaled errors of the last accepted steps.
        status: A code of `Status`.
    """

    good: Array
    accepted: Array
    next_h: Array
    errors: tuple
    status: Array


class Integrator(eqx.Module):
    """How one member is advanced.

    Attributes:
        field: The vector field.
        stepper: The method.
        control: The controller, or None for fixed steps.
        dense: Whether the last step is kept for interpolation.
        collective: How devices that hold parts of one state take the same steps.
        constant: Whether no derivative by the vector field's operands can be asked for.
        hands_out: Whether the state from which a later solve continues is kept.
    """

    field: AbstractField = eqx.field(static=True)
    stepper: AbstractStepper
    control: Control | None
    dense: bool = eqx.field(static=True)
    collective: CollectiveSteps = eqx.field(static=True, default=CollectiveSteps())
    constant: bool = eqx.field(static=True, default=False)
    hands_out: bool = eqx.field(static=True, default=False)

    def of_one(self) -> tuple["Integrator", Callable[[], contextlib.AbstractContextManager]]:
        """Returns the integrator of a single member, and what opens a block with the table of choices for it."""
        table = functools.partial(choices_of_one, self.field.on_arrays)
        return dataclasses.replace(self, field=self.field.of_one()), table

    def bound(self, operands: Operands, whole: bool = True) -> Any:
        """Returns the vector field as a function of time and state, for a step of full length or not."""
        return self.field.bind(operands.field, whole)

    def time(self, elapsed: Array, operands: Operands) -> Array:
        """Returns the time that belongs to an elapsed time."""
        return operands.t0 + operands.direction * elapsed

    def elapsed(self, elapsed: Array, y: Y, operands: Operands) -> Array:
        """Returns the elapsed time of a state, with the derivatives that it has after events."""
        shift = derivative_of_shift(y, operands.direction)
        return elapsed if shift is None else elapsed + shift

    def start(self, y0: Y, operands: Operands) -> State:
        """Returns the carry before the first step."""
        if operands.resume is not None:
            return self._resumed(y0, operands)
        field = self.bound(operands)
        zero = jnp.zeros_like(operands.span)
        if operands.dt is not None:
            h = operands.dt
        else:
            assert operands.tolerances is not None  # fixed steps have their size
            interval = operands.direction, operands.span
            start = FirstStep(operands.t0, y0, *interval, operands.tolerances, self.collective.norm)
            h = self.stepper.coordinates.starting_step(field, start)
        if self.control is not None and self.control.dtmax is not None:
            h = jnp.minimum(h, self.control.dtmax)
        memory = self.stepper.init(field, operands.t0, y0)
        finite = self.collective.finite((y0, memory, h))
        # steps of length zero would be accepted for ever
        cause = jnp.where(finite, int(Status.step_too_small), int(Status.nonfinite))
        started = finite & ((h > 0) | (operands.span <= 0))
        status = jnp.where(started, int(Status.successful), cause).astype(jnp.int8)
        errors = () if self.control is None else (jnp.ones_like(h),) * self.control.memory_size
        # before the first step: a step of length one from the start, since `saved` divides by its length
        dense = None
        if self.dense:
            dense = Dense(zero, jnp.ones_like(zero), saved_part(y0), self.stepper.empty_dense(y0))
        none, checkpoint = jnp.zeros((), jnp.int32), Checkpoint(zero, zero, h, errors, y0, status)
        kept = Restart.blank(checkpoint, memory) if self.hands_out else None
        return State(checkpoint, memory, dense, none, none, kept)

    def _resumed(self, y0: Y, operands: Operands) -> State:
        """Returns the carry of a solve that goes on where another ended."""
        found: Restart = operands.resume
        assert found.checkpoint is not None  # see `Resume`
        checkpoint = found.checkpoint._replace(y=y0)
        time = self.time(self.elapsed(checkpoint.elapsed, y0, operands), operands)
        # it did not return derivatives: they are the derivatives of the results of the state
        memory = jax.tree.map(_moving_like, found.memory, self.stepper.init(self.bound(operands), time, y0))
        if self.control is None:
            assert operands.dt is not None  # fixed steps have their size
            checkpoint = checkpoint._replace(h=operands.dt)
        dense = None
        if self.dense:
            one = jnp.ones_like(checkpoint.elapsed)
            dense = Dense(checkpoint.elapsed, one, saved_part(y0), self.stepper.empty_dense(y0))
        none = jnp.zeros((), jnp.int32)
        kept = Restart.blank(checkpoint, memory) if self.hands_out else None
        return State(checkpoint, memory, dense, none, none, kept)

    def resume(self, checkpoint: Checkpoint, operands: Operands) -> State:
        """Returns a carry from which the steps after a checkpoint are repeated."""
        memory = self.stepper.init(self.bound(operands), self.time(checkpoint.elapsed, operands), checkpoint.y)
        none = jnp.zeros((), jnp.int32)
        return State(checkpoint, memory, None, none, none)

    def pending(self, state: State, target: Array) -> Array:
        """Returns whether the member has yet to reach `target`."""
        return (state.checkpoint.elapsed < target) & (state.checkpoint.status == int(Status.successful))

    def attempt(self, state: State, operands: Operands, target: Array) -> tuple[State, StepRecord]:
        """Tries one step of a member that has yet to reach `target`; leaves any other as it is."""
        return self.attempt_or_leave(state, operands, target)[:2]

    def _shorter(self, field: Any, time: Array, next_h: Array, h: Array) -> BoolScalarLike:
        """Returns whether a rejected step can be tried again; between neighbouring points of a path it cannot."""
        shorter = self.stepper.limits.aligned(field, time, next_h)
        return True if shorter is next_h else shorter < h

    def attempt_or_leave(self, state: State, operands: Operands, target: Array) -> tuple[State, StepRecord, Array]:
        """Tries one step like `attempt`, and returns whether the method leaves it to another; see `Step.left`.

        A step has four stages: the limit of its length, the step itself, the error test and the next length, and the
        carry after it. A member that has reached `target`, or has failed, runs through all of them with the other
        members of its lanes: `active` is false, and its carry does not change.
        """
        active = self.pending(state, target)
        elapsed, compensation, _, _, y, _ = state.checkpoint
        # if events have moved the time, `here` has the derivatives of that; only `elapsed` is constant to them
        here = self.elapsed(elapsed, y, operands)
        field, time = self.bound(operands), self.time(here, operands)
        trial = self._trial(state, operands, target, field, time, here)
        stepper, length = self._judged(operands), operands.direction * trial.h
        step = take_step(stepper, field, time, length, y, state.memory)

        error = None if self.control is None else self._error(step, y, operands)
        # false for NaN: what is not finite is rejected, whatever the tolerances
        good = self.collective.finite(saved_part(step.y1)) if error is None else error <= 1
        left = jnp.zeros((), bool)
        if step.left is not None:  # the step is good, but another loop takes it, with what may happen in it
            left = active & good & step.left
            active = active & ~left
        if stepper.hooks.completed is not None:
            step = stepper.hooks.completed(field, time, length, y, step, active & good)
        if error is None:
            verdict = self._verdict_of_fixed(state, step, active, good)
        else:
            verdict = self._verdict_by_error(state, operands, trial, step, error, active, good)
        return *self._after(state, operands, trial, step, verdict, active), left

    def _trial(self, state: State, operands: Operands, target: Array, field: Any, time: Array, here: Array) -> "_Trial":
        """Returns how long the step to try is."""
        _, compensation, h, _, y, _ = state.checkpoint
        # without dense output a step ends at every saved time: nothing else knows the state there
        end = operands.span if self.stepper.traits.dense else jnp.minimum(target, operands.span)
        if self.control is not None or self.stepper.traits.cuts_fixed_steps:
            longest = self.stepper.limits.longest(state.memory)
            h = h if longest is None else jnp.minimum(h, longest)
        if self.control is not None:  # the path of a noise has points, at which steps end
            h = self.stepper.limits.aligned(field, time, h)
        cut, h = self._rest(field, time, h, y)
        # the next event at a time that is given; the step that it cuts short says nothing against the whole one
        whole, stop = h, stop_of(y)
        if stop is not None:
            h = jnp.minimum(h, stop)
        h, last = up_to(end, here, compensation, h, operands.span)
        evens = self.control is not None and self.stepper.traits.evens_last_steps
        by_end = last
        if evens:
            rest = (end - here) + compensation
            nearest = rest if stop is None else jnp.minimum(rest, stop)
            halved = ~last & (h < nearest) & (nearest < 2 * h)
            h, by_end = jnp.where(halved, nearest / 2, h), last | (halved & (nearest >= rest))
        return _Trial(field, time, h, whole, cut, evens or stop is not None, end, last, by_end)

    def _verdict_of_fixed(self, state: State, step: Step, active: Array, good: Array) -> "_Verdict":
        """Returns what becomes of a step of given length: one that is not finite ends the integration."""
        if step.again is not None:  # what happens at the end of the step may have made it infinite
            good = good & self.collective.finite(saved_part(step.y1))
        # a step that is repeated up to an event is not a failure
        accepted = active & good if step.again is None else active & good & ~step.again
        cause = cause_of(jnp.asarray(int(Status.nonfinite), jnp.int8), step)
        status = jnp.where(active & ~good, cause, state.checkpoint.status)
        return _Verdict(good, accepted, state.checkpoint.h, state.checkpoint.errors, status)

    def _verdict_by_error(
        self,
        state: State,
        operands: Operands,
        trial: "_Trial",
        step: Step,
        error: Array,
        active: Array,
        good: Array,
    ) -> "_Verdict":
        """Returns what becomes of a step whose error says whether it is good, and how long the next one is."""
        assert self.control is not None
        elapsed, _, tried, errors, _, status = state.checkpoint
        accepted = active & good if step.again is None else active & good & ~step.again
        factor = self.control.factor(error, errors, good, error_order_of(self.stepper))
        if step.factor is not None:
            factor = jnp.where(jnp.isnan(step.factor), factor, step.factor)
        next_h = trial.h * factor
        if not self.stepper.traits.dense:  # a step cut short at a saved time does not shorten the next one
            next_h = jnp.where(good & trial.last, jnp.maximum(next_h, tried), next_h)
        if trial.shortens:  # nor does one that ends at an event, or half-way to the end
            next_h = jnp.where(good & (trial.h < trial.whole), jnp.maximum(next_h, tried), next_h)
        if self.control.dtmax is not None:
            next_h = jnp.minimum(next_h, self.control.dtmax)
        if step.again is not None:  # up to the event by the length that was tried, which `stop_of` then cuts
            next_h = jnp.where(good & step.again, tried, next_h)
        errors = self.control.remember(error, errors, accepted)
        # a shorter step would vanish in the rounding of the elapsed time; near the start the span counts instead
        smallest = jnp.finfo(elapsed.dtype).eps * jnp.maximum(elapsed, 1e-12 * operands.span)
        if self.control.dtmin is not None:
            smallest = jnp.maximum(smallest, self.control.dtmin)
        cause = jnp.where(jnp.isfinite(error), int(Status.step_too_small), int(Status.nonfinite))
        cause = cause_of(cause.astype(jnp.int8), step)
        # a length of NaN, for which a shorter one is no better, also ends it
        retried = (next_h >= smallest) & self._shorter(trial.field, trial.time, next_h, trial.h)
        status = jnp.where(active & ~good & ~retried, cause, status)
        return _Verdict(good, accepted, next_h, errors, status)

    def _after(
        self, state: State, operands: Operands, trial: "_Trial", step: Step, verdict: "_Verdict", active: Array
    ) -> tuple[State, StepRecord]:
        """Returns the carry after a step, and the record by which a gradient repeats it."""
        elapsed, compensation, h, _, y, _ = state.checkpoint
        accepted, last, cut = verdict.accepted, trial.last, trial.cut
        # the end of a step that an event has cut does not depend on when that was
        after = trial.h if cut is None else jnp.where(cut, self.elapsed(trial.h, y, operands), trial.h)
        moved = after - compensation  # Kahan's sum: what rounding took from `elapsed` goes into the next step
        reached = elapsed + moved
        counts = (
            state.accepted + accepted.astype(jnp.int32),
            state.rejected + (active & ~accepted).astype(jnp.int32),
        )
        ended = accepted & last & (trial.end >= operands.span)  # if with the last step allowed, that is no failure
        spent = (sum(counts) >= operands.max_steps) & ~ended & active & (verdict.status == 0)
        status = jnp.where(spent, int(Status.max_steps_reached), verdict.status).astype(jnp.int8)
        if step.ends is not None:
            status = jnp.where(accepted & (step.ends != 0), step.ends, status).astype(jnp.int8)
        # the end is hit exactly, with no rounding; after events it moves with them
        arrived, delay = jnp.where(last, trial.end, reached), moved_by_events(y, step.y1, operands.direction)
        arrived = arrived if delay is None else arrived + delay
        # a step to be taken again changes what is known of events, by which it is cut, though it is not accepted
        moves = accepted if step.again is None else active & verdict.good
        y1 = joined(_where(moves, saved_part(step.y1), saved_part(y)), step.y1)  # of events they know whether it moves
        checkpoint = Checkpoint(
            elapsed=jnp.where(accepted, arrived, elapsed),
            compensation=jnp.where(
                accepted, jnp.where(last, jnp.zeros_like(compensation), (reached - elapsed) - moved), compensation
            ),
            h=jnp.where(active, verdict.next_h, h),
            errors=verdict.errors,
            y=settled(y, y1, accepted & (last if cut is None else last | cut)),
            status=status,
        )
        dense = None
        if state.dense is not None:
            dense = _where(accepted, Dense(elapsed, trial.h, saved_part(y), step.dense), state.dense)
        memory = _where(accepted, step.memory, state.memory)
        kept, from_kept = state.kept, None
        if kept is not None:
            by_end = active & trial.by_end & (trial.end >= operands.span)
            kept, from_kept = kept.after(by_end, accepted, checkpoint, memory)
        step_record = StepRecord(elapsed, trial.h, y, accepted, from_kept)
        return State(checkpoint, memory, dense, *counts, kept), step_record

    def _rest(self, field: Any, time: Array, h: Any, y: Y) -> tuple[Array | None, Any]:
        """Returns whether a fixed step only ends one that an event has cut, None where that is whole, and its length.

        Such a step ends at a given time, whatever its start depends on.
        """
        if self.control is not None or not self.stepper.traits.rough or not isinstance(y, EventState):
            return None, h
        rest = self.stepper.limits.rest(field, time, h)
        return rest < h, rest

    def _error(self, step: Step, y: Y, operands: Operands) -> Array:
        """Returns the size of a step's error, at most 1 where it is small enough.

        Args:
            step: The step.
            y: The state at its start.
            operands: The inputs of the integration.

        Raises:
            TypeError: If the method estimates none.
        """
        assert operands.tolerances is not None
        if step.error is None:
            raise TypeError(
                f"`{type(self.stepper).__name__}` has `has_error = True`, but its `step` returns no `error`."
            )
        if step.measured is None:
            return scaled_error(step.error, y, step.y1, operands.tolerances, self.collective.norm)
        # the loop runs in modes, and tolerances belong to the state
        measured, there = step.measured
        return scaled_error(measured, there, there, operands.tolerances, self.collective.norm)

    def _judged(self, operands: Operands) -> AbstractStepper:
        """Returns the method for a step, which knows by what its error is judged where there is error control."""
        if self.control is None:
            return self.stepper
        assert operands.tolerances is not None
        return judged(self.stepper, Criterion(operands.tolerances, self.control, self.collective.norm))

    def replay(self, y: Y, operands: Operands, step_record: StepRecord) -> tuple[Y, Dense]:
        """Repeats an accepted step; only the last step's length depends on the end time."""
        elapsed, h = step_record.elapsed, jax.lax.stop_gradient(step_record.h)
        here = self.elapsed(elapsed, y, operands)
        _, last = up_to(operands.span, elapsed, jnp.zeros_like(elapsed), h, operands.span)
        # adds zero, whose derivative by the end time is one
        left = operands.span - (elapsed if self.dense else here)  # states are saved at the end of the step as recorded
        h = jnp.where(last, h + (left - jax.lax.stop_gradient(left)), h)
        field, time = self.bound(operands), self.time(here, operands)
        cut, rest = self._rest(field, time, operands.dt, y)
        if cut is not None:
            cut = cut & ~last
            h = jnp.where(cut, h + (rest - jax.lax.stop_gradient(rest)), h)
        length = operands.direction * h
        step = step_for_vjp(self.stepper, field, time, length, y)
        if self.stepper.hooks.completed is not None:
            step = self.stepper.hooks.completed(field, time, length, y, step, True)
        y1 = step.y1 if cut is None else settled(y, step.y1, cut)
        return y1, Dense(elapsed, step_record.h, saved_part(y), step.dense)

    def saved(self, y: Y, dense: Dense, operands: Operands, elapsed: Array) -> Y:
        """Returns the state at an elapsed time within the last step; linear in `y` and `dense`."""
        theta = (elapsed - self.elapsed(dense.elapsed, dense.y0, operands)) / dense.h
        inside = self.stepper.interpolate(theta, operands.direction * dense.h, dense.y0, y, dense.stages)
        at_end = elapsed >= dense.elapsed + dense.h  # the state itself, also of methods without dense output
        return _where(at_end, saved_part(y), inside)


def up_to(end: Array, elapsed: Array, compensation: Array, h: Array, span: Array) -> tuple[Array, Array]:
    """Returns the length of the step to try and whether it is one that ends exactly at the given time.

    Args:
        end: The elapsed time not to go beyond.
        elapsed: The elapsed time at the start of the step.
        compensation: Its rounding error.
        h: The length that the controller chose.
        span: The elapsed time of the end of the solve, for the size of rounding errors.
    """
    remaining = (end - elapsed) + compensation
    last = h + 2 * jnp.finfo(remaining.dtype).eps * span >= remaining
    return jnp.where(last, remaining, h), last


def cause_of(other: Array, step: Step) -> Array:
    """Returns the status of a step that failed: a singular system, a state that may not be, or another cause."""
    causes = (
        (step.converged, Status.diverged),
        (step.admissible, Status.outside_domain),
        (step.solvable, Status.singular),
    )
    for condition, status in causes:
        if condition is not None:
            other = jnp.where(condition, other, int(status)).astype(other.dtype)
    return other


def known(y: Y, condition: BoolScalarLike) -> Y:
    """Returns `y` where the condition is true, NaN elsewhere."""
    return jax.tree.map(lambda x: jnp.where(condition, x, jnp.full_like(x, jnp.nan)), y)


def _moving_like(x: Array, other: Array) -> Array:
    """Returns an array with the derivatives of another."""
    return x + derivatives_alone(other) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def _where(condition: Array, a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: x if x is y else jnp.where(condition, x, y), a, b)
