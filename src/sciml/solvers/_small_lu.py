"""Linear systems of a step: written out entry by entry where small, LAPACK's factorisation where large.

A small matrix is held as rows of scalars. Over lanes every scalar is an array over all members, and
an entry that is zero whatever the state is costs nothing.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

SMALL = 16
"""Systems of up to this many unknowns are written out."""


class Factors(NamedTuple):
    r"""A factorised matrix, $P W = L U$.

    Attributes:
        lu: Both triangles: rows of scalars with the inverse of the pivots on the diagonal, or an array.
        pivots: The exchanges of rows: conditions in the order of the exchanges, indices, or None.
    """

    lu: Any
    pivots: Any


def factorise(rows: Any, *, pivot: bool) -> Factors:
    """Factorises a matrix; a singular one gives factors that are not finite.

    Args:
        rows: Rows of scalars, or an array of shape `(n, n)`.
        pivot: Whether a small matrix exchanges rows; a large one always does.
    """
    if not isinstance(rows, list):
        # lineax would do as well, but its solves fail under `jax.shard_map(check_vma=True)`
        return Factors(*jax.scipy.linalg.lu_factor(rows))
    n = len(rows)
    lu = [list(row) for row in rows]
    exchanges = []
    for k in range(n):
        if pivot:
            for i in range(k + 1, n):
                swap = jnp.abs(lu[i][k]) > jnp.abs(lu[k][k])
                lu[k], lu[i] = _exchanged(swap, lu[k], lu[i])
                exchanges.append(swap)
        inverse = 1 / lu[k][k]
        for i in range(k + 1, n):
            factor = lu[i][k] * inverse
            lu[i][k] = factor
            for j in range(k + 1, n):
                lu[i][j] = lu[i][j] - factor * lu[k][j]
        lu[k][k] = inverse
    return Factors(lu, exchanges if pivot else None)


def is_singular(rows: Any, factors: Factors) -> Bool[Array, ""]:
    """Whether a matrix of finite entries was found to be singular when it was factorised."""
    if isinstance(factors.lu, list):
        entries = jnp.stack([jnp.asarray(x) for row in rows for x in row])
        pivots = jnp.stack([row[k] for k, row in enumerate(factors.lu)])  # their inverses
    else:
        entries, pivots = rows, 1 / jnp.diagonal(factors.lu)
    return jnp.all(jnp.isfinite(entries)) & ~jnp.all(jnp.isfinite(pivots))


@jax.custom_jvp
def solve(rows: Any, factors: Factors, b: Float[Array, " n"]) -> Float[Array, " n"]:
    r"""Solves $W x = b$.

    Its derivative, $W \dot x = \dot b - \dot W x$, uses the same factors, so first derivatives do not go
    through the factorisation. The derivative of a transposed solve does, as in a Hessian: there JAX
    has written the rule out.

    Args:
        rows: The matrix $W$, for the derivative.
        factors: Its factors.
        b: The right-hand side.
    """
    del rows
    if not isinstance(factors.lu, list):
        return jax.scipy.linalg.lu_solve((factors.lu, factors.pivots), b)
    lu, n = factors.lu, b.shape[0]
    x = [b[i] for i in range(n)]
    if factors.pivots is not None:
        # row i moved on with its multipliers, so that all exchanges may come first
        for (k, i), swap in zip(itertools.combinations(range(n), 2), factors.pivots):
            (x[k],), (x[i],) = _exchanged(swap, [x[k]], [x[i]])
    for i in range(n):
        for j in range(i):
            x[i] = x[i] - lu[i][j] * x[j]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            x[i] = x[i] - lu[i][j] * x[j]
        x[i] = x[i] * lu[i][i]
    return jnp.stack(x)


@solve.defjvp
def _(primals, tangents):
    rows, factors, b = primals
    rows_dot, _, b_dot = tangents
    x = solve(rows, factors, b)
    if isinstance(rows_dot, list):
        product = jnp.stack([sum(w * x[j] for j, w in enumerate(row)) for row in rows_dot])
    else:
        product = jnp.matmul(rows_dot, x, precision="highest")
    return x, solve(rows, factors, b_dot - product)


def _exchanged(swap: Array, a: list[Array], b: list[Array]) -> tuple[list[Array], list[Array]]:
    """Returns two rows, exchanged where `swap`."""
    pairs = [(jnp.where(swap, y, x), jnp.where(swap, x, y)) for x, y in zip(a, b)]
    return [first for first, _ in pairs], [second for _, second in pairs]
