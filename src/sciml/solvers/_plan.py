"""The decisions of `solve` before tracing: the loop, the method and the saved times."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_max_steps, check_saved_times, concrete, known_times, time_dtype
from .._interfaces._conservation_law import AbstractConservationLaw
from .._interfaces._model import AbstractPartitioned, AbstractSecondOrder, AbstractSemilinear, AbstractSplit
from ._read_diffrax import StepControl, read_norm, read_saveat, read_step_control, stepper_of
from ._request import Interval, Request
from ._stiff_method import promised_method, promises_stiffness
from .adjoints._abstract import REPEATING, AbstractAdjoint, check_supports
from .control._pid import Control, Norm, Tolerances
from .events._event import GivenEvents, check_order
from .events._with_events import WithEvents
from .integrate._interpolation import interpolation_of
from .integrate._saved_rows import SavedRows
from .methods._stepper import AbstractStepper
from .methods.around._admissible import Admissible, Within, read_admissible
from .methods.around._courant import FollowingWaves
from .methods.around._projection import Projected, check_invariants
from .methods.explicit._rkc import RKC2
from .methods.explicit._rock import ROCK
from .methods.explicit._ssp import SSPRK33
from .methods.mechanical._leapfrog import Leapfrog
from .methods.mechanical._verlet import VelocityVerlet
from .methods.split._etdrk import ETDRK, AbstractExponentialSolver
from .methods.split._imex import ARK, AbstractAdditiveSolver
from .methods.stochastic._abstract import AbstractStochasticStepper

DEFAULT_MAX_STEPS = 2**14

COURANT = 0.45
"""The Courant number of conservation laws: up to 1/2 positive quantities stay positive."""

_MOST_STEPS = 2**31 - 2  # steps are counted in 32 bits


class Times(NamedTuple):
    """The times of a solve as arrays of the dtype of time.

    Attributes:
        t0: The start.
        t1: The end.
        saves: The saved times, or None for the end only.
        dt: The size of the first or the fixed step, with the sign of t1 - t0, or None.
        span: t1 - t0. If both are known, it is computed from the given numbers: in float32 a difference of times far
            from zero has few digits.
        elapsed: The saved times less t0, likewise, or None.
        longest: The longest fixed step that is stable, where that is known only at run time.
        rows: The rows that each fixed step saves if they are known when traced; otherwise None.
    """

    t0: Any
    t1: Any
    saves: Any
    dt: Any
    span: Any
    elapsed: Any
    longest: Any = None
    rows: SavedRows | None = None

    @classmethod
    def of(cls, request: Request, interval: Interval, saves: Any, saved: Any, step: Any) -> "Times":
        """Returns the times of a request.

        Args:
            request: The arguments of `solve`.
            interval: Its start and end.
            saves: The given saved times, or None.
            saved: The same as an array.
            step: The step.
        """
        t0, t1, dtype = interval.t0, interval.t1, interval.t0.dtype
        both = concrete(request.t0) and concrete(request.t1)
        span = jnp.asarray(float(request.t1) - float(request.t0), dtype) if both else t1 - t0
        elapsed = None
        if saves is not None:
            exact = concrete(request.t0) and all(map(concrete, jax.tree.leaves(saves)))
            elapsed = known_times(saves) - float(request.t0) if exact else saved - t0
            elapsed = jnp.asarray(elapsed, dtype)
        return cls(t0, t1, saved, step, span, elapsed)


class Plan(eqx.Module):
    """How a solve runs; static, so that JAX compiles once for each plan.

    Attributes:
        stepper: The method, or None where diffrax runs the solve.
        control: The controller, or None for fixed steps.
        steps: The number of fixed steps to the end state, or None where a loop finds the end.
        count: The number of fixed steps where it is known when traced, with saved times too.
        tail: Whether a shorter step follows these.
        equal: Whether all steps, or all but that, are known to have the length `dt`.
        forwards: Whether t1 > t0; None where that is known only at run time, or both are the same.
        differentiable_times: Whether a time is traced and may be differentiated.
        traced: The names of the times, the step and the tolerances whose values are known only at run time.
        coarse_times: Whether the dtype of time holds these times to less than a thousandth of the interval.
        max_steps: The limit on attempted steps.
        norm: How large a scaled error is, or None for the root mean square.
        admissible: The admissible states, or None for all.
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
    coarse_times: bool = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    norm: Norm | None = eqx.field(static=True)
    admissible: Admissible | None = eqx.field(static=True)


