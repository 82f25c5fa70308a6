"""`limit_cycle`: a periodic orbit, its period, and its stability."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from diffrax import SaveAt
from jaxtyping import Array

from .._checks import check_count, check_time, concrete, time_dtype
from .._jax._loops import scan
from .._jax._members_apart import members_apart
from .._jax._vma import match, promote
from .._jax.programs import used_inputs
from .._option_names import knows_other_names
from .._same_code import filter_jit
from .._status import Status, raise_for_status
from .._types import Args, RealScalarLike, Y
from ..solvers._solve import solve
from ..solvers.methods._ravel import flattened
from ..solvers.roots._implicit_root import with_derivatives
from ._orbits import LimitCycle, near_of, orbits
from ._problem import Arguments, checked, closed
from ._special import dense_step, newton

_EARLIEST, _LATEST = 0.5, 1.5
"""The range in which the state comes back to the first one, in periods as guessed."""

_FINER = 8
"""How many states of the simulation there are for each node."""

_MESHES = 4
"""How often nodes are chosen, by the last solution."""

_STILL = 0.05
"""A solution whose amplitude is smaller than the simulated one by this factor is a steady state."""


@knows_other_names
def limit_cycle(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    period: RealScalarLike,
    args: Args = None,
    conserved: Any = None,
    t: RealScalarLike | None = None,
    intervals: int = 40,
    rtol: float = 1e-6,
    throw: bool = True,
) -> LimitCycle:
    r"""Finds a limit cycle (periodic orbit), $y(T) = y(0)$, with its period $T$ and its Floquet multipliers.

    The model is simulated once around the cycle, and the result improved by collocation of order six on nodes that
    adapt to the cycle, which also finds cycles that are weakly unstable. Derivatives of period, states and multipliers
    follow from the implicit function theorem, in forward and reverse mode; states move at a fixed phase.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`, which must not depend on time.
        y0: A state near the cycle, such as the last one of a simulation.
        period: A guess of the period, which may be wrong by a third.
        args: The third argument of the model.
        conserved: As for `steady_state`: conserved quantities, whose values at `y0` select one cycle of a family.
        t: The time at which a model that depends on time is held; by default it must not depend on time.
        intervals: The number of intervals. A relaxation oscillation needs 100.
        rtol: The allowed error of the states, relative to their amplitude, as estimated from the nodes.
        throw: Whether to raise an error if there is no cycle nearby; under a transformation check `status`.

    Returns:
        A `LimitCycle`, NaN if none was found. `continuation` follows it as a parameter changes.

    Raises:
        TypeError: If an argument has the wrong type, or the state is complex.
        ValueError: If an argument is out of range, a number in `y0` is known and not finite, or the model depends on
            time.
        SolveError: If there is no cycle nearby, or the nodes are too few, and `throw` is set.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml import bifurcation

        model = sciml.models.VanDerPol(mu=1.0)
        cycle = bifurcation.limit_cycle(model, jnp.array([2.0, 0.0]), period=6.5)
        assert abs(cycle.period - 6.663287) < 1e-4
        assert cycle.stable
        ```
    """
    given = checked(model, y0, args, conserved)
    dtype = time_dtype(given.y0)
    if concrete(period) and not 0 < period < float("inf"):
        raise ValueError(f"`period` must be positive and finite, but is {period}.")
    if not rtol > 0:
        raise ValueError(f"`rtol` must be positive, but is {rtol}.")
    count = check_count(intervals, "intervals", "limit_cycle")
    if count < 8:
        raise ValueError(f"`intervals` must be at least 8, but is {intervals}.")
    if t is None:
        program = jax.make_jaxpr(lambda t: given.model(t, given.y0, given.args))(jnp.zeros((), dtype))
        if used_inputs(program.jaxpr)[0]:
            raise ValueError(
                "`model` must not depend on time. Wrap a periodically forced model in `bifurcation.Forced`, or hold "
                "the time with `t=`."
            )
        t = 0.0
    t = check_time(t, "t", dtype)
    given_arrays, rest = eqx.partition((jnp.asarray(period, dtype), given.model, given.y0, given.args), eqx.is_array)
    guess, fixed, y0, args = eqx.combine(jax.lax.stop_gradient(given_arrays), rest)
    times = jnp.linspace(0, _LATEST, int(_FINER * _LATEST * count) + 1, dtype=dtype) * guess
    path = solve(
        lambda _, y, args: fixed(t, y, args),
        y0,
        t0=0.0,
        t1=times[-1],
        args=args,
        saveat=SaveAt(ts=times),
        throw=False,
    )
    found = _cycle(*given, conserved, t, times, path.ys, (count, rtol))
    if throw and concrete(found.status):
        raise_for_status(found.status, where="limit_cycle")
    return found


@filter_jit
def _cycle(
    model: Any, y0: Y, args: Args, leaves: tuple, conserved: Any, t: Any, times: Array, path: Any, options: tuple
) -> LimitCycle:
    def run(model: Any, y0: Y, args: Args, conserved: Any, t: Any, times: Array, path: Any) -> LimitCycle:
        given = promote((model, y0, args, t, times, path))
        return _found(*given[:4], conserved, *given[4:], leaves, options)

    return members_apart(run)(model, y0, args, conserved, t, times, path)


def _found(
    model: Any, y0: Y, args: Args, t: Any, conserved: Any, times: Array, path: Any, leaves: tuple, options: tuple
) -> LimitCycle:
    count, rtol = options
    steady = closed(Arguments(model, y0, args, leaves), t, conserved)
    x = jax.vmap(flattened)(path)
    # the state comes closest to the first one after a period
    size = jnp.max(x, axis=0, keepdims=True) - jnp.min(x, axis=0, keepdims=True)
    gaps = jnp.linalg.norm((x - x[:1]) / jnp.where(size > 0, size, 1), axis=1)
    early = np.arange(len(x)) < _EARLIEST / _LATEST * len(x)
    period = times[jnp.argmin(jnp.where(early, jnp.inf, gaps))]
    places = jnp.arange(_FINER * count, dtype=x.dtype) / (_FINER * count)
    x = jax.vmap(lambda row: jnp.interp(places * period.astype(x.dtype), times.astype(x.dtype), row), 1, 1)(x)
    amplitude = jnp.max(x, axis=0) - jnp.min(x, axis=0)

    constants = jax.lax.stop_gradient(steady.constants)

    def rate(x: Array) -> Array:
        return steady.equations(x, constants)

    near = near_of(x, jnp.full_like(places, 1 / len(places)), rate, count)
    problem = orbits(steady._replace(constants=constants), near.states, period.astype(x.dtype), near)

    def improved(carry: tuple, last: Array) -> tuple[tuple, Array]:
        u, near, _ = carry
        whole = problem.sizes(u)
        units = jnp.maximum(whole, float(jnp.finfo(u.dtype).eps) ** 0.5 * jnp.max(whole))

        def equations(u: Array) -> Array:
            return problem.equations(u, constants, *near)

        u, good = newton(dense_step(equations, units), u, units, (constants, near))
        new = problem.renewed(u, constants, near)
        moved = jnp.where(last, u, problem.moved(u, near, new))
        return (moved, jax.tree.map(lambda a, b: jnp.where(last, a, b), near, new), good), good

    start = (problem.start, near, match(jnp.zeros((), bool), x))
    (u, near, good), _ = scan(improved, start, jnp.arange(_MESHES) == _MESHES - 1, like=(constants, x))
    x = problem.nodes(u)
    span = jnp.max(x, axis=0) - jnp.min(x, axis=0)
    good &= (u[x.size] > 0) & jnp.any(span > _STILL * amplitude)
    safe = jnp.where(good, u, jax.lax.stop_gradient(problem.start))
    problem = problem._replace(constants=steady.constants, near=near)

    def equations(v: Array) -> Array:
        return jnp.where(good, problem.equations(v, steady.constants, *near), v - safe)

    u = jnp.where(good, with_derivatives(equations, safe, good | True), jnp.nan)
    values = jnp.where(good, problem.multipliers(u, near), jnp.nan)
    error = jnp.where(good, jax.lax.stop_gradient(problem.error(safe, constants, near)), jnp.nan)
    status = jnp.where(error <= rtol, int(Status.successful), int(Status.mesh_too_coarse))
    status = jnp.where(good, status, int(Status.diverged))
    cycle = problem.state(u, near)
    return LimitCycle(cycle.period, cycle.ts, cycle.ys, values, error, match(status.astype(jnp.int32), u))
