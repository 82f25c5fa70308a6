"""Arguments whose values are known only at run time: whether they are in range, one answer for each member."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .._checks import least_rtol
from ._plan import Plan, Times
from .control._pid import Tolerances


def out_of_range(y0: PyTree[Array], times: Times, tolerances: Tolerances | None, plan: Plan) -> Bool[Array, ""] | None:
    """Returns whether an argument is one that `solve` refuses where it is known; None where all were known.

    Args:
        y0: The initial state.
        times: The times and the step.
        tolerances: The tolerances, or None for fixed steps.
        plan: How the solve runs, with the names of the traced arguments.
    """
    wrong = []
    for name in ("t0", "t1"):
        if name in plan.traced:
            wrong.append(~jnp.isfinite(getattr(times, name)))
    if times.dt is not None and {"t0", "t1", "dt"} & set(plan.traced):
        forwards = times.dt * times.span >= 0  # a member may end where it starts
        wrong.append(~(forwards & jnp.isfinite(times.dt) & (times.dt != 0)))
    if {"t0", "t1"} & set(plan.traced):
        wrong.append((times.span != 0) & (_rounding(times) > _LOST * jnp.abs(times.span)))
    if times.longest is not None:
        assert times.dt is not None
        wrong.append(jnp.abs(times.dt) > times.longest.astype(times.dt.dtype))
    if tolerances is not None and "rtol" in plan.traced:
        wrong.append(_any_below(tolerances.rtol, y0, [least_rtol(x.dtype) for x in jax.tree.leaves(y0)]))
    if tolerances is not None and "atol" in plan.traced:
        wrong.append(_any_below(tolerances.atol, y0, [0.0] * len(jax.tree.leaves(y0))))
    return functools.reduce(jnp.logical_or, wrong) if wrong else None  # which members share is not sharded as these are


_LOST = 0.05
"""How much of the length of the interval rounding of its ends may be."""


def _rounding(times: Times) -> Array:
    """What a time of this size may be off by."""
    return jnp.finfo(times.span.dtype).eps * jnp.maximum(jnp.abs(times.t0), jnp.abs(times.t1))


def misplaced(saves: Array, times: Times, span: Array) -> Bool[Array, " times"]:
    """Returns which saved times lie outside the interval, or come after a later one, which the solve is past by then.

    Args:
        saves: The saved times from the start, in the direction of time.
        times: The times.
        span: The length of the interval.
    """
    slack = 4 * _rounding(times)
    latest = jax.lax.cummax(jnp.where(jnp.isnan(saves), -jnp.inf, saves))
    return ~((saves >= -slack) & (saves <= span + slack) & (saves >= latest))


def _any_below(tolerance: PyTree[Array], y0: PyTree[Array], least: list[float]) -> Bool[Array, ""]:
    """Whether a tolerance, one for all leaves of the state or one for each, is too small or not finite."""
    leaves = jax.tree.leaves(tolerance)
    bounds = least if len(leaves) == len(least) else [max(least)]
    return jnp.any(jnp.stack([jnp.any(~((x >= bound) & jnp.isfinite(x))) for x, bound in zip(leaves, bounds)]))
