"""A loop over fewer lanes than members: a lane whose member is done takes up the next one.

In lockstep a loop runs until its slowest member is done. If a few members take a hundred times more steps than the
others, the loop mostly waits for them. Here the lanes stay busy until the last members are being worked on. A member's
own steps are the same. Results are written by the number of the member into arrays that the loop carries, so this loop
records nothing for a gradient: where one is asked for, the members run in lockstep.
"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..._choices import choices
from ..._jax._checkpoint_levels import Budget
from ..._jax._loops import while_loop
from ..._jax._marks import chosen
from ..._jax._vma import to_varying, vma_of
from ...kernels._backends import KernelRequest
from ...kernels._lanes import Lanes, Unbatched
from ._abstract import AbstractLoop, FixedSteps, check_lane_values
from ._integrator import Integrator, Operands
from ._lane_integrator import LaneIntegrator
from ._recompute import LoopCounts, Residuals
from ._result import Cotangents, Result, Saves
from ._while_loop import AdaptiveLoop


class _Carry(NamedTuple):
    """The carry of the loop.

    Attributes:
        steps: The number of steps that every lane has executed.
        following: The number of the next member to be taken up.
        member: The number of each lane's member; the count of all members where there was no other.
        last: The number of the last member that each lane has taken up.
        since: The step at which the lane took it up, or was done with it if no other was left.
        state: The integration of the lanes' members.
        inputs: Initial state and operands of the lanes' members.
        target: The time at which each lane waits: the next saved time, or the end.
        passed: The number of saved times that each lane's member has passed.
        results: A `Result` of all members, and a bin after the last.
    """

    steps: Int[Array, ""]
    following: Int[Array, ""]
    member: Int[Array, " lanes"]
    last: Int[Array, " lanes"]
    since: Int[Array, " lanes"]
    state: PyTree
    inputs: PyTree
    target: PyTree
    passed: Int[Array, " lanes"]
    results: Result


class RefillLoop(AbstractLoop):
    """An integration of many members over fewer lanes.

    Attributes:
        loop: The same integration in lockstep, for single members and for differentiation.
        width: The number of lanes.
        expensive: Whether steps cost more than the loop around them.
    """

    loop: AdaptiveLoop
    width: int = eqx.field(static=True, default=1)
    expensive: bool = eqx.field(static=True, default=False)

    @property
    def integrator(self) -> Integrator:
        """How one member is advanced."""
        return self.loop.integrator

    @property
    def lanes(self) -> Lanes | Unbatched:
        """The engine of all members."""
        return self.loop.lanes

    @property
    def fixed(self) -> FixedSteps | None:
        """The fixed steps, where their number is known."""
        return self.loop.fixed

    @property
    def max_steps(self) -> int:
        """The limit on attempted steps of a member."""
        return self.loop.max_steps

    @property
    def impl(self) -> KernelRequest:
        """The runner of the lockstep loop."""
        return self.loop.impl

    @property
    def lockstep(self) -> AbstractLoop:
        """The same integration with a lane for each member."""
        return self.loop

    def of_one(self) -> AbstractLoop:
        """Returns the lockstep loop for a single member."""
        return dataclasses.replace(self, loop=self.loop.of_one())

    def over(self, lanes: Lanes | Unbatched, state_bytes: int, budget: Budget) -> AbstractLoop:
        """Returns the loop for a number of members with states of `state_bytes` each."""
        loop = self.loop.over(lanes, state_bytes, budget)
        table = choices().refill
        if lanes.count is None or lanes.count <= table.lanes_at_least:
            return loop
        # so few that every lane takes up many members and the last ones finish together
        width = min(lanes.count // table.members_of_lane, table.cache // (16 * state_bytes))
        expensive = loop.integrator.stepper.traits.is_costly(state_bytes)
        return RefillLoop(loop, 2 ** int(math.log2(max(width, table.lanes_at_least))), expensive)

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, Residuals, LoopCounts]:
        """See `AdaptiveLoop.forward_recorded`."""
        return self.loop.forward_recorded(y0, operands, saves)

    def backward(
        self,
        cotangent: Cotangents,
        residuals: Residuals,
        common: LoopCounts,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, PyTree]:
        """See `AbstractLoop.backward`."""
        return self.loop.backward(cotangent, residuals, common, operands, saves, differentiable)

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Integrates every member to the end; `y0` and `operands` are lane values over all members."""
        check_lane_values(self.loop.lanes, y0)
        assert isinstance(self.loop.lanes, Lanes)  # one member alone runs in the plain loop
        queue = _Queue(self.loop.lanes, (y0, operands), saves)
        narrow = LaneIntegrator(self.integrator, Lanes(self.width))
        like = ((y0, operands), saves)

        def iterate(carry):
            attempts = choices().refill.steps_at_once if saves is None and not self.expensive else 1
            carry = _work(narrow, queue, carry, attempts)
            # loops of few iterations instead of conditionals, which would copy the results
            if saves is not None:
                carry = while_loop(lambda c: jnp.any(_due(narrow, queue, c)), lambda c: _save(narrow, queue, c), carry)
            return while_loop(lambda c: jnp.any(_done(narrow, queue, c)), lambda c: _refill(narrow, queue, c), carry)

        carry = _start(narrow, queue)
        # the loops within promote their carries to the mesh axes of all members' inputs, so this one is beforehand
        carry = to_varying(carry, vma_of((carry, like)))
        with chosen("refill.lanes_at_least"):
            carry = while_loop(lambda c: jnp.any(c.member < queue.members), iterate, carry)
        # what a lane executed after its last member was done counts as that member's waiting
        idle = carry.results.executed.at[carry.last].add(carry.steps - carry.since)
        # whether members are stiff is asked where their loop ends together, but results of both loops are alike
        stiff = jnp.zeros_like(carry.results.status) if self.loop.judges else None
        results = carry.results._replace(executed=idle, stiff=stiff)
        return jax.tree.map(lambda x: x[..., : queue.members], results)


