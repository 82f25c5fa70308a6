"""A Runge-Kutta method for equations with delays: past states are part of the state of the loop.

The past values that a step reads are before its start, because no step is longer than the shortest delay. The past is a
window of the last steps; gradients record it with the state, and go through it.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...._interfaces._delayed import AbstractDelayed
from ...._status import Status
from ...._types import Args, RealScalarLike, Y
from ...control._pid import FirstStep
from ...terms._field import AbstractField, check_like, literals_as_arrays
from ...terms._split_field import BoundSplitField, SplitField, close_split_field
from .._capabilities import Coordinates, Hooks, Limits, Traits
from .._stepper import AbstractStepper, Step, measured_by_state
from ..around._wrapped import AbstractWrappedStepper


class Past(NamedTuple):
    """The last steps, the newest last; before the first one all of them are the start.

    A state or a rate has one derivative by a delay on either side of a point at which the solution is not smooth, so
    that a step has states and rates of its own at both of its ends.

    Attributes:
        begins: The start of each step. That is the end of the step before it, except after an event: a change of the
            event's time moves where the next step begins, but not the polynomial of the step before it.
        times: The end of each step.
        states: The states there.
        starts: The states at its start.
        first: The rates at its start.
        last: The rates at its end.
    """

    begins: Float[Array, " kept"]
    times: Float[Array, " kept"]
    states: PyTree
    starts: PyTree
    first: PyTree
    last: PyTree

    @classmethod
    def of(cls, t: Array, y: Y, rate: Y, kept: int) -> "Past":
        """Returns the past of a start."""

        def rows(x: Array) -> Array:
            return jnp.broadcast_to(x[None], (kept, *x.shape))

        states, rates = (jax.tree.map(rows, tree) for tree in (y, rate))
        return cls(rows(t), rows(t), states, states, rates, rates)

    def then(self, begin: Array, t: Array, start: Y, y: Y, first: Y, last: Y) -> "Past":
        """Returns the past with one step more, and without the oldest."""

        def add(rows: Array, x: Array) -> Array:
            return jnp.concatenate([rows[1:], x[None].astype(rows.dtype)])

        newest = Past(begin, t, y, start, first, last)
        return Past(*(jax.tree.map(add, rows, x) for rows, x in zip(self, newest)))

    def at(self, t: RealScalarLike, within: RealScalarLike) -> Y:
        """Returns the state at a time, by the cubic polynomial through states and rates at both ends of a step.

        Args:
            t: The time.
            within: A time within the step that it belongs to, where it is an end of two.
        """
        row = jnp.clip(jnp.sum((self.times <= within).astype(jnp.int32)) - 1, 0, self.times.shape[0] - 2)

        def taken(rows: Array, number: Array) -> Array:
            return jax.lax.dynamic_index_in_dim(rows, number, 0, False)

        start, end = taken(self.begins, row + 1), taken(self.times, row + 1)
        length = end - start
        some = length > 0
        theta = jnp.where(some, (t - start) / jnp.where(some, length, jnp.ones_like(length)), jnp.zeros_like(length))
        passed = jnp.where(some, jnp.zeros_like(length), t - start)  # from a start without a step: along its rate

        def of_leaf(states: Array, starts: Array, first: Array, last: Array) -> Array:
            y0, y1, f0, f1 = (taken(x, row + 1) for x in (starts, states, first, last))
            s, h, along = (x.astype(states.dtype) for x in (theta, length, passed))
            bend = s * (s - 1) * ((1 - 2 * s) * (y1 - y0) + h * ((s - 1) * f0 + s * f1))
            return y0 + s * (y1 - y0) + bend + along * f0

        return jax.tree.map(of_leaf, self.states, self.starts, self.first, self.last)


_RETURNS = 6
"""How often the start comes back as a jump of a derivative that a method of order six or less sees."""

_MORE_THAN_CUBIC = 4
"""The least order of methods whose dense output is more accurate than a cubic polynomial."""

_MOST_SUMS = 64
"""After how many sums of delays it does at most; with many delays, sums of fewer of them."""

_JUMPS = 16
"""How many of the last events are remembered, whose jumps come back."""

_MORE_STEPS = 64
"""The number of stored steps beyond the steps without events, which cut them."""

_SLACK = 16.0
"""Roundings of a time within which two are the same."""

_SAME = 1e-5
"""The relative difference of states and of rates up to which they count as the same on both sides of an event."""


class DelayedFrom(eqx.Module):
    """A delay equation and the time at which it starts."""

    model: AbstractDelayed
    t0: Array

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns the rate if all past states are before the start."""
        return self.model.rate(t, y, tuple(self.model.before(t - d, args) for d in self.delays(self.t0)), args)

    def delays(self, like: Array) -> list[Array]:
        """Returns the delays, in the dtype of a time."""
        return list(self.model.delays.reshape(-1).astype(like.dtype))

    def jumps(self, like: Array) -> Array:
        """Returns when the history jumps, in the dtype of a time."""
        return self.model.history_jumps.astype(like.dtype)


