"""Solves for more than states at given times: first to find the ends of steps, if they are requested, then to save."""

import math
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._checks import check_max_steps, check_state, concrete, time_dtype
from ..._interfaces._dae import AbstractDAE
from ..._interfaces._delayed import AbstractDelayed
from ..._interfaces._reactions import AbstractReactions
from ..._jax._checkpoint_levels import Budget
from ..._jax._shards import on_mesh_of, sign_of
from ..._jax._vma import promote
from ...kernels._lanes import Lanes
from .._calls import split
from .._plan import DEFAULT_MAX_STEPS, default_solver
from .._read_diffrax import read_step_control, stepper_of
from .._request import Request
from .._solution import Solution
from .._with_noise import is_noisy
from ..adjoints._abstract import AbstractAdjoint
from ..adjoints._checkpointed import Checkpointed
from ..adjoints._discrete_rule import IN_FORWARD_MODE, enter, members_of_loop
from ..integrate._abstract import AbstractLoop, FixedSteps
from ..integrate._batching import Batch
from ..integrate._integrator import Operands
from ..integrate._result import Result
from ..methods._stepper import AbstractStepper
from ..methods.around._admissible import known_flags
from ._dense import PIECES, DenseOutput, Solve
from ._saveat import asks_for_more, output_of, padded, read, rows_of, with_end


class StepTimes(AbstractAdjoint):
    """Runs a loop, of which nothing is differentiated, and keeps when each of its accepted steps begins.

    Attributes:
        most: How many steps may be kept, those included that were rejected.
    """

    most: int = eqx.field(static=True)
    repeats_steps = True

    def for_diffrax(self) -> Any:
        """Refuses.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "Dense output, with or without `steps=True`, requires sciml's own loops, but diffrax runs this solve. Use "
            "a method such as `diffrax.Tsit5()` or `sciml.solvers.Rodas5P()`."
        )

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop to the end."""
        del differentiate_times
        loop, fixed = loop.lockstep, loop.fixed
        y0, operands = jax.lax.stop_gradient(promote((y0, operands)))

        def run(batch: Batch, flags: Any, tree: PyTree) -> tuple[Result, Array]:
            engine = Lanes(batch.lanes, reverse=False)
            keeps = Budget(0) if fixed is not None else Budget(0, segments=self.most)
            here, y0, operands, _ = enter(loop, engine, flags, tree, 1, keeps)
            if fixed is not None:
                result = here.forward(y0, operands, None)
                return result, result.elapsed[None]
            result, kept, _ = here.forward_recorded(y0, operands, None)
            steps = kept.step_records
            (accepted,), (elapsed,) = map(jax.tree.leaves, (steps.accepted, steps.elapsed))  # lane values of one array
            return result, jnp.sort(jnp.where(accepted, elapsed, jnp.inf), axis=0)

        result, starts = members_of_loop(loop, y0)(run)((y0, operands))
        if fixed is not None:
            starts = _equal(fixed, operands, result)
        end = result.elapsed
        return result._replace(step_times=jnp.concatenate([jnp.where(starts < end, starts, end), end[None]]))


def _equal(fixed: FixedSteps, operands: Operands, result: Result) -> Array:
    """Returns where steps of one length begin."""
    assert operands.dt is not None  # fixed steps have their size
    return jnp.arange(fixed.number + fixed.tail, dtype=result.elapsed.dtype) * operands.dt


def saves_more(model: Any, y0: PyTree, request: Request) -> bool:
    """Returns whether a solve saves more than states at given times, and does so in sciml's own loops."""
    if not asks_for_more(request.saveat):
        return False
    asked = read(request.saveat)
    if asked.dense or len(asked.subs) != 1:
        return True
    if isinstance(model, diffrax.AbstractTerm):
        return False
    if has_equations_of_its_own(model):
        return True
    y0 = check_state(y0)
    by_diffrax = read_step_control(request, y0, time_dtype(y0)).by_diffrax
    return not by_diffrax and stepper_of(default_solver(model, request, y0), y0) is not None


def solve_and_save(run: Solve, model: Any, y0: PyTree, request: Request) -> Solution:
    """Solves for all outputs of a `diffrax.SaveAt`.

    Args:
        run: The solve, `run(model, y0, request)`; it raises nothing where it fails.
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`.

    Raises:
        ValueError: If it requests outputs that a solution of such a model does not have.
    """
    asked = read(request.saveat)
    if asked.dense and isinstance(model, AbstractReactions | AbstractDelayed | AbstractDAE | diffrax.AbstractTerm):
        raise ValueError(
            f"Dense output does not support a `{type(model).__name__}`. Pass the times as `saveat`, or save "
            "`diffrax.SaveAt(steps=True)`."
        )
    dtype = time_dtype(check_state(y0))
    most = DEFAULT_MAX_STEPS if request.max_steps is None else check_max_steps(request.max_steps)
    t0, t1 = request.t0, request.t1
    knots, ends = _step_times(run, model, y0, request, most, dtype) if asked.steps else (None, None)
    if ends is not None and isinstance(model, AbstractReactions):
        ends = _just_after(ends, t0, t1, dtype)
    pieces = _pieces(model, request, y0) if asked.dense else 1
    rows = rows_of(asked.subs, t0, t1, ends, _within(knots, pieces) if asked.dense else None, dtype)
    sol = run(model, y0, request._replace(saveat=rows.times if asked.subs or asked.dense else None))
    ts, outputs = [], []
    for sub, places, times in zip(asked.subs, rows.places, rows.ts):
        times = on_mesh_of(sol.status, jnp.asarray(times, dtype))
        found = jax.tree.map(lambda x, places=places: x[places], sol.ys)
        if sub.t1 and sub.steps != 1:
            times, found = with_end(sol, times, found)
        found = output_of(sub, times, found, request.args)
        if sub.steps:
            length = most // sub.steps + sub.t0 + (sub.t1 and most % sub.steps > 0)
            length += 0 if sub.ts is None else len(sub.ts)
            # a row more is not used: either the last step is an n-th one, or there are fewer of these
            times, found = jax.tree.map(lambda x, length=length: x[:length], (times, found))
            times = padded(times, length, math.inf)
            found = jax.tree.map(lambda x, length=length: padded(x, length, math.nan), found)
        ts.append(times)
        outputs.append(found)
    dense, places = None, rows.places[-1]
    if asked.dense:
        ys = jax.tree.map(lambda x: x[places], sol.ys)
        dense = _dense(run, model, y0, request, jnp.asarray(rows.times, dtype)[places], ys, sol, pieces)
    if not asked.subs:  # dense output alone: the end, as without any `saveat`
        ts, outputs = sol.ts[-1:], jax.tree.map(lambda x: x[-1:], sol.ys)
    else:
        ts, outputs = (jax.tree.unflatten(asked.structure, x) for x in (ts, outputs))
    return eqx.tree_at(lambda s: (s.ts, s.ys, s.dense), sol, (ts, outputs, dense), is_leaf=lambda x: x is None)