class _Queue(NamedTuple):
    """All members: their engine, their initial states and operands as lane values, and their saved times."""

    lanes: Lanes
    inputs: PyTree
    saves: Saves | None

    @property
    def members(self) -> int:
        """How many members there are."""
        assert self.lanes.count is not None
        return self.lanes.count


def _start(stepping: LaneIntegrator, queue: _Queue) -> _Carry:
    """Returns the carry with the first members taken up."""
    member = jnp.arange(stepping.lanes.count, dtype=jnp.int32)
    zeros, zero = jnp.zeros_like(member), jnp.zeros((), jnp.int32)
    inputs, state = _take_up(stepping, queue, member)
    target = _target(stepping, queue, inputs, member, zeros)
    if queue.saves is None:
        ys = stepping.end(state, inputs[1])
    else:
        ys = stepping.saved(state, inputs[1], target)
        saves = queue.saves.times.shape[0]
        ys = jax.tree.map(lambda y: jnp.broadcast_to(y, (saves, *y.shape)), ys)
    # one place more than there are members: the bin for lanes that have nothing to write
    results = jax.tree.map(
        lambda x: jnp.full((*x.shape[:-1], queue.members + 1), jnp.nan if _inexact(x) else 0, x.dtype),
        stepping.result(state, ys, zero),
    )
    return _Carry(zero, zero + member.size, member, member, zeros, state, inputs, target, zeros, results)


