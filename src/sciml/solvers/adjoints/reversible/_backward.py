r"""The backward pass of a reversible method, over steps of any length and past saved states.

A saved state at $t_n + \theta h$ is the method's own interpolation within its step, a function of the pair at the
start of the step,

$$s = I_\theta\big(y_n, y_{n+1}, k_1, \dots, k_m\big), \qquad
  y_{n+1} = \lambda y_n + (1 - \lambda) z_n + \Psi_h(t_n, z_n),$$

with the stages $k$ of $\Psi_h(t_n, z_n)$. The backward pass recomputes the pair at the start of the step, and adds the
contribution of $\bar s$ to its cotangent and to the cotangents of parameters and times. So a saved time costs an
evaluation of the method and its derivative, and memory for nothing but the saved state itself.

Each member has a separate number of steps. With saved times it starts back from the last of them that it reached: later
states, including a failure, are not outputs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._largest import largest
from ...._jax._loops import scan_to_end, while_loop
from ....kernels._lanes import Lanes, Unbatched, is_value
from ...integrate._integrator import Integrator, Operands, up_to
from ...integrate._result import Saves
from ._fixed_steps import came_back, relative_error, start_of_backward_pass
from ._stepper import Pair, ReversibleStepper, SymmetricStepper


class BackwardStart(NamedTuple):
    """The start of the backward pass, arrays with members last.

    Attributes:
        end: The state at the end, or about the last saved time that was reached.
        number: The number of steps that led there.
        y0: The initial state.
        saved_in: The number of the step that each saved time lies in, or None.
        record: The starts and lengths of steps, where they do not follow from their number.
    """

    end: Pair
    number: Array
    y0: PyTree
    saved_in: Array | None
    record: Array | None


class Instant(NamedTuple):
    """A step: the elapsed time at its start, what rounding has taken from that, and the length that was tried."""

    elapsed: Array
    compensation: Array
    h: Array


LookUp = Callable[[PyTree, Operands], Instant]
"""Returns the step of a number, all lane values."""


class BackwardPass(eqx.Module):
    """Undoes steps over lanes and carries cotangents along.

    Attributes:
        integrator: How one member is advanced; its method is a `ReversibleStepper` or a `SymmetricStepper`.
        lanes: The engine.
        slopes: Whether saved times are differentiated.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched
    slopes: bool = eqx.field(static=True)

    def run(
        self,
        cotangent: PyTree,
        kept: BackwardStart,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
        look_up: LookUp,
    ) -> tuple[PyTree, PyTree, PyTree]:
        """Carries the cotangents of the saved states, or of the end state, back; see `AdaptiveLoop.backward`."""
        lanes, operands = self.lanes, operands._replace(rows=None)  # only the loop forwards writes into rows
        diff, constant = eqx.partition(operands, differentiable, is_leaf=is_value)
        like = (operands, kept, cotangent, saves)
        end, number, y0 = self._enter((kept.end, kept.number, kept.y0))
        # a gradient of zero is not NaN where the backward pass misses the start
        used = jnp.stack([jnp.any(c != 0, axis=self._own_axes(c)) for c in jax.tree.leaves(cotangent)]).any(axis=0)
        bar = cotangent if saves is None else jax.tree.map(lambda c: jnp.zeros_like(c[0]), cotangent)
        carry = lanes.call(start_of_backward_pass, end, self._enter(bar), diff)
        carry, slopes = lanes.carry((number, *carry)), None
        if saves is None:
            begin = lanes.enter(jnp.zeros((), jnp.int32), False)
            carry = self._until(carry, begin, operands, diff, constant, look_up, like)
        else:

            def enter(save):
                time, inside, bar = save
                inside = self._enter(inside)
                return lanes.enter(time, saves.batched), inside, look_up(inside, operands), self._enter(bar)

            def save_vjp(carry, save, beyond):
                stop = self._enter(jnp.where(beyond, jnp.zeros_like(save[1]), save[1]))
                carry = self._until(carry, stop, operands, diff, constant, look_up, like)
                saved = lanes.enter(~beyond, False)
                return lanes.carry(lanes.call(self._save_vjp, carry, *enter(save), diff, constant, saved))

            def slope(carry, save):
                return lanes.leave(lanes.call(self._slope, carry, *enter(save), operands)) if self.slopes else None

            xs = (saves.times, kept.saved_in, cotangent)
            # from save to save and on to the start: one loop, whose body is compiled once
            carry, slopes = scan_to_end(save_vjp, slope, carry, xs, reverse=True, like=like)
        return *lanes.leave(lanes.call(_finish, carry, y0, self._enter(used))), slopes

    def errors(self, kept: BackwardStart, operands: Operands, look_up: LookUp) -> PyTree[Array]:
        """Returns how far the backward pass misses the initial state, in each leaf relative to its largest value."""
        lanes = self.lanes
        end, number, y0 = self._enter((kept.end, kept.number, kept.y0))
        nothing = jax.tree.map(lambda _: None, operands, is_leaf=is_value)
        zeros = lanes.call(lambda end: jax.tree.map(jnp.zeros_like, end.y), end)
        carry = lanes.carry((number, *lanes.call(start_of_backward_pass, end, zeros, nothing)))
        begin = lanes.enter(jnp.zeros((), jnp.int32), False)
        carry = self._until(carry, begin, operands, nothing, operands, look_up, (operands, kept))
        return lanes.leave(
            lanes.call(lambda carry, y0: jax.tree.map(relative_error, *carry[1], y0, carry[4]), carry, y0)
        )

    def _until(self, carry, target, operands, diff, constant, look_up, like):
        """Undoes steps until every member is at the start of the step of number `target`."""
        target = self.lanes.carry(target)

        def pending(carry):
            return self.lanes.any(self.lanes.call(lambda number, target: number > target, carry[0], target))

        def iterate(carry):
            previous = self.lanes.call(lambda number: jnp.maximum(number - 1, 0), carry[0])
            instant = look_up(previous, operands)
            return self.lanes.carry(self.lanes.call(self._reverse_step, carry, target, instant, diff, constant))

        return while_loop(pending, iterate, carry, like=(like, target))

    @property
    def _method(self) -> ReversibleStepper | SymmetricStepper:
        assert isinstance(self.integrator.stepper, ReversibleStepper | SymmetricStepper)
        return self.integrator.stepper

    def _own_axes(self, x: Array) -> tuple[int, ...]:
        return tuple(range(x.ndim - (self.lanes.count is not None)))

    def _enter(self, tree):
        return self.lanes.enter(tree, self.lanes.count is not None)

    # what follows is of one member

    def _reverse_step(self, carry, target, instant, diff, constant):
        """Undoes a step of a member that is to come back further."""
        number, pair, bar, diff_bar, scale = carry
        back = number > target

        def step(diff):
            return step_of(self.integrator, instant, eqx.combine(diff, constant))

        new_pair, new_bar, more = self._method.reverse_step(step, pair, bar, diff)
        pair, bar = jax.tree.map(lambda a, b: jnp.where(back, a, b), (new_pair, new_bar), (pair, bar))
        diff_bar = jax.tree.map(lambda a, b: a + jnp.where(back, b, jnp.zeros_like(b)), diff_bar, more)
        scale = jax.tree.map(lambda s, y: jnp.maximum(s, largest(jnp.abs(y), initial=0)), scale, pair.y)
        return number - back.astype(jnp.int32), pair, bar, diff_bar, scale

    def _save_vjp(self, carry, time, inside, instant, bar, diff, constant, saved):
        """Adds what a saved state's cotangent brings."""
        number, pair, pair_bar, diff_bar, scale = carry
        there = saved & (number == inside)  # a member that failed before has nothing saved here

        def at(pair, diff):
            return saved_in_step(self.integrator, pair, time, instant, eqx.combine(diff, constant))

        _, pull = jax.vjp(at, pair, diff)
        more = jax.tree.map(lambda x: jnp.where(there, x, jnp.zeros_like(x)), pull(bar))
        pair_bar, diff_bar = jax.tree.map(jnp.add, (pair_bar, diff_bar), more)
        return number, pair, pair_bar, diff_bar, scale

    def _slope(self, carry, time, inside, instant, bar, operands):
        """Returns the product of a saved state's cotangent with the derivative by its time."""
        number, pair, *_ = carry

        def along(time):
            return saved_in_step(self.integrator, pair, time, instant, operands)

        _, rate = jax.jvp(along, (time,), (jnp.ones_like(time),))
        slope = sum(jnp.sum(jnp.real(b * r)).astype(time.dtype) for b, r in zip(*map(jax.tree.leaves, (bar, rate))))
        return jnp.where(number == inside, slope, jnp.zeros_like(slope))