class WithPast(NamedTuple):
    """A state with the steps that led to it.

    Attributes:
        y: The state.
        past: The steps.
        jumps: When the state has jumped last at events, the start where it has not; none where there are no events.
    """

    y: Y
    past: Past
    jumps: Float[Array, " jumps"]


class DelayField(AbstractField):
    """The closed functions of a delay equation."""

    def __init__(self, functions: SplitField):
        self.functions, self.reads_time, self.has_rules = functions, True, functions.has_rules

    def __call__(self, t: RealScalarLike, y: Any, operands: list) -> Any:
        """Returns the rate of a state with its past, which does not change between steps."""
        return self.bind(operands)(t, y)

    def bind(self, operands: list, whole: bool = True) -> "BoundDelayField":
        """Returns the functions with their operands."""
        return BoundDelayField(self.functions.bind(operands, whole))


class BoundDelayField:
    """The functions of a delay equation with their operands."""

    def __init__(self, functions: BoundSplitField):
        self._functions = functions

    def __call__(self, t: RealScalarLike, y: Any) -> Any:
        """Returns the rate of a state with its past."""
        return jax.tree.map(jnp.zeros_like, y)._replace(y=self.after(y.past, t)(t, y.y))

    @property
    def delays(self) -> Array:
        """The delays, in the order in which they were given."""
        return self._functions["delays"]()

    @property
    def t0(self) -> Array:
        """The start of the solve."""
        return self._functions["t0"]()

    @property
    def jumps(self) -> Array:
        """When the history jumps."""
        return self._functions["jumps"]()

    def before_all(self, t: RealScalarLike, y: Y) -> Y:
        """Returns the rate of a state at the start, if all past states are before it."""
        delayed = tuple(self._functions["history"](t - delay) for delay in self.delays)
        return self._functions["field"](t, delayed, y)

    def within(self, past: Past, start: Array, end: Array) -> Callable[[RealScalarLike, Y], Y]:
        """Returns the vector field for a step from start to end, of a state with such a past.

        If a past state is at an end of that step, shifted by its delay, it belongs to the inside of the step.
        """
        largest = jnp.maximum(jnp.maximum(jnp.abs(start), jnp.abs(end)), jnp.abs(self.t0))
        slack = _SLACK * jnp.finfo(start.dtype).eps * largest

        def state_at(t: Array, delay: Array) -> Y:
            inside = jax.lax.stop_gradient(jnp.clip(t, start + slack, jnp.maximum(end - slack, start + slack)) - delay)
            before = t - delay
            if self.jumps.size:  # of a history that jumps there, too
                before = before + jax.lax.stop_gradient(inside - before)
            before, found = self._functions["history"](before), past.at(t - delay, inside)
            return jax.tree.map(lambda a, b: jnp.where(inside < self.t0, a, b), before, found)

        def field(t: RealScalarLike, y: Y) -> Y:
            delayed = tuple(state_at(jnp.asarray(t, start.dtype), delay) for delay in self.delays)
            return self._functions["field"](t, delayed, y)

        return field

    def after(self, past: Past, t: RealScalarLike) -> Callable[[RealScalarLike, Y], Y]:
        """Returns the vector field for a step that starts at a time."""
        t = jnp.asarray(t)
        return self.within(past, t, t + jnp.min(self.delays))


