r"""Steps that follow the fastest wave of the state as it is.

With the rate $r$ at which the fastest wave crosses cells at the start of a step, its length is $h = C / r$, where $C$
is the Courant number. A step that ends at a state that may not be, such as a negative pressure, is tried again with
half the length. Each member of an ensemble has its own waves, and its own steps.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...control._pid import Control, FirstStep, Tolerances
from ...terms._split_field import close_split_field
from .._capabilities import Coordinates, Hooks, Limits
from .._stepper import AbstractStepper, Step, step_for_vjp
from .._structured_solver import AbstractStructuredStepper
from ._wrapped import AbstractWrappedStepper

UNLIMITED = Control(safety=1.0, factormin=0.5, factormax=10.0)
"""How a step changes that no error limits: by half where it failed, and up to the fastest wave otherwise."""


def no_tolerances(dtype: Any) -> Tolerances:
    """Returns tolerances under which a step without a failure has no error."""
    return Tolerances(jnp.zeros((), dtype), jnp.ones((), dtype))


class FollowingWaves(AbstractWrappedStepper):
    """A method whose steps are as long as the fastest wave allows.

    Attributes:
        base: The method.
        number: The Courant number.
        measures: Whether the error of its steps also limits them.
    """

    base: AbstractStepper
    number: float = eqx.field(static=True)
    measures: bool = eqx.field(static=True)

    @property
    def limits(self) -> Limits:
        """The limits of the method, and the fastest wave."""
        return super().limits._replace(longest=self.longest)

    @property
    def coordinates(self) -> Coordinates:
        """The functions of the method, with the model's wave speeds."""
        return super().coordinates._replace(close=self.close, starting_step=self.starting_step)

    @property
    def hooks(self) -> Hooks:
        """The hooks of the method: in gradients its steps stay the same."""
        return super().hooks._replace(step_for_vjp=partial(step_for_vjp, self.base))

    @property
    def has_error(self) -> bool:
        """Whether its steps can be rejected: for a failure, or for their error."""
        return True

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model with the rate of its fastest wave and which states it admits, with their operands."""
        del h
        functions: dict = {"field": (lambda model, args, t, y: model(t, y, args), (t, y))}
        if isinstance(self.base, AbstractStructuredStepper):
            functions = self.base.functions(model, t, y, args)
        functions["rate"] = (_rate, (t, y))
        if hasattr(model, "admissible"):
            functions["admissible"] = (lambda model, args, t, y: model.admissible(y), (t, y))
        return close_split_field(model, args, functions)

    def init(self, field: Any, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the memory of the method, and the rate at the start."""
        return self.base.init(field, t, y), field["rate"](t, y)

    def longest(self, memory: PyTree) -> Array:
        """Returns the length of a step in which the fastest wave goes as far as it may."""
        inner, rate = memory
        moves = rate != 0
        longest = jnp.where(moves, self.number / jnp.where(moves, rate, jnp.ones_like(rate)), jnp.inf)
        other = self.base.limits.longest(inner)
        return longest if other is None else jnp.minimum(longest, other)

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the size of a first step, positive."""
        longest = jnp.minimum(self.longest(self.init(field, start.t, start.y)), start.span)
        if not self.measures:
            return longest
        return jnp.minimum(longest, self.base.coordinates.starting_step(field, start))

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`, or reports that the state at its end is not admissible."""
        step = self.base.step(field, t, h, y, memory[0])
        rate = field["rate"](t + h, step.y1)
        finite = jnp.ones((), bool)
        for x in jax.tree.leaves(step.y1):
            finite = finite & jnp.all(jnp.isfinite(x))
        fine: BoolScalarLike = jnp.isfinite(rate)
        if "admissible" in field.functions:
            fine = fine & field["admissible"](t + h, step.y1)
        fine = ~finite | fine  # what is not finite is another failure
        fine = fine if step.admissible is None else fine & step.admissible
        step = step._replace(memory=(step.memory, rate), admissible=fine)
        if self.measures:
            return step
        failure = jnp.where(finite & fine, jnp.zeros_like(rate), jnp.full_like(rate, jnp.nan))
        return step._replace(error=step.y1, measured=(failure, jnp.zeros_like(failure)))


def _rate(model: Any, args: Args, t: Array, y: Y) -> Array:
    rate = jax.lax.stop_gradient(jnp.asarray(model.crossing_rate(t, y, args)))
    return jnp.abs(rate).astype(jnp.asarray(t).dtype)
