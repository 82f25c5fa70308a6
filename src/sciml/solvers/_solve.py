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
from .._interfaces._dae import AbstractDAE
from .._interfaces._delayed import AbstractDelayed
from .._interfaces._reactions import AbstractReactions
from .._interfaces._stochastic import AbstractStochastic
from .._jax._platform import default_platform
from .._option_names import knows_other_names
from .._status import SolveError, Status, raise_for_status
from .._types import Args, BoolScalarLike, IntScalarLike, RealScalarLike, Y
from ..kernels._backends import AUTO, KERNEL_OF, XLA, KernelRequest
from ..kernels._use import USED
from . import _diffrax_fallback
from ._calls import WarmCall, compiled, find, key_of, remember, split, wait_shortly
from ._integrate import Settings, integrate
from ._plan import Plan, default_solver, make_plan, plan_events, with_courant_number
from ._read_diffrax import check_numbers, stepper_of
from ._request import Interval, Request
from ._save_intervals import intervals_of
from ._solution import Solution
from ._stable_step import limited_stepper, settle_step
from ._stiff_choice import method_before, method_instead
from ._with_daes import with_daes
from ._with_delays import check_first_delays, with_delays
from ._with_noise import check_noisy, is_noisy, noisy_model, with_noisy_solver
from ._wrong_start import naming_texts, warn_of_negative, wrong_start
from .adjoints._abstract import AbstractAdjoint
from .adjoints._checkpointed import Checkpointed
from .events._event import GivenEvents, ModelWithEvents, read_events
from .integrate._ensemble_kernel import backend_of as backend_of_members
from .integrate._stencil_kernel import backend_of, decline
from .methods._solver import name_of
from .methods.around._one_exchange import with_one_exchange
from .methods.delays._delay_field import DelayedFrom
from .methods.implicit._radau_dae import WrappedDAE
from .methods.jumps._abstract import ReactionsWithKey
from .noise._brownian import BrownianPath
from .outputs._between_events import solve_between_events
from .outputs._resume import Continuation, check_alone, check_resumes, plan_continuation, read_continuation
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
    | AbstractDAE
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
    throw: bool = True,
) -> Solution:
    r"""Solves the initial value problem $\dot y = f(t, y, \mathrm{args})$, $y(t_0) = y_0$, from $t_0$ to $t_1$.

    With `dt` and no tolerances, the steps are fixed. Otherwise they are adaptive: the estimated error of every step
    stays within the tolerances. The solve ends exactly at `t1` and may run forwards or backwards in time. Under
    `jax.vmap`, members run side by side, each with its own step size.

    A model with noise, $dy = f \, dt + g \, dW$, is a `sciml.Stochastic` and requires a random `key`.

    Args:
        model: `f(t, y, args) -> dy/dt`, a module or a plain function of one member; a `sciml.Stochastic`,
            `sciml.Reactions` or `sciml.Delayed`; or a diffrax term such as `MultiTerm`, which diffrax solves.
        y0: The initial state, a PyTree of floating-point or complex arrays.
        t0: The start time.
        t1: The end time; before `t0` to solve backwards in time.
        args: The third argument of the model, any PyTree.
        key: For a model with noise: a random key, a different one for each member, or a `sciml.BrownianPath` to reuse
            one path with different steps. The noise depends only on the key and on time, so it is the same for any
            number of members and devices, and in gradients. With `dt`, the noise of a step depends on the step's index;
            with adaptive steps, on the time interval of the step.
        dt: The size of fixed steps, with the sign of `t1 - t0`; None for adaptive steps. If it does not divide the
            interval, the last step is shorter. For an explicit method and a model with a method
            `spectrum(t, y, args)` or `spectral_radius(t, y, args)`, a `dt` that is unstable at `t0` raises an error (or
            returns `invalid_argument` if traced). For such a model, None selects a stable fixed step if the method
            does not estimate errors or if `stepsize_controller` is `diffrax.ConstantStepSize()`.
        dt0: The size of the first step under error control, with the sign of `t1 - t0`; by default it is estimated.
        cfl: The Courant number, the number of cells that the fastest wave may cross in one step, summed over the axes
            of the grid. It requires a model with a method `crossing_rate(t, y, args)`. A step that leads to an
            inadmissible state, such as a negative pressure, is repeated with half its length. If tolerances are given,
            they also limit the steps. The default is 0.45 for a conservation law without `dt` and tolerances.
        rtol: Relative tolerance: a scalar, an array of the state's shape, or a PyTree like `y0`, at least twice the
            machine epsilon. The default is 1e-6 in float64, 1e-4 in float32, and 1e-2 in float16 and with noise.
        atol: Absolute tolerance. The default is 1e-9 in float64, 1e-6 in float32, 1e-3 in float16, and 1e-4 with noise.
        solver: A diffrax solver, or your own `AbstractStepper`. `Solution.solver` names the method that was used.
            diffrax's explicit and implicit Runge-Kutta methods (such as `Kvaerno5`, `KenCarp4`) and the methods of
            `sciml.solvers` run in sciml's own loops; other diffrax solvers, and any with a custom `root_finder`, run in
            diffrax's loop. By default the method depends on the model:

            - `AbstractSemilinear`: `ETDRK`; `AbstractSplit`: `ARK`, or with adaptive steps `ROCK` (in float32
              `RKC2`) for diffusion that only multigrid solves; `AbstractConservationLaw`: `SSPRK33`.
            - With fixed steps, `AbstractSecondOrder`: `VelocityVerlet`; `AbstractPartitioned`: `Leapfrog`.
            - With noise: `diffrax.SRA1` if it is additive, `SRIW1` if it is scalar or diagonal, otherwise
              `diffrax.Euler` (`EulerHeun` for the Stratonovich interpretation), or `diffrax.SPaRK` with adaptive steps.
            - A stiff model: `Rodas5P`, or `BDF` if the Jacobian is large and neither block-diagonal nor narrowly
              banded. A model is stiff if it sets `stiff = True`. Outside of `jax.jit` and `jax.vmap`, stiffness is also
              detected: if `Tsit5` exhausts the default `max_steps` or, for 256 or more unknowns, if the eigenvalues
              at `t0` predict this. The logger `sciml.solvers` reports the reason. Under `jit` and `vmap` the method
              does not change, and stiff members return the status `stiff`.
            - Otherwise `diffrax.Tsit5`.
        stepsize_controller: A diffrax step size controller instead of `rtol` and `atol`.
        norm: The norm of the scaled error, a function from a PyTree like `y0` to a scalar; by default the root mean
            square over all elements. For a field that is split over devices, use `Domain.rms`, so that all devices take
            the same steps.
        positive: Elements that must stay nonnegative, such as concentrations: True for the whole state, or a PyTree
            like `y0` of booleans or boolean arrays. An element that is negative by at most the estimated error of the
            step is set to zero; its derivative is zero there. A step with a more negative element is repeated with a
            shorter length. With fixed steps, all negative elements are set to zero. Set `atol` below the smallest value
            that matters: smaller values may be set to zero and stay there, with the status `successful`.
        domain: Further restrictions of admissible states: a function `domain(y) -> bool` that does not close over
            traced values. A step that leaves the domain is repeated with a shorter length; with fixed steps, the solve
            fails.
        project: Conserved quantities, such as an energy: a function `project(y)` that returns a few numbers and does
            not close over traced values. After every step, the state is projected to their previous values, by at most
            the error of the step. Derivatives account for the projection.
        saveat: Times to save: None for the end, an array of times within `[t0, t1]` in the direction of time, or a
            `diffrax.SaveAt`. States between steps are interpolated. If the times are traced, states outside of the
            interval or out of order are NaN, and the status is `invalid_argument`. In a `diffrax.SaveAt`, `fn` and
            `subs` save functions of the state, each at its own times; `steps` saves every step, with space for
            `max_steps` steps; `dense=True` enables `Solution.evaluate`; and `solver_state=True` returns
            `Solution.resume`. `steps` and `dense` may solve twice to find the steps.
        resume: The `Solution.resume` of the same call with an earlier `t1`, to continue from there. `t0` and `y0` stay
            the same, and the steps and the noise are the same as in one solve. Only times that were not yet
            reached may be saved.
        events: Callbacks: a `sciml.Event` (zero crossing of a condition), a `sciml.Schedule` (given times), a
            `diffrax.Event`, or several of these. `Solution.events` records which event fired when. Events require a
            method that runs in sciml's own loops. The adjoints `Checkpointed()`, `Direct()` and `Forward()` support
            events; so do the continuous adjoints, for up to `max_events` of them.
        max_events: The number of events to record in `Solution.events`; by default 16, or 1 if every event ends the
            solve.
        adjoint: How derivatives are computed: `Checkpointed()` (reverse mode, the default), `Direct()` (forward mode),
            `Forward()` (both modes, for few parameters), `Reversible()` (reverse mode in constant memory), a continuous
            adjoint (`Gauss()`, `Interpolating()` or `Backsolve()`), or `Implicit()` (for a steady state).
        max_steps: The maximum number of attempted steps; by default 16384 with error control.
        batching: How the members of a `jax.vmap` share the loop. With "lockstep", each member has its own lane (its
            place in the batch) and the loop ends with the slowest member; on a CPU, the last of thousands of members
            with a neural network as vector field may move to fewer lanes. With "refill", there are fewer lanes than
            members, and a lane whose member is done starts the next one, which is faster if a few members need many
            more steps than the others. Gradients always use lockstep.
        throw: Whether to raise an error if the solve fails. Under a JAX transformation no error can be raised; check
            `Solution.status` or call `Solution.raise_if_failed` afterwards.

    Returns:
        A `Solution`. Values that a failed member did not reach are NaN.

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
        batching=batching,
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
    algebraic = isinstance(model, AbstractDAE) or getattr(solver, "mass", None) is not None
    if not failed and (solver is None or algebraic):
        warn_of_negative(sol, model, y0, request)
    if failed and throw:
        if (wrong := wrong_start(sol, model, y0, request)) is not None:
            raise SolveError(
                f"`solve` failed with status `{Status(int(sol.status)).name}`. {wrong}", np.asarray(sol.status)
            )
        raise_for_status(sol.status, reached=sol.t_reached)
    return sol


def _solved(model: Any, y0: Y, request: Request) -> Solution:
    """Returns the result of a solve, whether it failed or not.

    Some calls need several solves: to save more than states at given times, and to differentiate through events with an
    adjoint that does not support them. These get this function, and call it with their own requests.
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
        request: The arguments of `solve`.
        continuation: The solve that it continues, and whether another is to continue it.
    """
    adjoint = _DEFAULT_ADJOINT if request.adjoint is None else request.adjoint
    events = read_events(request.events, request.max_events)
    if events is not None and isinstance(adjoint, AbstractAdjoint) and adjoint.jumps_at_events:
        if continuation:
            check_resumes(adjoint)
        return solve_between_events(_solved, model, y0, request, events)
    kernel = _kernel()
    # times of events are checked and count by value, and noise has a path: such a call is decided each time
    alike = events is None and request.key is None and not continuation and not isinstance(model, AbstractDelayed)
    model = model.vector_field if isinstance(model, diffrax.ODETerm) else model
    # a call like one before takes its compiled program, with nothing read but shapes, numbers and identities
    check_numbers(request.solver)  # before methods are compared
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
        request: The arguments of `solve`.
        adjoint: How derivatives are computed.
        kernel: The kernel requested by the call or the block around it.
        name: The key under which the call is remembered, or None.
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
            kernel = _without_kernel(kernel, "kernels do not support Brownian paths, see `dt` and `key`")
    elif isinstance(model, AbstractDelayed):
        request = with_delays(model, y0, request, interval, adjoint)
        check_first_delays(model, y0, request, interval)
        kernel = _without_kernel(kernel, "kernels do not support delays")
    elif isinstance(model, AbstractDAE):
        request = with_daes(model, y0, request, adjoint)
        kernel = _without_kernel(kernel, "kernels do not support a `sciml.DAE`")
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
        kernel = _without_kernel(kernel, "kernels do not support resuming")
    times = times._replace(longest=longest)
    model = _as_function(model, times.t0)
    if is_noisy(model):
        noisy: Any = model
        model, plan = noisy_model(noisy, request.key, plan, times, request.fixed_steps, events)
    if events is not None:
        plan, kernel = plan_events(plan, events, adjoint), _without_kernel(kernel, "kernels do not support events")
        closed: Any = model
        model = ModelWithEvents.of(closed, events.each, times.t0, times.t1)
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


def _as_function(model: Any, t0: Array) -> Any:
    """Returns an equation with delays, or an implicit one, as the loops pass it on; other models as they are."""
    if isinstance(model, AbstractDelayed):
        return DelayedFrom(model, t0)
    return WrappedDAE(model) if isinstance(model, AbstractDAE) else model


def _check_functions_of_state(request: Request, adjoint: AbstractAdjoint, y0: Y) -> None:
    """Checks that the adjoint sees by what `project` and `domain` are to be differentiated."""
    for name, function in {"project": request.project, "domain": request.domain}.items():
        if function is not None and not adjoint.sees_closures:
            check_closed(function, name, y0)


def _check_diffrax_can(model: Any) -> None:
    """Checks that diffrax, which supports neither delays nor reactions nor implicit equations, is not used for them.

    Raises:
        ValueError: If it is.
    """
    kinds = {DelayedFrom: "delays", ReactionsWithKey: "reactions", WrappedDAE: "a `sciml.DAE`"}
    if type(model) in kinds:
        raise ValueError(
            f"A solve with {kinds[type(model)]} only runs in sciml's own loops: control its steps with `rtol` and "
            "`atol` or a `diffrax.PIDController`."
        )


def _without_kernel(kernel: KernelRequest, why: str) -> KernelRequest:
    """Returns XLA instead of a kernel that need not run the solve.

    Raises:
        ValueError: If one was requested.
    """
    if kernel == XLA or kernel.impl == "auto":
        return XLA
    raise ValueError(f"`{kernel}` cannot run this solve: {why}.")


def _with_kernel(model: Any, y0: Y, kernel: KernelRequest) -> tuple[Any, KernelRequest]:
    """Returns a conservation law whose rates a kernel computes, if one is used, and the remaining request.

    Raises:
        ValueError: If a kernel was requested that cannot run the law.
    """
    if kernel == XLA or not isinstance(model, AbstractConservationLaw) or not isinstance(y0, jax.Array):
        return model, kernel
    model = model.with_kernel(y0, kernel)
    return model, kernel if model.volumes.chosen is None else XLA


def _kernel() -> KernelRequest:
    """Returns the request of the block around the call: XLA where "auto" has nothing else."""
    kernel = USED.get()
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
    forwards = has_equations_of_its_own(model) and not isinstance(model, AbstractDAE)
    if forwards and all(map(concrete, times)) and request.t1 < request.t0:
        raise ValueError("A solve with noise or delays must go forwards in time, but `t1` is before `t0`.")
    if isinstance(model, diffrax.AbstractTerm):
        if request.solver is None:
            raise ValueError(
                f"diffrax solves its `{type(model).__name__}`, which requires `solver`: pass a diffrax solver for such "
                "terms."
            )
    elif not has_equations_of_its_own(model):
        check_callable(model)
    request.check_steps()
    if request.batching not in ("lockstep", "refill"):
        raise ValueError(f'`batching` must be "lockstep" or "refill", but is {request.batching!r}.')


def _stencil_backend(
    model: Any, request: Request, plan: Plan, dtype: Any, adjoint: AbstractAdjoint, kernel: KernelRequest
) -> tuple[KernelRequest | None, tuple[int, ...] | None]:
    """Returns the backend of a model that is a stencil, None if it is not a kernel, and the steps after which it saves.

    Raises:
        ValueError: If a kernel was requested that cannot run the solve.
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
        return "its steps are adaptive"
    if plan.count is None:
        return "the number of its steps is traced"
    if plan.steps is None and intervals is None:
        return "it saves between steps, or at too many different intervals"
    return f"`adjoint={type(adjoint).__name__}()` has steps of its own"
