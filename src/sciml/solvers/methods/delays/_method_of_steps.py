"""A one-step method for equations with delays: past states are part of the state of the loop.

The past is a window of the last steps; gradients record it with the state, and go through it. There are two ways to
keep the solution smooth within a step:

- The breaking points of constant delays, at which derivatives jump, are known: they are sums of delays after the start.
  A step ends there, and is no longer than the shortest delay, so that the past values that it reads are before it.
- The others are tracked. A step in which a past state passes an earlier breaking point is repeated up to the root. A
  step may be longer than a delay: then it reads its own dense output, by iterations (`_within_step`).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._status import Status
from ...._types import Args, RealScalarLike, Y
from ...control._pid import FirstStep
from ...terms._field import check_like, literals_as_arrays
from ...terms._split_field import close_split_field
from .._capabilities import Coordinates, Hooks, Limits, Traits
from .._stepper import AbstractStepper, Step, measured_by_state
from ..around._wrapped import AbstractWrappedStepper
from ..explicit._runge_kutta import RungeKutta
from ._delay_field import DelayedFrom, DelayField, WithPast, history_of, slack_of
from ._past import QUARTERS, Past
from ._within_step import first_crossing, solved_within

_RETURNS = 6
"""How often the start comes back as a jump of a derivative that a method of order six or less sees."""

_MORE_THAN_CUBIC = 4
"""The least order of methods whose dense output is more accurate than a cubic polynomial."""

_AS_CUBIC = 3
"""The least order of methods whose dense output is as accurate as a cubic polynomial."""

_MOST_SUMS = 64
"""After how many sums of delays it does at most; with many delays, sums of fewer of them."""

_JUMPS = 16
"""How many of the last events are remembered, whose jumps come back."""

TRACKED = 32
"""How many of the last breaking points are remembered, where they are tracked."""

_MORE_STEPS = 64
"""The number of stored steps beyond the steps without events, which cut them."""

_SAME = 1e-5
"""The relative difference of states and of rates up to which they count as the same on both sides of an event."""

_AHEAD = 0.01
"""The share of a step that a past state may be ahead of its time, by the errors of delays that vanish."""


class MethodOfSteps(AbstractWrappedStepper):
    """A method for equations with delays around one for those without.

    Attributes:
        base: The other.
        kept: How many steps are kept.
        jumps_kept: How many jumps of the state at events, and tracked breaking points, are remembered.
        history_jumps: Whether the history has jumps.
        tracked: Whether breaking points are found on the way: delays are functions, or the equation is neutral.
        neutral: Whether the rate depends on past rates.
    """

    base: AbstractStepper
    kept: int = eqx.field(static=True)
    jumps_kept: int = eqx.field(static=True, default=0)
    history_jumps: bool = eqx.field(static=True, default=False)
    tracked: bool = eqx.field(static=True, default=False)
    neutral: bool = eqx.field(static=True, default=False)

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
        return dataclasses.replace(self, kept=self.kept + _MORE_STEPS, jumps_kept=max(self.jumps_kept, _JUMPS))

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step."""
        if self.tracked or self.base.evaluations < 0:
            return -1
        return self.base.evaluations + (1 if self.base.traits.fsal else 2)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the equation as closed functions, with their operands.

        Raises:
            ValueError: If field or history return another structure, shape or dtype than the state's, or if delays
                that are a function are not numbers.
        """
        del h
        assert isinstance(model, DelayedFrom)  # see `_solve`
        history = history_of(model.model, t, y, args)

        def field(model, args, t, delayed, y):
            return literals_as_arrays(model.model.rate(t, y, delayed, args), y)

        if callable(model.model.delays):
            check_delays(jax.eval_shape(model.model.delays, t, y, args))
        delayed: tuple = (y,) * len(jax.eval_shape(lambda: model.delays(t, y, args)))
        delayed = (delayed, delayed) if self.neutral else delayed
        check_like(y, jax.eval_shape(lambda y: field(model, args, t, delayed, y), y))
        if self.tracked:
            delays = lambda model, args, t, y: jnp.stack(model.delays(t, y, args)), (t, y)  # noqa: E731
        else:
            delays = lambda model, args: jnp.stack(model.delays(model.t0, None, args)), ()  # noqa: E731
        functions, operands = close_split_field(
            model,
            args,
            {
                "field": (field, (t, delayed, y)),
                "history": (lambda model, args, t: history(model.model, args, t), (t,)),
                "delays": delays,
                "t0": (lambda model, args: model.t0, ()),
                "jumps": (lambda model, args: model.jumps(model.t0), ()),
            },
        )
        return DelayField(functions, self.tracked, self.neutral), operands

    def prepare(self, field: Any, t: RealScalarLike, y: Y) -> tuple[WithPast, None]:
        """Returns the state with its past."""
        t = jnp.asarray(t)
        if not self.tracked:
            rate = jax.tree.map(jnp.zeros_like, y) if self._samples else field.before_all(t, y)
        else:
            rate = field.slope_before(t) if self.neutral else jax.tree.map(jnp.zeros_like, y)
        between = (rate,) * (len(QUARTERS) if self._samples else 2)
        jumps = jnp.broadcast_to(t, (self.jumps_kept,))
        levels = jnp.zeros((self.jumps_kept if self.tracked else 0,), t.dtype)
        return WithPast(y, Past.of(t, y, between, self.kept), jumps, levels), None

    def entered(self, field: Any, t: RealScalarLike, y: Any, state: Y) -> tuple[WithPast, Array]:
        """Returns the state after an event, which is remembered if the state or its rate jumps there.

        There is no such state if more of these events than are remembered lie within the longest delay.
        """
        t = jnp.asarray(t)
        slack = slack_of(t, field.t0)
        # a field may count the time of its jump to either side
        after = field.after(y._replace(y=state), t)(t + slack, state)
        before = field.last_rate(y, t) if self._samples else jax.tree.map(lambda rows: rows[-1], y.past.between[1])
        pairs = [*zip(*map(jax.tree.leaves, (y.y, state))), *zip(*map(jax.tree.leaves, (before, after)))]
        differ = [jnp.any(jnp.abs(a - b) > _SAME * (jnp.abs(a) + jnp.abs(b))) for a, b in pairs]
        jumped = functools.reduce(jnp.logical_or, differ, jnp.zeros((), bool))
        forgotten = y.jumps[0]
        known = (forgotten <= field.t0) | (forgotten + jnp.max(field.lags(t, state)) < t)
        jumps = jnp.where(jumped, jnp.append(y.jumps[1:], t), y.jumps)
        levels = jnp.where(jumped, jnp.append(y.levels[1:], 0.0), y.levels) if self.tracked else y.levels
        return WithPast(state, y.past, jumps, levels), known | ~jumped

    def finish(self, field: Any, y: Any) -> Y:
        """Returns only the state."""
        del field
        return y.y

    def init(self, field: Any, t: RealScalarLike, y: Any) -> PyTree:
        """Returns the memory of the method, and how long the next step may be."""
        return self.base.init(field.after(y, t), t, y.y), self._limit(field, y.jumps, jnp.asarray(t))

    def longest(self, memory: PyTree) -> Array:
        """Returns how long a step may be."""
        return memory[1]

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the size of a first step, no longer than the shortest constant delay."""
        if self.tracked:
            return self.base.coordinates.starting_step(field.after(start.y, start.t), start._replace(y=start.y.y))
        found = self.base.coordinates.starting_step(field.before_all, start._replace(y=start.y.y))
        return _least_positive(field.delays, found)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any, memory: PyTree) -> Step:
        """Advances a state with its past from `t` to `t + h`."""
        return self._step(field, t, h, y, memory[0])

    def step_for_vjp(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return self._step(field, t, h, y, self.base.init(field.after(y, t), t, y.y))

    def _step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any, memory: PyTree) -> Step:
        start, end = jnp.asarray(t), jnp.asarray(t + h)
        if not self.tracked:
            inside = field.within(y.past, start, end)
            step = self.base.step(inside, t, h, y.y, memory)
            first = memory if self.base.traits.fsal else None
            between, last = self._between(field, inside, t, h, y, step, first)
            past = y.past.then(start, end, y.y, step.y1, between)
            last = inside(end, step.y1) if last is None else last
            return self._with_past(field, t, h, y, step, past, last, between)
        pieces, rate = field.pieces(y, start)

        def through(row: tuple[Y, tuple]) -> Callable:
            return field.within(y.past.then(start, end, y.y, *row), start, end, pieces)

        def attempt(row: tuple[Y, tuple]) -> tuple[Step, tuple[Y, tuple]]:
            inside = through(row)
            step = self.base.step(inside, t, h, y.y, memory)
            return step, (step.y1, self._between(field, inside, t, h, y, step, None)[0])

        def reads_itself(step: Step) -> Array:
            middle, half = self.base.interpolate(0.5, h, y.y, step.y1, step.dense), jnp.asarray(h / 2)
            lags = field.lags(start + half, middle) - half, field.lags(end, step.y1) - half * 2
            return jnp.any(jnp.minimum(*lags) < -slack_of(end, field.t0))

        def along(place: float) -> Y:
            return jax.tree.map(lambda x, f: x + jnp.asarray(place * h).astype(x.dtype) * f, y.y, rate)

        guess = along(1.0), tuple(map(along, QUARTERS)) if self._samples else (rate, rate)
        step, row, converged = solved_within(attempt, guess, reads_itself)
        path = lambda place: self.base.interpolate(place, h, y.y, step.y1, step.dense)  # noqa: E731
        place = first_crossing(field, start, jnp.asarray(h), y.y, path, pieces)
        whole = place >= 1
        step = step._replace(
            converged=whole & converged if step.converged is None else whole & converged & step.converged,
            factor=jnp.where(whole, jnp.nan if step.factor is None else step.factor, place),
        )
        past = y.past.then(start, end, y.y, *row)
        return self._with_past(field, t, h, y, step, past, through(row)(end, step.y1), row[1])

    @property
    def _samples(self) -> bool:
        """Whether the past is the dense output of the method, and not a cubic polynomial by rates.

        A rate of a stiff equation is far off where its state is a little off.
        """
        if not isinstance(self.base, RungeKutta):
            return True
        return self.tracked and self.base.order >= _AS_CUBIC and self._interpolates

    @property
    def _interpolates(self) -> bool:
        return getattr(self.base, "interpolation", None) not in (None, diffrax.LocalLinearInterpolation)

    def _between(
        self, field: Any, inside: Callable, t: RealScalarLike, h: RealScalarLike, y: Any, step: Step, first: Y | None
    ) -> tuple[tuple[Y, ...], Y | None]:
        """Returns by what the polynomial of a step goes on between its ends, and the rate at its end if that is known.

        Args:
            field: The functions of the equation.
            inside: The vector field within the step.
            t: The time at its start.
            h: Its length.
            y: The state at its start, with its past.
            step: The result of the method.
            first: The rate at its start, if that is known.
        """
        if self._samples:
            return tuple(self.base.interpolate(s, h, y.y, step.y1, step.dense) for s in QUARTERS), None
        if first is None:
            first = inside(t, y.y) if self.tracked else field.after(y, t)(t, y.y)
        last = step.memory if self.base.traits.fsal else inside(jnp.asarray(t + h), step.y1)
        return (first, last), last

    def _with_past(
        self,
        field: Any,
        t: RealScalarLike,
        h: RealScalarLike,
        y: Any,
        step: Step,
        past: Past,
        last: Y,
        between: tuple[Y, ...],
    ) -> Step:
        end = jnp.asarray(t + h)
        new = WithPast(step.y1, past, y.jumps, y.levels)
        slack = slack_of(end, field.t0)
        if self.tracked:
            new, ends = self._passed_breaking_points(field, t, h, y, new, last)
        else:
            delays, oldest = field.delays, y.past.times[0]
            new = new._replace(y=self._with_moved_start(field, new, end, last))
            lost = (t - jnp.max(delays) < oldest - slack) & (oldest > field.t0)
            ends = jnp.where(lost | (h > jnp.min(delays) + slack), int(Status.history_too_short), 0)
            ends = jnp.where(jnp.any(delays < 0), int(Status.negative_delay), ends)
        if step.error is not None and self._knows_more_than_a_cubic:
            missed = self._missed_by_past(h, y.y, step, *between)
            error = jax.tree.map(lambda a, b: jnp.where(jnp.abs(b) > jnp.abs(a), b, a), step.error, missed)
            step = step._replace(error=error)
        return step._replace(
            y1=new,
            # the next step is on the other side of its start
            memory=(self.base.init(field.after(new, end), end, new.y), self._limit(field, new.jumps, end)),
            measured=measured_by_state(step, y.y),
            ends=ends,
        )

    @property
    def _knows_more_than_a_cubic(self) -> bool:
        return self.base.order >= _MORE_THAN_CUBIC and self._interpolates and not self._samples

    def _missed_by_past(self, h: RealScalarLike, y: Y, step: Step, first: Y, last: Y) -> Y:
        """Returns by how much the past's cubic polynomial differs from the dense output in the middle of a step.

        Later steps read the cubic polynomial, which the error of the method does not know: where a rate is a polynomial
        in time, a method of order five makes no error in a step as long as a delay, but the cubic polynomial does.
        """
        middle = self.base.interpolate(0.5, h, y, step.y1, step.dense)

        def of_leaf(middle: Array, y0: Array, y1: Array, f0: Array, f1: Array) -> Array:
            return middle - (y0 + y1) / 2 - jnp.asarray(h / 8).astype(y0.dtype) * (f0 - f1)

        return jax.tree.map(of_leaf, middle, y, step.y1, first, last)

    def _with_moved_start(self, field: Any, y: WithPast, end: Array, before: Y) -> Y:
        r"""Returns a state with the derivative that it has because a jump comes back at a time that a delay moves.

        If the initial state does not continue the history, the rate jumps at $t_0 + \tau$, from $f_-$ to $f_+$. If that
        time is later by $d\tau$ than the end of the step, the state after it changes by $(f_- - f_+) \, d\tau$. Its
        value does not change. The same applies after an event has changed the state.
        """
        gap = (_all_jumps(field, y.jumps)[:, None] + field.delays[None] - end).reshape(-1)
        fixed = jax.lax.stop_gradient(gap)
        back = jnp.abs(fixed) <= jax.lax.stop_gradient(slack_of(end, field.t0))
        return _moved(y.y, _mean(gap - fixed, back), before, field.after(y, end)(end, y.y))

    def _passed_breaking_points(
        self, field: Any, t: RealScalarLike, h: RealScalarLike, y: WithPast, new: WithPast, last: Y
    ) -> tuple[WithPast, Array]:
        r"""Returns the state after a step with the breaking point at its end, if there is one, and a code of `Status`.

        A past state of the time $\alpha(t, y) = t - \tau(t, y)$ passes the breaking point $\xi$ at the time $T$ with
        $\alpha(T, y(T)) = \xi$. That moves by $dT = (d\xi - d\alpha) / \dot\alpha$, where $d\alpha$ is the change at a
        fixed time. Where the rate jumps there, the state after it changes by $(f_- - f_+) \, dT$. Its value does not
        change.
        """
        start, end = jnp.asarray(t), jnp.asarray(t + h)
        before, _ = field.near(y, start, y.y)
        at_end, gap = field.near(y, end, new.y)
        passed = at_end & ~before
        levels = jnp.broadcast_to(field.breaking_points(y)[1], gap.shape)
        jumps_there = passed & (self.neutral | (levels == 0))
        speed = jax.lax.stop_gradient(field.speed(end, new.y, last))[:, None]
        later = (jax.lax.stop_gradient(gap) - gap) / jnp.where(speed == 0, jnp.ones_like(speed), speed)
        level = 1 + jnp.min(jnp.where(passed, levels, jnp.inf))
        found = jnp.any(passed) & (self.neutral | (level < _RETURNS))
        moved = end + _mean(later, passed)
        new = new._replace(
            jumps=jnp.where(found, jnp.append(y.jumps[1:], moved), y.jumps),
            levels=jnp.where(found, jnp.append(y.levels[1:], level), y.levels),
        )
        after = field.after(new, end)(end, new.y)
        new = new._replace(y=_moved(new.y, _mean(later, jumps_there), last, after))
        lags, oldest, slack = field.lags(end, new.y), new.past.times[0], slack_of(end, field.t0)
        # the first of the steps that are kept has lost its start
        deepest = jnp.maximum(jnp.max(field.lags(start, y.y)) - start, jnp.max(lags) - end)
        lost = (-deepest < oldest - slack) & (oldest > field.t0)
        # nor may a breaking point be forgotten where a rate that jumps is still to come
        forgotten, counts = y.jumps[0], self.neutral | (y.levels[0] == 0)
        lost = lost | (found & counts & (forgotten > field.t0) & (forgotten > -deepest))
        ahead = jnp.any(lags < -_AHEAD * h)
        codes = int(Status.negative_delay), int(Status.history_too_short)
        return new, jnp.where(ahead, codes[0], jnp.where(lost, codes[1], 0))

    def _limit(self, field: Any, jumps: Array, t: Array) -> Array:
        """Returns the length of a step that is no longer than a delay, and ends where a jump comes back."""
        if self.tracked:
            return jnp.full_like(t, jnp.finfo(t.dtype).max)
        delays, t0 = field.delays, field.t0
        later = jnp.sum(jnp.asarray(_sums(delays.shape[0]), t.dtype) * delays[None], axis=1)
        left = _all_jumps(field, jumps)[:, None] + later[None] - t
        farthest = jnp.full_like(t, jnp.finfo(t.dtype).max)
        ahead = jnp.where(left > slack_of(t, t0), left, farthest)
        return jax.lax.stop_gradient(jnp.minimum(_least_positive(delays, farthest), jnp.min(ahead)))

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Any, y1: Any, dense: Any) -> WithPast:
        """Returns the state at `t + theta * h`, with the past at the end."""
        # without what a breaking point at the end, which moves, adds to the derivatives of the state after it
        end = jax.tree.map(lambda rows: rows[-1], y1.past.states)
        return y1._replace(y=self.base.interpolate(theta, h, y0.y, end, dense))

    def empty_dense(self, y: Any) -> PyTree:
        """Returns the dense output of a step that has not been taken."""
        return self.base.empty_dense(y.y)


