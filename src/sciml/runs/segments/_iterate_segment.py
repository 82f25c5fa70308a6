"""A segment of a run whose steps are a function of the user's: so many calls of it, and the states at some of them."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._jax._loops import scan, while_loop
from ..._status import Status
from ._abstract import AbstractSegment, Carry, Info, SegmentFrames
from ._in_axes import Inputs
from ._stops import Stops


class IterateState(NamedTuple):
    """What a run resumes from.

    Attributes:
        state: The state.
        taken: The number of steps so far.
        status: A code of `Status`.
        cause: The number of the condition that stopped it, or 0.
    """

    state: PyTree
    taken: Array
    status: Array
    cause: Array

    @property
    def runs(self) -> Array:
        """Whether it has neither failed nor been stopped."""
        return (self.status == 0) & (self.cause == 0)


class StepSegment(AbstractSegment):
    """What does not change from one segment to the next; `elapsed` counts steps.

    Attributes:
        output: What to keep of a state, or None.
        keyed: Whether a step takes a random key.
    """

    elapsed: Array
    output: Callable | None
    stops: Stops
    saves: int = eqx.field(static=True)
    slots: int = eqx.field(static=True)
    segment_steps: int = eqx.field(static=True)
    keyed: bool = eqx.field(static=True)
    clock: ClassVar[str] = "step"
    unit: ClassVar[str] = "step"
    end: ClassVar[str] = "step"

    def start(self, state: PyTree) -> Carry:
        """Returns what the first segment starts from."""
        zero = jnp.zeros((), jnp.int32)
        return Carry(IterateState(state, zero, zero, jnp.zeros((), jnp.int8)), zero)

    @eqx.filter_jit
    def advance(self, inputs: Inputs, carry: Carry) -> tuple[Carry, SegmentFrames, Info]:
        """Takes the steps of one segment."""
        step, _, key = inputs.whole(inputs.own)
        targets = jax.lax.dynamic_slice(self.elapsed, (carry.reached,), (self.slots,))

        def one(carried):
            number, now = carried
            keys = (jax.random.fold_in(key, now.taken),) if self.keyed else ()
            return number + 1, now._replace(state=step(now.state, *keys), taken=now.taken + 1)

        def reach(carried, target):
            number, now = carried
            # a time that has passed already, so that a chain that has ended takes no step
            goal = jnp.where(now.runs, target, -jnp.ones_like(target))
            number, now = while_loop(
                lambda c: (c[1].taken < goal) & (c[0] < self.segment_steps), one, (number, now), like=(key, goal)
            )
            failed = now.runs & _any_nan(now.state)
            status = jnp.where(failed, jnp.full_like(now.status, int(Status.nonfinite)), now.status)
            arrived = now.runs & (now.taken == target)
            now = now._replace(status=status)
            valid, kept = arrived & ~failed & (self.saves > 0), None
            if self.saves:
                cause = self.stops.first(lambda stop: stop(now.state))
                now = now._replace(cause=jnp.where(valid, cause, now.cause))
                kept = jax.tree.map(jnp.asarray, now.state if self.output is None else self.output(now.state))
            return (number, now), (kept, valid, arrived)

        (_, end), (kept, valid, arrived) = scan(reach, (jnp.zeros((), jnp.int32), carry.member), targets, like=key)
        valid = valid & (carry.reached + jnp.arange(self.slots, dtype=jnp.int32) < self.saves)
        after = Carry(end, carry.reached + jnp.sum(arrived, dtype=jnp.int32))
        return after, SegmentFrames(kept, valid), _info(after)

    def states(self, inputs: Inputs, carry: Carry) -> PyTree:
        """Returns the state."""
        del inputs
        return carry.member.state

    def info(self, carry: Carry) -> Info:
        """Returns what the host looks at, as NumPy arrays."""
        return Info(*map(np.asarray, _info(carry)))

    def time_at(self, elapsed: np.ndarray) -> np.ndarray:
        """Returns the number of steps."""
        return elapsed


def _info(carry: Carry) -> Info:
    now = carry.member
    return Info(carry.reached, now.status, now.taken, now.cause, now.taken, jnp.zeros_like(now.taken))


def _any_nan(state: PyTree) -> Any:
    found = jnp.asarray(False)
    for x in jax.tree.leaves(state):
        if jnp.issubdtype(x.dtype, jnp.inexact):
            found = found | jnp.any(jnp.isnan(x))
    return found
