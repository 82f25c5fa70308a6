"""Positive matrices of a few rows, of which there are many side by side: LAPACK takes them one after another."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._choices import choices


def cholesky(matrix: Float[Array, "q q"]) -> Float[Array, "q q"]:
    """Returns the lower factor; not finite where the matrix is not positive."""
    n = matrix.shape[0]
    if n > choices().linear.positive_at_most:
        return jnp.linalg.cholesky(matrix)
    rows: list[list[Array]] = [[jnp.zeros((), matrix.dtype)] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            left = matrix[i, j] - sum(rows[i][k] * rows[j][k] for k in range(j))
            rows[i][j] = jnp.sqrt(left) if i == j else left / rows[j][j]
    return jnp.stack([jnp.stack(row) for row in rows])


def solve_lower(factor: Float[Array, "q q"], b: Float[Array, " q"], transposed: bool = False) -> Float[Array, " q"]:
    """Returns $L^{-1} b$, or $L^{-T} b$."""
    n = b.shape[0]
    if n > choices().linear.positive_at_most:
        return jax.scipy.linalg.solve_triangular(factor, b, lower=True, trans=1 if transposed else 0)
    lower = factor.T if transposed else factor
    order = range(n - 1, -1, -1) if transposed else range(n)
    found: dict[int, Array] = {}
    for i in order:
        found[i] = (b[i] - sum(lower[i, k] * x for k, x in found.items())) / lower[i, i]
    return jnp.stack([found[i] for i in range(n)])


def solve_factored(factor: Float[Array, "q q"], b: Float[Array, " q"]) -> Float[Array, " q"]:
    r"""Returns $(L L^T)^{-1} b$."""
    return solve_lower(factor, solve_lower(factor, b), transposed=True)
