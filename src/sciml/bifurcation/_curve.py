r"""Curves on which $n$ equations of $n + 1$ unknowns vanish: pseudo-arclength continuation.

From a point $u_k$ with the unit tangent $\tau_k$ the next one is sought on the plane at a distance $h$,

$$F(u) = 0, \qquad \langle \tau_k, u - u_k \rangle = h,$$

by Newton's method from $u_k + h \tau_k$. Its matrix, the Jacobian with the tangent below it, is regular at folds, too,
and also gives the next tangent. Steps are accepted if the curve has turned by a small angle only, so that they are
short where it bends and do not lead to another curve.

Lengths are measured in units of each unknown, which follow from the curve; a state counts by its root mean square, so
that a fine grid has no more weight than one number.

A curve that comes back to its start is closed there (an isola). For limit cycles the nodes follow the cycle: each point
has nodes of its own, by the point before.

One loop serves everything: an iteration is one Newton step, and a member that has found its point starts the next step
while others still iterate. So `jax.vmap` follows thousands of curves, each with steps of its own length.

Source:
    H. B. Keller, Numerical solution of bifurcation and nonlinear eigenvalue problems, in: Applications of Bifurcation
    Theory, Academic Press (1977) 359.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from .._jax._loops import scan, while_loop
from .._jax._vma import match, rows_like
from .._status import Status
from ..solvers.control._pid import Tolerances, scaled_error
from ..solvers.linear._entries import DenseMatrix
from ..solvers.linear._structure import AbstractStructure
from ..solvers.roots._conserved import with_jacobian
from ..solvers.roots._implicit_root import with_derivatives
from ._bordered import Bordered
from ._few_eigenvalues import few_eigenvalues
from ._orbits import Orbits, PointsOfCycles
from ._problem import Equilibria

Curves = Equilibria | Orbits | PointsOfCycles
"""Equations that vanish on curves."""


def structure_of(problem: Curves) -> AbstractStructure | None:
    """Returns the format in which the Jacobian of a large state is factorised; None for a dense one."""
    return problem.structure if isinstance(problem, Equilibria) else None


_TURN = 0.15
"""The angle, in radians, by which a curve turns in a step of the wanted length."""

_MOST_TURN = 3 * _TURN
"""The largest angle between the tangents of two neighbouring points, and between a tangent and their chord."""

_SHORTER, _LONGER = 0.4, 1.6
"""The factors by which a step is shortened after a failure, and lengthened at most."""

_SHORTEST = 1e-4
"""The shortest step that is tried, as part of the longest one."""

_CONTRACTS = 0.5
"""Each Newton step is shorter than the last one by this factor at least, or the step is shortened."""

_NEWTON, _NEWTON_FIRST = 6, 25
"""The most Newton steps for a point, and for the first point, whose guess is the user's."""

_COARSE = 1e-3
"""The largest error of a limit cycle, by too few nodes, with which it is followed."""

_NEAR_START = 0.1
"""How far from its start a curve that passes it may be, in lengths of the step, to be closed there."""

_ZERO = 1e3
"""An unknown below the absolute tolerance times this is zero when units are chosen."""


class Curve(NamedTuple):
    r"""Points of a curve from its start in one direction.

    Attributes:
        points: The unknowns of each point, NaN in rows that are not used.
        normals: The planes at right angles to the curve there: of a tangent $\tau$ of length 1, `normals @ tau` is 1.
        near: What each point is near to; see `Orbits`.
        status: `successful` if the curve has ended at a bound or its start, `max_steps_reached` if all rows are used.
        closed: Whether it has come back to its start.
    """

    points: Float[Array, "rows m"]
    normals: Float[Array, "rows m"]
    near: tuple
    status: Int[Array, ""]
    closed: Bool[Array, ""]


class _Carry(NamedTuple):
    """The carry of the loop.

    Attributes:
        u: The iterate.
        base: The last point.
        tangent: The unit tangent there, in units.
        units: The unit of each unknown.
        h: The length of the step.
        lands: Whether the step ends at a bound: the last unknown is known, and not the distance.
        tries: The number of Newton steps of this step.
        moved: The scaled length of the last of them.
        number: The number of points.
        near: What the iterate is near to.
        ended: Whether the curve has ended.
        failed: Whether that is a failure.
        coarse: Whether it is one because of too few nodes.
        closed: Whether it has come back to its start.
        points: See `Curve`.
        normals: See `Curve`.
        nears: See `Curve.near`.
    """

    u: Array
    base: Array
    tangent: Array
    units: Array
    h: Array
    lands: Array
    tries: Array
    moved: Array
    number: Array
    near: tuple
    ended: Array
    failed: Array
    coarse: Array
    closed: Array
    points: Array
    normals: Array
    nears: tuple


