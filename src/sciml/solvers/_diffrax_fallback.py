"""Solves that diffrax runs: its solvers without a tableau that sciml's loops read."""

import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._jax._ad_modes import reverse_only
from .._jax._members_apart import members_apart
from .._jax._shards import sign_of
from .._jax._vma import on_explicit_axes, vma_of
from .._same_code import filter_jit
from .._status import Status
from .._types import Y
from .._warn import warn
from ._plan import Times
from ._request import Request
from ._solution import Solution, Stats
from .adjoints._abstract import AbstractAdjoint
from .adjoints._discrete_rule import IN_FORWARD_MODE
from .control._pid import Tolerances
from .integrate._integrator import known
from .noise._brownian import DEPTH
from .noise._closed_noise import ModelWithNoise
from .noise._to_diffrax import noisy_terms
from .terms._field import close_field

_LOG = logging.getLogger("sciml.solvers")


@functools.cache
def log_once(solver: str, by_solver: bool) -> None:
    """Says once that diffrax runs the solves of a solver, why, and what that costs.

    Args:
        solver: The name of the solver.
        by_solver: Whether it is the solver that sciml's own loops cannot run.
    """
    why = "it has no tableau" if by_solver else "its `stepsize_controller` or `saveat` requires it"
    _LOG.info(
        "%s runs in diffrax's loop instead of sciml's own, since %s. It supports the adjoints `Checkpointed` and "
        "`Direct`, but not `batching`, kernels or `jax.shard_map` with `check_vma=True`.",
        solver,
        why,
    )


def warn_of_times(dtype: Any) -> None:
    """Warns where times are so far from zero that their dtype loses digits of the steps between them."""
    warn(
        f"diffrax runs this solve and subtracts times in {dtype}, whose resolution at `t0` and `t1` is coarser than a "
        "thousandth of the interval between them. Shift time to begin near zero, enable float64 with "
        '`jax.config.update("jax_enable_x64", True)`, or use a method that runs in sciml\'s own loops.',
    )


def _terms_of(model: Any, y0: Y, times: Times, request: Request) -> diffrax.AbstractTerm:
    """Returns a model as diffrax's terms."""
    if isinstance(model, diffrax.AbstractTerm):
        return model
    if isinstance(model, ModelWithNoise):
        tolerance = (times.t1 - times.t0) * 2.0**-DEPTH
        if times.dt is not None and request.fixed_steps:
            tolerance = jnp.abs(times.dt) / 16
        return noisy_terms(model, request.solver, times.t0, times.t1, tolerance, y0, request.args)
    return diffrax.ODETerm(model)


@filter_jit
def solve(
    model: Callable | diffrax.AbstractTerm,
    y0: Y,
    times: Times,
    tolerances: Tolerances | None,
    max_steps: int,
    request: Request,
    adjoint: AbstractAdjoint,
) -> Solution:
    """Runs a solve by `diffrax.diffeqsolve` and returns it as a `Solution`.

    Raises:
        TypeError: If diffrax has no such adjoint.
        ValueError: If diffrax does not support the adjoint, or its inputs differ between the devices of a
            `jax.shard_map`.
    """
    with_diffrax = adjoint.for_diffrax()
    if vma_of((eqx.filter(model, eqx.is_array), y0, request.args, times)):
        raise ValueError(
            "diffrax runs this solve because of its `solver`, `stepsize_controller` or `saveat`, and diffrax does not "
            "support values that differ between devices inside `jax.shard_map` with `check_vma=True`. Use a method "
            "that runs in sciml's own loops, such as `sciml.solvers.Rodas5P()`, or `jax.vmap` without `jax.shard_map`."
        )
    if not isinstance(model, diffrax.AbstractTerm | ModelWithNoise):
        # what it closes over becomes an operand
        model, args = close_field(model, times.t0, y0, request.args)
        request = request._replace(args=args)

    def run(model: Any, y0: Y, times: Times, tolerances: Tolerances | None, request: Request) -> _Solved:
        return _solve(model, y0, times, tolerances, max_steps, request, with_diffrax)

    given = (model, y0, times, tolerances, request)
    reverse = None if isinstance(with_diffrax, diffrax.DirectAdjoint) else IN_FORWARD_MODE
    # its loops do not know members that are sharded by their type
    solved = members_apart(run, reverse)(*given) if on_explicit_axes(given) else run(*given)
    return Solution(
        solved.ts,
        solved.ys,
        solved.status,
        solved.reached,
        Stats(solved.accepted, solved.rejected, jnp.full_like(solved.accepted, -1), solved.accepted + solved.rejected),
        type(request.solver).__name__,
    )


class _Solved(NamedTuple):
    """The outcome of a solve; see `Solution`."""

    ts: Array
    ys: PyTree
    status: Array
    reached: Array
    accepted: Array
    rejected: Array


def _solve(
    model: Any,
    y0: Y,
    times: Times,
    tolerances: Tolerances | None,
    max_steps: int,
    request: Request,
    adjoint: diffrax.AbstractAdjoint,
) -> _Solved:
    controller, saveat = request.stepsize_controller, request.saveat
    if controller is None:
        if tolerances is None:
            controller = diffrax.ConstantStepSize()
        else:
            controller = diffrax.PIDController(rtol=tolerances.rtol, atol=tolerances.atol)
    if not isinstance(saveat, diffrax.SaveAt):
        saveat = diffrax.SaveAt(t1=True) if times.saves is None else diffrax.SaveAt(ts=times.saves)
    if not isinstance(adjoint, diffrax.DirectAdjoint):
        inexact, rest = eqx.partition((model, y0, request.args, times), eqx.is_inexact_array)
        model, y0, args, times = eqx.combine(reverse_only(inexact, IN_FORWARD_MODE), rest)
        request = request._replace(args=args)

    direction = sign_of(times.t1 >= times.t0, times.t0.dtype)
    solution = diffrax.diffeqsolve(
        _terms_of(model, y0, times, request),
        request.solver,
        times.t0,
        times.t1,
        None if times.dt is None else direction * jnp.abs(times.dt),
        y0,
        request.args,
        saveat=saveat,
        stepsize_controller=controller,
        adjoint=adjoint,
        max_steps=max_steps,
        throw=False,
    )
    assert solution.ts is not None  # `saveat` asks for times
    good = solution.result == diffrax.RESULTS.successful
    saved = jnp.isfinite(solution.ts)  # diffrax fills what it did not save with infinity
    finite = [jnp.all(jnp.isfinite(x).reshape(saved.size, -1).all(1) | ~saved) for x in jax.tree.leaves(solution.ys)]
    good_and_finite = good & jnp.stack(finite).all()
    status = jnp.select(
        [
            good_and_finite,
            solution.result == diffrax.RESULTS.max_steps_reached,
            solution.result == diffrax.RESULTS.dt_min_reached,
            good,
        ],
        [int(s) for s in (Status.successful, Status.max_steps_reached, Status.step_too_small, Status.nonfinite)],
        int(Status.diverged),
    ).astype(jnp.int32)
    accepted, rejected = (jnp.asarray(solution.stats[f"num_{kind}_steps"], jnp.int32) for kind in _STEPS)
    reached = jnp.where(good_and_finite, times.t1, jnp.full_like(times.t1, jnp.nan))
    return _Solved(solution.ts, known(solution.ys, good_and_finite), status, reached, accepted, rejected)


_STEPS = "accepted", "rejected"
