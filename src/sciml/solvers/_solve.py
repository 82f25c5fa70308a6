"""`solve`: the front door of the solvers."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._checks import check_state, concrete, no_instance
from .._jax._vma import promote
from .._status import Status, raise_for_status
from .._types import Args, IntScalarLike, RealScalarLike, Y
from ..kernels._backends import XLA, Request
from ..kernels._lanes import Lanes
from ..kernels._use import requested
from . import _diffrax_fallback
from ._plan import Plan, Times, default_solver, make_plan
from ._runtime_checks import misplaced, out_of_range
from ._save_intervals import intervals_of, run as run_intervals
from ._solution import Solution, Stats
from ._stable_step import settle_step
from .adjoints import AbstractAdjoint, Checkpointed, Direct
from .control._collective import check_adjoint, check_independent, make_collective
from .control._pid import Tolerances
from .integrate._ensemble_kernel import backend_of as backend_of_members
from .integrate._fixed_steps import FixedLoop
from .integrate._integrator import Integrator, Operands, known
from .integrate._refill import RefillLoop
from .integrate._stencil_kernel import backend_of, decline, make_stencil_steps
from .integrate._while_loop import AdaptiveLoop
from .methods._stepper import AbstractStepper
from .terms._field import arrays_of, check_signature
from .terms._split_field import SplitField, bind


def solve(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    t0: RealScalarLike,
    t1: RealScalarLike,
    args: Args = None,
    dt: RealScalarLike | None = None,
    rtol: PyTree | None = None,
    atol: PyTree | None = None,
    solver: Any = None,
    controller: Any = None,
    norm: Callable[[Y], Array] | None = None,
    saveat: Any = None,
    adjoint: AbstractAdjoint | None = None,
    max_steps: IntScalarLike | None = None,
    schedule: str = "lockstep",
    impl: str | None = None,
    interpret: bool = False,
    throw: bool = True,
) -> Solution:
    r"""Solves the initial value problem $\dot y = f(t, y, \mathrm{args})$, $y(t_0) = y_0$, up to $t_1$.

    With `dt` and no tolerance the steps are fixed; otherwise their size is chosen such that the
    estimated error of every step stays within the tolerances. The end time is hit exactly, forwards or
    backwards. Under `jax.vmap` members run side by side, each with its own step size.

    Args:
        model: `f(t, y, args) -> dy/dt`, a module or a plain function of one member.
        y0: The initial state, a PyTree of floating-point or complex arrays.
        t0: The start time.
        t1: The end time; before `t0` to go backwards.
        args: What the model takes beside time and state, any PyTree.
        dt: The size of fixed steps, or of the first step where there are tolerances. Has the sign of
            `t1 - t0`. If the time is no multiple of it, the last step is shorter. Where the method is explicit and
            the model says its eigenvalues (a method `spectrum(t, y, args)` or `spectral_radius(t, y, args)`), fixed
            steps that are too long to be stable at the start are an error, or `invalid_argument` where they are
            traced; and None is a stable step for a method without tolerances or `diffrax.ConstantStepSize()`.
        rtol: Relative tolerance; by default 1e-6 in float64, 1e-4 in float32, 1e-2 in float16. A scalar, an array of
            the state's shape, or a PyTree like `y0`. At least twice the dtype's precision.
        atol: Absolute tolerance; by default 1e-9 in float64, 1e-6 in float32, 1e-3 in float16.
        solver: A diffrax solver. By default it follows from the model's type, and `Solution.solver` says which it
            was: `ETDRK4` for an `AbstractSemilinear`, `ARK324` for an `AbstractSplit`, `VelocityVerlet` for an
            `AbstractSecondOrder` with fixed steps, otherwise `diffrax.Tsit5()`. Explicit Runge-Kutta methods and the
            methods of `sciml.solvers`, such as `sciml.solvers.Rodas5P()` for stiff problems, run in
            sciml's own loops; any other runs through diffrax.
        controller: A diffrax step size controller in place of `rtol` and `atol`.
        norm: How large a scaled error is: a function from a PyTree like `y0` to a scalar; by default the root
            mean square over all elements. On a field that is split over devices it is `Domain.rms`, so
            that all devices take the same steps.
        saveat: Where to save: None for the end, an array of times within `[t0, t1]` in the
            direction of time, or a `diffrax.SaveAt`. Between steps the method interpolates. Where times are traced, a
            state outside the interval or out of order is NaN, and the status `invalid_argument`.
        adjoint: How derivatives are computed: `Checkpointed()` (reverse mode, the default), `Direct()`
            (forward mode), `Forward()` (both, by few parameters), `Reversible()` (reverse mode in constant
            memory), a continuous adjoint, `Gauss()`, `Interpolating()` or `Backsolve()`, or `Implicit()` (of
            a steady state).
        max_steps: The limit on attempted steps; by default 16384 with error control.
        schedule: How the members of a `jax.vmap` share the loop. In "lockstep" each has a lane and the loop
            ends with the slowest; the last of thousands may go on over fewer lanes on a CPU where the vector field
            is a network. With "refill" there are fewer lanes, and a lane whose member is done takes up the next:
            faster where a few members take many times the steps of the others.
            A gradient is always computed in lockstep.
        impl: What runs the solve: "auto" takes a kernel on machines where that is tested, else XLA; "xla" and "pallas"
            ask for one of them. Without it, what the block of `sciml.kernels.use` says that the call stands in, and
            "auto" outside of any. The members of a `jax.vmap` have a kernel that integrates a block of
            them as a whole, with their states in registers (`sciml.kernels.ensemble.select`), and with
            `adjoint=Forward()` its columns too; XLA computes other derivatives, and solves of one member. Models that
            are stencils have kernels of their own for fixed steps.
        interpret: Whether the kernel of `impl="pallas"` runs in JAX's interpreter, on any machine and slowly, to
            check it.
        throw: Whether to raise an error if the solve fails. Under a transformation nothing can be
            raised; there, look at `Solution.status` or call `Solution.raise_if_failed` afterwards.

    Returns:
        A `Solution`. What a failed member did not reach is NaN.

    Raises:
        ValueError: If an argument is out of range or does not fit the others.
        TypeError: If an argument has the wrong type or dtype.
        SolveError: If the solve fails and `throw` is set.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.LotkaVolterra()
        ts = jnp.linspace(0.0, 20.0, 101)
        sol = sciml.solve(model, jnp.array([34.0, 5.9]), t0=0.0, t1=20.0, saveat=ts)
        assert sol.ys.shape == (101, 2)
        ```
    """
    y0 = check_state(y0)
    adjoint = Checkpointed() if adjoint is None else adjoint
    if not isinstance(adjoint, AbstractAdjoint):
        raise TypeError(f"`adjoint` must be an adjoint such as `sciml.Checkpointed()`, but {no_instance(adjoint)}.")
    if not callable(model):
        raise TypeError(f"`model` must be callable as `model(t, y, args)`, but is {model!r}.")
    check_signature(model)
    solver = default_solver(model, controller, dt, rtol, atol) if solver is None else solver
    args = arrays_of(args)
    given = dict(t0=t0, t1=t1, rtol=rtol, atol=atol, solver=solver, controller=controller, norm=norm)
    dt, longest = settle_step(model, y0, args, dt=dt, **given)
    plan, times, tolerances = make_plan(
        y0,
        dt=dt,
        **given,
        saveat=saveat,
        max_steps=max_steps,
    )
    if schedule not in ("lockstep", "refill"):
        raise ValueError(f'`schedule` must be "lockstep" or "refill", but is {schedule!r}.')
    times = dataclasses.replace(times, longest=longest)
    request = requested(impl, interpret)
    cell_backend, intervals = backend_of(model, request), None
    if cell_backend is not None:  # else nobody asks for a kernel
        if plan.stepper is not None and times.saves is not None:
            intervals = intervals_of(saveat, t0, t1, dt, plan, times.t0.dtype)
        if (plan.steps is None and intervals is None) or not isinstance(adjoint, Checkpointed | Direct):
            cell_backend = decline(model, cell_backend, _reason(plan, times, intervals, adjoint))
    request = backend_of_members(request, plan.stepper, adjoint, schedule) if cell_backend is None else XLA
    if plan.stepper is None:
        sol = _diffrax_fallback.solve(
            model, y0, args, times, tolerances, plan.max_steps, solver, controller, saveat, adjoint
        )
    else:
        # what is known now is no variable of a derivative
        constant = all(map(concrete, jax.tree.leaves((model, args))))
        sol = _solve(
            model, y0, args, times, tolerances, plan, adjoint, schedule, constant, request, cell_backend, intervals
        )
    sol = dataclasses.replace(sol, solver=type(solver).__name__)
    if throw and concrete(sol.status):
        raise_for_status(sol.status, reached=sol.t_reached)
    return sol


@eqx.filter_jit
def _solve(
    model: Callable,
    y0: Y,
    args: Args,
    times: Times,
    tolerances: Tolerances | None,
    plan: Plan,
    adjoint: AbstractAdjoint,
    schedule: str,
    constant: bool,
    impl: Request,
    cell_backend: Request | None,
    intervals: tuple[int, ...] | None,
) -> Solution:
    assert plan.stepper is not None  # else diffrax runs the solve
    if plan.forwards is None:
        direction = jnp.where(times.t1 >= times.t0, jnp.ones_like(times.t0), -jnp.ones_like(times.t0))
    else:
        direction = jnp.full_like(times.t0, 1 if plan.forwards else -1)
    span = direction * (times.t1 - times.t0)
    dt = jax.tree.map(jnp.abs, times.dt)
    length = direction * dt if plan.equal else None
    field, operands = plan.stepper.close(model, times.t0, y0, args, length)
    # cotangents of tables cost as much as what the tables save
    constant = constant and isinstance(field, SplitField) and not field.captures
    refused = out_of_range(y0, times, tolerances, plan)
    saves, missed = None, None
    if times.saves is not None:
        saves = direction * (times.saves - times.t0)
        if plan.differentiable_times:  # traced, so nobody has looked yet
            missed = misplaced(saves, times, span)
        saves = saves + jax.lax.stop_gradient(jnp.clip(saves, 0, span) - saves)  # rounding alone moves them
    inputs = Operands(
        field=operands,
        t0=times.t0,
        span=span,
        saves=saves,
        direction=direction,
        tolerances=tolerances,
        dt=dt,
        max_steps=jnp.asarray(plan.max_steps if refused is None else jnp.where(refused, 0, plan.max_steps), jnp.int32),
    )
    # before the loops, so that JAX differentiates it and they never see it
    start, y0, held = promote((times.t0, y0, operands))
    bound = bind(field, held)
    y0, consistent = plan.stepper.prepare(bound, start, y0)
    if consistent is not None:
        y0 = known(y0, consistent)
    collective = make_collective(plan.norm, y0)
    if collective.axes:
        check_adjoint(adjoint)
    elif plan.norm is None and plan.steps is None:
        check_independent(lambda t, y, held: field(t, y, held), times.t0, y0, operands)
    integrator = Integrator(field, plan.stepper, plan.control, saves is not None, collective, constant)
    stencil_steps = None
    if cell_backend is not None:
        stencil_steps = make_stencil_steps(plan.stepper, model, y0, args, direction * dt, cell_backend)
    if plan.steps is not None:
        loop = FixedLoop(integrator, Lanes(None), plan.steps, plan.tail, stencil_steps=stencil_steps, impl=impl)
    else:
        times_differ = plan.differentiable_times
        loop = AdaptiveLoop(
            integrator, Lanes(None), plan.max_steps, times_differ, count=plan.count, tail=plan.tail, impl=impl
        )
        loop = RefillLoop(loop) if schedule == "refill" else loop
    if stencil_steps is not None and intervals is not None and plan.count is not None:
        whole = FixedLoop(
            dataclasses.replace(integrator, dense=False),
            Lanes(None),
            plan.count,
            plan.tail,
            stencil_steps=stencil_steps,
        )
        result = run_intervals(whole, adjoint, y0, inputs, intervals)
    else:
        result = adjoint.run(loop, y0, inputs, plan.differentiable_times)

    ys = result.ys
    result = collective.replicated(result._replace(ys=None))
    status = result.status
    if consistent is not None:
        status = jnp.where(consistent, status, int(Status.inconsistent_start)).astype(status.dtype)
    method = adjoint.method(plan.stepper)
    started = int(method.fsal) + (2 if times.dt is None else 0)
    evaluations = _evaluations(method.evaluations, started, result.accepted + result.rejected)
    ts, finish = times.saves, partial(plan.stepper.finish, bound)
    if type(plan.stepper).finish is not AbstractStepper.finish:  # the loop's variables are other ones
        ys = finish(ys) if ts is None else jax.vmap(finish)(ys)
    if missed is not None:
        ys = jax.tree.map(lambda x: jnp.where(_over(missed, x), jnp.full_like(x, jnp.nan), x), ys)
        status = _or_invalid(status, jnp.any(missed))
    if refused is not None:
        ys = known(ys, ~refused)
        status = jnp.where(refused, int(Status.invalid_argument), status).astype(status.dtype)
    if ts is None:
        ys, ts = jax.tree.map(lambda x: x[None], ys), times.t1[None]
    reached = jnp.where(result.elapsed >= span, times.t1, times.t0 + direction * result.elapsed)
    return Solution(ts, ys, status, reached, Stats(result.accepted, result.rejected, evaluations, result.executed))


def _reason(plan: Plan, times: Times, intervals: tuple[int, ...] | None, adjoint: AbstractAdjoint) -> str:
    """Why no kernel runs a solve, whatever the model."""
    if plan.stepper is None:
        return "diffrax runs it"
    if plan.control is not None:
        return "its steps are chosen by the error"
    if plan.count is None:
        return "the number of its steps is traced"
    if plan.steps is None and intervals is None:
        return "it saves between steps, or at too many different distances"
    return f"`adjoint={type(adjoint).__name__}()` has steps of its own"


def _evaluations(each: int, started: int, steps: Any) -> Any:
    """How often the field was evaluated in so many steps; what is too large for the dtype is its largest number."""
    if each < 0:
        return jnp.full_like(steps, -1)
    largest = int(jnp.iinfo(steps.dtype).max)
    most = (largest - started) // max(each, 1)
    return jnp.where(steps > most, largest, started + each * steps)


def _over(mask: Any, x: Any) -> Any:
    """A mask over saved times in the rank of an array of states at these times."""
    return mask.reshape(mask.shape + (1,) * (x.ndim - 1))


def _or_invalid(status: Any, invalid: Any) -> Any:
    code = jnp.asarray(int(Status.invalid_argument), status.dtype)
    return jnp.where(invalid & (status == int(Status.successful)), code, status)
