"""Linear systems of the optimality conditions, one segment after another: a Riccati recursion."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax._loops import scan
from ._transcription import Basis, Inequalities, Variables

# The Hessian of the Lagrangian by all unknowns, multipliers and slacks included, is symmetric. With the ratio
# $\Sigma = \mu w / s^2$ of an inequality with the gradient $C$, its rows
#
# $$\Sigma \, ds + dz = b_s, \quad C \, dw + ds = b_z \quad\Rightarrow\quad dz = b_s - \Sigma b_z + \Sigma C \, dw$$
#
# add $C^T \Sigma C$ to the Hessian. In each segment the collocation equations give the states inside by the first
# state, the duration and the controls, $\eta = (\xi, u)$. This leaves a linear-quadratic problem of discrete time,
# $\xi_{k+1} = A_k \eta_k + c_k$, whose cost to go $\frac 12 \xi^T P \xi + p^T \xi + \nu^T (\Psi \xi + m) - \frac 12
# \nu^T M \nu$ is found from the end to the start, for any multipliers $\nu$ of the end conditions. The point is a
# minimum in the space of all conditions if the Cholesky factorisations exist, which `shift` on the diagonal achieves.
#
# End conditions also add $\rho \Psi^T \Psi$ to $P$ at the end: this does not change the solution, but lets
# factorisations exist if the end conditions are what makes the point a minimum.

_CONVEX = 1e3
r"""$\rho$, in units in which the largest element of each row of $\Psi$ is one."""


class Condensed(NamedTuple):
    r"""The conditions without slacks and without the states inside of segments; `p` is the length of $\eta$."""

    hessian: Float[Array, "segments p p"]
    move: Float[Array, "segments first p"]
    inside: Float[Array, "segments d point p"]
    points: Float[Array, "segments d point point"]
    inverse: Float[Array, "segments inner inner"]
    limits: Inequalities
    ratios: Inequalities
    end: Float[Array, "first first"]
    conditions: Float[Array, "q first"]
    free: np.ndarray
    shoots: bool


class Recursion(NamedTuple):
    """The recursion; `good` tells whether it describes a minimum."""

    costs: Array
    rows: Array
    lower: Array
    gains: Array
    pulls: Array
    first: Array
    first_rows: Array
    schur: Array
    good: Array


def condensed(
    second: tuple[Array, Array],
    ratios: Inequalities,
    boxes: Array,
    basis: Basis,
    free: np.ndarray,
    counts: tuple,
    shoots: bool,
) -> Condensed:
    r"""Eliminates slacks and the states inside of segments.

    Args:
        second: The second derivatives of the Lagrangian, see `Transcription.gradient`.
        ratios: $\Sigma$.
        boxes: The derivatives of the inequalities at the start.
        basis: The polynomials.
        free: Which of the first unknowns are free.
        counts: The numbers of states, controls and end conditions.
        shoots: Whether functions at the point of a segment are functions of its first state, by multiple shooting.
    """
    n, m, q = counts
    width, d, e = n + m + 1, *basis.spread.shape
    hessian, slopes, limits = jnp.split(second[0], [width, width + n], axis=2)
    hessian = hessian + jnp.einsum("kjcv,kjc,kjcw->kjvw", limits, ratios.points, limits)
    at_end, conditions, end_limits = jnp.split(second[1], [n + 1, n + 1 + q])
    at_end = at_end + jnp.einsum("cv,c,cw->vw", end_limits, ratios.end, end_limits)
    # derivatives of the collocation equations by the states inside, and by `eta`
    own = 0.0 if shoots else 1.0  # whether the functions at a point are functions of the state there
    count, dtype = hessian.shape[0], hessian.dtype
    unit, points = np.eye(n, dtype=dtype), np.eye(d, dtype=dtype)
    inner = jnp.einsum("ji,kjab->kjaib", points, own * slopes[:, :, :, :n])
    inner = inner + np.einsum("ji,ab->jaib", basis.derivative[:, 1:], unit)[None]
    inverse = jnp.linalg.inv(inner.reshape(count, d * n, d * n))
    by_first = np.einsum("j,ab->jab", basis.derivative[:, 0], unit)[None] + (1 - own) * slopes[:, :, :, :n]
    by_controls = jnp.einsum("je,kjam->kjaem", basis.spread, slopes[:, :, :, n : n + m]).reshape(count, d, n, e * m)
    right = jnp.concatenate([by_first, slopes[:, :, :, -1:], by_controls], axis=3).reshape(count, d * n, -1)
    states = -(inverse @ right).reshape(count, d, n, -1)
    # controls and duration at points are elements of `eta`
    rest = np.zeros((d, m + 1, n + 1 + e * m), dtype)
    rest[:, m, n] = 1
    rest[:, :m, n + 1 :] = np.einsum("je,am->jaem", basis.spread, np.eye(m)).reshape(d, m, e * m)
    read = jnp.broadcast_to(np.eye(n, states.shape[-1], dtype=dtype), states.shape) if shoots else states
    inside = jnp.concatenate([read, jnp.broadcast_to(rest[None], (count, *rest.shape))], axis=2)
    last = np.zeros((1, n + 1 + e * m), dtype)
    last[0, n] = 1
    move = jnp.concatenate([states[:, -1], jnp.broadcast_to(last[None], (count, *last.shape))], axis=1)
    whole = jnp.einsum("kjvp,kjvw,kjwq->kpq", inside, hessian, inside)
    limits = Inequalities(boxes, limits, end_limits)
    return Condensed(whole, move, inside, hessian, inverse, limits, ratios, at_end, conditions, free, shoots)


def factorised(system: Condensed, shift: Array) -> Recursion:
    """Returns the recursion with `shift` on the diagonal of each segment."""
    size, q = system.end.shape[0], system.conditions.shape[0]
    dtype = system.end.dtype
    weights = _CONVEX / jnp.maximum(jnp.max(jnp.abs(system.conditions), axis=1) ** 2, jnp.finfo(dtype).tiny)
    cost = system.end + jnp.einsum("qv,q,qw->vw", system.conditions, weights, system.conditions)

    def step(carry: Any, segment: Any) -> Any:
        cost, rows, dual = carry
        hessian, move = segment
        whole = hessian + move.T @ cost @ move + shift * jnp.eye(hessian.shape[0], dtype=dtype)
        lower = jnp.linalg.cholesky(whole[size:, size:])
        after = rows @ move
        found = _solved(lower, jnp.concatenate([whole[size:, :size], after[:, size:].T], axis=1))
        gains, pulls = found[:, :size], found[:, size:]
        new = whole[:size, :size] - whole[:size, size:] @ gains
        new = (new + new.T) / 2, after[:, :size] - after[:, size:] @ gains, dual + after[:, size:] @ pulls
        return new, (cost, rows, lower, gains, pulls)

    start = (cost, system.conditions, jnp.zeros((q, q), dtype))
    (cost, rows, dual), kept = scan(step, start, (system.hessian, system.move), reverse=True, like=shift)
    boxes = jnp.einsum("cv,c,cw->vw", system.limits.start, system.ratios.start, system.limits.start)
    cost = cost + boxes + shift * jnp.eye(size, dtype=dtype)
    both = system.free[:, None] & system.free[None]
    first = jnp.linalg.cholesky(jnp.where(both, cost, jnp.eye(size, dtype=dtype)))
    rows = jnp.where(system.free[None], rows, jnp.zeros_like(rows))
    schur, definite = _pseudo_inverse(dual + rows @ _solved(first, rows.T))
    good = jnp.all(jnp.isfinite(first)) & jnp.all(jnp.isfinite(cost)) & definite
    return Recursion(*kept, first, rows, schur, good)


def _pseudo_inverse(x: Array) -> tuple[Array, Array]:
    """Returns the inverse of a symmetric matrix, and whether it is positive.

    It is only semidefinite if end conditions depend on one another, whose combinations then have no multiplier.
    """
    units = jnp.sqrt(jnp.maximum(jnp.diag(x), jnp.finfo(x.dtype).tiny))
    both, least = units[:, None] * units[None], jnp.finfo(x.dtype).eps ** 0.5
    values, vectors = jnp.linalg.eigh(x / both)
    inverse = jnp.where(values > least, 1 / values, jnp.zeros_like(values))
    return vectors @ (inverse[:, None] * vectors.T) / both, jnp.all(values > -least)


def _solved(lower: Array, right: Array) -> Array:
    return jax.scipy.linalg.cho_solve((lower, True), right)


def solution(system: Condensed, factors: Recursion, b: Variables, basis: Basis) -> Variables:
    """Returns the solution for the right-hand side `b`."""
    count, d, n = b.inner.shape
    size, m = n + 1, b.controls.shape[2]
    own = 0.0 if system.shoots else 1.0
    t = jax.tree.map(lambda s, z, ratio: s - ratio * z, b.slack, b.force, system.ratios)
    right = -jnp.einsum("kjcv,kjc->kjv", system.limits.points, t.points)
    later = (1 - own) * b.inner[:, -1]  # in multiple shooting, of the state that the next segment starts from
    right = right.at[:, :, :n].add(own * b.inner)
    particular = (system.inverse @ b.defects.reshape(count, d * n, 1)).reshape(count, d, n)
    read = own * particular
    bent = jnp.einsum("kjvw,kjw->kjv", system.points[:, :, :, :n], read)
    linear = -jnp.einsum("kjvp,kjv->kp", system.inside, right - bent)
    linear = linear.at[:, size:].add(-b.controls.reshape(count, -1))
    constant = jnp.concatenate([particular[:, -1], jnp.zeros((count, 1), b.inner.dtype)], axis=1)
    weights = _CONVEX / jnp.maximum(jnp.max(jnp.abs(system.conditions), axis=1) ** 2, jnp.finfo(b.end.dtype).tiny)
    slope = system.limits.end.T @ t.end - system.conditions.T @ (weights * b.end)

    def back(carry: Any, segment: Any) -> Any:
        slope, value = carry
        linear, constant, move, later, (cost, rows, lower, gains, pulls) = segment
        slope = slope.at[:n].add(-later)
        whole = linear + move.T @ (cost @ constant + slope)
        offset = _solved(lower, whole[size:])
        value = value + rows @ constant - pulls.T @ whole[size:]
        return (whole[:size] - gains.T @ whole[size:], value), (slope, offset)

    kept = (factors.costs, factors.rows, factors.lower, factors.gains, factors.pulls)
    xs = (linear, constant, system.move, later, kept)
    (slope, value), (slopes, offsets) = scan(back, (slope, -b.end), xs, reverse=True)
    at_start = jnp.where(system.free, b.start - system.limits.start.T @ t.start - slope, jnp.zeros_like(b.start))
    guess = _solved(factors.first, at_start)
    nu = factors.schur @ (factors.first_rows @ guess + value)
    first = guess - _solved(factors.first, factors.first_rows.T @ nu)

    def forward(state: Array, segment: Any) -> Any:
        move, constant, gains, pulls, offset = segment
        whole = jnp.concatenate([state, -(gains @ state + offset + pulls @ nu)])
        after = move @ whole + constant
        return after, (whole, after)

    xs = (system.move, constant, factors.gains, factors.pulls, offsets)
    last, (whole, after) = scan(forward, first, xs, like=nu)
    inside = jnp.einsum("kjvp,kp->kjv", system.inside, whole).at[:, :, :n].add(read)
    costate = jnp.einsum("kvw,kw->kv", factors.costs, after) + slopes + jnp.einsum("kqv,q->kv", factors.rows, nu)
    left = (right - jnp.einsum("kjvw,kjw->kjv", system.points, inside))[:, :, :n] * own
    left = left.at[:, -1].add(-costate[:, :n])
    defects = jnp.einsum("kba,kb->ka", system.inverse, left.reshape(count, d * n)).reshape(count, d, n)
    rows = system.limits
    moved = Inequalities(rows.start @ first, jnp.einsum("kjcv,kjv->kjc", rows.points, inside), rows.end @ last)
    return Variables(
        start=jnp.where(system.free, first, b.start),
        inner=after[:, None, :n] if system.shoots else inside[:, :, :n],
        controls=whole[:, size:].reshape(count, -1, m),
        defects=defects,
        end=nu,
        slack=jax.tree.map(jnp.subtract, b.force, moved),
        force=jax.tree.map(lambda t, ratio, c: t + ratio * c, t, system.ratios, moved),
    )
