"""A segment of a solve: so many steps, the states at the saved times among them, and where to go on.

The steps are those of `solve`: its integration, over lanes for many members, taken up exactly where the segment before left
it, with the step size, the controller's memory and the last step, within which the next saved time may lie.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._jax._loops import scan, while_loop
from ..._status import Status
from ...kernels._backends import Request
from ...kernels._lanes import Lanes, Unbatched
from ...solvers._plan import Plan, Times
from ...solvers.control._pid import Tolerances
from ...solvers.integrate._batching import members_of
from ...solvers.integrate._integrator import Integrator, Operands, State, known
from ...solvers.integrate._stencil_kernel import make_stencil_steps
from ...solvers.integrate._while_loop import AdaptiveLoop
from ...solvers.methods._stepper import AbstractStepper
from ._abstract import AbstractSegment, Carry, Frames, Info, masked
from ._in_axes import Inputs
from ._stencil_blocks import Blocks
from ._stops import Stops


class MemberState(NamedTuple):
    """What a member goes on from.

    Attributes:
        state: The integration's state.
        cause: The number of the condition that stopped it, or 0.
        inconsistent: Whether no consistent initial values were found.
    """

    state: State
    cause: Array
    inconsistent: Array


class SolveSegment(AbstractSegment):
    """What does not change from one segment to the next.

    Attributes:
        times: Start, end, and the saved times.
        elapsed: The saved times as elapsed times, and the end time for as many as a segment has slots.
        tolerances: Of the steps.
        plan: How the solve runs.
        output: What to keep of a state, or None.
        stops: What ends a member.
        saves: The number of saved times.
        slots: How many saved times a segment reaches at most.
        steps: How many steps a segment takes at most.
        block: How many steps a kernel takes at once, and
        impl: the kernel that is asked for; None where none is.
    """

    times: Times
    elapsed: Array
    tolerances: Tolerances | None
    plan: Plan
    output: Callable | None
    stops: Stops
    saves: int = eqx.field(static=True)
    slots: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    block: int = eqx.field(static=True, default=0)
    impl: Request | None = eqx.field(static=True, default=None)
    clock: ClassVar[str] = "t"
    end: ClassVar[str] = "t1"

    @eqx.filter_jit
    def start(self, inputs: Inputs) -> Carry:
        """Returns what the first segment starts from."""
        member = self._over(inputs, lambda model, y0, args: self._start(model, y0, args))
        return Carry(member, jnp.zeros((), jnp.int32))

    @eqx.filter_jit
    def advance(self, inputs: Inputs, carry: Carry) -> tuple[Carry, Frames, Info]:
        """Takes the steps of one segment."""
        slots = min(self.slots, self.elapsed.shape[0])
        targets = jax.lax.dynamic_slice(self.elapsed, (carry.reached,), (slots,))

        def run(model, y0, args, member):
            return self._advance(model, y0, args, member, targets, carry.reached)

        member, frames, count, info = self._over(inputs, run, carry.member)
        index = carry.reached + (count if inputs.members is None else count[0])
        return Carry(member, index), frames, Info(index, *info)

    def states(self, inputs: Inputs, carry: Carry) -> PyTree:
        """Returns the state of every member, which a method may hold in other variables between its steps."""
        y = carry.member.state.checkpoint.y
        if getattr(type(self.plan.stepper), "finish", None) is AbstractStepper.finish:
            return y
        return self._finish(inputs, carry.member)

    @eqx.filter_jit
    def _finish(self, inputs: Inputs, member: MemberState) -> PyTree:
        def run(model, y0, args, member):
            integrator, operands = self._close(model, y0, args)
            return integrator.stepper.finish(integrator.bound(operands), member.state.checkpoint.y)

        return self._over(inputs, run, member)

    def info(self, carry: Carry) -> Info:
        """Returns what the host looks at, as NumPy arrays."""
        state = carry.member.state
        checkpoint = state.checkpoint
        inconsistent = np.asarray(carry.member.inconsistent)
        status = np.where(inconsistent, int(Status.inconsistent_start), np.asarray(checkpoint.status)).astype(np.int32)
        values = (carry.reached, status, checkpoint.elapsed, carry.member.cause, state.accepted, state.rejected)
        return Info(*map(np.asarray, values))

    def time_at(self, elapsed: np.ndarray) -> np.ndarray:
        """Returns the times of the model at which so much has passed."""
        t0, t1 = np.asarray(self.times.t0), np.asarray(self.times.t1)
        return np.where(elapsed >= self.host_span, t1, t0 + (1 if self.plan.forwards else -1) * elapsed)

    @property
    def span(self) -> Array:
        """The time from start to end, positive."""
        return self._direction() * (self.times.t1 - self.times.t0)

    def _direction(self) -> Array:
        return jnp.full_like(self.times.t0, 1 if self.plan.forwards else -1)

    def _over(self, inputs: Inputs, run: Callable, *carried: PyTree) -> Any:
        def member(own, *carried):
            return run(*inputs.whole(own), *carried)

        return (member if inputs.members is None else jax.vmap(member))(inputs.own, *carried)

    def _close(self, model: Callable, y0: PyTree, args: PyTree) -> tuple[Integrator, Operands]:
        stepper = self.plan.stepper
        assert stepper is not None  # `simulate` has found one
        times, dt = self.times, jax.tree.map(jnp.abs, self.times.dt)
        equal = self.plan.equal and not (self.saves and stepper.lands)  # a saved time may cut a step short
        length = self._direction() * dt if equal else None
        field, operands = stepper.close(model, times.t0, y0, args, length)
        integrator = Integrator(field, stepper, self.plan.control, self.saves > 0)
        limit = jnp.asarray(self.plan.max_steps, jnp.int32)
        return integrator, Operands(operands, times.t0, self.span, None, self._direction(), self.tolerances, dt, limit)

    def _start(self, model: Callable, y0: PyTree, args: PyTree) -> MemberState:
        integrator, operands = self._close(model, y0, args)
        y0, consistent = integrator.stepper.prepare(integrator.bound(operands), operands.t0, y0)
        if consistent is not None:
            y0 = known(y0, consistent)

        @members_of(integrator.stepper)
        def start(batch, flags, tree):
            lanes = Lanes(batch.lanes)
            values = lanes.enter(tree, jax.tree.leaves(flags))
            return lanes.leave(self._loop(integrator, lanes).start(*values))

        inconsistent = jnp.asarray(False) if consistent is None else ~jnp.asarray(consistent)
        return MemberState(start((y0, operands)), jnp.zeros((), jnp.int8), inconsistent)

    def _loop(self, integrator: Integrator, lanes: Lanes | Unbatched) -> AdaptiveLoop:
        return AdaptiveLoop(integrator, lanes, self.plan.max_steps, False)

    def _blocks(self, integrator: Integrator, model: Callable, y0: PyTree, args: PyTree) -> Blocks | None:
        if self.impl is None:
            return None
        h = self._direction() * jnp.abs(self.times.dt)
        stencil_steps = make_stencil_steps(integrator.stepper, model, y0, args, h, self.impl)
        return None if stencil_steps is None else Blocks(integrator, stencil_steps, self.block)

    def _advance(self, model, y0, args, member: MemberState, targets: Array, index: Array) -> tuple:
        integrator, operands = self._close(model, y0, args)
        blocks = self._blocks(integrator, model, y0, args)

        @members_of(integrator.stepper)
        def run(batch, flags, tree):
            targets, lanes = tree[3], Lanes(batch.lanes) if blocks is None else Unbatched()
            state, cause, operands = lanes.enter(tree[:3], jax.tree.leaves(flags[:3]))
            state = lanes.carry(state)
            loop = self._loop(integrator, lanes)
            state, ys, arrived = _integrate(loop, self.steps, state, cause, operands, targets, self.saves > 0, blocks)
            arrived = arrived if batch.lanes is None else jnp.broadcast_to(arrived, (batch.lanes,))
            return lanes.leave(state), ys, arrived

        state, ys, count = run((member.state, member.cause, operands, targets))
        checkpoint, cause, held = state.checkpoint, member.cause, ys
        frames = Frames(None, jnp.zeros((targets.shape[0],), bool))
        if self.saves:
            numbers = jnp.arange(targets.shape[0], dtype=jnp.int32)
            assert self.times.saves is not None  # there are saved times
            ys = jax.vmap(partial(integrator.stepper.finish, integrator.bound(operands)))(held)
            ts = self.times.saves[jnp.minimum(index + numbers, self.saves - 1)]
            valid = (numbers < count) & (index + numbers < self.saves) & (targets <= checkpoint.elapsed) & (cause == 0)
            if self.stops.traced:
                causes = jax.vmap(lambda t, y: self.stops(model, t, y, args))(ts, ys)
                causes = jnp.where(valid, causes, jnp.zeros_like(causes))
                hit, first = jnp.any(causes != 0), jnp.argmax(causes != 0).astype(jnp.int32)
                valid = valid & (~hit | (numbers <= first))
                y = jax.tree.map(lambda y, saved: jnp.where(hit, saved[first], y), checkpoint.y, held)
                elapsed = jnp.where(hit, targets[first], checkpoint.elapsed)
                status = jnp.where(hit, jnp.zeros_like(checkpoint.status), checkpoint.status)
                checkpoint = checkpoint._replace(y=y, elapsed=elapsed, status=status)
                cause = jnp.where(hit, causes[first], cause)
            output = self.output
            kept = ys if output is None else jax.vmap(lambda t, y: _arrays(output(t, y, args)))(ts, ys)
            frames = Frames(masked(kept, valid), valid)
        state = state._replace(checkpoint=checkpoint)
        status = checkpoint.status.astype(jnp.int32)
        status = jnp.where(member.inconsistent, jnp.full_like(status, int(Status.inconsistent_start)), status)
        info = (status, checkpoint.elapsed, cause, state.accepted, state.rejected)
        return MemberState(state, cause, member.inconsistent), frames, count, info


def _integrate(
    loop: AdaptiveLoop,
    steps: int,
    state: Any,
    cause: Any,
    operands: Any,
    targets: Array,
    saving: bool,
    blocks: Blocks | None,
) -> tuple:
    """Integrates all lanes to one target after the other, until they are reached or the steps are used up.

    Returns:
        The state, the states at the targets as arrays, and how many targets were reached.
    """
    lanes = loop.lanes

    def pending(state, goal):
        return lanes.any(lanes.call(loop.integrator.pending, state, goal))

    def reach(carry, time):
        iterations, state, arrived = carry
        goal = lanes.call(_goal, lanes.enter(time, False), cause)
        if blocks is not None:
            iterations, state = blocks.integrate_to(goal, iterations, state, operands, steps)
        iterations, state = while_loop(
            lambda c: pending(c[1], goal) & (c[0] < steps),
            lambda c: (c[0] + 1, loop.attempt(c[1], operands, goal)[0]),
            (iterations, state),
            like=(operands, goal),
        )
        saved = loop.saved(state, operands, lanes.enter(time, False)) if saving else None
        arrived = arrived + (~pending(state, goal)).astype(jnp.int32)
        return (iterations, state, arrived), saved

    none = jnp.zeros((), jnp.int32)
    (_, state, arrived), ys = scan(reach, (none, state, none), targets, like=(operands, cause))
    return state, ys, arrived


def _goal(time: Array, cause: Array) -> Array:
    """Returns the time to march to: for a member that has stopped, one that it has passed."""
    return jnp.where(cause == 0, time, -jnp.ones_like(time))


def _arrays(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.asarray, tree)
