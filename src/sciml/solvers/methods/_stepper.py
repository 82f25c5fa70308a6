"""The required and optional interface of a one-step method."""

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._structure_words import first_difference, structure_words
from ..._types import BoolScalarLike, IntScalarLike, RealScalarLike, Y
from ..terms._field import BoundField as BoundField
from ._capabilities import Coordinates, Hooks, Limits, Traits, of_state


class Step(NamedTuple):
    """The result of one step of an `AbstractStepper`.

    Attributes:
        y1: The state at the end of the step.
        error: An estimate of the local error, with the structure of `y1`; None if the method has none.
        dense: The input of `interpolate` besides the two states, a PyTree of arrays.
        memory: The values that the next step reuses.
        solvable: Whether the step's system had a solution; None if it had no system to solve. Otherwise the step is
            repeated with a shorter length, or with fixed steps the member fails.
        measured: Error and state in the variables that the tolerances measure, if these are not the loop's own
            variables.
        admissible: Whether the state at its end may be; None where any may. Otherwise the step is also repeated.
        again: Whether it has to be taken again from the same time, `y1` being the state to do so with.
        ends: The code of a `Status` with which the integration ends after it, or 0.
        converged: Whether the iterations for its systems converged; None if there were none. Otherwise the step is
            also repeated.
        left: Whether the lane leaves the step to another loop, which has the program for what may happen in it, as
            events; None if it leaves none. The loops' own methods say so, under `jax.vmap`.
        factor: The factor of the length for the next step, or for the next try, if the method sets it itself; None or
            NaN if the controller does, by the error.

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
    left: BoolScalarLike | None = None
    factor: RealScalarLike | None = None


class AbstractStepper(eqx.Module):
    r"""A method that advances one member by one step; `sciml.solve(solver=...)` takes it as it is.

    The loops run it for one member or over the lanes of many, with fixed steps or error control, and every adjoint
    differentiates it. A custom method defines four members: `order`, `evaluations`, `has_error` and `step`. Four more
    make it better: `traits`, its further properties; `init` if a step reuses values of the one before; and
    `interpolate` with `empty_dense`, and `Traits(dense=True)`, if it has dense output.

    `step` is a pure function of one member. `memory` is a PyTree of arrays of the same shapes in every step; when a
    gradient repeats a step from its state only, `init` creates it again. A method of several steps, whose memory cannot
    be made from the state, has `Traits(history=True)`: its memory, floating-point arrays, is then carried, recorded and
    differentiated with the state. `sciml.verify.check_stepper` checks all of it.

    Three records are for methods that are more than that; each has the defaults of one that is not, of which such a
    method changes some, as by `super().limits._replace(longest=self.longest)`.

    Attributes:
        order: The order of the method.
        evaluations: Evaluations of the vector field per step, for `Solution.stats`; -1 if it differs from step to step.
        has_error: Whether its steps estimate their error, as error control needs.
        traits: Its further properties, a `Traits`.
        limits: The limits of the lengths of its steps: stability, and limits found on the way.
        hooks: Functions that the loops call at some steps: with events, in gradients, under tolerances.

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
    traits: ClassVar[Traits] = Traits()
    limits: ClassVar[Limits] = Limits()
    hooks: ClassVar[Hooks] = Hooks()

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        own = [name for name in Traits._fields if name in vars(cls)]
        if own:  # what the loops do not read would be wrong in silence
            raise TypeError(
                f"`{cls.__name__}.{own[0]}` is a trait: write `traits = sciml.solvers.Traits({own[0]}=...)`."
            )
        for record, kind in (("limits", Limits), ("coordinates", Coordinates), ("hooks", Hooks)):
            own = [name for name in kind._fields if name in vars(cls)]
            if own and getattr(cls, record) is getattr(AbstractStepper, record):
                raise TypeError(
                    f"`{cls.__name__}.{own[0]}` is read from `{record}`: define a property `{record}` that returns "
                    f"`super().{record}._replace({own[0]}=self.{own[0]})`."
                )

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

    @property
    def coordinates(self) -> Coordinates:
        """The variables in which it runs; by default the variables of the state."""
        return of_state(self.order, self.evaluations)


def error_order_of(stepper: AbstractStepper) -> float:
    """Returns the power of the step size that a method's error estimate goes with."""
    given = stepper.traits.error_order
    return stepper.order if given is None else given


def step_for_vjp(stepper: AbstractStepper, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
    """Repeats a step such that JAX can differentiate it in reverse mode."""
    own = stepper.hooks.step_for_vjp
    return stepper.step(field, t, h, y, stepper.init(field, t, y)) if own is None else own(field, t, h, y)


def within_step(
    stepper: AbstractStepper, field: BoundField, t: Array, h: Array, y: Y, step: Step
) -> Callable[[Array], Y]:
    """Returns the solution within a step, a function of the place from 0 to 1, by which events are found.

    Without dense output of the method, the default is a cubic from the slopes at both ends.

    Args:
        stepper: The method.
        field: The vector field.
        t: The time at the start of the step.
        h: Its length.
        y: The state at its start.
        step: The result of the method.
    """
    if stepper.hooks.within is not None:
        return stepper.hooks.within(field, t, h, y, step)
    if stepper.traits.dense:
        return lambda place: stepper.interpolate(place, h, y, step.y1, step.dense)
    first, last = field(t, y), field(t + h, step.y1)

    def path(place: Array) -> Y:
        def of_leaf(a, b, f, g):
            x, r, length = (s.astype(a.dtype) for s in (place, 1 - place, h))
            return r * a + x * b - x * r * ((r - x) * (b - a) + length * (x * g - r * f))

        return jax.tree.map(of_leaf, y, step.y1, first, last)

    return path


def measured_by_state(step: Step, y: Y) -> tuple[Y, Y] | None:
    """Returns a step's error and state as tolerances measure them where the loop's state holds more than `y`.

    Args:
        step: A step of the method for the state only.
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
        TypeError: If the method returns no `Step`, or a state or memory unlike the one that it was given.
    """
    step, name = stepper.step(field, t, h, y, memory), type(stepper).__name__
    if not isinstance(step, Step):
        raise TypeError(f"`{name}.step` must return a `sciml.solvers.Step`, but returns {type(step).__name__}.")
    _check_like(y, step.y1, f"`{name}.step` must return `y1` with the structure, shapes and dtypes of `y`")
    _check_like(
        memory, step.memory, f"`{name}.step` must return `memory` with the structure, shapes and dtypes of `init`"
    )
    conditions = [x for x in (step.solvable, step.admissible, step.converged) if x is not None]
    if not conditions:
        return step
    # the loops reject a state that is not finite, whatever the solver made of the system
    found = functools.reduce(jnp.logical_and, conditions)
    what = (step.y1, step.error, step.measured)
    y1, error, measured = jax.tree.map(lambda x: jnp.where(found, x, jnp.full_like(x, jnp.nan)), what)
    return step._replace(y1=y1, error=error, measured=measured)


def _check_like(given: PyTree, returned: PyTree, rule: str) -> None:
    kinds = [[(jnp.shape(x), jnp.result_type(x).name) for x in jax.tree.leaves(tree)] for tree in (given, returned)]
    if jax.tree.structure(given) != jax.tree.structure(returned) or kinds[0] != kinds[1]:
        raise TypeError(
            f"{rule}, {structure_words(given)}, but returns {structure_words(returned)}."
            f"{first_difference(given, returned, arrays=True)}"
        )
