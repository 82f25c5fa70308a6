"""The function that `solve` compiles: the problem of one member, its integration from start to end, and the outcome."""

import dataclasses
import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .._checks import least_rtol
from .._choices import choices
from .._jax._marks import chosen
from .._jax._members_apart import members_apart
from .._jax._shards import on_mesh_of, on_mesh_of_arguments, sign_of
from .._jax._vma import on_explicit_axes, promote
from .._status import Status
from .._types import Args, RealScalarLike, Y
from .._warn import warn
from ..kernels._backends import XLA, KernelRequest
from ..kernels._lanes import Lanes, with_alike_merged
from ._plan import Plan, Times
from ._save_intervals import run as run_intervals
from ._solution import Solution, Stats
from ._with_delays import goes_backwards
from ._with_noise import refuses
from .adjoints._abstract import AbstractAdjoint, check_supports
from .control._collective import CollectiveSteps, check_independent, make_collective
from .control._pid import Tolerances, spread
from .events._event import ModelWithEvents, lacking, out_of_order
from .events._event_state import EventState, going_on, with_earlier
from .events._occurrences import Occurrences
from .integrate._abstract import AbstractLoop, FixedSteps
from .integrate._fixed_steps import FixedLoop
from .integrate._integrator import Integrator, Operands, known
from .integrate._refill import RefillLoop
from .integrate._result import Result, states_of, with_states
from .integrate._stencil_kernel import StencilSteps, make_stencil_steps
from .integrate._while_loop import AdaptiveLoop
from .methods._stepper import AbstractStepper
from .outputs._resume import Resume, behind, handed_out, resumed
from .terms._field import AbstractField, check_like, literals_as_arrays
from .terms._split_field import SplitField

# States of many small leaves as one array for each dtype, so that programs do not grow with their number.
#
# A method does the same to every leaf. Written out for a hundred scalars that is hundreds of operations a stage, and
# the time to compile them grows faster than their number. In one array they are one operation.


class Packing:
    """The leaves of a state that share one array; compared by value.

    Attributes:
        treedef: The structure of the state.
        kinds: The shape and dtype of each leaf that is packed, None for others.
    """

    def __init__(self, treedef: Any, kinds: tuple):
        self.treedef, self.kinds = treedef, kinds
        self.dtypes = tuple(dict.fromkeys(kind[1] for kind in kinds if kind is not None))

    def __hash__(self) -> int:
        return hash((self.treedef, self.kinds))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packing) and (self.treedef, self.kinds) == (other.treedef, other.kinds)

    def pack(self, y: Y) -> tuple[list[Array], list[Array]]:
        """Returns a state as one array for each dtype, and the leaves that are not small."""
        leaves = self.treedef.flatten_up_to(y)
        rows = []
        for dtype in self.dtypes:
            parts = [jnp.ravel(x) for x, kind in zip(leaves, self.kinds) if kind is not None and kind[1] == dtype]
            size = sum(x.size for x in parts)
            # lanes take smaller arrays apart, of which all parts are computed one by one
            more = max(choices().lanes.stay_unstacked_at_most + 1 - size, 0)
            rows.append(jnp.concatenate(promote([*parts, jnp.zeros(more, parts[0].dtype)]))[:size])
        return rows, [x for x, kind in zip(leaves, self.kinds) if kind is None]

    def unpack(self, packed: tuple[list[Array], list[Array]]) -> Y:
        """Returns the state; other axes of the arrays may come first."""
        rest, parts = iter(packed[1]), {}
        for dtype, row in zip(self.dtypes, packed[0]):
            sizes = [math.prod(kind[0]) for kind in self.kinds if kind is not None and kind[1] == dtype]
            # a split has one transpose, a slice for each leaf has a padded array for each
            parts[dtype] = iter(jax.lax.split(row, sizes, axis=row.ndim - 1))
        leaves = []
        for kind in self.kinds:
            if kind is None:
                leaves.append(next(rest))
                continue
            part = next(parts[kind[1]])
            leaves.append(part.reshape(part.shape[:-1] + kind[0]))
        return jax.tree.unflatten(self.treedef, leaves)

    def tolerances(self, tolerances: Tolerances | None, y0: Y) -> Tolerances | None:
        """Returns tolerances for the packed state."""
        if tolerances is None:
            return None

        def of(tolerance: PyTree) -> PyTree:
            leaves = jax.tree.leaves(tolerance)
            if len(leaves) == 1 and jnp.ndim(leaves[0]) == 0:
                return tolerance
            each = zip(spread(tolerance, self.treedef), jax.tree.leaves(y0), self.kinds)
            whole = [tol if kind is None else _in_the_form_of(x, tol) for tol, x, kind in each]
            return self.pack(jax.tree.unflatten(self.treedef, whole))

        return Tolerances(*map(of, tolerances))


