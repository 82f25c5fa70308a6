"""A fixed number of equal steps to the end state: one `scan`, as fast as the same loop written by hand.

Steps run in segments. The state is looked at between segments only, for whether it is still finite;
and where memory does not hold the state at every step, the gradient keeps the state at some of them
and computes the steps between again, in as many levels as it takes (`_levels`).
"""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .. import _levels
from .._levels import Room
from .._loops import scan
from .._status import Status
from ..kernels.ensemble._member import Counted
from ..kernels.lanes import Lanes, Member, is_value
from ._in_kernel import columns_in_kernel, in_kernel
from ._march import March, Operands, known
from ._passes import Passes
from ._result import Result, Saves


class _Carry(NamedTuple):
    y: PyTree
    memory: PyTree
    finite: Array  # the number of steps after which the state was still finite


class Steps(eqx.Module):
    """A fixed number of steps over lanes.

    Attributes:
        march: How one member is advanced; without a controller.
        lanes: The engine.
        count: The number of steps of length `dt`.
        tail: Whether a shorter step follows, which ends at the end time.
        counts: How many states each level of the gradient keeps; with one level, all of them.
        passes: How a kernel takes the steps between two states that are kept; None where XLA takes them.
        impl: What runs many members: XLA, or a kernel.
    """

    march: March
    lanes: Lanes | Member
    count: int = eqx.field(static=True)
    tail: bool = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True, default=())
    passes: Passes | None = eqx.field(static=True, default=None)
    impl: str = eqx.field(static=True, default="xla")

    def over(self, lanes: Lanes | Member, state_bytes: int, room: Room) -> "Steps":
        """Returns the loop over other lanes, with the fewest levels that there is room for; see `Loop.over`.

        Where none fit, it has those that keep the fewest states.
        """
        if room.levels is not None:
            counts = _levels.split(self.count, room.levels)
        elif room.segments is not None:
            counts = _levels.segmented(self.count, room.segments)
        elif room == _levels.NOTHING:
            counts = (self.count,)
        else:
            most = room.memory // max(1, state_bytes * (lanes.count or 1))
            counts = _levels.fit(self.count, most) or _levels.deepest(self.count)
            if self.passes is not None and len(counts) == 1:  # a kernel keeps no state between its steps
                counts = _levels.split(self.count, 2)
        return Steps(self.march, lanes, self.count, self.tail, counts, self.passes, self.impl)

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Takes all steps; `y0` and `operands` are lane values."""
        if self.passes is not None:
            return self._forward(y0, operands, lambda y: None, True)[0]

        def by_xla(y0, operands, saves):
            return self._forward(y0, operands, lambda y: None, False)[0]

        return in_kernel(self.impl, self.lanes, self._one_member, by_xla, y0, operands, saves)

    def forward_with_columns(self, y0: PyTree, operands: Operands, saves: Saves | None, moved: tuple[bool, ...]) -> Any:
        """Returns how a kernel takes all steps with the derivatives by what is moved; see `columns_in_kernel`."""
        return columns_in_kernel(self.impl, self.lanes, self._one_member(), moved, y0, operands, saves)

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, PyTree, Bool[Array, "..."]]:
        """Takes all steps and returns what `backward` needs: states, the steps' axis first, and the levels.

        The levels are the shape of an array without elements, since the lanes may be others on the way
        back, and then as many states would be kept in other levels.
        """
        result, kept = self._forward(y0, operands, lambda y: y, self.passes is not None and len(self.counts) > 1)
        return result, kept, jnp.zeros((0, *self.counts), bool)

    def _forward(self, y0, operands, keep, by_kernel):
        # keep says what of a state is recorded
        all_kept = len(self.counts) == 1
        every, first = (keep, lambda y: None) if all_kept else (lambda y: None, keep)

        def step(carry, number):
            kept = every(carry.y)
            y, memory = self.lanes.call(self._step, carry.y, carry.memory, self._uniform(number), operands)
            return self.lanes.carry(_Carry(y, memory, carry.finite)), kept

        def advance(carry, numbers):
            if numbers.ndim > 1:
                return scan(advance, carry, numbers, like=operands)
            if by_kernel:
                y = self.lanes.call(partial(self._pass, numbers.shape[0]), carry.y, self._uniform(numbers[0]), operands)
                carry, kept = self.lanes.carry(carry._replace(y=y)), None
            else:
                # XLA copies what one turn reads and replaces; of two turns, each writes where the other has read
                turns = 1 if self.lanes.count is None else 2
                carry, kept = scan(step, carry, numbers, like=operands, unroll=turns)
            finite = self.lanes.call(count_finite, carry.finite, carry.y, self._uniform(numbers[-1] + 1))
            return self.lanes.carry(carry._replace(finite=finite)), kept

        def block(carry, numbers):
            kept = first(carry.y)
            carry, inner = advance(carry, numbers)
            return carry, inner if all_kept else kept

        carry = self.lanes.carry(self.lanes.call(self._start, y0, operands))
        carry = carry._replace(memory=None) if by_kernel else carry
        kept, kept_tail = [], None
        for numbers in _numbers(self.count, self.counts):
            carry, here = scan(block, carry, numbers, like=operands)
            kept.append(here)
        # one member alone has more room, and other pieces: what it keeps must have the structure of what many keep
        kept += [jax.tree.map(lambda x: x[:0], here) for here in kept[-1:]] * (_levels.MOST - len(kept))
        if self.tail:
            kept_tail = keep(carry.y)
            if by_kernel:
                memory = self.lanes.call(
                    self._first, carry.y, self._uniform(jnp.asarray(self.count, jnp.int32)), operands
                )
                carry = carry._replace(memory=memory)
            carry = self.lanes.carry(self.lanes.call(self._last, carry, operands))
        return self._result(carry, operands), (kept, kept_tail, carry.finite)

    def backward(
        self,
        cotangent: PyTree,
        residuals: PyTree,
        levels: Bool[Array, "..."],
        operands: Operands,
        saves: None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, None]:
        """Carries the cotangent of the end state back; see `Loop.backward`."""
        diff, held = eqx.partition(operands, differentiable, is_leaf=is_value)
        kept, kept_tail, finite = residuals
        counts = levels.shape[1:]

        def retreat(bar, x):
            number, y = x
            return self.lanes.carry(self.lanes.call(self._retreat, bar, self._uniform(number), y, diff, held)), None

        def unwind(bar, x):
            numbers, y = x
            states = y if len(counts) == 1 else self._states(y, numbers, operands)
            return scan(retreat if numbers.ndim == 1 else unwind, bar, (numbers, states), reverse=True, like=operands)

        y_bar = self.lanes.carry(self.lanes.enter(cotangent, self.lanes.count is not None))
        zeros = self.lanes.carry(self.lanes.call(lambda d: jax.tree.map(jnp.zeros_like, d), diff))
        bar = (y_bar, zeros)
        if self.tail:
            number = self._uniform(jnp.full((), self.count, jnp.int32))
            bar = self.lanes.carry(self.lanes.call(self._retreat_last, bar, number, kept_tail, diff, held))
        for numbers, here in reversed(list(zip(_numbers(self.count, counts), kept))):
            bar, _ = scan(unwind, bar, (numbers, here), reverse=True, like=operands)
        y_bar, diff_bar = self.lanes.call(self._unless_failed, bar, finite)
        return self.lanes.leave(y_bar), self.lanes.leave(diff_bar), None

    def _one_member(self) -> Counted:
        def step(carry, inputs, number):
            y, memory = self._step(carry.y, carry.memory, number, inputs[1])
            return carry._replace(y=y, memory=memory)

        def look(carry, number):
            return carry._replace(finite=count_finite(carry.finite, carry.y, number))

        def result(carry, inputs):
            carry = self._last(carry, inputs[1]) if self.tail else carry
            return result_of_steps(carry.y, carry.finite, self.count + self.tail, inputs[1])._replace(executed=None)

        counts = _levels.split(self.count, 2)
        pieces = _levels.pieces(self.count, counts if len(counts) > 1 else (1, self.count))
        stretches = tuple((first, math.prod(shape[:-1]), shape[-1]) for first, shape in pieces)
        return Counted(lambda inputs: self._start(*inputs), step, look, result, stretches)

    def _states(self, y, numbers, operands):
        """Returns the states before each of the steps, or blocks of steps, along the first axis of `numbers`."""

        def step(carry, number):
            y, memory = carry
            return self.lanes.carry(self.lanes.call(self._step, y, memory, self._uniform(number), operands)), None

        def advance(carry, numbers):
            run = step if numbers.ndim == 0 else lambda carry, numbers: scan(advance, carry, numbers, like=operands)
            return run(carry, numbers)[0], None

        first = numbers[(0,) * numbers.ndim]
        memory = self.lanes.call(self._first, y, self._uniform(first), operands)
        start = self.lanes.carry((y, memory))
        _, states = scan(lambda carry, n: (advance(carry, n)[0], carry[0]), start, numbers, like=operands)
        return states

    def _uniform(self, number: Array):
        return self.lanes.enter(number, False)

    def _start(self, y0, operands):
        memory = self.march.stepper.first(self.march.bound(operands), operands.t0, y0)
        return _Carry(y0, memory, jnp.zeros((), jnp.int32))

    def _last(self, carry, operands):
        y = self._advance(carry.y, carry.memory, jnp.full((), self.count, jnp.int32), operands, True)[0]
        return _Carry(y, carry.memory, count_finite(carry.finite, y, jnp.full((), self.count + 1, jnp.int32)))

    def _place(self, number, operands, tail):
        """Returns vector field, time and signed length of a step."""
        elapsed = number.astype(operands.dt.dtype) * operands.dt  # from the number, so that time does not drift
        h = operands.span - elapsed if tail else operands.dt
        return self.march.bound(operands, not tail), self.march.time(elapsed, operands), operands.direction * h

    def _advance(self, y, memory, number, operands, tail):
        step = self.march.stepper.step(*self._place(number, operands, tail), y, memory)
        return step.y1, step.memory

    def _step(self, y, memory, number, operands):
        return self._advance(y, memory, number, operands, False)

    def _pass(self, length, y, number, operands):
        """Takes so many steps by a kernel; derivatives by JAX go through the same steps one by one."""

        @jax.custom_jvp
        def run(y, number, operands):
            field, time, h = self._place(number, operands, False)
            assert self.passes is not None
            return self.passes.advance(field, operands.field, time, h, y, length)

        @run.defjvp
        def _(primals, tangents):
            return jax.jvp(partial(self._one_by_one, length), primals, tangents)

        return run(y, number, operands)

    def _one_by_one(self, length, y, number, operands):
        def step(carry, number):
            return self._advance(*carry, number, operands, False), None

        numbers = number + jnp.arange(length, dtype=jnp.int32)
        return scan(step, (y, self._first(y, number, operands)), numbers, like=operands)[0][0]

    def _first(self, y, number, operands):
        time = self.march.time(number.astype(operands.dt.dtype) * operands.dt, operands)
        return self.march.stepper.first(self.march.bound(operands), time, y)

    def _retreat(self, bar, number, y, diff, held):
        return self._pull(bar, number, y, diff, held, False)

    def _retreat_last(self, bar, number, y, diff, held):
        return self._pull(bar, number, y, diff, held, True)

    def _pull(self, bar, number, y, diff, held, tail):
        def replay(y, diff):
            return self.march.stepper.retraced(*self._place(number, eqx.combine(diff, held), tail), y).y1

        y_bar, diff_bar = bar
        _, pull = jax.vjp(replay, y, diff)
        y_bar, more = pull(y_bar)
        return y_bar, jax.tree.map(jnp.add, diff_bar, more)

    def _unless_failed(self, bar, finite):
        """Makes a failed member's cotangents zero, as those of its result are: its steps would make them NaN."""
        good = finite == self.count + self.tail
        return jax.tree.map(lambda x: jnp.where(good, x, jnp.zeros_like(x)), bar)

    def _result(self, carry: _Carry, operands) -> Result:
        def result(y, finite, operands):
            return result_of_steps(y, finite, self.count + self.tail, operands)

        return Result(*self.lanes.leave(self.lanes.call(result, carry.y, carry.finite, operands)))


