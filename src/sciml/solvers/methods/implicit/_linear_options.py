"""The options of a method for its linear systems: `linear_solver` and `preconditioner`."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array

from ...._checks import concrete
from ...._choices import choices
from ...._types import RealScalarLike, Y
from ...linear._choose import LinearChoice, structure_of
from ...linear._preconditioners import AbstractPreconditioner, Unknowns, points_of
from ...linear._structure import AbstractStructure
from ...linear._structured_field import BoundStructuredField
from .._ravel import flattened, unflattened
from ._mass_matrix import Mass

SIMPLEST = "`lineax.GMRES(rtol=1e-3, atol=1e-6)`"


def as_iteration(solver: Any) -> Any:
    """Returns one of lineax's iterations as it was given, checked.

    Raises:
        TypeError: If it is not a supported iteration, or its tolerances are traced.
    """
    if solver is None:
        return None
    if not isinstance(solver, lx.GMRES | lx.BiCGStab):
        raise TypeError(
            f"`linear_solver` must be an iterative solver such as {SIMPLEST} or `lineax.BiCGStab(rtol=1e-3, "
            f"atol=1e-6)`, or None to choose by the Jacobian's structure, but is {solver!r}."
        )
    if not all(map(concrete, (solver.rtol, solver.atol))):
        raise TypeError("`linear_solver` must have constant tolerances, but they are traced.")
    return solver


def as_preconditioner(preconditioner: Any) -> AbstractPreconditioner | None:
    """Returns a preconditioner as it was given, checked.

    Raises:
        TypeError: If it is not a preconditioner.
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


def choice_of(
    solver: Any, preconditioner: AbstractPreconditioner | None, name: str, relative: bool = False
) -> LinearChoice:
    """Returns the given options.

    Args:
        solver: One of lineax's iterations, or None.
        preconditioner: The preconditioner, or None.
        name: The method.
        relative: Whether the iteration's absolute tolerance counts for nothing.

    Raises:
        ValueError: If there is a preconditioner, and nothing to precondition.
    """
    if solver is None and preconditioner is not None:
        raise ValueError(
            f"`{name}(preconditioner=...)` requires an iterative solver: also pass `linear_solver`, such as {SIMPLEST}."
        )
    return LinearChoice(solver, preconditioner, relative=relative)


def check_systems(name: str, y: Y, mass: Mass | None) -> int:
    """Checks that a method can solve systems of states like `y`.

    Args:
        name: The method.
        y: A state.
        mass: Its mass matrix, or None.

    Returns:
        The number of the state's elements.

    Raises:
        ValueError: If the mass matrix does not fit the state.
        TypeError: If the state is large and of half precision.
    """
    leaves = jax.tree.leaves(y)
    size = sum(jnp.size(x) for x in leaves)
    half = [x.dtype.name for x in leaves if jnp.finfo(x.dtype).bits < 32]
    most = choices().linear.sparse_at_most
    if half and size > most:
        raise TypeError(
            f"`solver={name}()` requires float32 or float64 for more than {most} unknowns, but `y0` has {size} of "
            f"{half[0]}, which linear algebra libraries do not support."
        )
    if mass is not None and mass.size != size:
        raise ValueError(
            f"`{name}(mass=...)` must have shape {(size, size)}, since the state has {size} elements, but has "
            f"shape {(mass.size, mass.size)}."
        )
    return size


def structure_of_systems(
    field: Callable, t: RealScalarLike, y: Y, mass: Mass | None, choice: LinearChoice
) -> AbstractStructure:
    """Returns the structure of the systems of one matrix for a field, which may have it already.

    Args:
        field: The field, bound to its operands.
        t: A time.
        y: A state.
        mass: The mass matrix of the state as one vector, or None.
        choice: How they are to be solved.
    """
    if isinstance(field, BoundStructuredField):
        assert not isinstance(field.structure, tuple)
        return field.structure
    matrix = None if mass is None else mass.matrix
    return structure_of(lambda x: flattened(field(t, unflattened(x, y))), flattened(y), matrix, choice, unknowns_of(y))


def unknowns_of(y: Y, times: int = 1) -> Unknowns:
    """Returns the meaning of the numbers of a state as one vector.

    Args:
        y: A state.
        times: How often the vector holds the state, one after another.
    """

    def of_vectors(function: Callable) -> Callable:
        def run(shift: Array, x: Array) -> Array:
            return jnp.concatenate([flattened(function(shift, unflattened(part, y))) for part in jnp.split(x, times)])

        return run

    return Unknowns(np.tile(points_of(y), times), of_vectors)
