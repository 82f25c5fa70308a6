"""The loops that march members to their end, over lanes or one at a time.

`forward` steps until every member is done; `forward_recorded` also keeps what `backward` needs to
run the accepted steps again from last to first and carry the cotangents through them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ..._jax._checkpoint_levels import Room
from ..._jax._loops import packed_while_loop, scan_to_end, while_loop
from ..._jax._vma import to_varying, vma_of
from ...kernels.lanes import Lanes, Member, is_value
from ._checkpoint_buffers import power_of_two
from ._compaction import lanes_of_last, march_last
from ._ensemble_kernel import columns_in_kernel, in_kernel, until_done
from ._integrator import Dense, March, Operands, Outcome, Restart, State, known
from ._recompute import Numbers, Outcomes, Rerun, Residuals, way_back
from ._result import Result, Saves
from ._shared_cotangents import has_totals, pull_back

ZEROED_AT_MOST = 2**24
"""How many bytes a record may take. It is filled beforehand, whether it is used or not, and what exceeds about twice
as much in all comes from the system anew at every call, which costs more time than most steps kept in it."""


class Loop(eqx.Module):
    """A march over lanes.

    Attributes:
        march: How one member is advanced.
        lanes: The engine.
        max_steps: The limit on attempted steps of a member.
        slopes: Whether saved times are differentiated.
        slots: How many of the last turns' outcomes are kept for the way back, a power of two.
        count: The number of fixed steps before the last shorter one, where that is known when traced.
        tail: Whether there is such a shorter one.
        impl: What runs many members: XLA, or a kernel.
    """

    march: March
    lanes: Lanes | Member
    max_steps: int = eqx.field(static=True)
    slopes: bool = eqx.field(static=True)
    slots: int = eqx.field(static=True, default=16)
    count: int | None = eqx.field(static=True, default=None)
    tail: bool = eqx.field(static=True, default=False)
    impl: str = eqx.field(static=True, default="xla")

    def over(self, lanes: Lanes | Member, state_bytes: int, room: Room) -> "Loop":
        """Returns the loop over other lanes, which keeps as many outcomes as there is room for.

        Args:
            lanes: The engine.
            state_bytes: The size of one member's state.
            room: How much may be recorded; its `segments` are outcomes.

        Raises:
            ValueError: If levels are asked for: the number of steps is not known.
        """
        if room.levels is not None:
            raise ValueError(
                f"`Checkpointed(levels={room.levels})` needs a number of steps that is known when traced: `dt`, "
                "`t0` and `t1` as numbers, no tolerances and no `saveat`. Elsewhere choose with `memory` or `segments`."
            )
        if room.segments is not None:
            slots = max(16, power_of_two(room.segments))
            return Loop(self.march, lanes, self.max_steps, self.slopes, slots, impl=self.impl)
        memory = room.memory if self.march.stepper.outlasts_record(state_bytes) else min(room.memory, ZEROED_AT_MOST)
        slots = power_of_two(memory / (2 * state_bytes * (lanes.count or 1))) // 2
        most = 4096 if lanes.count is None else 1024
        slots = max(16, min(most, slots, power_of_two(self.max_steps)))
        return Loop(self.march, lanes, self.max_steps, self.slopes, slots, impl=self.impl)

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Marches every member to the end; `y0` and `operands` are lane values."""

        def by_xla(y0, operands, saves):
            return self._forward(y0, operands, saves, False)[0]

        def member():
            return until_done(self.march, Result, saves is not None)

        return in_kernel(self.impl, self.lanes, member, by_xla, y0, operands, saves)

    def forward_with_columns(self, y0: PyTree, operands: Operands, saves: Saves | None, moved: tuple[bool, ...]) -> Any:
        """Returns how a kernel marches every member with the derivatives by what is moved; see `columns_in_kernel`."""
        member = until_done(self.march, Result, saves is not None)
        return columns_in_kernel(self.impl, self.lanes, member, moved, y0, operands, saves)

    def forward_sloped(self, y0: PyTree, operands: Operands, saves: Saves) -> tuple[Result, PyTree]:
        """Marches every member to the end, and returns the saved states' derivatives by their times, too."""
        return self._forward(y0, operands, saves, True)

    def _forward(self, y0, operands, saves, slopes):
        def until(carry, target, left=0):
            return while_loop(
                lambda carry: self._pending(carry[1], target, left),
                lambda carry: (carry[0] + 1, self.attempt(carry[1], operands, target)[0]),
                carry,
                like=(operands, target),
                together=self.march.together.axes,
            )

        carry = (jnp.zeros((), jnp.int32), self.start(y0, operands))
        if saves is None:
            left = 0 if self.march.together.axes else lanes_of_last(self.lanes, operands)
            turns, state = until(carry, operands.span, left)
            if left:
                return march_last(self, left, turns, state, operands), None
            return self.result(state, self.end(state, operands), turns), None

        def advance(carry, time, beyond):
            return until(carry, self.stop(time, saves, operands, beyond))

        def save(carry, time):
            target = self._target(time, saves)
            slope = self._slope(carry[1], operands, target) if slopes else None
            return self.saved(carry[1], operands, target), slope

        (turns, state), (ys, slopes) = scan_to_end(advance, save, carry, saves.times, like=operands)
        return self.result(state, ys, turns), slopes

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, Residuals, Numbers]:
        """Marches every member to the end and keeps what `backward` needs."""
        together = self.march.together.axes

        def until(carry, target):
            def turn(carry):
                number, state, kept = carry
                state, outcome = self.attempt(state, operands, target)
                return number + 1, state, kept.write(number, outcome)

            return self.while_loop(
                lambda c: self._pending(c[1], target), turn, carry, like=(operands, target), together=together
            )

        start = self.lanes.leave(y0)

        def residuals(kept, inside, slopes):
            return Residuals(kept.rows.parts(self.lanes.count), start, inside, slopes)

        state = self.start(y0, operands)
        outcome = jax.eval_shape(lambda s: self.attempt(s, operands, operands.span)[1], state)
        carry = (jnp.zeros((), jnp.int32), state, Outcomes.blank(outcome, self.slots))
        carry = to_varying(carry, vma_of((state, operands)))
        if saves is None:
            number, state, kept = until(carry, operands.span)
            result = self.result(state, self.end(state, operands), number)
            return result, residuals(kept, None, None), Numbers(number, None)

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
        return self.result(state, ys, number), residuals(kept, inside, slopes), Numbers(number, after)

    def backward(
        self,
        cotangent: PyTree,
        residuals: Residuals,
        numbers: Numbers,
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
            None; where the engine has `totals`, what members share may have one in all), and of the saved times,
            which are None unless they are differentiated.
        """
        diff, held = eqx.partition(operands, differentiable, is_leaf=is_value)
        totals = has_totals(self.lanes, self.march.stepper, diff)
        zeros = jax.tree.map(jnp.zeros_like, diff)
        zeros = zeros if totals else self.lanes.carry(zeros)
        retreat = self._retreat_lanes if totals else self._retreat_each
        leave = self.lanes.leave_totals if totals and isinstance(self.lanes, Lanes) else self.lanes.leave
        rerun, y0 = Rerun(self, operands, saves), self._enter(residuals.y0)

        def before(bar, outcome):
            return retreat(bar, diff, held, outcome)

        if saves is None:
            y_bar = self.lanes.carry(self._enter(cotangent))
            y_bar, _, diff_bar = way_back(rerun, residuals, numbers, y0, (y_bar, None, zeros), before, None)
            return self.lanes.leave(y_bar), leave(diff_bar), None

        def unsave(bar, index, inside, used):
            y_bar, dense_bar, diff_bar = bar
            time, here = jax.tree.map(
                lambda x: jax.lax.dynamic_index_in_dim(x, index, 0, False), (saves.times, cotangent)
            )
            target = self._target(time, saves)
            y_bar, dense_bar = self.lanes.carry(
                self.lanes.call(
                    self._unsave, (y_bar, dense_bar), self._enter(here), inside, held, target, self.shared(used)
                )
            )
            return y_bar, dense_bar, diff_bar

        y_bar = self.lanes.call(
            lambda c: jax.tree.map(lambda x: jnp.zeros_like(x), c), self._enter(jax.tree.map(lambda c: c[0], cotangent))
        )
        dense_bar = self.lanes.call(lambda y: (y, self.march.stepper.blank_dense(y)), y_bar)
        bar = (*self.lanes.carry((y_bar, dense_bar)), zeros)
        y_bar, dense_bar, diff_bar = way_back(rerun, residuals, numbers, y0, bar, before, unsave)
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

    def _retreat_each(self, bar, diff, held, outcome: Outcome):
        """Carries the cotangents of every member back through one step, its own."""
        return self.lanes.carry(self.lanes.call(self._retreat, bar, diff, held, outcome))

    def _retreat_lanes(self, bar, diff, held, outcome: Outcome):
        """The same with one cotangent in all of what members share."""
        y_bar, dense_bar, diff_bar = bar
        lanes, with_dense = self.lanes, dense_bar is not None
        assert isinstance(lanes, Lanes)

        def step(y, diff, held, outcome):
            return self._step_again(y, diff, held, outcome, with_dense)

        accepted = lanes.leave(outcome.accepted)
        of_step = (y_bar, dense_bar) if with_dense else y_bar
        new_y, more = pull_back(lanes, step, accepted, of_step, outcome.y, diff, held, outcome)

        def choose(accepted, y_bar, dense_bar, new_y):
            y_bar = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), new_y, y_bar)
            return y_bar, jax.tree.map(lambda x: jnp.where(accepted, jnp.zeros_like(x), x), dense_bar)

        y_bar, dense_bar = lanes.carry(lanes.call(choose, outcome.accepted, y_bar, dense_bar, new_y))
        return y_bar, dense_bar, jax.tree.map(jnp.add, diff_bar, more)

    def _step_again(self, y, diff, held, outcome: Outcome, with_dense: bool):
        y1, dense = self.march.replay(y, eqx.combine(diff, held), outcome)
        return (y1, (dense.y0, dense.stages)) if with_dense else y1

    def _retreat(self, bar, diff, held, outcome: Outcome):
        """Carries the cotangents of one member back through one step, if it was accepted."""
        y_bar, dense_bar, diff_bar = bar

        def step(y, diff):
            return self._step_again(y, diff, held, outcome, dense_bar is not None)

        _, pull = jax.vjp(step, outcome.y, diff)
        new_y, new_diff = pull(y_bar if dense_bar is None else (y_bar, dense_bar))

        def choose(new, old):
            return jnp.where(outcome.accepted, new, old)

        y_bar = jax.tree.map(choose, new_y, y_bar)
        diff_bar = jax.tree.map(lambda new, old: old + choose(new, jnp.zeros_like(new)), new_diff, diff_bar)
        if dense_bar is not None:
            dense_bar = jax.tree.map(lambda x: choose(jnp.zeros_like(x), x), dense_bar)
        return y_bar, dense_bar, diff_bar

    def _unsave(self, bar, cotangent, inside, held, target, used):
        """Transposes `March.saved`, which is linear in the state and the step's stages, where that is to be used."""

        def saved(y, dense):
            return self.march.saved(y, Dense(*inside, *dense), held, target)

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
        return _hold(self.lanes.carry(self.lanes.call(self.march.start, y0, operands)))

    def attempt(self, state: State, operands: Operands, target: PyTree) -> tuple[State, Outcome]:
        """Tries a step on every lane whose member has yet to reach `target`."""
        state, outcome = self.lanes.carry(self.lanes.call(self.march.attempt, state, operands, target))
        return _hold(state), outcome

    def end(self, state: State, operands: Operands) -> PyTree[Array]:
        """Returns the end states as arrays, NaN where the end was not reached."""

        def end(restart: Restart, span):
            return known(restart.y, (restart.status == 0) & (restart.elapsed >= span))

        return self.lanes.leave(self.lanes.call(end, state.restart, operands.span))

    def saved(self, state: State, operands: Operands, target: PyTree) -> PyTree[Array]:
        """Returns the states at `target`, within the last step, as arrays, NaN where that was not reached."""

        def saved(restart: Restart, dense, operands, target):
            return known(self.march.saved(restart.y, dense, operands, target), target <= restart.elapsed)

        return self.lanes.leave(self.lanes.call(saved, state.restart, state.dense, operands, target))

    def result(self, state: State, ys: PyTree[Array], turns: Int[Array, ""]) -> Result:
        """Returns the result of a march that has ended, after so many turns of the loop."""
        restart = state.restart
        status, *numbers = self.lanes.leave((restart.status, restart.elapsed, state.accepted, state.rejected))
        return Result(ys, status.astype(jnp.int32), *numbers, executed=jnp.broadcast_to(turns, status.shape))

    def pending(self, state: State, target: PyTree) -> Bool[Array, "*lanes"]:
        """Returns which members have yet to reach `target`."""
        return self.lanes.leave(self.lanes.call(self.march.pending, state, target))

    def _pending(self, state, target, left=0):
        """Whether more members than so many have yet to reach `target`."""
        pending = self.pending(state, target)
        return jnp.sum(pending, dtype=jnp.int32) > left if left else jnp.any(pending)

    def _slope(self, state, operands, target):
        def slope(restart: Restart, dense, operands, target):
            def at(theta):
                h = operands.direction * dense.h
                return self.march.stepper.interpolate(theta, h, dense.y0, restart.y, dense.stages)

            field = self.march.bound(operands)
            if self.march.stepper.lands:  # the state saved is the step's end
                here = jnp.clip(target, 0, restart.elapsed)
                slope = field(self.march.time(here, operands), restart.y)
                return jax.tree.map(lambda x: x * operands.direction.astype(x.dtype), slope)
            theta = (target - dense.elapsed) / dense.h
            _, rate = jax.jvp(at, (theta,), (jnp.ones_like(theta),))
            first = field(operands.t0, dense.y0)  # no step has been taken at the very start

            def choose(rate, first):
                return jnp.where(
                    target <= 0, first * operands.direction.astype(first.dtype), rate / dense.h.astype(rate.dtype)
                )

            return jax.tree.map(choose, rate, first)

        return self.lanes.leave(self.lanes.call(slope, state.restart, state.dense, operands, target))


def _hold(state: State) -> State:
    """Returns a state whose step sizes no derivative sees, of whatever mode and order."""
    h, errors = jax.tree.map(jax.lax.stop_gradient, (state.restart.h, state.restart.errors))
    return state._replace(restart=state.restart._replace(h=h, errors=errors))