class MethodOfSteps(AbstractWrappedStepper):
    """A method for equations with delays around one for those without.

    Attributes:
        base: The other.
        kept: How many steps are kept.
        jumps_kept: How many jumps of the state at events are remembered.
        history_jumps: Whether the history has jumps.
    """

    base: AbstractStepper
    kept: int = eqx.field(static=True)
    jumps_kept: int = eqx.field(static=True, default=0)
    history_jumps: bool = eqx.field(static=True, default=False)

    @property
    def traits(self) -> Traits:
        """Fixed steps also end where a jump of the state comes back: no step length divides these times."""
        return super().traits._replace(
            elementwise_dense=False,
            batched_vjp=False,
            transforms_state=True,
            cuts_fixed_steps=self.jumps_kept > 0 or self.history_jumps,
        )

    @property
    def limits(self) -> Limits:
        """By the shortest delay, and jumps that come back; with delays eigenvalues do not determine stability."""
        base = super().limits
        return base._replace(stability=lambda: None, by_waves=base.are_by_waves, longest=self.longest)

    @property
    def coordinates(self) -> Coordinates:
        """A state with its past."""
        return Coordinates(
            self.close, self.starting_step, prepare=self.prepare, finish=self.finish, entered=self.entered
        )

    @property
    def hooks(self) -> Hooks:
        """Steps in gradients, and a memory for jumps at events."""
        return super().hooks._replace(step_for_vjp=self.step_for_vjp, for_events=self.for_events)

    def for_events(self) -> "MethodOfSteps":
        """Returns the method as it is with events: it remembers when the state has jumped."""
        return MethodOfSteps(self.base, self.kept + _MORE_STEPS, _JUMPS, self.history_jumps)

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step."""
        return self.base.evaluations + (1 if self.base.traits.fsal else 2)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the equation as closed functions, with their operands.

        Raises:
            ValueError: If field or history return another structure, shape or dtype than the state's.
        """
        del h
        assert isinstance(model, DelayedFrom)  # see `_solve`
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), y)

        def history(model, args, t):
            found = literals_as_arrays(model.model.before(t, args), like)
            return jax.tree.map(lambda x, of: jnp.asarray(x, None if hasattr(x, "dtype") else of.dtype), found, like)

        def field(model, args, t, delayed, y):
            return literals_as_arrays(model.model.rate(t, y, delayed, args), y)

        before = jax.eval_shape(lambda t: history(model, args, t), t)
        kinds = [[(x.shape, x.dtype.name) for x in jax.tree.leaves(tree)] for tree in (like, before)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"`history` must be a state like `y0`, {kinds[0]}, but is {kinds[1]}.")
        delayed = (y,) * len(model.delays(t))
        check_like(y, jax.eval_shape(lambda y: field(model, args, t, delayed, y), y))
        functions, operands = close_split_field(
            model,
            args,
            {
                "field": (field, (t, delayed, y)),
                "history": (history, (t,)),
                "delays": (lambda model, args: jnp.stack(model.delays(model.t0)), ()),
                "t0": (lambda model, args: model.t0, ()),
                "jumps": (lambda model, args: model.jumps(model.t0), ()),
            },
        )
        return DelayField(functions), operands

    def prepare(self, field: Any, t: RealScalarLike, y: Y) -> tuple[WithPast, None]:
        """Returns the state with its past."""
        t = jnp.asarray(t)
        jumps = jnp.broadcast_to(t, (self.jumps_kept,))
        return WithPast(y, Past.of(t, y, field.before_all(t, y), self.kept), jumps), None

    def entered(self, field: Any, t: RealScalarLike, y: Any, state: Y) -> tuple[WithPast, Array]:
        """Returns the state after an event, which is remembered if the state or its rate jumps there.

        There is no such state if more of these events than are remembered lie within the longest delay.
        """
        t = jnp.asarray(t)
        slack = _SLACK * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(field.t0))
        # a field may count the time of its jump to either side
        after = field.after(y.past, t)(t + slack, state)
        before = jax.tree.map(lambda rows: rows[-1], y.past.last)
        pairs = [*zip(*map(jax.tree.leaves, (y.y, state))), *zip(*map(jax.tree.leaves, (before, after)))]
        differ = [jnp.any(jnp.abs(a - b) > _SAME * (jnp.abs(a) + jnp.abs(b))) for a, b in pairs]
        jumped = functools.reduce(jnp.logical_or, differ, jnp.zeros((), bool))
        forgotten = y.jumps[0]
        known = (forgotten <= field.t0) | (forgotten + jnp.max(field.delays) < t)
        jumps = jnp.where(jumped, jnp.append(y.jumps[1:], t), y.jumps)
        return WithPast(state, y.past, jumps), known | ~jumped

    def finish(self, field: Any, y: Any) -> Y:
        """Returns only the state."""
        del field
        return y.y

    def init(self, field: Any, t: RealScalarLike, y: Any) -> PyTree:
        """Returns the memory of the method, and how long the next step may be."""
        return self.base.init(field.after(y.past, t), t, y.y), self._limit(field, y.jumps, jnp.asarray(t))

    def longest(self, memory: PyTree) -> Array:
        """Returns how long a step may be."""
        return memory[1]

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the size of a first step, no longer than the shortest delay."""
        found = self.base.coordinates.starting_step(field.before_all, start._replace(y=start.y.y))
        return jnp.minimum(found, jnp.min(field.delays))

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any, memory: PyTree) -> Step:
        """Advances a state with its past from `t` to `t + h`."""
        inside = field.within(y.past, jnp.asarray(t), jnp.asarray(t + h))
        return self._with_past(field, inside, t, h, y, self.base.step(inside, t, h, y.y, memory[0]), memory[0])

    def step_for_vjp(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        memory = self.base.init(field.after(y.past, t), t, y.y)
        inside = field.within(y.past, jnp.asarray(t), jnp.asarray(t + h))
        return self._with_past(field, inside, t, h, y, self.base.step(inside, t, h, y.y, memory), memory)

    def _with_past(
        self, field: Any, inside: Callable, t: RealScalarLike, h: RealScalarLike, y: Any, step: Step, memory: PyTree
    ) -> Step:
        end, delays, oldest = jnp.asarray(t + h), field.delays, y.past.times[0]
        first = memory if self.base.traits.fsal else field.after(y.past, t)(t, y.y)
        last = step.memory if self.base.traits.fsal else inside(end, step.y1)
        past = y.past.then(jnp.asarray(t), end, y.y, step.y1, first, last)
        y1 = self._with_moved_start(field, past, y.jumps, end, step.y1, last)
        slack = _SLACK * jnp.finfo(end.dtype).eps * jnp.maximum(jnp.abs(end), jnp.abs(field.t0))
        lost = (t - jnp.max(delays) < oldest - slack) & (oldest > field.t0)
        lost = lost | (h > jnp.min(delays) + slack)
        if step.error is not None and self._knows_more_than_a_cubic:
            missed = self._missed_by_past(h, y.y, step, first, last)
            error = jax.tree.map(lambda a, b: jnp.where(jnp.abs(b) > jnp.abs(a), b, a), step.error, missed)
            step = step._replace(error=error)
        return step._replace(
            y1=WithPast(y1, past, y.jumps),
            # the next step is on the other side of its start
            memory=(self.base.init(field.after(past, end), end, y1), self._limit(field, y.jumps, end)),
            measured=measured_by_state(step, y.y),
            ends=jnp.where(lost, int(Status.history_too_short), int(Status.successful)),
        )

    @property
    def _knows_more_than_a_cubic(self) -> bool:
        dense = getattr(self.base, "interpolation", None)
        return self.base.order >= _MORE_THAN_CUBIC and dense not in (None, diffrax.LocalLinearInterpolation)

    def _missed_by_past(self, h: RealScalarLike, y: Y, step: Step, first: Y, last: Y) -> Y:
        """Returns by how much the past's cubic polynomial differs from the dense output in the middle of a step.

        Later steps read the cubic polynomial, which the error of the method does not know: where a rate is a polynomial
        in time, a method of order five makes no error in a step as long as a delay, but the cubic polynomial does.
        """
        middle = self.base.interpolate(0.5, h, y, step.y1, step.dense)

        def of_leaf(middle: Array, y0: Array, y1: Array, f0: Array, f1: Array) -> Array:
            return middle - (y0 + y1) / 2 - jnp.asarray(h / 8).astype(y0.dtype) * (f0 - f1)

        return jax.tree.map(of_leaf, middle, y, step.y1, first, last)

    def _with_moved_start(self, field: Any, past: Past, jumps: Array, end: Array, y1: Y, before: Y) -> Y:
        r"""Returns a state with the derivative that it has because a jump comes back at a time that a delay moves.

        If the initial state does not continue the history, the rate jumps at $t_0 + \tau$, from $f_-$ to $f_+$. If that
        time is later by $d\tau$ than the end of the step, the state after it changes by $(f_- - f_+) \, d\tau$. Its
        value does not change. The same applies after an event has changed the state.
        """
        gap = (_all_jumps(field, jumps)[:, None] + field.delays[None] - end).reshape(-1)
        fixed = jax.lax.stop_gradient(gap)
        slack = _SLACK * jnp.finfo(end.dtype).eps * jnp.maximum(jnp.abs(end), jnp.abs(field.t0))
        back = jnp.abs(fixed) <= jax.lax.stop_gradient(slack)
        moved = jnp.sum(jnp.where(back, gap - fixed, jnp.zeros_like(gap))) / jnp.maximum(
            jnp.sum(back, dtype=gap.dtype), 1
        )
        after = field.after(past, end)(end, y1)
        return jax.tree.map(lambda y, a, b: y + moved.astype(y.dtype) * (b - a), y1, after, before)

    def _limit(self, field: Any, jumps: Array, t: Array) -> Array:
        """Returns the length of a step that is no longer than a delay, and ends where a jump comes back."""
        delays, t0 = field.delays, field.t0
        later = jnp.sum(jnp.asarray(_sums(delays.shape[0]), t.dtype) * delays[None], axis=1)
        left = _all_jumps(field, jumps)[:, None] + later[None] - t
        near = _SLACK * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(t0))
        ahead = jnp.where(left > near, left, jnp.full_like(left, jnp.finfo(t.dtype).max))
        return jax.lax.stop_gradient(jnp.minimum(jnp.min(delays), jnp.min(ahead)))

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Any, y1: Any, dense: Any) -> WithPast:
        """Returns the state at `t + theta * h`, with the past at the end."""
        return WithPast(self.base.interpolate(theta, h, y0.y, y1.y, dense), y1.past, y1.jumps)

    def empty_dense(self, y: Any) -> PyTree:
        """Returns the dense output of a step that has not been taken."""
        return self.base.empty_dense(y.y)


def _all_jumps(field: Any, jumps: Array) -> Array:
    """Returns when the state or its rate has jumped: in the history, at the start, and at events."""
    return jnp.concatenate([field.jumps, jumps, field.t0[None]])


def _sums(delays: int) -> np.ndarray:
    """Returns how often each delay is in the sums after which a jump comes back, a row for each."""
    alone = [n * row for n in range(1, _RETURNS + 1) for row in np.eye(delays, dtype=int)]
    found = {tuple(row) for row in alone}
    for length in range(2, _RETURNS + 1):
        if math.comb(delays + length, length) > _MOST_SUMS:
            break
        chosen = itertools.combinations_with_replacement(range(delays), length)
        found |= {tuple(np.bincount(x, minlength=delays)) for x in chosen}
    return np.asarray(sorted(found))
