"""`receding_horizon`: model predictive control, a loop of optimisations and of a plant that follows their controls."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._checks import check_count, check_max_steps, check_time, concrete, time_dtype
from .._jax._loops import scan
from .._jax._members_apart import members_apart
from .._jax._vma import match, promote
from .._option_names import knows_other_names
from .._same_code import filter_jit
from .._status import raise_for_status
from .._types import Args, IntScalarLike, RealScalarLike, Y
from ..solvers._solve import solve
from ..solvers.methods._ravel import flattened, unflattened
from ._optimise import checked, optimum
from ._problem import ControlProblem
from ._start import Given, Numerics, rewarmed, started


class ClosedLoop(eqx.Module):
    """The states of a controlled plant, and its controls.

    Attributes:
        ts: The times at which the control changes, and the final time.
        ys: The states there, a PyTree like the state.
        us: The controls, a PyTree like the control: row `i` is applied from `ts[i]` to `ts[i + 1]`.
        status: A code of `Status` for each optimisation.
        n_steps: The number of iterations of each optimisation.
    """

    ts: Float[Array, " times"]
    ys: Y
    us: PyTree
    status: Int[Array, " steps"]
    n_steps: Int[Array, " steps"]


@knows_other_names
def receding_horizon(
    problem: ControlProblem,
    y0: Y,
    u0: PyTree,
    *,
    steps: int,
    horizon: RealScalarLike,
    t0: RealScalarLike = 0.0,
    args: Args = None,
    plant: Callable[[RealScalarLike, Y, PyTree, Args], Y] | None = None,
    plant_args: Args = None,
    segments: int = 20,
    degree: int = 3,
    rtol: float = 1e-6,
    max_steps: IntScalarLike = 100,
    throw: bool = True,
) -> ClosedLoop:
    """Controls a plant by model predictive control (MPC): plans again after each segment of a receding horizon.

    In each step the problem is solved from the present state over `horizon`. The plant follows the control of the first
    segment, which is constant, and the next optimisation starts from the rest of the plan (warm start). All steps are
    one compiled loop. Derivatives pass through all optimisations and the plant, in reverse mode.

    Args:
        problem: The problem, with a fixed duration.
        y0: The initial state.
        u0: A guess of the control, with its structure.
        steps: The number of steps, each of the length `horizon / segments`.
        horizon: The time that is planned ahead.
        t0: The initial time.
        args: The last argument of the functions of the problem.
        plant: The controlled system, a function `plant(t, y, u, args)`; by default the model of the problem.
        plant_args: The last argument of `plant`; by default `args`.
        segments: The number of segments of the horizon.
        degree: The degree of the states in each segment; controls are constant.
        rtol: The allowed residual of the optimality conditions.
        max_steps: The maximum number of iterations of each optimisation.
        throw: Whether to raise an error if an optimisation fails; under a transformation check `status`.

    Returns:
        A `ClosedLoop`. If an optimisation fails, the plant follows its last iterate.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or a number in `y0` or `u0` is known and not finite.
        SolveError: If an optimisation fails and `throw` is set.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import control

        problem = control.ControlProblem(
            model=lambda t, y, u, args: jnp.stack([y[1], u]),
            running=lambda t, y, u, args: y[0] ** 2 + 0.1 * u**2,
            u_bounds=(-1.0, 1.0),
        )
        loop = control.receding_horizon(problem, jnp.array([1.0, 0.0]), 0.0, steps=40, horizon=4.0, segments=10)
        assert jnp.abs(loop.ys[-1]).max() < 1e-2
        ```
    """
    if problem.t1_bounds is not None:
        raise ValueError("`problem` must have a fixed duration, but has `t1_bounds`.")
    if concrete(horizon) and not horizon > 0:
        raise ValueError(f"`horizon` must be positive, but is {horizon}.")
    count = check_count(segments, "segments", "receding_horizon")
    start = check_time(t0, "t0", time_dtype(jax.tree.map(jnp.asarray, y0)))
    end = start + jnp.asarray(horizon, start.dtype)
    given, numerics = checked(problem, y0, u0, start, end, args, count, degree, 0, rtol)
    other = (problem.model if plant is None else plant, args if plant_args is None else plant_args)
    options = (check_count(steps, "steps", "receding_horizon"), numerics)
    found = _closed_loop(given, other, check_max_steps(max_steps), options)
    if throw and concrete(found.status):
        raise_for_status(found.status, where="receding_horizon")
    return found


@filter_jit
def _closed_loop(given: Given, plant: Any, max_steps: Any, options: tuple[int, Numerics]) -> ClosedLoop:
    return members_apart(lambda *given: _loop(*given, *options))(given, plant, max_steps)


def _loop(given: Given, plant: Any, max_steps: Any, steps: int, numerics: Numerics) -> ClosedLoop:
    given = promote(given)
    problem, v, mu = started(given, numerics, None)
    (rate, plant_args), of_y, of_u = plant, problem.sizes[0], problem.sizes[1]
    length = (given.t1 - given.t0) / problem.widths.size

    def step(carry: Any, number: Array) -> Any:
        y, v, mu = carry
        t = given.t0 + number.astype(length.dtype) * length
        here = problem._replace(t0=t, fixed=jnp.append(flattened(y).astype(of_y.dtype) / of_y, problem.fixed[-1]))
        v, found = optimum(here, v, mu, numerics, max_steps, (given, y))
        u = unflattened(v.controls[0, 0] * of_u, given.u0)
        field = lambda t, y, inputs: rate(t, y, *inputs)  # noqa: E731
        followed = solve(field, y, t0=t, t1=t + length, args=(u, plant_args), throw=False)
        after = jax.tree.map(lambda x: x[-1], followed.ys)
        later, mu = jax.lax.stop_gradient(rewarmed(here, v.later()))
        return (after, later, mu), (after, u, found.status, found.steps)

    numbers = jnp.arange(steps, dtype=jnp.int32)
    _, (ys, us, status, n_steps) = scan(step, (given.y0, v, mu), numbers, like=given)
    ys = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), given.y0, ys)
    ts = given.t0 + jnp.arange(steps + 1, dtype=length.dtype) * length
    return ClosedLoop(ts, ys, us, match(status, ts), n_steps)
