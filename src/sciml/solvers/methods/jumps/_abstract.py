"""The common part of methods for reactions: a state with the next reaction, and steps that end there.

The loops choose the length of a step by its error and by the method's maximum. Here nothing is estimated, and the most
is the time that is left until the next reaction, or the next leap. That time, and how many numbers have been drawn, are
part of the loop's state: every step is a function of that state and of the key.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, UInt32

from ...._interfaces._reactions import AbstractReactions
from ...._jax._ad_modes import not_differentiated
from ...._jax._vma import match
from ...._status import Status
from ...._types import Args, RealScalarLike
from ...control._pid import Control, FirstStep
from ...noise._random_bits import threefry
from ...terms._split_field import close_split_field
from .._capabilities import Coordinates, Hooks, Limits, Traits
from .._stepper import AbstractStepper, Step


class ReactionsWithKey(eqx.Module):
    """Reactions and the words of a random key."""

    reactions: AbstractReactions
    words: UInt32[Array, " 2"]

    def __call__(self, t: RealScalarLike, y: Any, args: Args) -> Any:
        """Returns the rate equations."""
        return self.reactions.rate_equations(t, y, args)


class ReactionState(NamedTuple):
    """A state of the loops.

    Attributes:
        x: The counts.
        number: How many times numbers have been drawn, a floating-point number as the loops carry it; it starts again
            where the next would not differ from it.
        rounds: How often it has done so.
        left: The time until what comes next.
        leaps: 1 where that is a leap over many reactions, 0 where it is one reaction.
    """

    x: Array
    number: Array
    rounds: Array
    left: Array
    leaps: Array


_MOST_DRAWS = 2.0**31  # they count as words of 32 bits

CONTROL = Control(factormin=0.5, factormax=1e30)
"""Steps are as long as the method allows, and half as long where one led to a negative count."""


class AbstractReactionStepper(AbstractStepper):
    """A method for reactions."""

    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = 1
    has_error: ClassVar[bool] = True
    # nothing changes between reactions
    traits: ClassVar[Traits] = Traits(
        transforms_state=True, knows_within=True, jumps=True, field_is_rate=False, knows_rate=False
    )

    @property
    def limits(self) -> Limits:
        """By what comes next."""
        return Limits(longest=self.longest)

    @property
    def coordinates(self) -> Coordinates:
        """Counts, with what comes next."""
        return Coordinates(
            self.close, self.starting_step, prepare=self.prepare, finish=self.finish, entered=self.entered
        )

    @property
    def hooks(self) -> Hooks:
        """It has the state within a step."""
        return Hooks(within=self.within)

    @abc.abstractmethod
    def plan(self, field: Any, t: RealScalarLike, counts: ReactionState) -> tuple[Array, Array]:
        """Returns the time until what comes next, and whether it is a leap."""

    def close(self, model: Callable, t: Array, y: Any, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the reactions as closed functions, with their operands."""
        del h
        if not isinstance(model, ReactionsWithKey):
            raise TypeError(f"`solver={type(self).__name__}()` requires a reaction model, a `sciml.Reactions`.")
        word = jnp.zeros((), jnp.uint32)
        return close_split_field(
            model,
            args,
            {
                "field": (lambda model, args, t, x: model.reactions.rate_equations(t, x, args), (t, y)),
                "rates": (_rates, (y,)),
                "changes": (lambda model, args, x: model.reactions.changes(x.dtype), (y,)),
                "bits": (lambda model, args, a, b: threefry(model.words, a, b), (word, word)),
            },
        )

    def prepare(self, field: Any, t: RealScalarLike, y: Any) -> tuple[ReactionState, None]:
        """Returns the state to start from."""
        zero = match(jnp.zeros((), y.dtype), y)
        start = ReactionState(y, zero, zero, zero, zero)
        left, leaps = self.plan(field, t, start)
        return start._replace(left=left, leaps=leaps), None

    def entered(self, field: Any, t: RealScalarLike, y: Any, state: Any) -> tuple[ReactionState, None]:
        """Returns the state after an event has changed the counts: the next reaction is drawn again."""
        after = _next_draw(y)._replace(x=state)
        left, leaps = self.plan(field, t, after)
        return after._replace(left=left, leaps=leaps), None

    def within(self, field: Any, t: Array, h: Array, y: Any, step: Step) -> Callable[[Array], ReactionState]:
        """Returns the state while it waits for what comes at the end of a step."""
        del field, t, step
        return lambda place: y._replace(left=y.left - place * h)

    def finish(self, field: Any, y: Any) -> Array:
        """Returns the counts."""
        del field
        return y.x

    def init(self, field: Any, t: RealScalarLike, y: Any) -> PyTree:
        """Returns the time until what comes next."""
        del field, t
        return y.left

    def longest(self, memory: PyTree) -> Array:
        """Returns the time until what comes next."""
        return memory

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the length of the interval: steps are as long as the method allows."""
        del field
        return start.span

    def after(
        self, field: Any, t: RealScalarLike, h: RealScalarLike, counts: ReactionState, x: Array, done: Array
    ) -> Step:
        """Returns a step to given counts, and what comes after it.

        Args:
            field: The reactions.
            t: The time at its start.
            h: Its length.
            counts: The state at its start.
            x: The counts at its end.
            done: Whether the planned reaction has happened.
        """
        waiting = counts._replace(left=counts.left - h)
        there = _next_draw(counts)._replace(x=x)
        left, leaps = self.plan(field, t + h, there)
        moved = there._replace(left=left, leaps=leaps)
        y1 = jax.tree.map(lambda a, b: jnp.where(done, a, b), moved, waiting)
        good = jnp.all(field["rates"](counts.x) >= 0) & jnp.all(field["rates"](y1.x) >= 0)
        y1 = y1._replace(x=jnp.where(good, y1.x, jnp.full_like(y1.x, jnp.nan)))
        zero = jax.tree.map(jnp.zeros_like, counts)
        ends = jnp.where(good, int(Status.successful), int(Status.negative_propensity))
        return Step(y1, zero, memory=y1.left, measured=(zero.x, jnp.ones_like(x)), ends=ends)


def _next_draw(counts: ReactionState) -> ReactionState:
    """Returns a state for which numbers are drawn again."""
    full = counts.number + 1 >= min(1 / float(jnp.finfo(counts.x.dtype).eps), _MOST_DRAWS)
    number = jnp.where(full, jnp.zeros_like(counts.number), counts.number + 1)
    return counts._replace(number=number, rounds=counts.rounds + full.astype(counts.x.dtype))


def _rates(model: ReactionsWithKey, args: Args, x: Array) -> Array:
    return not_differentiated(model.reactions.rates(x, args), _NO_DERIVATIVE)


_NO_DERIVATIVE = (
    "The path of a jump process has no useful derivative: its counts are integers, and do not change with a small "
    "change of a rate. Differentiate the mean with `rate_equations`, or the paths of the large-count limit, "
    "`langevin()`."
)


def uniforms(field: Any, counts: ReactionState) -> tuple[Array, Array]:
    """Returns two numbers that are uniform between 0 and 1, neither of them included, for the next draw."""
    words = field["bits"](counts.number.astype(jnp.uint32), counts.rounds.astype(jnp.uint32))
    first, second = ((x >> jnp.uint32(9)).astype(wide(counts.x)) for x in words)
    return (first + 0.5) * 2.0**-23, (second + 0.5) * 2.0**-23


def wide(x: Array) -> Any:
    """Returns a dtype in which numbers between 0 and 1 are fine enough."""
    return x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.float32


def waiting_time(field: Any, counts: ReactionState) -> Array:
    """Returns a time until the next reaction; the largest number where there is none to come."""
    total = jnp.sum(field["rates"](counts.x))
    known = jnp.where(total > 0, total, jnp.ones_like(total))
    return jnp.where(
        total > 0,
        -jnp.log(uniforms(field, counts)[0]).astype(total.dtype) / known,
        jnp.full_like(total, jnp.finfo(total.dtype).max),
    )


def one_reaction(field: Any, counts: ReactionState) -> Array:
    """Returns the counts after one reaction, which each is with a probability as its propensity."""
    ends = jnp.cumsum(field["rates"](counts.x).astype(wide(counts.x)))
    chosen = uniforms(field, counts)[1] * ends[-1]
    before = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
    happens = (chosen >= before) & (chosen < ends)
    return counts.x + jnp.sum(jnp.where(happens[:, None], field["changes"](counts.x), 0), axis=0)
