"""Selection of an implicit method for a stiff equation without a `solver`, and its log message."""

import functools
import logging
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._checks import check_state, time_dtype
from .._choices import choices
from .._types import Args, RealScalarLike, Y
from .linear._choose import LinearChoice, structure_of
from .linear._entries import DenseMatrix
from .linear._structure import AbstractStructure
from .methods._ravel import flattened, unflattened
from .methods.implicit._bdf import BDF
from .methods.implicit._linear_options import unknowns_of
from .methods.implicit._rodas5p import Rodas5P

_LOG = logging.getLogger("sciml.solvers")


class Chosen(NamedTuple):
    """A method.

    Attributes:
        solver: The method.
        why: Of what size and structure the equation is.
        feasible: Whether its matrices can be stored and factorised.
    """

    solver: Rodas5P | BDF
    why: str
    feasible: bool = True


def promises_stiffness(model: Any) -> bool:
    """Returns whether a model declares that it is stiff."""
    return getattr(model, "stiff", False) is True


def stiff_method(model: Callable, t: RealScalarLike, y0: PyTree, args: Args, fixed_steps: bool = False) -> Chosen:
    """Returns the method for a stiff equation, by how large and of which structure its linear systems are.

    `BDF` factorises a matrix once for many steps, of which it takes more, and solves one system in each: it is for dear
    factorisations, and for systems that are left to an iteration. With fixed steps the method is `Rodas5P`.
    """
    y0 = jax.eval_shape(check_state, y0)  # the leaves may be shapes alone
    leaves = jax.tree.leaves(y0)
    size = sum(math.prod(x.shape) * (2 if jnp.iscomplexobj(x) else 1) for x in leaves)
    if fixed_steps or size < choices().stiff.bdf_from or any(jnp.finfo(x.dtype).bits < 32 for x in leaves):
        return Chosen(Rodas5P(), f"{size} unknowns")
    structure = _structure(model, t, y0, args)
    dense = isinstance(structure, DenseMatrix)
    why = f"{size} unknowns, whose matrices are {structure.words}"
    few = size < choices().linear.iteration_of_all_from
    return Chosen(BDF() if dense or structure.iterates else Rodas5P(), why, not dense or few)


def promised_method(model: Callable, t: RealScalarLike, y0: PyTree, args: Args, fixed_steps: bool) -> Rodas5P | BDF:
    """Returns the method for a model that declares that it is stiff, and logs it once."""
    chosen = stiff_method(model, t, y0, args, fixed_steps)
    log_choice(model, "is declared stiff", chosen)
    return chosen.solver


def log_choice(model: Any, found: str, chosen: Chosen) -> None:
    """Says once which method was taken for a model, and why."""
    name = getattr(model, "__name__", type(model).__name__)
    _log_once(name, found, type(chosen.solver).__name__, chosen.why)


@functools.cache
def _log_once(*words: str) -> None:
    _LOG.info("No `solver` was given, and %s %s: using %s for %s.", *words)


def _structure(model: Callable, t: RealScalarLike, y0: PyTree, args: Args) -> AbstractStructure:
    """The structure of the systems of an implicit step, which depends on no number."""
    arrays, rest = eqx.partition((model, args), eqx.is_array)
    found: list[AbstractStructure] = []

    def read(arrays: PyTree, t: Array, y: Y) -> None:
        model, args = eqx.combine(arrays, rest)
        x = flattened(y)

        def slope(x: Array) -> Array:
            return flattened(model(t, unflattened(x, y), args))

        choice = LinearChoice(large=x.size >= choices().linear.iteration_from, by_tolerances=True)
        found.append(structure_of(slope, x, None, choice, unknowns_of(y)))

    jax.eval_shape(read, arrays, jnp.asarray(t, time_dtype(y0)), y0)
    return found[0]
