"""States at saved times within steps, all of them in every step: so that no member waits for others at a saved time.

Members of an ensemble that stop at each saved time for the slowest of them take a step more for each. If a step is much
more expensive than an interpolation, as with a network, all lanes run freely instead: after each step every saved time
is checked, and the times within the step of a lane get that lane's state. The interpolation is a sum of the states at
the ends and the stages, with weights that are polynomials in the place within the step only; its transpose is a sum
over saved times for each power.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from ..._choices import choices
from ..._jax._platform import default_platform
from ..._jax._shards import parts_of_members
from ...kernels._lanes import is_value
from ._integrator import Operands, State, StepRecord
from ._interpolation import StepPolynomial, interpolation_of
from ._lane_integrator import LaneIntegrator
from ._result import Saves
from ._work import work_of_field


def run_free(stepping: LaneIntegrator, y0: PyTree, operands: Operands, saves: Saves, recorded: bool) -> bool:
    """Returns whether lanes run free of each other's saved times.

    Args:
        stepping: The steps over lanes.
        y0: The initial state, lane values.
        operands: Lane values.
        saves: The saved times.
        recorded: Whether steps are recorded, or read back.
    """
    stepper = stepping.integrator.stepper
    if saves.times.shape[0] < 2 or stepping.integrator.collective.axes or not stepper.traits.elementwise_dense:
        return False
    numbers = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(y0, is_leaf=is_value))
    work = max(1, stepper.evaluations) * work_of_field(stepping.integrator.field, y0, operands)
    lanes = (stepping.lanes.count or 1) * parts_of_members()
    beside = choices().saves.iteration_work
    if default_platform() == "cpu":
        size = sum(x.dtype.itemsize * int(np.prod(x.shape)) for x in jax.tree.leaves(y0, is_leaf=is_value))
        many = stepping.lanes.count is not None and size * lanes > choices().saves.recorded_one_call_at_most
        beside = choices().saves.recorded_iteration_work if recorded and many else 0
    slow = choices().saves.step_work * numbers * lanes < work * lanes + beside
    return slow and interpolation_of(stepper) is not None


class SavedStates(NamedTuple):
    """The saved times, and how states at them are read from steps; arrays have saved times first and members last.

    Attributes:
        stepping: The steps over lanes.
        operands: Lane values.
        saves: The saved times.
    """

    stepping: LaneIntegrator
    operands: Operands
    saves: Saves

    @property
    def times(self) -> Array:
        """The saved times, with an axis of lanes of their own or of length one."""
        times = self.saves.times
        return times if self.stepping.lanes.count is None or self.saves.batched else times[:, None]

    def blank(self, y0: PyTree) -> PyTree[Array]:
        """Returns the initial state at times not later than the start, otherwise NaN; `y0` is a lane value."""
        at_start = self.times <= 0

        def of_leaf(y: Array) -> Array:
            return jnp.where(_beside(at_start, y), y[None], jnp.full_like(y, jnp.nan)[None])

        return jax.tree.map(of_leaf, self.stepping.lanes.leave(y0))

    def fill(self, ys: PyTree[Array], state: State) -> PyTree[Array]:
        """Returns the saved states with those within every member's last step."""
        lanes, dense = self.stepping.lanes, state.dense
        assert dense is not None
        start, h, reached = lanes.leave((dense.elapsed, dense.h, state.checkpoint.elapsed))
        within = (self.times > start[None]) & (self.times <= reached[None])
        theta, at_end = self._places(within, start, h)
        interpolation, signed = self._interpolation(), self._signed(h)

        def of_leaf(saved: Array, *leaves: Array) -> Array:
            powers = interpolation.powers(_over(signed, leaves[0]), *leaves)
            place, found = _beside(theta, leaves[0]).astype(leaves[0].dtype), powers[-1][None]
            for power in reversed(powers[:-1]):
                found = found * place + power[None]
            found = jnp.where(_beside(at_end, leaves[0]), leaves[1][None], found)
            return jnp.where(_beside(within, leaves[0]), found, saved)

        return jax.tree.map(of_leaf, ys, *lanes.leave((dense.y0, state.checkpoint.y, *dense.stages)))

    def pull(self, cotangent: PyTree[Array], step_record: StepRecord, end: Array) -> tuple[PyTree, tuple]:
        """Returns the cotangents of a step by the states saved within it.

        Args:
            cotangent: The cotangents of all saved states.
            step_record: The step.
            end: The start of the step after it.

        Returns:
            The cotangents of the state at its end, and of the step's polynomial, lane values.
        """
        lanes = self.stepping.lanes
        start, h, accepted = lanes.leave((step_record.elapsed, step_record.h, step_record.accepted))
        within = (self.times > start[None]) & (self.times <= end[None]) & accepted[None]
        theta, at_end = self._places(within, start, h)
        count = len(self._interpolation().matrix[0])

        def of_leaf(c: Array) -> tuple[Array, ...]:
            there, place = _beside(at_end, c[0]), _beside(theta, c[0]).astype(c.dtype)
            c = jnp.where(_beside(within, c[0]), c, jnp.zeros_like(c))
            inside, powers = jnp.where(there, jnp.zeros_like(c), c), []
            for _ in range(count):
                powers.append(jnp.sum(inside, axis=0))
                inside = inside * place
            return jnp.sum(jnp.where(there, c, jnp.zeros_like(c)), axis=0), *powers

        bars = jax.tree.map(of_leaf, cotangent)
        inner = jax.tree.structure((0,) * (1 + count))
        end_bar, *powers_bar = jax.tree.transpose(jax.tree.structure(cotangent), inner, bars)
        enter = self.stepping.enter
        return enter(end_bar), tuple(map(enter, powers_bar))

    def after_all(self) -> Array:
        """Returns where the step after the last one begins: beyond all saved times."""
        (span,) = self.stepping.lanes.leave((self.operands.span,))
        return jnp.full_like(span, jnp.inf)

    def before(self, step_record: StepRecord, end: Array) -> Array:
        """Returns where the step begins, or `end` for members that took none."""
        start, accepted = self.stepping.lanes.leave((step_record.elapsed, step_record.accepted))
        return jnp.where(accepted, start, end)

    def all_left(self) -> Int[Array, "..."]:
        """Returns how many saved times each member has still to come to, going back."""
        (span,) = self.stepping.lanes.leave((self.operands.span,))
        return jnp.full(span.shape, self.saves.times.shape[0], jnp.int32)

    def side_by_side(self, tree: PyTree[Array]) -> PyTree[Array]:
        """Returns arrays, saved times first, with the times of a number side by side, of which lanes read any.

        It is for loops that take them, which would else put all of it in this order in each iteration.
        """
        if self.stepping.lanes.count is None:
            return tree
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -2).reshape(-1, x.shape[0] * x.shape[-1]), tree)

    def next_within(
        self, left: Int[Array, "..."], step_record: StepRecord, shapes: PyTree[Array], rows: PyTree[Array]
    ) -> tuple[Bool[Array, "..."], Array, PyTree[Array]]:
        """Returns whether the next saved time, going back, lies within each member's step, that time, and its row.

        Args:
            left: How many times each member has still to come to.
            step_record: The step.
            shapes: Arrays, saved times first, or their shapes.
            rows: The same arrays, `side_by_side`.
        """
        lanes = self.stepping.lanes
        start, accepted = lanes.leave((step_record.elapsed, step_record.accepted))
        row = jnp.maximum(left - 1, 0)

        def of_row(like: Array, x: Array) -> Array:
            if lanes.count is None:
                return jax.lax.dynamic_index_in_dim(x, row, 0, False)
            if like.size == 0:  # a leaf without elements, as the jumps of a delayed state that has had none
                return jnp.zeros(like.shape[1:], like.dtype)
            at = row * like.shape[-1] + jnp.arange(like.shape[-1], dtype=row.dtype)
            return jnp.stack([f.at[at].get(mode="promise_in_bounds") for f in x]).reshape(like.shape[1:])

        times, own = self.saves.times, lanes.count is None or self.saves.batched
        time = of_row(times, self.side_by_side(times)) if own else times[row]
        return accepted & (left > 0) & (time > start), time, jax.tree.map(of_row, shapes, rows)

    def at_start(self, cotangent: PyTree[Array]) -> PyTree:
        """Returns the cotangent of the initial state by the states saved there, a lane value."""
        at_start = self.times <= 0

        def of_leaf(c: Array) -> Array:
            return jnp.sum(jnp.where(_beside(at_start, c[0]), c, jnp.zeros_like(c)), 0)

        return self.stepping.enter(jax.tree.map(of_leaf, cotangent))

    def _places(self, within: Bool[Array, "..."], start: Array, h: Array) -> tuple[Array, Bool[Array, "..."]]:
        """Returns the places of times within a step, and which are its end, whatever rounding makes of the formula."""
        theta = jnp.where(within, (self.times - start[None]) / h[None], jnp.zeros_like(self.times))
        return theta, within & (self.times >= (start + h)[None])

    def _signed(self, h: Array) -> Array:
        (direction,) = self.stepping.lanes.leave((self.operands.direction,))
        return direction * h

    def _interpolation(self) -> StepPolynomial:
        found = interpolation_of(self.stepping.integrator.stepper)
        assert found is not None  # see `run_free`
        return found


def _beside(x: Array, y: Array) -> Array:
    """Returns numbers for each time (and lane) such that they go with `y`, which has no axis of times."""
    lanes = x.ndim - 1
    return x.reshape(x.shape[:1] + (1,) * (y.ndim - lanes) + x.shape[1:])


def _over(x: Array, y: Array) -> Array:
    """Returns a number for each lane such that it goes with `y`, whose last axis has the lanes."""
    return x.reshape((1,) * (y.ndim - x.ndim) + x.shape)