def _in_the_form_of(x: Array, tolerance: Any) -> Array:
    """Returns a tolerance for each number of an array."""
    return jnp.broadcast_to(jnp.asarray(tolerance, jnp.finfo(x.dtype).dtype), x.shape)


class PackedModel(eqx.Module):
    """A model of the packed state and of packed arguments.

    Attributes:
        rest: The model and its `args`, without their arrays.
        packing: How the state is packed.
        parameters: How these arrays are packed.
    """

    rest: PyTree
    packing: Packing = eqx.field(static=True)
    parameters: Packing = eqx.field(static=True)

    def __call__(self, t: RealScalarLike, y: tuple, args: tuple) -> tuple:
        """Returns the rates, packed."""

        def packed(t: Any, y: tuple, args: tuple) -> tuple:
            y = self.packing.unpack(y)
            model, args = eqx.combine(self.parameters.unpack(args), self.rest)
            out = literals_as_arrays(model(t, y, args), y)
            check_like(y, jax.tree.map(jnp.asarray, out))
            return self.packing.pack(out)

        return with_alike_merged(packed, t, y, args)


def _packed(model: Callable, y0: Y, args: Args, packing: Packing) -> tuple[PackedModel, tuple]:
    """Returns the model of a packed state, and its packed arguments."""
    parameters, rest = eqx.partition((model, args), eqx.is_array)
    leaves, treedef = jax.tree.flatten(parameters)
    # an array gives its dtype to a result, a number of Python's does not: here that is the same
    dtypes = {x.dtype for x in jax.tree.leaves(y0)}
    small = [dtypes == {x.dtype} and x.size <= choices().lanes.unstacked_at_most for x in leaves]
    of_parameters = Packing(treedef, tuple((x.shape, x.dtype) if s else None for x, s in zip(leaves, small)))
    return PackedModel(rest, packing, of_parameters), of_parameters.pack(parameters)


def packing_of(y0: Y) -> Packing | None:
    """Returns how a state of many small leaves is packed; None for others."""
    leaves, treedef = jax.tree.flatten(y0)
    small = [x.size <= choices().lanes.unstacked_at_most for x in leaves]
    if sum(small) < choices().batching.packed_from or on_explicit_axes(y0):
        return None
    return Packing(treedef, tuple((x.shape, x.dtype) if s else None for x, s in zip(leaves, small)))


def out_of_range(y0: PyTree[Array], times: Times, tolerances: Tolerances | None, plan: Plan) -> Bool[Array, ""] | None:
    """Returns whether an argument is one that `solve` refuses where it is known; None where all were known.

    Args:
        y0: The initial state.
        times: The times and the step.
        tolerances: The tolerances, or None for fixed steps.
        plan: How the solve runs, with the names of the traced arguments.
    """
    wrong = []
    for name in ("t0", "t1"):
        if name in plan.traced:
            wrong.append(~jnp.isfinite(getattr(times, name)))
    if times.dt is not None and {"t0", "t1", "dt"} & set(plan.traced):
        forwards = times.dt * times.span >= 0  # a member may end where it starts
        wrong.append(~(forwards & jnp.isfinite(times.dt) & (times.dt != 0)))
    if {"t0", "t1"} & set(plan.traced):
        wrong.append((times.span != 0) & (_rounding(times) > _LOST * jnp.abs(times.span)))
    if times.longest is not None:
        assert times.dt is not None
        wrong.append(jnp.abs(times.dt) > times.longest.astype(times.dt.dtype))
    if tolerances is not None and "rtol" in plan.traced:
        wrong.append(_any_below(tolerances.rtol, y0, [least_rtol(x.dtype) for x in jax.tree.leaves(y0)]))
    if tolerances is not None and "atol" in plan.traced:
        wrong.append(_any_below(tolerances.atol, y0, [0.0] * len(jax.tree.leaves(y0))))
    return functools.reduce(jnp.logical_or, wrong) if wrong else None  # which members share is not sharded as these are


