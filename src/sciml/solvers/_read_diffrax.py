"""Reads diffrax's objects: their settings for sciml's own loops, or the need to run the solve in diffrax."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.core import Tracer
from jaxtyping import PyTree

from .._checks import check_function, check_tolerance, concrete, no_instance
from .._types import Y
from ._request import Request
from .control._pid import Control, Norm, Tolerances
from .methods._solver import AbstractSteppingSolver
from .methods._stepper import AbstractStepper
from .methods.around._courant import UNLIMITED, no_tolerances
from .methods.around._history import with_history
from .methods.explicit._runge_kutta import from_diffrax
from .methods.implicit._esdirk import from_diffrax as implicit_from_diffrax


def stepper_of(
    solver: Any, y0: Y, within: Callable[[AbstractStepper], AbstractStepper] = lambda stepper: stepper
) -> AbstractStepper | None:
    """Returns the one-step method of a solver for states like `y0`, or None where only diffrax has it.

    Args:
        solver: A solver.
        y0: A state.
        within: The part created from the method itself.

    Raises:
        TypeError: If it is not a solver.
    """
    if isinstance(solver, AbstractStepper):
        check_numbers(solver)
        if solver.traits.dense and type(solver).interpolate is AbstractStepper.interpolate:
            raise TypeError(
                f"`solver={type(solver).__name__}()` has `Traits(dense=True)`, so it needs a method `interpolate`."
            )
        return with_history(within(solver))
    if not isinstance(solver, diffrax.AbstractSolver):
        raise TypeError(
            f"`solver` must be a diffrax solver such as `diffrax.Tsit5()`, or an `AbstractStepper`, but "
            f"{no_instance(solver)}."
        )
    if isinstance(solver, AbstractSteppingSolver):
        return with_history(within(solver.stepper(y0)))
    stepper = from_diffrax(solver) or implicit_from_diffrax(solver)
    return None if stepper is None else within(stepper)


def check_numbers(solver: Any) -> None:
    """Checks that no field of a method of the caller is an array: methods are compared by value, as constants.

    A derivative with respect to such a field would be 0, and a batch of methods would be one method.

    Args:
        solver: A solver; those that are no `AbstractStepper` are left alone.

    Raises:
        TypeError: If a field is an array.
    """
    if not isinstance(solver, AbstractStepper):
        return
    for name, value in vars(solver).items():
        leaves = jax.tree.leaves(value)
        if any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves):
            kind = "traced" if any(isinstance(leaf, Tracer) for leaf in leaves) else "an array"
            raise TypeError(
                f"`solver={type(solver).__name__}(...)`: its field `{name}` is {kind}, but the "
                "fields of a method must be numbers or tuples: methods are constants of a compiled solve. A number "
                "that is differentiated or differs between members belongs to the model, to `args`, or to the state."
            )


class StepControl(NamedTuple):
    """How steps are chosen.

    Attributes:
        control: The controller; None for fixed steps.
        tolerances: The tolerances; None for fixed steps.
        by_diffrax: Whether only diffrax has this controller.
        numbers: The smallest relative and absolute tolerance as numbers; None where one is traced.
    """

    control: Control | None = None
    tolerances: Tolerances | None = None
    by_diffrax: bool = False
    numbers: tuple[float, float] | None = None


def read_step_control(request: Request, y0: PyTree, dtype: Any) -> StepControl:
    """Returns how steps are chosen.

    Raises:
        ValueError: If tolerances are out of range or given twice, or fixed steps have no size.
        TypeError: If the controller is not one of diffrax's.
    """
    controller, rtol, atol = request.stepsize_controller, request.rtol, request.atol
    if controller is not None and not isinstance(controller, diffrax.AbstractStepSizeController):
        raise TypeError(f"`stepsize_controller` must be a diffrax step size controller, but {no_instance(controller)}.")
    if controller is not None and (rtol is not None or atol is not None):
        raise ValueError("Pass tolerances either as `rtol` and `atol` or in `stepsize_controller`, not both.")
    if request.fixed_steps:
        if request.dt is None:
            raise ValueError(
                "Fixed steps require `dt`. Explicit methods choose a stable step themselves only if the model has a "
                "method `spectrum(t, y, args)`."
            )
        return StepControl()
    if request.cfl is not None and not request.names_error_control:
        return StepControl(UNLIMITED, no_tolerances(dtype))
    if controller is None:
        default = request.default_tolerances or default_tolerances(dtype)
        rtol, atol = (d if x is None else x for x, d in zip((rtol, atol), default))
        control = Control()
    elif isinstance(controller, diffrax.PIDController):
        rtol, atol, control = controller.rtol, controller.atol, _from_pid(controller)
    else:
        control = None
    if control is None:
        return StepControl(by_diffrax=True)
    tolerances = Tolerances(check_tolerance(rtol, "rtol", y0, dtype), check_tolerance(atol, "atol", y0, dtype))
    # as they were given: under `jax.jit` arrays that are made of them are traced
    return StepControl(control, tolerances, numbers=_numbers(rtol, atol))


def _numbers(*tolerances: PyTree) -> tuple[float, float] | None:
    leaves = [jax.tree.leaves(x) for x in tolerances]
    if not all(map(concrete, sum(leaves, []))):
        return None
    rtol, atol = (min(float(np.min(np.asarray(x))) for x in each) for each in leaves)
    return rtol, atol


def default_tolerances(dtype: Any) -> tuple[float, float]:
    """Returns relative and absolute tolerance for times of a dtype."""
    eps = float(jnp.finfo(dtype).eps)
    if eps > 1e-4:
        return max(1e-2, 4 * eps), 1e-3
    return (1e-4, 1e-6) if eps > 1e-10 else (1e-6, 1e-9)


def read_norm(norm: Any, controller: Any) -> Norm | None:
    """Returns the norm of scaled errors; None for the root mean square.

    Raises:
        ValueError: If it is given twice.
        TypeError: If it is not a hashable function.
    """
    if isinstance(controller, diffrax.PIDController) and controller.norm is not optx.rms_norm:
        if norm is not None:
            raise ValueError("Pass the norm either as `norm` or in `stepsize_controller`, not both.")
        norm = controller.norm
    if norm is None:
        return None
    return cast(Norm, check_function(norm, "norm", "a PyTree like `y0`"))


def _from_pid(controller: diffrax.PIDController) -> Control | None:
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
        return None
    if controller.dtmin is not None and controller.force_dtmin:
        return None  # diffrax continues with the smallest step, sciml reports it
    numbers = {name: None if x is None else float(x) for name, x in numbers.items()}
    return Control(**numbers)


class SavedTimes(NamedTuple):
    """The saved times.

    Attributes:
        ts: The saved times, or None for the end only.
        by_diffrax: Whether only diffrax saves so.
    """

    ts: Any
    by_diffrax: bool = False


def read_saveat(saveat: Any, t0: Any, t1: Any) -> SavedTimes:
    """Returns the saved times.

    `outputs` reads the other contents of a solution, besides states at given times.
    """
    if not isinstance(saveat, diffrax.SaveAt):
        return SavedTimes(saveat)
    sub = saveat.subs
    if sub.steps or sub.fn is not diffrax.SubSaveAt(t1=True).fn:
        return SavedTimes(None, by_diffrax=True)
    if sub.ts is None and not sub.t0:
        return SavedTimes(None)
    return SavedTimes(([t0] if sub.t0 else []) + ([] if sub.ts is None else list(sub.ts)) + ([t1] if sub.t1 else []))
