r"""Krylov's method for systems that are neither definite nor real: generalised conjugate residuals.

It finds what GMRES finds, by directions that are kept with their products, the last ones where there are more than fit.
The residual is known at every step, and the preconditioner may be any function, which only has to be good.

Source: S. C. Eisenstat, H. C. Elman, M. H. Schultz, SIAM J. Numer. Anal. 20:345, 1983.

A cycle through the levels whose every correction has the length that minimises the residual.

Sweeps of Gauss-Seidel, and corrections from a coarse grid, diverge where an operator is indefinite: between waves and
the unknowns of a level that are too few for them. Here a correction $z$ is taken times the number $\alpha$ that makes
$|r - \alpha A z|$ least. So no residual grows, and errors that a level cannot reduce stay unchanged. That depends on
the residual as no linear function does: the method around it has to be flexible.

Source: H. C. Elman, O. G. Ernst, D. P. O'Leary, SIAM J. Sci. Comput. 23:1291, 2001; Y. Notay, P. S. Vassilevski, Numer.
Linear Algebra Appl. 15:473, 2008.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._loops import scan, while_loop
from ._couplings import AbstractCouplings, inverse
from ._multigrid import Hierarchy, Level, prolong, restrict


def residual_cycle(hierarchy: Hierarchy, f: Array, sweeps: int = 3, visits: int = 2) -> Array:
    """Returns an approximate solution on the finest level, from zero.

    Args:
        hierarchy: The levels, of a real or complex operator.
        f: The right-hand side.
        sweeps: The corrections by the diagonal before and after that from the coarse level.
        visits: How often every level visits the next one.
    """
    return _descend(hierarchy.levels, hierarchy, f, sweeps, visits)


def _descend(levels: Sequence[Level], hierarchy: Hierarchy, f: Array, sweeps: int, visits: int) -> Array:
    if not levels:
        return (hierarchy.inverse @ f.reshape(-1)).reshape(f.shape)
    level = levels[0]
    operator = level.operator
    reciprocal = inverse(operator.diagonal())

    def sweep(now: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        return _corrected(operator, *now, reciprocal * now[1]), None

    def visit(now: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        below = _descend(levels[1:], hierarchy, restrict(now[1], level.transfers), sweeps, visits)
        return _corrected(operator, *now, prolong(below, level.transfers)), None

    like = (hierarchy, f)
    now, _ = scan(sweep, (jnp.zeros_like(f), f), length=sweeps, like=like)
    now, _ = scan(visit, now, length=visits if levels[1:] else 1, like=like)
    now, _ = scan(sweep, now, length=sweeps, like=like)
    return now[0]


def _corrected(operator: AbstractCouplings, u: Array, residual: Array, z: Array) -> tuple[Array, Array]:
    """A field and its residual after a correction, times the number that makes the residual least."""
    product = operator(z)
    size = jnp.sum(jnp.real(product) ** 2 + jnp.imag(product) ** 2)
    length = jnp.vdot(product, residual) / jnp.where(size == 0, jnp.ones_like(size), size).astype(residual.dtype)
    return u + length * z, residual - length * product


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
        rtol: The norm of the residual that ends the iteration, relative to the right-hand side.
        max_steps: The largest number of steps.
        kept: How many of the last directions are kept.
        like: The values that the functions close over.
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
    # the residual of the recurrence is off by rounding: compute it with the operator, and allow for that
    left = _norm(f - operator(end.u))
    return end.u, left <= 10 * limit, end.steps


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.real(x) ** 2 + jnp.imag(x) ** 2))


def _all_products(rows: Array, x: Array) -> Array:
    return jnp.tensordot(jnp.conj(rows), x, x.ndim)