_LOST = 0.05
"""How much of the length of the interval rounding of its ends may be."""


def _rounding(times: Times) -> Array:
    """The resolution of a time of this size."""
    return jnp.finfo(times.span.dtype).eps * jnp.maximum(jnp.abs(times.t0), jnp.abs(times.t1))


def misplaced(saves: Array, times: Times, span: Array) -> Bool[Array, " times"]:
    """Returns the saved times that are outside the interval or come after a later one, which are never reached.

    Args:
        saves: The saved times from the start, in the direction of time.
        times: The times.
        span: The length of the interval.
    """
    slack = 4 * _rounding(times)
    latest = jax.lax.cummax(jnp.where(jnp.isnan(saves), -jnp.inf, saves))
    return ~((saves >= -slack) & (saves <= span + slack) & (saves >= latest))


def _any_below(tolerance: PyTree[Array], y0: PyTree[Array], least: list[float]) -> Bool[Array, ""]:
    """Whether a tolerance, one for all leaves of the state or one for each, is too small or not finite."""
    leaves = jax.tree.leaves(tolerance)
    bounds = least if len(leaves) == len(least) else [max(least)]
    return jnp.any(jnp.stack([jnp.any(~((x >= bound) & jnp.isfinite(x))) for x, bound in zip(leaves, bounds)]))


_COARSE = (
    "The model depends on time, and the resolution of {dtype} at `t0` and `t1` is coarser than a thousandth of the "
    "interval between them. Shift time to begin near zero, or enable float64 with "
    '`jax.config.update("jax_enable_x64", True)`.'
)


class MemberProblem(NamedTuple):
    """The start of an integration of one member.

    Attributes:
        field: The closed model.
        stepper: The method.
        operands: The inputs of the integration, without saved times.
    """

    field: AbstractField
    stepper: AbstractStepper
    operands: Operands

    @property
    def signed_step(self) -> Array | None:
        """The size of the fixed or the first step, with the direction of time."""
        return None if self.operands.dt is None else self.operands.direction * self.operands.dt

    @property
    def transforms(self) -> bool:
        """Whether programs of a model take states to the loop's variables and back."""
        return self.stepper.traits.transforms_state and isinstance(self.field, SplitField)

    def finish(self, start: "Start", y: Y) -> Y:
        """Returns a state of the loops in the model's variables."""
        if not self.transforms:
            return self.stepper.coordinates.finish(start.field, y)
        return members_apart(lambda y, own: self.stepper.coordinates.finish(self.field.bind(own), y))(y, start.operands)

    def start(self, y0: Y) -> "Start":
        """Returns the state that the loops start from."""
        # promoted to the axes that anything varies over, and before the loops, so that JAX differentiates it
        t0, y0, operands = promote((self.operands.t0, y0, self.operands.field))
        field = self.field.bind(operands)
        # JAX batches no program, as the condition of an event, where members are sharded by their type
        apart = self.stepper.traits.transforms_state and on_explicit_axes((t0, y0, operands))
        if self.transforms or apart:
            y0, found = members_apart(lambda t, y, own: self.stepper.coordinates.prepare(self.field.bind(own), t, y))(
                t0, y0, operands
            )
        else:
            y0, found = self.stepper.coordinates.prepare(field, t0, y0)
        if found is None:
            return Start(y0, None, field, operands)
        return Start(known(y0, found), jnp.asarray(found), field, operands)


class Start(NamedTuple):
    """The state that the loops start from.

    Attributes:
        y0: The state, in the loop's variables.
        found: Whether a state consistent with the equations was found; None where every one is.
        field: The model with its operands, as the method evaluates it outside of the loops.
        operands: These operands.
    """

    y0: Y
    found: Array | None
    field: Any
    operands: list