def make_plan(y0: PyTree, request: Request, interval: Interval) -> tuple[Plan, Times, Tolerances | None]:
    """Checks the arguments of `solve` and decides how to run it.

    Args:
        y0: The initial state.
        request: The arguments of `solve`, with a solver.
        interval: The times and the step.

    Returns:
        The plan, the times and the tolerances, which are None for fixed steps.

    Raises:
        ValueError: If an argument is out of range or does not fit the others.
        TypeError: If one has the wrong type.
    """
    dtype = time_dtype(y0)
    steps = read_step_control(request, y0, dtype)
    admissible = read_admissible(request.positive, request.domain, y0)
    invariants = None if request.project is None else check_invariants(request.project, y0)
    within = partial(_within, invariants, admissible, steps)
    stepper = stepper_of(request.solver if request.stepper is None else request.stepper, y0, within)
    norm = read_norm(request.norm, request.stepsize_controller)
    measures = steps.control is not None and (request.cfl is None or bool(request.names_error_control))
    saves = read_saveat(request.saveat, request.t0, request.t1)
    if saves.by_diffrax or steps.by_diffrax or stepper is None:
        stepper, steps = None, steps._replace(control=None)
    saved = saves.ts if isinstance(saves.ts, list | tuple) else (saves.ts,)
    traced = not all(map(concrete, (request.t0, request.t1, *saved)))
    ts = None if saves.ts is None else check_saved_times(saves.ts, request.t0, request.t1, dtype)
    if stepper is not None and measures and not stepper.has_error:
        raise ValueError(no_error(request, stepper))
    if request.cfl is not None:
        stepper = following_waves(stepper, request)
    if (admissible is not None or request.project is not None) and stepper is None:
        raise ValueError(
            "`positive`, `domain` and `project` require a solve in sciml's own loops, but diffrax runs this one."
        )
    if norm is not None and stepper is None:
        raise ValueError("`norm` requires a solve in sciml's own loops, but diffrax runs this one.")
    counted = _count(request, interval, stepper, steps, ts, dtype)
    if stepper is not None and stepper.traits.cuts_fixed_steps and steps.control is None:
        # there are more than are counted
        limit = counted.limit if request.max_steps is not None else 2 * counted.limit
        counted = _Counted(None, False, False, counted.step, limit)
    plan = Plan(
        stepper=stepper,
        control=steps.control,
        steps=counted.number if ts is None else None,
        count=counted.number,
        tail=counted.tail,
        equal=counted.equal,
        forwards=interval.forwards,
        differentiable_times=traced,
        traced=_traced_names(request),
        coarse_times=_coarse(request, dtype),
        max_steps=counted.limit,
        norm=norm,
        admissible=admissible,
    )
    times = Times.of(request, interval, saves.ts, ts, counted.step)
    return (
        plan,
        times._replace(rows=_rows(request, stepper, counted, None if traced else saves.ts, dtype)),
        steps.tolerances,
    )


