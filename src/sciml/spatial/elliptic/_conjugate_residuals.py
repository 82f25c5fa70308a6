"""Krylov's method for systems that are neither definite nor real: generalised conjugate residuals.

It finds what GMRES finds, by directions that are kept with their products, the last ones where there are more than fit.
The residual is known at every step, and the preconditioner may be any function, which only has to be good.

Source: S. C. Eisenstat, H. C. Elman, M. H. Schultz, SIAM J. Numer. Anal. 20:345, 1983.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._loops import while_loop


class _Carry(NamedTuple):
    u: Array
    residual: Array
    directions: Array
    products: Array
    steps: Array


def conjugate_residuals(
    operator: Callable[[Array], Array],
    f: Array,
    preconditioner: Callable[[Array], Array],
    *,
    rtol: Any,
    max_steps: int,
    kept: int = 20,
    like: Any = (),
) -> tuple[Array, Array, Array]:
    """Returns an approximate solution, whether its residual meets the tolerance, and the number of steps.

    Args:
        operator: The linear operator.
        f: The right-hand side, real or complex.
        preconditioner: Something close to the inverse of the operator.
        rtol: The norm of the residual that ends the iteration, relative to that of the right-hand side.
        max_steps: The largest number of steps.
        kept: How many of the last directions are kept.
        like: What the functions close over.
    """
    size = _norm(f)
    limit = jnp.asarray(rtol, size.dtype) * size

    def going(now: _Carry) -> Array:
        return (_norm(now.residual) > limit) & (now.steps < max_steps)

    def step(now: _Carry) -> _Carry:
        direction = preconditioner(now.residual)
        product = operator(direction)
        for _ in range(2):  # once more against what rounding leaves
            shares = _all_products(now.products, product)
            direction = direction - jnp.tensordot(shares, now.directions, 1)
            product = product - jnp.tensordot(shares, now.products, 1)
        scale = 1 / _norm(product)
        direction, product = direction * scale.astype(f.dtype), product * scale.astype(f.dtype)
        length = jnp.vdot(product, now.residual)
        place = now.steps % kept
        return _Carry(
            now.u + length * direction,
            now.residual - length * product,
            now.directions.at[place].set(direction),
            now.products.at[place].set(product),
            now.steps + 1,
        )

    none = jnp.zeros((kept, *f.shape), f.dtype)
    start = _Carry(jnp.zeros_like(f), f, none, none, jnp.zeros((), jnp.int32))
    end = while_loop(going, step, start, like=(f, like))
    # what the recurrence says of the residual is off by rounding: ask the operator, and allow for that
    left = _norm(f - operator(end.u))
    return end.u, left <= 10 * limit, end.steps


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.real(x) ** 2 + jnp.imag(x) ** 2))


def _all_products(rows: Array, x: Array) -> Array:
    return jnp.tensordot(jnp.conj(rows), x, x.ndim)
