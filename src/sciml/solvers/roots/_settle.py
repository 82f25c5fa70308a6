r"""Pseudo-transient continuation: a model is followed to rest by rough implicit steps that grow.

A step of length $h$ solves $(1/h - f'(y)) \, \delta = f(y)$: it follows the solution where it is short, and is Newton's
step where it is long. So a state at rest is found that the model itself comes to, where a root finder ends at any root,
as one with negative amounts. Sums that the rates conserve are conserved by the steps.

Source: C. T. Kelley and D. E. Keyes, SIAM Journal on Numerical Analysis 35 (1998) 508.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._jax._loops import while_loop
from ..._types import IntScalarLike
from ..control._pid import Tolerances, scaled_error
from ..linear._dense import DenseMatrix
from ._conserved import rate_of, with_jacobian

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

_LEFT = 0.5
"""By how much a step may differ from Newton's where the model is at rest, of each component: it is so long that this
part of what is left of a motion is gone after it, however slow."""

_ROUNDINGS = 16
"""Rates that are smaller than the terms of their Jacobian by the precision times this vanish to rounding."""

_DAMPED, _UNDAMPED = 10.0, 0.1
"""By how much the damping of Levenberg's and Marquardt's steps grows where the rates do, and falls where they fall."""

_STUCK = 1e12
"""A damping with which steps are too short to lead anywhere."""


class Settled(NamedTuple):
    """The state at which a model came to rest.

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
        rates: The vector field there.
        jacobian: Its Jacobian there.
        h: The length of the next step, while the model is followed.
        damping: The damping of the next step, while a root is sought.
        starts: Whether the next step only evaluates the vector field, as the first of each part does.
        follows: Whether the model is followed.
        good: Whether it is at rest.
        steps: The number of steps.
    """

    x: Array
    rates: Array
    jacobian: Array
    h: Array
    damping: Array
    starts: Array
    follows: Array
    good: Array
    steps: Array


def settle(
    f: Callable[[Array], Array],
    start: Float[Array, " n"],
    tolerances: Tolerances,
    max_steps: IntScalarLike,
    seeks: bool,
) -> Settled:
    """Follows a vector field to rest; if it does not come to rest, looks for a root near the start.

    The second part is the method of Levenberg and Marquardt. It has the loop of the first, since both take a linear
    system, and the rates and their Jacobian after a step. These stand once in the program.

    Newton's step is also short near an unstable root, which the model leaves. So the model is at rest where also a step
    that is long compared with its times is about Newton's, or where the rates vanish to rounding.

    Args:
        f: The vector field, whose Jacobian is regular where it is at rest.
        start: The start.
        tolerances: How long Newton's step may be at the end.
        max_steps: The limit on steps of each part.
        seeks: Whether there is a second part.
    """
    unit, info, dense = jnp.eye(start.size, dtype=start.dtype), jnp.finfo(start.dtype), DenseMatrix(np.eye(start.size))

    def step(carry: _Carry) -> _Carry:
        x, rates, jacobian, h, damping, starts = carry[:6]
        matrix, right = unit / h - jacobian, rates
        if seeks:
            normal = jnp.matmul(jacobian.T, jacobian, precision="highest")
            matrix = jnp.where(carry.follows, matrix, normal + damping * unit * jnp.diagonal(normal)[None])
            right = jnp.where(carry.follows, right, -jnp.matmul(jacobian.T, rates, precision="highest"))
        factors = jax.vmap(dense.factorise)(jnp.stack([-jacobian, matrix]))
        newton, move = jax.vmap(dense.substitute)(factors, jnp.stack([rates, right]))
        newton = jnp.where(jnp.all(rates == 0), 0, newton)
        move = jnp.where(starts, 0, move)
        after, beyond = with_jacobian(f, x + move)
        finite = jnp.all(jnp.isfinite(after)) & jnp.all(jnp.isfinite(move)) & jnp.all(jnp.isfinite(beyond))

        bent = after - rates - jnp.matmul(jacobian, move, precision="highest")
        of_move = jax.tree.map(lambda x: x[1], factors)
        errors = jax.vmap(lambda b: dense.substitute(of_move, b))(jnp.stack([bent, after - rates]))
        size = _ROUGH * jnp.maximum(jnp.abs(x), jnp.abs(x + move)) + tolerances.atol
        bent = jnp.max(jnp.abs(errors[0]) / size, initial=0.0)
        turned = jnp.linalg.norm(errors[1] / size) > 2 * _TURNED * jnp.linalg.norm(move / size)
        near = finite & (bent <= 1) & ~turned
        longer = jnp.clip(0.8 / jnp.sqrt(jnp.maximum(bent, 1e-6)), _SHORTER, _LONGER)
        h = jnp.where(starts, _FIRST / rate_of(beyond[None]), h * jnp.where(near, longer, _SHORTER))

        terms = jnp.matmul(jnp.abs(jacobian), jnp.abs(x), precision="highest")
        vanish = jnp.all(jnp.abs(rates) <= _ROUNDINGS * info.eps * terms)
        slow = near & jnp.all(jnp.abs(move - newton) <= _LEFT * jnp.abs(newton))
        good = ~starts & (scaled_error(newton, x, x, tolerances) <= 1) & (vanish | slow | ~carry.follows)

        smaller = finite & (jnp.linalg.norm(after) < jnp.linalg.norm(rates))
        damping = jnp.where(carry.follows | starts, damping, damping * jnp.where(smaller, _UNDAMPED, _DAMPED))
        taken = starts | jnp.where(carry.follows, near, smaller)
        rates, jacobian = jnp.where(taken, after, rates), jnp.where(taken, beyond, jacobian)
        steps = carry.steps + 1 - starts.astype(jnp.int32)
        left = carry.follows & ~good & ((steps >= max_steps) | ~(h > info.tiny) | ~(h < info.max / _LONGER))
        x = jnp.where(good, x + newton, jnp.where(left, start, jnp.where(taken, x + move, x)))
        steps = jnp.where(left, max_steps, steps)
        return _Carry(
            x, rates, jacobian, h.astype(x.dtype), damping.astype(x.dtype), left, carry.follows & ~left, good, steps
        )

    def going(carry: _Carry) -> Array:
        return ~carry.good & (carry.steps < (2 if seeks else 1) * max_steps) & (carry.damping < _STUCK)

    no, one = jnp.zeros((), bool), jnp.ones((), start.dtype)
    none = jnp.zeros_like(start)
    first = _Carry(start, none, jnp.zeros_like(unit), one, one, ~no, ~no, no, jnp.zeros((), jnp.int32))
    found = while_loop(going, step, first, like=start)
    return Settled(found.x, found.good, found.steps)
