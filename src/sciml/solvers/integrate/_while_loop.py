"""The loops that march members to their end, over lanes or one at a time.

`forward` steps until every member is done; `forward_recorded` also keeps what `backward` needs to
run the accepted steps again from last to first and carry the cotangents through them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ..._jax._checkpoint_levels import Budget
from ..._jax._loops import packed_while_loop, scan_to_end, while_loop
from ..._jax._vma import to_varying, vma_of
from ...kernels._backends import XLA, Request
from ...kernels._lanes import Lanes, Unbatched, is_value
from ._checkpoint_buffers import power_of_two
from ._compaction import compacted_lanes, integrate_compacted
from ._ensemble_kernel import columns_by_kernel, run_by_kernel, until_done
from ._integrator import Checkpoint, Dense, Integrator, Operands, State, StepRecord, known
from ._recompute import LoopCounts, Recomputation, Residuals, StepRecords, backward_pass
from ._result import Result, Saves
from ._shared_cotangents import has_shared_cotangents, pull_back

ZEROED_AT_MOST = 2**24
"""How many bytes a record may take. It is filled beforehand, whether it is used or not, and what exceeds about twice
as much in all comes from the system anew at every call, which costs more time than most steps kept in it."""


class AdaptiveLoop(eqx.Module):
    """An integration over lanes.

    Attributes:
        integrator: How one member is advanced.
        lanes: The engine.
        max_steps: The limit on attempted steps of a member.
        slopes: Whether saved times are differentiated.
        slots: How many of the last iterations' outcomes are kept for the backward pass, a power of two.
        count: The number of fixed steps before the last shorter one, where that is known when traced.
        tail: Whether there is such a shorter one.
        impl: What runs many members: XLA, or a kernel.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched
    max_steps: int = eqx.field(static=True)
    slopes: bool = eqx.field(static=True)
    slots: int = eqx.field(static=True, default=16)
    count: int | None = eqx.field(static=True, default=None)
    tail: bool = eqx.field(static=True, default=False)
    impl: Request = eqx.field(static=True, default=XLA)

    def over(self, lanes: Lanes | Unbatched, state_bytes: int, budget: Budget) -> "AdaptiveLoop":
        """Returns the loop over other lanes, which keeps as many outcomes as there is room for.

        Args:
            lanes: The engine.
            state_bytes: The size of one member's state.
            budget: How much may be recorded; its `segments` are outcomes.

        Raises:
            ValueError: If levels are asked for: the number of steps is not known.
        """
        if budget.levels is not None:
            raise ValueError(
                f"`Checkpointed(levels={budget.levels})` needs a number of steps that is known when traced: `dt`, "
                "`t0` and `t1` as numbers, no tolerances and no `saveat`. Elsewhere choose with `memory` or `segments`."
            )
        if budget.segments is not None:
            slots = max(16, power_of_two(budget.segments))
            return AdaptiveLoop(self.integrator, lanes, self.max_steps, self.slopes, slots, impl=self.impl)
        memory = (
            budget.memory
            if self.integrator.stepper.use_full_budget(state_bytes)
            else min(budget.memory, ZEROED_AT_MOST)
        )
        slots = power_of_two(memory / (2 * state_bytes * (lanes.count or 1))) // 2
        most = 4096 if lanes.count is None else 1024
        slots = max(16, min(most, slots, power_of_two(self.max_steps)))
        return AdaptiveLoop(self.integrator, lanes, self.max_steps, self.slopes, slots, impl=self.impl)

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Integrates every member to the end; `y0` and `operands` are lane values."""

        def by_xla(y0, operands, saves):
            return self._forward(y0, operands, saves, False)[0]

        def member():
            return until_done(self.integrator, Result, saves is not None)

        return run_by_kernel(self.impl, self.lanes, member, by_xla, y0, operands, saves)

    def forward_with_columns(self, y0: PyTree, operands: Operands, saves: Saves | None, moved: tuple[bool, ...]) -> Any:
        """Returns how a kernel integrates every member with the derivatives by what is moved; see `columns_by_kernel`."""
        member = until_done(self.integrator, Result, saves is not None)
        return columns_by_kernel(self.impl, self.lanes, member, moved, y0, operands, saves)

    def forward_sloped(self, y0: PyTree, operands: Operands, saves: Saves) -> tuple[Result, PyTree]:
        """Integrates every member to the end, and returns the saved states' derivatives by their times, too."""
        return self._forward(y0, operands, saves, True)

    def _forward(self, y0, operands, saves, slopes):
        def until(carry, target, left=0):
            return while_loop(
                lambda carry: self._pending(carry[1], target, left),
                lambda carry: (carry[0] + 1, self.attempt(carry[1], operands, target)[0]),
                carry,
                like=(operands, target),
                collective=self.integrator.collective.axes,
            )

        carry = (jnp.zeros((), jnp.int32), self.start(y0, operands))
        if saves is None:
            left = 0 if self.integrator.collective.axes else compacted_lanes(self.lanes, operands)
            iterations, state = until(carry, operands.span, left)
            if left:
                return integrate_compacted(self, left, iterations, state, operands), None
            return self.result(state, self.end(state, operands), iterations), None

        def advance(carry, time, beyond):
            return until(carry, self.stop(time, saves, operands, beyond))

        def save(carry, time):
            target = self._target(time, saves)
            slope = self._slope(carry[1], operands, target) if slopes else None
            return self.saved(carry[1], operands, target), slope

        (iterations, state), (ys, slopes) = scan_to_end(advance, save, carry, saves.times, like=operands)
        return self.result(state, ys, iterations), slopes

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, Residuals, LoopCounts]:
        """Integrates every member to the end and keeps what `backward` needs."""
        collective = self.integrator.collective.axes

        def until(carry, target):
            def iterate(carry):
                number, state, kept = carry
                state, step_record = self.attempt(state, operands, target)
                return number + 1, state, kept.write(number, step_record)

            return self.while_loop(
                lambda c: self._pending(c[1], target), iterate, carry, like=(operands, target), collective=collective
            )

        start = self.lanes.leave(y0)

        def residuals(kept, inside, slopes):
            return Residuals(kept.rows.parts(self.lanes.count), start, inside, slopes)

        state = self.start(y0, operands)
        step_record = jax.eval_shape(lambda s: self.attempt(s, operands, operands.span)[1], state)
        carry = (jnp.zeros((), jnp.int32), state, StepRecords.blank(step_record, self.slots))
        carry = to_varying(carry, vma_of((state, operands)))
        if saves is None:
            number, state, kept = until(carry, operands.span)
            result = self.result(state, self.end(state, operands), number)
            return result, residuals(kept, None, None), LoopCounts(number, None)

        def advance(carry, time, beyond):
            return until(carry, self.stop(time, saves, operands, beyond))

        def save(carry, time):
            number, state, _ = carry
            target = self._target(time, saves)
            inside = (state.dense.elapsed, state.dense.h)
            slope = self._slope(state, operands, target) if self.slopes else None
            return self.saved(state, operands, target), number, inside, slope

        carry, (ys, after, inside, slopes) = scan_to_end(advance, save, carry, saves.times, like=operands)
        number, state, kept = carry
        return self.result(state, ys, number), residuals(kept, inside, slopes), LoopCounts(number, after)

    def backward(
        self,
        cotangent: PyTree,
        residuals: Residuals,
        numbers: LoopCounts,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, PyTree]:
        """Carries the cotangent of `Result.ys` back to the initial state, the operands and the saved times.

        Args:
            cotangent: Arrays with members last, like `Result.ys`.
            residuals: From `forward_recorded`.
            numbers: From `forward_recorded`.
            operands: Lane values.
            saves: The saved times.
            differentiable: `Operands` of booleans: which of the operands are differentiated.

        Returns:
            Cotangents with members last of the initial state, of the differentiable operands (the others
            None; where the engine has `shared_cotangents`, what members share may have one in all), and of the saved times,
            which are None unless they are differentiated.
        """
        diff, held = eqx.partition(operands, differentiable, is_leaf=is_value)
        shared_cotangents = has_shared_cotangents(self.lanes, self.integrator.stepper, diff)
        zeros = jax.tree.map(jnp.zeros_like, diff)
        zeros = zeros if shared_cotangents else self.lanes.carry(zeros)
        step_vjp = self._step_vjp_lanes if shared_cotangents else self._step_vjp_each
        leave = self.lanes.leave_shared if shared_cotangents and isinstance(self.lanes, Lanes) else self.lanes.leave
        recomputation, y0 = Recomputation(self, operands, saves), self._enter(residuals.y0)

        def before(bar, step_record):
            return step_vjp(bar, diff, held, step_record)

        if saves is None:
            y_bar = self.lanes.carry(self._enter(cotangent))
            y_bar, _, diff_bar = backward_pass(
                recomputation, residuals, numbers, y0, (y_bar, None, zeros), before, None
            )
            return self.lanes.leave(y_bar), leave(diff_bar), None

        def save_vjp(bar, index, inside, used):
            y_bar, dense_bar, diff_bar = bar
            time, here = jax.tree.map(
                lambda x: jax.lax.dynamic_index_in_dim(x, index, 0, False), (saves.times, cotangent)
            )
            target = self._target(time, saves)
            y_bar, dense_bar = self.lanes.carry(
                self.lanes.call(
                    self._save_vjp, (y_bar, dense_bar), self._enter(here), inside, held, target, self.shared(used)
                )
            )
            return y_bar, dense_bar, diff_bar

        y_bar = self.lanes.call(
            lambda c: jax.tree.map(lambda x: jnp.zeros_like(x), c), self._enter(jax.tree.map(lambda c: c[0], cotangent))
        )
        dense_bar = self.lanes.call(lambda y: (y, self.integrator.stepper.blank_dense(y)), y_bar)
        bar = (*self.lanes.carry((y_bar, dense_bar)), zeros)
        y_bar, dense_bar, diff_bar = backward_pass(recomputation, residuals, numbers, y0, bar, before, save_vjp)
        # times saved at the very start were read from the blank step, whose start is the initial state
        y_bar = self.lanes.call(lambda a, b: jax.tree.map(jnp.add, a, b), y_bar, dense_bar[0])
        times_bar = None
        if self.slopes:
            products = jax.tree.map(self._inner, cotangent, residuals.slopes)
            times_bar = sum(jax.tree.leaves(products))
        return self.lanes.leave(y_bar), leave(diff_bar), times_bar

    @property
    def while_loop(self) -> Any:
        """The loop for what has a gradient, whose carry is large: where there are no lanes, of many scalars."""
        return packed_while_loop if self.lanes.count is None else while_loop

    def _inner(self, cotangent: Array, slope: Array) -> Array:
        axes = tuple(range(1, cotangent.ndim - (self.lanes.count is not None)))
        return jnp.sum(jnp.real(cotangent * slope), axis=axes)

    def _step_vjp_each(self, bar, diff, held, step_record: StepRecord):
        """Carries the cotangents of every member back through one step, its own."""
        return self.lanes.carry(self.lanes.call(self._step_vjp, bar, diff, held, step_record))

    def _step_vjp_lanes(self, bar, diff, held, step_record: StepRecord):
        """The same with one cotangent in all of what members share."""
        y_bar, dense_bar, diff_bar = bar
        lanes, with_dense = self.lanes, dense_bar is not None
        assert isinstance(lanes, Lanes)

        def step(y, diff, held, step_record):
            return self._step_again(y, diff, held, step_record, with_dense)

        accepted = lanes.leave(step_record.accepted)
        of_step = (y_bar, dense_bar) if with_dense else y_bar
        new_y, more = pull_back(lanes, step, accepted, of_step, step_record.y, diff, held, step_record)

        def choose(accepted, y_bar, dense_bar, new_y):
            y_bar = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), new_y, y_bar)
            return y_bar, jax.tree.map(lambda x: jnp.where(accepted, jnp.zeros_like(x), x), dense_bar)

        y_bar, dense_bar = lanes.carry(lanes.call(choose, step_record.accepted, y_bar, dense_bar, new_y))
        return y_bar, dense_bar, jax.tree.map(jnp.add, diff_bar, more)

    def _step_again(self, y, diff, held, step_record: StepRecord, with_dense: bool):
        y1, dense = self.integrator.replay(y, eqx.combine(diff, held), step_record)
        return (y1, (dense.y0, dense.stages)) if with_dense else y1

    def _step_vjp(self, bar, diff, held, step_record: StepRecord):
        """Carries the cotangents of one member back through one step, if it was accepted."""
        y_bar, dense_bar, diff_bar = bar

        def step(y, diff):
            return self._step_again(y, diff, held, step_record, dense_bar is not None)

        _, pull = jax.vjp(step, step_record.y, diff)
        new_y, new_diff = pull(y_bar if dense_bar is None else (y_bar, dense_bar))

        def choose(new, old):
            return jnp.where(step_record.accepted, new, old)

        y_bar = jax.tree.map(choose, new_y, y_bar)
        diff_bar = jax.tree.map(lambda new, old: old + choose(new, jnp.zeros_like(new)), new_diff, diff_bar)
        if dense_bar is not None:
            dense_bar = jax.tree.map(lambda x: choose(jnp.zeros_like(x), x), dense_bar)
        return y_bar, dense_bar, diff_bar

    def _save_vjp(self, bar, cotangent, inside, held, target, used):
        """Transposes `Integrator.saved`, which is linear in the state and the step's stages, where that is to be used."""

        def saved(y, dense):
            return self.integrator.saved(y, Dense(*inside, *dense), held, target)

        zeros = jax.tree.map(jnp.zeros_like, bar)
        _, pull = jax.vjp(saved, *zeros)
        more = pull(cotangent)
        return jax.tree.map(lambda x, m: x + jnp.where(used, m, jnp.zeros_like(m)), bar, more)

    def _enter(self, tree):
        return self.lanes.enter(tree, self.lanes.count is not None)

    def shared(self, value: Array) -> Any:
        """Returns what all members share as a lane value."""
        return self.lanes.enter(value, False)

    def _target(self, time: Array, saves: Saves):
        return self.lanes.enter(time, saves.batched)

    def stop(self, time: Array, saves: Saves, operands: Operands, beyond: Bool[Array, ""]) -> PyTree:
        """Returns the next time to march to: a saved one, or the end beyond the last of them."""
        beyond, time = self.shared(beyond), self._target(time, saves)
        return self.lanes.call(lambda beyond, time, span: jnp.where(beyond, span, time), beyond, time, operands.span)

    def start(self, y0: PyTree, operands: Operands) -> State:
        """Returns the lanes' march before its first step."""
        return _hold(self.lanes.carry(self.lanes.call(self.integrator.start, y0, operands)))

    def attempt(self, state: State, operands: Operands, target: PyTree) -> tuple[State, StepRecord]:
        """Tries a step on every lane whose member has yet to reach `target`."""
        state, step_record = self.lanes.carry(self.lanes.call(self.integrator.attempt, state, operands, target))
        return _hold(state), step_record

    def end(self, state: State, operands: Operands) -> PyTree[Array]:
        """Returns the end states as arrays, NaN where the end was not reached."""

        def end(checkpoint: Checkpoint, span):
            return known(checkpoint.y, (checkpoint.status == 0) & (checkpoint.elapsed >= span))

        return self.lanes.leave(self.lanes.call(end, state.checkpoint, operands.span))

    def saved(self, state: State, operands: Operands, target: PyTree) -> PyTree[Array]:
        """Returns the states at `target`, within the last step, as arrays, NaN where that was not reached."""

        def saved(checkpoint: Checkpoint, dense, operands, target):
            return known(self.integrator.saved(checkpoint.y, dense, operands, target), target <= checkpoint.elapsed)

        return self.lanes.leave(self.lanes.call(saved, state.checkpoint, state.dense, operands, target))

    def result(self, state: State, ys: PyTree[Array], iterations: Int[Array, ""]) -> Result:
        """Returns the result of an integration that has ended, after so many iterations of the loop."""
        checkpoint = state.checkpoint
        status, *numbers = self.lanes.leave((checkpoint.status, checkpoint.elapsed, state.accepted, state.rejected))
        return Result(ys, status.astype(jnp.int32), *numbers, executed=jnp.broadcast_to(iterations, status.shape))

    def pending(self, state: State, target: PyTree) -> Bool[Array, "*lanes"]:
        """Returns which members have yet to reach `target`."""
        return self.lanes.leave(self.lanes.call(self.integrator.pending, state, target))

    def _pending(self, state, target, left=0):
        """Whether more members than so many have yet to reach `target`."""
        pending = self.pending(state, target)
        return jnp.sum(pending, dtype=jnp.int32) > left if left else jnp.any(pending)

    def _slope(self, state, operands, target):
        def slope(checkpoint: Checkpoint, dense, operands, target):
            def at(theta):
                h = operands.direction * dense.h
                return self.integrator.stepper.interpolate(theta, h, dense.y0, checkpoint.y, dense.stages)

            field = self.integrator.bound(operands)
            if self.integrator.stepper.lands:  # the state saved is the step's end
                here = jnp.clip(target, 0, checkpoint.elapsed)
                slope = field(self.integrator.time(here, operands), checkpoint.y)
                return jax.tree.map(lambda x: x * operands.direction.astype(x.dtype), slope)
            theta = (target - dense.elapsed) / dense.h
            _, rate = jax.jvp(at, (theta,), (jnp.ones_like(theta),))
            first = field(operands.t0, dense.y0)  # no step has been taken at the very start

            def choose(rate, first):
                return jnp.where(
                    target <= 0, first * operands.direction.astype(first.dtype), rate / dense.h.astype(rate.dtype)
                )

            return jax.tree.map(choose, rate, first)

        return self.lanes.leave(self.lanes.call(slope, state.checkpoint, state.dense, operands, target))


def _hold(state: State) -> State:
    """Returns a state whose step sizes no derivative sees, of whatever mode and order."""
    h, errors = jax.tree.map(jax.lax.stop_gradient, (state.checkpoint.h, state.checkpoint.errors))
    return state._replace(checkpoint=state.checkpoint._replace(h=h, errors=errors))
