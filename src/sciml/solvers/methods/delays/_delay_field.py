"""The closed functions of a delay equation: its rate, its history and its delays, bound to the past."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...._interfaces._delayed import AbstractDelayed
from ...._jax._vma import match
from ...._types import Args, RealScalarLike, Y
from ...terms._field import AbstractField, literals_as_arrays
from ...terms._split_field import BoundSplitField, SplitField
from ._past import Past

_SLACK = 16.0
"""Roundings of a time within which two are the same."""


def slack_of(*times: Array) -> Array:
    """Returns the difference of times of such sizes up to which they are the same."""
    largest = jnp.abs(times[0])
    for time in times[1:]:
        largest = jnp.maximum(largest, jnp.abs(time))
    return _SLACK * jnp.finfo(largest.dtype).eps * largest


def history_of(model: AbstractDelayed, t: Array, y: Y, args: Args) -> Callable[[AbstractDelayed, Args, Array], Y]:
    """Returns the state before the start, a function `(model, args, t)` whose results are arrays like a state.

    Raises:
        ValueError: If the structure, the shapes or the dtypes of the history are not those of the state.
    """
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), y)

    def history(model: AbstractDelayed, args: Args, t: Array) -> Y:
        found = literals_as_arrays(model.before(t, args), like)
        return jax.tree.map(lambda x, of: jnp.asarray(x, None if hasattr(x, "dtype") else of.dtype), found, like)

    before = jax.eval_shape(lambda t: history(model, args, t), t)
    kinds = [[(x.shape, x.dtype.name) for x in jax.tree.leaves(tree)] for tree in (like, before)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"`history` must be a state like `y0`, {kinds[0]}, but is {kinds[1]}.")
    return history


class DelayedFrom(eqx.Module):
    """A delay equation and the time at which it starts."""

    model: AbstractDelayed
    t0: Array

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns the rate if all past states are before the start."""
        t = jnp.asarray(t, self.t0.dtype)
        one, before = jnp.ones_like(t), lambda s: self.model.before(s, args)
        if not self.model.neutral:
            return self.model.rate(t, y, tuple(before(t - d) for d in self.delays(t, y, args)), args)
        pairs = [jax.jvp(before, (t - d,), (one,)) for d in self.delays(t, y, args)]
        return self.model.rate(t, y, tuple(zip(*pairs)), args)  # pyright: ignore[reportArgumentType]

    def delays(self, t: Array, y: Y, args: Args) -> list[Array]:
        """Returns the delays, in the dtype of a time."""
        delays = self.model.delays
        found = jnp.asarray(delays(t, y, args) if callable(delays) else delays)
        return list(found.reshape(-1).astype(self.t0.dtype))

    def jumps(self, like: Array) -> Array:
        """Returns when the history jumps, in the dtype of a time."""
        return self.model.history_jumps.astype(like.dtype)


class WithPast(NamedTuple):
    """A state with the steps that led to it.

    Attributes:
        y: The state.
        past: The steps.
        jumps: The last breaking points, times at which the solution is not smooth, the start where there was none:
            those at events, and of delays that are tracked those that come back.
        levels: How often each has come back, where delays are tracked; of none otherwise.
    """

    y: Y
    past: Past
    jumps: Float[Array, " jumps"]
    levels: Float[Array, " levels"]


class Pieces(NamedTuple):
    """The breaking points between which the past states of a step are, for each delay."""

    low: Float[Array, " delays"]
    high: Float[Array, " delays"]


class DelayField(AbstractField):
    """The closed functions of a delay equation.

    Attributes:
        tracked: Whether breaking points are found on the way: delays are functions, or the equation is neutral.
        neutral: Whether the rate depends on past rates.
    """

    def __init__(self, functions: SplitField, tracked: bool, neutral: bool):
        self.functions, self.reads_time, self.has_rules = functions, True, functions.has_rules
        self.tracked, self.neutral = tracked, neutral

    def __call__(self, t: RealScalarLike, y: Any, operands: list) -> Any:
        """Returns the rate of a state with its past, which does not change between steps."""
        return self.bind(operands)(t, y)

    def bind(self, operands: list, whole: bool = True) -> "BoundDelayField":
        """Returns the functions with their operands."""
        return BoundDelayField(self.functions.bind(operands, whole), self.tracked, self.neutral)


