"""`optimise`: open-loop optimal control, by direct collocation, multiple shooting or iLQR."""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from .._checks import (
    check_count,
    check_finite,
    check_max_steps,
    check_start,
    check_time,
    concrete,
    no_instance,
    time_dtype,
)
from .._jax._members_apart import members_apart
from .._jax._vma import match, promote
from .._option_names import knows_other_names
from .._same_code import filter_jit
from .._status import Status, raise_for_status
from .._types import Args, IntScalarLike, RealScalarLike, Y
from ..solvers.methods._ravel import unflattened
from ..solvers.roots._implicit_root import with_derivatives
from ..solvers.terms._field import arrays_of
from ._ilqr import Improved, improved
from ._interior_point import Iterate, error_of, minimised
from ._ipopt import IpoptResult, found_by_ipopt
from ._plan import ControlPlan, Warm
from ._problem import ControlProblem, box, spread
from ._start import Given, Numerics, on_segments, rewarmed, started
from ._structured import Condensed, condensed, factorised, solution
from ._transcription import SegmentFlow, Transcription, Variables, to_powers

_ROUNDING = 1e3
"""The smallest tolerance, in units of rounding."""

_METHODS = ("collocation", "ipopt", "shooting", "ilqr")

_FLOW_TOLERANCE = 1e-2
"""The tolerance of adaptive steps in a segment, in units of `rtol`."""


