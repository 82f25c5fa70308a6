"""What `solve` decides before anything is traced: which loop, which method, which saved times."""

import math
from typing import Any, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import PyTree

from .._checks import (
    check_max_steps,
    check_saved_times,
    check_step,
    check_time,
    check_tolerance,
    concrete,
    no_instance,
    time_dtype,
)
from .._model import AbstractSecondOrder, AbstractSemilinear, AbstractSplit
from .control._pid import Control, Norm, Tolerances
from .methods._etdrk import ETDRK4, AbstractExponentialSolver
from .methods._imex import ARK324, AbstractAdditiveSolver
from .methods._runge_kutta import from_diffrax
from .methods._solver import AbstractSteppingSolver
from .methods._stepper import AbstractStepper
from .methods._verlet import VelocityVerlet

DEFAULT_MAX_STEPS = 2**14
_MOST_STEPS = 2**31 - 2  # steps are counted in 32 bits


class Times(eqx.Module):
    """The times of a solve as arrays of the dtype of time.

    Attributes:
        t0: The start.
        t1: The end.
        saves: The saved times, or None for the end alone.
        dt: The size of the first or the fixed step, with the sign of t1 - t0, or None.
        longest: The longest fixed step that is stable, where that is known only at run time.
    """

    t0: Any
    t1: Any
    saves: Any
    dt: Any
    longest: Any = None


class Plan(eqx.Module):
    """How a solve runs; static, so that JAX compiles once for each plan.

    Attributes:
        stepper: The method, or None where diffrax runs the solve.
        control: The controller, or None for fixed steps.
        steps: The number of fixed steps to the end state, or None where a loop finds the end.
        count: The number of fixed steps where it is known when traced, with saved times too.
        tail: Whether a shorter step follows these.
        equal: Whether all steps, or all but that, are known to have the length `dt`.
        forwards: Whether t1 > t0; None where that is known only at run time.
        differentiable_times: Whether a time is traced and may be differentiated.
        traced: The names of the times, the step and the tolerances whose values are known only at run time.
        max_steps: The limit on attempted steps.
    """

    stepper: AbstractStepper | None = eqx.field(static=True)
    control: Control | None = eqx.field(static=True)
    steps: int | None = eqx.field(static=True)
    count: int | None = eqx.field(static=True)
    tail: bool = eqx.field(static=True)
    equal: bool = eqx.field(static=True)
    forwards: bool | None = eqx.field(static=True)
    differentiable_times: bool = eqx.field(static=True)
    traced: tuple[str, ...] = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    norm: Norm | None = eqx.field(static=True)


def make_plan(
    y0: PyTree,
    *,
    t0: Any,
    t1: Any,
    dt: Any,
    rtol: Any,
    atol: Any,
    solver: Any,
    controller: Any,
    norm: Any = None,
    saveat: Any,
    max_steps: Any,
) -> tuple[Plan, Times, Tolerances | None]:
    """Checks the arguments of `solve` and decides how to run it."""
    dtype = time_dtype(y0)
    start, end = check_time(t0, "t0", dtype), check_time(t1, "t1", dtype)
    forwards = None
    if concrete(t0) and concrete(t1):
        if float(t0) == float(t1):
            raise ValueError(f"`t1` must differ from `t0`, but both are {float(t0)}.")
        forwards = float(t1) > float(t0)
    step = None if dt is None else check_step(dt, forwards, dtype)

    if solver is None:
        solver = diffrax.Tsit5()
    if not isinstance(solver, diffrax.AbstractSolver):
        raise TypeError(f"`solver` must be a diffrax solver such as `diffrax.Tsit5()`, but {no_instance(solver)}.")
    stepper = solver.stepper(y0) if isinstance(solver, AbstractSteppingSolver) else from_diffrax(solver)
    control, tolerances = _read_controller(controller, rtol, atol, dt, y0, dtype)
    norm = _read_norm(norm, controller)
    ts = _read_saveat(saveat, t0, t1)
    if ts is _DIFFRAX or control is _DIFFRAX or stepper is None:
        stepper, control = None, None
        if ts is _DIFFRAX:
            ts = None
    traced = not all(map(concrete, (t0, t1, *jax.tree.leaves(ts))))
    if ts is not None:
        ts = check_saved_times(ts, t0, t1, dtype)
    if stepper is not None and control is not None and not stepper.has_error:
        given = [name for name, x in (("rtol", rtol), ("atol", atol), ("controller", controller)) if x is not None]
        raise ValueError(no_error(solver, stepper, given, dt))
    limit = DEFAULT_MAX_STEPS if max_steps is None else check_max_steps(max_steps)
    steps, count, tail, equal = None, None, False, False
    if control is None and stepper is not None and forwards is not None and concrete(dt):
        assert dt is not None  # fixed steps have their size
        span = abs(float(t1) - float(t0))
        needed, tail = _count_steps(span, abs(float(dt)), dtype)
        if max_steps is not None and needed + tail > limit:
            raise ValueError(f"`dt`={float(dt)} takes {needed + tail} steps, more than `max_steps`={limit}.")
        if needed + tail > _MOST_STEPS:
            raise ValueError(
                f"`dt`={float(dt)} takes {float(needed):.3g} steps, more than can be counted, {_MOST_STEPS}: take "
                "a longer one, or a method of higher order."
            )
        limit = max(limit, needed + 1)
        if not tail:
            signed = span if forwards else -span
            step = jnp.asarray(signed / needed, dtype)  # equal steps that end exactly at the end time
        count = needed if needed > 0 else None
        steps = count if ts is None else None
        equal = steps is not None or (not tail and _between_steps(ts, t0, span / needed, stepper))
    times = Times(start, end, ts, step)
    given = dict(t0=t0, t1=t1, dt=dt, rtol=rtol, atol=atol)
    if isinstance(controller, diffrax.PIDController):
        given |= dict(rtol=controller.rtol, atol=controller.atol)
    unchecked = tuple(name for name, x in given.items() if not all(map(concrete, jax.tree.leaves(x))))
    if norm is not None and stepper is None:
        raise ValueError("`norm` is for solves that run in sciml's own loops, and diffrax runs this one.")
    plan = Plan(stepper, control, steps, count, tail, equal, forwards, traced, unchecked, limit, norm)
    return plan, times, tolerances


