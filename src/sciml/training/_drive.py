"""The host loop of a fit: compiled segments of steps, with progress and history between them."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._jax._loops import while_loop
from .._progress import ProgressOption, reporting
from .._same_code import filter_jit
from .._status import Status
from ._optimisers import AbstractOptimiser
from ._problem import LeastSquaresProblem, check_start

# Most steps per segment; a segment is cut short so that the host can report twice a second.
_SEGMENT = 256
_SECONDS = 0.5
# Steps without progress after which the loss counts as settled. A solver with a damping that
# divides by four on every rejected step reaches any useful scale in far fewer.
_PATIENCE = 30
# How often the best start leaves the bounds on which it has ended.
_AGAIN = 3
# Marquardt's choice of an initial damping is a thousandth of the largest diagonal entry of J^T J.
_COLUMN = 30.0


class FitState(NamedTuple):
    """One start's state, which every compiled segment takes and returns."""

    z: Float[Array, " p"]
    state: Any
    best_z: Float[Array, " p"]
    best_loss: Float[Array, ""]
    best_jacobian: Float[Array, "m p"] | None
    steps: Int[Array, ""]
    stalled: Int[Array, ""]
    done: Bool[Array, ""]
    code: Int[Array, ""]


class FitOutcome(NamedTuple):
    """The result of the host loop, one entry per start."""

    zs: Float[Array, "starts p"]
    losses: np.ndarray
    codes: np.ndarray
    steps: np.ndarray
    history: np.ndarray  # (starts, steps); NaN after a start ended
    jacobians: np.ndarray | None  # (starts, m, p); at `zs` to within the optimiser's tolerance, where it converged

    @property
    def best(self) -> int:
        """The start with the lowest loss."""
        return int(np.nanargmin(self.losses)) if np.isfinite(self.losses).any() else 0

    def followed(self, start: int, by: "FitOutcome") -> "FitOutcome":
        """Returns the outcome with a start that went on, to the only one of another outcome."""
        count, more = int(self.steps[start]), int(by.steps[0])
        width = max(self.history.shape[1], count + more + 1)
        history = np.full((len(self.steps), width), np.nan, self.history.dtype)
        history[:, : self.history.shape[1]] = self.history
        history[start, count + 1 : count + more + 1] = by.history[0, 1 : more + 1]
        steps = self.steps.copy()
        steps[start] = count + more

        def replaced(old: Any, new: Any) -> Any:
            return None if old is None else jnp.asarray(old).at[start].set(new[0])

        zs = replaced(self.zs, by.zs)
        losses, codes = (np.asarray(replaced(*x)) for x in ((self.losses, by.losses), (self.codes, by.codes)))
        jacobians = None if self.jacobians is None else np.asarray(replaced(self.jacobians, by.jacobians))
        return FitOutcome(zs, losses, codes, steps, history, jacobians)


def _begin(
    problem: LeastSquaresProblem, optimiser: AbstractOptimiser, z: Float[Array, " p"], scale: Float[Array, " p"]
) -> FitState:
    inf = jnp.asarray(jnp.inf, z.dtype)
    zero = jnp.int32(0)
    jac = jnp.zeros((problem.size, z.size), z.dtype) if optimiser.gives_jacobian else None
    return FitState(z, optimiser.init(problem, z, scale), z, inf, jac, zero, zero, jnp.asarray(False), zero)


def _step(
    problem: LeastSquaresProblem, optimiser: AbstractOptimiser, rtol: float, run: FitState
) -> tuple[FitState, Float[Array, ""]]:
    z, state, loss, jac, done, code = optimiser.step(problem, run.z, run.state)
    stalled = jnp.where(loss < run.best_loss * (1 - rtol), 0, run.stalled + 1)
    if optimiser.unfinished_is_failure:
        # the noise of an adaptive solve can keep a converged solver rejecting steps until `max_steps`
        done = done | (stalled >= _PATIENCE)
    better = loss < run.best_loss
    best_z = jnp.where(better, run.z, run.best_z)
    best_loss = jnp.where(better, loss, run.best_loss)
    if jac is not None and run.best_jacobian is not None:
        jac = jnp.where(better, jac, run.best_jacobian)
    return FitState(z, state, best_z, best_loss, jac, run.steps + 1, stalled, done | (code != 0), code), loss


@filter_jit
def _start(
    problem: LeastSquaresProblem,
    optimiser: AbstractOptimiser,
    zs: Float[Array, "*starts p"],
    scales: Float[Array, "*starts p"],
) -> FitState:
    def begin(z, scale):
        return _begin(problem, optimiser, z, scale)

    return jax.vmap(begin)(zs, scales) if zs.ndim == 2 else begin(zs, scales)


def _scales(jacobian: Float[Array, "*starts m p"]) -> Float[Array, "*starts p"]:
    """Returns units for the parameters in which the Jacobian's columns have the length `_COLUMN`.

    A damping of one, with which Levenberg-Marquardt begins, is then small whatever the units
    of parameters and residuals are. Scaling by powers of two is free of rounding.
    """
    lengths = np.linalg.norm(np.asarray(jacobian, np.float64), axis=-2) / _COLUMN
    usable = np.isfinite(lengths) & (lengths > 0)
    powers = np.round(np.log2(np.where(usable, lengths, 1)))
    return jnp.asarray(np.exp2(np.clip(powers, -60, 60)), jacobian.dtype)