def _numbers(count: int, counts: tuple[int, ...]) -> list[Array]:
    """Returns the numbers of the steps, in blocks along the first axis, whose states are kept, and blocks within."""
    if len(counts) == 1:
        counts = _levels.split(count, 2)  # every state is kept; the loops look at them now and then
    counts = counts if len(counts) > 1 else (1, count)
    found = []
    for start, shape in _levels.pieces(count, counts):
        shape = shape if len(shape) == len(counts) else (1, *shape)
        found.append((start + jnp.arange(math.prod(shape), dtype=jnp.int32)).reshape(shape))
    return found


def result_of_steps(y: PyTree, finite: Array, total: int, operands: Operands) -> Result:
    """Returns the result of a member's equal steps, of which so many ended with a finite state."""
    assert operands.dt is not None  # equal steps have their size
    good = finite == total
    status = jnp.where(good, int(Status.successful), int(Status.nonfinite)).astype(jnp.int32)
    elapsed = jnp.where(good, operands.span, finite.astype(operands.span.dtype) * operands.dt)
    taken = jnp.full_like(finite, total)
    return Result(known(y, good), status, elapsed, taken, jnp.zeros_like(finite), taken)


def count_finite(finite: Array, y: PyTree, number: Array) -> Array:
    """Returns the number of steps after which the state was still finite, given that before and the last step's."""
    ok = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(y)]).all()
    return jnp.where(ok, number, finite)