def no_error(solver: Any, stepper: AbstractStepper, given: list[str], dt: Any) -> str:
    """Returns what to do where a method estimates no error and would have to choose its steps.

    Args:
        solver: The solver.
        stepper: Its method.
        given: The names of the arguments that ask for steps chosen by the error.
        dt: The size of the steps, or None.
    """
    other = "diffrax.Tsit5()"
    if isinstance(solver, AbstractAdditiveSolver):
        other = "sciml.solvers.ARK324()"
    elif isinstance(solver, AbstractExponentialSolver):
        other = "sciml.solvers.ETDRK4()"
    leave = f"leave out {' and '.join(f'`{name}`' for name in given)}" if given else ""
    give = "" if dt is not None else "give `dt`"
    said = (
        f"`solver={type(solver).__name__}()` estimates no error, so its steps are fixed: "
        f"{' and '.join(x for x in (leave, give) if x)}, or take a method that chooses them, such as `{other}`."
    )
    if dt is None and stepper.stability is not None:
        said += " Without these an explicit method takes a stable step where the model has `spectrum(t, y, args)`."
    return said


def default_solver(model: Any, controller: Any, dt: Any, rtol: Any, atol: Any) -> diffrax.AbstractSolver:
    """Returns the method for a model by its type, and by whether its steps are fixed."""
    fixed = fixed_steps(controller, dt, rtol, atol)
    if isinstance(model, AbstractSemilinear):
        return ETDRK4()
    if isinstance(model, AbstractSplit):
        return ARK324()
    if isinstance(model, AbstractSecondOrder) and fixed:
        return VelocityVerlet()
    return diffrax.Tsit5()


def fixed_steps(controller: Any, dt: Any, rtol: Any, atol: Any) -> bool:
    """Returns whether the arguments of `solve` ask for fixed steps."""
    return isinstance(controller, diffrax.ConstantStepSize) or (controller is None and _fixed(dt, rtol, atol))


def default_tolerances(dtype: Any) -> tuple[float, float]:
    """Returns relative and absolute tolerance for times of a dtype."""
    eps = float(jnp.finfo(dtype).eps)
    if eps > 1e-4:
        return max(1e-2, 4 * eps), 1e-3
    return (1e-4, 1e-6) if eps > 1e-10 else (1e-6, 1e-9)


def _count_steps(span: float, dt: float, dtype: Any) -> tuple[int, bool]:
    """Returns the number of whole steps and whether a shorter one follows; one no longer than rounding is none."""
    ratio = span / dt
    nearest = round(ratio)
    if nearest > 0 and abs(ratio - nearest) <= 4 * float(jnp.finfo(dtype).eps) * ratio:
        return nearest, False
    return math.floor(ratio), True


