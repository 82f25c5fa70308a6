"""A segment of a solve: a number of steps, the states at the saved times among them, and the point to continue from.

The steps are the steps of `solve`: its integration, over lanes for many members, continued exactly where the previous
segment left it, with the step size, the controller's memory and the last step, within which the next saved time may
lie.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, PyTree

from ..._jax._loops import scan, while_loop
from ..._status import Status
from ..._types import RealScalarLike, Y
from ...kernels._backends import KernelRequest
from ...kernels._lanes import Lanes, Unbatched
from ...solvers._integrate import MemberProblem, open_problem
from ...solvers._plan import Plan, Times
from ...solvers.control._pid import Tolerances
from ...solvers.events._event_state import EventState, joined, saved_part
from ...solvers.events._occurrences import Occurrences
from ...solvers.integrate._batching import members_of
from ...solvers.integrate._integrator import Integrator, State
from ...solvers.integrate._lane_integrator import LaneIntegrator
from ...solvers.integrate._stencil_kernel import make_stencil_steps
from ...solvers.methods._capabilities import Traits
from ...solvers.methods._stepper import AbstractStepper, BoundField, Step
from ._abstract import AbstractSegment, Carry, Info, SegmentFrames, masked
from ._in_axes import Inputs
from ._stencil_blocks import StencilBlocks
from ._stops import Stops

# Any diffrax solver as a one-step method of sciml's integration, for runs in segments.


class DiffraxStepper(AbstractStepper):
    """Steps of a diffrax solver for ordinary differential equations.

    If its nonlinear solver fails, the error is infinite, so that the step is rejected, or the state is NaN if steps are
    fixed.

    Attributes:
        solver: The solver.
        order: Its order.
        power_of_error: The power of the step size that its error estimate goes with.
    """

    solver: diffrax.AbstractSolver = eqx.field(static=True)
    order: int = eqx.field(static=True)
    power_of_error: int = eqx.field(static=True)
    has_error: bool = eqx.field(static=True)
    evaluations: int = eqx.field(static=True, default=1)

    @property
    def traits(self) -> Traits:
        """It interpolates as the solver does."""
        return Traits(dense=True, error_order=self.power_of_error)

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the solver's initial state."""
        return self.solver.init(_term(field), t, t, y, None)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns the solver's dense information for a step in which nothing changes."""

        def dense(t, y):
            return self.step(lambda t, y: y, t, t, y, self.init(lambda t, y: y, t, y)).dense

        t = jnp.zeros((), max((x.real.dtype for x in jax.tree.leaves(y)), key=lambda d: jnp.finfo(d).bits))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(dense, t, y))
        return zeros | {name: y for name in ("y0", "y1") if name in zeros}

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        y1, error, dense, memory, result = self.solver.step(_term(field), t, t + h, y, None, memory, False)
        good = result == diffrax.RESULTS.successful
        y1 = _unless_failed(good, y1, jnp.nan)
        return Step(y1, _unless_failed(good, error, jnp.inf), dense, memory)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the solver's own interpolation."""
        del h
        theta = jnp.asarray(theta)
        known = dense | {name: y for name, y in (("y0", y0), ("y1", y1)) if name in dense}
        zero, one = jnp.zeros_like(theta), jnp.ones_like(theta)
        return self.solver.interpolation_cls(t0=zero, t1=one, **known).evaluate(theta)


def from_any(solver: diffrax.AbstractSolver, tolerances: Tolerances | None) -> DiffraxStepper:
    """Returns a diffrax solver as a one-step method.

    Args:
        solver: The solver.
        tolerances: Of the steps; a nonlinear solver without its own takes these.

    Raises:
        ValueError: If steps are fixed and the solver's nonlinear solver has no tolerances.
        TypeError: If the solver is not for ordinary differential equations.
    """
    name = type(solver).__name__
    term = _term(lambda t, y: y)
    if solver.term_structure is not diffrax.AbstractTerm:
        raise TypeError(f"`solver={name}()` requires its own split terms, which `simulate` does not support.")
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        solver = _with_tolerances(solver, tolerances)
    order = solver.order(term)
    error_order = getattr(solver, "error_order", lambda term: None)(term)
    adaptive = isinstance(solver, diffrax.AbstractAdaptiveSolver)
    return DiffraxStepper(solver, 1 if order is None else int(order), int(error_order or order or 1), adaptive)


