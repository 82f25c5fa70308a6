"""Methods of several steps as the loops run them: the steps before are part of the state.

A gradient repeats a step from its state only, and the memory of a multistep method cannot be computed from the state at
one time. So it is carried along with the state: the pair is the state of a one-step method, which the loops record and
every discrete adjoint differentiates.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...control._pid import FirstStep
from ...linear._structured_field import BoundStructuredField
from ...terms._field import AbstractField
from ...terms._split_field import SplitField
from .._capabilities import Coordinates, Hooks, Traits, no_limit
from .._stepper import AbstractStepper, BoundField, Step, measured_by_state
from ._wrapped import AbstractWrappedStepper


class HistoryMemory(NamedTuple):
    """The memory of a method with `history`, of which a part can be computed again.

    Attributes:
        past: The part of the memory in the state.
        reused: The values that the next step reuses if it can; None in a step that a gradient repeats, which computes
            them again.
    """

    past: PyTree
    reused: PyTree


def past_of(memory: PyTree) -> PyTree:
    """Returns the part in the state."""
    return memory.past if isinstance(memory, HistoryMemory) else memory


def reused_of(memory: PyTree) -> PyTree:
    """Returns the other part, or None."""
    return memory.reused if isinstance(memory, HistoryMemory) else None


def joined(past: PyTree, reused: PyTree) -> PyTree:
    """Returns the memory of both."""
    return past if reused is None else HistoryMemory(past, reused)


class History(NamedTuple):
    """A state, and the method's memory of the steps before."""

    y: Y
    past: PyTree


class HistoryField(AbstractField):
    """A closed vector field, which also accepts a `History`: the memory does not change between steps."""

    def __init__(self, field: AbstractField):
        self.field = field  # also of a single member: `BDF` runs three times as long on LAPACK's small systems
        self.reads_time, self.has_rules, self.on_arrays = field.reads_time, field.has_rules, field.on_arrays

    def __call__(self, t: RealScalarLike, y: Any, operands: list) -> Any:
        """Returns the vector field."""
        if isinstance(y, History):
            return History(self.field(t, y.y, operands), jax.tree.map(jnp.zeros_like, y.past))
        return self.field(t, y, operands)

    def bind(self, operands: list, whole: bool = True) -> BoundField:
        """Returns the field as a function of time and state, with the structure of its Jacobian where that is known."""
        base = self.field.bind(operands, whole)

        def bound(t: RealScalarLike, y: Any) -> Any:
            return self(t, y, operands)

        return BoundStructuredField(bound, base.structure) if isinstance(base, BoundStructuredField) else bound


class WithHistory(AbstractWrappedStepper):
    """A method of several steps as a one-step method of a `History`."""

    base: AbstractStepper

    @property
    def traits(self) -> Traits:
        """The traits of the method, whose history is part of the loop's state."""
        return super().traits._replace(history=False, transforms_state=True, elementwise_dense=False)

    @property
    def coordinates(self) -> Coordinates:
        """A state with its history."""
        return Coordinates(self.close, self.starting_step, prepare=self.prepare, finish=self.finish, rate=self.rate)

    @property
    def hooks(self) -> Hooks:
        """The hooks of the method, with steps in gradients."""
        return super().hooks._replace(step_for_vjp=self.step_for_vjp)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the functions of the model that the steps need, with their operands."""
        field, operands = self.base.coordinates.close(model, t, y, args, h)
        if isinstance(field, SplitField):
            raise TypeError(
                f"{type(self.base).__name__} has `Traits(history=True)` and splits its model, but multistep methods "
                "require a plain vector field."
            )
        return HistoryField(field), operands

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns the state with the method's memory before its first step.

        Raises:
            TypeError: If its memory is not floating-point.
        """
        y, found = self.base.coordinates.prepare(field, t, y)
        past = jax.tree.map(jnp.asarray, past_of(self.base.init(field, t, y)))
        wrong = [x.dtype.name for x in jax.tree.leaves(past) if not jnp.issubdtype(x.dtype, jnp.inexact)]
        if wrong:
            raise TypeError(
                "The memory of a method with `Traits(history=True)` must be floating-point, because it is "
                f"differentiated, but the memory of {type(self.base).__name__} contains {wrong[0]}."
            )
        return History(y, past), found

    def rate(self, field: BoundField, t: RealScalarLike, y: Any) -> Any:
        """Returns the rate of a state; the rate of a history is zero between steps."""
        if isinstance(y, History):
            return History(self.base.coordinates.rate(field, t, y.y), jax.tree.map(jnp.zeros_like, y.past))
        return self.base.coordinates.rate(field, t, y)

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the values that the method reuses, if any: its memory is part of the state."""
        return reused_of(self.base.init(field, t, y.y))

    def finish(self, field: BoundField, y: Y) -> Y:
        """Returns only the state."""
        return self.base.coordinates.finish(field, y.y)

    def starting_step(self, field: BoundField, start: FirstStep) -> Array:
        """Returns the size of a first step, positive."""
        return self.base.coordinates.starting_step(field, start._replace(y=start.y.y))

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances a state with its history from `t` to `t + h`."""
        step = self.base.step(field, t, h, y.y, joined(y.past, memory))
        measured = measured_by_state(step, y.y)
        return step._replace(
            y1=History(step.y1, past_of(step.memory)), memory=reused_of(step.memory), measured=measured
        )

    def step_for_vjp(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step: nothing is reused, nor is there anything for the next one."""
        return self.step(field, t, h, y, None)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`, with the history at the end."""
        return History(self.base.interpolate(theta, h, y0.y, y1.y, dense), y1.past)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns the dense output of a step that has not been taken."""
        return self.base.empty_dense(y.y)


def with_history(stepper: AbstractStepper) -> AbstractStepper:
    """Returns a method as the loops run it.

    Raises:
        TypeError: If it has a history, and members that a one-step method of a `History` cannot have.
    """
    if not stepper.traits.history:
        return stepper
    inner = stepper
    while isinstance(inner, AbstractWrappedStepper):
        inner = inner.base
    # only of the memory, and of the state without it
    own = {"step_for_vjp": inner.hooks.step_for_vjp is not None, "longest": inner.limits.longest is not no_limit}
    for name in (name for name, found in own.items() if found):
        raise TypeError(
            f"{type(inner).__name__} has `Traits(history=True)` and its own `{name}`, which only methods whose memory "
            "can be computed from the state may define. Leave one of the two out."
        )
    return WithHistory(stepper)
