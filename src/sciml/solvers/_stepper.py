"""What a one-step method must offer to the loops."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
from jaxtyping import PyTree

from .._types import BoolScalarLike, RealScalarLike, Y

BoundField: TypeAlias = Callable[[RealScalarLike, Y], Y]
"""A vector field with its parameters bound, `f(t, y)`."""


class Step(NamedTuple):
    """What one step produces.

    Attributes:
        y1: The state at the end of the step.
        error: An estimate of the local error, with the structure of `y1`; None where the method has none.
        dense: What `interpolate` needs beside the two states, a PyTree of arrays.
        memory: What the next step reuses.
        solvable: Whether the step's linear system had a solution; None where it had no system to solve.
    """

    y1: Y
    error: Y | None
    dense: PyTree
    memory: PyTree
    solvable: BoolScalarLike | None = None


class AbstractStepper(eqx.Module):
    """A one-step method that advances one member.

    Attributes:
        order: The order of the method.
        error_order: The power of the step size that the error estimate goes with.
        has_error: Whether its steps estimate their error.
        evaluations: Evaluations of the vector field per step.
        fsal: Whether `first` evaluates the vector field.
    """

    order: eqx.AbstractVar[int]
    error_order: eqx.AbstractVar[int]
    has_error: eqx.AbstractVar[bool]
    evaluations: eqx.AbstractVar[int]
    fsal: eqx.AbstractVar[bool]

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns a state to start from, and whether one was found; None where every state will do."""
        del field, t
        return y, None

    @abc.abstractmethod
    def first(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the memory that a step from `(t, y)` starts with."""

    @abc.abstractmethod
    def blank_dense(self, y: Y) -> PyTree:
        """Returns `dense` for a step that has not been taken: the solution stays at `y`."""

    @abc.abstractmethod
    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`; `h` is negative backwards in time."""

    @abc.abstractmethod
    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`, for `theta` in [0, 1]; linear in `y0`, `y1`, `dense`."""