def open_problem(
    model: Callable, y0: Y, args: Args, times: Times, tolerances: Tolerances | None, plan: Plan, equal: bool
) -> MemberProblem:
    """Returns the problem of one member.

    Args:
        model: The model.
        y0: The initial state.
        args: The third argument of the model.
        times: The times and the step.
        tolerances: The tolerances, or None for fixed steps.
        plan: How the solve runs.
        equal: Whether all steps but a shorter last one have the length of the first.
    """
    assert plan.stepper is not None  # else diffrax runs the solve
    if plan.forwards is None:
        direction = sign_of(times.t1 >= times.t0, times.t0.dtype)
    else:
        direction = jnp.full_like(times.t0, 1 if plan.forwards else -1)
    dt = jax.tree.map(jnp.abs, times.dt)
    field, operands = plan.stepper.coordinates.close(model, times.t0, y0, args, direction * dt if equal else None)
    if plan.coarse_times and field.reads_time:
        warn(_COARSE.format(dtype=times.t0.dtype))
    span = direction * times.span
    max_steps = jnp.asarray(plan.max_steps, jnp.int32)
    return MemberProblem(
        field, plan.stepper, Operands(operands, times.t0, span, None, direction, tolerances, dt, max_steps)
    )


class Settings(NamedTuple):
    """The static settings of a solve, without its arrays.

    Attributes:
        plan: The result of `make_plan`.
        adjoint: How derivatives are computed.
        batching: How members share the loop.
        constant: Whether model and args are known, so that no derivative with respect to them can be requested.
        impl: The backend for many members.
        stencil_backend: The backend for a model that is a stencil; None if no kernel is requested.
        intervals: After how many steps of a kernel states are saved, or None.
        solver: The name of the method.
        hands_out: Whether the solution contains the resumable state.
    """

    plan: Plan
    adjoint: AbstractAdjoint
    batching: str
    constant: bool
    impl: KernelRequest
    stencil_backend: KernelRequest | None
    intervals: tuple[int, ...] | None
    solver: str
    hands_out: bool = False


@on_mesh_of_arguments
def integrate(
    model: Callable,
    y0: Y,
    args: Args,
    times: Times,
    tolerances: Tolerances | None,
    settings: Settings,
    resume: Resume | None = None,
) -> Solution:
    """Solves for one member; see `solve`. Under `jax.vmap` the adjoint's rule finds all members and runs them as one.

    Ensembles begin in `settings.adjoint.run`: it binds a function whose batching rule puts the members into lanes.
    """
    plan = settings.plan
    packing = _packing(model, y0, settings, resume)
    if packing is not None:
        few, tolerances = packing.pack(y0), packing.tolerances(tolerances, y0)
        packed, parameters = _packed(model, y0, args, packing)
        with chosen("batching.packed_from"):
            sol = integrate(packed, few, parameters, times, tolerances, settings)
        return dataclasses.replace(sol, ys=packing.unpack(sol.ys))
    problem = open_problem(model, y0, args, times, tolerances, plan, plan.equal)
    traced = plan.traced or times.longest is not None  # else every argument has been checked
    refused = out_of_range(y0, times, tolerances, plan) if traced else None
    if plan.admissible is not None:
        outside = plan.admissible.below(y0) | ~plan.admissible.holds(y0)
        refused = outside if refused is None else refused | outside
    operands, missed = _with_saves(problem.operands, times, plan)
    wrong = _wrong_values(model, times, y0)
    if resume is not None:
        late = behind(resume, times, operands.span)
        wrong = late if wrong is None else wrong | late
    if wrong is not None:
        refused = wrong if refused is None else refused | wrong
    if refused is not None:  # a member whose arguments are out of range takes no step
        operands = operands._replace(max_steps=plan.max_steps * (~refused).astype(jnp.int32))
    start = problem.start(y0)
    collective = _devices_alike(settings, problem, times, start)
    if collective.axes and isinstance(model, ModelWithEvents):  # conditions of parts would differ, and devices wait
        raise ValueError(
            "`events` require the whole state, but here it is split over devices. Solve on one device without "
            "`norm=Domain.rms`, or end the solve at given times."
        )
    # cotangents of tables cost as much as what the tables save
    field = problem.field
    constant = settings.constant and isinstance(field, SplitField) and not field.captures
    integrator = Integrator(
        field, problem.stepper, plan.control, operands.saves is not None, collective, constant, settings.hands_out
    )
    if _by_rows(settings, collective, resume):
        operands = operands._replace(rows=times.rows)
    went_on_from = None
    if resume is not None:
        begin = dataclasses.replace(integrator, hands_out=True).start
        like = jax.eval_shape(lambda *given: begin(*promote(given)), start.y0, operands).kept
        kept = resumed(resume, like, times, settings.solver)
        assert kept.checkpoint is not None  # see `Resume`
        went_on_from = kept.checkpoint.y
        start = start._replace(y0=going_on(went_on_from))
        operands = operands._replace(resume=jax.lax.stop_gradient(kept))
        if operands.saves is not None:
            before = operands.saves < kept.checkpoint.elapsed
            missed = before if missed is None else missed | before
    stencil_steps = None
    if settings.stencil_backend is not None:
        h = problem.signed_step
        assert h is not None  # kernels take fixed steps
        stencil_steps = make_stencil_steps(problem.stepper, model, start.y0, args, h, settings.stencil_backend)
    result = _run(integrator, settings, stencil_steps, start.y0, operands)
    if went_on_from is not None:
        ys, y = states_of(result)
        result = with_states(result, (with_earlier(ys, went_on_from), with_earlier(y, went_on_from)))
    return _solution(result, collective, settings, problem, start, times, missed, refused)


