"""What a one-step method must offer to the loops."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Inexact, PyTree

from ..._types import Args, BoolScalarLike, RealScalarLike, Y
from ..control._pid import Norm, Tolerances, initial_step
from ..control._stability import Stability, spectrum_of
from ..terms._field import BoundField as BoundField, close_field


class Step(NamedTuple):
    """What one step produces.

    Attributes:
        y1: The state at the end of the step.
        error: An estimate of the local error, with the structure of `y1`; None where the method has none.
        dense: What `interpolate` needs beside the two states, a PyTree of arrays.
        memory: What the next step reuses.
        solvable: Whether the step's linear system had a solution; None where it had no system to solve.
        measured: Error and state as the tolerances measure them, where that is not in the loop's own variables.
    """

    y1: Y
    error: Y | None
    dense: PyTree
    memory: PyTree
    solvable: BoolScalarLike | None = None
    measured: tuple[Y, Y] | None = None


class AbstractStepper(eqx.Module):
    """A one-step method that advances one member.

    Attributes:
        order: The order of the method.
        error_order: The power of the step size that the error estimate goes with.
        has_error: Whether its steps estimate their error.
        evaluations: Evaluations of the vector field per step; -1 where it differs from step to step.
        fsal: Whether `first` evaluates the vector field.
        lands: Whether steps end at saved times, for a method that has nothing to interpolate by.
        elementwise: Whether small states of many members run element by element; not where steps transform fields.
        symmetric: Whether a step back from the end of a step returns to its start.
        batched_vjp: Whether a step of many members is transposed as a whole where they share what is large; not where
            it solves systems or loops, which takes minutes to compile.
    """

    order: eqx.AbstractVar[int]
    error_order: eqx.AbstractVar[int]
    has_error: eqx.AbstractVar[bool]
    evaluations: eqx.AbstractVar[int]
    fsal: eqx.AbstractVar[bool]
    lands: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False
    batched_vjp: ClassVar[bool] = False

    @property
    def stability(self) -> Stability | None:
        """For which steps times eigenvalues it is stable; None where none is too long."""
        return None

    def use_full_budget(self, state_bytes: int) -> bool:
        """Whether a step takes far longer than to set up the memory that it is recorded in."""
        del state_bytes
        return False

    @property
    def says_spectrum(self) -> bool:
        """Whether it knows the eigenvalues of any model."""
        return False

    def spectrum(self, model: Callable, t: Array, y: Y, args: Args) -> Inexact[Array, " eigenvalues"]:
        """Returns the eigenvalues that limit its steps."""
        return spectrum_of(model, t, y, args)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model as what the steps need of it, with its operands.

        Args:
            model: The model.
            t: The start time.
            y: The initial state.
            args: What the model takes beside time and state.
            h: The length of all steps, signed, where that is known.
        """
        del h
        return close_field(model, t, y, args, self.evaluations)

    def finish(self, field: BoundField, y: Y) -> Y:
        """Returns the state that one of the loop stands for; linear."""
        del field
        return y

    def starting_step(
        self,
        field: BoundField,
        t: Array,
        y: Y,
        direction: Array,
        span: Array,
        tolerances: Tolerances,
        norm: Norm | None = None,
    ) -> Array:
        """Returns the size of a first step, positive."""
        return initial_step(field, t, y, direction, span, tolerances, self.order, norm)

    def longest(self, memory: PyTree) -> Array | None:
        """Returns the longest step that the method can take with a memory, positive; None where any will do."""
        del memory

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

    def retraced(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return self.step(field, t, h, y, self.first(field, t, y))

    @abc.abstractmethod
    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`, for `theta` in [0, 1]; linear in `y0`, `y1`, `dense`."""