def _with_tolerances(solver: Any, tolerances: Tolerances | None) -> Any:
    finder = solver.root_finder
    missing = [n for n in ("rtol", "atol", "norm") if type(getattr(finder, n)).__module__.startswith("diffrax")]
    if not missing:
        return solver
    if tolerances is None:
        raise ValueError(
            f"`solver={type(solver).__name__}()` with fixed steps requires tolerances for its nonlinear solver. Pass "
            "`rtol` and `atol` instead of `dt`, or `root_finder=diffrax.VeryChord(rtol=..., atol=..., norm=...)`."
        )
    values: dict[str, Any] = {
        n: min(float(np.min(x)) for x in jax.tree.leaves(getattr(tolerances, n))) for n in ("rtol", "atol")
    }
    values["norm"] = optx.rms_norm
    return eqx.tree_at(lambda s: [getattr(s.root_finder, n) for n in missing], solver, [values[n] for n in missing])


def _term(field: BoundField) -> diffrax.ODETerm:
    return diffrax.ODETerm(lambda t, y, args: field(t, y))


def _unless_failed(good: Any, tree: PyTree, other: float) -> PyTree:
    return jax.tree.map(lambda x: jnp.where(good, x, jnp.full_like(x, other)), tree)


class MemberState(NamedTuple):
    """The state from which a member resumes.

    Attributes:
        state: The integration's state.
        cause: The number of the condition that stopped it, or 0.
        inconsistent: Whether no consistent initial values were found.
    """

    state: State
    cause: Array
    inconsistent: Array