def _packing(model: Callable, y0: Y, settings: Settings, resume: Resume | None) -> Packing | None:
    """Returns how the loops hold a state of many small leaves in few arrays; None where it stays as it is."""
    plan = settings.plan
    assert plan.stepper is not None  # else diffrax runs the solve
    sees_leaves = plan.norm is not None or plan.admissible is not None or settings.hands_out or resume is not None
    kernels = settings.impl != XLA or settings.stencil_backend is not None
    if sees_leaves or kernels or not plan.stepper.traits.takes_packed or isinstance(model, ModelWithEvents):
        return None
    return packing_of(y0)


def _wrong_values(model: Callable, times: Times, y0: Y) -> Array | None:
    """Returns whether the times of events or noise are invalid; None if they are valid."""
    noisy = model.model if isinstance(model, ModelWithEvents) else model
    found = []
    if isinstance(model, ModelWithEvents):
        found = [out_of_order(model), lacking(model.events, model.direction, times.t0, y0)]
    found += [refuses(noisy, times.t0, times.t1), goes_backwards(noisy, times.t0, times.t1)]
    known = [x for x in found if x is not None]
    return jnp.any(jnp.stack(known)) if known else None


def _with_saves(operands: Operands, times: Times, plan: Plan) -> tuple[Operands, Array | None]:
    """Returns the operands with the saved times, and which of these are misplaced where they are traced."""
    if times.saves is None:
        return operands, None
    span, missed = operands.span, None
    saves = operands.direction * times.elapsed
    if plan.differentiable_times:  # traced, so not checked yet
        missed = misplaced(saves, times, span)
    # only rounding moves them, and derivatives with respect to them must not vanish when it does
    saves = saves + jax.lax.stop_gradient(jnp.clip(saves, 0, span) - saves)
    return operands._replace(saves=saves), missed


def _devices_alike(settings: Settings, problem: MemberProblem, times: Times, start: Start) -> CollectiveSteps:
    """Returns how devices that hold parts of one state take the same steps; checks that others send no messages."""
    plan = settings.plan
    collective = make_collective(plan.norm, start.y0)
    if collective.axes:
        split = "a state that is split over devices (`norm` combines them)"
        others = "`sciml.adjoints.Checkpointed()`, or `sciml.adjoints.Direct()` for forward mode"
        check_supports(settings.adjoint, "runs_on_split_state", split, others)
    elif plan.norm is None and plan.steps is None:
        check_independent(
            lambda t, y, operands: problem.field(t, y, operands), times.t0, start.y0, problem.operands.field
        )
    return collective