def _between_steps(ts: Any, t0: Any, dt: float, stepper: AbstractStepper) -> bool:
    """Returns whether no step is cut short at a saved time."""
    if not stepper.lands:
        return True
    if not concrete(ts):
        return False
    ratios = np.abs(np.asarray(ts, np.float64) - float(t0)) / dt
    eps = float(jnp.finfo(np.asarray(ts).dtype).eps)
    return bool(np.all(np.abs(ratios - np.round(ratios)) <= 4 * eps * np.maximum(ratios, 1)))


_DIFFRAX = object()  # says that diffrax must run the solve


def _read_controller(controller: Any, rtol: Any, atol: Any, dt: Any, y0: PyTree, dtype: Any) -> tuple[Any, Any]:
    if controller is not None and not isinstance(controller, diffrax.AbstractStepSizeController):
        raise TypeError(f"`controller` must be a diffrax step size controller, but is {controller!r}.")
    if controller is not None and (rtol is not None or atol is not None):
        raise ValueError("Give tolerances either as `rtol` and `atol` or in `controller`, not both.")
    if fixed_steps(controller, dt, rtol, atol):
        if dt is None:
            raise ValueError(
                "Fixed steps need their size: give `dt`. An explicit method takes a stable one by itself where the "
                "model has a method `spectrum(t, y, args)`."
            )
        return None, None
    if controller is None:
        rtol, atol = (d if x is None else x for x, d in zip((rtol, atol), default_tolerances(dtype)))
        control = Control()
    elif isinstance(controller, diffrax.PIDController):
        rtol, atol, control = controller.rtol, controller.atol, _from_pid(controller)
    else:
        return _DIFFRAX, None
    tolerances = Tolerances(
        check_tolerance(rtol, "rtol", y0, dtype),
        check_tolerance(atol, "atol", y0, dtype),
    )
    return control, tolerances


def _fixed(dt: Any, rtol: Any, atol: Any) -> bool:
    return dt is not None and rtol is None and atol is None


def _read_norm(norm: Any, controller: Any) -> Norm | None:
    if isinstance(controller, diffrax.PIDController) and controller.norm is not optx.rms_norm:
        if norm is not None:
            raise ValueError("Give the norm either as `norm` or in `controller`, not both.")
        norm = controller.norm
    if norm is None:
        return None
    if not callable(norm):
        raise TypeError(f"`norm` must be a function of a PyTree like `y0`, but is {norm!r}.")
    try:
        hash(norm)
    except TypeError:
        raise TypeError(f"`norm` must be hashable, a plain function or `Domain.rms`, but is {norm!r}.") from None
    return cast(Norm, norm)


def _from_pid(controller: diffrax.PIDController) -> Any:
    numbers: dict[str, Any] = {
        name: getattr(controller, name)
        for name in (
            "pcoeff",
            "icoeff",
            "dcoeff",
            "safety",
            "factormin",
            "factormax",
            "dtmin",
            "dtmax",
            "error_order",
        )
    }
    if not all(map(concrete, numbers.values())):
        return _DIFFRAX
    if controller.dtmin is not None and controller.force_dtmin:
        return _DIFFRAX  # diffrax goes on with the smallest step, sciml reports it
    numbers = {name: None if x is None else float(x) for name, x in numbers.items()}
    return Control(**numbers)


def _read_saveat(saveat: Any, t0: Any, t1: Any) -> Any:
    """Returns saved times, None for the end alone, or that diffrax must run the solve."""
    if not isinstance(saveat, diffrax.SaveAt):
        return saveat
    if saveat.dense or saveat.solver_state or saveat.controller_state or saveat.made_jump:
        raise ValueError(
            "`saveat=diffrax.SaveAt(...)` may ask for times (`t0`, `t1`, `ts`, `steps`, `fn`), but not for `dense`, "
            "`solver_state`, `controller_state` or `made_jump`. For dense output give the times as `saveat`."
        )
    sub = saveat.subs
    if not isinstance(sub, diffrax.SubSaveAt):
        raise ValueError("`saveat=diffrax.SaveAt(subs=...)` must hold one `diffrax.SubSaveAt`, not a PyTree of them.")
    plain = isinstance(sub, diffrax.SubSaveAt) and not sub.steps and sub.fn is diffrax.SubSaveAt(t1=True).fn
    if not plain or saveat.dense or saveat.solver_state or saveat.controller_state or saveat.made_jump:
        return _DIFFRAX
    if sub.ts is None and not sub.t0:
        return None
    parts = ([t0] if sub.t0 else []) + ([] if sub.ts is None else list(sub.ts)) + ([t1] if sub.t1 else [])
    return parts
