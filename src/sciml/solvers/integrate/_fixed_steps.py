"""A fixed number of equal steps, to the end state or with states at known times: as fast as a loop written by hand.

Steps run in segments. Whether the state is still finite is checked between segments only, but after every step where
states are saved within them; and where the state at every step does not fit the memory, the gradient keeps the state at
some of them and computes the steps between again, in as many levels as it takes (`_checkpoint_levels`).
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..._choices import choices
from ..._jax import _checkpoint_levels
from ..._jax._checkpoint_levels import Budget
from ..._jax._loops import for_loop, scan
from ..._jax._marks import step_number
from ..._jax._shapes_of_one import shapes_are_those_of_one
from ..._jax._shards import parts_of_members
from ..._jax._static_flags import number_as_shape, number_of_shape
from ..._status import Status
from ...kernels._backends import XLA, KernelRequest
from ...kernels._lanes import Lanes, Unbatched, is_value
from ...kernels.ensemble._member import Counted
from ..methods._stepper import step_for_vjp, take_step
from ._abstract import AbstractLoop, FixedSteps, check_lane_values
from ._checkpoint_buffers import Buffers
from ._ensemble_kernel import columns_by_kernel, run_by_kernel
from ._integrator import Integrator, Operands, cause_of, known
from ._result import Cotangents, Result, Saves
from ._saved_rows import RowWriter, weighted
from ._stencil_kernel import StencilSteps
from ._step_vjp import has_shared_cotangents, pull_back

PAIR = 2
"""The number of steps of lanes that are written out at a time, see `FixedLoop._unroll`; segments have no single
steps."""


class _Carry(NamedTuple):
    y: PyTree
    memory: PyTree
    finite: Array  # the number of steps after which the state was still finite
    cause: Array | None = None  # what the first step that failed did, where states are saved
    saved: Buffers | None = None  # the rows of these


class FixedLoop(AbstractLoop):
    """A fixed number of steps over lanes.

    Attributes:
        integrator: How one member is advanced; without a controller.
        lanes: The engine.
        count: The number of steps of length `dt`.
        tail: Whether a shorter step follows, which ends at the end time.
        counts: How many states each level of the gradient keeps; with one level, all of them.
        stencil_steps: How a kernel takes the steps between two states that are kept; None where XLA takes them.
        impl: The backend for many members: XLA, or a kernel.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched
    count: int = eqx.field(static=True)
    tail: bool = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True, default=())
    stencil_steps: StencilSteps | None = eqx.field(static=True, default=None)
    impl: KernelRequest = eqx.field(static=True, default=XLA)

    transposable: ClassVar[bool] = True

    @property
    def fixed(self) -> FixedSteps:
        """The steps that it takes."""
        return FixedSteps(self.count, self.tail)

    @property
    def max_steps(self) -> int:
        """The number of steps that it takes at most."""
        return self.count + 1

    @property
    def by_stencil_kernel(self) -> bool:
        """Whether a stencil kernel takes the steps."""
        return self.stencil_steps is not None

    def of_one(self) -> "FixedLoop":
        """Returns the loop for a single member; see `Integrator.of_one`."""
        return dataclasses.replace(self, integrator=self.integrator.of_one()[0])

    def over(self, lanes: Lanes | Unbatched, state_bytes: int, budget: Budget) -> "FixedLoop":
        """Returns the loop over other lanes, with the fewest levels that fit the budget; see `AbstractLoop.over`.

        If none fit, it has the levels that keep the fewest states.
        """
        if budget.levels is not None:
            counts = _checkpoint_levels.split(self.count, budget.levels, multiple=PAIR)
        elif budget.segments is not None:
            counts = _checkpoint_levels.segmented(self.count, budget.segments)
        elif budget == _checkpoint_levels.NOTHING:  # no gradient is taken, so nothing is recorded
            counts = (self.count,)
            alone = lanes.count is None and self.stencil_steps is None
            if alone and state_bytes >= choices().checkpoints.checked_from and self.count >= 2 * PAIR:
                counts = (self.count // PAIR, PAIR)
        else:
            members = (lanes.count or 1) * parts_of_members()
            size = members * self.count * state_bytes
            if size <= choices().checkpoints.like_one_at_most and shapes_are_those_of_one():
                members = 1
            most = budget.memory // max(1, state_bytes * members)
            counts = _checkpoint_levels.fit(self.count, most, PAIR) or _checkpoint_levels.deepest(self.count, PAIR)
            if self.stencil_steps is not None and len(counts) == 1:  # a kernel keeps no state between its steps
                counts = _checkpoint_levels.split(self.count, 2, multiple=PAIR)
        return dataclasses.replace(self, lanes=lanes, counts=counts)

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Takes all steps; `y0` and `operands` are lane values."""
        check_lane_values(self.lanes, y0)
        if self.stencil_steps is not None:  # a stencil kernel within the loop, no ensemble kernel in its place
            return self._forward(y0, operands, saves, False, True)[0]

        def by_xla(y0, operands, saves):
            return self._forward(y0, operands, saves, False, False)[0]

        if self.impl == XLA:
            return by_xla(y0, operands, saves)
        return run_by_kernel(self.impl, self.lanes, self._one_member, by_xla, y0, operands, saves)

    def forward_with_columns(
        self, y0: PyTree, operands: Operands, saves: Saves | None, perturbed: tuple[bool, ...]
    ) -> Any:
        """Returns how a kernel takes all steps with their derivatives; see `columns_by_kernel`."""
        return columns_by_kernel(self.impl, self.lanes, self._one_member(), perturbed, y0, operands, saves)

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, PyTree, Bool[Array, "..."]]:
        """Takes all steps and returns what `backward` needs: states, the steps' axis first, and the levels.

        The shape of a small array encodes the levels: the backward pass may run over another number of lanes, and would
        choose other levels than the ones in which the states are kept.
        """
        # with one level every state is kept, and a kernel shows none between its first and its last step
        by_kernel = self.stencil_steps is not None and len(self.counts) > 1
        result, kept = self._forward(y0, operands, saves, True, by_kernel)
        return result, kept, number_as_shape([*self._choices, self.counts].index(self.counts))

    @property
    def _choices(self) -> list[tuple[int, ...]]:
        """The levels among which the memory for all members decides; others are the same for every number of lanes."""
        return _checkpoint_levels.possible(self.count, PAIR)

    def _rows(self, operands: Operands, saves: Saves | None) -> tuple[RowWriter | None, Operands]:
        """Returns how states are saved, None where none is, and the operands without it."""
        rows = None if saves is None else RowWriter.of(self.lanes, operands.rows)
        return rows, operands._replace(rows=None)

    def _forward(self, y0, operands, saves, recorded, by_kernel):
        all_kept = len(self.counts) == 1
        rows, operands = self._rows(operands, saves)

        def step(number, carried):
            carry, kept = carried
            kept = _put(kept, number, carry.y)
            return self._step_and_save(number, carry, operands, rows), kept

        def advance(start, shape, carried):
            """Takes the steps of a block of such a shape."""
            if len(shape) > 1:
                size = math.prod(shape[1:])
                return for_loop(
                    lambda i, carried: advance(start + i * size, shape[1:], carried), carried, *shape[:1], like=operands
                )
            if by_kernel:
                carry, kept = carried
                y = self.lanes.call(partial(self._steps_by_kernel, *shape), carry.y, self._uniform(start), operands)
                carry = self.lanes.carry(carry._replace(y=y))
            else:
                carry, kept = for_loop(
                    lambda i, carried: step(start + i, carried), carried, *shape, unroll=self._unroll, like=operands
                )
            if rows is not None:  # `step` has looked
                return carry, kept
            # once for a segment: what is not finite does not become finite again
            finite = self.lanes.call(count_finite, carry.finite, carry.y, self._uniform(start + shape[0]))
            return self.lanes.carry(carry._replace(finite=finite)), kept

        def block(row, start, shape, carried):
            if all_kept:  # `step` keeps them
                return advance(start, shape, carried)
            carry, kept = carried
            kept = _put(kept, row, carry.y)
            return advance(start, shape, (carry, None))[0], kept

        carry = self.lanes.carry(self.lanes.call(self._start, y0, operands))
        if rows is not None:
            cause = self.lanes.call(lambda finite: jnp.full_like(finite, int(Status.nonfinite)), carry.finite)
            carry = carry._replace(cause=self.lanes.carry(cause), saved=rows.blank(carry.y))
        carry = carry._replace(memory=None) if by_kernel else carry  # a kernel starts from the state alone
        pieces = _pieces(self.count, self.counts)
        size = self.count if all_kept else sum(shape[0] for _, _, shape in pieces)
        kept, kept_tail = Buffers.blank(carry.y, max(1, size)) if recorded else None, None
        for row, start, shape in pieces:
            run = _by_blocks(block, row, start, shape)
            carry, kept = for_loop(run, (carry, kept), shape[0], like=operands)
        if self.tail:
            kept_tail = carry.y if recorded else None
            if by_kernel:
                memory = self.lanes.call(
                    self._memory_at, carry.y, self._uniform(jnp.asarray(self.count, jnp.int32)), operands
                )
                carry = carry._replace(memory=memory)
            if rows is None:
                carry = self.lanes.carry(self.lanes.call(self._last_step, carry, operands))
            else:
                carry = self._step_and_save(jnp.full((), self.count, jnp.int32), carry, operands, rows, tail=True)
        kept = None if kept is None else kept.columns()
        result = self._result(carry, operands)
        if rows is not None:
            y0, finite = self.lanes.leave((y0, carry.finite))
            result = result._replace(ys=rows.states(carry.saved, y0, finite))
        return result, (kept, kept_tail, carry.finite)

    def _step_and_save(self, number, carry: _Carry, operands, rows: RowWriter | None, tail=False):
        """Takes a step over lanes and writes what is saved within it; where nothing is, nobody looks at the state."""
        if rows is None:
            y, memory = self.lanes.call(self._step, carry.y, carry.memory, self._uniform(number), operands)
            return self.lanes.carry(_Carry(y, memory, carry.finite))
        step = partial(self._saving_step, tail)
        *found, saved = self.lanes.call(step, *carry[:4], self._uniform(number), operands, rows.weights_of(number))
        return _Carry(*self.lanes.carry(found), rows.write(carry.saved, number, saved))

    def backward(
        self,
        cotangent: Cotangents,
        residuals: PyTree,
        common: Bool[Array, "..."],
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, None]:
        """Carries the cotangent of the end state back; see `AbstractLoop.backward`."""
        rows, operands = self._rows(operands, saves)
        diff, constant = eqx.partition(operands, differentiable, is_leaf=is_value)
        parts, kept_tail, finite = residuals
        kept = Buffers.of(parts)
        counts = [*self._choices, self.counts][
            number_of_shape(common)
        ]  # the levels in which the states were kept, see `forward_recorded`

        shared_cotangents = has_shared_cotangents(self.lanes, self.integrator.stepper, diff)
        pull = partial(self._pull_lanes if shared_cotangents else self._pull_each, finite)
        y_bar, saved_bar, start_bar = cotangent.ys, None, None
        if rows is not None:
            saved_bar, start_bar = rows.cotangents(cotangent.ys)
            y_bar = jax.tree.map(jnp.zeros_like, start_bar)
        like = (operands, saved_bar)

        def step_vjp(number, y, bar, tail=False):
            within = ([], []) if rows is None else (rows.weights_of(number), rows.read(saved_bar, number))
            return pull(bar, within, self._uniform(number), y, diff, constant, tail)

        def unwind(start, shape, y, carry):
            """Goes back through the steps of a block of such a shape, which starts at the state `y`."""
            bar, (between, *deeper) = carry
            size = math.prod(shape[1:])
            between = self._states(between, y, start, shape, operands)

            def iterate(i, carry):
                y = _get(between, i)
                if len(shape) > 1:
                    return unwind(start + i * size, shape[1:], y, carry)
                bar, deeper = carry
                return step_vjp(start + i, y, bar), deeper

            unroll = self._unroll if len(shape) == 1 else 1
            bar, deeper = for_loop(iterate, (bar, deeper), shape[0], reverse=True, unroll=unroll, like=(like, between))
            return bar, [between, *deeper]

        y_bar = self.lanes.carry(self.lanes.enter(y_bar, self.lanes.count is not None))
        zeros = jax.tree.map(jnp.zeros_like, diff)
        # `carry` would give each lane a cotangent of its own of what members share
        bar = (y_bar, zeros if shared_cotangents else self.lanes.carry(zeros))
        if self.tail:
            bar = step_vjp(jnp.full((), self.count, jnp.int32), kept_tail, bar, tail=True)
        if len(counts) == 1:
            bar = for_loop(
                lambda number, bar: step_vjp(number, _get(kept, number), bar),
                bar,
                self.count,
                reverse=True,
                unroll=self._unroll,
                like=(like, kept),
            )
        else:
            between = [Buffers.blank(y_bar, size) for size in counts[1:]]
            for row, start, shape in reversed(_pieces(self.count, counts)):
                inner = slice(1 - len(shape), None)
                run = _by_blocks(
                    lambda row, start, shape, carry: unwind(start, shape, _get(kept, row), carry), row, start, shape
                )
                bar, between[inner] = for_loop(run, (bar, between[inner]), shape[0], reverse=True, like=(like, kept))
        if rows is None and not shared_cotangents:  # else steps of failed members have added zero, see `_taken`
            bar = self.lanes.call(self._unless_failed, bar, finite)
        y_bar = self.lanes.leave(bar[0])
        if start_bar is not None:
            y_bar = jax.tree.map(jnp.add, y_bar, start_bar)
        shared = shared_cotangents and isinstance(self.lanes, Lanes)
        return y_bar, self.lanes.leave_shared(bar[1]) if shared else self.lanes.leave(bar[1]), None

    @property
    def _unroll(self) -> int:
        # XLA copies what one iteration reads and replaces; of two iterations, each writes where the other has read
        return 1 if self.lanes.count is None else PAIR

    def _one_member(self) -> Counted:
        def step(carry, inputs, number):
            y, memory = self._step(carry.y, carry.memory, number, inputs[1])
            return carry._replace(y=y, memory=memory)

        def look(carry, number):
            return carry._replace(finite=count_finite(carry.finite, carry.y, number))

        def result(carry, inputs):
            carry = self._last_step(carry, inputs[1]) if self.tail else carry
            return result_of_steps(carry.y, carry.finite, self.count + self.tail, inputs[1])._replace(executed=None)

        # two nested loops, so that the state is checked after every segment, as in `_forward`
        counts = _checkpoint_levels.split(self.count, 2, multiple=PAIR)
        pieces = _checkpoint_levels.pieces(self.count, counts if len(counts) > 1 else (1, self.count))
        segments = tuple((first, math.prod(shape[:-1]), shape[-1]) for first, shape in pieces)
        return Counted(lambda inputs: self._start(*inputs), step, look, result, segments)

    def _states(self, rows, y, start, shape, operands):
        """Returns rows of the states before each step, or block of steps, of a block of such a shape."""

        def step(number, carry):
            return self.lanes.carry(self.lanes.call(self._step, *carry, self._uniform(number), operands))

        def advance(start, shape, carry):
            if not shape:
                return step(start, carry)
            size = math.prod(shape[1:])
            return for_loop(
                lambda i, carry: advance(start + i * size, shape[1:], carry), carry, shape[0], like=operands
            )

        def iterate(i, carried):
            carry, rows = carried
            return advance(start + i * size, shape[1:], carry), _put(rows, i, carry[0])

        size = math.prod(shape[1:])
        memory = self.lanes.call(self._memory_at, y, self._uniform(start), operands)
        unroll = self._unroll if len(shape) == 1 else 1
        return for_loop(iterate, (self.lanes.carry((y, memory)), rows), shape[0], unroll=unroll, like=operands)[1]

    def _uniform(self, number: Array):
        return self.lanes.enter(step_number(number), False)

    def _start(self, y0, operands):
        memory = self.integrator.stepper.init(self.integrator.bound(operands), operands.t0, y0)
        return _Carry(y0, memory, jnp.zeros((), jnp.int32))

    def _last_step(self, carry, operands):
        y = self._advance(carry.y, carry.memory, jnp.full((), self.count, jnp.int32), operands, True)[0]
        return _Carry(y, carry.memory, count_finite(carry.finite, y, jnp.full((), self.count + 1, jnp.int32)))

    def _saving_step(self, tail, y, memory, finite, cause, number, operands, weights):
        """Returns what is carried after a step, and the states within it with such weights."""
        field, time, h = self._place(number, operands, tail)
        step = take_step(self.integrator.stepper, field, time, h, y, memory)
        cause = jnp.where(finite == number, cause_of(cause, step), cause)  # later ones start from what is not finite
        finite = count_finite(finite, step.y1, number + 1)
        return step.y1, step.memory, finite, cause, weighted(weights, y, step.y1, step.dense)

    def _place(self, number, operands, tail):
        """Returns vector field, time and signed length of a step."""
        elapsed = number.astype(operands.dt.dtype) * operands.dt  # from the number, so that time does not drift
        h = operands.span - elapsed if tail else operands.dt
        return (
            self.integrator.bound(operands, not tail),  # tables are for steps of length `dt`
            self.integrator.time(elapsed, operands),
            operands.direction * h,
        )

    def _advance(self, y, memory, number, operands, tail):
        step = take_step(self.integrator.stepper, *self._place(number, operands, tail), y, memory)
        return step.y1, step.memory

    def _step(self, y, memory, number, operands):
        return self._advance(y, memory, number, operands, False)

    def _steps_by_kernel(self, length, y, number, operands):
        """Takes `length` steps by a kernel; derivatives by JAX go through the same steps one by one."""

        @jax.custom_jvp
        def run(y, number, operands):
            field, time, h = self._place(number, operands, False)
            assert self.stencil_steps is not None
            return self.stencil_steps.advance(field, operands.field, time, h, y, length)

        @run.defjvp
        def _(primals, tangents):
            return jax.jvp(partial(self._one_by_one, length), primals, tangents)

        return run(y, number, operands)

    def _one_by_one(self, length, y, number, operands):
        def step(carry, number):
            return self._advance(*carry, number, operands, False), None

        numbers = number + jnp.arange(length, dtype=jnp.int32)
        return scan(step, (y, self._memory_at(y, number, operands)), numbers, like=operands)[0][0]

    def _memory_at(self, y, number, operands):
        time = self.integrator.time(number.astype(operands.dt.dtype) * operands.dt, operands)
        return self.integrator.stepper.init(self.integrator.bound(operands), time, y)

    def _step_again(self, tail, y, diff, number, constant, weights):
        field, time, h = self._place(number, eqx.combine(diff, constant), tail)
        step = step_for_vjp(self.integrator.stepper, field, time, h, y)
        return step.y1, weighted(weights, y, step.y1, step.dense)

    def _pull_each(self, finite, bar, within, number, y, diff, constant, tail):
        """Carries the cotangents of every member back through its own step."""
        pull = partial(self._pull, tail)
        return self.lanes.carry(self.lanes.call(pull, bar, finite, *within, number, y, diff, constant))

    def _pull(self, tail, bar, finite, weights, saved_bar, number, y, diff, constant):
        y_bar, diff_bar = bar
        _, pull = jax.vjp(lambda y, diff: self._step_again(tail, y, diff, number, constant, weights), y, diff)
        found, more = pull((y_bar, saved_bar))
        if weights:  # a member's cotangents begin at the last step that it took
            taken = self._taken(finite, number, True)
            found, more = (jax.tree.map(lambda x: jnp.where(taken, x, jnp.zeros_like(x)), x) for x in (found, more))
        return found, jax.tree.map(jnp.add, diff_bar, more)

    def _pull_lanes(self, finite, bar, within, number, y, diff, constant, tail):
        """The same, with one cotangent for all members of what they share; steps not taken add zero to it."""
        assert isinstance(self.lanes, Lanes)
        weights, saved_bar = within
        taken = self.lanes.leave(self.lanes.call(partial(self._taken, saves=bool(weights)), finite, number))
        step = partial(self._step_again, tail)
        y_bar, more = pull_back(self.lanes, step, taken, (bar[0], saved_bar), y, diff, number, constant, weights)
        return y_bar, jax.tree.map(jnp.add, bar[1], more)

    def _taken(self, finite, number, saves):
        """Whether a step counts: of a member that failed, those before it did if states are saved there, else none."""
        return number < finite if saves else finite == self.count + self.tail

    def _unless_failed(self, bar, finite):
        """Sets a failed member's cotangents to zero, as in its result: its steps would make them NaN."""
        good = finite == self.count + self.tail
        return jax.tree.map(lambda x: jnp.where(good, x, jnp.zeros_like(x)), bar)

    def _result(self, carry: _Carry, operands) -> Result:
        def result(y, finite, cause, operands):
            return result_of_steps(y, finite, self.count + self.tail, operands, cause)

        return Result(*self.lanes.leave(self.lanes.call(result, carry.y, carry.finite, carry.cause, operands)))


def _pieces(steps: int, counts: tuple[int, ...]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Returns for each piece of the scan its first kept row, its first step and the shape of its nested blocks."""
    if len(counts) == 1:
        counts = _checkpoint_levels.split(steps, 2, multiple=PAIR)  # every state is kept; checks come after segments
    counts = counts if len(counts) > 1 else (1, steps)
    found, row = [], 0
    for start, shape in _checkpoint_levels.pieces(steps, counts):
        shape = shape if len(shape) == len(counts) else (1, *shape)
        found.append((row, start, shape))
        row += shape[0]
    return found


def _by_blocks(block: Callable, row: int, start: int, shape: tuple[int, ...]) -> Callable:
    """Returns `(i, carry) -> carry`, which runs block `i` of a piece."""
    return lambda i, carry: block(row + i, start + i * math.prod(shape[1:]), shape[1:], carry)


def _put(rows: Buffers | None, row: Array, y: PyTree) -> Buffers | None:
    return None if rows is None else rows.write(row, rows.pack(y))


def _get(rows: Buffers, row: Array) -> PyTree:
    return rows.unpack(rows.read(row))


# The outcome of a member that takes a known number of equal steps, after some of which it may not be finite.


def result_of_steps(y: PyTree, finite: Array, count: int, operands: Operands, cause: Array | None = None) -> Result:
    """Returns the result of `count` equal steps of a member, whose state was finite after `finite` of them.

    Args:
        y: The state after all of them.
        finite: After how many it was still finite.
        count: Their number.
        operands: The inputs of the integration.
        cause: The status where one failed, given where steps after that count as not taken; None to count them all.
    """
    assert operands.dt is not None  # equal steps have their size
    good = finite == count
    failed = jnp.full_like(finite, int(Status.nonfinite)) if cause is None else cause
    status = jnp.where(good, int(Status.successful), failed).astype(jnp.int32)
    elapsed = jnp.where(good, operands.span, finite.astype(operands.span.dtype) * operands.dt)
    executed = jnp.full_like(finite, count)
    if cause is None:
        return Result(known(y, good), status, elapsed, executed, jnp.zeros_like(finite), executed)
    return Result(known(y, good), status, elapsed, finite, (~good).astype(finite.dtype), executed)


def count_finite(finite: Array, y: PyTree, number: Array) -> Array:
    """Returns the number of steps after which the state was still finite, given that before and the last step's."""
    ok = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(y)]).all()
    return jnp.where(ok, number, finite)