@knows_other_names
def optimise(
    problem: ControlProblem,
    y0: Y,
    u0: PyTree,
    *,
    t1: RealScalarLike,
    t0: RealScalarLike = 0.0,
    args: Args = None,
    guess: "Callable[[Array], tuple[Y, PyTree]] | ControlPlan | None" = None,
    method: str = "collocation",
    segments: Any = 20,
    degree: int = 3,
    control_degree: int | None = None,
    solver: Any = None,
    n_steps: int | None = 4,
    rtol: float = 1e-8,
    max_steps: IntScalarLike = 200,
    ipopt_options: dict[str, Any] | None = None,
    throw: bool = True,
) -> ControlPlan:
    r"""Finds the controls that minimise the cost of a problem (open-loop optimal control, trajectory optimisation).

    `method` selects how the problem becomes one of finitely many numbers on segments of time:

    - "collocation": states and controls are polynomials, which satisfy the equation at Radau points (direct
      collocation, a pseudospectral method if segments are few and degrees high).
    - "shooting": each segment is a solve from its own initial state, with a constant control (multiple shooting).
      Bounds of states and path constraints hold at the ends of segments.
    - "ilqr": only controls are unknowns, constant in each segment, and states follow from one solve (iterative
      linear-quadratic regulator, differential dynamic programming). The problem must have no constraints.
    - "ipopt": direct collocation, solved by Ipopt through cyipopt (`pip install 'sciml-jax[ipopt]'`), with sparse
      derivatives. It runs on the host: outside of `jax.jit` and `jax.vmap`.

    A primal-dual interior point method finds a local minimum of "collocation" and "shooting". Linear systems are solved
    one segment after another, so the cost of an iteration is proportional to the number of segments; under `jax.vmap`
    each member has its own iterations.

    Derivatives with respect to `y0`, `args`, bounds, times and parameters of the functions follow from the implicit
    function theorem, in forward and reverse mode. They are derivatives of the discretised problem: segments are fixed.

    Args:
        problem: The `ControlProblem`.
        y0: The initial state; a guess of its elements that are `free`.
        u0: A guess of the control, with the structure of the control, constant in time.
        t1: The final time; a guess if the problem has `t1_bounds`.
        t0: The initial time.
        args: The last argument of all functions of the problem.
        guess: A guess of the trajectory: a function `guess(t)` that returns a pair of state and control, or the plan of
            a similar problem with the same segments and degrees (warm start). By default both are constant.
        method: "collocation", "ipopt", "shooting" or "ilqr".
        segments: The number of segments, or their ends from 0 to 1. Ends at the times at which a constraint becomes
            active, or a control jumps, make the solution much more accurate.
        degree: The number of points in each segment, of collocation. The error of a smooth solution has the order
            `2 * degree - 1`.
        control_degree: The degree of the control in each segment, by default `degree - 1`. With 0 it is held constant,
            as by a digital controller. A low degree keeps controls from oscillating on singular arcs.
        solver: The method of the solves of segments, by default `diffrax.Tsit5()`; not with collocation.
        n_steps: The number of fixed steps in a segment, or None for error control; not with collocation.
        rtol: The allowed residual of the optimality conditions, in units of the sizes of states, controls and cost.
        max_steps: The maximum number of iterations.
        ipopt_options: Options of Ipopt, such as `{"linear_solver": "ma57"}` or `{"hessian_approximation":
            "limited-memory"}`; only with `method="ipopt"`, where `rtol` is the option `tol`.
        throw: Whether to raise an error if no minimum was found; under a transformation check `status`.

    Returns:
        A `ControlPlan`. If no minimum was found, it is the last iterate, and derivatives are NaN.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, a number of the first iterate is known and not finite, or bounds do
            not fit the state or the control.
        SolveError: If no minimum was found and `throw` is set.

    Source:
        A. Waechter and L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for
        large-scale nonlinear programming, Mathematical Programming 106 (2006) 25. J. T. Betts, Practical Methods for
        Optimal Control and Estimation Using Nonlinear Programming, SIAM (2010). Y. Tassa, T. Erez and E. Todorov,
        Synthesis and stabilization of complex behaviors through online trajectory optimization, IROS (2012).

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import control

        # the shortest time in which a cart moves by 1 and stops, with an acceleration of at most 1
        problem = control.ControlProblem(
            model=lambda t, y, u, args: jnp.stack([y[1], u]),
            terminal=lambda t1, y1, args: t1,
            end=lambda t1, y1, args: y1 - jnp.array([1.0, 0.0]),
            u_bounds=(-1.0, 1.0),
            t1_bounds=(0.1, 10.0),
        )
        plan = control.optimise(problem, jnp.zeros(2), 0.0, t1=1.0)
        assert abs(plan.ts[-1] - 2.0) < 1e-3
        ```
    """
    if method not in _METHODS:
        raise ValueError(f"`method` must be one of {', '.join(map(repr, _METHODS))}, but is {method!r}.")
    collocates = method in ("collocation", "ipopt")
    if collocates and solver is not None:
        raise ValueError('`solver` belongs to `method="shooting"` and `method="ilqr"`; collocation has no solver.')
    if method != "ipopt" and ipopt_options is not None:
        raise ValueError(f'`ipopt_options` belong to `method="ipopt"`, but `method` is {method!r}.')
    if not collocates and control_degree not in (None, 0):
        raise ValueError(f'`control_degree` must be 0 with `method="{method}"`, but is {control_degree!r}.')
    degrees = (degree, control_degree) if collocates else (1, 0)
    given, numerics = checked(problem, y0, u0, t0, t1, args, segments, *degrees, rtol)
    if not collocates:
        steps = None if n_steps is None else check_count(n_steps, "n_steps", "optimise")
        flow = SegmentFlow(diffrax.Tsit5() if solver is None else solver, steps, _FLOW_TOLERANCE * numerics.tolerance)
        numerics = numerics._replace(flow=flow, by_ilqr=method == "ilqr")
    if method == "ilqr":
        _check_unconstrained(problem, numerics.free)
    if isinstance(guess, ControlPlan):
        here, there = (given.mesh.size - 1, numerics.degree), guess.warm.unknowns.inner.shape[:-1]
        if here != there:
            raise ValueError(f"`guess` must have {here[0]} segments of degree {here[1]}, but its points are {there}.")
        check_finite(guess.warm, "guess.warm")
    elif guess is not None and not callable(guess):
        raise TypeError(f"`guess` must be a function of time or a plan of `optimise`, but {no_instance(guess)}.")
    max_steps = check_max_steps(max_steps)
    if method == "ipopt":
        found = _plan_by_ipopt(given, found_by_ipopt(given, guess, max_steps, numerics, ipopt_options or {}), numerics)
    else:
        found = _optimised(given, guess, max_steps, numerics)
    if throw and concrete(found.status):
        if found.status != int(Status.successful) and guess is not None and not isinstance(guess, ControlPlan):
            for t in given.t0 + (given.t1 - given.t0) * given.mesh[1:]:
                check_finite(guess(t), f"guess({t:.6g})")
        raise_for_status(found.status, where="optimise")
    return found


def _check_unconstrained(problem: ControlProblem, free: tuple[bool, ...]) -> None:
    names = ("path", "end", "end_limits", "y_bounds", "u_bounds", "t1_bounds")
    found = [name for name in names if getattr(problem, name) is not None] + ["free"] * any(free)
    if found:
        raise ValueError(
            f'`method="ilqr"` supports only a model and a cost, but the problem has `{found[0]}`. Use '
            '`method="collocation"` or `method="shooting"`.'
        )