class SolveSegment(AbstractSegment):
    """The inputs that do not change from one segment to the next.

    Attributes:
        times: Start, end, and the saved times.
        elapsed: The saved times as elapsed times, and the end time for as many as a segment has slots.
        tolerances: Of the steps.
        plan: How the solve runs.
        output: The part of a state to save, or None.
        stops: The conditions that end a member.
        saves: The number of saved times.
        slots: How many saved times a segment reaches at most.
        segment_steps: How many steps a segment takes at most.
        block: How many steps a kernel takes at once.
        impl: The backend of that kernel; None if none is requested.
    """

    times: Times
    elapsed: Array
    tolerances: Tolerances | None
    plan: Plan
    output: Callable | None
    stops: Stops
    saves: int = eqx.field(static=True)
    slots: int = eqx.field(static=True)
    segment_steps: int = eqx.field(static=True)
    block: int = eqx.field(static=True, default=0)
    impl: KernelRequest | None = eqx.field(static=True, default=None)
    clock: ClassVar[str] = "t"
    unit: ClassVar[str] = "time"
    end: ClassVar[str] = "t1"

    @eqx.filter_jit
    def start(self, inputs: Inputs) -> Carry:
        """Returns the start of the first segment."""
        member = self._over(inputs, lambda model, y0, args: self._start(model, y0, args))
        return Carry(member, jnp.zeros((), jnp.int32))

    @eqx.filter_jit
    def advance(self, inputs: Inputs, carry: Carry) -> tuple[Carry, SegmentFrames, Info]:
        """Takes the steps of one segment."""
        slots = min(self.slots, self.elapsed.shape[0])
        targets = jax.lax.dynamic_slice(self.elapsed, (carry.reached,), (slots,))

        def run(model, y0, args, member):
            return self._advance(model, y0, args, member, targets, carry.reached)

        member, frames, count, info = self._over(inputs, run, carry.member)
        index = carry.reached + (count if inputs.members is None else count[0])
        return Carry(member, index), frames, Info(index, *info)

    def program(self, inputs: Inputs, carry: Carry) -> str:
        """Returns the text of the programs of `advance` and `start`."""
        start: Any = type(self).start
        return super().program(inputs, carry) + start.lower(self, inputs).as_text()

    def states(self, inputs: Inputs, carry: Carry) -> PyTree:
        """Returns the state of every member, which a method may hold in other variables between its steps."""
        y = saved_part(carry.member.state.checkpoint.y)
        if self.plan.stepper is None or not self.plan.stepper.traits.transforms_state:
            return y
        return self._finish(inputs, carry.member)

    @eqx.filter_jit
    def _finish(self, inputs: Inputs, member: MemberState) -> PyTree:
        def run(model, y0, args, member):
            problem, integrator = self._open(model, y0, args)
            y = saved_part(member.state.checkpoint.y)
            return integrator.stepper.coordinates.finish(integrator.bound(problem.operands), y)

        return self._over(inputs, run, member)

    def events(self, carry: Carry) -> Occurrences | None:
        """Returns the events that happened to every member, as NumPy arrays; None where none are sought."""
        y = carry.member.state.checkpoint.y
        if not isinstance(y, EventState):
            return None
        memory, members = jax.tree.map(jnp.asarray, y.rest), np.ndim(carry.member.cause) > 0
        found = (jax.vmap(Occurrences.of) if members else Occurrences.of)(memory)
        return jax.tree.map(np.asarray, found)

    def info(self, carry: Carry) -> Info:
        """Returns the values that the host reads, as NumPy arrays."""
        state = carry.member.state
        checkpoint = state.checkpoint
        inconsistent = np.asarray(carry.member.inconsistent)
        status = np.where(inconsistent, int(Status.inconsistent_start), np.asarray(checkpoint.status)).astype(np.int32)
        values = (carry.reached, status, checkpoint.elapsed, carry.member.cause, state.accepted, state.rejected)
        return Info(*map(np.asarray, values))

    def time_at(self, elapsed: np.ndarray) -> np.ndarray:
        """Returns the times of the model at which so much has passed."""
        t0, t1 = np.asarray(self.times.t0), np.asarray(self.times.t1)
        return np.where(elapsed >= self.host_span, t1, t0 + (-1 if self.plan.forwards is False else 1) * elapsed)

    @property
    def span(self) -> Array:
        """The time from start to end, positive."""
        return self._direction() * self.times.span

    def _direction(self) -> Array:
        return jnp.full_like(self.times.t0, -1 if self.plan.forwards is False else 1)

    def _over(self, inputs: Inputs, run: Callable, *carried: PyTree) -> Any:
        def member(own, *carried):
            return run(*inputs.whole(own), *carried)

        return (member if inputs.members is None else jax.vmap(member))(inputs.own, *carried)

    def _open(self, model: Callable, y0: PyTree, args: PyTree) -> tuple[MemberProblem, Integrator]:
        stepper = self.plan.stepper
        assert stepper is not None  # `simulate` has found one
        equal = self.plan.equal and (stepper.traits.dense or not self.saves)  # a saved time may cut a step short
        problem = open_problem(model, y0, args, self.times, self.tolerances, self.plan, equal)
        return problem, Integrator(problem.field, stepper, self.plan.control, self.saves > 0)

    def _start(self, model: Callable, y0: PyTree, args: PyTree) -> MemberState:
        problem, integrator = self._open(model, y0, args)
        first = problem.start(y0)

        @members_of(integrator.stepper)
        def start(batch, flags, tree):
            lanes = Lanes(batch.lanes)
            own, table = (integrator, contextlib.nullcontext) if batch.lanes else integrator.of_one()
            with table():
                values = lanes.enter(tree, jax.tree.leaves(flags))
                return lanes.leave(LaneIntegrator(own, lanes).start(*values))

        inconsistent = jnp.asarray(False) if first.found is None else ~jnp.asarray(first.found)
        state = _placed_like(start((first.y0, problem.operands)), first.y0)
        return MemberState(state, jnp.zeros((), jnp.int8), inconsistent)

    def _blocks(self, integrator: Integrator, model: Callable, y0: PyTree, args: PyTree) -> StencilBlocks | None:
        if self.impl is None:
            return None
        h = self._direction() * jnp.abs(self.times.dt)
        stencil_steps = make_stencil_steps(integrator.stepper, model, y0, args, h, self.impl)
        return None if stencil_steps is None else StencilBlocks(integrator, stencil_steps, self.block)

    def _advance(self, model, y0, args, member: MemberState, targets: Array, index: Array) -> tuple:
        problem, integrator = self._open(model, y0, args)
        operands = problem.operands
        blocks = self._blocks(integrator, model, y0, args)

        @members_of(integrator.stepper)
        def run(batch, flags, tree):
            # a kernel takes steps of one whole field, and lanes would take it apart
            targets, lanes = tree[3], Lanes(batch.lanes) if blocks is None else Unbatched()
            whole = batch.lanes is not None or blocks is not None
            own, table = (integrator, contextlib.nullcontext) if whole else integrator.of_one()
            with table():
                state, cause, operands = lanes.enter(tree[:3], jax.tree.leaves(flags[:3]))
                stepping = LaneIntegrator(own, lanes)
                state = stepping.carry(state)
                state, ys, arrived = _integrate(
                    stepping, self.segment_steps, state, cause, operands, targets, self.saves > 0, blocks
                )
                arrived = arrived if batch.lanes is None else jnp.broadcast_to(arrived, (batch.lanes,))
                return lanes.leave(state), ys, arrived

        state, ys, count = run((member.state, member.cause, operands, targets))
        checkpoint, cause, saved = state.checkpoint, member.cause, ys
        frames = SegmentFrames(None, jnp.zeros((targets.shape[0],), bool))
        if self.saves:
            numbers = jnp.arange(targets.shape[0], dtype=jnp.int32)
            assert self.times.saves is not None  # there are saved times
            ys = jax.vmap(partial(integrator.stepper.coordinates.finish, integrator.bound(operands)))(saved)
            if self.plan.admissible is not None:  # between steps the method interpolates
                ys = self.plan.admissible.clipped(ys)
            ts = self.times.saves[jnp.minimum(index + numbers, self.saves - 1)]
            valid = (numbers < count) & (index + numbers < self.saves) & (targets <= checkpoint.elapsed) & (cause == 0)
            if self.stops.traced:
                causes = jax.vmap(lambda t, y: self.stops(model, t, y, args))(ts, ys)
                causes = jnp.where(valid, causes, jnp.zeros_like(causes))
                # the segment has gone beyond the saved time at which a member stops: back to what was saved there
                hit, first = jnp.any(causes != 0), jnp.argmax(causes != 0).astype(jnp.int32)
                valid = valid & (~hit | (numbers <= first))
                y = jax.tree.map(lambda y, at: jnp.where(hit, at[first], y), saved_part(checkpoint.y), saved)
                elapsed = jnp.where(hit, targets[first], checkpoint.elapsed)
                status = jnp.where(hit, jnp.zeros_like(checkpoint.status), checkpoint.status)
                checkpoint = checkpoint._replace(y=joined(y, checkpoint.y), elapsed=elapsed, status=status)
                cause = jnp.where(hit, causes[first], cause)
            output = self.output
            kept = ys if output is None else jax.vmap(lambda t, y: _arrays(output(t, y, args)))(ts, ys)
            frames = SegmentFrames(masked(kept, valid), valid)
        state = state._replace(checkpoint=checkpoint)
        status = checkpoint.status.astype(jnp.int32)
        status = jnp.where(member.inconsistent, jnp.full_like(status, int(Status.inconsistent_start)), status)
        info = (status, checkpoint.elapsed, cause, state.accepted, state.rejected)
        return MemberState(state, cause, member.inconsistent), frames, count, info