def _run(
    integrator: Integrator, settings: Settings, stencil_steps: StencilSteps | None, y0: Y, operands: Operands
) -> Result:
    """Runs the loop of the plan, so that it can be differentiated."""
    plan, intervals = settings.plan, settings.intervals
    if stencil_steps is not None and intervals is not None and plan.count is not None:
        integrator = dataclasses.replace(integrator, dense=False)
        whole = FixedLoop(integrator, Lanes(None), plan.count, plan.tail, stencil_steps=stencil_steps)
        return run_intervals(whole, settings.adjoint, y0, operands, intervals)
    loop: AbstractLoop
    if plan.steps is not None:
        loop = FixedLoop(
            integrator, Lanes(None), plan.steps, plan.tail, stencil_steps=stencil_steps, impl=settings.impl
        )
    elif plan.count is not None and operands.rows is not None:
        loop = FixedLoop(integrator, Lanes(None), plan.count, plan.tail)
    else:
        fixed = None if plan.count is None else FixedSteps(plan.count, plan.tail)
        times_differ = plan.differentiable_times
        loop = AdaptiveLoop(integrator, Lanes(None), plan.max_steps, times_differ, fixed=fixed, impl=settings.impl)
        # with saved times a queue returns only these, and not the outcome
        refills = settings.batching == "refill" and not (isinstance(y0, EventState) and operands.saves is not None)
        refills = refills and not settings.hands_out and operands.resume is None
        loop = RefillLoop(loop) if refills else loop
    result = settings.adjoint.run(loop, y0, operands, plan.differentiable_times)
    if not isinstance(result, Result):
        raise TypeError(
            f"`{type(settings.adjoint).__name__}.run` must return the result of a loop, such as of "
            f"`Direct().run(loop, y0, operands, differentiate_times)`, but returns {type(result).__name__}. To change "
            "`ys` use `result._replace(ys=...)`."
        )
    return result


def _by_rows(settings: Settings, collective: CollectiveSteps, resume: Resume | None) -> bool:
    """Returns whether fixed steps may write rows of saved states; what goes on or is gone on from counts its steps."""
    alone = not (settings.hands_out or resume is not None or collective.axes)
    return alone and settings.plan.count is not None and settings.impl == XLA and settings.batching != "refill"


def _solution(
    result: Result,
    collective: CollectiveSteps,
    settings: Settings,
    problem: MemberProblem,
    start: Start,
    times: Times,
    missed: Array | None,
    refused: Array | None,
) -> Solution:
    """Returns the member's solution: its states, NaN where they are not known, its status and its counts."""
    ys, ts, memory = result.ys, times.saves, None
    if isinstance(ys, EventState):
        ys, memory = ys.saved, ys.rest
    result = collective.replicated(result._replace(ys=None))
    status = result.status
    if result.stiff is not None:
        status = jnp.where(result.stiff > 0, int(Status.stiff), status).astype(status.dtype)
    if start.found is not None:
        status = jnp.where(start.found, status, int(Status.inconsistent_start)).astype(status.dtype)
    method = problem.stepper
    if settings.adjoint.changes_method:
        method = settings.adjoint.method(method)
    started = int(method.traits.fsal) + (2 if times.dt is None else 0)
    evaluations = _evaluations(method.evaluations, started, result.accepted + result.rejected)
    finish = partial(problem.finish, start)
    if problem.stepper.traits.transforms_state:
        ys = finish(ys) if ts is None else jax.vmap(finish)(ys)
    if settings.plan.admissible is not None:  # between steps the method interpolates
        ys = settings.plan.admissible.clipped(ys)
    if missed is not None:
        ys = jax.tree.map(lambda x: jnp.where(_over(missed, x), jnp.full_like(x, jnp.nan), x), ys)
        status = _or_invalid(status, jnp.any(missed))
    if refused is not None:
        ys = known(ys, ~refused)
        status = jnp.where(refused, int(Status.invalid_argument), status).astype(status.dtype)
    if ts is None:
        ys, ts = jax.tree.map(lambda x: x[None], ys), times.t1[None]
    ts = on_mesh_of(status, ts)
    elapsed, operands = result.elapsed, problem.operands
    reached = jnp.where(elapsed >= operands.span, times.t1, times.t0 + operands.direction * elapsed)
    stats = Stats(result.accepted, result.rejected, evaluations, result.executed)
    resume = handed_out(result.kept, times.t0, settings.solver)
    if memory is None:
        return Solution(ts, ys, status, reached, stats, settings.solver, dense=result.step_times, resume=resume)
    ended = status == int(Status.event)
    reached = jnp.where(ended, memory.detection.last, reached)
    if times.saves is None:
        ts = jnp.where(ended, memory.detection.last[None], ts)
    found = Occurrences.of(memory)
    return Solution(ts, ys, status, reached, stats, settings.solver, found, result.step_times, resume)


def _evaluations(each: int, started: int, steps: Any) -> Any:
    """The number of field evaluations after a number of steps, at most the largest number of the dtype."""
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
