"""The decisions of `solve` for a model with noise: the method, and the path of the Brownian motions."""

import dataclasses
import math
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_key, concrete
from .._interfaces._levy_process import AbstractLevy
from .._interfaces._reactions import AbstractReactions
from .._interfaces._stochastic import AbstractStochastic, at_past, check_noise, delays_of
from .._types import Y
from ._plan import Plan, Times
from ._request import Interval, Request
from .adjoints._abstract import REPEATING, AbstractAdjoint, check_supports
from .events._event import GivenEvents
from .methods.delays._delayed_noise import DelayedNoise
from .methods.jumps._abstract import CONTROL, AbstractReactionStepper, ReactionsWithKey
from .methods.jumps._methods import Gillespie
from .methods.stochastic._runge_kutta import default_solver, stiff_solver, stochastic_stepper
from .methods.stochastic._stiff import SemiImplicitEuler
from .noise._brownian import DEPTH, AbstractBrownian, BrownianPath, CountedSteps
from .noise._closed_noise import ModelWithNoise, is_elementwise, shape_of
from .noise._random_bits import words_of
from .noise._to_diffrax import interpretation_of

_TOLERANCES = (1e-2, 1e-4)


def is_noisy(model: Any) -> bool:
    """Returns whether a model has noise, and needs a key."""
    return isinstance(model, AbstractStochastic | AbstractReactions)


def check_noisy(model: Any, key: Any, adjoint: AbstractAdjoint) -> None:
    """Checks that a model with noise has a key, and one without has none.

    Raises:
        ValueError: If a key is missing or of no use, or the adjoint does not differentiate steps.
        TypeError: If it is not a key.
    """
    if not is_noisy(model):
        if key is not None:
            raise ValueError(
                f"`key` requires a model with noise such as `sciml.Stochastic`, but {type(model).__name__} has no "
                "noise."
            )
        return
    if isinstance(model, AbstractStochastic):
        check_noise(model)
    elif isinstance(key, AbstractBrownian):
        raise TypeError("`key` of reactions must be a random key, not a path such as a `sciml.BrownianPath`.")
    if key is None:
        raise ValueError(
            "A model with noise requires `key`: a random key such as `jax.random.key(0)`, a different one for each "
            "member, or a `sciml.BrownianPath`."
        )
    if not isinstance(key, AbstractBrownian):
        key = check_key(key, "solve")
        of_one = 0 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else 1
        if key.ndim != of_one:
            raise ValueError(
                f"`key` must be one random key, but is an array of keys of shape {key.shape[: key.ndim - of_one]}. To "
                "run many members write `jax.vmap(lambda key: sciml.solve(...))(keys)`."
            )
    check_supports(adjoint, "repeats_steps", "noise", REPEATING)


def with_noisy_solver(
    model: AbstractStochastic | AbstractReactions,
    y0: Y,
    request: Request,
    interval: Interval,
    by_diffrax: bool = True,
) -> Request:
    """Returns a request with a solver, the method that our loops run for it, and tolerances.

    Raises:
        TypeError: If it is not a solver for equations with noise.
    """
    solver = request.solver
    if isinstance(model, AbstractReactions):
        return _with_reaction_solver(request)
    delays = _delays(model, request)
    if delays:
        model = at_past(model, (y0,) * len(delays))
    if model.driver is not None:
        _check_driven(request)
    if solver is None and request.fixed_steps:
        solver = stiff_solver(model.without_noise, y0)
    if model.driver is not None and request.solver is None:
        solver = diffrax.Euler() if solver is None else SemiImplicitEuler()
    if solver is None:
        shape = shape_of(model, interval.t0, y0, request.args)
        elementwise = is_elementwise(model, shape, interval.t0, y0, request.args)
        solver = default_solver(shape, elementwise, model.interpretation, request.fixed_steps)
    stepper = stochastic_stepper(solver)
    if stepper is None and not (by_diffrax and interpretation_of(solver) is not None):
        raise TypeError(
            f"`solver={type(solver).__name__}()` does not support noise. Use a stochastic method such as "
            "`diffrax.Euler()`, `diffrax.ItoMilstein()`, `diffrax.SPaRK()` or `sciml.solvers.SRIW1()`."
        )
    if model.driver is not None and not (stepper is not None and stepper.any_driver):
        raise ValueError(
            f"`solver={type(solver).__name__}()` requires Brownian motion, but the model has "
            f"`driver={type(model.driver).__name__}(...)`. Use `diffrax.Euler()`, `sciml.solvers.TamedEuler()`, "
            "`DriftImplicitEuler()` or `SemiImplicitEuler()`."
        )
    if stepper is not None and stepper.with_levy and isinstance(request.key, BrownianPath):
        shape = shape_of(model, interval.t0, y0, request.args)
        if not shape.additive and not is_elementwise(model, shape, interval.t0, y0, request.args):
            _check_points(request.key, request.dt)
    if delays and (stepper is None or not stepper.takes_past):
        raise TypeError(
            f"`solver={type(solver).__name__}()` does not support noise with delays. Use an explicit method such as "
            "`diffrax.Euler()`, `diffrax.ItoMilstein()` or `diffrax.SPaRK()`."
        )
    stepper = DelayedNoise(stepper, delays) if delays else stepper
    return request._replace(solver=solver, stepper=stepper, default_tolerances=_TOLERANCES)