def plan_events(plan: Plan, events: GivenEvents, adjoint: AbstractAdjoint) -> Plan:
    """Returns the plan of a solve whose steps look for events, so that nothing is known of their number.

    Raises:
        ValueError: If method or adjoint cannot, or given times are out of order.
    """
    others = f"{REPEATING}, or in `sciml.solve` a continuous adjoint such as `Gauss()`"
    check_supports(adjoint, "repeats_steps", "`events`", others)
    check_order(events.each, plan.forwards)
    stepper = plan.stepper
    if stepper is None:
        raise ValueError(
            "`events` require a solve in sciml's own loops, but diffrax runs this one because of its `solver`, "
            "`stepsize_controller` or `saveat`."
        )
    traits = stepper.traits
    if not (traits.dense or traits.knows_within) and (traits.transforms_state or not traits.field_is_rate):
        raise ValueError(
            f"`events` require dense output, but {type(stepper).__name__} does not interpolate. Use a method such as "
            "`diffrax.Tsit5()` or `sciml.solvers.Rodas5P()`."
        )
    fewer: dict[str, Any] = dict(steps=None, count=None, tail=False, equal=False)
    for_events = stepper.hooks.for_events
    stepper = stepper if for_events is None else for_events()
    return dataclasses.replace(plan, stepper=WithEvents(stepper, events.layout), **fewer)


def _within(
    invariants: Callable | None, admissible: Admissible | None, steps: StepControl, stepper: AbstractStepper
) -> AbstractStepper:
    """Returns a method with its tolerances, whose steps keep invariants and end at admissible states.

    Raises:
        ValueError: If the method works in other variables than the state's, or a mass matrix does not go with both.
    """
    if stepper.hooks.with_tolerances is not None:
        stepper = stepper.hooks.with_tolerances(steps.numbers)
    if steps.control is None and stepper.hooks.for_fixed_steps is not None:
        stepper = stepper.hooks.for_fixed_steps()
    if invariants is None and admissible is None:
        return stepper
    if stepper.traits.transforms_state:
        raise ValueError(
            "`positive`, `domain` and `project` require a method that steps the state itself, but "
            f"{type(stepper).__name__} steps a transform of it. Use a method such as `diffrax.Tsit5()` or "
            "`sciml.solvers.Rodas5P()`."
        )
    mass = getattr(stepper, "mass", None)
    clips = invariants is not None and admissible is not None and any(admissible.positive)
    if clips and mass is not None and mass.null_spaces[0].size:
        raise ValueError(
            "`positive` and `project` together do not support a mass matrix with algebraic equations: the projection "
            "would hold the sum that an element has after it was set to zero, and the equations another one. Omit "
            "`project`: the algebraic equations already hold what they determine."
        )
    stepper = stepper if invariants is None else Projected(stepper, invariants)
    return stepper if admissible is None else Within(stepper, admissible, steps.control is not None)


class _Counted(NamedTuple):
    """How many fixed steps there are, where that is known.

    Attributes:
        number: The number of whole steps; None where it is not known or zero.
        tail: Whether a shorter one follows.
        equal: Whether all, or all but that, have the same length.
        step: Their size.
        limit: The limit on attempted steps.
    """

    number: int | None
    tail: bool
    equal: bool
    step: Array | None
    limit: int


def _count(
    request: Request, interval: Interval, stepper: AbstractStepper | None, steps: StepControl, ts: Any, dtype: Any
) -> _Counted:
    limit = DEFAULT_MAX_STEPS if request.max_steps is None else check_max_steps(request.max_steps)
    dt, step = request.dt, interval.step
    if steps.control is not None or stepper is None or interval.forwards is None or not concrete(dt):
        return _Counted(None, False, False, step, limit)
    assert dt is not None  # fixed steps have their size
    span = abs(float(request.t1) - float(request.t0))
    needed, tail = _count_steps(span, abs(float(dt)), dtype)
    if request.max_steps is not None and needed + tail > limit:
        raise ValueError(f"`dt`={float(dt)} requires {needed + tail} steps, more than `max_steps`={limit}.")
    if needed + tail > _MOST_STEPS:
        raise ValueError(
            f"`dt`={float(dt)} requires {float(needed):.3g} steps, more than the maximum {_MOST_STEPS}. Use a longer "
            "`dt`, or a method of higher order."
        )
    if not tail:
        signed = span if interval.forwards else -span
        step = jnp.asarray(signed / needed, dtype)  # equal steps that end exactly at the end time
    number = needed if needed > 0 else None
    to_the_end = number is not None and ts is None
    equal = to_the_end or (not tail and _between_steps(ts, request.t0, span / needed, stepper))
    return _Counted(number, tail, equal, step, max(limit, needed + 1))


