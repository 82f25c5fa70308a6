r"""Newton's method with damped steps, for equations of any units and any scale.

A step is $\Delta x = -J^{-1} F(x)$. The trial $x + \lambda \Delta x$ is accepted if the step that would follow with the
same matrix, $-J^{-1} F(x + \lambda \Delta x)$, is shorter. Neither this nor the end depends on factors that equations
are multiplied by, unlike a norm of $F$. Steps are measured relative to the values of each unknown, so that they do not
depend on units either.

P. Deuflhard, Newton Methods for Nonlinear Problems, Springer (2004), sections 3.3.1 and 3.3.3.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._jax._loops import while_loop
from ..._types import IntScalarLike
from ..linear._dense import DenseMatrix

_LEAST_DAMPING = 1e-5
"""A shorter share of a step is not tried: the matrix is then singular nearby, or there is no root."""

_GROWTH = 1e3
"""How many times the tolerance a step may be that no longer gets shorter: by rounding, for which no step is too short.
`Tolerances` of the derivatives of a root allow as much."""


_NOISE = 4.0
"""Steps that rounding may cause are shorter than the tolerance by this factor, also for an unknown that is zero."""


class Root(NamedTuple):
    """A root.

    Attributes:
        x: The root, or the last iterate.
        rows: Factors that make the largest entry of each row of the scaled Jacobian one, shaped like `x`.
        sizes: The size of each unknown over the nodes, which is not zero, shape `(1, n)`.
        good: Whether it is a root.
        n_steps: The number of iterations.
    """

    x: Float[Array, "nodes n"]
    rows: Float[Array, "nodes n"]
    sizes: Float[Array, "1 n"]
    good: Bool[Array, ""]
    n_steps: Int[Array, ""]


class _Iteration(NamedTuple):
    """An iterate; `ended` is 1 for a root, 2 for a failure."""

    x: Array
    rows: Array
    sizes: Array
    damping: Array
    ended: Array
    count: Array


def damped_newton(
    f: Callable[[Array], Array],
    x: Float[Array, "nodes n"],
    tolerance: float,
    max_steps: IntScalarLike,
    like: Any = (),
) -> Root:
    """Returns a root of as many equations as unknowns; it has no derivative, see `implicit_root`.

    Args:
        f: The equations, of the shape of `x`.
        x: The start.
        tolerance: The length of a step that is neglected, relative to the largest value over the nodes.
        max_steps: The most iterations.
        like: Values that `f` closes over.
    """
    shape, matrices, eps = x.shape, DenseMatrix(np.zeros((x.size, x.size))), jnp.finfo(x.dtype).eps
    signs = np.random.default_rng(0).choice([-1.0, 1.0], x.size).astype(x.dtype)

    def sizes_of(x: Array) -> Array:
        largest = jnp.max(jnp.abs(x), axis=0, keepdims=True)
        return jnp.where(largest > 0, largest, jnp.ones_like(largest))

    def iterate(at: _Iteration) -> _Iteration:
        x, units = at.x, jnp.broadcast_to(at.sizes, shape)
        matrix = jax.jacfwd(f)(x).reshape(x.size, x.size) * units.reshape(1, -1)
        largest = jnp.max(jnp.abs(matrix), axis=1)
        rows = 1 / jnp.where(largest > 0, largest, jnp.ones_like(largest))
        matrix = matrix * rows[:, None]
        factors = matrices.factorise(matrix)

        def solved(right: Array) -> Array:
            return units * matrices.substitute(factors, right).reshape(shape)

        move = -solved(rows * f(x).reshape(-1))
        # a step that rounding of the terms of the equations may cause
        terms = jnp.matmul(jnp.abs(matrix), ((jnp.abs(x) + jnp.abs(move)) / units).reshape(-1), precision="highest")
        noise = jnp.abs(solved(eps * signs * terms))
        sizes = sizes_of(jnp.maximum(jnp.abs(x + move), _NOISE / tolerance * noise))
        trial = x + at.damping * move
        move_after = -solved(rows * f(trial).reshape(-1))
        step, after = move / sizes, move_after / sizes
        length, length_after = jnp.max(jnp.abs(step)), jnp.max(jnp.abs(after))
        bend = jnp.max(jnp.abs(after - (1 - at.damping) * step))
        shorter = length_after <= (1 - at.damping / 4) * length
        guess = 0.5 * length * at.damping**2 / jnp.where(bend > 0, bend, jnp.finfo(x.dtype).tiny)
        damping = jnp.where(jnp.isfinite(bend), guess, 0)
        damping = jnp.where(
            shorter, jnp.clip(damping, at.damping, 1), jnp.clip(damping, at.damping / 8, at.damping / 2)
        )
        full = at.damping == 1
        at_trial = full & shorter & (length_after <= tolerance)
        at_start = (length <= tolerance) | (full & ~shorter & (length <= _GROWTH * tolerance))
        failed = ~jnp.isfinite(length) | (damping < _LEAST_DAMPING)
        ended = jnp.where(at_trial | at_start, 1, jnp.where(failed, 2, 0)).astype(jnp.int32)
        last = jnp.where(at_trial, trial + move_after, x + move)
        x = jnp.where(ended == 1, last, jnp.where(shorter, trial, x))
        return _Iteration(x, rows.reshape(shape), sizes, damping, ended, at.count + 1)

    def going(at: _Iteration) -> Bool[Array, ""]:
        return (at.ended == 0) & (at.count < max_steps)

    start = _Iteration(x, jnp.ones_like(x), sizes_of(x), jnp.ones((), x.dtype), jnp.int32(0), jnp.int32(0))
    found = while_loop(going, iterate, start, like=like)
    return Root(found.x, found.rows, found.sizes, found.ended == 1, found.count)