def checked(
    problem: Any,
    y0: Any,
    u0: Any,
    t0: Any,
    t1: Any,
    args: Any,
    segments: Any,
    degree: Any,
    control_degree: Any,
    rtol: Any,
) -> tuple[Given, Numerics]:
    """Checks arguments.

    Raises:
        TypeError: If one has the wrong type.
        ValueError: If one is out of range.
    """
    if not isinstance(problem, ControlProblem):
        raise TypeError(f"`problem` must be a `sciml.control.ControlProblem`, but {no_instance(problem)}.")
    y0 = check_start(y0)
    dtype = time_dtype(y0)
    u0 = jax.tree.map(lambda x: jnp.asarray(x, dtype) if isinstance(x, int | float) else x, u0)
    u0 = check_start(u0, "u0")
    times = check_time(t0, "t0", dtype), check_time(t1, "t1", dtype)
    if concrete(t0) and concrete(t1) and not t0 < t1:
        raise ValueError(f"`t1` must be after `t0`, but they are {t1} and {t0}.")
    degree = check_count(degree, "degree", "optimise")
    control_degree = degree - 1 if control_degree is None else control_degree
    if control_degree not in range(degree):
        raise ValueError(f"`control_degree` must be from 0 to {degree - 1}, below `degree`, but is {control_degree!r}.")
    if not rtol > 0:
        raise ValueError(f"`rtol` must be positive, but is {rtol}.")
    with jax.ensure_compile_time_eval():  # also within `jax.jit`
        free = tuple(bool(x) for x in np.asarray(spread(problem.free, y0, "free")))
        fixed = {"y_bounds": ("y0", y0, ~np.array(free)), "t1_bounds": ("t1", times[1], np.array([True]))}
        for name, like in {"y_bounds": y0, "u_bounds": u0, "t1_bounds": times[0]}.items():
            if getattr(problem, name) is None:
                continue
            bounds = box(getattr(problem, name), like, dtype, name)
            if name in fixed:
                _check_inside(*fixed[name], bounds, name)
    tolerance = max(rtol, _ROUNDING * float(jnp.finfo(dtype).eps))
    given = Given(problem, arrays_of(args), y0, u0, *times, _mesh(segments, dtype))
    return given, Numerics(degree, int(control_degree), free, tolerance)


def _check_inside(name: str, value: PyTree, fixed: np.ndarray, bounds: tuple[Array, Array], of: str) -> None:
    """Checks that what is given is inside of its bounds but for rounding, as far as both are known.

    Raises:
        ValueError: If it is not.
    """
    leaves = jax.tree.leaves(value)
    if not all(map(concrete, (*leaves, *bounds))):
        return
    x = np.concatenate([np.ravel(leaf) for leaf in leaves])
    low, high = (np.asarray(b) for b in bounds)
    slack = 1e-5 * np.maximum(np.abs(x), 1)
    outside = fixed & ~((x >= low - slack) & (x <= high + slack))
    if outside.any():
        first = int(np.argmax(outside))
        raise ValueError(
            f"`{name}` must be inside `{of}`, from {low[first]:.6g} to {high[first]:.6g}, but is {x[first]:.6g}."
        )


def _mesh(segments: Any, dtype: Any) -> Array:
    """Returns the ends of segments.

    Raises:
        TypeError: If they are neither a number nor an array.
        ValueError: If they do not ascend from 0 to 1.
    """
    if np.ndim(segments) == 0:
        return jnp.asarray(np.linspace(0.0, 1.0, check_count(segments, "segments", "optimise") + 1), dtype)
    if np.ndim(segments) != 1 or np.shape(segments)[0] < 2:
        raise ValueError(f"`segments` must be a number or have shape (ends,), but has shape {np.shape(segments)}.")
    if concrete(segments):
        ends = np.asarray(segments, np.float64)
        if ends[0] != 0 or ends[-1] != 1 or not np.all(np.diff(ends) > 0):
            raise ValueError(f"`segments` must ascend from 0 to 1, but are {ends}.")
    return jnp.asarray(segments, dtype)


@filter_jit
def _optimised(given: Given, guess: Any, max_steps: Any, numerics: Numerics) -> ControlPlan:
    run = members_apart(lambda given, guess, max_steps: plan_of(given, guess, max_steps, numerics))
    return run(given, guess, max_steps)


@filter_jit
def _plan_by_ipopt(given: Given, found: IpoptResult, numerics: Numerics) -> ControlPlan:
    problem = on_segments(given, numerics, found.warm.sizes, found.warm.scale)
    v = found.warm.unknowns
    error = error_of(v, problem.gradient(v, jnp.zeros_like(v.inner[0, 0, 0]))[0], problem.barrier(), 0.0)
    v, last = rewarmed(problem, v, numerics.tolerance / 10)
    v = _differentiable(problem, v, last, found.status)
    return _plan(problem, v, found.status, found.steps, error)


