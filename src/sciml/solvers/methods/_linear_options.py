"""How a method is told to solve its linear systems: `linear_solver` and `preconditioner`."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import lineax as lx
import numpy as np
from jaxtyping import Array

from ..._checks import concrete
from ..._types import Y
from ..control._pid import Tolerances
from ..linear._choose import LinearChoice
from ..linear._preconditioners import AbstractPreconditioner, Unknowns, points_of
from ._ravel import flattened, unflattened

SIMPLEST = "`lineax.GMRES(rtol=1e-3, atol=1e-6)`"


def as_iteration(solver: Any) -> Any:
    """Returns one of lineax's iterations as it was given, checked.

    Raises:
        TypeError: If it is none that runs here, or its tolerances are traced.
    """
    if solver is None:
        return None
    if not isinstance(solver, lx.GMRES | lx.BiCGStab):
        raise TypeError(
            f"`linear_solver` must be an iteration such as {SIMPLEST} or `lineax.BiCGStab(rtol=1e-3, atol=1e-6)`, or "
            f"None for what the structure of the Jacobian asks for, but is {solver!r}."
        )
    if not all(map(concrete, (solver.rtol, solver.atol))):
        raise TypeError("`linear_solver` must have tolerances that are known numbers, but they are traced.")
    return solver


def as_preconditioner(preconditioner: Any) -> AbstractPreconditioner | None:
    """Returns a preconditioner as it was given, checked.

    Raises:
        TypeError: If it is none.
    """
    if preconditioner is not None and not isinstance(preconditioner, AbstractPreconditioner):
        raise TypeError(
            "`preconditioner` must be one of sciml's, such as `sciml.solvers.ILU0()`, or None, but is "
            f"{preconditioner!r}."
        )
    return preconditioner


def solver_field() -> Any:
    """Returns the field of a method for one of lineax's iterations."""
    return eqx.field(default=None, converter=as_iteration, static=True, kw_only=True)


def preconditioner_field() -> Any:
    """Returns the field of a method for a preconditioner."""
    return eqx.field(default=None, converter=as_preconditioner, static=True, kw_only=True)


def choice_of(solver: Any, preconditioner: AbstractPreconditioner | None, name: str) -> LinearChoice:
    """Returns what a method was told.

    Raises:
        ValueError: If there is a preconditioner, and nothing to precondition.
    """
    if solver is None and preconditioner is not None:
        raise ValueError(
            f"`{name}(preconditioner=...)` is for iterations: give `linear_solver` as well, such as {SIMPLEST}."
        )
    return LinearChoice(solver, preconditioner)


def as_numbers(tolerances: Tolerances | None) -> tuple[float, float] | None:
    """Returns the smallest relative and absolute tolerance; None where one is traced, or steps are fixed."""
    if tolerances is None:
        return None
    leaves = [jax.tree.leaves(x) for x in tolerances]
    if not all(map(concrete, leaves[0] + leaves[1])):
        return None
    rtol, atol = (min(float(np.min(x)) for x in each) for each in leaves)
    return rtol, atol


def unknowns_of(y: Y) -> Unknowns:
    """Returns what the numbers of a state as one vector are in it."""

    def of_vectors(function: Callable) -> Callable:
        def run(shift: Array, x: Array) -> Array:
            return flattened(function(shift, unflattened(x, y)))

        return run

    return Unknowns(points_of(y), of_vectors)
