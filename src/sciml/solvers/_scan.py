"""A fixed number of equal steps to the end state: one `scan`, as fast as the same loop written by hand.

Steps run in segments. The state is looked at between segments only, for whether it is still finite;
and where memory does not hold the state at every step, the gradient keeps the state at every segment
and computes the steps within again.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._loops import scan
from .._status import Status
from ..kernels.lanes import Lanes, Member, is_value
from ._loop import Result, Saves
from ._march import March, Operands, known


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
        keep_all: Whether the gradient keeps the state at every step, or only at every segment.
    """

    march: March
    lanes: Lanes | Member
    count: int = eqx.field(static=True)
    tail: bool = eqx.field(static=True)
    keep_all: bool = eqx.field(static=True, default=True)

    def over(self, lanes: Lanes | Member, state_bytes: int, memory: int) -> "Steps":
        """Returns the loop over other lanes, which keeps all states if `memory` bytes hold them; see `Loop.over`."""
        all_bytes = self.count * state_bytes * (lanes.count or 1)
        return Steps(self.march, lanes, self.count, self.tail, all_bytes <= memory)

    @property
    def segment(self) -> int:
        """The number of steps in a segment: about the root of all, and a divisor of it if there is one."""
        root = max(1, math.isqrt(self.count))
        near = [n for n in range(root // 2 + 1, 2 * root) if self.count % n == 0]
        return min(near, key=lambda n: abs(n - root), default=root)

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Takes all steps; `y0` and `operands` are lane values."""
        return self._forward(y0, operands, lambda y: None)[0]

    def forward_recorded(self, y0: PyTree, operands: Operands, saves: Saves | None) -> tuple[Result, PyTree, None]:
        """Takes all steps and returns what `backward` needs: states, the steps' axis first."""
        result, kept = self._forward(y0, operands, lambda y: y)
        return result, kept, None

    def _forward(self, y0, operands, keep):
        # keep says what of a state is recorded
        every = keep if self.keep_all else lambda y: None

        def step(carry, number):
            kept = every(carry.y)
            y, memory = self.lanes.call(self._step, carry.y, carry.memory, self._uniform(number), operands)
            return self.lanes.carry(_Carry(y, memory, carry.finite)), kept

        def segment(carry, numbers):
            kept = jax.tree.map(lambda x: x[None], keep(carry.y))
            carry, inner = scan(step, carry, numbers, like=operands)
            finite = self.lanes.call(_count_finite, carry.finite, carry.y, self._uniform(numbers[-1] + 1))
            return self.lanes.carry(carry._replace(finite=finite)), inner if self.keep_all else kept

        carry = self.lanes.carry(self.lanes.call(self._start, y0, operands))
        whole, rest = self._numbers()
        carry, kept = scan(segment, carry, whole, like=operands)
        kept_rest, kept_tail = None, None
        if rest.size:
            carry, kept_rest = segment(carry, rest)
        if self.tail:
            kept_tail = keep(carry.y)
            carry = self.lanes.carry(self.lanes.call(self._last, carry, operands))
        return self._result(carry, operands), (kept, kept_rest, kept_tail, carry.finite)

    def backward(
        self, cotangent: PyTree, kept: PyTree, numbers: None, operands: Operands, saves: None, differentiable: PyTree
    ) -> tuple[PyTree, PyTree, None]:
        """Carries the cotangent of the end state back; see `Loop.backward`."""
        diff, held = eqx.partition(operands, differentiable, is_leaf=is_value)

        def retreat(bar, x):
            number, y = x
            return self.lanes.carry(self.lanes.call(self._retreat, bar, self._uniform(number), y, diff, held)), None

        def segment(bar, x):
            numbers, kept = x
            all_kept = _length(kept) == numbers.shape[0]  # what was recorded says so: the lanes may differ
            states = kept if all_kept else self._states(_first_of(kept), numbers, operands)
            return scan(retreat, bar, (numbers, states), reverse=True, like=operands)

        y_bar = self.lanes.carry(self.lanes.enter(cotangent, self.lanes.count is not None))
        zeros = self.lanes.carry(self.lanes.call(lambda d: jax.tree.map(jnp.zeros_like, d), diff))
        bar = (y_bar, zeros)
        if self.tail:
            number = self._uniform(jnp.full((), self.count, jnp.int32))
            bar = self.lanes.carry(self.lanes.call(self._retreat_last, bar, number, kept[2], diff, held))
        whole, rest = self._numbers()
        if rest.size:
            bar, _ = segment(bar, (rest, kept[1]))
        bar, _ = scan(segment, bar, (whole, kept[0]), reverse=True, like=operands)
        y_bar, diff_bar = self.lanes.call(self._unless_failed, bar, kept[3])
        return self.lanes.leave(y_bar), self.lanes.leave(diff_bar), None

    def _states(self, y, numbers, operands):
        """Returns the states before each of a segment's steps."""

        def step(carry, number):
            y, memory = carry
            new = self.lanes.call(self._step, y, memory, self._uniform(number), operands)
            return self.lanes.carry(new), y

        memory = self.lanes.call(self._first, y, self._uniform(numbers[0]), operands)
        _, states = scan(step, self.lanes.carry((y, memory)), numbers, like=operands)
        return states

    def _numbers(self) -> tuple[Array, Array]:
        """Returns the numbers of the steps, in whole segments and the rest."""
        whole = self.count // self.segment * self.segment
        numbers = jnp.arange(self.count, dtype=jnp.int32)
        return numbers[:whole].reshape(-1, self.segment), numbers[whole:]

    def _uniform(self, number: Array):
        return self.lanes.enter(number, False)

    def _start(self, y0, operands):
        memory = self.march.stepper.first(self.march.bound(operands), operands.t0, y0)
        return _Carry(y0, memory, jnp.zeros((), jnp.int32))

    def _last(self, carry, operands):
        y = self._advance(carry.y, carry.memory, jnp.full((), self.count, jnp.int32), operands, True)[0]
        return _Carry(y, carry.memory, _count_finite(carry.finite, y, jnp.full((), self.count + 1, jnp.int32)))

    def _advance(self, y, memory, number, operands, tail):
        elapsed = number.astype(operands.dt.dtype) * operands.dt  # from the number, so that time does not drift
        h = operands.span - elapsed if tail else operands.dt
        field, time = self.march.bound(operands), self.march.time(elapsed, operands)
        step = self.march.stepper.step(field, time, operands.direction * h, y, memory)
        return step.y1, step.memory

    def _step(self, y, memory, number, operands):
        return self._advance(y, memory, number, operands, False)

    def _first(self, y, number, operands):
        time = self.march.time(number.astype(operands.dt.dtype) * operands.dt, operands)
        return self.march.stepper.first(self.march.bound(operands), time, y)

    def _retreat(self, bar, number, y, diff, held):
        return self._pull(bar, number, y, diff, held, False)

    def _retreat_last(self, bar, number, y, diff, held):
        return self._pull(bar, number, y, diff, held, True)

    def _pull(self, bar, number, y, diff, held, tail):
        def replay(y, diff):
            operands = eqx.combine(diff, held)
            return self._advance(y, self._first(y, number, operands), number, operands, tail)[0]

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
            total = self.count + self.tail
            good = finite == total
            status = jnp.where(good, int(Status.successful), int(Status.nonfinite)).astype(jnp.int32)
            elapsed = jnp.where(good, operands.span, finite.astype(operands.dt.dtype) * operands.dt)
            taken = jnp.full_like(finite, total)
            return Result(known(y, good), status, elapsed, taken, jnp.zeros_like(finite), taken)

        return Result(*self.lanes.leave(self.lanes.call(result, carry.y, carry.finite, operands)))


def _length(kept: PyTree) -> int:
    return jax.tree.leaves(kept)[0].shape[0]


def _first_of(kept: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[0], kept)


def _count_finite(finite, y, number):
    ok = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(y)]).all()
    return jnp.where(ok, number, finite)