def _rows(
    request: Request, stepper: AbstractStepper | None, counted: _Counted, saves: Any, dtype: Any
) -> SavedRows | None:
    """Returns what each step saves, where that is known when traced and the method interpolates by polynomials."""
    if saves is None or counted.number is None or stepper is None or stepper.traits.cuts_fixed_steps:
        return None
    polynomial = interpolation_of(stepper)
    if polynomial is None:
        return None
    assert request.dt is not None  # fixed steps have their size
    span = float(request.t1) - float(request.t0)
    step = math.copysign(float(request.dt), span) if counted.tail else span / counted.number
    elapsed = np.abs(known_times(saves) - float(request.t0))
    return SavedRows.of(elapsed, abs(span), step, counted.number + counted.tail, polynomial, dtype)


def _traced_names(request: Request) -> tuple[str, ...]:
    """Returns the names of the times, steps and tolerances whose values are known only at run time."""
    given = dict(t0=request.t0, t1=request.t1, dt=(request.dt, request.dt0), rtol=request.rtol, atol=request.atol)
    if isinstance(request.stepsize_controller, diffrax.PIDController):
        given |= dict(rtol=request.stepsize_controller.rtol, atol=request.stepsize_controller.atol)
    return tuple(name for name, x in given.items() if not all(map(concrete, jax.tree.leaves(x))))


def _coarse(request: Request, dtype: Any) -> bool:
    if not (concrete(request.t0) and concrete(request.t1)):
        return False
    t0, t1 = float(request.t0), float(request.t1)
    return t0 != t1 and float(jnp.finfo(dtype).eps) * max(abs(t0), abs(t1)) > 1e-3 * abs(t1 - t0)


def no_error(request: Request, stepper: AbstractStepper) -> str:
    """Returns what to do where a method estimates no error and would have to choose its steps.

    Args:
        request: The arguments of `solve`.
        stepper: The method.
    """
    solver, dt, given = request.solver, request.dt, request.names_error_control
    other = "diffrax.Tsit5()"
    if isinstance(solver, AbstractAdditiveSolver):
        other = "sciml.solvers.ARK(order=3)"
    elif isinstance(solver, AbstractExponentialSolver):
        other = "sciml.solvers.ETDRK(order=4)"
    elif isinstance(stepper, AbstractStochasticStepper):
        other = "diffrax.SPaRK()"
    leave = f"leave out {' and '.join(f'`{name}`' for name in given)}" if given else ""
    give = "" if dt is not None else "give `dt`"
    said = (
        f"`solver={type(solver).__name__}()` does not estimate errors, so its steps are fixed: "
        f"{' and '.join(x for x in (leave, give) if x)}, or use a method with adaptive steps, such as `{other}`."
    )
    if dt is None and stepper.limits.stability() is not None:
        said += " Without tolerances, an explicit method uses a stable step if the model has `spectrum(t, y, args)`."
    return said


def following_waves(stepper: AbstractStepper | None, request: Request) -> FollowingWaves:
    """Returns a method whose steps follow the fastest wave.

    Raises:
        ValueError: If it is not a method whose steps are limited by waves.
    """
    if stepper is None or not stepper.limits.are_by_waves:
        raise ValueError(
            "`cfl` requires an explicit or implicit-explicit method, whose steps are limited by wave speeds, but got "
            f"`solver={type(request.solver).__name__}()`. Use a method such as `sciml.solvers.SSPRK33()`."
        )
    assert request.cfl is not None  # which is why it is asked for
    return FollowingWaves(stepper, float(request.cfl), bool(request.names_error_control))