def _delays(model: AbstractStochastic, request: Request) -> tuple[tuple[float, int], ...]:
    """Returns each delay of an equation with noise and the number of steps in it; nothing without delays.

    Raises:
        ValueError: If steps are not fixed, or do not divide the delays, or the equation is of a kind without methods.
    """
    delayed = delays_of(model)
    if delayed is None:
        return ()
    if callable(delayed.delays) or delayed.neutral:
        raise ValueError("Noise requires constant delays and an equation that is not neutral.")
    if request.dt is None or request.events is not None:
        raise ValueError("Noise with delays requires fixed steps, without `events`: pass `dt`.")
    if not concrete(request.dt) or not concrete(delayed.delays):
        raise ValueError("Noise with delays requires `dt` and delays that are not traced: they set the stored steps.")
    delays, dt = np.asarray(delayed.delays, float).reshape(-1), float(request.dt)
    counts = delays / dt
    if np.any(np.abs(counts - np.round(counts)) > 1e-4 * counts) or np.any(np.round(counts) < 1):
        raise ValueError(f"With noise `dt` must divide the delays, {delays}, but is {dt:g}.")
    return tuple((float(delay), round(count)) for delay, count in zip(delays, counts))


def _check_driven(request: Request) -> None:
    """Checks that a solve with jumps has fixed steps, whose increments are drawn from a key.

    Raises:
        ValueError: If it does not.
    """
    if not request.fixed_steps:
        raise ValueError(
            "A model with a `driver` requires fixed steps: pass `dt`, without `rtol` and `atol`. The increment of a "
            "rejected step cannot be divided between shorter ones."
        )
    if isinstance(request.key, AbstractBrownian):
        raise ValueError("A model with a `driver` requires a random key: a path is one of Brownian motion.")


def _check_points(path: BrownianPath, dt: Any) -> None:
    """Checks that fixed steps are not shorter than the lines between the stored points of a path.

    Raises:
        ValueError: If they are.
    """
    if dt is None or not all(map(concrete, (path.t0, path.t1, dt))):
        return
    steps = float(path.t1 - path.t0) / float(dt)
    if steps > 1.01 * 2**path.stored_depth:
        raise ValueError(
            f"`dt`={dt} is shorter than the distance of the points of this `BrownianPath`, of which 2**"
            f"{path.stored_depth} are stored for Levy areas. Pass "
            f"`BrownianPath(key, t0, t1, depth={math.ceil(math.log2(steps))})` or a random key."
        )


