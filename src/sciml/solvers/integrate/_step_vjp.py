"""Back through one step of every member: the pullback of a recorded step, and of a state saved within it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..._jax._matrix_products import with_fast_products
from ...kernels._lanes import Lanes, Unbatched, is_value
from ...kernels._lanes._values import shared_and_large
from ..events._event_state import EventRecord, EventState, Happening, joined, saved_part, with_record
from ..methods._stepper import AbstractStepper
from ._integrator import Dense, Operands, StepRecord
from ._interpolation import StepPolynomial, interpolation_of
from ._lane_integrator import LaneIntegrator


class Bars(NamedTuple):
    """The cotangents that the backward pass carries.

    Attributes:
        y: Of the state, lane values.
        dense: Of what gives the states within the step that those saved next lie in, lane values; None without any.
            These are the coefficients of its polynomial, or start and stages if it is not a polynomial.
        diff: Of the differentiated operands: lane values, or one for all members of what they share.
    """

    y: PyTree
    dense: PyTree
    diff: PyTree


class StepVjp(NamedTuple):
    """The pullback of a step.

    Attributes:
        stepping: The steps over lanes.
        diff: The operands that are differentiated, lane values.
        constant: The other operands.
        shared: Whether what members share has one cotangent for all of them.
        polynomial: The interpolation within a step; None if it is not a polynomial. It has fewer coefficients than
            steps have stages, and a saved state adds to their cotangents a power of its place each.
    """

    stepping: LaneIntegrator
    diff: PyTree
    constant: PyTree
    shared: bool
    polynomial: StepPolynomial | None

    @classmethod
    def of(cls, stepping: LaneIntegrator, operands: Operands, differentiable: PyTree, saves: bool) -> "StepVjp":
        """Returns the pullback by some of the operands, where states are saved within steps or not."""
        diff, constant = eqx.partition(operands, differentiable, is_leaf=is_value)
        many = stepping.lanes.count is not None
        shared = many and has_shared_cotangents(stepping.lanes, stepping.integrator.stepper, diff)
        polynomial = interpolation_of(stepping.integrator.stepper) if saves else None
        return cls(stepping, diff, constant, shared, polynomial)

    def zeros(self) -> PyTree:
        """Returns cotangents of zero of the differentiated operands."""
        zeros = jax.tree.map(jnp.zeros_like, self.diff)
        return zeros if self.shared else self.stepping.lanes.carry(zeros)

    def blank(self, like: PyTree) -> Bars:
        """Returns cotangents of zero, with one of a step's dense output, for states `like` given lane values."""
        lanes, stepper = self.stepping.lanes, self.stepping.integrator.stepper
        zeros = self.zeros()
        y_bar = lanes.call(lambda c: jax.tree.map(lambda x: jnp.zeros_like(x), c), like)
        if self.polynomial is None:
            dense_bar = lanes.call(lambda y: (saved_part(y), stepper.empty_dense(y)), y_bar)
        else:
            dense_bar = (y_bar,) * len(self.polynomial.matrix[0])
        return Bars(*lanes.carry((y_bar, dense_bar)), zeros)

    def leave(self, diff_bar: PyTree) -> PyTree:
        """Returns the cotangents of the operands as arrays with members last; of what is shared, one for all."""
        lanes = self.stepping.lanes
        return lanes.leave_shared(diff_bar) if self.shared and isinstance(lanes, Lanes) else lanes.leave(diff_bar)

    def step(self, bar: Bars, step_record: StepRecord) -> Bars:
        """Carries the cotangents of every member back through one step, if it was accepted."""
        if self.shared:
            return self._over_lanes(bar, step_record)
        lanes = self.stepping.lanes
        return Bars(*lanes.carry(lanes.call(self._of_member, *bar, self.diff, self.constant, step_record)))

    def saved(self, bar: Bars, cotangent: PyTree, inside: Any, target: PyTree, used: PyTree) -> Bars:
        """Adds the cotangent of a state saved at `target`, within the step that starts and is as long as `inside`."""
        lanes = self.stepping.lanes
        here = saved_part(bar.y), bar.dense
        y_bar, dense_bar = lanes.carry(
            lanes.call(self._saved_of_member, here, cotangent, inside, self.constant, target, used)
        )
        return bar._replace(y=joined(y_bar, bar.y), dense=dense_bar)

    def _over_lanes(self, bar: Bars, step_record: StepRecord) -> Bars:
        lanes, with_dense = self.stepping.lanes, bar.dense is not None
        assert isinstance(lanes, Lanes)

        def step(y, diff, constant, step_record):
            return self._step_again(y, diff, constant, step_record, with_dense)

        accepted = lanes.leave(step_record.accepted)
        of_step = (bar.y, bar.dense) if with_dense else bar.y
        rest = (self.diff, self.constant, step_record)
        new_y, more = pull_back(lanes, step, accepted, of_step, step_record.y, *rest)

        def choose(accepted, y_bar, dense_bar, new_y):
            # the dense output's cotangents have been carried through the step that it belongs to
            y_bar = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), new_y, y_bar)
            return y_bar, jax.tree.map(lambda x: jnp.where(accepted, jnp.zeros_like(x), x), dense_bar)

        y_bar, dense_bar = lanes.carry(lanes.call(choose, step_record.accepted, bar.y, bar.dense, new_y))
        return Bars(y_bar, dense_bar, jax.tree.map(jnp.add, bar.diff, more))

    # what follows is of one member

    def _of_member(self, y_bar, dense_bar, diff_bar, diff, constant, step_record: StepRecord):
        def step(y, diff):
            return self._step_again(y, diff, constant, step_record, dense_bar is not None)

        # no step reads the record of events, and of its cotangent one needs what has happened at the end of the step
        y_bar, record_bar = _apart(y_bar)
        found, pull = jax.vjp(step, step_record.y, diff)
        end_bar = with_record(y_bar, _of_happenings(record_bar, found if dense_bar is None else found[0]))
        new_y, new_diff = pull(end_bar if dense_bar is None else (end_bar, dense_bar))

        def choose(new, old):
            return jnp.where(step_record.accepted, new, old)

        y_bar = with_record(jax.tree.map(choose, new_y, y_bar), record_bar)
        diff_bar = jax.tree.map(lambda new, old: old + choose(new, jnp.zeros_like(new)), new_diff, diff_bar)
        if dense_bar is not None:
            dense_bar = jax.tree.map(lambda x: choose(jnp.zeros_like(x), x), dense_bar)
        return y_bar, dense_bar, diff_bar

    def _step_again(self, y, diff, constant, step_record: StepRecord, with_dense: bool):
        operands = eqx.combine(diff, constant)
        y1, dense = self.stepping.integrator.replay(y, operands, step_record)
        if not with_dense:
            return y1
        if self.polynomial is None:
            return y1, (dense.y0, dense.stages)
        powers = functools.partial(self.polynomial.powers, operands.direction * dense.h)
        found = jax.tree.map(powers, dense.y0, y1, *dense.stages)
        inner = jax.tree.structure((0,) * len(self.polynomial.matrix[0]))
        return y1, jax.tree.transpose(jax.tree.structure(y1), inner, found)

    def _saved_of_member(self, bar, cotangent, inside, constant, target, used):
        """Transposes `Integrator.saved`, which is linear in the state and the step's stages, where it is `used`."""
        if self.polynomial is not None:
            (start, h), (y_bar, powers_bar) = inside, bar
            at_end, theta = target >= start + h, (target - start) / h
            y_bar = jax.tree.map(lambda x, c: x + jnp.where(used & at_end, c, jnp.zeros_like(c)), y_bar, cotangent)
            here, found = used & ~at_end, []
            power = jax.tree.map(lambda c: jnp.where(here, c, jnp.zeros_like(c)), cotangent)
            theta = jnp.where(here, theta, jnp.zeros_like(theta))
            for sums in powers_bar:
                found.append(jax.tree.map(jnp.add, sums, power))
                power = jax.tree.map(lambda c: c * theta.astype(c.dtype), power)
            return y_bar, tuple(found)

        def saved(y, dense):
            return self.stepping.integrator.saved(y, Dense(*inside, *dense), constant, target)

        zeros = jax.tree.map(jnp.zeros_like, bar)  # a linear function has the same derivative everywhere
        _, pull = jax.vjp(saved, *zeros)
        more = pull(cotangent)
        return jax.tree.map(lambda x, m: x + jnp.where(used, m, jnp.zeros_like(m)), bar, more)


