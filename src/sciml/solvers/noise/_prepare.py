"""What `solve` decides where a model has noise: the method, and the path of the Brownian motions."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._checks import check_key, concrete
from ..._stochastic import AbstractStochastic, check_noise
from ..._types import Args, Y
from .._request import Interval, Request
from ..adjoints import AbstractAdjoint
from ..methods.stochastic._read_diffrax import default_solver, stochastic_stepper
from ._brownian import AbstractBrownian, BrownianPath, CountedSteps
from ._closed_noise import ModelWithNoise, is_elementwise, shape_of
from ._random_bits import words_of
from ._to_diffrax import interpretation_of

_TOLERANCES = (1e-2, 1e-4)


def check_noisy(model: Any, key: Any, adjoint: AbstractAdjoint) -> None:
    """Checks that a model with noise has a key, and one without has none.

    Raises:
        ValueError: If a key is missing or of no use, or the adjoint does not differentiate steps.
        TypeError: If it is no key.
    """
    if not isinstance(model, AbstractStochastic):
        if key is not None:
            raise ValueError(
                f"`key` is for models with noise such as `sciml.Stochastic`, and {type(model).__name__} has none."
            )
        return
    check_noise(model)
    if key is None:
        raise ValueError(
            "A model with noise needs `key`: a random key such as `jax.random.key(0)`, for each member one of its own, "
            "or a `sciml.BrownianPath`."
        )
    if not isinstance(key, BrownianPath):
        check_key(key, "solve")
    if not adjoint.repeats_steps:
        raise ValueError(
            f"`adjoint={type(adjoint).__name__}()` does not go through noise: use `sciml.adjoints.Checkpointed()`, "
            "`Direct()` or `Forward()`."
        )


def with_noisy_solver(model: AbstractStochastic, y0: Y, args: Args, request: Request, interval: Interval) -> Request:
    """Returns a request with a solver, the method that our loops run for it, and tolerances.

    Raises:
        TypeError: If it is no solver of equations with noise.
    """
    solver = request.solver
    if solver is None:
        shape = shape_of(model, interval.t0, y0, args)
        elementwise = is_elementwise(model, shape, interval.t0, y0, args)
        solver = default_solver(shape, elementwise, request.fixed_steps)
    stepper = stochastic_stepper(solver)
    if stepper is None and interpretation_of(solver) is None:
        raise TypeError(
            f"`solver={type(solver).__name__}()` does not solve equations with noise: take `diffrax.Euler()`, "
            "`diffrax.ItoMilstein()`, `diffrax.SPaRK()`, `sciml.solvers.SRIW1()` or another of them."
        )
    return request._replace(solver=solver, stepper=stepper, default_tolerances=_TOLERANCES)


def path_of(key: Any, t0: Array, t1: Array, dt: Array | None, forwards: bool | None) -> AbstractBrownian:
    """Returns the path that the steps of a solve see.

    Args:
        key: A random key or a path.
        t0: The start of the solve.
        t1: Its end.
        dt: The length of equal steps; None where steps differ.
        forwards: Whether `t1 > t0`; None where that is not known.

    Raises:
        ValueError: If the solve goes backwards in time, leaves the interval of the path, or steps cannot be told apart.
    """
    if forwards is False:
        raise ValueError("A solve with noise goes forwards in time, but `t1` comes before `t0`.")
    if isinstance(key, BrownianPath) or dt is None:
        key = key if isinstance(key, BrownianPath) else BrownianPath(key, t0, t1)
        path = jax.tree.map(lambda x: x.astype(t0.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, key)
    else:
        path = CountedSteps(words_of(jnp.asarray(key)), t0, dt)
    wrong = path.refuses(t0, t1)
    if concrete(wrong) and bool(wrong):
        raise ValueError(path.why())
    return path


def refuses(model: ModelWithNoise, t0: Array, t1: Array) -> Array:
    """Returns whether a solve goes backwards in time, or its noise is not known over its interval."""
    return (t1 < t0) | model.path.refuses(t0, t1)
