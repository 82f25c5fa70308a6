"""Four records that describe a method to the loops, each with the defaults of a plain one-step method.

A method changes what differs, `super().limits._replace(longest=self.longest)`, and one that is made of another passes
on the records of that one. So a new question of the loops is a field here, and no member of every class.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Inexact, PyTree

from ..._choices import choices
from ..._types import Args, BoolScalarLike, RealScalarLike, Y
from ..control._criterion import Criterion
from ..control._pid import FirstStep, initial_step
from ..control._stability import Stability, spectrum_of
from ..terms._field import close_field


class Traits(NamedTuple):
    """The properties of a method, known before any step: `traits = sciml.solvers.Traits(dense=True)` in its class.

    Attributes:
        fsal: Whether `init` evaluates the vector field, for the counts.
        dense: Whether `interpolate` returns the solution within a step; otherwise steps end at saved times.
        elementwise_dense: Whether it interpolates each number of a state separately, by a polynomial in `theta`, with
            `dense` a tuple of trees like the state; then members of an ensemble need not stop at saved times.
        history: Whether a step depends on the steps before it, by a memory that cannot be made from the state.
        elementwise: Whether small states of many members run element by element; not where steps transform fields.
        symmetric: Whether a step back from the end of a step returns to its start.
        takes_packed: Whether it does the same to every number of a state, or takes it as one vector, so that many small
            leaves may reach it as one array.
        batched_vjp: Whether a step of many members is transposed as a whole if they share large values; not if it
            solves systems or loops, which takes minutes to compile.
        transforms_state: Whether the loop's variables are not the model's; see `Coordinates`.
        rough: Whether its solution between steps is a line, which depends on the steps: events are at the sign changes
            of their conditions on that line.
        knows_within: Whether `Hooks.within` returns the solution within a step if `interpolate` does not.
        jumps: Whether its state is constant within a step and jumps at the end: events are at these jumps.
        cuts_fixed_steps: Whether fixed steps are also limited by `Limits.longest`.
        evens_last_steps: Whether the last two adaptive steps have the same length, because a very short step is less
            accurate than a long one.
        field_is_rate: Whether the vector field is the rate of the state; not with a mass matrix.
        knows_rate: Whether `Coordinates.rate` is the rate of the state.
        error_order: The power of the step size that the error estimate goes with; None for the order.
        costly: Whether a step takes far longer than setting up the memory of its record: "never", "always", or "large",
            for large states, for example because it solves systems.

    Example:
        ```python
        import sciml

        assert sciml.solvers.AbstractStepper.traits == sciml.solvers.Traits()
        assert sciml.solvers.BDF().traits.history
        ```
    """

    fsal: bool = False
    dense: bool = False
    elementwise_dense: bool = False
    history: bool = False
    elementwise: bool = True
    symmetric: bool = False
    takes_packed: bool = False
    batched_vjp: bool = False
    transforms_state: bool = False
    rough: bool = False
    knows_within: bool = False
    jumps: bool = False
    cuts_fixed_steps: bool = False
    evens_last_steps: bool = False
    field_is_rate: bool = True
    knows_rate: bool = True
    error_order: float | None = None
    costly: str = "never"

    def is_costly(self, state_bytes: int) -> bool:
        """Returns whether a step of such a state takes far longer than to set up the memory that it is recorded in."""
        large = self.costly == "large" and state_bytes >= choices().checkpoints.expensive_from
        return large or self.costly == "always"


def no_limit(memory: PyTree) -> Array | None:
    """Returns that a step of any length can be taken."""
    del memory


def _unchanged(field: Any, t: RealScalarLike, h: Array) -> Array:
    del field, t
    return h


class Limits(NamedTuple):
    """The limits of the lengths of a method's steps.

    Attributes:
        stability: Returns for which steps times eigenvalues it is stable; None where none is too long, or it is not
            known.
        by_waves: Whether steps that follow the fastest wave (`solve(cfl=...)`) make sense; None: if some are too long.
        says_spectrum: Whether it has the eigenvalues of any model.
        spectrum: `spectrum(model, t, y, args)`: the eigenvalues that limit its steps.
        longest: `longest(memory)`: the longest step that it can take with a memory, positive; None where any will do.
        aligned: `aligned(field, t, h)`: the length of a step near one that error control chose, both positive.
        rest: `rest(field, t, h)`: the length of a fixed step, positive: the remaining length of a step that an event
            has cut.
    """

    stability: Callable[[], Stability | None] = lambda: None
    by_waves: bool | None = None
    says_spectrum: bool = False
    spectrum: Callable[[Callable, Array, Y, Args], Inexact[Array, " eigenvalues"]] = spectrum_of
    longest: Callable[[PyTree], Array | None] = no_limit
    aligned: Callable[[Any, RealScalarLike, Array], Array] = _unchanged
    rest: Callable[[Any, RealScalarLike, Array], Array] = _unchanged

    @property
    def are_by_waves(self) -> bool:
        """Whether steps that follow the fastest wave make sense."""
        return self.stability() is not None if self.by_waves is None else self.by_waves


def _prepared(field: Any, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
    del field, t
    return y, None


def _finished(field: Any, y: Y) -> Y:
    del field
    return y


def _rate(field: Any, t: RealScalarLike, y: Y) -> Y:
    return field(t, y)


class Coordinates(NamedTuple):
    """The variables in which a method runs, and the functions of a model that it needs there.

    Attributes:
        close: `close(model, t, y, args, h)`: the functions of the model that the steps need, with their operands; `h`
            is the length of all steps, signed, if it is known, else None.
        starting_step: `starting_step(field, start)`: the size of a first step, positive.
        prepare: `prepare(field, t, y)`: a state to start from, in the loop's variables, and whether one was found; None
            where every state will do.
        finish: `finish(field, y)`: the state for a state of the loop; linear.
        entered: `entered(field, t, y, state)`: the loop's state after an event at which it was `y` has changed the
            model's to `state`, and whether there is one; None: as `prepare` makes it.
        rate: `rate(field, t, y)`: the rate of a state in the loop's variables.
    """

    close: Callable[[Callable, Array, Y, Args, Array | None], tuple[Any, list[Array]]]
    starting_step: Callable[[Any, FirstStep], Array]
    prepare: Callable[[Any, RealScalarLike, Y], tuple[Y, BoolScalarLike | None]] = _prepared
    finish: Callable[[Any, Y], Y] = _finished
    entered: Callable[[Any, RealScalarLike, Y, Y], tuple[Y, BoolScalarLike | None]] | None = None
    rate: Callable[[Any, RealScalarLike, Y], Y] = _rate

    def after_event(self, field: Any, t: RealScalarLike, y: Y, state: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns the loop's state after an event has changed the model's, and whether there is one."""
        return self.prepare(field, t, state) if self.entered is None else self.entered(field, t, y, state)