def _apart(y_bar: PyTree) -> tuple[PyTree, EventRecord | None]:
    """Returns the cotangent of a state without the record of events, and the cotangent of that record."""
    return with_record(y_bar, None), y_bar.rest.record if isinstance(y_bar, EventState) else None


def _of_happenings(record_bar: EventRecord | None, y1: PyTree) -> tuple[Happening, ...] | None:
    """Returns the cotangents of what has happened at the end of a step; None where no events are sought."""
    return None if record_bar is None else tuple(map(record_bar.at, y1.rest.record))


# A step's pullback over all lanes at once, in which what members share has one cotangent for all of them.
#
# A member's own pullback gives each member a cotangent of its own, for a network as many copies of its weights as there
# are members. The step over lanes is differentiated as a whole instead: the weights' cotangent is then one product over
# all members. Lanes that took no step get a cotangent of zero; and since zero times infinity would be NaN, they run the
# step of a lane that did.


def has_shared_cotangents(lanes: Lanes | Unbatched, stepper: AbstractStepper, diff: PyTree) -> bool:
    """Returns whether a step is pulled back over all lanes at once: where what they share is large and differentiated.

    Args:
        lanes: The engine.
        stepper: The method.
        diff: The operands that are differentiated, lane values.
    """
    shares = isinstance(lanes, Lanes) and lanes.shared_cotangents and lanes.count is not None
    if not shares or not stepper.traits.batched_vjp:
        return False
    return share_much(diff)


