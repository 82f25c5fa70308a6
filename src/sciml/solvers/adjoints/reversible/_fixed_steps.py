"""Fixed steps of a reversible method: forwards without a record, and backwards from the end state only."""

import abc
import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._checkpoint_levels import Budget
from ...._jax._largest import largest
from ...._jax._loops import scan
from ...._jax._marks import step_number
from ...._warn import warn
from ....kernels._backends import XLA, KernelRequest
from ....kernels._lanes import Lanes, Unbatched, is_value
from ...integrate._abstract import AbstractLoop, FixedSteps
from ...integrate._fixed_steps import count_finite, result_of_steps
from ...integrate._integrator import Integrator, Operands
from ...integrate._result import Cotangents, Result, Saves
from ._stepper import Pair, ReversibleStepper, SymmetricStepper

# The common part of the loops of a reversible method.


class AbstractReversibleLoop(AbstractLoop):
    """A loop of a reversible method, whose backward pass runs the steps backwards."""

    impl: ClassVar[KernelRequest] = XLA

    def over(self, lanes: Lanes | Unbatched, state_bytes: int, budget: Budget) -> "AbstractReversibleLoop":
        """Returns the loop over other lanes; its memory is what it is."""
        del state_bytes, budget
        return dataclasses.replace(self, lanes=lanes)

    @abc.abstractmethod
    def errors(self, y0: PyTree, operands: Operands) -> tuple[Result, PyTree[Array]]:
        """Returns the result, and how far the backward pass misses the initial state, in each leaf relatively."""


class Kept(NamedTuple):
    """The start of the backward pass, arrays with members last: the size of a few states.

    Attributes:
        end: The state at the end.
        finite: The number of steps after which it was still finite.
        y0: The initial state.
    """

    end: Pair
    finite: Array
    y0: PyTree


class ReversibleLoop(AbstractReversibleLoop):
    """A fixed number of steps of a reversible method over lanes.

    Attributes:
        integrator: How one member is advanced; its method is a `ReversibleStepper`.
        lanes: The engine.
        count: The number of steps of length `dt`.
        tail: Whether a shorter step follows, which ends at the end time.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched
    count: int = eqx.field(static=True)
    tail: bool = eqx.field(static=True)

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
        return self._forward(y0, operands)[0]

    def forward_recorded(self, y0: PyTree, operands: Operands, saves: Saves | None) -> tuple[Result, Kept, None]:
        """Takes all steps and returns what `backward` needs; warns if that will not lead back."""
        del saves
        warn_of_coupling(self._method.coupling, self.count, y0)
        return *self.record(y0, operands), None

    def record(self, y0: PyTree, operands: Operands) -> tuple[Result, Kept]:
        """Takes all steps and returns what the backward pass starts from."""
        result, end, finite = self._forward(y0, operands)
        return result, Kept(*self.lanes.leave((end, finite, self.lanes.carry(y0))))

    @property
    def _method(self) -> ReversibleStepper | SymmetricStepper:
        assert isinstance(self.integrator.stepper, ReversibleStepper | SymmetricStepper)
        return self.integrator.stepper

    def _forward(self, y0, operands):
        def step(carry, _):
            number, pair = carry
            pair = self.lanes.call(lambda *a: self._step(*a, False), pair, self._shared(number), operands)
            return (number + 1, self.lanes.carry(pair)), None

        def segment(carry, length):
            number, pair, finite = carry
            (number, pair), _ = scan(step, (number, pair), length=length, like=operands)
            return number, pair, self.lanes.carry(self.lanes.call(count_finite, finite, pair, self._shared(number)))

        zero = jnp.zeros((), jnp.int32)
        carry = (zero, self.lanes.carry(Pair(y0, y0)), self.lanes.carry(self._shared(zero)))
        # whether the state is still finite is checked between segments only
        length = max(1, math.isqrt(self.count))
        carry, _ = scan(
            lambda c, _: (segment(c, length), None), carry, length=self.count // length, like=(y0, operands)
        )
        number, pair, finite = segment(carry, self.count % length) if self.count % length else carry
        if self.tail:
            pair = self.lanes.call(lambda *a: self._step(*a, True), pair, self._shared(number), operands)
            finite = self.lanes.call(count_finite, finite, pair, self._shared(number + 1))
        pair, finite = self.lanes.carry((pair, finite))
        return Result(*self.lanes.leave(self.lanes.call(self._result, pair, finite, operands))), pair, finite

    def backward(
        self,
        cotangent: Cotangents,
        residuals: Kept,
        common: None,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, None]:
        """Carries the cotangent of the end state back; see `AbstractLoop.backward`."""
        del common, saves
        carry = self._back(residuals, cotangent.ys, operands, differentiable)
        finite, y0, ys_bar = self._enter((residuals.finite, residuals.y0, cotangent.ys))
        return *self.lanes.leave(self.lanes.call(self._finish, carry, finite, y0, ys_bar)), None

    def errors(self, y0: PyTree, operands: Operands) -> tuple[Result, PyTree[Array]]:
        """Returns the result, and how far the backward pass misses the initial state, in each leaf relatively."""
        result, kept = self.record(y0, operands)
        nothing = jax.tree.map(lambda _: False, operands, is_leaf=is_value)
        carry = self._back(kept, jax.tree.map(jnp.zeros_like, kept.end.y), operands, nothing)
        errors = self.lanes.call(
            lambda c, y0: jax.tree.map(relative_error, *c[0], y0, c[3]), carry, self._enter(kept.y0)
        )
        return result, self.lanes.leave(errors)

    def _back(self, kept, cotangent, operands, differentiable):
        """Runs all steps back; returns the initial pair, its cotangent, the operands' cotangent, and the scales."""
        diff, constant = eqx.partition(operands, differentiable, is_leaf=is_value)

        def reverse_step(carry, tail):
            number, carry = carry
            out = self.lanes.call(lambda *a: self._reverse_step(*a, tail), carry, self._shared(number), diff, constant)
            return number - 1, self.lanes.carry(out)

        end, bar = self._enter((kept.end, cotangent))
        carry = self.lanes.carry(self.lanes.call(start_of_backward_pass, end, bar, diff))
        number = jnp.full((), self.count, jnp.int32)
        if self.tail:
            _, carry = reverse_step((number, carry), True)
        like = (operands, kept, cotangent)
        (_, carry), _ = scan(
            lambda c, _: (reverse_step(c, False), None), (number - 1, carry), length=self.count, like=like
        )
        return carry

    def _enter(self, tree):
        return self.lanes.enter(tree, self.lanes.count is not None)

    def _shared(self, number: Array):
        return self.lanes.enter(step_number(number), False)

    def _step_of(self, number, operands, tail):
        """Returns vector field, time and length of a step."""
        elapsed = number.astype(operands.dt.dtype) * operands.dt  # from the number, so that time does not drift
        h = operands.span - elapsed if tail else operands.dt
        return self.integrator.bound(operands), self.integrator.time(elapsed, operands), operands.direction * h

    def _step(self, pair, number, operands, tail):
        return self._method.step(*self._step_of(number, operands, tail), pair, None).y1

    def _reverse_step(self, carry, number, diff, constant, tail):
        pair, bar, diff_bar, scale = carry

        def step(diff):
            return self._step_of(number, eqx.combine(diff, constant), tail)

        pair, bar, more = self._method.reverse_step(step, pair, bar, diff)
        scale = jax.tree.map(lambda s, y: jnp.maximum(s, _largest(y)), scale, pair.y)
        return pair, bar, jax.tree.map(jnp.add, diff_bar, more), scale

    def _result(self, pair, finite, operands):
        return result_of_steps(pair.y, finite, self.count + self.tail, operands)

    def _finish(self, carry, finite, y0, cotangent):
        """Returns the cotangents: zero where the result is unused or failed, NaN where the pass missed the start."""
        pair, bar, diff_bar, scale = carry
        used = [jnp.any(c != 0) for c in jax.tree.leaves(cotangent)]
        used = (finite == self.count + self.tail) & jnp.stack(used).any()
        back = came_back(jax.tree.map(relative_error, *pair, y0, scale))

        def choose(x):
            return jnp.where(used, jnp.where(back, x, jnp.full_like(x, jnp.nan)), jnp.zeros_like(x))

        return jax.tree.map(choose, (jax.tree.map(jnp.add, *bar), diff_bar))


