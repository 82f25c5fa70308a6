"""A primal-dual interior point method with a filter line search, for problems on segments."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._jax._loops import while_loop
from .._status import Status
from ._structured import condensed, factorised, solution
from ._transcription import Inequalities, Transcription, Variables

# The method of Ipopt, without its restoration phase: the barrier parameter decreases when its problem is solved, the
# Hessian is shifted until the step is one of descent in the space of all conditions, and a filter accepts a step that
# reduces the violation or the cost. If no length is accepted, the next step ignores the cost: a large shift makes it
# the shortest step to the linearised conditions, which must reduce the violation.
#
# A. Waechter and L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for large-scale
# nonlinear programming, Mathematical Programming 106 (2006) 25.

_FILTER = 32
"""How many pairs of violation and cost the filter remembers."""

LEAST_STEP = 1e-7
"""The line search ends at this length."""

_MARGIN = 1e-5
"""The decrease of violation or cost that the filter requires, relative to the violation."""

_LEAST_SHIFT, FIRST_SHIFT, LARGEST_SHIFT = 1e-14, 1e-4, 1e12
_RESTORING, _RESTORED = 1e6, 0.5
"""The shift of a step that ignores the cost, and the share of the violation that it reaches before others follow."""


class Iterate(NamedTuple):
    """An iterate; `status` is negative while the iteration goes on."""

    v: Variables
    mu: Float[Array, ""]
    shift: Float[Array, ""]
    filter: Float[Array, "entries 2"]
    first_violation: Float[Array, ""]
    failures: Int[Array, ""]
    error: Float[Array, ""]
    status: Int[Array, ""]
    steps: Int[Array, ""]


class _Trial(NamedTuple):
    """A step of some length; `descent` tells whether the cost decreased as it should along a descent direction."""

    length: Array
    accepted: Array
    descent: Array
    violation: Array


def minimised(problem: Transcription, v: Variables, mu: Array, tolerance: float, max_steps: Any, like: Any) -> Iterate:
    """Returns a local minimum.

    Args:
        problem: The problem on segments.
        v: The first iterate, whose slacks and multipliers of inequalities are positive.
        mu: The first barrier parameter.
        tolerance: The largest residual of the optimality conditions.
        max_steps: The most iterations.
        like: Values that the problem depends on.
    """
    counts = (v.inner.shape[2], v.controls.shape[2], v.end.size)
    shares, least, dtype = problem.barrier(), tolerance / 10, v.inner.dtype
    noise = 10 * float(jnp.finfo(dtype).eps)

    def iterate(at: Iterate) -> Iterate:
        gradient, second = problem.gradient(at.v, at.mu, second=True)
        error, barrier_error = (error_of(at.v, gradient, shares, mu) for mu in (0.0, at.mu))
        done = error <= tolerance
        solved = (barrier_error <= 10 * at.mu) & (at.mu > least) & ~done
        mu = jnp.where(solved, jnp.maximum(least, jnp.minimum(at.mu / 5, at.mu**1.5)), at.mu)
        slopes = jax.tree.map(lambda z, w, s: z - mu * w / s, at.v.force, shares, at.v.slack)
        gradient = gradient._replace(slack=slopes)
        entries = jnp.where(solved, jnp.full_like(at.filter, jnp.inf), at.filter)

        restoring = at.failures > 0
        ratios = jax.tree.map(jnp.divide, at.v.force, at.v.slack)
        system = condensed(second, ratios, problem.box_slopes(), problem.basis, problem.free, counts, problem.shoots)
        first = jnp.where(restoring, jnp.full_like(mu, _RESTORING), jnp.zeros_like(mu))
        shift, factors = minimum(system, first, at.shift)
        step = solution(system, factors, jax.tree.map(jnp.negative, gradient), problem.basis)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(step)]))
        bound = jnp.maximum(0.99, 1 - mu)
        longest, of_force = _longest(at.v.slack, step.slack, bound), _longest(at.v.force, step.force, bound)
        violation, cost = _measures(problem, at.v, mu, shares)
        slope = _slope(at.v, gradient, step, mu, shares)
        first_violation = jnp.where(at.steps == 0, jnp.maximum(violation, 1.0), at.first_violation)

        def moved(length: Array) -> Variables:
            return jax.tree.map(lambda x, dx: x + length * dx, at.v, step)

        def shorter(trial: _Trial) -> _Trial:
            length = trial.length
            after, cost_after = _measures(problem, moved(length), mu, shares)
            fine = jnp.isfinite(after) & jnp.isfinite(cost_after) & (after <= 1e4 * first_violation)
            rounding = noise * (1 + jnp.abs(cost))
            steep = (slope < 0) & (length * (-slope) ** 2.3 > violation**1.1) & (violation <= 1e-4 * first_violation)
            armijo = cost_after <= cost + 1e-4 * length * slope + rounding
            reduced = (after <= (1 - _MARGIN) * violation) | (cost_after <= cost - _MARGIN * violation + rounding)
            pair = (1 - _MARGIN) * entries[:, 0], entries[:, 1] - _MARGIN * entries[:, 0] + rounding
            passes = jnp.all((after <= pair[0]) | (cost_after <= pair[1])) & jnp.where(steep, armijo, reduced)
            restores = after <= jnp.maximum((1 - 1e-4 * length) * violation, tolerance)
            accepted = fine & jnp.where(restoring, restores, passes)
            return _Trial(jnp.where(accepted, length, length / 2), accepted, steep & armijo, after)

        def goes_on(trial: _Trial) -> Bool[Array, ""]:
            return ~trial.accepted & (trial.length > LEAST_STEP) & ~done & finite

        no = jnp.zeros((), bool)
        found = while_loop(goes_on, shorter, _Trial(longest, no, no, violation), like=(like, at, step))
        good = found.accepted
        # a step that ignores the cost has no multipliers of use
        keeps = jnp.where(restoring, jnp.zeros_like(mu), found.length)
        new = moved(found.length)._replace(
            defects=at.v.defects + keeps * step.defects,
            end=at.v.end + keeps * step.end,
            force=jax.tree.map(lambda z, dz: z + of_force * dz, at.v.force, step.force),
        )
        new = new._replace(force=_near_centre(new, mu, shares))
        failed = at.v._replace(defects=jnp.zeros_like(at.v.defects), end=jnp.zeros_like(at.v.end))
        # from a point that is good enough, the last step is a whole one
        whole = finite & (longest >= 1) & (of_force >= 1) & (shift == 0)
        last = jax.tree.map(lambda a, b: jnp.where(whole, a, b), moved(jnp.ones_like(mu)), at.v)
        new = jax.tree.map(lambda a, b, c: jnp.where(done, a, jnp.where(good, b, c)), last, new, failed)

        added = jnp.concatenate([entries[1:], jnp.stack([violation, cost])[None]])
        entries = jnp.where(good & ~found.descent, added, entries)
        entries = jnp.where(good & restoring, jnp.full_like(entries, jnp.inf), entries)
        enough = ~restoring | (found.violation <= _RESTORED * violation)
        failures = jnp.where(good, jnp.where(enough, 0, 1), at.failures + 1).astype(jnp.int32)
        reason = jnp.where(violation > tolerance**0.5, int(Status.infeasible), int(Status.diverged))
        status = jnp.where(done, int(Status.successful), jnp.where(failures >= 2, reason, -1)).astype(jnp.int32)
        kept = jnp.where(restoring | (shift == 0), at.shift, shift)
        return Iterate(new, mu, kept, entries, first_violation, failures, error, status, at.steps + 1)

    def going(at: Iterate) -> Bool[Array, ""]:
        return (at.status < 0) & (at.steps < max_steps)

    zero, none = jnp.zeros((), dtype), jnp.full((_FILTER, 2), jnp.inf, dtype)
    start = Iterate(v, mu, zero, none, zero, jnp.int32(0), zero + jnp.inf, jnp.int32(-1), jnp.int32(0))
    found = while_loop(going, iterate, start, like=like)
    status = jnp.where(found.status < 0, int(Status.max_steps_reached), found.status)
    return found._replace(status=status.astype(jnp.int32))


def minimum(system: Any, first: Array, last: Array) -> tuple[Array, Any]:
    """Returns the smallest shift that is tried, and the factors with it."""

    def attempt(state: tuple) -> tuple:
        shift, _, count = state
        again = jnp.where(last > 0, jnp.maximum(last / 3, _LEAST_SHIFT), FIRST_SHIFT)
        grown = jnp.where(shift == 0, again, shift * jnp.where(last == 0, 100.0, 8.0).astype(shift.dtype))
        shift = jnp.where(count == 0, first, grown)
        return shift, factorised(system, shift), count + 1

    def going(state: tuple) -> Bool[Array, ""]:
        return ~state[1].good & (state[0] < LARGEST_SHIFT)

    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: factorised(system, first)))
    return while_loop(going, attempt, (first, blank, jnp.int32(0)), like=(system, first, last))[:2]


def _sum(tree: Any) -> Array:
    return jnp.sum(jnp.stack([jnp.sum(x) for x in jax.tree.leaves(tree)]))


def _largest(tree: Any) -> Array:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(x), initial=0.0) for x in jax.tree.leaves(tree)]))


def error_of(v: Variables, gradient: Variables, shares: Inequalities, mu: Any) -> Float[Array, ""]:
    """Returns the largest residual of the optimality conditions with a barrier parameter."""
    share = shares.points[:, :, 0]
    sizes = [jnp.mean(jnp.abs(v.defects) / share[:, :, None])]
    sizes += [jnp.mean(x / w) if x.size else jnp.zeros((), share.dtype) for x, w in zip(v.force, shares)]
    scale = jnp.maximum(1.0, jnp.max(jnp.stack(sizes)))
    dual = [
        gradient.start,
        gradient.inner / share[:, :, None],
        gradient.controls / jnp.sum(share, axis=1)[:, None, None],
    ]
    products = jax.tree.map(lambda z, s, w: z * s / w - mu, v.force, v.slack, shares)
    feasible = (gradient.defects, gradient.end, gradient.force)
    return jnp.max(jnp.stack([_largest(dual) / scale, _largest(products), _largest(feasible)]))


def _measures(problem: Transcription, v: Variables, mu: Array, shares: Inequalities) -> tuple[Array, Array]:
    """Returns the violation of the conditions, and the cost with the barrier."""
    cost, residuals = problem.values(v)
    barrier = _sum(jax.tree.map(lambda w, s: w * jnp.log(s), shares, v.slack))
    weighted = jax.tree.map(lambda x, w: w * jnp.abs(x), residuals.force, shares)
    violation = jnp.sum(jnp.abs(residuals.defects)) + jnp.sum(jnp.abs(residuals.end)) + _sum(weighted)
    return violation, cost - mu * barrier


def _slope(v: Variables, gradient: Variables, step: Variables, mu: Array, shares: Inequalities) -> Array:
    """Returns the derivative of the cost with the barrier along the step, from the gradient of the Lagrangian."""
    of_states = [jnp.sum(g * dx) for g, dx in zip(gradient[:3], step[:3])]
    of_conditions = [jnp.sum(v.defects * gradient.defects), jnp.sum(v.end * gradient.end)]
    of_limits = jax.tree.map(lambda z, c, ds: z * (c + ds), v.force, gradient.force, step.slack)
    barrier = jax.tree.map(lambda w, s, ds: w * ds / s, shares, v.slack, step.slack)
    return sum(of_states) + sum(of_conditions) + _sum(of_limits) - mu * _sum(barrier)


def _longest(x: Inequalities, dx: Inequalities, bound: Array) -> Array:
    """Returns the longest step, at most 1, that keeps all numbers positive."""

    def of(x: Array, dx: Array) -> Array:
        back = jnp.where(dx < 0, -dx, jnp.zeros_like(dx))
        return jnp.max(back / x, initial=0.0)

    most = jnp.max(jnp.stack(jax.tree.leaves(jax.tree.map(of, x, dx))))
    return jnp.where(most > bound, bound / jnp.where(most > bound, most, 1.0), 1.0)


def _near_centre(v: Variables, mu: Array, shares: Inequalities) -> Inequalities:
    """Returns multipliers whose products with the slacks are not too far from the barrier parameter."""
    return jax.tree.map(lambda z, s, w: jnp.clip(z, mu * w / s / 1e10, 1e10 * mu * w / s), v.force, v.slack, shares)
