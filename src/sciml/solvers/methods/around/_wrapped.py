"""A one-step method around another, which is like that one in all that it does not say itself."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Inexact, PyTree

from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...control._criterion import Criterion
from ...control._stability import Stability
from .._stepper import AbstractStepper, BoundField


class AbstractWrappedStepper(AbstractStepper):
    """A method around another.

    Attributes:
        base: The other.
    """

    base: eqx.AbstractVar[AbstractStepper]

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.base.order

    @property
    def error_order(self) -> float:
        """The power of the step size that the error estimate goes with."""
        return self.base.error_order

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step."""
        return self.base.evaluations

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return self.base.has_error

    @property
    def limited_by_waves(self) -> bool:
        """Whether steps that follow the fastest wave make sense."""
        return self.base.limited_by_waves

    @property
    def fsal(self) -> bool:
        """Whether the start evaluates the vector field."""
        return self.base.fsal

    @property
    def dense(self) -> bool:
        """Whether it interpolates within a step."""
        return self.base.dense

    @property
    def rough(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether its solution between steps is a line, and would be another with shorter steps."""
        return self.base.rough

    @property
    def elementwise(self) -> bool:
        """Whether small states of many members run element by element."""
        return self.base.elementwise

    @property
    def batched_vjp(self) -> bool:
        """Whether a step of many members is transposed as a whole."""
        return self.base.batched_vjp

    @property
    def stability(self) -> Stability | None:
        """For which steps times eigenvalues it is stable."""
        return self.base.stability

    @property
    def says_spectrum(self) -> bool:
        """Whether it knows the eigenvalues of any model."""
        return self.base.says_spectrum

    def spectrum(self, model: Callable, t: Array, y: Y, args: Args) -> Inexact[Array, " eigenvalues"]:
        """Returns the eigenvalues that limit its steps."""
        return self.base.spectrum(model, t, y, args)

    def use_full_budget(self, state_bytes: int) -> bool:
        """Whether a step takes far longer than to set up the memory that it is recorded in."""
        return self.base.use_full_budget(state_bytes)

    @property
    def elementwise_dense(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it interpolates each number of a state alone."""
        return self.base.elementwise_dense

    @property
    def cuts_fixed_steps(self) -> bool:
        """Whether steps of one length, too, are no longer than `longest` says."""
        return self.base.cuts_fixed_steps

    @property
    def knows_rate(self) -> bool:
        """Whether `rate` is the rate of the state."""
        return self.base.knows_rate

    def rate(self, field: BoundField, t: RealScalarLike, y: Y) -> Y:
        """Returns the rate of a state."""
        return self.base.rate(field, t, y)

    @property
    def field_is_rate(self) -> bool:
        """Whether the vector field is the rate of the state."""
        return self.base.field_is_rate

    @property
    def history(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether a step depends on the steps before it, by the memory."""
        return self.base.history

    def judged(self, criterion: Criterion) -> AbstractStepper:
        """Returns the method for one step under error control."""
        base = self.base.judged(criterion)
        return self if base is self.base else dataclasses.replace(self, base=base)

    def close(self, model: Callable, t: Array, y: Y, args: Any, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model as what the steps need of it, with its operands."""
        return self.base.close(model, t, y, args, h)

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns a state to start from, and whether one was found."""
        return self.base.prepare(field, t, y)

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the memory that a step from `(t, y)` starts with."""
        return self.base.init(field, t, y)

    def starting_step(self, *arguments: Any, **options: Any) -> Array:
        """Returns the size of a first step, positive."""
        return self.base.starting_step(*arguments, **options)

    def aligned(self, field: BoundField, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a step near one that error control chose."""
        return self.base.aligned(field, t, h)

    def rest(self, field: BoundField, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a fixed step: what is left of one that an event has cut."""
        return self.base.rest(field, t, h)

    def at_rest(self, memory: PyTree, y1: Y, clipped: Y) -> PyTree:
        """Returns the memory of a step at whose end some elements were set to zero."""
        return self.base.at_rest(memory, y1, clipped)

    def longest(self, memory: PyTree) -> Array | None:
        """Returns the longest step that the method can take with a memory."""
        return self.base.longest(memory)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`."""
        return self.base.interpolate(theta, h, y0, y1, dense)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns `Step.dense` for a step that has not been taken."""
        return self.base.empty_dense(y)