def needed_coupling(count: int, eps: float) -> float:
    """Returns the coupling with which rounding over the backward steps grows to the limit of `_tolerance`."""
    return (eps / _tolerance(eps)) ** (1 / count)


def _tolerance(eps: float) -> float:
    """Returns how far the recomputed initial state may be from the known one, relative to the state's size."""
    return eps ** (1 / 3)


def warn_of_coupling(coupling: float, count: int, y0: PyTree) -> None:
    """Warns if the coupling by itself makes the backward steps miss `y0`, a PyTree of arrays or lane values."""
    eps = max(float(jnp.finfo(v.dtype).eps) for v in jax.tree.leaves(y0, is_leaf=is_value))
    needed = needed_coupling(count, eps)
    if coupling >= needed:
        return
    growth = -count * math.log(coupling)
    wider = "float64, " if eps > 1e-10 else ""
    warn(
        f"`Reversible(coupling={coupling})` loses the initial state over {count} steps: rounding grows by "
        f"exp({growth:.0f}) in the backward pass. Use a coupling closer to 1, at least {math.sqrt(needed):.9g}, "
        f"{wider}or `sciml.adjoints.Checkpointed()`.",
    )


def came_back(errors: PyTree[Array]) -> Array:
    """Returns whether a backward pass with these errors led to the initial state."""
    return jnp.stack([e <= _tolerance(float(jnp.finfo(e.dtype).eps)) for e in jax.tree.leaves(errors)]).all()


def relative_error(y: Array, z: Array, y0: Array, scale: Array) -> Array:
    """Returns by how much two copies of a leaf miss the initial one, relative to its largest value."""
    missed = jnp.maximum(_largest(y - y0), _largest(z - y0))
    return jnp.where(missed == 0, missed, missed / scale)


def _largest(x: Array) -> Array:
    return largest(jnp.abs(x), initial=0)


def start_of_backward_pass(end: Pair, cotangent: PyTree, diff: PyTree) -> Any:
    """Returns the carry of the backward pass: the pair, its cotangent, the operands' cotangent, and the scales."""
    zeros = jax.tree.map(jnp.zeros_like, (end.z, diff))
    return end, Pair(cotangent, zeros[0]), zeros[1], jax.tree.map(_largest, end.y)