def share_much(values: PyTree) -> bool:
    """Returns whether some of the lane values is large and the same for all members, as a network's weights are."""
    return any(map(shared_and_large, jax.tree.leaves(values, is_leaf=is_value)))


def pull_back(
    lanes: Lanes, step: Callable, taken: Bool[Array, " lanes"], bar: PyTree, y: PyTree, diff: PyTree, *rest: PyTree
) -> tuple[PyTree, PyTree]:
    """Carries cotangents of a step's result back to the state and to the operands.

    Args:
        lanes: The engine.
        step: `step(y, diff, *rest)` of one member.
        taken: The lanes that took the step.
        bar: The cotangents of its result, lane values in a loop's carry.
        y: The states before the step, lane values in a loop's carry.
        diff: The operands that are differentiated, lane values.
        rest: The other inputs of the step, lane values.

    Returns:
        The cotangents of `y`, zero if the step was not taken, and the cotangents of `diff`, in the same form as `diff`.
    """
    # lanes that took no step run the step of one that did: zero times infinity would be NaN
    some = jnp.argmax(taken)[None]
    y, own, rest = lanes.where(taken, (y, diff, rest), lambda x: jnp.take(x, some, axis=-1))
    engine = dataclasses.replace(lanes, reverse=True)

    def pulled(bar: PyTree) -> PyTree:
        _, pull = jax.vjp(lambda y, own: engine.carry(engine.call(step, y, own, *rest)), y, own)
        return pull(bar)

    y_bar, more = with_fast_products(pulled)(lanes.where(taken, bar, jnp.zeros_like))
    any_taken = jnp.any(taken)  # where no lane took a step, all ran that of lane zero, which may be infinite
    return y_bar, jax.tree.map(lambda x: jnp.where(any_taken, x, jnp.zeros_like(x)), more)
