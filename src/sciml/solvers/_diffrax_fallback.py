"""Solves that diffrax runs: its implicit, stochastic and other solvers without an explicit tableau."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from .._jax._ad_modes import reverse_only
from .._jax._vma import vma_of
from .._status import Status
from .._types import Args, Y
from ._plan import Times
from ._solution import Solution, Stats
from .adjoints import AbstractAdjoint, Checkpointed, Direct
from .adjoints._discrete_rule import IN_FORWARD_MODE
from .control._pid import Tolerances
from .integrate._integrator import known

_ADJOINTS = {Checkpointed: diffrax.RecursiveCheckpointAdjoint, Direct: diffrax.DirectAdjoint}


@eqx.filter_jit
def solve(
    model: Callable,
    y0: Y,
    args: Args,
    times: Times,
    tolerances: Tolerances | None,
    max_steps: int,
    solver: diffrax.AbstractSolver | None,
    controller: diffrax.AbstractStepSizeController | None,
    saveat: Any,
    adjoint: AbstractAdjoint,
) -> Solution:
    """Runs a solve by `diffrax.diffeqsolve` and returns it as a `Solution`.

    Raises:
        TypeError: If the adjoint is none that diffrax has.
        ValueError: If the adjoint has levels, or its inputs differ between the devices of a `jax.shard_map`.
    """
    if type(adjoint) not in _ADJOINTS:
        raise TypeError(
            f"`adjoint={type(adjoint).__name__}()` needs one of sciml's own loops, but diffrax runs this solve, for "
            "its `solver`, `controller` or `saveat`. Use `sciml.Checkpointed()` or `sciml.Direct()`."
        )
    if isinstance(adjoint, Checkpointed) and adjoint.levels is not None:
        raise ValueError(
            f"`Checkpointed(levels={adjoint.levels})` needs one of sciml's own loops, with a number of steps that is "
            "known when traced, but diffrax runs this solve, for its `solver`, `controller` or `saveat`, and chooses "
            "its checkpoints itself: leave `levels` out."
        )
    if vma_of((eqx.filter(model, eqx.is_array), y0, args, times)):
        raise ValueError(
            "diffrax runs this solve, for its `solver`, `controller` or `saveat`, and its loops refuse what differs "
            "between devices inside `jax.shard_map` with `check_vma=True`. Use a method that runs in sciml's own "
            "loops, such as `sciml.solvers.Rodas5P()`, or `jax.vmap` without `jax.shard_map`."
        )
    if controller is None:
        if tolerances is None:
            controller = diffrax.ConstantStepSize()
        else:
            controller = diffrax.PIDController(rtol=tolerances.rtol, atol=tolerances.atol)
    if not isinstance(saveat, diffrax.SaveAt):
        saveat = diffrax.SaveAt(t1=True) if times.saves is None else diffrax.SaveAt(ts=times.saves)
    if isinstance(adjoint, Checkpointed):
        inexact, rest = eqx.partition((model, y0, args, times), eqx.is_inexact_array)
        model, y0, args, times = eqx.combine(reverse_only(inexact, IN_FORWARD_MODE), rest)
    direction = jnp.where(times.t1 >= times.t0, 1, -1).astype(times.t0.dtype)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(model),
        diffrax.Tsit5() if solver is None else solver,
        times.t0,
        times.t1,
        None if times.dt is None else direction * jnp.abs(times.dt),
        y0,
        args,
        saveat=saveat,
        stepsize_controller=controller,
        adjoint=_ADJOINTS[type(adjoint)](),
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
    stats = solution.stats
    accepted, rejected = (jnp.asarray(stats[f"num_{kind}_steps"], jnp.int32) for kind in ("accepted", "rejected"))
    reached = jnp.where(good_and_finite, times.t1, jnp.full_like(times.t1, jnp.nan))
    ys = known(solution.ys, good_and_finite)
    return Solution(
        solution.ts, ys, status, reached, Stats(accepted, rejected, jnp.full_like(accepted, -1), accepted + rejected)
    )