def with_courant_number(model: Any, request: Request) -> Request:
    """Returns a request with the given Courant number, or the default of a conservation law, checked.

    Raises:
        ValueError: If it is not a positive number, or the model does not define its wave speeds.
    """
    cfl = request.cfl
    if cfl is None:
        follows = isinstance(model, AbstractConservationLaw) and not request.fixed_steps
        return request._replace(cfl=COURANT) if follows and not request.names_error_control else request
    if isinstance(model, AbstractSemilinear):
        raise ValueError(
            f"`cfl` requires a state on a grid, but {type(model).__name__} is stepped in its modes. Pass `dt` or "
            "tolerances instead."
        )
    if not hasattr(model, "crossing_rate"):
        raise ValueError(
            f"`cfl` requires a model with a method `crossing_rate(t, y, args)`, the number of cells that its fastest "
            f"wave crosses per unit of time, as in `AbstractConservationLaw`; {type(model).__name__} does not have it."
        )
    if not concrete(cfl) or not isinstance(cfl, int | float | np.number | jax.Array) or not 0 < float(cfl) < math.inf:
        raise ValueError(f"`cfl` must be a positive constant, such as 0.4, but is {cfl!r}.")
    return request._replace(cfl=float(cfl))


def is_stabilised(model: Any, request: Request) -> bool:
    """Returns whether a stabilised method is the default for a model with a stiff linear part.

    Where implicit systems need an iteration, a step by multigrid costs thousands of evaluations, and its program is
    four times as long. Fixed steps may be longer than any number of stages stabilises.
    """
    return isinstance(model, AbstractSplit) and model.iterates and not request.fixed_steps and request.cfl is None


def stabilised(y0: PyTree) -> ROCK | RKC2:
    """Returns the stabilised method for a state: of order four only if rounding stays below its error estimates."""
    return ROCK(order=4) if all(jnp.finfo(x.dtype).bits >= 64 for x in jax.tree.leaves(y0)) else RKC2()


def default_solver(model: Any, request: Request, y0: PyTree) -> Any:
    """Returns the given method, or one for the model by its type and by whether its steps are fixed."""
    if request.solver is not None:
        return request.solver
    if promises_stiffness(model):
        return promised_method(model, request.t0, y0, request.args, request.fixed_steps)
    if isinstance(model, AbstractConservationLaw):
        return SSPRK33()
    if isinstance(model, AbstractSemilinear):
        return ETDRK(order=4)
    if isinstance(model, AbstractSplit):
        return stabilised(y0) if is_stabilised(model, request) else ARK(order=3)
    if isinstance(model, AbstractSecondOrder) and request.fixed_steps:
        return VelocityVerlet()
    if isinstance(model, AbstractPartitioned) and request.fixed_steps:
        return Leapfrog()
    return diffrax.Tsit5()


def _count_steps(span: float, dt: float, dtype: Any) -> tuple[int, bool]:
    """Returns the number of whole steps and whether a shorter one follows; rounding does not count as a step."""
    ratio = span / dt
    nearest = round(ratio)
    if nearest > 0 and abs(ratio - nearest) <= 4 * float(jnp.finfo(dtype).eps) * ratio:
        return nearest, False
    return math.floor(ratio), True


def _between_steps(ts: Any, t0: Any, dt: float, stepper: AbstractStepper) -> bool:
    """Returns whether no step is cut short at a saved time."""
    if stepper.traits.dense:
        return True
    if not concrete(ts):
        return False
    ratios = np.abs(np.asarray(ts, np.float64) - float(t0)) / dt
    eps = float(jnp.finfo(np.asarray(ts).dtype).eps)
    return bool(np.all(np.abs(ratios - np.round(ratios)) <= 4 * eps * np.maximum(ratios, 1)))