def plan_of(given: Given, guess: Any, max_steps: Any, numerics: Numerics) -> ControlPlan:
    """Returns the plan of one member."""
    given = promote(given)
    problem, v, mu = started(given, numerics, guess)
    v, found = optimum(problem, v, mu, numerics, max_steps, given)
    return _plan(problem, v, found.status, found.steps, found.error)


def optimum(
    problem: Transcription, v: Variables, mu: Array, numerics: Numerics, max_steps: Any, like: Any
) -> tuple[Variables, Iterate | Improved]:
    """Returns a minimum with its derivatives, and the end of the iteration; see `minimised` and `improved`."""

    def run(_: Any, v: Variables) -> tuple:
        if numerics.by_ilqr:
            found = improved(problem, v, numerics.tolerance, max_steps, (like, v))
        else:
            found = minimised(problem, v, mu, numerics.tolerance, max_steps, (like, v))
        return found.v, found

    # the iteration has no derivatives: this root has none
    nothing = lambda _, b: jax.tree.map(jnp.zeros_like, b)  # noqa: E731
    v, found = jax.lax.custom_root(lambda v: v, v, run, nothing, has_aux=True)
    return _differentiable(problem, v, found.mu, found.status), found


def _differentiable(problem: Transcription, v: Variables, last: Array, status: Array) -> Variables:
    """Returns a minimum, at the barrier parameter `last`, with its derivatives."""
    v, last = jax.lax.stop_gradient((v, last))
    x, unravel = ravel_pytree(v)

    def residuals(x: Array) -> Array:
        return ravel_pytree(problem.gradient(unravel(x), last)[0])[0]

    def solved(along: Callable, b: Array) -> Array:
        system = _conditions(problem, v, last)
        factors = factorised(system, jnp.zeros_like(last))

        def solve(_: Callable, b: Array) -> Array:
            return ravel_pytree(solution(system, factors, unravel(b), problem.basis))[0]

        return jax.lax.custom_linear_solve(along, b, solve, symmetric=True)

    good = status == int(Status.successful)
    return unravel(with_derivatives(residuals, x, good, solved))


def _conditions(problem: Transcription, v: Variables, mu: Array) -> Condensed:
    ratios = jax.tree.map(lambda w, s: mu * w / s**2, problem.barrier(), v.slack)
    counts = (v.inner.shape[2], v.controls.shape[2], v.end.size)
    second = problem.gradient(v, mu, second=True)[1]
    return condensed(second, ratios, problem.box_slopes(), problem.basis, problem.free, counts, problem.shoots)


def _plan(problem: Transcription, v: Variables, status: Array, steps: Array, error: Array) -> ControlPlan:
    of_y, of_u, of_time = problem.sizes
    start, basis = problem.start(v), problem.basis
    points = problem.points(v).reshape(-1, of_y.size + of_u.size + 1)
    states = jnp.concatenate([start[None, :-1], points[:, : of_y.size]])
    us = points[:, of_y.size : -1]
    before = to_powers(basis.places)[:1].astype(us.dtype) @ us[: basis.places.size]
    controls = jnp.concatenate([before, us])
    first = problem.first_costate(v)
    costates = jnp.concatenate([first[None], (-v.defects / basis.weights[None, :, None]).reshape(-1, of_y.size)])
    duration = start[-1] * of_time
    path = v.force.points / (problem.shares * duration * problem.scale)[:, :, None]
    multipliers = None
    if problem.problem.path is not None:
        ordered = path.reshape(points.shape[0], -1)[:, 2 * (of_y.size + of_u.size) :]
        like = jax.tree.map(jnp.asarray, problem.problem.path(problem.t0, problem.y, problem.u, problem.args))
        multipliers = jax.vmap(lambda x: unflattened(x, like))(ordered)
    cost, _ = problem.values(v)
    return ControlPlan(
        ts=jnp.append(problem.t0, (problem.t0 + duration * problem.places).reshape(-1)),
        ys=jax.vmap(lambda x: unflattened(x * of_y, problem.y))(states),
        us=jax.vmap(lambda x: unflattened(x * of_u, problem.u))(controls),
        cost=cost / problem.scale,
        costates=jax.vmap(lambda x: unflattened(x / of_y / problem.scale, problem.y))(costates),
        multipliers=multipliers,
        error=error,
        n_steps=steps,
        status=match(status, v.start),
        warm=Warm(v, problem.sizes, problem.scale),
    )
