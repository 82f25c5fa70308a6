"""What a one-step method must offer to the loops, and what it may."""

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact, PyTree

from ..._structure_words import first_difference, structure_words
from ..._types import Args, BoolScalarLike, IntScalarLike, RealScalarLike, Y
from ..control._criterion import Criterion
from ..control._pid import Norm, Tolerances, initial_step
from ..control._stability import Stability, spectrum_of
from ..terms._field import BoundField as BoundField, close_field


class Step(NamedTuple):
    """What one step of an `AbstractStepper` produces.

    Attributes:
        y1: The state at the end of the step.
        error: An estimate of the local error, with the structure of `y1`; None where the method has none.
        dense: What `interpolate` needs beside the two states, a PyTree of arrays.
        memory: What the next step reuses.
        solvable: Whether the step's system had a solution; None where it had no system to solve. Where not, the step is
            tried again with a shorter length, or with fixed steps the member fails.
        measured: Error and state as the tolerances measure them, where that is not in the loop's own variables.
        admissible: Whether the state at its end may be; None where any may. Where not, the step is tried again, too.
        again: Whether it has to be taken again from the same time, `y1` being the state to do so with.
        ends: The code of a `Status` with which the integration ends after it, or 0.
        converged: Whether the iterations for its systems converged; None where there were none. Where not, the step is
            tried again, too.
        factor: By what to multiply the length for the next step, or for the next try, where the method says so itself;
            finite. None where the controller does, by the error.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        y, slope, h = jnp.ones(2), -jnp.ones(2), 0.1
        assert sciml.solvers.Step(y + h * slope).error is None
        ```
    """

    y1: Y
    error: Y | None = None
    dense: PyTree = ()
    memory: PyTree = None
    solvable: BoolScalarLike | None = None
    measured: tuple[Y, Y] | None = None
    admissible: BoolScalarLike | None = None
    again: BoolScalarLike | None = None
    ends: IntScalarLike | None = None
    converged: BoolScalarLike | None = None
    factor: RealScalarLike | None = None
    left: BoolScalarLike | None = None


