"""Fixed steps of a reversible method with saved states: forwards without a record; back, see `_backward`."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._loops import scan_to_end, while_loop
from ....kernels._lanes import Lanes, Unbatched
from ...integrate._abstract import FixedSteps
from ...integrate._finite_steps import result_of_steps
from ...integrate._integrator import Integrator, Operands, known
from ...integrate._result import Cotangents, Result, Saves
from ._abstract import AbstractReversibleLoop
from ._backward import BackwardPass, BackwardStart, Instant, saved_in_step, step_of
from ._fixed_steps import ReversibleLoop, warn_of_coupling
from ._pair_state import Pair
from ._stepper import ReversibleStepper
from ._symmetric_stepper import SymmetricStepper


class _Progress(NamedTuple):
    """What a member carries forwards.

    Attributes:
        number: The number of steps taken.
        pair: The state, finite.
        failed: Whether the next step is not finite.
    """

    number: Array
    pair: Pair
    failed: Array


class ReversibleSavingLoop(AbstractReversibleLoop):
    """A fixed number of steps of a reversible method over lanes, with saved times, which may differ between members.

    Attributes:
        integrator: How one member is advanced; its method is a `ReversibleStepper` or a `SymmetricStepper`.
        lanes: The engine.
        count: The number of steps of length `dt`.
        tail: Whether a shorter step follows, which ends at the end time.
        slopes: Whether saved times are differentiated.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched
    count: int = eqx.field(static=True)
    tail: bool = eqx.field(static=True)
    slopes: bool = eqx.field(static=True)

    @property
    def fixed(self) -> FixedSteps:
        """The steps that it takes."""
        return FixedSteps(self.count, self.tail)

    @property
    def max_steps(self) -> int:
        """The number of steps that it takes at most."""
        return self.count + 1

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Takes all steps; `y0` and `operands` are lane values."""
        return self._forward(y0, operands, saves)[0]

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, BackwardStart, None]:
        """Takes all steps and returns what `backward` needs; warns if that will not lead back."""
        assert isinstance(self.integrator.stepper, ReversibleStepper | SymmetricStepper)
        warn_of_coupling(self.integrator.stepper.coupling, self.count, y0)
        return *self._forward(y0, operands, saves), None

    def backward(
        self,
        cotangent: Cotangents,
        residuals: BackwardStart,
        common: None,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, PyTree]:
        """Carries the cotangents of the saved states back; see `AbstractLoop.backward`."""
        del common
        back = BackwardPass(self.integrator, self.lanes, self.slopes)
        return back.run(cotangent.ys, residuals, operands, saves, differentiable, self._look_up)

    def errors(self, y0: PyTree, operands: Operands) -> tuple[Result, PyTree[Array]]:
        """Returns the result, and how far the backward pass misses the initial state; saved times change no step."""
        return ReversibleLoop(self.integrator, self.lanes, self.count, self.tail).errors(y0, operands)

    def _look_up(self, number: PyTree, operands: Operands) -> Instant:
        return self.lanes.call(_instant, number, operands)

    def _forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> tuple[Result, BackwardStart]:
        assert saves is not None  # the loop is for saved times
        lanes = self.lanes

        def until(progress, target):
            def pending(progress):
                return lanes.any(lanes.call(_is_pending, progress, target))

            def iterate(progress):
                return lanes.carry(lanes.call(self._advance, progress, target, operands))

            return while_loop(pending, iterate, progress, like=(operands, target))

        def step_with(time, beyond):
            return lanes.carry(lanes.call(self._step_with, lanes.enter(time, saves.batched), operands, beyond))

        def advance(carry, time, beyond):
            progress, last = carry
            beyond = lanes.enter(beyond, False)
            number = step_with(time, beyond)
            progress = until(progress, number)
            return progress, lanes.carry(lanes.call(_last_reached, progress, number, last, beyond))

        def save(carry, time):
            inside = step_with(time, lanes.enter(jnp.zeros((), bool), False))
            y = lanes.call(self._saved, carry[0], inside, lanes.enter(time, saves.batched), operands)
            return lanes.leave(y), lanes.leave(inside)

        progress = lanes.carry(lanes.call(_begin, y0))
        carry, (ys, saved_in) = scan_to_end(advance, save, (progress, progress), saves.times, like=operands)
        progress, last = carry
        result = Result(*lanes.leave(lanes.call(self._result, progress, operands)))
        end, number, y0 = lanes.leave((last.pair, last.number, lanes.carry(y0)))
        return result._replace(ys=ys), BackwardStart(end, number, y0, saved_in, None)

    # what follows is of one member

    def _step_with(self, time, operands, beyond):
        """Returns the number of the step that a saved time lies in, or ends; beyond, the number of all steps."""
        eps, total = jnp.finfo(time.dtype).eps, self.count + self.tail
        # a time that is the end of a step but for rounding is within that step, not the next
        number = jnp.ceil(time / operands.dt * (1 - 4 * eps)).astype(jnp.int32) - 1
        return jnp.where(beyond, total, jnp.clip(number, 0, total - 1))

    def _advance(self, progress, target, operands):
        """Takes a step of a member that is to take one."""
        number, pair, failed = progress
        field, t, h = step_of(self.integrator, _instant(number, operands), operands)
        new = self.integrator.stepper.step(field, t, h, pair, None).y1
        finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(new)]).all()
        active = _is_pending(progress, target)
        moves = active & finite
        pair = jax.tree.map(lambda a, b: jnp.where(moves, a, b), new, pair)
        return _Progress(number + moves.astype(jnp.int32), pair, failed | (active & ~finite))

    def _saved(self, progress, inside, time, operands):
        number, pair, failed = progress
        y = saved_in_step(self.integrator, pair, time, _instant(number, operands), operands)
        finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(y)]).all()
        return known(y, ~failed & (number == inside) & finite)

    def _result(self, progress, operands):
        return result_of_steps(progress.pair.y, progress.number, self.count + self.tail, operands)


def _instant(number: Array, operands: Operands) -> Instant:
    """Returns a step by its number, so that time does not drift."""
    assert operands.dt is not None  # fixed steps have their size
    elapsed = number.astype(operands.dt.dtype) * operands.dt
    return Instant(elapsed, jnp.zeros_like(elapsed), operands.dt)


def _begin(y0: PyTree) -> _Progress:
    return _Progress(jnp.zeros((), jnp.int32), Pair(y0, y0), jnp.zeros((), bool))


def _last_reached(progress: _Progress, inside: Array, last: _Progress, beyond: Array) -> _Progress:
    """Returns where a member is if it has come to the step of a saved time, or where it was at the last it came to."""
    there = (progress.number == inside) & ~beyond
    return jax.tree.map(lambda a, b: jnp.where(there, a, b), progress, last)


def _is_pending(progress: _Progress, target: Array) -> Array:
    return (progress.number < target) & ~progress.failed
