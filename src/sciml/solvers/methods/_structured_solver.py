"""Methods that need structure of a model as diffrax solvers."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._types import Args, BoolScalarLike, RealScalarLike, Y
from ..terms._split_field import Functions, open_split_field
from ._solver import AbstractSteppingSolver
from ._stepper import AbstractStepper, error_order_of


class AbstractStructuredStepper(AbstractStepper):
    """A one-step method that reads more of a model than its vector field."""

    @abc.abstractmethod
    def functions(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
        """Returns the functions of a model that the steps need.

        Raises:
            TypeError: If the model has not got it.
        """


class AbstractStructuredSolver(AbstractSteppingSolver):
    """A method that reads more of a model than its vector field, for `sciml.solve` and `diffrax.diffeqsolve`.

    In `diffrax.diffeqsolve` the term is `diffrax.ODETerm(model)`, every step transforms to the variables in which the
    method works and back, and between steps the solution is interpolated linearly.
    """

    term_structure: ClassVar = diffrax.AbstractTerm

    @abc.abstractmethod
    def stepper(self, y0: Y) -> AbstractStructuredStepper:
        """Returns the one-step method for states like `y0`."""

    interpolation_cls: ClassVar[Callable[..., Any]] = diffrax.LocalLinearInterpolation

    def order(self, terms: PyTree) -> int:
        """Returns the order of the method."""
        del terms
        return self.stepper(None).order

    def error_order(self, terms: PyTree) -> float:
        """Returns the power of the step size that the error estimate is proportional to."""
        del terms
        return error_order_of(self.stepper(None))

    def init(self, terms: PyTree, t0: RealScalarLike, t1: RealScalarLike, y0: Y, args: Args) -> None:
        """Returns no state."""
        del terms, t0, t1, y0, args

    def step(
        self,
        terms: PyTree,
        t0: RealScalarLike,
        t1: RealScalarLike,
        y0: Y,
        args: Args,
        solver_state: None,
        made_jump: BoolScalarLike,
    ) -> tuple[Y, Y | None, dict[str, Any], None, diffrax.RESULTS]:
        """Makes a step for `diffrax.diffeqsolve`."""
        del solver_state, made_jump
        model, direction = _model_of(terms)
        t0, t1 = jnp.asarray(t0), jnp.asarray(t1)
        direction = jnp.asarray(direction, t0.dtype)
        t, h = direction * t0, direction * (t1 - t0)
        stepper = self.stepper(y0)
        field = open_split_field(model, args, stepper.functions(model, t, y0, args))
        y, _ = stepper.coordinates.prepare(field, t, y0)
        step = stepper.step(field, t, h, y, stepper.init(field, t, y))
        y1 = stepper.coordinates.finish(field, step.y1)
        error = step.error if step.measured is None else step.measured[0]
        return y1, error, dict(y0=y0, y1=y1), None, diffrax.RESULTS.successful

    def func(self, terms: PyTree, t0: RealScalarLike, y0: Y, args: Args) -> PyTree:
        """Returns the vector field."""
        return terms.vf(t0, y0, args)


def _model_of(terms: Any) -> tuple[Callable, Any]:
    """Returns the model within diffrax's terms, and the direction of time that it is wrapped in."""
    direction = 1
    while hasattr(terms, "term") and hasattr(terms, "direction"):  # how diffrax reverses time, and nothing else
        direction = direction * terms.direction
        terms = terms.term
    if not isinstance(terms, diffrax.ODETerm):
        raise TypeError(
            f"this solver requires `diffrax.ODETerm(model)`, but the term is {type(terms).__name__}. The adjoint "
            "equation of `diffrax.BacksolveAdjoint()` lacks the structure of the model: call `sciml.solve` with one of "
            "sciml's adjoints."
        )
    return terms.vector_field, direction
