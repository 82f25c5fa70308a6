r"""Pseudo-transient continuation: a model is followed to rest by rough implicit steps that grow.

A step of length $h$ solves $(1/h - f'(y)) \, \delta = f(y)$: it follows the solution where it is short, and is Newton's
step where it is long. So a state at rest is found that the model itself comes to, where a root finder ends at any root,
as one with negative amounts. Sums that the rates conserve are conserved by the steps.

Source: C. T. Kelley and D. E. Keyes, SIAM Journal on Numerical Analysis 35 (1998) 508.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..._jax._loops import while_loop
from ..._types import IntScalarLike
from ..control._pid import Tolerances, scaled_error
from ._conserved import jacobian_of, rate_of

_FIRST = 0.1
"""The first step in units of the time in which the model moves."""

_ROUGH = 0.5
"""How much of a component the curvature of the rates may add in a step: enough to stay with the solution."""

_TURNED = 0.75
"""The change of the rates in a step, as part of what they would be: at most 1/2 where solutions come together, and
more where the step is too long for those that part."""

_LONGER, _SHORTER = 3.0, 0.25
"""By how much a step differs from the last one at most. From a step that `_TURNED` admits, three times its length is
not beyond the range of lengths that it refuses."""


_DAMPED, _UNDAMPED = 10.0, 0.1
"""By how much the damping of Levenberg's and Marquardt's steps grows where the rates do, and falls where they fall."""

_STUCK = 1e12
"""A damping with which steps are too short to lead anywhere."""


class Settled(NamedTuple):
    """Where a model came to rest.

    Attributes:
        x: The state.
        good: Whether it is at rest.
        steps: The number of steps.
    """

    x: Float[Array, " n"]
    good: Bool[Array, ""]
    steps: Int[Array, ""]


class _Carry(NamedTuple):
    """The carry of the loop.

    Attributes:
        x: The state.
        h: The length of the next step, while the model is followed.
        damping: The damping of the next step, while a root is sought.
        follows: Whether the model is followed.
        good: Whether it is at rest.
        steps: The number of steps.
    """

    x: Array
    h: Array
    damping: Array
    follows: Array
    good: Array
    steps: Array


def settle(
    f: Callable[[Array], Array], start: Float[Array, " n"], tolerances: Tolerances, max_steps: IntScalarLike
) -> Settled:
    """Follows a vector field to rest; if it does not come to rest, looks for a root near the start.

    The second part is the method of Levenberg and Marquardt. It has the loop of the first, since both take the rates
    and their Jacobian, a linear system and the rates after a step.

    Args:
        f: The vector field, whose Jacobian is regular where it is at rest.
        start: The start.
        tolerances: How long Newton's step may be at the end.
        max_steps: The limit on steps of each part.
    """
    unit, info = jnp.eye(start.size, dtype=start.dtype), jnp.finfo(start.dtype)

    def step(carry: _Carry) -> _Carry:
        x, h, damping = carry.x, carry.h, carry.damping
        rates, jacobian = f(x), jacobian_of(f, x)
        newton = jnp.where(jnp.all(rates == 0), 0, jnp.linalg.solve(-jacobian, rates))
        good = scaled_error(newton, x, x, tolerances) <= 1
        normal = jnp.matmul(jacobian.T, jacobian, precision="highest")
        damped = normal + damping * unit * jnp.diagonal(normal)[None]
        matrix = jnp.where(carry.follows, unit / h - jacobian, damped)
        right = jnp.where(carry.follows, rates, -jnp.matmul(jacobian.T, rates, precision="highest"))
        move = jnp.linalg.solve(matrix, right)
        after = f(x + move)
        finite = jnp.all(jnp.isfinite(after)) & jnp.all(jnp.isfinite(move))

        bent = after - rates - jnp.matmul(jacobian, move, precision="highest")
        errors = jnp.linalg.solve(matrix, jnp.stack([bent, after - rates], axis=1))
        size = _ROUGH * jnp.maximum(jnp.abs(x), jnp.abs(x + move)) + tolerances.atol
        bent = jnp.max(jnp.abs(errors[:, 0]) / size, initial=0.0)
        turned = jnp.linalg.norm(errors[:, 1] / size) > 2 * _TURNED * jnp.linalg.norm(move / size)
        near = finite & (bent <= 1) & ~turned
        longer = jnp.clip(0.8 / jnp.sqrt(jnp.maximum(bent, 1e-6)), _SHORTER, _LONGER)
        h = h * jnp.where(near, longer, _SHORTER)

        smaller = finite & (jnp.linalg.norm(after) < jnp.linalg.norm(rates))
        damping = jnp.where(carry.follows, damping, damping * jnp.where(smaller, _UNDAMPED, _DAMPED))
        x = jnp.where(jnp.where(carry.follows, near, smaller), x + move, x)
        steps = carry.steps + 1
        left = carry.follows & ~good & ((steps >= max_steps) | ~(h > info.tiny) | ~(h < info.max / _LONGER))
        x = jnp.where(good, carry.x + newton, jnp.where(left, start, x))
        steps = jnp.where(left, max_steps, steps)
        return _Carry(x, h.astype(x.dtype), damping.astype(x.dtype), carry.follows & ~left, good, steps)

    def going(carry: _Carry) -> Array:
        return ~carry.good & (carry.steps < 2 * max_steps) & (carry.damping < _STUCK)

    h = _FIRST / rate_of(jacobian_of(f, start)[None])
    no, one = jnp.zeros((), bool), jnp.ones((), start.dtype)
    found = while_loop(going, step, _Carry(start, h, one, ~no, no, jnp.zeros((), jnp.int32)), like=start)
    return Settled(found.x, found.good, found.steps)