def step_of(integrator: Integrator, instant: Instant, operands: Operands) -> tuple[Any, Array, Array]:
    """Returns vector field, time and signed length of a step; the length of the last one depends on the end time."""
    h, _ = up_to(operands.span, instant.elapsed, instant.compensation, instant.h, operands.span)
    return integrator.bound(operands), integrator.time(instant.elapsed, operands), operands.direction * h


def saved_in_step(integrator: Integrator, pair: Pair, time: Array, instant: Instant, operands: Operands) -> PyTree:
    """Returns the state at an elapsed time within a step from a pair; at the end of the step, the method's state."""
    method = integrator.stepper
    assert isinstance(method, ReversibleStepper | SymmetricStepper)
    field, t, h = step_of(integrator, instant, operands)
    y1, dense = method.half_step(field, t, h, pair)
    length = jnp.where(h == 0, operands.direction, h)  # a member that ends where it starts has taken no step

    def inside(time):
        position = operands.direction * (time - instant.elapsed) / length
        return method.base.interpolate(position, length, pair.y, y1, dense)

    at_end = time * (1 + 4 * jnp.finfo(time.dtype).eps) >= instant.elapsed + operands.direction * h
    # also at the end, the derivative with respect to time is the derivative of the interpolation
    moved = jax.tree.map(lambda y1, a, b: y1 + (a - b), y1, inside(time), inside(jax.lax.stop_gradient(time)))
    return jax.tree.map(lambda a, b: jnp.where(at_end, a, b), moved, inside(time))


def _finish(carry: Any, y0: PyTree, used: Array) -> tuple[PyTree, PyTree]:
    """Returns the cotangents, zero where the result was not used, NaN where the backward pass missed the start."""
    _, pair, bar, diff_bar, scale = carry
    back = came_back(jax.tree.map(relative_error, *pair, y0, scale))

    def choose(x):
        return jnp.where(used, jnp.where(back, x, jnp.full_like(x, jnp.nan)), jnp.zeros_like(x))

    return jax.tree.map(choose, (jax.tree.map(jnp.add, *bar), diff_bar))
