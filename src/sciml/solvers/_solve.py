"""`solve`: the front door of the solvers."""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_closed, check_state, concrete, no_instance
from .._interfaces._conservation_law import AbstractConservationLaw
from .._interfaces._delayed import AbstractDelayed
from .._interfaces._reactions import AbstractReactions
from .._interfaces._stochastic import AbstractStochastic
from .._jax._platform import default_platform
from .._option_names import knows_other_names
from .._status import SolveError, Status, raise_for_status
from .._types import Args, BoolScalarLike, IntScalarLike, RealScalarLike, Y
from ..kernels._backends import AUTO, KERNEL_OF, XLA, KernelRequest
from ..kernels._use import USED, requested
from . import _diffrax_fallback
from ._calls import WarmCall, compiled, find, key_of, remember, split, wait_shortly
from ._integrate import Settings, integrate
from ._negative_amounts import warn_of_negative
from ._plan import Plan, default_solver, make_plan, plan_events, with_courant_number
from ._read_diffrax import stepper_of
from ._request import Interval, Request
from ._save_intervals import intervals_of
from ._solution import Solution
from ._stable_step import limited_stepper, settle_step
from ._stiff_choice import method_before, method_instead
from ._with_delays import with_delays
from ._with_noise import check_noisy, is_noisy, noisy_model, with_noisy_solver
from ._wrong_start import naming_texts, wrong_start
from .adjoints._abstract import AbstractAdjoint
from .adjoints._checkpointed import Checkpointed
from .events._event import GivenEvents, ModelWithEvents, read_events
from .integrate._ensemble_kernel import backend_of as backend_of_members
from .integrate._stencil_kernel import backend_of, decline
from .methods._solver import name_of
from .methods.around._one_exchange import with_one_exchange
from .methods.delays._method_of_steps import DelayedFrom
from .methods.jumps._abstract import ReactionsWithKey
from .noise._brownian import BrownianPath
from .outputs._between_events import solve_between_events
from .outputs._resume import Continuation, check_alone, plan_continuation, read_continuation
from .outputs._saveat import saves_end_apart, with_end
from .outputs._solve_outputs import has_equations_of_its_own, saves_more, solve_and_save
from .terms._explain import check_callable
from .terms._field import arrays_of
from .terms._suits import blaming_state, check_suits

_integrate = compiled(integrate)
_DEFAULT_ADJOINT = Checkpointed()


