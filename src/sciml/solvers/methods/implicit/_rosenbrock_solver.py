"""Rosenbrock methods as diffrax solvers."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...._choices import choices
from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...linear._preconditioners import AbstractPreconditioner
from .._ravel import elements_of
from .._solver import AbstractSteppingSolver
from ._linear_options import check_systems, choice_of
from ._mass_matrix import Mass
from ._rosenbrock import Rosenbrock, Tableau, interpolated


class RosenbrockInterpolation(diffrax.AbstractLocalInterpolation):
    """The dense output of a Rosenbrock method within one step.

    Attributes:
        t0: The start of the step.
        t1: Its end.
        y0: The state at its start.
        y1: The state at its end.
        dense: The values between them; see `Rosenbrock`.
    """

    t0: RealScalarLike
    t1: RealScalarLike
    y0: Y
    y1: Y
    dense: tuple[Y, ...]

    def evaluate(self, t0: RealScalarLike, t1: RealScalarLike | None = None, left: bool = True) -> PyTree:
        """Returns the state at `t0`, or its increment from `t0` to `t1`."""
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1), self.evaluate(t0))
        del left
        length = self.t1 - self.t0
        still = length == 0  # which diffrax gives to a solve of no steps
        theta = jnp.where(still, 0, (t0 - self.t0) / jnp.where(still, 1, length))
        return interpolated(theta, self.y0, self.y1, self.dense)


class AbstractRosenbrockSolver(AbstractSteppingSolver):
    """A Rosenbrock method, for `sciml.solve` and for `diffrax.diffeqsolve`.

    Attributes:
        mass: The mass matrix, or None for the identity.
        linear_solver: An iteration for its linear systems, or None.
        preconditioner: The preconditioner, or None.
        tableau: The coefficients.
    """

    mass: eqx.AbstractVar[Mass | None]
    linear_solver: eqx.AbstractVar[Any]
    preconditioner: eqx.AbstractVar[AbstractPreconditioner | None]
    tableau: eqx.AbstractVar[Tableau]

    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar[Callable[..., RosenbrockInterpolation]] = RosenbrockInterpolation

    def stepper(self, y0: Y) -> Rosenbrock:
        """Returns the one-step method for states like `y0`.

        Raises:
            ValueError: If the mass matrix does not fit the state.
            TypeError: If the state is large and of half precision.
        """
        name = type(self).__name__
        size = check_systems(name, y0, self.mass)
        mass = None if self.mass is None else self.mass.of_parts(*elements_of(y0))
        choice = choice_of(self.linear_solver, self.preconditioner, name)
        large = size >= choices().linear.iteration_from
        return Rosenbrock(self.tableau, mass, linear=dataclasses.replace(choice, large=large))

    def order(self, terms: PyTree) -> int:
        """Returns the order of the method."""
        del terms
        return self.tableau.order

    def error_order(self, terms: PyTree) -> int:
        """Returns the power of the step size that the error estimate is proportional to."""
        del terms
        return self.tableau.error_order

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
    ) -> tuple[Y, Y, dict[str, Any], None, diffrax.RESULTS]:
        """Makes a step for `diffrax.diffeqsolve`."""
        del solver_state, made_jump
        h = t1 - t0
        # diffrax continues with steps of zero length once it is done: with zero slopes instead, whose derivatives are
        # not NaN
        h = jnp.where(h == 0, jnp.ones_like(h), h)
        unit = jax.tree.map(lambda control: control / h, terms.contr(t0, t1))  # -1 where diffrax reverses time

        def field(t, y):
            return terms.vf_prod(t, y, args, unit)

        step = self.stepper(y0).step(field, t0, h, y0, None)
        return step.y1, step.error, dict(y0=y0, y1=step.y1, dense=step.dense), None, diffrax.RESULTS.successful

    def func(self, terms: PyTree, t0: RealScalarLike, y0: Y, args: Args) -> PyTree:
        """Returns the vector field."""
        return terms.vf(t0, y0, args)