def _integrate(
    stepping: LaneIntegrator,
    steps: int,
    state: Any,
    cause: Any,
    operands: Any,
    targets: Array,
    saving: bool,
    blocks: StencilBlocks | None,
) -> tuple:
    """Integrates all lanes to one target after the other, until they are reached or the steps are used up.

    Returns:
        The state, the states at the targets as arrays, and how many targets were reached.
    """
    lanes = stepping.lanes

    def pending(state, goal):
        return stepping.any_pending(state, goal)

    def reach(carry, time):
        taken, state, arrived = carry
        goal = lanes.call(_goal, lanes.enter(time, False), cause)
        if blocks is not None:
            taken, state = blocks.integrate_to(goal, taken, state, operands, steps)
        taken, state = while_loop(
            lambda c: pending(c[1], goal) & (c[0] < steps),
            lambda c: (c[0] + 1, stepping.advance(c[1], operands, goal)),
            (taken, state),
            like=(operands, goal),
        )
        saved = stepping.saved(state, operands, lanes.enter(time, False)) if saving else None
        arrived = arrived + (~pending(state, goal)).astype(jnp.int32)
        return (taken, state, arrived), saved

    none = jnp.zeros((), jnp.int32)
    (_, state, arrived), ys = scan(reach, (none, state, none), targets, like=(operands, cause))
    return state, ys, arrived


def _placed_like(tree: State, y: PyTree) -> State:
    """Returns a state of the loop whose parts that are shaped like the member's state are laid out like it.

    The first stages are zeros without a place, while a step returns them where the state is. On explicit axes of a mesh
    that is another type.
    """
    kinds, structure = jax.tree.map(jax.typeof, y), jax.tree.structure(y)
    if all(axis is None for kind in jax.tree.leaves(kinds) for axis in kind.sharding.spec):
        return tree

    def is_like(part: PyTree) -> bool:
        return jax.tree.structure(part) == structure and jax.tree.all(
            jax.tree.map(lambda x, kind: x.shape == kind.shape, part, kinds)
        )

    def place(part: PyTree) -> PyTree:
        if not is_like(part):
            return part
        return jax.tree.map(lambda x, kind: jax.sharding.reshard(x, kind.sharding), part, kinds)

    return jax.tree.map(place, tree, is_leaf=is_like)


def _goal(time: Array, cause: Array) -> Array:
    """Returns the time to integrate to: for a member that has stopped, one that it has passed."""
    return jnp.where(cause == 0, time, -jnp.ones_like(time))


def _arrays(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.asarray, tree)
