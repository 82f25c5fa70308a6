"""The decisions of `solve` for a model with delays: the method, and the number of stored steps."""

import math
from typing import Any

import diffrax
import numpy as np
from jaxtyping import Array

from .._checks import concrete
from .._interfaces._delayed import AbstractDelayed
from ._request import Interval, Request
from .adjoints._abstract import REPEATING, AbstractAdjoint, check_supports
from .methods.delays._method_of_steps import _RETURNS, DelayedFrom, MethodOfSteps
from .methods.explicit._runge_kutta import from_diffrax

_MOST_KEPT_STEPS = 100_000


def with_delays(model: AbstractDelayed, request: Request, interval: Interval, adjoint: AbstractAdjoint) -> Request:
    """Returns a request with the method for a delay equation.

    Raises:
        ValueError: If the solve goes backwards in time, steps are longer than a delay, or the adjoint does not repeat
            steps.
        TypeError: If the solver is not an explicit Runge-Kutta method.
    """
    solver = diffrax.Tsit5() if request.solver is None else request.solver
    base = from_diffrax(solver) if isinstance(solver, diffrax.AbstractSolver) else None
    if base is None:
        raise TypeError(
            f"`solver={type(solver).__name__}()` does not support delays. Use an explicit Runge-Kutta "
            "method such as `diffrax.Tsit5()` or `diffrax.Bosh3()`."
        )
    check_supports(adjoint, "repeats_steps", "delays", REPEATING)
    if interval.forwards is False:
        raise ValueError("A solve with delays must go forwards in time, but `t1` is before `t0`.")
    kept = model.kept
    if request.fixed_steps and concrete(request.dt) and concrete(model.delays) and request.dt is not None:
        delays, dt = np.asarray(model.delays, float), float(request.dt)
        if dt > delays.min() * (1 + 1e-6):
            raise ValueError(f"`dt`={dt:g} is longer than the shortest delay, {delays.min():g}.")
        kept = math.ceil(delays.max() / dt) + 3
        if kept > _MOST_KEPT_STEPS:
            raise ValueError(
                f"`dt`={dt:g} requires {kept} stored steps for the longest delay, {delays.max():g}, which is too many."
            )
    jumps = model.history_jumps.shape[0]
    if jumps and request.fixed_steps:  # they cut steps, within the longest delay, too
        kept = kept + jumps * _RETURNS * model.delays.size
    return request._replace(solver=solver, stepper=MethodOfSteps(base, kept, history_jumps=jumps > 0))


def goes_backwards(model: Any, t0: Array, t1: Array) -> Array | None:
    """Returns whether a solve with delays goes backwards in time; None without delays."""
    return t1 < t0 if isinstance(model, DelayedFrom) else None
