"""`continuation`: a branch of steady states, limit cycles or solutions of a boundary value problem."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int, PyTree

from .._checks import check_count, check_time, concrete, no_instance, time_dtype
from .._jax._loops import scan
from .._jax._members_apart import members_apart
from .._jax._vma import promote
from .._option_names import knows_other_names
from .._same_code import filter_jit
from .._status import raise_for_status
from .._types import Args, RealScalarLike, Y
from ..solvers._read_diffrax import default_tolerances
from ..solvers.control._pid import Tolerances
from ..solvers.methods._ravel import flattened
from ..solvers.roots._boundary_values import check_nodes
from ._curve import both_ways
from ._large_folds import fold_near
from ._orbits import LimitCycle, Orbits, outside
from ._problem import Arguments, Equilibria, check_bounds, checked, closed, closed_between
from ._special import FoundPoint, Kind, SpecialPoint, as_point, eigenvalues_of, found_near
from ._starts import BranchStart, started

_GENERIC = 0.382
"""The place in the bounds at which conserved quantities are sought: one where nothing is conserved by chance."""

_ROUNDING = 0.75
"""Real parts below the precision to this power, relative to the largest eigenvalue, are zero."""

_AWAY = 0.5
"""How far, in lengths of the interval, a point may be outside of the interval in which it was found."""


class Branch(eqx.Module):
    """A branch of steady states, limit cycles or solutions of a boundary value problem, in order.

    Rows before its first and after its last point are NaN.

    A derivative moves each point at right angles to the branch, so that it is also finite at folds.

    Attributes:
        parameter: The parameter.
        ys: The states, a PyTree like the state with the points first, or a `LimitCycle` with the points first; of a
            boundary value problem the states at the nodes, with the points before the nodes.
        tangent: The direction of the branch, a pair of states and parameter.
        eigenvalues: The eigenvalues of the Jacobian, the largest real part first; None if they are left out, and
            for boundary value problems. Of limit cycles None: see `ys.multipliers`. If a number was asked for, NaN
            where they are not resolved.
        special: Special points in the order of the branch.
        status: A code of `sciml.Status` for each of both ends: `successful` at a bound, `max_steps_reached` if `points`
            are used up before, `diverged` if the branch could not be followed further, and `mesh_too_coarse` if a limit
            cycle needs more nodes.
        closed: Whether the branch comes back to its start (isola).
    """

    parameter: Float[Array, "*members points"]
    ys: PyTree
    tangent: tuple[PyTree, Float[Array, "*members points"]]
    eigenvalues: Complex[Array, "*members points n"] | None
    special: SpecialPoint
    status: Int[Array, "*members 2"]
    closed: Bool[Array, "*members"]

    @property
    def stable(self) -> Bool[Array, "*members points"]:
        """Whether all eigenvalues have a negative real part, or the limit cycles are stable.

        If a number of eigenvalues was asked for, only these count, and a state of which one is NaN is not stable.

        Raises:
            ValueError: If there are no eigenvalues.
        """
        if isinstance(self.ys, LimitCycle):
            return self.ys.stable
        if self.eigenvalues is None:
            raise ValueError(
                "The branch has no eigenvalues: call `continuation(eigenvalues=True)`. Solutions of a boundary value "
                "problem have none."
            )
        return (_unstable(self.eigenvalues) == 0) & jnp.all(jnp.isfinite(self.eigenvalues), axis=-1)


def _unstable(eigenvalues: Array) -> Int[Array, "..."]:
    """Returns the number of eigenvalues with a positive real part."""
    size = jnp.max(jnp.abs(eigenvalues), axis=-1, keepdims=True)
    return jnp.sum(eigenvalues.real > float(jnp.finfo(eigenvalues.dtype).eps) ** _ROUNDING * size, axis=-1)


@knows_other_names
def continuation(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    bounds: Any,
    where: Any = None,
    args: Args = None,
    boundary: Callable[[Y, Y, Args], PyTree] | None = None,
    ts: Any = None,
    conserved: Any = None,
    t: RealScalarLike = 0.0,
    points: int = 100,
    max_step: float = 0.05,
    special: int = 8,
    intervals: int | None = None,
    eigenvalues: bool | int = True,
    rtol: float | None = None,
    atol: float | None = None,
    throw: bool = True,
) -> Branch:
    r"""Follows steady states, $f(t, y, p) = 0$, limit cycles or solutions of boundary value problems.

    A parameter $p$ changes along the branch: numerical continuation.

    Pseudo-arclength continuation starts at `y0` and at the value that the parameter has in the model, goes in both
    directions, passes folds, and ends at the bounds, or where it closes. Step sizes adapt to the curvature of the
    branch. Folds, Hopf points and branch points, of limit cycles also period doublings and torus bifurcations, are
    detected between points and located by Newton's method.

    Under `jax.vmap` each branch has its own steps. Derivatives by all other parameters follow from the implicit
    function theorem, in forward and reverse mode: most useful for `special.parameter`.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        y0: A steady state at the value that the parameter has in the model, or a guess from which Newton's method
            finds one. `sciml.steady_state` finds one from afar. To follow limit cycles, pass one from `limit_cycle`. To
            switch branches, pass one `SpecialPoint` of `Branch.special`: steady states or limit cycles cross at a
            branch point, limit cycles begin at a Hopf point, and cycles of twice the period at a period doubling.
        bounds: The range of the parameter, `(low, high)`.
        where: Selects the parameter, one scalar leaf, as in `eqx.tree_at`: `lambda model: model.rate`; of `args` if
            these are given, `lambda args: args["rate"]`, and with two arguments of either, `lambda model, args: ...`.
            By default `args` is the parameter.
        args: The third argument of the model.
        boundary: For a boundary value problem the conditions at both ends, as for `solve_bvp`. Then `y0` is the
            solution that `solve_bvp` has found, `sol.ys`, or a guess. The nodes stay the same on the branch, so that
            they must suffice for all of it.
        ts: The nodes of a boundary value problem, `sol.ts`.
        conserved: As for `steady_state`: a function `conserved(y)` of quantities that keep their values at `y0`. By
            default linear ones are detected.
        t: The time at which the model is evaluated; not for boundary value problems.
        points: The largest number of points in each direction, at least 2.
        max_step: The longest step. The range of the parameter has the length 1, and so does a change of the state by
            its own size.
        special: The largest number of special points.
        intervals: The number of intervals of limit cycles from a Hopf point, by default 40. Under a transformation,
            which hides the kind of a point, it tells that the point is a Hopf point.
        eigenvalues: Whether to compute eigenvalues or multipliers, which tell stability and special points. A number,
            such as 6, is for large steady states, as of a field on a grid: only so many are computed, those with the
            largest real parts that Krylov spaces of the inverse Jacobian resolve, which is factorised by its sparsity
            pattern. Then only folds are located; of a Hopf point or a branch point there is its kind, and the status
            `diverged`. No quantities are conserved. Such a branch has first derivatives only.
        rtol: Relative tolerance of the states; by default 1e-6 in float64, 1e-4 in float32.
        atol: Absolute tolerance of the states; by default 1e-9 in float64, 1e-6 in float32.
        throw: Whether to raise an error if there is no steady state near `y0`; under a transformation check `status`.

    Returns:
        A `Branch` with `2 * points - 1` rows, or `points` rows of limit cycles from a special point.

    Raises:
        TypeError: If an argument has the wrong type, or the state is complex.
        ValueError: If an argument is out of range, a number in `y0` is known and not finite, or `where` does not select
            one number; or if `eigenvalues` is a number with a boundary value problem, a limit cycle, a special point or
            `conserved`.
        SolveError: If there is no steady state near `y0` and `throw` is set.

    Source:
        H. B. Keller, Numerical solution of bifurcation and nonlinear eigenvalue problems, in: Applications of
        Bifurcation Theory, Academic Press (1977) 359.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import bifurcation

        branch = bifurcation.continuation(
            lambda t, y, b: b + y - y**3, jnp.array([-1.3]), args=-1.0, bounds=(-1.0, 1.0)
        )
        folds = branch.special.parameter[:2]
        assert jnp.allclose(folds, jnp.array([2.0, -2.0]) / (3 * 3**0.5), atol=1e-5)
        ```
    """
    point = y0 if isinstance(y0, SpecialPoint) else None
    found = y0 if point is None else point.y
    cycle = isinstance(found, LimitCycle)
    state = jax.tree.map(lambda x: x[0], found.ys) if cycle else found
    name = "y0" + ".y" * (point is not None) + ".ys[0]" * cycle
    given = checked(model, state, args, conserved, name, where=where)
    if point is not None:
        given = at_point(given, point, "y0")
    start = _start(y0, intervals)
    dtype, between = time_dtype(given.y0), _check_between(boundary, ts, given.y0, start, conserved, t)
    ends = check_bounds(bounds, dtype, jax.tree.leaves((given.model, given.args))[given.leaves[0]])
    points = check_count(points, "points", "continuation")
    if points < 2:
        raise ValueError("`continuation(points=...)` must be at least 2, but is 1: special points are between two.")
    special = check_count(special, "special", "continuation")
    few = _check_eigenvalues(eigenvalues, given.y0, y0, boundary, conserved)
    rtol, atol = (d if x is None else x for x, d in zip((rtol, atol), default_tolerances(dtype)))
    numbers = (ends, check_time(t, "t", dtype), rtol, atol, check_longest(max_step))
    branch = _branch(*given, conserved, between, start, numbers, (points, special, few))
    if throw and concrete(branch.status):
        raise_for_status(jnp.where(jnp.any(jnp.isfinite(branch.parameter)), 0, branch.status[0]), where="continuation")
    return branch


def _check_between(boundary: Any, ts: Any, ys: Y, start: BranchStart, conserved: Any, t: Any) -> tuple | None:
    """Returns the conditions at the ends and the nodes of a boundary value problem.

    Raises:
        ValueError: If one of both is missing, or an argument is not one of boundary value problems.
        TypeError: If `boundary` is not a function.
    """
    if boundary is None and ts is None:
        return None
    if boundary is None or ts is None:
        given, missing = ("ts", "boundary") if boundary is None else ("boundary", "ts")
        raise ValueError(
            f"`{given}` was given without `{missing}`. Both belong to a boundary value problem: pass the conditions at "
            "both ends as `boundary` and the nodes as `ts`."
        )
    if not callable(boundary):
        raise TypeError(f"`boundary` must be a function `boundary(y_start, y_end, args)`, but {no_instance(boundary)}.")
    if start.kind != "state" or start.cycle is not None:
        raise ValueError("`boundary` is for solutions of a boundary value problem, but `y0` starts limit cycles.")
    if conserved is not None or not concrete(t) or t != 0:
        name = "t" if conserved is None else "conserved"
        raise ValueError(f"`{name}` is for steady states, but `boundary` makes this a boundary value problem.")
    return boundary, check_nodes(ts, ys, time_dtype(ys))


def _check_eigenvalues(eigenvalues: Any, state: Y, y0: Any, boundary: Any, conserved: Any) -> int:
    """Returns the number of eigenvalues of a large state; 0 for none, -1 for all of a small one.

    Raises:
        TypeError: If it is not a truth value or an integer.
        ValueError: If it is not between 1 and the number of unknowns, or another argument asks for dense matrices.
    """
    if isinstance(eigenvalues, bool | np.bool_):
        return -1 if eigenvalues else 0
    count, size = check_count(eigenvalues, "eigenvalues", "continuation"), flattened(state).size
    if count > size:
        raise ValueError(f"`eigenvalues` must be at most {size}, the number of unknowns, but is {count}.")
    refused = {
        "a boundary value problem has no eigenvalues": boundary is not None,
        "`conserved` makes the Jacobian dense": conserved is not None,
        "`y0` is a special point, of which the dense path follows the other branch": isinstance(y0, SpecialPoint),
        "`y0` is a limit cycle": isinstance(y0, LimitCycle),
    }
    for reason, given in refused.items():
        if given:
            raise ValueError(
                f"`eigenvalues={count}`, a number, is for steady states of large models from a guess, but {reason}. "
                "Leave `eigenvalues` out, or pass True or False."
            )
    return count


def check_longest(max_step: Any) -> float:
    """Returns the longest step.

    Raises:
        ValueError: If it is out of range.
    """
    if not 0 < max_step <= 1:
        raise ValueError(f"`max_step` must be between 0 and 1, but is {max_step}.")
    return max_step


def at_point(given: Arguments, point: SpecialPoint, name: str) -> Arguments:
    """Returns the arguments with the parameter of a special point, the argument `name`.

    Raises:
        ValueError: If it holds several.
    """
    if jnp.ndim(point.kind) != 0:
        raise ValueError(
            f"`{name}` must be one special point, but holds an axis of {point.kind.shape[0]}. Select one of them: "
            "`jax.tree.map(lambda x: x[0], branch.special)`."
        )
    leaves, structure = jax.tree.flatten((given.model, given.args))
    leaves[given.leaves[0]] = point.parameter
    model, args = jax.tree.unflatten(structure, leaves)
    return given._replace(model=model, args=args)


def _start(y0: Any, intervals: int | None) -> BranchStart:
    """Returns the start of a branch.

    Raises:
        ValueError: If no branch begins at a special point.
    """
    if isinstance(y0, LimitCycle):
        return BranchStart("cycle", cycle=y0)
    if not isinstance(y0, SpecialPoint):
        return BranchStart("state")
    known = Kind(int(y0.kind)) if concrete(y0.kind) else None
    if isinstance(y0.y, LimitCycle):
        if known is not Kind.branch_point and known in (Kind.period_doubling, None):
            return BranchStart("doubling", y0.direction, cycle=y0.y)
        if known is Kind.branch_point:
            return BranchStart("cycle", y0.direction, cycle=y0.y)
    elif known is Kind.hopf or (known is None and intervals is not None):
        count = check_count(40 if intervals is None else intervals, "intervals", "continuation")
        return BranchStart("hopf", y0.direction, frequency=y0.frequency, intervals=count)
    elif known in (Kind.branch_point, None):
        return BranchStart("state", y0.direction)
    raise ValueError(
        f"No branch begins at a special point of kind `{known.name}`, only at branch points, Hopf points and period "
        "doublings. Pass its state, `y0.y`."
    )


@filter_jit
def _branch(
    model: Any,
    y0: Y,
    args: Args,
    leaves: tuple,
    conserved: Any,
    between: tuple | None,
    start: BranchStart,
    numbers: tuple,
    options: tuple,
) -> Branch:
    run = members_apart(lambda *given: _followed(*given, leaves, options))
    return run(
        model,
        y0,
        args,
        conserved,
        between,
        start,
        tuple(jax.tree.map(lambda x: jnp.asarray(x, time_dtype(y0)), numbers)),
    )


def _followed(
    model: Any,
    y0: Y,
    args: Args,
    conserved: Any,
    between: tuple | None,
    start: BranchStart,
    numbers: tuple,
    leaves: tuple,
    options: tuple,
) -> Branch:
    model, y0, args, between, start, numbers = promote((model, y0, args, between, start, numbers))
    (low, high), t, rtol, atol, longest = numbers
    rows, count, few = options
    with_eigenvalues, large = few != 0, few > 0
    given = Arguments(model, y0, args, leaves)
    if between is None:
        steady = closed(given, t, conserved, low + _GENERIC * (high - low), large)
    else:
        steady, with_eigenvalues = closed_between(given, *between), False
    problem, ahead = started(steady, start)
    one = start.kind in ("hopf", "doubling")
    line = both_ways(problem, (low, high), rows, longest, Tolerances(rtol, atol), ahead, one, few)
    u, normals = line.points, line.normals
    cycles, values = isinstance(problem, Orbits), None
    if with_eigenvalues:
        if isinstance(problem, Orbits):
            values = jax.vmap(problem.multipliers)(u, line.near)
        elif large:
            values = line.jacobians
        else:
            values = jax.vmap(lambda matrix: eigenvalues_of(matrix[:, : u.shape[1] - 1]))(line.jacobians)
        values = jnp.where(jnp.isfinite(u[:, :1]), values, jnp.nan)
    tangents, signs = line.tangents, line.signs
    # where a sign is not known, there may be more unstable eigenvalues
    seen = values if values is None or not large else jnp.where((signs != 0)[:, None], values, jnp.nan)
    kinds = _kinds(jax.lax.stop_gradient(tangents[:, -1]), signs, jax.lax.stop_gradient(seen), cycles)
    chosen = jnp.argsort(kinds == 0, stable=True)[:count]

    # derivatives end before the loop, by which nothing in it is differentiated
    still = problem._replace(constants=jax.lax.stop_gradient(problem.constants))
    rows_of = jax.lax.stop_gradient((u, tangents, normals, line.near, values))

    def located(_: None, row: Array) -> tuple[None, tuple[FoundPoint, tuple]]:
        return None, _between(still, *rows_of, kinds[row], row)

    if isinstance(problem, Equilibria) and large:

        def fold(_: None, row: Array) -> tuple[None, SpecialPoint]:
            return None, _fold_between(problem, *rows_of[:3], kinds[row], row)

        _, points = scan(fold, None, chosen, like=(still.constants, rows_of))
    else:
        _, (found, near) = scan(located, None, chosen, like=(still.constants, rows_of))
        points = jax.vmap(lambda found, near: as_point(problem._replace(near=near), found))(found, near)
    states, ways = (jax.vmap(problem.state)(x, line.near) for x in (u, tangents))
    if cycles:
        error = jax.vmap(lambda u, near: still.error(u, still.constants, near))(rows_of[0], line.near)
        error = jnp.where(jnp.isfinite(rows_of[0][:, -1]), error, jnp.nan)
        states = dataclasses.replace(states, multipliers=values, error=error)
    return Branch(
        u[:, -1], states, (ways, tangents[:, -1]), None if cycles else values, points, line.status, line.closed
    )


def _kinds(slope: Array, signs: Array, values: Array | None, cycles: bool) -> Int[Array, " intervals"]:
    """Returns the kind of special point in each interval between two points; codes of `Kind`."""
    there = jnp.isfinite(slope[1:]) & jnp.isfinite(slope[:-1])
    kinds = jnp.where(slope[1:] * slope[:-1] < 0, int(Kind.fold), int(Kind.none))
    if values is not None and cycles:
        crossed = jnp.abs(jnp.diff(outside(values))) >= 2
        kinds = jnp.where(crossed & (kinds == int(Kind.none)), int(Kind.torus), kinds)
        doubles = jnp.sign(jnp.prod(values + 1, axis=1).real)
        kinds = jnp.where(doubles[1:] * doubles[:-1] < 0, int(Kind.period_doubling), kinds)
    elif values is not None:
        crossed = jnp.abs(jnp.diff(_unstable(values))) >= 2
        known = jnp.all(jnp.isfinite(values), axis=1)
        crossed &= known[1:] & known[:-1]
        kinds = jnp.where(crossed & (kinds == int(Kind.none)), int(Kind.hopf), kinds)
    # on the side branch of a pitchfork the parameter turns, too
    kinds = jnp.where(signs[1:] * signs[:-1] < 0, int(Kind.branch_point), kinds)
    return jnp.where(there, kinds, int(Kind.none)).astype(jnp.int32)


def _between(
    problem: Equilibria | Orbits,
    u: Array,
    tangents: Array,
    normals: Array,
    near: tuple,
    values: Array | None,
    kind: Array,
    row: Array,
) -> tuple[FoundPoint, tuple]:
    """Locates a special point between a row and the next one; returns also what it is near to."""
    before, here = (jax.tree.map(lambda x, row=row: x[row], near) for row in (row, row + 1))
    first, second = problem.moved(u[row], before, here), u[row + 1]
    guess = jnp.where(
        kind == int(Kind.none),
        problem.start,
        _guess(first, second, jnp.stack([tangents[row, -1], tangents[row + 1, -1]]), kind),
    )
    known = problem.moved(tangents[row], before, here)
    turning = None if values is None else values[row + 1]
    found = found_near(problem._replace(near=here), guess, kind, known / jnp.linalg.norm(known), turning)
    inside = _is_inside(found.z[: first.size], first, second, normals[row + 1])
    return found._replace(good=found.good & inside), here


def _guess(first: Array, second: Array, slopes: Array, kind: Array) -> Array:
    """Returns a guess of a special point between two points, at which the parameter changes by slopes."""
    slopes = jnp.abs(slopes)
    part = jnp.where(kind == int(Kind.fold), slopes[0] / (slopes[0] + slopes[1]), 0.5)
    return first + part * (second - first)


def _is_inside(x: Array, first: Array, second: Array, normal: Array) -> Bool[Array, ""]:
    """Returns whether a point is between two points, or not far outside."""
    place, length = jnp.dot(normal, x - first), jnp.dot(normal, second - first)
    return (place >= -_AWAY * length) & (place <= (1 + _AWAY) * length)


def _fold_between(
    problem: Equilibria, u: Array, tangents: Array, normals: Array, kind: Array, row: Array
) -> SpecialPoint:
    """Locates a fold of large states between a row and the next one."""
    first, second, slopes = u[row], u[row + 1], jnp.stack([tangents[row, -1], tangents[row + 1, -1]])
    guess = _guess(first, second, slopes, kind)

    def inside(x: Array) -> Array:
        return _is_inside(x, first, second, normals[row + 1])

    return fold_near(problem, guess, tangents[row], kind, inside)
