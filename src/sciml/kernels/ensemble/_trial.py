"""The test case of the ensemble kernel before `impl="auto"` uses it: the Lorenz system with Heun's method.

Fixed steps tell whether the numbers are right, to some roundings. Adaptive steps, of which every member takes its own
number, compare its speed with XLA's loop over lanes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._lanes import Lanes
from .._verdicts import Case, Trial
from ._member import Counted, Members, UntilDone
from ._run import build, run

_FEW_MEMBERS, _MANY_MEMBERS = 300, 16_384
_STEPS, _STEP, _END = 20, 0.01, 2.0
_ROUNDINGS = 1000  # neighbouring paths part, by a small factor in so short a time
_RTOL = 1e-4


class _State(NamedTuple):
    """The state of a member, in time and in space, and the size of its next step."""

    t: Array
    h: Array
    y: Array


def trial() -> Trial:
    """Returns the trial of the kernel of ensembles."""
    return Trial("ensembles", _cases)


def _cases(kernel: str) -> list[Case]:
    return [_case(kernel, _fixed(), _FEW_MEMBERS, False), _case(kernel, _adaptive(), _MANY_MEMBERS, True)]


def _case(kernel: str, loop: Counted | UntilDone, count: int, timed: bool) -> Case:
    rates = jnp.linspace(20.0, 30.0, count, dtype=jnp.float32)
    starts = jnp.broadcast_to(jnp.asarray([[1.0], [0.5], [20.0]], jnp.float32), (3, count))
    body = build(loop, Members((starts, rates), (True, True), count), kernel)

    def by_kernel(starts: Array, rates: Array) -> Array:
        return run(body, Members((starts, rates), (True, True), count))[0]

    def by_xla(starts: Array, rates: Array) -> Array:
        lanes = Lanes(count)
        inputs = lanes.enter((starts, rates), True)
        state = lanes.carry(lanes.call(loop.start, inputs))
        if isinstance(loop, Counted):

            def step(n: Any, state: Any) -> Any:
                return lanes.carry(lanes.call(lambda s, i: loop.step(s, i, n), state, inputs))

            state = jax.lax.fori_loop(0, _STEPS, step, state)
        else:
            end = jnp.float32(_END)
            state = jax.lax.while_loop(
                lambda s: lanes.any(lanes.call(lambda s: loop.pending(s, end), s)),
                lambda s: lanes.carry(lanes.call(lambda s, i: loop.advance(s, i, end), s, inputs)),
                state,
            )
        return lanes.leave(lanes.call(loop.result, state, inputs))

    # with error control, rounding may change a decision, and the error is the error of the method
    tolerance = 100 * _RTOL if timed else _ROUNDINGS * float(jnp.finfo(jnp.float32).eps)
    return Case(by_kernel, by_xla, (starts, rates), tolerance, timed)


def _lorenz(y: Array, rho: Array) -> Array:
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def _heun(y: Array, rho: Array, h: Array) -> tuple[Array, Array]:
    """Heun's step, and its difference from Euler's."""
    first = _lorenz(y, rho)
    second = _lorenz(y + h * first, rho)
    return y + h / 2 * (first + second), h / 2 * (second - first)


def _start(inputs: Any) -> _State:
    y, _ = inputs
    return _State(jnp.zeros((), y.dtype), jnp.full((), _STEP, y.dtype), y)


def _fixed() -> Counted:
    def step(state: _State, inputs: Any, number: Array) -> _State:
        del number
        return state._replace(y=_heun(state.y, inputs[1], state.h)[0])

    return Counted(_start, step, lambda state, number: state, lambda state, inputs: state.y, ((0, 1, _STEPS),))


def _adaptive() -> UntilDone:
    def advance(state: _State, inputs: Any, target: Array) -> _State:
        h = jnp.minimum(state.h, target - state.t)
        y, error = _heun(state.y, inputs[1], h)
        ratio = jnp.max(jnp.abs(error) / (_RTOL * (1 + jnp.abs(y))))
        good = (ratio <= 1) & (state.t < target)
        following = h * jnp.clip(0.9 * jax.lax.rsqrt(jnp.maximum(ratio, 1e-6)), 0.2, 5.0)
        running = state.t < target
        return _State(
            jnp.where(good, state.t + h, state.t),
            jnp.where(running, following, state.h),
            jnp.where(good, y, state.y),
        )

    return UntilDone(
        start=_start,
        end=lambda inputs: jnp.full((), _END, inputs[1].dtype),
        pending=lambda state, target: state.t < target,
        advance=advance,
        saved=lambda state, inputs, target: state.y,
        result=lambda state, inputs: state.y,
    )