@knows_other_names
def solve(
    model: Callable[[RealScalarLike, Y, Args], Y]
    | AbstractStochastic
    | AbstractReactions
    | AbstractDelayed
    | diffrax.AbstractTerm,
    y0: Y,
    *,
    t0: RealScalarLike,
    t1: RealScalarLike,
    args: Args = None,
    key: Any = None,
    dt: RealScalarLike | None = None,
    dt0: RealScalarLike | None = None,
    cfl: RealScalarLike | None = None,
    rtol: PyTree | None = None,
    atol: PyTree | None = None,
    solver: Any = None,
    stepsize_controller: Any = None,
    norm: Callable[[Y], Array] | None = None,
    positive: PyTree | None = None,
    domain: Callable[[Y], BoolScalarLike] | None = None,
    project: Callable[[Y], PyTree] | None = None,
    saveat: Any = None,
    resume: Any = None,
    events: Any = None,
    max_events: IntScalarLike | None = None,
    adjoint: AbstractAdjoint | None = None,
    max_steps: IntScalarLike | None = None,
    batching: str = "lockstep",
    impl: str | None = None,
    interpret: bool = False,
    throw: bool = True,
) -> Solution:
    r"""Solves the initial value problem $\dot y = f(t, y, \mathrm{args})$, $y(t_0) = y_0$, up to $t_1$.

    With `dt` and no tolerance the steps are fixed; otherwise their size is chosen such that the
    estimated error of every step stays within the tolerances. The end time is hit exactly, forwards or
    backwards. Under `jax.vmap` members run side by side, each with its own step size.

    A model with noise, $dy = f \, dt + g \, dW$, is a `sciml.Stochastic`, and takes a random `key`.

    Args:
        model: `f(t, y, args) -> dy/dt`, a module or a plain function of one member; a `sciml.Stochastic`,
            `sciml.Reactions` or `sciml.Delayed`; or a term of diffrax, such as a `MultiTerm`, which diffrax solves.
        y0: The initial state, a PyTree of floating-point or complex arrays.
        t0: The start time.
        t1: The end time; before `t0` to go backwards.
        args: What the model takes beside time and state, any PyTree.
        key: For a model with noise: a random key, for each member one of its own, or a `sciml.BrownianPath`, to see one
            path with different steps. The noise is a function of the key and of time alone: the same for any number of
            members and devices, and in the gradient. With `dt` it belongs to the number of the step, and with steps
            chosen by the error to the interval that they cover.
        dt: The size of fixed steps, with the sign of `t1 - t0`; without it steps are chosen by the error. If the
            interval is no multiple of it, the last step is shorter. Where the method is explicit and the model says
            its eigenvalues (a method `spectrum(t, y, args)` or `spectral_radius(t, y, args)`), fixed steps that are
            too long to be stable at the start are an error, or `invalid_argument` where they are traced; and None is
            a stable step for a method without an error estimate and for `diffrax.ConstantStepSize()`.
        dt0: The size of the first step under error control, with the sign of `t1 - t0`; by default it is estimated.
        cfl: The Courant number of steps that follow the fastest wave of the state as it is: how many cells it may
            cross in one, for models that say so by a method `crossing_rate(t, y, args)`. A step after which the state
            is not admissible, as with a negative pressure, is tried again with half the length. With tolerances the
            error limits the steps, too. By default 0.45 for a conservation law without `dt` and tolerances.
        rtol: Relative tolerance; by default 1e-6 in float64, 1e-4 in float32, 1e-2 in float16 and with noise. A scalar,
            an array of the state's shape, or a PyTree like `y0`. At least twice the dtype's precision.
        atol: Absolute tolerance; by default 1e-9 in float64, 1e-6 in float32, 1e-3 in float16, and 1e-4 with noise.
        solver: A diffrax solver, or an `AbstractStepper` of your own. By default it follows from the model's type, and
            `Solution.solver` says which it was: `ETDRK` for an `AbstractSemilinear`, `ARK` for an `AbstractSplit`,
            `SSPRK33` for an `AbstractConservationLaw`, with fixed steps `VelocityVerlet` for an `AbstractSecondOrder`
            and `Leapfrog` for an `AbstractPartitioned`, otherwise `diffrax.Tsit5()`, or a method for stiff equations,
            `Rodas5P`, `BDF` where the Jacobian is large and neither blocks nor a band that is factorised, as that of a
            field in two or three dimensions: where the model says `stiff = True`, and outside of
            `jax.jit` and `jax.vmap` where `Tsit5` needs more steps than the default limit, or with 256 unknowns and
            more would need them by the eigenvalues at the start; the logger `sciml.solvers` says why. Inside of these a
            solve keeps its method, and members whose steps came to their limit as long as it is stable for have the
            status `stiff`. With noise it is
            `diffrax.SRA1` where that is additive, `SRIW1` where it is scalar or diagonal, else `diffrax.Euler`
            (`EulerHeun` in the sense of Stratonovich), or `diffrax.SPaRK` with steps chosen by the error. diffrax's
            Runge-Kutta methods, explicit and implicit (Kvaerno's, KenCarp's), and those of `sciml.solvers`, such as
            `Rodas5P()` for stiff problems, run in sciml's own loops; any other, and one with a `root_finder` of your
            own, runs through diffrax.
        stepsize_controller: A diffrax step size controller in place of `rtol` and `atol`.
        norm: How large a scaled error is: a function from a PyTree like `y0` to a scalar; by default the root
            mean square over all elements. On a field that is split over devices it is `Domain.rms`, so
            that all devices take the same steps.
        positive: What must not become negative, as concentrations: True for the whole state, or a PyTree like `y0` of
            booleans or of arrays of them. An element below zero by no more than the step's estimated error is set to
            zero, and derivatives go through where it is not; a step with one farther below is tried again, shorter.
            With fixed steps all are set to zero. `atol` has to lie below the smallest amount that lives: what is below
            it may be set to zero, from where it may not come back, and the status is `successful`.
        domain: Which states are admissible beside that: a function `domain(y) -> bool` that closes over no traced
            value. A step that ends elsewhere is tried again with a shorter length; a fixed one fails as if it were NaN.
        project: What the equation conserves, as an energy: a function of the state to a few numbers, `project(y)`, that
            closes over no traced value. Every step is moved to where they are what they were at its start, by no more
            than its error; derivatives know.
        saveat: Where to save: None for the end, an array of times within `[t0, t1]` in the
            direction of time, or a `diffrax.SaveAt`. Between steps the method interpolates. Where times are traced, a
            state outside the interval or out of order is NaN, and the status `invalid_argument`. Of a
            `diffrax.SaveAt`, `fn` and `subs` keep functions of the states at times of their own, `steps` the end of
            every step, with space for `max_steps` of them, and `dense=True` gives `Solution.evaluate`; to see where
            steps end, the last two solve twice. `solver_state=True` gives `Solution.resume`.
        resume: The `Solution.resume` of the same call with an earlier `t1`, to go on from there: `t0` and `y0` are
            those of that call, and steps and noise are those of one solve. Times to save come after those that it had
            reached.
        events: What happens on the way: a `sciml.Event`, whose condition changes its sign, a `sciml.Schedule`, at times
            that are given, a `diffrax.Event`, or several of these. `Solution.events` says which came when. They need a
            method that runs in sciml's own loops. `Checkpointed()`, `Direct()` and `Forward()` go through
            them, and the continuous ones, which solve from each event to the next, up to `max_events` of them.
        max_events: How many of the events are kept in `Solution.events`; by default 16, or 1 where all end the solve.
        adjoint: How derivatives are computed: `Checkpointed()` (reverse mode, the default), `Direct()`
            (forward mode), `Forward()` (both, by few parameters), `Reversible()` (reverse mode in constant
            memory), a continuous adjoint, `Gauss()`, `Interpolating()` or `Backsolve()`, or `Implicit()` (of
            a steady state).
        max_steps: The limit on attempted steps; by default 16384 with error control.
        batching: How the members of a `jax.vmap` share the loop. In "lockstep" each has a lane and the loop
            ends with the slowest; the last of thousands may go on over fewer lanes on a CPU where the vector field
            is a network. With "refill" there are fewer lanes, and a lane whose member is done takes up the next:
            faster where a few members take many times the steps of the others.
            A gradient is always computed in lockstep.
        impl: What runs the solve: "auto" takes a kernel where it was seen to be right and faster, else XLA; "xla" and
            "pallas" ask for one of them. Without it, what the `sciml.kernels.use` block around the call says, and
            "auto" outside of any. The members of a `jax.vmap` have a kernel that integrates a block of
            them as a whole, with their states in registers (`sciml.kernels.select`), and with
            `adjoint=Forward()` its columns too; XLA computes other derivatives, and solves of one member. Models that
            are stencils have kernels of their own for fixed steps, and conservation laws one for their rates.
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
    request = Request(
        t0=t0, t1=t1, args=args, key=key, dt=dt, dt0=dt0, cfl=cfl, rtol=rtol, atol=atol, solver=solver,
        stepsize_controller=stepsize_controller, norm=norm, positive=positive, domain=domain, project=project,
        saveat=saveat, resume=resume, events=events, max_events=max_events, adjoint=adjoint, max_steps=max_steps,
        batching=batching, impl=impl, interpret=interpret,
    )  # fmt: skip
    with blaming_state(model, y0), naming_texts(args):
        if solver is None:
            request = request._replace(solver=method_before(model, y0, request))
        sol = _solved(model, y0, request)
    if not concrete(sol.status):  # in a trace nothing is known yet
        return sol
    wait_shortly(sol.status)
    failed = np.asarray(sol.status).any()
    if failed and request.solver is None and (other := method_instead(sol, model, y0, request)) is not None:
        sol = _solved(model, y0, request._replace(solver=other))
        failed = not concrete(sol.status) or np.asarray(sol.status).any()
    if not failed and solver is None:
        warn_of_negative(sol, y0, request)
    if failed and throw:
        if (wrong := wrong_start(sol, model, y0, request)) is not None:
            raise SolveError(
                f"`solve` failed with status `{Status(int(sol.status)).name}`. {wrong}", np.asarray(sol.status)
            )
        raise_for_status(sol.status, reached=sol.t_reached)
    return sol


def _solved(model: Any, y0: Y, request: Request) -> Solution:
    """Returns what a solve came to, whether it failed or not.

    Some calls take several solves: to save more than states at given times, and to differentiate through events by an
    adjoint that does not know them. These are given this function, and call it with requests of their own.
    """
    saveat, continuation = read_continuation(request.saveat, request.resume)
    request = request._replace(saveat=saveat, args=None if request.args is None else arrays_of(request.args))
    if saves_more(model, y0, request):
        if continuation:
            check_alone()
        return solve_and_save(_solved, model, y0, request)
    sol = _solved_for_times(model, y0, request, continuation)
    if sol.events is None or not saves_end_apart(request.saveat):
        return sol
    ts, ys = with_end(sol, sol.ts, sol.ys)
    return dataclasses.replace(sol, ts=ts, ys=ys)


def _solved_for_times(model: Any, y0: Y, request: Request, continuation: Continuation) -> Solution:
    """Returns the solution of a solve that saves states at given times, or the end.

    Args:
        model: The model.
        y0: The initial state.
        request: What was asked for.
        continuation: The solve that it continues, and whether another is to continue it.
    """
    adjoint = _DEFAULT_ADJOINT if request.adjoint is None else request.adjoint
    events = read_events(request.events, request.max_events)
    if events is not None and isinstance(adjoint, AbstractAdjoint) and adjoint.jumps_at_events:
        if continuation:
            check_alone()
        return solve_between_events(_solved, model, y0, request, events)
    kernel = _kernel(request.impl, request.interpret)
    # times of events are checked and count by value, and noise has a path: such a call is decided each time
    alike = events is None and request.key is None and not continuation and not isinstance(model, AbstractDelayed)
    model = model.vector_field if isinstance(model, diffrax.ODETerm) else model
    # a call like one before takes its compiled program, with nothing read but shapes, numbers and identities
    choices = request._replace(args=None, adjoint=adjoint), kernel
    name, arrays = key_of((model, y0, request.args), choices) if alike else (None, [])
    call = find(name)
    if call is not None:
        return _integrate.call(call.static, arrays + call.arrays)
    _check(model, request, adjoint)
    return _solve(model, y0, request, adjoint, kernel, name, events, continuation)


def _solve(
    model: Any,
    y0: Y,
    request: Request,
    adjoint: AbstractAdjoint,
    kernel: KernelRequest,
    name: tuple | None,
    events: GivenEvents | None,
    continuation: Continuation,
) -> Solution:
    """Decides how to run a solve, runs it, and remembers the decision where it depends on no value of an array.

    Args:
        model: The model.
        y0: The initial state.
        request: What was asked for.
        adjoint: How derivatives are computed.
        kernel: The kernel that was asked for, by the call or the block around it.
        name: What the call is remembered by, or None.
        events: The events, as they were read.
        continuation: The solve that it continues, and whether another is to continue it.
    """
    given, y0, asked = y0, check_state(y0), request._replace(args=None)  # arrays must not outlive the call
    check_suits(model, y0)
    interval, limited, longest = Interval.of(request, y0), None, None
    # the method, by what kind of equation it is
    if is_noisy(model):
        request = with_noisy_solver(model, y0, request, interval)
        if not request.fixed_steps or isinstance(request.key, BrownianPath):
            kernel = _without_kernel(kernel, "the tree of a path of noise is walked by XLA, see `dt` and `key`")
    elif isinstance(model, AbstractDelayed):
        request = with_delays(model, request, interval, adjoint)
        kernel = _without_kernel(kernel, "past states are kept by XLA")
    else:
        request = with_courant_number(model, request._replace(solver=default_solver(model, request, y0)))
        kernel = XLA if isinstance(model, diffrax.AbstractTerm) else kernel
    model, kernel = _with_kernel(model, y0, kernel)
    # the size of fixed steps
    fixed = request.fixed_steps or not (request.names_error_control or request.cfl is not None)
    if fixed and not has_equations_of_its_own(model):  # eigenvalues limit fixed steps alone
        limited = limited_stepper(model, y0, request)
        request, interval, longest = settle_step(model, y0, request, interval, limited)
    # the plan, and what changes it
    plan, times, tolerances = make_plan(y0, request, interval)
    method = name_of(request.solver)
    plan = dataclasses.replace(plan, stepper=with_one_exchange(model, plan.stepper, method))
    _check_functions_of_state(request, adjoint, y0)
    if isinstance(model, diffrax.AbstractTerm):
        plan = dataclasses.replace(plan, stepper=None, control=None)
    if continuation:
        plan = plan_continuation(plan, continuation, request.key, request.fixed_steps, adjoint)
        kernel = _without_kernel(kernel, "it goes on where another solve ended, or is to be gone on with")
    times = times._replace(longest=longest)
    if isinstance(model, AbstractDelayed):
        model = DelayedFrom(model, times.t0)
    elif is_noisy(model):
        model, plan = noisy_model(model, request.key, plan, times, request.fixed_steps, events)
    if events is not None:
        plan, kernel = plan_events(plan, events, adjoint), _without_kernel(kernel, "events are sought by XLA")
        model = ModelWithEvents.of(model, events.each, times.t0, times.t1)
    # what runs it: a kernel, diffrax, or sciml's own loops
    stencil_backend, intervals = None, None
    if kernel != XLA:
        stencil_backend, intervals = _stencil_backend(model, request, plan, times.t0.dtype, adjoint, kernel)
    if kernel != XLA and stencil_backend is None:
        kernel = backend_of_members(kernel, plan.stepper, adjoint, request.batching)
    if plan.stepper is None:
        _check_diffrax_can(model)
        _diffrax_fallback.log_once(type(request.solver).__name__, stepper_of(request.solver, y0) is None)
        if plan.coarse_times:
            _diffrax_fallback.warn_of_times(times.t0.dtype)
        return _diffrax_fallback.solve(model, y0, times, tolerances, plan.max_steps, request, adjoint)
    settings = Settings(
        plan,
        adjoint,
        request.batching,
        constant=all(map(concrete, jax.tree.leaves((model, request.args)))),
        impl=kernel if stencil_backend is None else XLA,
        stencil_backend=stencil_backend,
        intervals=intervals,
        solver=method,
        hands_out=continuation.hands_out,
    )
    static, arrays = split((model, y0, request.args, times, tolerances, settings, continuation.resume))
    same = all(a is b for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(y0)))
    if limited is None and same:
        rest = len(split((times, tolerances))[1])
        remember(name, WarmCall(static, arrays[len(arrays) - rest :], asked))
    return _integrate.call(static, arrays)


def _check_functions_of_state(request: Request, adjoint: AbstractAdjoint, y0: Y) -> None:
    """Checks that the adjoint sees by what `project` and `domain` are to be differentiated."""
    for name, function in {"project": request.project, "domain": request.domain}.items():
        if function is not None and not adjoint.sees_closures:
            check_closed(function, name, y0)


def _check_diffrax_can(model: Any) -> None:
    """Checks that diffrax, which knows neither delays nor reactions, is not asked for them.

    Raises:
        ValueError: If it is.
    """
    if isinstance(model, DelayedFrom | ReactionsWithKey):
        what = "delays" if isinstance(model, DelayedFrom) else "reactions"
        raise ValueError(
            f"A solve with {what} runs in sciml's own loops alone: control steps by `rtol` and `atol` or a "
            "`diffrax.PIDController`."
        )


def _without_kernel(kernel: KernelRequest, why: str) -> KernelRequest:
    """Returns XLA in place of a kernel that need not run the solve.

    Raises:
        ValueError: If one was asked for.
    """
    if kernel == XLA or kernel.impl == "auto":
        return XLA
    raise ValueError(f"`{kernel}` cannot run this solve: {why}.")


def _with_kernel(model: Any, y0: Y, kernel: KernelRequest) -> tuple[Any, KernelRequest]:
    """Returns a conservation law whose rates a kernel computes, where one is taken, and what else is asked for then.

    Raises:
        ValueError: If a kernel was asked for that cannot run the law.
    """
    if kernel == XLA or not isinstance(model, AbstractConservationLaw) or not isinstance(y0, jax.Array):
        return model, kernel
    model = model.with_kernel(y0, kernel)
    return model, kernel if model.volumes.chosen is None else XLA


def _kernel(impl: Any, interpret: bool) -> KernelRequest:
    """Returns what is asked for, by the call or by the block around it: XLA where "auto" has nothing else."""
    kernel = USED.get() if impl is None and interpret is False else requested(impl, interpret)
    return XLA if kernel == AUTO and default_platform() not in KERNEL_OF else kernel


def _check(model: Any, request: Request, adjoint: Any) -> None:
    """Checks what does not depend on the state.

    Raises:
        ValueError: If arguments exclude one another.
        TypeError: If one has the wrong type.
    """
    if not isinstance(adjoint, AbstractAdjoint):
        raise TypeError(
            f"`adjoint` must be an adjoint such as `sciml.adjoints.Checkpointed()`, but {no_instance(adjoint)}."
        )
    check_noisy(model, request.key, adjoint)
    times = request.t0, request.t1
    if has_equations_of_its_own(model) and all(map(concrete, times)) and request.t1 < request.t0:
        raise ValueError("A solve with noise or delays goes forwards in time, but `t1` comes before `t0`.")
    if isinstance(model, diffrax.AbstractTerm):
        if request.solver is None:
            raise ValueError(
                f"diffrax runs a solve of its `{type(model).__name__}`, and needs to be told how: give `solver`, one "
                "of its own for such terms."
            )
    elif not has_equations_of_its_own(model):
        check_callable(model)
    request.check_steps()
    if request.batching not in ("lockstep", "refill"):
        raise ValueError(f'`batching` must be "lockstep" or "refill", but is {request.batching!r}.')


def _stencil_backend(
    model: Any, request: Request, plan: Plan, dtype: Any, adjoint: AbstractAdjoint, kernel: KernelRequest
) -> tuple[KernelRequest | None, tuple[int, ...] | None]:
    """Returns the backend of a model that is a stencil, None where it is no kernel, and after which steps it saves.

    Raises:
        ValueError: If a kernel was asked for that cannot run the solve.
    """
    backend = backend_of(model, kernel)
    if backend is None:  # no kernel is asked for
        return None, None
    intervals = intervals_of(request, plan, dtype) if plan.stepper is not None else None
    if (plan.steps is None and intervals is None) or not adjoint.keeps_steps:
        return decline(model, backend, _why_no_stencil(plan, intervals, adjoint)), None
    return backend, intervals


def _why_no_stencil(plan: Plan, intervals: tuple[int, ...] | None, adjoint: AbstractAdjoint) -> str:
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
