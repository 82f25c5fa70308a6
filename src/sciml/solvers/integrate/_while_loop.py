"""The loop whose number of steps is not known: until the last member has reached its end.

`forward` steps until every member is done; `forward_recorded` also keeps what `backward` needs to
run the accepted steps again from last to first and carry the cotangents through them.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ..._choices import choices
from ..._jax._checkpoint_levels import Budget
from ..._jax._loops import scan_to_end, while_loop
from ..._jax._marks import chosen
from ..._jax._platform import default_platform
from ..._jax._shapes_of_one import shapes_are_those_of_one
from ..._jax._shards import parts_of_members
from ..._jax._vma import struct, to_varying, vma_of
from ..._status import Status
from ...kernels._backends import XLA, KernelRequest
from ...kernels._lanes import Lanes, Unbatched, is_value
from ...kernels.ensemble._columns import Moving, with_columns
from ...kernels.ensemble._member import UntilDone
from ..events._event_state import EventState, ShiftedState, joined, saved_part
from ..events._with_events import WithEvents
from ._abstract import AbstractLoop, FixedSteps, check_lane_values
from ._ensemble_kernel import columns_by_kernel, moving_part, run_by_kernel, until_done
from ._happenings import fewest
from ._integrator import Checkpoint, Integrator, Operands, State, StepRecord
from ._lane_integrator import LaneIntegrator
from ._recompute import LoopCounts, Recomputation, Residuals, StepRecords, backward_pass
from ._result import Cotangents, KeptCotangent, Result, Saves
from ._saved_times import SavedStates, run_free
from ._step_vjp import Bars, StepVjp, share_much
from ._work import work_of, work_of_field


class AdaptiveLoop(AbstractLoop):
    """Steps until every member has reached its end, with error control or with saved times between the steps.

    Attributes:
        integrator: How one member is advanced.
        lanes: The engine.
        max_steps: The limit on attempted steps of a member.
        slopes: Whether saved times are differentiated.
        slots: The records of how many of the last steps are kept for the backward pass, a power of two.
        fixed: The fixed steps that it takes, where it has no error control and their number is known.
        impl: The backend for many members: "xla", or the requested kernel.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched
    max_steps: int = eqx.field(static=True)
    slopes: bool = eqx.field(static=True)
    slots: int = eqx.field(static=True, default=16)
    fixed: FixedSteps | None = eqx.field(static=True, default=None)
    impl: KernelRequest = eqx.field(static=True, default=XLA)

    @property
    def stepping(self) -> LaneIntegrator:
        """The transformation of the loop over lanes."""
        return LaneIntegrator(self.integrator, self.lanes)

    def of_one(self) -> "AdaptiveLoop":
        """Returns the loop for a single member; see `Integrator.of_one`."""
        return dataclasses.replace(self, integrator=self.integrator.of_one()[0])

    def over(self, lanes: Lanes | Unbatched, state_bytes: int, budget: Budget) -> "AdaptiveLoop":
        """Returns the loop over other lanes, which keeps as many step records as the budget allows.

        Args:
            lanes: The engine.
            state_bytes: The size of one member's state.
            budget: How much may be recorded; its `segments` are step records.

        Raises:
            ValueError: If levels are asked for: the number of steps is not known.
        """
        if budget.levels is not None:
            raise ValueError(
                f"`Checkpointed(levels={budget.levels})` requires a constant number of steps: `dt`, `t0`, `t1` and "
                "`saveat` as numbers, and no tolerances. Otherwise use `memory` or `segments`."
            )
        if budget.segments is not None:
            slots = max(choices().checkpoints.at_least, _power_of_two(budget.segments))
            return dataclasses.replace(self, lanes=lanes, slots=slots)
        table, members = choices().checkpoints, lanes.count or 1
        if members * table.records_at_most * state_bytes <= table.like_one_at_most and shapes_are_those_of_one():
            members = 1
        size = 2 * state_bytes * members * parts_of_members()
        slots = _power_of_two(min(budget.memory, table.zeroed_at_most) / size) // 2
        if self.integrator.stepper.traits.is_costly(state_bytes):
            most = table.expensive_records
            most *= 1 if most * size > table.zeroed_at_most else 2
            slots = max(slots, min(_power_of_two(budget.memory / size) // 2, most))
        most = table.records_at_most  # for one member too: see `Buffers.columns`
        slots = max(table.at_least, min(most, slots, _power_of_two(self.max_steps)))
        return dataclasses.replace(self, lanes=lanes, slots=slots)

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Integrates every member to the end; `y0` and `operands` are lane values."""
        check_lane_values(self.lanes, y0)

        def by_xla(y0, operands, saves):
            return self._forward(y0, operands, saves, False)[0]

        def member():
            return until_done(self.integrator, Result, saves is not None)

        if self.impl == XLA:
            return by_xla(y0, operands, saves)
        return run_by_kernel(self.impl, self.lanes, member, by_xla, y0, operands, saves)

    def forward_with_columns(
        self, y0: PyTree, operands: Operands, saves: Saves | None, perturbed: tuple[bool, ...]
    ) -> Any:
        """Returns how every member is integrated with their derivatives, by a kernel where that is asked for."""
        member = until_done(self.integrator, Result, saves is not None)
        if self.impl == XLA:
            return self._columns_over_lanes(member, y0, operands, perturbed)
        return columns_by_kernel(self.impl, self.lanes, member, perturbed, y0, operands, saves)

    def _columns_over_lanes(
        self, member: UntilDone, y0: PyTree, operands: Operands, perturbed: tuple[bool, ...]
    ) -> Any:
        if isinstance(y0, EventState) or self._continues(operands) or self.integrator.collective.axes:
            return None
        assert isinstance(self.lanes, Lanes)  # what `Forward` runs over
        found = columns_over_lanes(self.lanes, member, moving_part, perturbed, y0, operands)
        if found is None:
            return None

        def solved(y0: PyTree, operands: Operands, saves: Saves | None) -> tuple[Result, PyTree]:
            with chosen("checkpoints.columns_work_at_most"):
                number, state, ys, columns = found(y0, operands, saves)
            return self._result(state, ys, number, operands), columns

        return solved

    def forward_with_slopes(self, y0: PyTree, operands: Operands, saves: Saves) -> tuple[Result, PyTree]:
        """Integrates every member to the end, and also returns the time derivatives of the saved states."""
        return self._forward(y0, operands, saves, True)

    def _forward(self, y0, operands, saves, slopes):
        stepping = self.stepping

        def until(carry, target, left=0):
            with _steps_at_a_time(at_a_time):
                return while_loop(
                    lambda carry: stepping.any_pending(carry[1], target, left),
                    lambda carry: (carry[0] + steps, stepping.advance(carry[1], operands, target, steps)),
                    carry,
                    like=(operands, target),
                    collective=self.integrator.collective.axes,
                    at_a_time=at_a_time,
                )

        at_a_time, steps = self._at_a_time(y0, operands) if saves is None else 1, 1
        if isinstance(y0, EventState):  # what has events is gathered after both
            at_a_time, steps = 1, at_a_time
        carry = (jnp.zeros((), jnp.int32), stepping.start(y0, operands))
        many = self.lanes.count is not None  # one member waits for nobody, and has the bits that `simulate` has
        if saves is not None and many and self._free(y0, operands, saves, slopes, False):
            with chosen("saves.step_work"):
                return self._run_free((*carry, None), y0, operands, saves)[0], None
        if saves is None:
            alone = self.lanes.count is None or self.integrator.collective.axes or self._continues(operands)
            left = 0 if alone or isinstance(y0, EventState) else compacted_lanes(self.lanes, operands)
            iterations, state = until(carry, operands.span, left)
            if left:
                with chosen("compaction.members_from"):
                    return integrate_compacted(stepping, left, iterations, state, operands, self.judges), None
            return self._result(state, stepping.end(state, operands), iterations, operands), None

        def advance(carry, time, beyond):
            return until(carry, stepping.stop(time, saves, operands, beyond))

        def save(carry, time):
            target = stepping.target(time, saves)
            slope = stepping.slope(carry[1], operands, target) if slopes else None
            return stepping.saved(carry[1], operands, target), slope

        # one loop to every saved time and on to the end: its body is compiled once
        (iterations, state), (ys, slopes) = scan_to_end(advance, save, carry, saves.times, like=operands)
        return self._result(state, stepping.with_rest(ys, state), iterations, operands), slopes

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, Residuals, LoopCounts]:
        """Integrates every member to the end and keeps what `backward` needs."""
        stepping = self.stepping
        start = self.lanes.leave(y0)
        carry = self._first(y0, operands)
        if saves is not None and self._free(y0, operands, saves, self.slopes, True):
            with chosen("saves.step_work"):
                result, kept, counts = self._run_free(carry, y0, operands, saves)
            assert kept is not None  # as it was in the carry
            return result, Residuals(kept.rows.columns(), start, None), counts

        at_a_time = self._at_a_time(y0, operands, True) if saves is None else 1

        def until(carry, target):
            def iterate(carry):
                number, state, kept = carry
                state, step_record = stepping.attempt(state, operands, target)
                return number + 1, state, kept.write(number, step_record)

            return self._loop(
                lambda c: stepping.any_pending(c[1], target),
                iterate,
                carry,
                (operands, target),
                at_a_time,
            )

        if saves is None:
            number, state, kept = until(carry, operands.span)
            result = self._result(state, stepping.end(state, operands), number, operands)
            return result, Residuals(kept.rows.columns(), start, None), LoopCounts(number, number)

        def advance(carry, time, beyond):
            return until(carry, stepping.stop(time, saves, operands, beyond))

        def save(carry, time):
            number, state, _ = carry
            target = stepping.target(time, saves)
            # after an event the states depend on its time
            slope = stepping.slope(state, operands, target) if self.slopes or isinstance(y0, EventState) else None
            return stepping.saved(state, operands, target), number, slope

        hands_out = self.integrator.hands_out
        carry, (ys, after, slopes) = scan_to_end(advance, save, carry, saves.times, like=operands)
        number, state, kept = carry
        residuals = Residuals(kept.rows.columns(), start, slopes)
        result = self._result(state, stepping.with_rest(ys, state), number, operands)
        return result, residuals, LoopCounts(number, number if hands_out else after[-1])

    @property
    def judges(self) -> bool:
        """Whether members that come to the limit of steps are asked whether they are stiff; kernels do not ask."""
        return self.impl == XLA and limit_of(self.integrator) is not None

    def _result(self, state: State, ys: PyTree, iterations: Array, operands: Operands) -> Result:
        result = self.stepping.result(state, ys, iterations)
        return result._replace(stiff=stiffness(self.stepping, state, operands)) if self.judges else result

    def _continues(self, operands: Operands) -> bool:
        """Whether it goes on where another loop ended, or another goes on after it."""
        return self.integrator.hands_out or operands.resume is not None

    def _free(self, y0: PyTree, operands: Operands, saves: Saves, slopes: bool, recorded: bool) -> bool:
        return not slopes and not self._continues(operands) and run_free(self.stepping, y0, operands, saves, recorded)

    def _first(self, y0: PyTree, operands: Operands) -> tuple[Array, State, StepRecords]:
        """Returns the carry before the first iteration, with space for the records of steps."""
        state = self.stepping.start(y0, operands)
        records = StepRecords.blank(self.stepping.shapes_of_record(state, operands), self.slots)
        carry = (jnp.zeros((), jnp.int32), state, records)
        return to_varying(carry, vma_of((state, operands)))  # the record is made of zeros, which vary over no axis

    def _loop(self, cond: Callable, body: Callable, carry: Any, like: PyTree, at_a_time: int = 1) -> Any:
        axes = self.integrator.collective.axes
        with _steps_at_a_time(at_a_time):
            return self.stepping.while_loop(cond, body, carry, like=like, collective=axes, at_a_time=at_a_time)

    def _at_a_time(self, y0: PyTree, operands: Operands, recorded: bool = False) -> int:
        """Returns how many steps an iteration tries: two, where a step takes little more than to copy members.

        XLA copies what an iteration reads and replaces; of two steps, each writes where the other has read. And an
        iteration of few calls that depend on one another stays on its thread, whose passes over memory all cores share.
        With events, members are gathered after both; not if steps are recorded, each with its own events.

        Args:
            y0: The initial state, lane values.
            operands: Lane values.
            recorded: Whether steps are recorded.
        """
        stepper, axes = self.integrator.stepper, self.integrator.collective.axes
        y = y0.saved.y if isinstance(y0, EventState) else y0
        many = fewest(stepper) if isinstance(stepper, WithEvents) else choices().loops.two_steps_from
        if self.lanes.count is None or self.lanes.count < many or axes or default_platform() != "cpu":
            return 1
        if isinstance(stepper, WithEvents):
            stepper = stepper.base
            if stepper.traits.jumps or recorded:
                return 1
        if stepper.evaluations <= 0 or stepper.traits.is_costly(0):
            return 1
        work = stepper.evaluations * work_of_field(self.integrator.field, y, operands)
        return 2 if work <= choices().loops.two_steps_work_at_most else 1

    def _run_free(
        self, first: tuple[Array, State, StepRecords | None], y0: PyTree, operands: Operands, saves: Saves
    ) -> tuple[Result, StepRecords | None, LoopCounts]:
        """Runs all members to the end, none of which waits for others at saved times; see `_saved_times`.

        Args:
            first: The number of iterations, the state, and the space for records of steps, None where none is kept.
            y0: The initial state, lane values.
            operands: Lane values.
            saves: The saved times.
        """
        stepping, saved = self.stepping, SavedStates(self.stepping, operands, saves)
        last = stepping.target(saves.times[-1], saves)

        def iterate(carry):
            (number, state, kept), counting, ys = carry
            if kept is not None:
                counting = jnp.where(stepping.any_pending(state, last), number + 1, counting)
            state, step_record = stepping.attempt(state, operands, operands.span)
            kept = None if kept is None else kept.write(number, step_record)
            return (number + 1, state, kept), counting, saved.fill(ys, state)

        carry = (first, jnp.zeros((), jnp.int32), saved.blank(y0))
        carry = to_varying(carry, vma_of((carry, operands, saves)))
        (number, state, kept), counting, ys = self._loop(
            lambda c: stepping.any_pending(c[0][1], operands.span),
            iterate,
            carry,
            (operands, saves),
            self._at_a_time(y0, operands, True),
        )
        return self._result(state, ys, number, operands), kept, LoopCounts(number, counting)

    def backward(
        self,
        cotangent: Cotangents,
        residuals: Residuals,
        common: LoopCounts,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, PyTree]:
        """Carries the cotangents back through the recorded steps; see `AbstractLoop.backward`."""
        stepping, lanes = self.stepping, self.lanes
        vjp = StepVjp.of(stepping, operands, differentiable, saves is not None)
        slots = jax.tree.leaves(residuals.step_records)[0].shape[0]
        checkpoints = max(choices().checkpoints.at_least, min(slots // 4, _power_of_two(self.max_steps) // slots))
        recomputation = Recomputation(stepping, operands, saves, slots, checkpoints)
        y0 = stepping.enter(residuals.y0)
        kept = None if cotangent.kept is None else stepping.enter(cotangent.kept)

        def step_back(bar: Bars, step_record: StepRecord) -> Bars:
            return self._with_kept(vjp.step(bar, step_record), kept, step_record.from_kept)

        if saves is None:
            bar = Bars(lanes.carry(stepping.enter(cotangent.ys)), None, vjp.zeros())
            bar = backward_pass(recomputation, residuals, common, y0, self._with_kept(bar, kept), step_back)
            return lanes.leave(bar.y), vjp.leave(bar.diff), None
        saved = SavedStates(stepping, operands, saves)
        whole, cotangent = cotangent.ys, saved_part(cotangent.ys)
        if isinstance(cotangent, ShiftedState):  # a state at a given time is one of so much earlier after a later event
            assert residuals.slopes is not None  # see `forward_recorded`
            later = sum(jax.tree.leaves(jax.tree.map(self._inner, cotangent.y, residuals.slopes.y)))
            (direction,) = lanes.leave((operands.direction,))
            cotangent = cotangent._replace(
                shift=cotangent.shift - (direction[None] * later).astype(cotangent.shift.dtype)
            )
        first = vjp.blank(stepping.enter(joined(jax.tree.map(lambda c: c[0], cotangent), whole)))
        if isinstance(whole, EventState):
            first = first._replace(y=first.y._replace(rest=lanes.carry(stepping.enter(whole.rest))))
        first = self._with_kept(first, kept)
        if self._free(y0, operands, saves, self.slopes, True):
            carry = first, saved.after_all()

            def back(carry, step_record):
                bar, end = carry
                y_bar, dense_bar = saved.pull(cotangent, step_record, end)
                bar = bar._replace(y=self._sum(bar.y, y_bar), dense=lanes.carry(dense_bar))
                return step_back(bar, step_record), saved.before(step_record, end)

        else:
            carry, rows = (first, saved.all_left()), saved.side_by_side(cotangent)

            def back(carry, step_record):
                def add(carry):
                    bar, left = carry
                    used, time, row = saved.next_within(left, step_record, cotangent, rows)
                    inside = (step_record.elapsed, step_record.h)
                    bar = vjp.saved(bar, stepping.enter(row), inside, stepping.enter(time), stepping.enter(used))
                    return bar, left - used.astype(left.dtype)

                def more(carry):
                    return jnp.any(saved.next_within(carry[1], step_record, (), ())[0])

                bar, left = self._loop(more, add, carry, (operands, saves, cotangent, step_record))
                return step_back(bar, step_record), left

        bar, _ = backward_pass(recomputation, residuals, common, y0, carry, back)
        times_bar = None
        if self.slopes:
            products = jax.tree.map(self._inner, cotangent, residuals.slopes)
            times_bar = sum(jax.tree.leaves(products))
        y_bar = joined(self._sum(saved_part(bar.y), saved.at_start(cotangent)), bar.y)
        return lanes.leave(y_bar), vjp.leave(bar.diff), times_bar

    def _with_kept(self, bar: Bars, kept: KeptCotangent | None, here: Any = None) -> Bars:
        """Returns cotangents that include the cotangent of the state that a later solve resumes from.

        Args:
            bar: The cotangents.
            kept: That cotangent, lane values.
            here: The cotangents of that state; by default used if that is the state at the end.
        """
        if kept is None:
            return bar

        def add(y_bar, kept_bar, here):
            return jax.tree.map(lambda x, k: x + jnp.where(here, k, jnp.zeros_like(k)), y_bar, kept_bar)

        here = self.lanes.call(jnp.logical_not, kept.passed) if here is None else here
        return bar._replace(y=self.lanes.carry(self.lanes.call(add, bar.y, kept.y, here)))

    def _sum(self, a: PyTree, b: PyTree) -> PyTree:
        return self.lanes.carry(self.lanes.call(lambda a, b: jax.tree.map(jnp.add, a, b), a, b))

    def _inner(self, cotangent: Array, slope: Array) -> Array:
        axes = tuple(range(1, cotangent.ndim - (self.lanes.count is not None)))
        return jnp.sum(jnp.real(cotangent * slope), axis=axes)


def _steps_at_a_time(count: int) -> contextlib.AbstractContextManager:
    return contextlib.nullcontext() if count == 1 else chosen("loops.two_steps_from")


def _power_of_two(x: float) -> int:
    """Returns the next power of two."""
    return 2 ** max(0, math.ceil(math.log2(max(x, 1))))


# An integration over lanes with the columns of its derivatives, where a step and all of them are a short program.
#
# JAX's forward mode of the loop makes passes over memory for each step, and as many again for its tangents. Here a step
# and its tangents along all columns are one function of a member, and therefore one pass over lanes, like a single
# step.


def columns_over_lanes(
    lanes: Lanes,
    loop: UntilDone,
    moving: Moving,
    perturbed: tuple[bool, ...],
    y0: PyTree,
    operands: Operands,
) -> Callable[..., tuple[Array, PyTree, PyTree, PyTree]] | None:
    """Returns how many members are integrated with their derivatives; None where a step is a long program.

    Args:
        lanes: The engine.
        loop: The loop of one member.
        moving: The parts of its state that depend on the differentiated values.
        perturbed: The leaves of `(y0, operands)` that are differentiated, by each of their numbers.
        y0: The initial state, lane values.
        operands: Lane values.

    Returns:
        A function of initial state, operands and saves, lane values like these, that returns the number of iterations,
        the state at the end as lane values, and the states to be returned and their columns, as arrays with members
        last and columns first.
    """
    axes = vma_of((y0, operands))
    sizes = [math.prod(v.shape) for v in jax.tree.leaves((y0, operands), is_leaf=is_value)]
    columns = sum(size for size, moved in zip(sizes, perturbed, strict=True) if moved)
    most = choices().checkpoints.columns_work_at_most
    if columns * sum(math.prod(v.shape) for v in jax.tree.leaves(y0, is_leaf=is_value)) > most // 50:
        return None  # which a step takes as many operations for each of, at least
    one = jax.tree.map(lambda v: struct(v.shape, v.dtype, axes), (y0, operands), is_leaf=is_value)
    both = with_columns(loop, one, perturbed, moving, lambda result: result.ys)
    if work_of(lambda inputs: both.advance(both.start(inputs), inputs, both.end(inputs)), one) > most:
        return None

    def solved(y0: PyTree, operands: Operands, saves: Saves | None) -> tuple[Array, PyTree, PyTree, PyTree]:
        inputs = (y0, operands)
        end = lanes.call(both.end, inputs)

        def until(carry: Any, target: PyTree) -> Any:
            def going(carry: Any) -> Array:
                return jnp.any(lanes.leave(lanes.call(both.pending, carry[1], target)))

            def iterate(carry: Any) -> Any:
                number, state = carry
                return number + 1, lanes.carry(lanes.call(both.advance, state, inputs, target))

            return while_loop(going, iterate, carry, like=(inputs, target))

        carry = jnp.zeros((), jnp.int32), lanes.carry(lanes.call(both.start, inputs))
        if saves is None:
            number, state = until(carry, end)
            result, columns = lanes.leave(lanes.call(both.result, state, inputs))
            return number, state[0], result.ys, columns
        batched = saves.batched

        def advance(carry: Any, time: Array, beyond: Array) -> Any:
            choose = lambda beyond, time, end: jnp.where(beyond, end, time)  # noqa: E731
            return until(carry, lanes.call(choose, lanes.enter(beyond, False), lanes.enter(time, batched), end))

        def save(carry: Any, time: Array) -> PyTree:
            return lanes.leave(lanes.call(both.saved, carry[1], inputs, lanes.enter(time, batched)))

        (number, state), (ys, columns) = scan_to_end(advance, save, carry, saves.times, like=inputs)
        return number, state[0], ys, jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), columns)

    return solved


# The last members of an ensemble: where a step is slow, they go on over fewer lanes.
#
# In lockstep every lane executes the steps of the slowest member. With a network as vector field a step is far more
# work than to see which members are done. So once no more than a quarter of the members are left, these are moved to as
# many lanes, and integrated to their end there. Their steps are the same.


def compacted_lanes(lanes: Lanes | Unbatched, operands: Operands) -> int:
    """Returns over how many lanes the last members are integrated; zero where they stay where they are.

    Args:
        lanes: The engine.
        operands: Lane values. Large values shared by all members, such as the weights of a network, make steps slow.
    """
    table = choices().compaction
    if not isinstance(lanes, Lanes) or lanes.count is None or lanes.count < table.members_from:
        return 0
    if default_platform() != "cpu" or not share_much(operands.field):
        return 0
    multiple = table.lanes_multiple
    return math.ceil(lanes.count / table.share / multiple) * multiple


def integrate_compacted(
    stepping: LaneIntegrator, width: int, iterations: Int[Array, ""], state: State, operands: Operands, judges: bool
) -> Result:
    """Integrates the members that are left to their end.

    Args:
        stepping: The steps over all members.
        width: The number of lanes, at least the number of remaining members.
        iterations: The number of iterations so far.
        state: The integration of all members, lane values.
        operands: Lane values.
        judges: Whether members that come to the limit of steps are asked whether they are stiff.

    Returns:
        The result of all members.
    """

    def result(stepping: LaneIntegrator, iterations: Array, state: State, operands: Operands) -> Result:
        found = stepping.result(state, stepping.end(state, operands), iterations)
        return found._replace(stiff=stiffness(stepping, state, operands)) if judges else found

    assert isinstance(stepping.lanes, Lanes)  # which has more members than are left
    results = result(stepping, iterations, state, operands)
    count = stepping.lanes.count
    # a lane without a member repeats one, and its result is dropped: its number is out of range
    member = jnp.nonzero(stepping.pending(state, operands.span), size=width, fill_value=count)[0].astype(jnp.int32)
    few = dataclasses.replace(stepping, lanes=dataclasses.replace(stepping.lanes, count=width))
    state, operands = few.lanes.carry(stepping.lanes.take(state, member)), stepping.lanes.take(operands, member)

    def iterate(carry: tuple[Array, State]) -> tuple[Array, State]:
        number, state = carry
        return number + 1, few.advance(state, operands, operands.span)

    def pending(carry: tuple[Array, State]) -> Array:
        return few.any_pending(carry[1], operands.span)

    iterations, state = while_loop(pending, iterate, (iterations, state), like=operands)
    found = result(few, iterations, state, operands)
    return jax.tree.map(lambda all, new: all.at[..., member].set(new, mode="drop"), results, found)


# Whether members that came to the limit of steps took these as long as their method is stable for.
#
# Nothing is asked of a loop's steps, which would cost each of them something. Only for members that have stopped, some
# products with the Jacobian $J$ at their final state, by finite differences, show its largest eigenvalue,
#
# $$\rho \approx \left( \frac{|J^{2k} v|}{|J^k v|} \right)^{1 / k},$$
#
# also where that is one of a pair that turns. A step $h$ with $h \rho$ near the end of the method's stability on the
# negative axis is not what tolerances ask for: the equation is stiff.


_HALF = 8
"""The number of products before the ones that count, and the number of those."""

_NEAR = 0.6
"""From this part of a method's stability on: steps that stability limits grow beyond it, fail, and are shortened."""


def limit_of(integrator: Integrator) -> float | None:
    """Up to where a method is stable on the negative axis; None where no steps are chosen, or stability limits none."""
    stability = integrator.stepper.limits.stability()
    if integrator.control is None or integrator.collective.axes or stability is None:
        return None
    return stability.real if 0 < stability.real < math.inf else None


def stiffness(stepping: LaneIntegrator, state: State, operands: Operands) -> Int[Array, "*members"]:
    """Returns one if steps reached their limit while stability limited them, otherwise zero.

    Args:
        stepping: The steps over lanes, of a method with a limit, see `limit_of`.
        state: The final state of the loop, lane values.
        operands: Lane values.
    """
    integrator, lanes, limit = stepping.integrator, stepping.lanes, limit_of(stepping.integrator)
    assert limit is not None  # as it was asked before
    checkpoint = state.checkpoint._replace(y=saved_part(state.checkpoint.y))
    here, operands = jax.lax.stop_gradient((checkpoint, operands))

    def stopped(here: Checkpoint) -> Array:
        return here.status == int(Status.max_steps_reached)

    def first(y: PyTree) -> tuple[PyTree, Array]:
        return _direction(y), jnp.zeros((), _real_dtype(y))

    def product(direction: PyTree, growth: Array, counts: Array, here: Checkpoint, operands: Operands) -> Any:
        return _product(integrator, direction, growth, counts, here, operands)

    def iterate(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        number, found = carry
        counts = stepping.shared(number >= _HALF)
        return number + 1, lanes.carry(lanes.call(product, *found, counts, here, operands))

    def verdict(growth: Array, here: Checkpoint) -> Array:
        near = here.h * jnp.exp(growth / _HALF).astype(here.h.dtype) > _NEAR * limit
        return (stopped(here) & near).astype(jnp.int32)

    any_stopped = jnp.any(lanes.leave(lanes.call(stopped, here)))
    start = lanes.carry(lanes.call(first, here.y))
    # a loop of no iterations instead of a conditional, which would copy what it reads
    _, (_, growth) = while_loop(
        lambda carry: any_stopped & (carry[0] < 2 * _HALF),
        iterate,
        (jnp.zeros((), jnp.int32), start),
        like=(here, operands, any_stopped),
    )
    return lanes.leave(lanes.call(verdict, growth, here))


def _product(
    integrator: Integrator, direction: PyTree, growth: Array, counts: Array, here: Checkpoint, operands: Operands
) -> tuple[PyTree, Array]:
    """Returns the Jacobian times a direction, scaled to one, and the logarithm of what the products have grown by."""
    field, time = integrator.bound(operands), integrator.time(here.elapsed, operands)
    # a difference, since a field may have no forward mode, for example with a custom reverse-mode rule or a host call
    here_size = _norm(here.y)
    step = jnp.sqrt(jnp.finfo(here_size.dtype).eps) * jnp.where(here_size > 0, here_size, jnp.ones_like(here_size))
    moved = jax.tree.map(lambda y, v: y + step.astype(y.dtype) * v, here.y, direction)
    image = jax.tree.map(lambda a, b: (a - b) / step.astype(a.dtype), field(time, moved), field(time, here.y))
    size = _norm(image)
    remains = size > 0
    size = jnp.where(remains, size, jnp.ones_like(size))
    image = jax.tree.map(lambda x: x / size.astype(x.dtype), image)
    # where nothing is left there is no eigenvalue but zero
    larger = jnp.where(remains, growth + jnp.log(size), jnp.full_like(growth, -jnp.inf))
    return image, jnp.where(counts, larger, growth)


def _direction(y: PyTree) -> PyTree:
    """Returns a direction that has something of every eigenvector."""

    def part(x: Array) -> Array:
        return jnp.reshape(jnp.asarray(np.cos(np.arange(x.size)), x.dtype), x.shape) + jnp.zeros_like(x)

    direction = jax.tree.map(part, y)
    size = _norm(direction)
    return jax.tree.map(lambda x: x / size.astype(x.dtype), direction)


def _norm(tree: PyTree) -> Array:
    dtype = _real_dtype(tree)
    return jnp.sqrt(sum(jnp.sum(jnp.abs(x) ** 2).astype(dtype) for x in jax.tree.leaves(tree)))


def _real_dtype(tree: PyTree) -> Any:
    return max((jnp.finfo(x.dtype).dtype for x in jax.tree.leaves(tree)), key=lambda d: d.itemsize)