class AbstractStepper(eqx.Module):
    r"""A method that advances one member by one step; `sciml.solve(solver=...)` takes it as it is.

    The loops run it for one member or over the lanes of many, with fixed steps or error control, and every adjoint
    differentiates it. A method of one's own writes four members: `order`, `evaluations`, `has_error` and `step`. Four
    more make it better: `init` and `fsal` where a step reuses something of the one before, `interpolate` and
    `empty_dense` (with `dense = True`) where it knows the solution within a step. All else has a default.

    `step` is a pure function of one member. `memory` is a PyTree of arrays of the same shapes in every step; when a
    gradient repeats a step from its state alone, `init` makes it anew. A method of several steps, whose memory cannot
    be made from the state, says `history = True`: its memory, floating-point arrays, is then carried, recorded and
    differentiated with the state. `sciml.verify.check_stepper` checks all of it.

    Attributes:
        order: The order of the method.
        evaluations: Evaluations of the vector field per step, for `Solution.stats`; -1 where it differs from step to
            step.
        has_error: Whether its steps estimate their error, as error control needs.
        fsal: Whether `init` evaluates the vector field.
        dense: Whether it interpolates within a step; where not, steps end at saved times.
        elementwise_dense: Whether it interpolates each number of a state alone, `dense` being a tuple of trees like the
            state; then members of an ensemble need not stop at saved times.
        history: Whether a step depends on the steps before it, by the memory.
        elementwise: Whether small states of many members run element by element; not where steps transform fields.
        symmetric: Whether a step back from the end of a step returns to its start.
        takes_packed: Whether it does the same to every number of a state, so that many small leaves may reach it as
            one array.
        batched_vjp: Whether a step of many members is transposed as a whole where they share what is large; not where
            it solves systems or loops, which takes minutes to compile.
        transforms_state: Whether the loop's variables are not the model's: `prepare` enters them, `finish` leaves.
        rough: Whether its solution between steps is a line, and would be another with shorter steps: events are where
            their conditions change sign on that line.
        takes_events: Whether its steps may be cut short at events.
        knows_within: Whether `within` knows the solution within a step where `interpolate` does not.
        jumps: Whether its state stays what it is within a step and jumps at the end: events are at these jumps.
        cuts_fixed_steps: Whether steps of one length, too, are no longer than `longest` says.
        field_is_rate: Whether the vector field is the rate of the state; not where a mass matrix stands before that.
        knows_rate: Whether `rate` is the rate of the state; by default where the vector field is.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        class Midpoint(sciml.solvers.AbstractStepper):
            order = 2
            evaluations = 2
            has_error = False

            def step(self, field, t, h, y, memory):
                half = jax.tree.map(lambda y, f: y + h / 2 * f, y, field(t, y))
                slope = field(t + h / 2, half)
                return sciml.solvers.Step(jax.tree.map(lambda y, f: y + h * f, y, slope))

        decay = lambda t, y, args: -y
        sol = sciml.solve(decay, jnp.ones(()), t0=0.0, t1=1.0, dt=0.01, solver=Midpoint())
        assert abs(sol.ys[-1] - jnp.exp(-1.0)) < 1e-5
        ```
    """

    order: eqx.AbstractVar[int]
    evaluations: eqx.AbstractVar[int]
    has_error: eqx.AbstractVar[bool]
    dense: ClassVar[bool] = False
    elementwise_dense: ClassVar[bool] = False
    history: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False
    batched_vjp: ClassVar[bool] = False
    takes_packed: ClassVar[bool] = False
    transforms_state: ClassVar[bool] = False
    takes_events: ClassVar[bool] = True
    rough: ClassVar[bool] = False
    knows_within: ClassVar[bool] = False
    jumps: ClassVar[bool] = False

    @property
    def cuts_fixed_steps(self) -> bool:
        """Whether steps of one length, too, are no longer than `longest` says."""
        return False

    @property
    def field_is_rate(self) -> bool:
        """Whether the vector field is the rate of the state."""
        return True

    @property
    def knows_rate(self) -> bool:
        """Whether `rate` is the rate of the state."""
        return self.field_is_rate

    def rate(self, field: BoundField, t: RealScalarLike, y: Y) -> Y:
        """Returns the rate of a state in the loop's variables; by default the vector field.

        Args:
            field: The vector field.
            t: The time.
            y: The state.
        """
        return field(t, y)

    @abc.abstractmethod
    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`.

        Args:
            field: The vector field, `field(t, y)`.
            t: The time.
            h: The length of the step, negative backwards in time.
            y: The state.
            memory: From `init`, or from the step before.
        """

    @property
    def error_order(self) -> float:
        """The power of the step size that the error estimate goes with; by default `order`."""
        return self.order

    @property
    def fsal(self) -> bool:
        """Whether `init` evaluates the vector field."""
        return False

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the memory that a step from `(t, y)` starts with; by default none."""
        del field, t, y

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`, for `theta` in [0, 1]; linear in `y0`, `y1` and `dense`."""
        del theta, h, y0, dense
        return y1  # without `dense` steps end at saved times

    def empty_dense(self, y: Y) -> PyTree:
        """Returns `Step.dense` for a step that has not been taken: the solution stays at `y`."""
        del y
        return ()

    def within(self, field: BoundField, t: Array, h: Array, y: Y, step: Step) -> Callable[[Array], Y]:
        """Returns the solution within a step, a function of the place from 0 to 1, by which events are found.

        What the method does not interpolate is by default a cubic by the slopes at both ends.

        Args:
            field: The vector field.
            t: The time at the start of the step.
            h: Its length.
            y: The state at its start.
            step: What the method made of it.
        """
        if self.dense:
            return lambda place: self.interpolate(place, h, y, step.y1, step.dense)
        first, last = field(t, y), field(t + h, step.y1)

        def path(place: Array) -> Y:
            def of_leaf(a, b, f, g):
                x, r, length = (s.astype(a.dtype) for s in (place, 1 - place, h))
                return r * a + x * b - x * r * ((r - x) * (b - a) + length * (x * g - r * f))

            return jax.tree.map(of_leaf, y, step.y1, first, last)

        return path

    def entered(self, field: BoundField, t: RealScalarLike, y: Y, state: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns the loop's state after an event has changed the model's, and whether there is one; see `prepare`.

        Args:
            field: The vector field.
            t: The time of the event.
            y: The loop's state before it.
            state: The model's state after it.
        """
        del y
        return self.prepare(field, t, state)

    def completed(
        self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, step: Step, good: BoolScalarLike
    ) -> Step:
        """Returns a step with what happens at its end, if it is good; by default as it is.

        Args:
            field: The vector field.
            t: The time at the start of the step.
            h: Its length.
            y: The state at its start.
            step: What `step` made of it.
            good: Whether its error is small enough.
        """
        del field, t, h, y, good
        return step

    def for_events(self) -> "AbstractStepper":
        """Returns the method as it is where its steps look for events."""
        return self

    def step_for_vjp(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return self.step(field, t, h, y, self.init(field, t, y))

    @property
    def stability(self) -> Stability | None:
        """For which steps times eigenvalues it is stable; None where none is too long, or it is not known."""
        return None

    @property
    def limited_by_waves(self) -> bool:
        """Whether steps that follow the fastest wave (`solve(cfl=...)`) make sense; by default if some are too long."""
        return self.stability is not None

    @property
    def says_spectrum(self) -> bool:
        """Whether it knows the eigenvalues of any model."""
        return False

    def spectrum(self, model: Callable, t: Array, y: Y, args: Args) -> Inexact[Array, " eigenvalues"]:
        """Returns the eigenvalues that limit its steps."""
        return spectrum_of(model, t, y, args)

    def use_full_budget(self, state_bytes: int) -> bool:
        """Whether a step takes far longer than to set up the memory that it is recorded in."""
        del state_bytes
        return False

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

    def with_tolerances(self, tolerances: tuple[float, float] | None) -> "AbstractStepper":
        """Returns the method for steps of these relative and absolute tolerances; by default the same.

        Args:
            tolerances: The smallest of each; None for fixed steps, or where they are traced.
        """
        del tolerances
        return self

    def for_fixed_steps(self) -> "AbstractStepper":
        """Returns the method for steps without error control; by default the same."""
        return self

    def judged(self, criterion: Criterion) -> "AbstractStepper":
        """Returns the method for one step under error control; by default the same.

        A method that chooses its order or ends its iterations by the tolerances holds the criterion. A gradient repeats
        steps without it.

        Args:
            criterion: By what the error of the step will be judged.
        """
        del criterion
        return self

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns a state to start from, and whether one was found; None where every state will do."""
        del field, t
        return y, None

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

    def aligned(self, field: BoundField, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a step near one that error control chose, both positive; by default that."""
        del field, t
        return h

    def rest(self, field: BoundField, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a fixed step, positive: what is left of one that an event has cut, by default all."""
        del field, t
        return h

    def at_rest(self, memory: PyTree, y1: Y, clipped: Y) -> PyTree:
        """Returns the memory of a step at whose end some elements were set to zero; by default as it is.

        What a method of several steps remembers of their way there would lead them on, below zero.

        Args:
            memory: The memory at the end of the step.
            y1: The state at which the method arrived.
            clipped: The state with these elements set to zero.
        """
        del y1, clipped
        return memory

    def longest(self, memory: PyTree) -> Array | None:
        """Returns the longest step that the method can take with a memory, positive; None where any will do."""
        del memory


def measured_by_state(step: Step, y: Y) -> tuple[Y, Y] | None:
    """Returns a step's error and state as tolerances measure them where the loop's state holds more than `y`.

    Args:
        step: A step of the method of the state alone.
        y: The state at its start.
    """
    if step.error is None or step.measured is not None:
        return step.measured
    return step.error, jax.tree.map(lambda a, b: jnp.maximum(jnp.abs(a), jnp.abs(b)), y, step.y1)


def take_step(
    stepper: AbstractStepper, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree
) -> Step:
    """Returns a step of a method, NaN where its system had no solution or its end is not admissible.

    Raises:
        TypeError: If the method returns no `Step`, or a state unlike the one that it was given.
    """
    step, name = stepper.step(field, t, h, y, memory), type(stepper).__name__
    if not isinstance(step, Step):
        raise TypeError(f"`{name}.step` must return a `sciml.solvers.Step`, but returns {type(step).__name__}.")
    kinds = [[(jnp.shape(x), jnp.result_type(x).name) for x in jax.tree.leaves(tree)] for tree in (y, step.y1)]
    if jax.tree.structure(y) != jax.tree.structure(step.y1) or kinds[0] != kinds[1]:
        raise TypeError(
            f"`{name}.step` must return `y1` with the structure, shapes and dtypes of `y`, {structure_words(y)}, but "
            f"returns {structure_words(step.y1)}.{first_difference(y, step.y1, arrays=True)}"
        )
    conditions = [x for x in (step.solvable, step.admissible, step.converged) if x is not None]
    if not conditions:
        return step
    # a state that is not finite is what the loops reject, whatever the solver made of the system
    found = functools.reduce(jnp.logical_and, conditions)
    what = (step.y1, step.error, step.measured)
    y1, error, measured = jax.tree.map(lambda x: jnp.where(found, x, jnp.full_like(x, jnp.nan)), what)
    return step._replace(y1=y1, error=error, measured=measured)