def _is_worth_a_step(stepping: LaneIntegrator, queue: _Queue, carry: _Carry) -> Array:
    """Whether some lanes have steps to take and few wait to save a state or for their next member."""
    working = _working(stepping, carry)
    waiting = ~working & (carry.member < queue.members)
    served = carry.following < queue.members  # lanes that are done wait for nothing when no member is left
    if queue.saves is not None:
        served = served | _due(stepping, queue, carry)
    few = jnp.sum(waiting & served, dtype=jnp.int32) < max(carry.member.size // choices().refill.waiting_share, 1)
    return few & jnp.any(working & (carry.member < queue.members))


def _work(stepping: LaneIntegrator, queue: _Queue, carry: _Carry, attempts: int) -> _Carry:
    """Executes steps on every lane, `attempts` between two checks, as long as that is worth it."""

    def iterate(inner):
        number, state = inner
        for _ in range(attempts):
            state = stepping.advance(state, carry.inputs[1], carry.target)
        return number + attempts, state

    def go_on(inner):
        number, state = inner
        return _is_worth_a_step(stepping, queue, carry._replace(steps=number, state=state))

    number, state = while_loop(go_on, iterate, (carry.steps, carry.state), like=carry)
    return carry._replace(steps=number, state=state)


def _save(stepping: LaneIntegrator, queue: _Queue, carry: _Carry) -> _Carry:
    """Saves the time that a lane waits at, for each that does."""
    due = _due(stepping, queue, carry)
    column, row = jnp.where(due, carry.member, queue.members), _next_save(queue, carry.passed)
    ys = jax.tree.map(
        lambda all, new: all.at[row, ..., column].set(jnp.moveaxis(new, -1, 0)),
        carry.results.ys,
        stepping.saved(carry.state, carry.inputs[1], carry.target),
    )
    passed = carry.passed + due.astype(jnp.int32)
    target = _target(stepping, queue, carry.inputs, carry.member, passed)
    return carry._replace(passed=passed, target=target, results=carry.results._replace(ys=ys))


def _refill(stepping: LaneIntegrator, queue: _Queue, carry: _Carry) -> _Carry:
    """Writes the results of the lanes that are done and has them take up the members that follow."""
    done = _done(stepping, queue, carry)
    following = carry.following + jnp.cumsum(done, dtype=jnp.int32) - 1
    member = jnp.where(done, jnp.minimum(following, queue.members), carry.member)
    fresh = done & (member < queue.members)  # the other lanes stay idle: no member is left
    inputs, started = _take_up(stepping, queue, member)
    state = stepping.lanes.call(_where, stepping.lanes.enter(fresh, True), started, carry.state)
    passed = jnp.where(fresh, 0, carry.passed)
    return _Carry(
        steps=carry.steps,
        following=jnp.minimum(carry.following + jnp.sum(done, dtype=jnp.int32), queue.members),
        member=member,
        last=jnp.where(fresh, member, carry.last),
        since=jnp.where(done, carry.steps, carry.since),
        state=stepping.carry(state),
        inputs=inputs,
        target=_target(stepping, queue, inputs, member, passed),
        passed=passed,
        results=_write(stepping, queue, carry, done),
    )


def _take_up(stepping: LaneIntegrator, queue: _Queue, member: Array) -> tuple[PyTree, PyTree]:
    """Returns the members' inputs as lane values, and their integration before its first step."""
    inputs = stepping.lanes.carry(queue.lanes.take(queue.inputs, member))
    return inputs, stepping.start(*inputs)


def _target(stepping: LaneIntegrator, queue: _Queue, inputs: PyTree, member: Array, passed: Array) -> PyTree:
    """Returns the time at which each lane is to wait."""
    _, operands = inputs
    if queue.saves is None:
        return stepping.lanes.carry(operands.span)
    times, batched = queue.saves
    row = _next_save(queue, passed)
    time = times[row, jnp.minimum(member, queue.members - 1)] if batched else times[row]
    return stepping.lanes.carry(
        stepping.lanes.call(
            lambda all_saved, time, span: jnp.where(all_saved, span, time),
            stepping.lanes.enter(passed >= times.shape[0], True),
            stepping.lanes.enter(time, True),
            operands.span,
        )
    )


def _next_save(queue: _Queue, passed: Array) -> Array:
    assert queue.saves is not None
    return jnp.minimum(passed, queue.saves.times.shape[0] - 1)


def _working(stepping: LaneIntegrator, carry: _Carry) -> Array:
    """The lanes that have yet to reach the time at which they wait."""
    return stepping.pending(carry.state, carry.target)


def _due(stepping: LaneIntegrator, queue: _Queue, carry: _Carry) -> Array:
    """The lanes at a saved time that is yet to be saved."""
    assert queue.saves is not None
    reached = stepping.lanes.call(
        lambda checkpoint, target: target <= checkpoint.elapsed, carry.state.checkpoint, carry.target
    )
    return stepping.lanes.leave(reached) & (carry.passed < queue.saves.times.shape[0]) & (carry.member < queue.members)


def _done(stepping: LaneIntegrator, queue: _Queue, carry: _Carry) -> Array:
    """The lanes whose member needs nothing more."""
    done = ~_working(stepping, carry) & (carry.member < queue.members)
    return done if queue.saves is None else done & ~_due(stepping, queue, carry)


def _write(stepping: LaneIntegrator, queue: _Queue, carry: _Carry, done: Array) -> Result:
    """Returns the results together with the results of the finished lanes."""
    target = jnp.where(done, carry.member, queue.members)  # the others write into the bin
    ys = stepping.end(carry.state, carry.inputs[1]) if queue.saves is None else None
    found = stepping.result(carry.state, ys, carry.steps)._replace(executed=carry.steps - carry.since)
    results = carry.results if queue.saves is None else carry.results._replace(ys=None)
    written = jax.tree.map(lambda all, new: all.at[..., target].set(new), results, found)
    return written if queue.saves is None else written._replace(ys=carry.results.ys)


def _inexact(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _where(condition: Array, a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)