def of_state(order: int, evaluations: int) -> Coordinates:
    """Returns the coordinates of a method that steps the state itself by its vector field."""

    def close(model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        del h
        return close_field(model, t, y, args, evaluations)

    return Coordinates(close, lambda field, start: initial_step(field, start, order))


class Hooks(NamedTuple):
    """Functions that the loops call at some steps; each is None if there is nothing to do.

    Attributes:
        within: `within(field, t, h, y, step)`: the solution within a step, a function of the place from 0 to 1, by
            which events are found; None: by `interpolate`, or else a cubic by the slopes at both ends.
        completed: `completed(field, t, h, y, step, good)`: a step with what happens at its end, if it is good.
        step_for_vjp: `step_for_vjp(field, t, h, y)`: a step repeated such that JAX can differentiate it in reverse
            mode; None: as `step` takes it, with the memory that `init` makes.
        at_rest: `at_rest(memory, y1, clipped)`: the memory of a step at whose end `y1` some elements were set to zero,
            which made it `clipped`: what a method of several steps remembers would lead them on, below zero.
        with_tolerances: `with_tolerances(tolerances)`: the method for steps of these smallest relative and absolute
            tolerances, None for fixed steps, or where they are traced.
        for_fixed_steps: Returns the method for steps without error control.
        for_events: Returns the method for steps that look for events.
        judged: `judged(criterion)`: the method for one step under error control. A method that chooses its order or
            ends its iterations by the tolerances holds the criterion. A gradient repeats steps without it.
    """

    within: Callable[..., Callable[[Array], Y]] | None = None
    completed: Callable[..., Any] | None = None
    step_for_vjp: Callable[..., Any] | None = None
    at_rest: Callable[[PyTree, Y, Y], PyTree] | None = None
    with_tolerances: Callable[[tuple[float, float] | None], Any] | None = None
    for_fixed_steps: Callable[[], Any] | None = None
    for_events: Callable[[], Any] | None = None
    judged: Callable[[Criterion], Any] | None = None
