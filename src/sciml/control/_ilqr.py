"""The iterative linear-quadratic regulator (iLQR), for problems without constraints."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._jax._loops import scan, while_loop
from .._status import Status
from ._interior_point import FIRST_SHIFT, LARGEST_SHIFT, LEAST_STEP, error_of, minimum
from ._structured import condensed, solution
from ._transcription import Transcription, Variables

# Each iteration linearises the segments along a trajectory of the model, and solves the linear-quadratic problem from
# the end to the start: `condensed` and `solution`, without inequalities. The new trajectory follows the model under the
# new controls and the feedback of that solution. Far from the optimum the second derivatives of the segments are left
# out (Gauss-Newton); close to it they are included (differential dynamic programming), and convergence is quadratic.

_CLOSE = 1e-2
"""The error below which second derivatives of segments are included."""


class Improved(NamedTuple):
    """An iterate; `status` is negative while the iteration goes on."""

    v: Variables
    cost: Float[Array, ""]
    mu: Float[Array, ""]
    shift: Float[Array, ""]
    error: Float[Array, ""]
    status: Int[Array, ""]
    steps: Int[Array, ""]


class _Trial(NamedTuple):
    length: Array
    accepted: Array
    v: Variables
    cost: Array


def improved(problem: Transcription, v: Variables, tolerance: float, max_steps: Any, like: Any) -> Improved:
    """Returns a local minimum.

    Args:
        problem: The problem on segments, in multiple shooting and without constraints.
        v: The first iterate, of which only the controls matter.
        tolerance: The largest residual of the optimality conditions.
        max_steps: The most iterations.
        like: Values that the problem depends on.
    """
    dtype, counts = v.inner.dtype, (v.inner.shape[2], v.controls.shape[2], 0)
    n, m = counts[:2]
    zero, shares = jnp.zeros((), dtype), problem.barrier()
    v = v._replace(start=problem.fixed, defects=0 * v.defects, force=jax.tree.map(jnp.zeros_like, v.force))
    nothing = jax.tree.map(jnp.zeros_like, v)
    resting = jnp.zeros((v.inner.shape[0], m, n), dtype)

    def followed(v: Variables, step: Variables, gains: Array, length: Array) -> _Trial:
        """Returns the trajectory under changed controls with feedback."""
        changes = jnp.concatenate([0 * step.inner[:1, 0], step.inner[:-1, 0]])

        def along(x: Array, segment: Any) -> Any:
            place, width, control, change, before, moved, gain = segment
            control = control + length * change - gain @ (x - before - length * moved)
            w = jnp.concatenate([x, control, problem.fixed[-1:]])
            cost, mean, _ = problem.at_point(w, place, width)
            after = x + width * mean
            return after, (after, control, width * cost)

        firsts = problem.ends(v)[0]
        xs = (problem.places[:, 0], problem.widths, v.controls[:, 0], step.controls[:, 0], firsts, changes, gains)
        last, (inner, controls, costs) = scan(along, problem.fixed[:-1], xs, like=(like, v, step, length))
        cost = jnp.sum(costs) + problem.at_end(jnp.append(last, problem.fixed[-1]))[0]
        new = v._replace(inner=inner[:, None], controls=controls[:, None])
        return _Trial(length, jnp.zeros((), bool), new, cost)

    def iterate(at: Improved) -> Improved:
        close = at.error <= _CLOSE
        here = at.v._replace(defects=jnp.where(close, at.v.defects, jnp.zeros_like(at.v.defects)))
        gradient, second = problem.gradient(here, zero, second=True)
        slopes = second[0][:, 0, n + m + 1 : 2 * n + m + 1]  # of minus the change over a segment
        moves = jnp.eye(n, n + m + 1, dtype=dtype)[None] - slopes

        def back(later: Array, segment: Any) -> Any:
            of_state, of_control, move = segment
            costate = of_state + later
            moved = move.T @ costate
            return moved[:n], (costate, of_control + moved[n : n + m])

        xs = (gradient.inner[:, 0], gradient.controls[:, 0], moves)
        _, (costates, of_controls) = scan(back, jnp.zeros(n, dtype), xs, reverse=True, like=like)
        here = here._replace(defects=here.defects - costates[:, None])
        reduced = nothing._replace(controls=of_controls[:, None])
        error = error_of(here, reduced, shares, 0.0)
        done = error <= tolerance

        none = jax.tree.map(jnp.zeros_like, v.slack)
        system = condensed(second, none, problem.box_slopes(), problem.basis, problem.free, counts, True)
        shift, factors = minimum(system, at.shift, at.shift)
        step = solution(system, factors, jax.tree.map(jnp.negative, gradient), problem.basis)
        slope = jnp.sum(of_controls * step.controls[:, 0])
        rounding = 10 * float(jnp.finfo(dtype).eps) * (1 + jnp.abs(at.cost))

        def shorter(trial: _Trial) -> _Trial:
            found = followed(here, step, factors.gains[:, :, :n], trial.length)
            fine = jnp.isfinite(found.cost) & (found.cost <= at.cost + 1e-4 * trial.length * slope + rounding)
            return found._replace(length=jnp.where(fine, trial.length, trial.length / 2), accepted=fine)

        def goes_on(trial: _Trial) -> Bool[Array, ""]:
            return ~trial.accepted & (trial.length > LEAST_STEP) & ~done & (slope < 0)

        start = _Trial(jnp.ones_like(zero), jnp.zeros((), bool), here, at.cost)
        found = while_loop(goes_on, shorter, start, like=(like, at, step))
        new = jax.tree.map(lambda a, b: jnp.where(found.accepted, a, b), found.v, here)
        cost = jnp.where(found.accepted, found.cost, at.cost)
        less = jnp.where(shift > FIRST_SHIFT, shift / 5, jnp.zeros_like(shift))
        shift = jnp.where(found.accepted, less, jnp.maximum(10 * shift, FIRST_SHIFT))
        ended = jnp.where(shift > LARGEST_SHIFT, int(Status.diverged), -1)
        status = jnp.where(done, int(Status.successful), ended).astype(jnp.int32)
        return Improved(new, cost, zero, shift, error, status, at.steps + 1)

    def going(at: Improved) -> Bool[Array, ""]:
        return (at.status < 0) & (at.steps < max_steps)

    first = followed(v, nothing, resting, zero)
    start = Improved(first.v, first.cost, zero, zero, zero + jnp.inf, jnp.int32(-1), jnp.int32(0))
    found = while_loop(going, iterate, start, like=like)
    status = jnp.where(found.status < 0, int(Status.max_steps_reached), found.status)
    return found._replace(status=status.astype(jnp.int32))
