"""`locus`: a curve of special points of steady states or limit cycles in the plane of two parameters."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._checks import check_count, check_time, concrete, time_dtype
from .._jax._members_apart import members_apart
from .._jax._vma import promote
from .._option_names import knows_other_names
from .._same_code import filter_jit
from .._status import raise_for_status
from .._types import Args, RealScalarLike, Y
from ..solvers._read_diffrax import default_tolerances
from ..solvers.control._pid import Tolerances
from ._continuation import at_point, check_longest
from ._curve import both_ways
from ._orbits import LimitCycle, PointsOfCycles
from ._problem import Arguments, Equilibria, check_bounds, checked, closed
from ._special import Kind, SpecialPoint, extended, found_near
from ._starts import BranchStart, started

_KINDS = {False: (Kind.fold, Kind.hopf), True: (Kind.fold, Kind.period_doubling, Kind.torus)}
"""The kinds of points of steady states, and of limit cycles."""


class Locus(eqx.Module):
    """Special points of one kind in the plane of two parameters, in order, NaN before the first and after the last.

    A derivative moves each point at right angles to the curve.

    Attributes:
        parameters: Both parameters, selected by `where` and by `along`.
        ys: The states, a PyTree like the state with the points first; or the limit cycles, a `LimitCycle`.
        frequency: The angular frequency of Hopf points, or the one of the second oscillation of torus bifurcations,
            otherwise zero.
        status: A code of `sciml.Status` for each of both ends.
    """

    parameters: tuple[Float[Array, "*members points"], Float[Array, "*members points"]]
    ys: PyTree
    frequency: Float[Array, "*members points"]
    status: Int[Array, "*members 2"]


@knows_other_names
def locus(
    model: Callable[[RealScalarLike, Y, Args], Y],
    point: SpecialPoint,
    *,
    kind: str,
    along: Any,
    bounds: Any,
    where: Any = None,
    args: Args = None,
    conserved: Any = None,
    t: RealScalarLike = 0.0,
    points: int = 100,
    max_step: float = 0.05,
    rtol: float | None = None,
    atol: float | None = None,
    throw: bool = True,
) -> Locus:
    r"""Follows a special point as a second parameter changes, which gives a curve in the plane of both.

    The curve separates different behaviours, such as one stable state from two. It passes cusps. A curve of Hopf points
    ends where the frequency vanishes (Bogdanov-Takens point), one of torus bifurcations at a strong resonance. Limit
    cycles keep the nodes of the first one; where these no longer suffice, the curve ends with the status
    `mesh_too_coarse`. Start again from a cycle there, with more intervals.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        point: The point, from `locate` or one of `Branch.special`.
        kind: `"fold"` or `"hopf"`; of limit cycles `"fold"`, `"period_doubling"` or `"torus"`.
        along: Selects the second parameter, as `where`; it starts at its value in the model.
        bounds: The range of the second parameter, `(low, high)`.
        where: Selects the first parameter, as in `continuation`.
        args: The third argument of the model.
        conserved: As for `continuation`.
        t: The time at which the model is evaluated.
        points: The largest number of points in each direction.
        max_step: The longest step, as in `continuation`.
        rtol: Relative tolerance of the states; by default 1e-6 in float64, 1e-4 in float32.
        atol: Absolute tolerance of the states; by default 1e-9 in float64, 1e-6 in float32.
        throw: Whether to raise an error if there is no such point; under a transformation check `status`.

    Returns:
        A `Locus` with `2 * points - 1` rows.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, a number in `point` is known and not finite, or `where` or `along`
            does not select one number.
        SolveError: If there is no such point and `throw` is set.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import bifurcation

        cusp = lambda t, y, args: args["b"] + args["a"] * y - y**3
        options = dict(args={"a": 1.0, "b": 0.3}, where=lambda args: args["b"], kind="fold")
        point = bifurcation.locate(cusp, jnp.array([-0.5]), **options)
        folds = bifurcation.locus(cusp, point, along=lambda args: args["a"], bounds=(-1.0, 2.0), **options)
        b, a = folds.parameters
        assert jnp.nanmax(abs(27 * b**2 - 4 * a**3)) < 1e-3
        ```
    """
    if not isinstance(point, SpecialPoint):
        raise TypeError(f"`point` must be a special point, as returned by `locate`, but is {point!r:.60}.")
    cycles = isinstance(point.y, LimitCycle)
    kinds = [k.name for k in _KINDS[cycles]]
    if kind not in kinds:
        of = "limit cycles" if cycles else "steady states"
        raise ValueError(f"`kind` must be one of {', '.join(map(repr, kinds))} for {of}, but is {kind!r}.")
    state = jax.tree.map(lambda x: x[0], point.y.ys) if cycles else point.y
    name = "point.y.ys[0]" if cycles else "point.y"
    given = at_point(checked(model, state, args, conserved, name, where=where, along=along), point, "point")
    dtype = time_dtype(given.y0)
    ends = check_bounds(bounds, dtype, jax.tree.leaves((given.model, given.args))[given.leaves[1]])
    rtol, atol = (d if x is None else x for x, d in zip((rtol, atol), default_tolerances(dtype)))
    numbers = (ends, check_time(t, "t", dtype), rtol, atol, check_longest(max_step))
    numbers = tuple(jax.tree.map(lambda x: jnp.asarray(x, dtype), numbers))
    cycle = (point.y, point.frequency) if cycles else None
    found = _locus(*given, conserved, cycle, numbers, (check_count(points, "points", "locus"), int(Kind[kind])))
    if throw and concrete(found.status):
        raise_for_status(jnp.where(jnp.any(jnp.isfinite(found.frequency)), 0, found.status[0]), where="locus")
    return found


@filter_jit
def _locus(
    model: Any,
    y0: Y,
    args: Args,
    leaves: tuple,
    conserved: Any,
    cycle: tuple | None,
    numbers: tuple,
    options: tuple,
) -> Locus:
    run = members_apart(lambda *given: _followed(*given, leaves, options))
    return run(model, y0, args, conserved, cycle, numbers)


def _followed(
    model: Any,
    y0: Y,
    args: Args,
    conserved: Any,
    cycle: tuple | None,
    numbers: tuple,
    leaves: tuple,
    options: tuple[int, int],
) -> Locus:
    model, y0, args, cycle, numbers = promote((model, y0, args, cycle, numbers))
    bounds, t, rtol, atol, longest = numbers
    rows, code = options
    both = closed(Arguments(model, y0, args, leaves), t, conserved)
    kind = jax.lax.stop_gradient(jnp.full_like(both.start[0], code, jnp.int32))

    def with_second(u: Array, constants: tuple) -> Array:
        constants, second = constants
        return both.equations(jnp.append(u, second), constants)

    last = both.start[-1]
    one: Any = Equilibria(with_second, (both.constants, last), both.start[:-1], both.like)
    multipliers = None
    if cycle is not None:
        one, _ = started(one, BranchStart("cycle", cycle=cycle[0]))
        angle = jax.lax.stop_gradient(cycle[1] * cycle[0].period)  # of torus bifurcations
        multipliers = jnp.exp(jax.lax.complex(jnp.zeros_like(angle), angle))[None]
    found = found_near(one, one.start, kind, jnp.zeros_like(one.start), multipliers)

    def equations(z: Array, constants: Any) -> Array:
        return extended(one, z[:-1], (constants, z[-1]), found.c, kind)

    start = jax.lax.stop_gradient(jnp.append(jnp.where(found.good, found.z, jnp.nan), last))
    if cycle is None:
        problem: Any = Equilibria(equations, both.constants, start, both.like)
    else:
        problem = PointsOfCycles(equations, both.constants, start, one)
    line = both_ways(problem, bounds, rows, longest, Tolerances(rtol, atol))
    z, turn = line.points, jnp.sin if code == Kind.torus else jnp.asarray
    # where the frequency vanishes, or two multipliers meet, the curve turns back on itself
    same = (turn(z[:, -2]) * turn(found.z[-1]) > 0) | (code in (Kind.fold, Kind.period_doubling))
    after = jnp.cumprod(same[rows - 1 :].astype(jnp.int32))
    before = jnp.cumprod(same[rows - 1 :: -1].astype(jnp.int32))[::-1]
    z = jnp.where((jnp.concatenate([before[:-1], after]) == 1)[:, None], z, jnp.nan)
    size = one.start.size
    parameters, frequency = (z[:, size - 1], z[:, -1]), jnp.abs(z[:, -2])
    if cycle is None:
        return Locus(parameters, jax.vmap(both.state)(z), frequency, line.status)
    cycles = jax.vmap(lambda u: one.state(u, one.near))(z[:, :size])
    frequency = frequency / cycles.period if code == Kind.torus else 0 * cycles.period
    return Locus(parameters, cycles, frequency, line.status)