def _pieces(model: Any, request: Request, y0: PyTree) -> int:
    """Returns the number of pieces of a step at whose ends states are saved: 1 where it can be repeated."""
    if is_noisy(model):
        return 1
    depends: list[bool] = []

    def noted(stepper: AbstractStepper) -> AbstractStepper:
        depends.append(stepper.traits.history)
        return stepper

    stepper_of(default_solver(model, request, y0), y0, noted)
    return PIECES if any(depends) else 1


def _within(knots: Any, pieces: int) -> Any:
    """Returns times with equally spaced ones between them."""
    if pieces == 1:
        return knots
    xp = np if isinstance(knots, np.ndarray) else jnp
    share = xp.arange(pieces, dtype=knots.dtype)[None] / pieces
    inside = knots[:-1, None] + share * (knots[1:] - knots[:-1])[:, None]
    return xp.concatenate([inside.reshape(-1), knots[-1:]])


def _step_times(run: Solve, model: Any, y0: PyTree, request: Request, most: int, dtype: Any) -> tuple[Any, Any]:
    """Returns where steps begin and the last one ends; and where they end, infinite beyond the last."""
    t0, t1 = request.t0, request.t1
    found = run(model, y0, request._replace(saveat=None, adjoint=StepTimes(most)))
    elapsed = found.dense[: most + 1]
    if all(map(concrete, (t0, t1, elapsed))):
        count = min(int(found.stats.accepted), len(elapsed) - 1)
        sign = -1.0 if t1 < t0 else 1.0
        times = np.float64(t0) + sign * np.asarray(elapsed, np.float64)
        # so that as many steps as this or a few more are one program
        rows = min(2 ** math.ceil(math.log2(max(count, 16))), most) + 1
        times = np.pad(times[: count + 1], (0, max(rows - count - 1, 0)), mode="edge")
        return times, np.where(np.arange(1, len(times)) <= count, times[1:], np.inf)
    direction = sign_of(jnp.asarray(t1) >= jnp.asarray(t0), dtype)
    times = jnp.asarray(t0, dtype) + direction * elapsed
    accepted = found.stats.accepted
    return times, jnp.where(jnp.arange(1, len(times), dtype=accepted.dtype) <= accepted, times[1:], jnp.inf)


def _just_after(ends: Any, t0: Any, t1: Any, dtype: Any) -> Any:
    """Returns times a few roundings later, where a state that jumps at the end of a step has done so."""
    xp = np if isinstance(ends, np.ndarray) else jnp
    later = ends + 4 * float(jnp.finfo(dtype).eps) * xp.maximum(abs(t0), abs(t1))
    return xp.where(xp.isfinite(ends), xp.minimum(later, t1), ends)


def _dense(
    run: Solve, model: Any, y0: PyTree, request: Request, ts: Any, ys: PyTree, sol: Solution, pieces: int
) -> DenseOutput:
    """Returns the solution as a function of time.

    Args:
        run: The solve, which takes steps once more.
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`.
        ts: The starts of the steps and the end of the last one.
        ys: The states there.
        sol: The solution.
        pieces: The number of pieces of each step.
    """
    by_line = is_noisy(model)
    step, fixed_steps, no_forward_mode = Request(t0=0.0, t1=1.0, args=request.args), False, None
    if not by_line:
        solver, adjoint = default_solver(model, request, y0), request.adjoint
        stepper = stepper_of(solver, y0)
        adjoint = adjoint if adjoint is not None and adjoint.repeats_steps else Checkpointed()
        no_forward_mode = IN_FORWARD_MODE if isinstance(adjoint, Checkpointed) else None
        fixed_steps = stepper is None or not stepper.has_error
        step = step._replace(
            solver=solver,
            positive=known_flags(request.positive),
            domain=request.domain,
            project=request.project,
            adjoint=adjoint,
            max_steps=2,
        )
    static, arrays = split((model, step))
    ts, arrays = on_mesh_of(sol.status, (ts, arrays))
    direction = sign_of(ts[-1] >= ts[0], ts.dtype)
    return DenseOutput(
        ts, ys, sol.events, direction, arrays, static, run, fixed_steps, by_line, no_forward_mode, pieces
    )


def has_equations_of_its_own(model: Any) -> bool:
    """Returns whether a model is more than a vector field."""
    return isinstance(model, AbstractDelayed | AbstractDAE) or is_noisy(model)
