"""`locus`: a curve of folds or Hopf points in the plane of two parameters."""

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
from ._problem import Arguments, Equilibria, check_bounds, checked, closed
from ._special import Kind, SpecialPoint, extended, found_near


class Locus(eqx.Module):
    """Special points of one kind in the plane of two parameters, in order, NaN before the first and after the last.

    A derivative moves each point at right angles to the curve.

    Attributes:
        parameters: Both parameters, those of `where` and of `along`.
        ys: The states, a PyTree like the state with the points first.
        frequency: The angular frequency of Hopf points, otherwise zero.
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
    r"""Follows a fold or a Hopf point as a second parameter changes, which gives a curve in the plane of both.

    The curve separates different behaviours, such as one stable state from two. It passes cusps. A curve of Hopf points
    ends where the frequency vanishes (Bogdanov-Takens point).

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        point: The point, from `locate` or one of `Branch.special`.
        kind: `"fold"` or `"hopf"`.
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
        ValueError: If an argument is out of range, or `where` or `along` does not select one number.
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
    kinds = [Kind.fold.name, Kind.hopf.name]
    if kind not in kinds:
        raise ValueError(f"`kind` must be one of {', '.join(map(repr, kinds))}, but is {kind!r}.")
    if not isinstance(point, SpecialPoint):
        raise TypeError(f"`point` must be a special point, as returned by `locate`, but is {point!r:.60}.")
    given = at_point(checked(model, point.y, args, conserved, where=where, along=along), point, "point")
    dtype = time_dtype(given.y0)
    ends = check_bounds(bounds, dtype, jax.tree.leaves((given.model, given.args))[given.leaves[1]])
    rtol, atol = (d if x is None else x for x, d in zip((rtol, atol), default_tolerances(dtype)))
    numbers = (ends, check_time(t, "t", dtype), rtol, atol, check_longest(max_step))
    numbers = tuple(jax.tree.map(lambda x: jnp.asarray(x, dtype), numbers))
    found = _locus(*given, conserved, numbers, (check_count(points, "points", "locus"), int(Kind[kind])))
    if throw and concrete(found.status):
        raise_for_status(jnp.where(jnp.any(jnp.isfinite(found.frequency)), 0, found.status[0]), where="locus")
    return found


@filter_jit
def _locus(model: Any, y0: Y, args: Args, leaves: tuple, conserved: Any, numbers: tuple, options: tuple) -> Locus:
    run = members_apart(lambda *given: _followed(*given, leaves, options))
    return run(model, y0, args, conserved, numbers)


def _followed(
    model: Any, y0: Y, args: Args, conserved: Any, numbers: tuple, leaves: tuple, options: tuple[int, int]
) -> Locus:
    model, y0, args, numbers = promote((model, y0, args, numbers))
    bounds, t, rtol, atol, longest = numbers
    rows, code = options
    both = closed(Arguments(model, y0, args, leaves), t, conserved)
    kind = jax.lax.stop_gradient(jnp.full_like(both.start[0], code, jnp.int32))

    def with_second(u: Array, constants: tuple) -> Array:
        constants, second = constants
        return both.equations(jnp.append(u, second), constants)

    last = both.start[-1]
    one = Equilibria(with_second, (both.constants, last), both.start[:-1], both.like)
    found = found_near(one, one.start, kind, jnp.zeros_like(one.start))

    def equations(z: Array, constants: Any) -> Array:
        return extended(one, z[:-1], (constants, z[-1]), found.c, kind)

    start = jnp.append(jnp.where(found.good, found.z, jnp.nan), last)
    problem = Equilibria(equations, both.constants, jax.lax.stop_gradient(start), both.like)
    line = both_ways(problem, bounds, rows, longest, Tolerances(rtol, atol))
    z = line.points
    # where the frequency vanishes the curve turns back on itself
    same = (z[:, -2] * found.z[-1] > 0) | (kind == int(Kind.fold))
    after = jnp.cumprod(same[rows - 1 :].astype(jnp.int32))
    before = jnp.cumprod(same[rows - 1 :: -1].astype(jnp.int32))[::-1]
    z = jnp.where((jnp.concatenate([before[:-1], after]) == 1)[:, None], z, jnp.nan)
    size = one.start.size
    parameters = z[:, size - 1], z[:, -1]
    return Locus(parameters, jax.vmap(both.state)(z), jnp.abs(z[:, -2]), line.status)