def follow(
    problem: Curves,
    forwards: Bool[Array, ""],
    bounds: tuple[Float[Array, ""], Float[Array, ""]],
    rows: int,
    longest: Float[Array, ""],
    tolerances: Tolerances,
    ahead: Float[Array, " m"] | None = None,
    unless: Bool[Array, ""] | bool = False,
) -> Curve:
    """Follows a curve in one direction; no derivatives.

    Args:
        problem: The equations, whose constants are not differentiated, and a guess of the first point, whose last
            unknown is kept.
        forwards: Whether the last unknown grows at first.
        bounds: Where the last unknown ends the curve.
        rows: The most points.
        longest: The longest step: a state of its size, or the whole range of the last unknown, is 1.
        tolerances: How long the last Newton step may be.
        ahead: The tangent at the start, if the start is a branch point, where the matrix is singular.
        unless: Whether nothing is to be done.
    """
    start, constants = problem.start, problem.constants
    size, dtype = start.size, start.dtype
    last = jnp.zeros(size, dtype).at[-1].set(1)
    low, high = bounds
    weight = jnp.sqrt(jnp.asarray(max(size - 1, 1), dtype))

    def units_of(x: Array, slope: Array, before: Array) -> Array:
        """The unit of each unknown; of a state that is zero from its slope, or from its other elements."""
        small = _ZERO * tolerances.atol
        known = jnp.maximum(jnp.append(problem.sizes(x[:-1]), jnp.abs(x[-1])), before)
        known = jnp.where(known > small, known, jnp.abs(slope) * (high - low))
        known = jnp.where(known > small, known, jnp.max(known))
        known = jnp.where(known > small, known, 1)
        return jnp.append(known[:-1] * weight, high - low).astype(dtype)

    def unit_vector(v: Array) -> Array:
        length = jnp.linalg.norm(v)
        return v / jnp.where(length > 0, length, 1)

    def move_and_tangent(c: _Carry, row: Array) -> tuple[Array, Array]:
        """Returns the Newton step and the tangent, in units, by the matrix with a row below it."""
        if structure_of(problem) is not None:
            bordered = Bordered(problem, c.u, row / c.units)
            move, tangent = jax.vmap(bordered)(jnp.stack([jnp.append(-bordered.value, 0), last])) / c.units[None]
            return move, tangent
        value, jacobian = with_jacobian(lambda u: problem.equations(u, constants, *c.near), c.u)
        # each row divided by its largest entry
        matrix = jacobian * c.units[None]
        largest = jnp.max(jnp.abs(matrix), axis=1)
        scale = 1 / jnp.where(largest > 0, largest, 1)
        dense = DenseMatrix(np.eye(size))
        factors = dense.factorise(jnp.concatenate([matrix * scale[:, None], row[None]]))
        right = jnp.stack([jnp.append(-value * scale, 0), last])
        move, tangent = jax.vmap(lambda b: dense.substitute(factors, b))(right)
        return move, tangent

    def iterate(c: _Carry) -> _Carry:
        first = c.number == 0
        move, tangent = move_and_tangent(c, jnp.where(first | c.lands, last, c.tangent))
        # a known parameter is kept to the last bit
        move = jnp.where((first | c.lands) & (last == 1), 0, move)
        u = c.u + c.units * move

        moved = scaled_error(c.units * move, u, u, tolerances)
        close = moved <= 1
        tries = c.tries + 1
        good = jnp.isfinite(moved) & jnp.all(jnp.isfinite(tangent))
        shrinks = first | (c.tries == 0) | (moved <= _CONTRACTS * c.moved)
        good &= close | (shrinks & (tries < jnp.where(first, _NEWTON_FIRST, _NEWTON)))

        tangent = unit_vector(tangent)
        forward = jnp.where(first, jnp.where(forwards, 1, -1), jnp.dot(tangent, c.tangent))
        tangent = jnp.where(forward < 0, -tangent, tangent)
        chord = unit_vector((u - c.base) / c.units)
        cosines = jnp.stack([jnp.dot(tangent, c.tangent), jnp.dot(tangent, chord), jnp.dot(chord, c.tangent)])
        cosine = jnp.where(first, 1, jnp.min(cosines))
        straight = cosine >= math.cos(_MOST_TURN)

        outside = (u[-1] > high) | (u[-1] < low)
        coarse = good & close & straight & ~(problem.error(u, constants, c.near) <= _COARSE)
        good &= ~coarse
        found = good & close & straight & ~outside
        # a point beyond a bound: the step to the bound itself is next
        beyond = good & close & straight & outside & ~c.lands
        retry = ~found & ~beyond & (~good | close)
        done = found & c.lands
        u, closes = at_start(c, u, tangent, found)
        done |= closes

        renewed = problem.renewed(jnp.where(found, u, c.base), constants, c.near)
        near = jax.tree.map(lambda new, old: jnp.where(found, new, old), renewed, c.near)
        base = jnp.where(found, problem.moved(u, c.near, near), c.base)
        slope = tangent * c.units
        slope = slope / jnp.where(slope[-1] == 0, 1, slope[-1])
        units = jnp.where(found, units_of(u, slope, jnp.where(first, 0, c.units / weight)), c.units)
        here = problem.moved(tangent * c.units, c.near, near) / units
        here = jnp.where(found, unit_vector(here), c.tangent)
        count = c.number + found.astype(jnp.int32)
        points = c.points.at[c.number].set(jnp.where(found, u, c.points[c.number]))
        normals = c.normals.at[c.number].set(jnp.where(found, tangent / c.units, c.normals[c.number]))
        nears = jax.tree.map(
            lambda rows, x: rows.at[c.number].set(jnp.where(found, x, rows[c.number])), c.nears, c.near
        )

        turn = jnp.arccos(jnp.clip(cosine, -1, 1))
        longer = jnp.clip(_TURN / jnp.maximum(turn, 1e-3), _SHORTER, _LONGER)
        longer = jnp.where(tries > _NEWTON // 2, jnp.minimum(longer, 1), longer)
        h = jnp.where(found & ~first, c.h * longer, jnp.where(retry, c.h * _SHORTER, c.h))
        failed = (retry & (first | (h < _SHORTEST * longest))) | ~jnp.all(jnp.isfinite(c.base)) | coarse
        h = jnp.minimum(h, longest).astype(dtype)

        # the start of the next step
        starts = found | retry | beyond
        ahead = here * units
        guess = base + h * ahead
        bound = jnp.where(ahead[-1] > 0, high, low)
        to_bound = bound - base[-1]
        crosses = beyond | (guess[-1] > high) | (guess[-1] < low)
        part = to_bound / jnp.where(ahead[-1] == 0, 1, ahead[-1])
        part_of_chord = to_bound / jnp.where(u[-1] == base[-1], 1, u[-1] - base[-1])
        landing = jnp.where(beyond, base + part_of_chord * (u - base), base + part * ahead)
        guess = jnp.where(crosses, landing.at[-1].set(bound), guess)
        h = jnp.where(crosses & ~beyond, jnp.minimum(h, jnp.abs(part)), h).astype(dtype)
        at_bound = found & (jnp.abs(to_bound) <= 4 * float(jnp.finfo(dtype).eps) * (high - low))
        return _Carry(
            u=jnp.where(starts, guess, u),
            base=base,
            tangent=here,
            units=units,
            h=h,
            lands=jnp.where(starts, crosses, c.lands),
            tries=jnp.where(starts, 0, tries),
            moved=moved,
            number=count,
            near=near,
            ended=done | at_bound | failed | (count >= rows),
            failed=failed,
            coarse=coarse,
            closed=closes,
            points=points,
            normals=normals,
            nears=nears,
        )

    def at_start(c: _Carry, u: Array, tangent: Array, found: Array) -> tuple[Array, Array]:
        """Returns the first point, and true, if the step passes it in the same direction."""
        if problem.near:  # cycles on other nodes cannot be compared
            return u, jnp.zeros_like(found)
        step, gap = (u - c.base) / c.units, (c.points[0] - c.base) / c.units
        length = jnp.linalg.norm(step)
        part = jnp.dot(step, gap) / jnp.where(length > 0, length, 1) ** 2
        passes = (part > 0) & (part <= 1) & (jnp.linalg.norm(gap - part * step) < _NEAR_START * length)
        same = jnp.dot(unit_vector(c.normals[0] * c.units), tangent) > math.cos(_MOST_TURN)
        closes = found & (c.number > 2) & passes & same
        return jnp.where(closes, c.points[0], u), closes

    no, zero = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    blank = rows_like(rows, start, jnp.nan)
    begin = _Carry(
        u=start,
        base=start,
        tangent=last,
        units=jnp.append(jnp.maximum(jnp.abs(start[:-1]), 1) * weight, high - low).astype(dtype),
        h=(longest * jnp.asarray(0.2, dtype)).astype(dtype),
        lands=no,
        tries=zero,
        moved=jnp.zeros((), dtype),
        number=zero,
        near=problem.near,
        ended=(start[-1] > high) | (start[-1] < low) | unless,
        failed=no,
        coarse=no,
        closed=no,
        points=blank,
        normals=blank,
        nears=jax.tree.map(lambda x: rows_like(rows, x, jnp.nan), problem.near),
    )
    if ahead is not None:  # the first point is known, and the first step begins
        units = units_of(start, jnp.zeros_like(start), jnp.zeros_like(start))
        tangent = unit_vector(ahead / units)
        tangent = jnp.where(forwards, tangent, -tangent)
        first = begin.h * tangent * units
        begin = begin._replace(
            u=start + first,
            tangent=tangent,
            units=units,
            number=zero + 1,
            points=blank.at[0].set(start),
            normals=blank.at[0].set(tangent / units),
            nears=jax.tree.map(lambda rows, x: rows.at[0].set(x), begin.nears, problem.near),
        )
    out = while_loop(lambda c: ~c.ended, iterate, begin, like=(constants, bounds, longest, forwards))
    outside = (start[-1] > high) | (start[-1] < low) | ~(low < high)
    ends = jnp.abs(jnp.where(out.base[-1] > (low + high) / 2, high, low) - out.base[-1])
    arrived = out.closed | unless | (ends <= 4 * float(jnp.finfo(dtype).eps) * (high - low))
    failure = jnp.where(out.coarse, int(Status.mesh_too_coarse), int(Status.diverged))
    status = jnp.where(arrived, int(Status.successful), int(Status.max_steps_reached))
    status = jnp.where(outside, int(Status.invalid_argument), jnp.where(out.failed, failure, status))
    return Curve(out.points, out.normals, out.nears, match(status.astype(jnp.int32), out.points), out.closed)


class BothWays(NamedTuple):
    """A curve in both directions from its start, in order; NaN in rows that are not used.

    Attributes:
        points: The unknowns, whose derivatives move them at right angles to the curve.
        normals: See `Curve`; without derivatives.
        tangents: The tangents.
        near: See `Curve`; unused rows have the value of the start.
        jacobians: The Jacobians of the equations, of unused rows the identity; of large states some eigenvalues.
        signs: The signs of the determinants of Jacobian and normal; zero where they are not known.
        status: One code for each direction.
        closed: Whether it is closed.
    """

    points: Float[Array, "rows m"]
    normals: Float[Array, "rows m"]
    tangents: Float[Array, "rows m"]
    near: tuple
    jacobians: Float[Array, "rows n m"] | Complex[Array, "rows count"]
    signs: Float[Array, " rows"]
    status: Int[Array, " 2"]
    closed: Bool[Array, ""]


def both_ways(
    problem: Curves,
    bounds: tuple[Array, Array],
    rows: int,
    longest: Float[Array, ""],
    tolerances: Tolerances,
    ahead: Float[Array, " m"] | None = None,
    one: bool = False,
    count: int = 0,
) -> BothWays:
    """Follows a curve in both directions, with derivatives by the constants of the problem.

    Args:
        problem: The equations, their constants and the start.
        bounds: See `follow`; so for the following ones.
        rows: The most points in each direction.
        longest: See there.
        tolerances: See there.
        ahead: See there.
        one: Whether both directions are the same, of which one is followed.
        count: The number of eigenvalues of large states.
    """
    fixed, bounds = jax.lax.stop_gradient((problem.constants, bounds))
    still = problem._replace(constants=fixed)

    # one direction after the other: `members_apart` has no lanes within lanes
    def one_way(closed: Array, forwards: Array) -> tuple[Array, Curve]:
        curve = follow(still, forwards, bounds, rows, longest, tolerances, ahead, closed)
        return closed | curve.closed, curve

    like = (fixed, problem.start, problem.near, bounds, ahead)
    directions = jnp.asarray([True] if one else [False, True])
    closed, both = scan(one_way, jnp.zeros((), bool), directions, like=like)

    def in_order(x: Array, sign: int) -> Array:
        return jax.lax.stop_gradient(x[0] if one else jnp.concatenate([sign * x[0, ::-1], x[1, 1:]]))

    points, normals = in_order(both.points, 1), in_order(both.normals, -1)
    there = jnp.all(jnp.isfinite(points), axis=1)

    def usable(rows: Array, x: Array) -> Array:
        return jnp.where(there.reshape(-1, *(1,) * x.ndim), in_order(rows, 1), x)

    near = jax.tree.map(usable, both.near, problem.near)
    # the matrix is singular at a branch point itself, whose tangent is known
    regular = jnp.ones(len(points), bool).at[0 if one else rows - 1].set(ahead is None)
    known = jnp.zeros_like(problem.start) if ahead is None else ahead
    if structure_of(problem) is None:
        run = jax.vmap(lambda *row: _refined(problem, known, *row))
        u, tangents, jacobians, signs = run(points, normals, regular, near)
    else:  # one row at a time, whose factors a gradient computes again
        of_row = jax.checkpoint(lambda near, row: _refined_by_factors(problem, near, *row), prevent_cse=False)
        first = jnp.asarray(np.random.default_rng(1).normal(size=(count, problem.start.size - 1)), points.dtype)
        _, (u, tangents, jacobians, signs) = scan(of_row, first, (points, normals), like=like)
    status = jnp.concatenate([jnp.zeros_like(both.status), both.status]) if one else both.status
    return BothWays(u, normals, tangents, near, jacobians, signs, status, closed)


def _refined(problem: Curves, known: Array, u: Array, normal: Array, regular: Array, near: tuple) -> tuple:
    """Returns a point with its derivatives, its tangent, the Jacobian there, and the sign of the determinant."""
    there = jnp.all(jnp.isfinite(u))
    safe, normal = jnp.where(there, u, problem.start), jnp.where(there, normal, 0)

    def equations(v: Array) -> Array:
        found = jnp.append(problem.equations(v, problem.constants, *near), jnp.dot(normal, v - safe))
        return jnp.where(there & regular, found, v - safe)

    point = with_derivatives(equations, safe, there | True)
    _, jacobian = with_jacobian(lambda v: problem.equations(v, problem.constants, *near), point)
    unit = jnp.eye(u.size, dtype=u.dtype)
    matrix = jnp.where(there & regular, jnp.concatenate([jacobian, normal[None]]), unit)
    tangent = jnp.where(regular, jnp.linalg.solve(matrix, unit[-1]), known)
    sign = jnp.where(regular, jnp.linalg.slogdet(jax.lax.stop_gradient(matrix))[0], 0)
    point, tangent, sign = (jnp.where(there, x, jnp.nan) for x in (point, tangent, sign))
    return point, tangent, jnp.where(there, jacobian, unit[:-1]), sign


def _refined_by_factors(problem: Curves, near: Array, u: Array, normal: Array) -> tuple[Array, tuple]:
    """Returns a point of a large state with its derivatives, its tangent, some eigenvalues, and the sign.

    `near` are vectors near the eigenvectors, and are returned first for the next point; see `few_eigenvalues`.
    """
    there, n = jnp.all(jnp.isfinite(u)), u.size - 1

    def refined(u: Array, normal: Array) -> tuple[Array, tuple]:
        # members of `jax.vmap` compute rows that are not used, too
        safe, normal = jnp.where(there, u, problem.start), jnp.where(there, normal, jnp.zeros_like(u).at[-1].set(1))
        bordered = Bordered(problem, safe, normal)

        def equations(v: Array) -> Array:
            return jnp.append(problem.equations(v, problem.constants), jnp.dot(normal, v - safe))

        point = with_derivatives(equations, safe, there | True, bordered.solve)
        _, along = jax.linearize(equations, point)
        tangent = bordered.solve(along, jnp.zeros_like(u).at[-1].set(1))
        values, after = few_eigenvalues(lambda v: along(jnp.append(v, 0))[:n], bordered, near)
        # an odd number of positive eigenvalues turns the sign of the determinant of the Jacobian
        positive = jnp.sum(values.real > 0)
        known = jnp.all(jnp.isfinite(values)) & (positive < values.size)
        sign = jnp.sign(jax.lax.stop_gradient(tangent[-1]))
        sign = jnp.where(known, jnp.where(positive % 2 == 1, -sign, sign), 0)
        found = tuple(jnp.where(there, x, jnp.nan) for x in (point, tangent, values, sign))
        return jax.lax.stop_gradient(jnp.where(there, after, near)), found

    def unused(u: Array, normal: Array) -> tuple[Array, tuple]:
        blank = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), jax.eval_shape(refined, u, normal)[1])
        return near, match(blank, (u, normal, near))

    return jax.lax.cond(there, refined, unused, u, normal)
