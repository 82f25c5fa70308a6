"""The common part of methods for equations with noise."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._types import Args, RealScalarLike, Y
from ...control._pid import FirstStep, initial_step
from ...noise._closed_noise import BoundNoisyField, NoisyField, close_noise
from .._capabilities import Coordinates, Limits, Traits
from .._stepper import AbstractStepper, Step

_LONGEST_FIRST_STEP = 0.01  # of the interval, for the first step: how fast noise moves a state is not known beforehand
_SHORTEST_FIRST_STEP = 1e-4


class AbstractStochasticStepper(AbstractStepper):
    """A method that advances a state by drift and noise; between its steps the solution is a line.

    Attributes:
        interpretation: In which sense it solves, "ito" or "stratonovich".
        with_area: Whether it takes space-time Levy areas.
        with_levy: Whether it takes the Levy areas of pairs of Brownian motions, where noise may not commute.
        any_driver: Whether it solves equations with jumps: it uses only increments, multiplied by the diffusion at the
            start of the step.
        has_error: Whether its steps estimate their error.
    """

    interpretation: ClassVar[str] = "ito"
    with_area: ClassVar[bool] = False
    with_levy: ClassVar[bool] = False
    any_driver: ClassVar[bool] = False
    # the drift is not the rate of the state
    traits: ClassVar[Traits] = Traits(
        dense=True, elementwise_dense=True, batched_vjp=True, rough=True, field_is_rate=False, knows_rate=False
    )

    @property
    def limits(self) -> Limits:
        """By the points of the path."""
        return Limits(aligned=self.aligned, rest=self.rest)

    @property
    def coordinates(self) -> Coordinates:
        """The functions of the state, with diffusion and increments."""
        return Coordinates(self.close, self.starting_step)

    @property
    def takes_past(self) -> bool:
        """Whether it only evaluates drift and diffusion, which may then also get past states."""
        return type(self).close is AbstractStochasticStepper.close

    @property
    def order(self) -> int:
        """The power of the step size that its errors, in the mean, go with at least."""
        return 1

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return False

    @abc.abstractmethod
    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, Y | None]:
        """Returns the state after a step and an estimate of its error, or None."""

    def check(self, field: NoisyField) -> None:
        """Checks that it can solve equations with such noise.

        Raises:
            ValueError: If it cannot.
        """

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns drift, diffusion and increments as closed functions, with their operands."""
        del h
        field, operands = close_noise(model, t, y, args, self.interpretation, self.with_area, None, self.with_levy)
        self.check(field)
        return field, operands

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        y1, error = self.advance(field, t, h, y)
        return Step(y1, error, memory=memory)

    def aligned(self, field: Any, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a step that ends where the path has a point.

        A path is so rough that a step that differs by rounding sees another increment, from which the next step differs
        far more: after some steps members would differ from single solves.
        """
        return field.aligned(t, h)

    def rest(self, field: Any, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a fixed step: what is left of one that an event has cut."""
        return field.rest(t, h)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state on the line between the ends of a step."""
        del h, dense
        return jax.tree.map(lambda a, b: a + jnp.asarray(theta, a.dtype) * (b - a), y0, y1)

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the size of a first step: by the drift, and between certain parts of the interval."""
        by_drift = initial_step(field, start, self.order + 1)
        return jnp.clip(by_drift, _SHORTEST_FIRST_STEP * start.span, _LONGEST_FIRST_STEP * start.span)


def plus(y: Y, *terms: Y) -> Y:
    """Returns a state with others added to it."""
    return jax.tree.map(lambda x, *more: sum(more, x), y, *terms)


def scaled(factor: RealScalarLike, y: Y) -> Y:
    """Returns a state times a number, in the state's dtypes."""
    return jax.tree.map(lambda x: jnp.asarray(factor, x.dtype) * x, y)


def combined(weights: tuple[float, ...], stages: list[Y]) -> list[Y]:
    """Returns a weighted sum of stages, as a list that is empty where all weights are zero."""
    terms = [scaled(w, stage) for w, stage in zip(weights, stages) if w != 0]
    return [plus(*terms)] if terms else []