@filter_jit
def _segment(
    problem: LeastSquaresProblem, optimiser: AbstractOptimiser, rtol: float, run: FitState, count: Array
) -> tuple[FitState, Array]:
    """Takes up to `count` steps and returns the loss before each of them, NaN where none was taken."""

    def one(run):
        losses = jnp.full((_SEGMENT,), jnp.nan, run.z.dtype)

        def cond(carry):
            i, run, _ = carry
            return (i < count) & ~run.done

        def body(carry):
            i, run, losses = carry
            run, loss = _step(problem, optimiser, rtol, run)
            return i + 1, run, losses.at[i].set(loss)

        _, run, losses = while_loop(cond, body, (jnp.int32(0), run, losses))
        return run, losses

    return jax.vmap(one)(run) if run.z.ndim == 2 else one(run)


def drive(
    problem: LeastSquaresProblem,
    optimiser: AbstractOptimiser,
    zs: Float[Array, "starts p"],
    *,
    max_steps: int,
    rtol: float,
    progress: ProgressOption,
) -> FitOutcome:
    """Runs every start until it is done or `max_steps` is reached, and the best one again from off its bounds.

    On a bound a parameter hardly depends on its free variable, so an optimiser ends there whatever the loss off the
    bound. One that begins there has units of steps that are too small elsewhere.

    Raises:
        ValueError: If the loss is not finite at any start.
    """
    outcome = _drive(problem, optimiser, zs, max_steps, rtol, progress)
    if not np.isfinite(outcome.history[:, 0]).any():  # the first step has computed the loss at each start
        check_start(problem, zs)
    begun = zs[outcome.best]
    for _ in range(_AGAIN):
        best = outcome.best
        z = outcome.zs[best]
        off, off_begun = (problem.selection.inside(x, zs[best]) for x in (z, begun))
        if not bool(jnp.any(off != z) | jnp.any(off_begun != begun)):
            break
        begun = off
        again = _drive(problem, optimiser, off[None], max_steps, rtol, progress)
        if not again.losses[0] < (1 - rtol) * outcome.losses[best]:
            break
        outcome = outcome.followed(best, again)
    return outcome


def _drive(
    problem: LeastSquaresProblem,
    optimiser: AbstractOptimiser,
    zs: Float[Array, "starts p"],
    max_steps: int,
    rtol: float,
    progress: ProgressOption,
) -> FitOutcome:
    """Runs every start until it is done or `max_steps` is reached.

    A single start runs without a batch axis; several run as one `vmap`.
    """
    zs = zs if zs.shape[0] > 1 else zs[0]
    run = _start(problem, optimiser, zs, jnp.ones_like(zs))
    taken, count = 0, 1
    pieces = []
    # A solver that runs until it converges has no known end to count towards.
    total = None if optimiser.unfinished_is_failure else max_steps
    with reporting(progress, total, unit="step", name=f"fit ({optimiser.name})") as report:
        while taken < max_steps:
            count = min(count, max_steps - taken)
            begin = time.perf_counter()
            run, losses = _segment(problem, optimiser, rtol, run, jnp.int32(count))
            pieces.append(np.atleast_2d(np.asarray(losses))[:, :count])
            seconds = time.perf_counter() - begin
            taken = int(np.max(run.steps))
            report(taken, loss=float(np.min(run.best_loss)), failed=int(np.count_nonzero(run.code)))
            if bool(np.all(run.done)):
                break
            if len(pieces) == 1 and run.best_jacobian is not None:
                # The first step evaluates the Jacobian, which gives the scales: begin again with them.
                run = _start(problem, optimiser, zs, _scales(run.best_jacobian))._replace(steps=run.steps)
            # The first segment also compiles, so its time is not representative.
            faster = _SECONDS / max(seconds / count, 1e-9)
            count = 2 if len(pieces) == 1 else int(np.clip(faster, 1, min(4 * count, _SEGMENT)))
    # the loss at the last points, by the program that is compiled already
    _, last = _segment(problem, optimiser, rtol, run._replace(done=jnp.zeros_like(run.done)), jnp.int32(1))
    return _finish(run, np.atleast_2d(np.asarray(last))[:, 0], np.concatenate(pieces, axis=1))


def _finish(run: FitState, last: np.ndarray, history: np.ndarray) -> FitOutcome:
    """Chooses between the last point, with its loss, and the best point before it."""
    best_loss, steps, done, codes = (
        np.atleast_1d(np.asarray(x)) for x in (run.best_loss, run.steps, run.done, run.code)
    )
    best_z, z = (np.atleast_2d(np.asarray(x)) for x in (run.best_z, run.z))
    keep = last <= best_loss  # False where `last` is NaN
    history = np.concatenate([history, np.full((len(steps), 1), np.nan, history.dtype)], axis=1)
    with np.errstate(over="ignore"):
        history[np.arange(len(steps)), steps] = last
    jacobian = run.best_jacobian
    # A flat place far from the data has a small gradient too: converged there, after a lower loss, is diverged.
    # A difference below a tenth is the noise of an adaptive solve.
    worse = done & (codes == int(Status.successful)) & (last > 1.1 * best_loss)
    codes = np.where(worse, int(Status.diverged), codes)
    return FitOutcome(
        zs=jnp.asarray(np.where(keep[:, None], z, best_z)),
        losses=np.where(keep, last, best_loss),
        codes=np.where(done, codes, int(Status.max_steps_reached)),
        steps=steps,
        history=history,
        jacobians=None if jacobian is None else np.asarray(jacobian).reshape(len(steps), *jacobian.shape[-2:]),
    )
