"""The decisions of `solve` for a differential-algebraic equation."""

from typing import Any

import jax
import numpy as np

from .._interfaces._dae import AbstractDAE
from .._types import Y
from ._request import Request
from .adjoints._abstract import REPEATING, AbstractAdjoint, check_supports
from .methods._solver import name_of
from .methods.implicit._radau import Radau5
from .methods.implicit._radau_dae import RadauDAE


def with_daes(model: AbstractDAE, y0: Y, request: Request, adjoint: AbstractAdjoint) -> Request:
    """Returns a request with the method for a differential-algebraic equation.

    Raises:
        ValueError: If the adjoint does not repeat steps, the index does not fit the state, or states are restricted.
        TypeError: If the solver is not `Radau5`.
    """
    solver: Any = Radau5() if request.solver is None else request.solver
    if not isinstance(solver, Radau5):
        raise TypeError(
            f"`solver={name_of(solver)}()` does not support a `sciml.DAE`. Use `sciml.solvers.Radau5()`, the default."
        )
    given = [name for name in ("positive", "domain", "project") if getattr(request, name) is not None]
    if given:
        raise ValueError(
            f"`{given[0]}` does not support a `sciml.DAE`, whose equations hold at the end of every step. To conserve "
            "a quantity, add it as an equation with a multiplier of its own."
        )
    check_supports(adjoint, "repeats_steps", "a `sciml.DAE`", REPEATING)
    index = []
    for x, of_leaf in zip(jax.tree.leaves(y0), model.indices.of_state(y0), strict=True):
        index += np.repeat(of_leaf.reshape(-1), 2 if np.iscomplexobj(x) else 1).tolist()
    return request._replace(solver=solver, stepper=RadauDAE(solver, tuple(index)))
