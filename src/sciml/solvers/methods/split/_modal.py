"""The common part of methods whose loop runs in the modes of a semilinear model.

The state is transformed to modes before the first step and back where it is saved. So a step transforms only what
the rest of the model transforms, the linear part is diagonal throughout, and no step adds the rounding of a transform.
The tolerances are the state's: an error is measured after it has been transformed back.
"""

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._interfaces._model import AbstractSemilinear
from ...._structure_words import first_difference, structure_words
from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...control._pid import FirstStep, initial_step
from ...terms._split_field import BoundSplitField, Functions
from .._capabilities import Coordinates, Hooks
from .._stepper import Step
from .._structured_solver import AbstractStructuredStepper


class AbstractModalStepper(AbstractStructuredStepper):
    """A method whose state is the model's state or its modes; within a step it has a dense output, for events."""

    @property
    def coordinates(self) -> Coordinates:
        """The state, or its modes."""
        return Coordinates(self.close, self.starting_step, prepare=self.prepare, finish=self.finish)

    @property
    def hooks(self) -> Hooks:
        """It has the solution within a step."""
        return Hooks(within=self.within)

    def prepare(self, field: Any, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Returns the initial state, or its modes."""
        del t
        return (field["transform"](y) if is_modal(field) else y), None

    def finish(self, field: Any, y: Y) -> Y:
        """Returns the state, transformed back from its modes."""
        return field["inverse"](y) if is_modal(field) else y

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state on the line between the ends of a step; no saved time is there."""
        del h, dense
        return jax.tree.map(lambda a, b: a + jnp.asarray(theta, b.dtype) * (b - a), y0, y1)

    @abc.abstractmethod
    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns a first step size."""

    @abc.abstractmethod
    def within(self, field: Any, t: Array, h: Array, y: Y, step: Step) -> Callable[[Array], Y]:
        """Returns the solution within a step, by which events are found."""


def is_modal(field: BoundSplitField) -> bool:
    """Returns whether a loop runs in modes."""
    return "inverse" in field.functions


def modal_functions(
    model: Any, t: RealScalarLike, y: Y, args: Args, view: Callable[[Any], AbstractSemilinear] = lambda model: model
) -> Functions:
    """Returns the functions of a semilinear model; the field acts on the modes.

    Args:
        model: The model.
        t: The time.
        y: A state.
        args: The last argument of the model.
        view: From the model to a semilinear one.

    Raises:
        ValueError: If transforms, linear part and rest do not fit one another.
    """
    seen = view(model)
    modes = jax.eval_shape(lambda y: seen.transform(y), y)
    _check("inverse(transform(y))", jax.eval_shape(lambda m: seen.inverse(m), modes), "`y0`", y)
    rest = jax.eval_shape(lambda t, m, a: seen.rest(t, m, a), t, modes, args)
    _check("rest(t, modes, args)", rest, "the modes", modes)
    linear = jax.eval_shape(lambda a: seen.linear(a), args)
    name = type(seen).__name__
    if jax.tree.structure(linear) != jax.tree.structure(modes):
        raise ValueError(
            f"`{name}.linear(args)` must have the structure of the modes, {structure_words(modes)}, but is "
            f"{structure_words(linear)}.{first_difference(modes, linear)}"
        )
    for part, mode in zip(jax.tree.leaves(linear), jax.tree.leaves(modes)):
        fits = part.ndim == mode.ndim and all(m in (1, n) for m, n in zip(part.shape, mode.shape))
        if part.ndim != 0 and not fits:
            raise ValueError(
                f"`{name}.linear(args)` must broadcast to the modes, of shape {mode.shape}, with the same number of "
                f"axes, but has shape {part.shape}. The modes are `{name}.transform(y0)`: does `y0` match the model's "
                "grid?"
            )
        if jnp.issubdtype(part.dtype, jnp.complexfloating) and not jnp.issubdtype(mode.dtype, jnp.complexfloating):
            raise ValueError(f"`{name}.linear(args)` is complex, but the modes are real.")

    def field(model, args, t, modes):
        def slope(n, a, u):
            return n + times(a.astype(dtype_in(a, u)), u)

        seen = view(model)
        return jax.tree.map(slope, seen.rest(t, modes, args), seen.linear(args), modes)

    return {
        "field": (field, (t, modes)),
        "rest": (lambda model, args, t, modes: view(model).rest(t, modes, args), (t, modes)),
        "linear": (lambda model, args: view(model).linear(args), ()),
        "transform": (lambda model, args, y: view(model).transform(y), (y,)),
        "inverse": (lambda model, args, modes: view(model).inverse(modes), (modes,)),
    }


def _check(what: str, got: PyTree, of: str, wanted: PyTree) -> None:
    def kinds(tree):
        return jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree)

    if kinds(got) != kinds(wanted):
        raise ValueError(f"`{what}` must have the structure of {of}, {kinds(wanted)}, but has {kinds(got)}.")


def measured(field: BoundSplitField, error: PyTree, modes: PyTree) -> tuple[Y, Y]:
    """Returns error and state, transformed back from the modes."""
    return field["inverse"](error), field["inverse"](modes)


def starting_step(field: BoundSplitField, start: FirstStep, order: int) -> Array:
    """Returns a first step size from the rest only; the linear part, which is stiff, does not limit the step."""

    def moved(t, y):
        return field["inverse"](field["rest"](t, field["transform"](y)))

    return initial_step(moved, start._replace(y=field["inverse"](start.y)), order)


def dtype_in(linear: Array, mode: Array | jax.ShapeDtypeStruct) -> np.dtype:
    """Returns the dtype of a linear part in the precision of the modes, real where it is real."""
    return np.dtype(mode.dtype if jnp.issubdtype(linear.dtype, jnp.complexfloating) else jnp.finfo(mode.dtype).dtype)


def times(a: Array, u: Array) -> Array:
    """Returns a product; of a real and a complex number without the products with zero."""
    if jnp.iscomplexobj(u) and not jnp.iscomplexobj(a):  # JAX would make `a` complex
        return jax.lax.complex(a * u.real, a * u.imag)
    return a * u


def needs(solver: str, kind: type, model: Callable, what: str) -> TypeError:
    """Returns the error about the structure that a solver requires."""
    return TypeError(
        f"`solver={solver}()` requires {what}, `sciml.{kind.__name__}`, but `model` is "
        f"{getattr(model, '__name__', type(model).__name__)}, which does not derive from it."
    )
