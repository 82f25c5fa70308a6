"""Linear systems of a step: written out entry by entry where small, LAPACK's factorisation where large.

A small matrix is a list of rows of scalars. Over lanes every scalar is an array over all members, and
an entry that is zero whatever the state costs nothing.
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
        inverse = 1 / lu[k][k]  # kept in place of the pivot: substitutions multiply by it
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


def solve(rows: Any, factors: Factors, b: Float[Array, " n"]) -> Float[Array, " n"]:
    r"""Solves $W x = b$.

    Its derivatives, $W \dot x = \dot b - \dot W x$ and $W^T \bar b = \bar x$, use the same factors, so nothing is
    differentiated through the factorisation: give `factorise` what `jax.lax.stop_gradient` returns.

    Args:
        rows: The matrix $W$, for the derivative.
        factors: Its factors.
        b: The right-hand side.
    """

    def times(x):
        if isinstance(rows, list):
            return jnp.stack([sum((w * x[j] for j, w in enumerate(row)), jnp.zeros_like(x[0])) for row in rows])
        return jnp.matmul(rows, x, precision="highest")

    return jax.lax.custom_linear_solve(
        times, b, lambda _, b: _substitute(factors, b), lambda _, b: _substitute_transposed(factors, b)
    )


def _substitute(factors: Factors, b: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solves the system by its factors."""
    if not isinstance(factors.lu, list):
        return jax.scipy.linalg.lu_solve((factors.lu, factors.pivots), b)
    lu, n = factors.lu, b.shape[0]
    x = [b[i] for i in range(n)]
    # row i moved on with its multipliers, so that all exchanges may come first
    for (k, i), swap in _exchanges(factors, n):
        (x[k],), (x[i],) = _exchanged(swap, [x[k]], [x[i]])
    for i in range(n):
        for j in range(i):
            x[i] = x[i] - lu[i][j] * x[j]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            x[i] = x[i] - lu[i][j] * x[j]
        x[i] = x[i] * lu[i][i]
    # else XLA would compute the substitution again for each use of an unknown
    return jax.lax.optimization_barrier(jnp.stack(x))


def _substitute_transposed(factors: Factors, b: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solves the transposed system by the same factors."""
    if not isinstance(factors.lu, list):
        return jax.scipy.linalg.lu_solve((factors.lu, factors.pivots), b, trans=1)
    lu, n = factors.lu, b.shape[0]
    x = [b[i] for i in range(n)]
    for i in range(n):
        for j in range(i):
            x[i] = x[i] - lu[j][i] * x[j]
        x[i] = x[i] * lu[i][i]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            x[i] = x[i] - lu[j][i] * x[j]
    for (k, i), swap in reversed(_exchanges(factors, n)):
        (x[k],), (x[i],) = _exchanged(swap, [x[k]], [x[i]])
    return jax.lax.optimization_barrier(jnp.stack(x))


def _exchanges(factors: Factors, n: int) -> list[tuple[tuple[int, int], Array]]:
    """Returns the pairs of rows that are exchanged, each with its condition, in their order."""
    pairs = itertools.combinations(range(n), 2)
    return [] if factors.pivots is None else list(zip(pairs, factors.pivots))


def _exchanged(swap: Array, a: list[Array], b: list[Array]) -> tuple[list[Array], list[Array]]:
    """Returns two rows, exchanged where `swap`."""
    pairs = [(jnp.where(swap, y, x), jnp.where(swap, x, y)) for x, y in zip(a, b)]
    return [first for first, _ in pairs], [second for _, second in pairs]
