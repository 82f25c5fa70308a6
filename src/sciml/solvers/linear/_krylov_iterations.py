r"""Krylov iterations for $A x = b$ where $A$ is known by its products with vectors.

Both run in loops that work under `jax.vmap` and `jax.shard_map`. GMRES starts again, where it has kept as many vectors
as it may, from the residual that these give; BiCGSTAB, whose recurrence drifts away by rounding, from that by its
definition.

Source:
    Y. Saad, M. H. Schultz, GMRES, SIAM J. Sci. Stat. Comput. 7:3 (1986); H. A. van der Vorst, Bi-CGSTAB, SIAM J. Sci.
    Stat. Comput. 13:2 (1992).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._jax._loops import while_loop
from ..._jax._vma import match

Operator = Callable[[Float[Array, " n"]], Float[Array, " n"]]

_FALLS = 0.9
"""A round has to reduce the residual to less than this part of itself, or there is no other."""


class _Round(NamedTuple):
    """Between rounds.

    Attributes:
        x: The solution so far.
        residual: The residual of `x`.
        size: Its norm.
        said: The norm that the recurrence of the last round ended with.
        count: Products with the operator so far.
        falls: Whether the last round was worth it.
    """

    x: Array
    residual: Array
    size: Array
    said: Array
    count: Array
    falls: Array


def solved_by(
    iterate: Callable[..., tuple[Array, Array | None, Array, Array]],
    operator: Operator,
    b: Float[Array, " n"],
    target: Float[Array, ""],
    most: int,
    like: Any,
) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
    """Returns the solution of a linear system, and whether it is one.

    Args:
        iterate: One round of an iteration, `(operator, residual, size, target, most, like) -> (correction, residual,
            size, products)`; None for a residual that is to be computed.
        operator: The product with the matrix.
        b: The right-hand side.
        target: The norm of the residual that ends it.
        most: The largest number of products with the operator.
        like: The values that the operator closes over.
    """
    size = _norm(b)
    zero, none = jnp.zeros_like(size), jnp.zeros((), jnp.int32)

    def running(now: _Round) -> Array:
        return (now.size > target) & (now.count < most) & now.falls

    def again(now: _Round) -> _Round:
        correction, residual, said, count = iterate(operator, now.residual, now.size, target, most - now.count, like)
        x = now.x + correction
        residual = b - operator(x) if residual is None else residual
        size = _norm(residual)
        return _Round(x, residual, size, said, now.count + count, size < _FALLS * now.size)

    start = _Round(jnp.zeros_like(b), b, size, zero, none, size > zero)
    end = while_loop(running, again, match(start, (start, like)), like=like)
    # where rounding allows no smaller residual the recurrence still converges, to the best that there is
    rounded = (end.said <= target) & (end.size <= float(jnp.finfo(b.dtype).eps) ** 0.5 * size)
    return end.x, (end.size <= target) | rounded


def gmres_round(
    operator: Operator, residual: Array, size: Array, target: Array, most: Array, like: Any, restart: int
) -> tuple[Array, Array, Array, Array]:
    """A round of GMRES with a maximum number of products.

    The rotations that make the Hessenberg matrix triangular are kept multiplied, so that there is no loop over them.
    """
    n = residual.shape[0]
    dtype = residual.dtype
    basis = jnp.zeros((restart + 1, n), dtype).at[0].set(residual / size)
    rotations, triangle = jnp.eye(restart + 1, dtype=dtype), jnp.zeros((restart, restart), dtype)
    numbers = jnp.arange(restart + 1, dtype=jnp.int32)

    def going(now: tuple) -> Array:
        return (now[0] < restart) & (now[0] < most) & (now[4] > target)

    def extend(now: tuple) -> tuple:
        k, basis, rotations, triangle, _ = now
        rest, column = operator(basis[k]), jnp.zeros((restart + 1,), dtype)
        for _ in range(2):  # once leaves what rounding adds
            more = _product(basis, rest)
            rest, column = rest - _product(more, basis), column + more
        outside = _norm(rest)
        basis = basis.at[k + 1].set(_ratio(rest, outside))
        column = _product(rotations, column + jnp.where(numbers == k + 1, outside, jnp.zeros_like(outside)))
        length = jnp.sqrt(column[k] ** 2 + column[k + 1] ** 2)
        cosine, sine = _ratio(column[k], length), _ratio(column[k + 1], length)
        here, below = rotations[k], rotations[k + 1]
        rotations = rotations.at[k].set(cosine * here + sine * below).at[k + 1].set(cosine * below - sine * here)
        column = jnp.where(numbers < k, column, jnp.where(numbers == k, length, jnp.zeros_like(length)))
        triangle = triangle.at[:, k].set(column[:-1])
        return k + 1, basis, rotations, triangle, jnp.abs(size * rotations[k + 1, 0])

    start = match((jnp.zeros((), jnp.int32), basis, rotations, triangle, size), (residual, size, target, most, like))
    count, basis, rotations, triangle, said = while_loop(going, extend, start, like=like)
    known = numbers[:-1] < count
    right = jnp.where(known, size * rotations[:-1, 0], jnp.zeros_like(size))
    triangle = triangle + jnp.diag(jnp.where(known, jnp.zeros_like(right), jnp.ones_like(right)))
    weights = jax.lax.linalg.triangular_solve(triangle, right[:, None], left_side=True, lower=False)[:, 0]
    left = size * rotations[count, 0] * _product(rotations[count], basis)
    return _product(weights, basis[:-1]), left, said, count


def bicgstab_round(
    operator: Operator, residual: Array, size: Array, target: Array, most: Array, like: Any
) -> tuple[Array, None, Array, Array]:
    """A round of BiCGSTAB, to its end."""
    shadow = residual / size

    def going(now: tuple) -> Array:
        return (now[0] < most) & (now[-1] > target)

    def step(now: tuple) -> tuple:
        count, x, rest, direction, product, rho, alpha, omega, _ = now
        new = _dot(shadow, rest)
        beta = _ratio(new, rho) * _ratio(alpha, omega)
        direction = rest + beta * (direction - omega * product)
        product = operator(direction)
        alpha = _ratio(new, _dot(shadow, product))
        half = rest - alpha * product
        image = operator(half)
        omega = _ratio(_dot(image, half), _dot(image, image))
        rest = half - omega * image
        # a breakdown leaves the residual as it is, and the next round begins with another direction
        stuck = (alpha == 0) | (omega == 0)
        x = x + alpha * direction + omega * half
        now_size = _norm(rest)
        counted = jnp.where(stuck, most, count + 2).astype(count.dtype)
        return counted, x, rest, direction, product, new, alpha, omega, now_size

    nothing, one = jnp.zeros_like(residual), jnp.ones_like(size)
    start = (jnp.zeros((), jnp.int32), nothing, residual, nothing, nothing, one, one, one, size)
    start = match(start, (residual, size, target, most, like))
    end = while_loop(going, step, start, like=like)
    return end[1], None, end[-1], end[0]


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b)


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x))


def _ratio(a: Array, b: Array) -> Array:
    """One number over another, zero where that is zero."""
    return jnp.where(b == 0, jnp.zeros_like(a), a / jnp.where(b == 0, jnp.ones_like(b), b))
