"""`optimise`: open-loop optimal control, by direct collocation, multiple shooting or iLQR."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from .._checks import check_count, check_max_steps, check_state, check_time, concrete, no_instance, time_dtype
from .._jax._members_apart import members_apart
from .._jax._vma import match, promote
from .._option_names import knows_other_names
from .._same_code import filter_jit
from .._status import Status, raise_for_status
from .._types import Args, IntScalarLike, RealScalarLike, Y
from ..solvers.methods._ravel import flattened, unflattened
from ..solvers.roots._implicit_root import with_derivatives
from ..solvers.terms._field import arrays_of
from ._ilqr import Improved, improved
from ._interior_point import Iterate, minimised
from ._plan import ControlPlan, Warm
from ._problem import ControlProblem, box, spread
from ._structured import Condensed, condensed, factorised, solution
from ._transcription import (
    Basis,
    Boxes,
    Inequalities,
    SegmentFlow,
    Transcription,
    Variables,
    basis_of,
    numbers,
    to_powers,
)

_INSIDE = 1e-2
"""The first iterate is inside of bounds by this share of their distance, or of the size of the unknown."""

_COLD, _WARM = 0.1, 1e-3
"""The first barrier parameter, without and with a plan to start from."""

_ROUNDING = 1e3
"""The smallest tolerance, in units of rounding."""

_METHODS = ("collocation", "shooting", "ilqr")

_FLOW_TOLERANCE = 1e-2
"""The tolerance of adaptive steps in a segment, in units of `rtol`."""


class Given(NamedTuple):
    """Checked arguments of an optimisation, which may be traced."""

    problem: ControlProblem
    args: Args
    y0: Y
    u0: PyTree
    t0: Array
    t1: Array
    mesh: Array


class Numerics(NamedTuple):
    """Checked options of an optimisation."""

    degree: int
    control_degree: int
    free: tuple[bool, ...]
    tolerance: float
    flow: SegmentFlow | None = None
    by_ilqr: bool = False


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

    A primal-dual interior point method finds a local minimum of the first two. Linear systems are solved one segment
    after another, so the cost of an iteration is proportional to the number of segments; under `jax.vmap` each member
    has its own iterations.

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
        method: "collocation", "shooting" or "ilqr".
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
        throw: Whether to raise an error if no minimum was found; under a transformation check `status`.

    Returns:
        A `ControlPlan`. If no minimum was found, it is the last iterate, and derivatives are NaN.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or bounds do not fit the state or the control.
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
    if method == "collocation" and solver is not None:
        raise ValueError('`solver` belongs to `method="shooting"` and `method="ilqr"`; collocation has no solver.')
    if method != "collocation" and control_degree not in (None, 0):
        raise ValueError(f'`control_degree` must be 0 with `method="{method}"`, but is {control_degree!r}.')
    degrees = (degree, control_degree) if method == "collocation" else (1, 0)
    given, numerics = checked(problem, y0, u0, t0, t1, args, segments, *degrees, rtol)
    if method != "collocation":
        steps = None if n_steps is None else check_count(n_steps, "n_steps", "optimise")
        flow = SegmentFlow(diffrax.Tsit5() if solver is None else solver, steps, _FLOW_TOLERANCE * numerics.tolerance)
        numerics = numerics._replace(flow=flow, by_ilqr=method == "ilqr")
    if method == "ilqr":
        _check_unconstrained(problem, numerics.free)
    if isinstance(guess, ControlPlan):
        here, there = (given.mesh.size - 1, numerics.degree), guess.warm.unknowns.inner.shape[:-1]
        if here != there:
            raise ValueError(f"`guess` must have {here[0]} segments of degree {here[1]}, but its points are {there}.")
    elif guess is not None and not callable(guess):
        raise TypeError(f"`guess` must be a function of time or a plan of `optimise`, but {no_instance(guess)}.")
    found = _optimised(given, guess, check_max_steps(max_steps), numerics)
    if throw and concrete(found.status):
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
    y0 = check_state(y0)
    dtype = time_dtype(y0)
    u0 = jax.tree.map(lambda x: jnp.asarray(x, dtype) if isinstance(x, int | float) else x, u0)
    u0 = check_state(u0, "u0")
    for name, value in {"y0": y0, "u0": u0}.items():
        if any(jnp.iscomplexobj(x) for x in jax.tree.leaves(value)):
            raise TypeError(f"`{name}` must be real, but has a complex leaf. Use its real and imaginary parts.")
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


def plan_of(given: Given, guess: Any, max_steps: Any, numerics: Numerics) -> ControlPlan:
    """Returns the plan of one member."""
    given = promote(given)
    problem, v, mu = started(given, numerics, guess)
    v, found = optimum(problem, v, mu, numerics, max_steps, given)
    return _plan(problem, v, found)


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
    v, last = jax.lax.stop_gradient((v, found.mu))
    x, unravel = ravel_pytree(v)

    def residuals(x: Array) -> Array:
        return ravel_pytree(problem.gradient(unravel(x), last)[0])[0]

    def solved(along: Callable, b: Array) -> Array:
        system = _conditions(problem, v, last)
        factors = factorised(system, jnp.zeros_like(last))

        def solve(_: Callable, b: Array) -> Array:
            return ravel_pytree(solution(system, factors, unravel(b), problem.basis))[0]

        return jax.lax.custom_linear_solve(along, b, solve, symmetric=True)

    good = found.status == int(Status.successful)
    return unravel(with_derivatives(residuals, x, good, solved)), found


def _conditions(problem: Transcription, v: Variables, mu: Array) -> Condensed:
    ratios = jax.tree.map(lambda w, s: mu * w / s**2, problem.barrier(), v.slack)
    counts = (v.inner.shape[2], v.controls.shape[2], v.end.size)
    second = problem.gradient(v, mu, second=True)[1]
    return condensed(second, ratios, problem.box_slopes(), problem.basis, problem.free, counts, problem.shoots)


def started(given: Given, numerics: Numerics, guess: Any) -> tuple[Transcription, Variables, Array]:
    """Returns the problem on segments, the first iterate and the first barrier parameter."""
    dtype, y0, u0, mesh = given.mesh.dtype, given.y0, given.u0, given.mesh
    basis, first = basis_of(numerics.degree, numerics.control_degree, dtype), flattened(y0).astype(dtype)
    warm = guess.warm if isinstance(guess, ControlPlan) else None
    duration, bounds = given.t1 - given.t0, given.problem.t1_bounds
    of_y, of_u = box(given.problem.y_bounds, y0, dtype, "y_bounds"), box(given.problem.u_bounds, u0, dtype, "u_bounds")
    of_time = box(bounds, given.t0, dtype, "t1_bounds")
    free = np.append(np.asarray(numerics.free), bounds is not None)
    places = mesh[:-1, None] + (mesh[1:] - mesh[:-1])[:, None] * basis.places[None]
    states, controls = _guessed(guess, given.t0 + duration * places, first, flattened(u0).astype(dtype), basis)
    sizes = (_sizes(states, of_y), _sizes(controls, of_u), jnp.abs(duration)) if warm is None else warm.sizes
    sizes = jax.lax.stop_gradient(sizes)

    def of_start(number: int, default: float) -> Array:
        bound = jnp.append(of_y[number] / sizes[0], (of_time[number][0] - given.t0) / sizes[2])
        return jnp.where(free, bound, jnp.full_like(bound, default))

    problem = Transcription(
        problem=given.problem,
        args=given.args,
        y=y0,
        u=u0,
        t0=given.t0,
        fixed=jnp.append(first / sizes[0], duration / sizes[2]),
        mesh=mesh,
        boxes=Boxes(
            (of_y[0] / sizes[0], of_y[1] / sizes[0]),
            (of_u[0] / sizes[1], of_u[1] / sizes[1]),
            (of_start(0, -jnp.inf), of_start(1, jnp.inf)),
        ),
        sizes=sizes,
        scale=jnp.ones((), dtype) if warm is None else warm.scale,
        basis=basis,
        free=free,
        flow=numerics.flow,
    )
    if warm is not None:
        return problem, *rewarmed(problem, warm.unknowns)
    mu = jnp.asarray(_COLD, dtype)
    end, at_end = jax.eval_shape(problem.at_end, problem.fixed)[1:]
    width = problem.fixed.size + controls.shape[2]
    limits = jax.eval_shape(problem.limits, jnp.zeros(width, dtype), mu)
    none = Inequalities(
        jnp.zeros(2 * problem.fixed.size, dtype),
        jnp.zeros((*places.shape, limits.size), dtype),
        jnp.zeros(at_end.size, dtype),
    )
    v = Variables(
        start=_inside(problem.fixed, problem.boxes.start),
        inner=_inside(states / sizes[0][None, None], problem.boxes.y),
        controls=_inside(controls / sizes[1][None, None], problem.boxes.u),
        defects=jnp.zeros_like(states),
        end=jnp.zeros(end.size, dtype),
        slack=none,
        force=none,
    )
    slack = jax.tree.map(lambda c: jnp.maximum(-c, _INSIDE), problem.values(v)[1].force)
    v = v._replace(slack=slack)
    gradient, shares = problem.gradient(v, jnp.zeros_like(mu))[0], problem.shares
    steepest = jnp.maximum(
        jnp.max(jnp.abs(gradient.inner) / shares[:, :, None]),
        jnp.max(jnp.abs(gradient.controls) / jnp.sum(shares, axis=1)[:, None, None]),
    )
    problem = problem._replace(scale=jax.lax.stop_gradient(jnp.minimum(1.0, 100 / steepest)))
    return problem, v._replace(force=jax.tree.map(lambda s, w: mu * w / s, slack, problem.barrier())), mu


def rewarmed(problem: Transcription, v: Variables) -> tuple[Variables, Array]:
    """Returns the first iterate, and the first barrier parameter, from the solution of a similar problem."""
    mu = jnp.asarray(_WARM, v.inner.dtype)
    centred = jax.tree.map(lambda s, z, w: _centred(s, z / w, mu), v.slack, v.force, problem.barrier())
    force = jax.tree.map(lambda s, w: mu * w / s, centred, problem.barrier())
    return v._replace(start=problem.start(v), slack=centred, force=force), mu


def _guessed(guess: Any, ts: Array, y0: Array, u0: Array, basis: Basis) -> tuple[Array, Array]:
    """Returns states and controls at all points."""
    if guess is None or isinstance(guess, ControlPlan):
        states = jnp.broadcast_to(y0, (*ts.shape, y0.size))
        controls = jnp.broadcast_to(u0, (*ts.shape, u0.size))
    else:

        def at(t: Array) -> tuple[Array, Array]:
            y, u = guess(t)
            return numbers(y, t.dtype), numbers(u, t.dtype)

        states, controls = jax.vmap(jax.vmap(at))(ts)
    return states, jnp.einsum("ej,kjm->kem", np.linalg.pinv(basis.spread), controls)


def _sizes(x: Array, bounds: tuple[Array, Array]) -> Array:
    """Returns the size of each element, by the guess or else by the bounds."""
    largest = jnp.max(jnp.abs(x), axis=(0, 1))
    bound = jnp.maximum(*(jnp.where(jnp.isfinite(b), jnp.abs(b), jnp.zeros_like(b)) for b in bounds))
    largest = jnp.where(largest > 0, largest, bound)
    return jnp.where(largest > 0, largest, jnp.ones_like(largest))


def _inside(x: Array, bounds: tuple[Array, Array]) -> Array:
    """Returns numbers that are inside of bounds."""
    low, high = bounds
    margin = jnp.minimum(_INSIDE, _INSIDE * (high - low))
    shape = (1,) * (x.ndim - 1) + low.shape
    return jnp.clip(x, (low + margin).reshape(shape), (high - margin).reshape(shape))


def _centred(slack: Array, force: Array, mu: Array) -> Array:
    """Returns the slack whose product with a multiplier is the barrier parameter, and whose difference is given."""
    difference = slack - force
    return (difference + jnp.sqrt(difference**2 + 4 * mu)) / 2


def _plan(problem: Transcription, v: Variables, found: Any) -> ControlPlan:
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
        error=found.error,
        n_steps=found.steps,
        status=match(found.status, v.start),
        warm=Warm(v, problem.sizes, problem.scale),
    )