def check_delays(found: Any) -> None:
    """Checks what a function of delays returns.

    Raises:
        ValueError: If it is not a number or a vector of real numbers.
    """
    if not isinstance(found, jax.ShapeDtypeStruct) or found.ndim > 1 or found.size == 0:
        raise ValueError(
            f"`delays(t, y, args)` must return a number or an array of shape `(delays,)`, but returns {found}."
        )
    if jnp.issubdtype(found.dtype, jnp.complexfloating):
        raise ValueError(f"`delays(t, y, args)` must return real numbers, but returns {found.dtype}.")


def _least_positive(delays: Array, longest: Array) -> Array:
    """Returns the shortest delay; a step that is taken nevertheless reports a delay that is not positive."""
    return jnp.minimum(longest, jnp.min(jnp.where(delays > 0, delays, longest)))


def _mean(values: Array, which: Array) -> Array:
    """Returns the mean of some of the values, zero if there are none."""
    total = jnp.sum(jnp.where(which, values, jnp.zeros_like(values)))
    return total / jnp.maximum(jnp.sum(which, dtype=values.dtype), 1)


def _moved(y: Y, later: Array, before: Y, after: Y) -> Y:
    """Returns a state whose rate goes over from one to another at a later time."""
    return jax.tree.map(lambda y, b, a: y + later.astype(y.dtype) * (b - a), y, before, after)


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
