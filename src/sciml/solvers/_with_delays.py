"""The decisions of `solve` for a model with delays: the method, and the number of stored steps."""

import math
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import concrete
from .._interfaces._delayed import AbstractDelayed
from .._types import Y
from ._read_diffrax import stepper_of
from ._request import Interval, Request
from .adjoints._abstract import REPEATING, AbstractAdjoint, check_supports
from .methods._stepper import AbstractStepper
from .methods.delays._delay_field import DelayedFrom
from .methods.delays._method_of_steps import _RETURNS, TRACKED, MethodOfSteps, check_delays
from .methods.explicit._runge_kutta import from_diffrax

_MOST_KEPT_STEPS = 100_000


def with_delays(
    model: AbstractDelayed, y0: Y, request: Request, interval: Interval, adjoint: AbstractAdjoint
) -> Request:
    """Returns a request with the method for a delay equation.

    Raises:
        ValueError: If the solve goes backwards in time, steps are longer than a delay, the adjoint does not repeat
            steps, or fixed steps are to find the breaking points of delays that are functions.
        TypeError: If the solver does not support delays.
    """
    solver = diffrax.Tsit5() if request.solver is None else request.solver
    base = _method(solver, y0)
    check_supports(adjoint, "repeats_steps", "delays", REPEATING)
    if interval.forwards is False:
        raise ValueError("A solve with delays must go forwards in time, but `t1` is before `t0`.")
    kept, jumps = model.kept, model.history_jumps.shape[0]
    if callable(model.delays):
        if request.fixed_steps:
            raise ValueError(
                "Delays that depend on the time or the state require error control, because steps must end where "
                "derivatives jump: pass `rtol` and `atol`, with `dt0` or a `diffrax.PIDController(dtmax=...)`, "
                "instead of `dt`."
            )
    elif request.fixed_steps and concrete(request.dt) and concrete(model.delays) and request.dt is not None:
        delays, dt = np.asarray(model.delays, float), float(request.dt)
        if dt > delays.min() * (1 + 1e-6):
            raise ValueError(f"`dt`={dt:g} is longer than the shortest delay, {delays.min():g}.")
        kept = math.ceil(delays.max() / dt) + 3
        if kept > _MOST_KEPT_STEPS:
            raise ValueError(
                f"`dt`={dt:g} requires {kept} stored steps for the longest delay, {delays.max():g}, which is too many."
            )
        if model.neutral and np.any(np.abs(delays / dt - np.round(delays / dt)) > 1e-6):
            raise ValueError(
                f"`dt`={dt:g} must divide the delays of a neutral equation, {delays}, because its rate jumps after "
                "each of them. Pass `rtol` and `atol` for steps that end there."
            )
    if callable(model.delays) or model.neutral:
        points = max(TRACKED, kept) if model.neutral else TRACKED
        stepper = MethodOfSteps(base, kept, points, jumps > 0, tracked=True, neutral=model.neutral)
        return request._replace(solver=solver, stepper=stepper)
    if jumps and request.fixed_steps:  # they cut steps, within the longest delay, too
        kept = kept + jumps * _RETURNS * model.delays.size
    return request._replace(solver=solver, stepper=MethodOfSteps(base, kept, history_jumps=jumps > 0))


def check_first_delays(model: AbstractDelayed, y0: Y, request: Request, interval: Interval) -> None:
    """Checks the delays at the start, if they are a function and their values are known.

    Args:
        model: The equation.
        y0: The initial state.
        request: The arguments of `solve`.
        interval: The times of the solve.

    Raises:
        ValueError: If one is negative, beyond rounding, or NaN.
    """
    times = interval.t0, interval.t1
    if not callable(model.delays) or not all(map(concrete, jax.tree.leaves((model, y0, request.args, times)))):
        return
    found = model.delays(interval.t0, y0, request.args)
    check_delays(jax.eval_shape(lambda: found))
    if not concrete(found):  # within a trace
        return
    lags, ends = np.asarray(found, float).reshape(-1), [abs(float(t)) for t in times]
    rounding = float(jnp.finfo(interval.t0.dtype).eps) ** 0.5 * max(*ends, *np.abs(lags))
    if not np.all(lags >= -rounding):
        raise ValueError(
            f"`delays(t, y, args)` must not be negative, because the rate would depend on the future, but at the start,"
            f" t = {float(interval.t0):g}, it returns {np.array2string(np.asarray(found), precision=6)}."
        )


def _method(solver: Any, y0: Y) -> AbstractStepper:
    """Returns the method of a solver for the steps between breaking points.

    Raises:
        TypeError: If it does not support delays.
    """
    base = from_diffrax(solver) if isinstance(solver, diffrax.AbstractSolver) else None
    if base is not None:
        return base
    found = stepper_of(solver, y0)
    if found is not None:
        traits = found.traits
        special = traits.history or traits.rough or traits.jumps or traits.transforms_state or not traits.field_is_rate
        if traits.dense and not special:
            return found
    if getattr(solver, "mass", None) is not None:
        raise TypeError(
            f"`solver={type(solver).__name__}(mass=...)` does not support delays. Leave out `mass`, and multiply the "
            "rates by the inverse of the matrix if it has one."
        )
    raise TypeError(
        f"`solver={type(solver).__name__}()` does not support delays. Use an explicit Runge-Kutta method such as "
        "`diffrax.Tsit5()`, or for stiff equations `sciml.solvers.Rodas5P()`."
    )


def goes_backwards(model: Any, t0: Array, t1: Array) -> Array | None:
    """Returns whether a solve with delays goes backwards in time; None without delays."""
    return t1 < t0 if isinstance(model, DelayedFrom) else None