class BoundDelayField:
    """The functions of a delay equation with their operands."""

    def __init__(self, functions: BoundSplitField, tracked: bool, neutral: bool):
        self._functions, self.tracked, self.neutral = functions, tracked, neutral

    def __call__(self, t: RealScalarLike, y: Any) -> Any:
        """Returns the rate of a state with its past."""
        return jax.tree.map(jnp.zeros_like, y)._replace(y=self.after(y, t)(t, y.y))

    @property
    def delays(self) -> Array:
        """The constant delays, in the order in which they were given."""
        return self._functions["delays"]()

    def lags(self, t: Array, y: Y) -> Array:
        """Returns the delays at a time and a state."""
        return self._functions["delays"](t, y) if self.tracked else self.delays

    @property
    def t0(self) -> Array:
        """The start of the solve."""
        return self._functions["t0"]()

    @property
    def jumps(self) -> Array:
        """When the history jumps."""
        return self._functions["jumps"]()

    def slope_before(self, t: Array) -> Y:
        """Returns the rate of the history."""
        return jax.jvp(self._functions["history"], (t,), (match(jnp.ones_like(t), t),))[1]

    def before_all(self, t: RealScalarLike, y: Y) -> Y:
        """Returns the rate of a state at the start, if all past states are before it."""
        delayed = tuple(self._functions["history"](t - delay) for delay in self.delays)
        return self._functions["field"](t, delayed, y)

    def within(
        self, past: Past, start: Array, end: Array, pieces: Pieces | None = None
    ) -> Callable[[RealScalarLike, Y], Y]:
        """Returns the vector field for a step from start to end, of a state with such a past.

        If a past state is at an end of that step, shifted by its delay, it belongs to the inside of the step. Of
        delays that are tracked, past states are between the two breaking points that they are between at the start.
        """
        slack = slack_of(start, end, self.t0)

        def read(then: Array, inside: Array, before: Array) -> Y:
            before, found = self._functions["history"](before), past.at(then, inside)
            return jax.tree.map(lambda a, b: jnp.where(inside < self.t0, a, b), before, found)

        def at_constant(t: Array, delay: Array) -> Y:
            inside = jax.lax.stop_gradient(jnp.clip(t, start + slack, jnp.maximum(end - slack, start + slack)) - delay)
            before = t - delay
            if self.jumps.size:  # of a history that jumps there, too
                before = before + jax.lax.stop_gradient(inside - before)
            return read(t - delay, inside, before)

        def at_tracked(t: Array, delay: Array, low: Array, high: Array) -> tuple[Y, Y]:
            then = t - delay
            inside = jnp.clip(jnp.minimum(then, t), low + slack, high - slack)
            inside = jax.lax.stop_gradient(inside)
            then = inside + (then - jax.lax.stop_gradient(then))  # beyond a breaking point the state there
            if not self.neutral:
                found = read(then, inside, then)
                return found, found
            return jax.jvp(lambda s: read(s, inside, s), (then,), (match(jnp.ones_like(then), then),))

        def field(t: RealScalarLike, y: Y) -> Y:
            t = jnp.asarray(t, start.dtype)
            if pieces is None:
                return self._functions["field"](t, tuple(at_constant(t, delay) for delay in self.delays), y)
            found = [at_tracked(t, *each) for each in zip(self.lags(t, y), *pieces)]
            states, rates = (tuple(each) for each in zip(*found))
            return self._functions["field"](t, (states, rates) if self.neutral else states, y)

        return field

    def after(self, y: WithPast, t: RealScalarLike) -> Callable[[RealScalarLike, Y], Y]:
        """Returns the vector field for a step that starts at a time, from a state with its past."""
        t = jnp.asarray(t)
        if self.tracked:
            return self.within(y.past, t, t, self.pieces(y, t)[0])
        return self.within(y.past, t, t + jnp.min(self.delays))

    def last_rate(self, y: WithPast, t: Array) -> Y:
        """Returns the rate at the end of the last step, as that step has it."""
        begin, start = y.past.begins[-1], jax.tree.map(lambda rows: rows[-1], y.past.starts)
        pieces = self.pieces(y._replace(y=start), begin)[0] if self.tracked else None
        return self.within(y.past, begin, t, pieces)(t, y.y)

    def breaking_points(self, y: WithPast) -> tuple[Array, Array]:
        """Returns when the solution is not smooth, in the history, on the way and at the start, and the levels."""
        t0, jumps = self.t0, self.jumps
        levels = [jnp.zeros(jumps.shape, t0.dtype), y.levels, jnp.zeros((1,), t0.dtype)]
        return jnp.concatenate([jumps, y.jumps, t0[None]]), jnp.concatenate(levels)

    def pieces(self, y: WithPast, t: Array) -> tuple[Pieces, Y]:
        """Returns between which breaking points the past states of a step are that starts at a time, and a first rate.

        A past state at a breaking point is after it, unless it moves backwards.
        """
        y, t = jax.lax.stop_gradient((y, t))
        then = t - self.lags(t, y.y)
        gap, slack = self._gaps(y, t, then)
        near = jnp.abs(gap) <= slack
        points = jnp.broadcast_to(self.breaking_points(y)[0], gap.shape)

        def between(rises: Bool[Array, " delays"]) -> Pieces:
            below = (gap > slack) | (near & rises[:, None])
            low = jnp.max(jnp.where(below, points, -jnp.inf), axis=1)
            high = jnp.min(jnp.where(below, jnp.inf, points), axis=1)
            return jax.lax.stop_gradient(Pieces(low, high))

        upwards = between(jnp.ones(then.shape, bool))
        rate = self.within(y.past, t, t, upwards)(t, y.y)
        return between(self.speed(t, y.y, rate) >= 0), rate

    def _gaps(self, y: WithPast, t: Array, then: Array) -> tuple[Float[Array, "delays points"], Array]:
        gap = then[:, None] - self.breaking_points(y)[0][None]
        return gap, slack_of(t, self.t0, jnp.max(jnp.abs(t - then)))

    def near(
        self, y: WithPast, t: Array, state: Y
    ) -> tuple[Bool[Array, "delays points"], Float[Array, "delays points"]]:
        """Returns at which breaking points the past states of a state are, and how far after each they are."""
        gap, slack = self._gaps(y, t, t - self.lags(t, state))
        return jax.lax.stop_gradient(jnp.abs(gap) <= slack), gap

    def speed(self, t: Array, y: Y, rate: Y) -> Float[Array, " delays"]:
        """Returns how fast the times of past states move, one for a constant delay."""
        rate = jax.tree.map(lambda f, x: f.astype(x.dtype), rate, y)
        t, y, rate = match((t, y, rate), (t, y, rate))
        return jax.jvp(lambda t, y: t - self.lags(t, y), (t, y), (match(jnp.ones_like(t), t), rate))[1]
