"""Profiles of a problem's parameters: fits with one parameter held, each from the one before."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_count
from .._types import RealScalarLike
from .._warn import warn
from ..inference._profile import (
    Lane,
    ProfileLikelihood,
    collected,
    follow,
    lane_of,
    level_and_threshold,
    root_and_step,
    stacked,
)
from ._expansion import Expansion
from ._fit import Fitted, PEtabFit, fit_problem, least

# The scale of a parameter in parts of the distance between its bounds, within which a parabola is followed.
_SCALE = 0.05


def profile_problem(
    problem: Fitted,
    names: str | Sequence[str] | None,
    found: PEtabFit | None,
    *,
    level: RealScalarLike,
    n: int,
    max_steps: int,
    tolerance: RealScalarLike,
) -> ProfileLikelihood:
    """`PEtabProblem.profile`."""
    points, max_steps = check_count(n, "n", "profile"), check_count(max_steps, "max_steps", "profile")
    level, threshold = level_and_threshold(level, "profile")
    tolerance = float(tolerance)
    if not tolerance > 0:
        raise ValueError(f"`profile(tolerance=...)` must be positive, but is {tolerance!r}.")
    every = tuple(problem.names)
    chosen_names = every if names is None else (names,) if isinstance(names, str) else tuple(names)
    if unknown := [name for name in chosen_names if name not in every]:
        raise ValueError(f"`profile`: `{unknown[0]}` is no estimated parameter; these are {', '.join(problem.names)}.")
    chosen = [every.index(name) for name in chosen_names]
    root, step = root_and_step(threshold, points)
    if found is None:
        found = fit_problem(problem, starts=1, key=None, max_steps=200, rtol=None)
    x, lower, upper = jnp.asarray(found.x, problem.lower.dtype), np.asarray(problem.lower), np.asarray(problem.upper)
    ranges = np.where(np.isfinite(upper - lower), _SCALE * (upper - lower), 1.0)
    # directions that the data hardly determine are not followed: far from here the parabola is wrong
    here = _expanded(problem, x)
    curvature = np.asarray(here.curvature, np.float64) + np.diag(1 / ranges**2)
    lanes = [
        lane_of(curvature, k, sign * step, float(ranges[k]), float(x[k]), float(upper[k] if sign > 0 else lower[k]))
        for k in chosen
        for sign in (-1.0, 1.0)
    ]
    at = _followed(problem, x, -here.value, stacked(lanes, x.dtype), points, max_steps, tolerance, step, root)

    def own_unit(z: np.ndarray, k: int, values: np.ndarray) -> np.ndarray:
        return np.clip(values, lower[k], upper[k])

    result, rise = collected(problem.names, chosen, x, at, own_unit, threshold, level)
    if rise > 10 * tolerance:
        warn(
            f"`profile`: a profile rises {rise:.3g} above the given maximum. Find a better maximum first, with "
            "`problem.fit(starts=..., key=...)`."
        )
    return result


@eqx.filter_jit
def _expanded(problem: Fitted, x: Array) -> Expansion:
    return problem.expansion(x)


@eqx.filter_jit
def _followed(
    problem: Fitted,
    x: Array,
    top: Array,
    lanes: Lane,
    points: int,
    max_steps: int,
    tolerance: float,
    step: float,
    root: float,
) -> tuple[Array, Array]:
    lower, upper = problem.lower, problem.upper

    def one(lane: Lane) -> tuple[Array, Array]:
        held = jnp.arange(x.size, dtype=lane.index.dtype) == lane.index

        def fit(guess: Array, last: Array, done: Array) -> tuple[Array, Array]:
            guess = jnp.clip(guess, lower, upper)
            ends = jnp.where(held, guess, lower), jnp.where(held, guess, upper)
            steps = jnp.where(done, 0, max_steps)
            there = least(problem.expansion, guess, *ends, steps, tolerance / jnp.maximum(jnp.abs(top), 1.0))
            return there.x, -there.value

        return follow(fit, x, top, lane, points, step, root)

    return jax.vmap(one)(lanes)