def _with_reaction_solver(request: Request) -> Request:
    """Returns a request for reactions, which choose their steps themselves.

    Raises:
        ValueError: If something else is to choose them.
        TypeError: If it is not a solver for reactions.
    """
    solver = Gillespie() if request.solver is None else request.solver
    if not isinstance(solver, AbstractReactionStepper):
        raise TypeError(
            f"`solver={type(solver).__name__}()` does not support stochastic reactions. Use "
            "`sciml.solvers.Gillespie()` or `TauLeaping()`, or solve `model.langevin()` or `model.rate_equations` "
            "instead of the model."
        )
    steps = dict(dt=request.dt, dt0=request.dt0, rtol=request.rtol, atol=request.atol, norm=request.norm)
    steps |= dict(stepsize_controller=request.stepsize_controller)
    given = [name for name, x in steps.items() if x is not None]
    if given:
        raise ValueError(f"Reactions determine their own steps: leave out {', '.join(f'`{x}`' for x in given)}.")
    return request._replace(solver=solver)


def noisy_model(
    model: AbstractStochastic | AbstractReactions,
    key: Any,
    plan: Plan,
    times: Times,
    equal: bool,
    events: GivenEvents | None = None,
) -> tuple[ModelWithNoise | ReactionsWithKey, Plan]:
    """Returns a model with what makes its noise, and the plan to solve it.

    Args:
        model: The model.
        key: A random key, or for a stochastic equation a path.
        plan: How the solve runs.
        times: Its times.
        equal: Whether its steps have the length that was given, except where an event cuts one.
        events: The events; None without any.

    Raises:
        ValueError: If it goes backwards in time, or its noise is not known over the interval.
    """
    if plan.forwards is False:
        raise ValueError("A solve with noise must go forwards in time, but `t1` is before `t0`.")
    if isinstance(model, AbstractReactions):
        return ReactionsWithKey(model, words_of(jnp.asarray(key))), dataclasses.replace(plan, control=CONTROL)
    if events is not None:  # at a given time a step is cut before the rest of it is drawn
        equal = equal and not any(events.layout.is_schedule)
    if model.driver is not None and not equal:
        raise ValueError(
            "A model with a `driver` does not support a `sciml.Schedule` among its `events`, whose times divide steps. "
            "Use a `sciml.Event`, or solve up to each time separately."
        )
    path = path_of(key, times.t0, times.t1, times.dt if equal else None, events is not None, model.driver)
    return ModelWithNoise(model, path), plan


def path_of(
    key: Any, t0: Array, t1: Array, dt: Array | None, cut: bool = False, driver: AbstractLevy | None = None
) -> AbstractBrownian:
    """Returns the path that the steps of a solve see.

    Args:
        key: A random key or a path.
        t0: The start of the solve.
        t1: Its end.
        dt: The length of equal steps; None where steps differ.
        cut: Whether equal steps may end within an interval of the path, at events.
        driver: A process in place of Brownian motion, or None.

    Raises:
        ValueError: If the solve leaves the interval of the path, or steps cannot be distinguished.
    """
    if isinstance(key, AbstractBrownian) and not isinstance(key, BrownianPath):
        if dt is None or cut:
            raise ValueError(
                "The paths of `sciml.parallel.multilevel` are known at equal steps: pass `dt`, and neither tolerances "
                "nor `events`."
            )
        path = key
    elif isinstance(key, BrownianPath) or dt is None:
        # as deep as the dtype of time can distinguish points
        depth = min(DEPTH, -round(math.log2(float(jnp.finfo(t0.dtype).eps))) - 3)
        end = jnp.where(t1 > t0, t1, t0 + 1)  # a solve of no length sees nothing of its path
        key = key if isinstance(key, BrownianPath) else BrownianPath(key, t0, end, depth)
        path = jax.tree.map(lambda x: x.astype(t0.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, key)
    else:
        path = CountedSteps(words_of(jnp.asarray(key)), t0, dt, t1 if cut else None, driver)
    wrong = path.refuses(t0, t1)
    if concrete(wrong) and bool(wrong):
        raise ValueError(path.why())
    return path


def refuses(model: Any, t0: Array, t1: Array) -> Array | None:
    """Returns whether a solve with noise goes backwards in time, or its noise is not known; None without noise."""
    if isinstance(model, ReactionsWithKey):
        return t1 < t0
    return (t1 < t0) | model.path.refuses(t0, t1) if isinstance(model, ModelWithNoise) else None
