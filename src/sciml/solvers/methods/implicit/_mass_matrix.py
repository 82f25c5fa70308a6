"""Constant mass matrices, stored as bytes so that a solver that has one is still hashable."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...._checks import concrete
from ...._choices import choices


@dataclass(frozen=True)
class Mass:
    r"""The matrix $M$ of $M \dot y = f(t, y)$.

    Attributes:
        size: Its number of rows and of columns.
        data: Its entries in float64, as bytes.
    """

    size: int
    data: bytes

    @property
    def matrix(self) -> np.ndarray:
        """The matrix, of shape `(size, size)`."""
        return np.frombuffer(self.data).reshape(self.size, self.size)

    def of_parts(self, elements: np.ndarray, imaginary: np.ndarray) -> "Mass":
        """Returns the matrix for the real and the imaginary parts of a state, which it multiplies alike.

        Args:
            elements: The element of the state that each part is of.
            imaginary: Whether it is the imaginary part.
        """
        if elements.size == self.size:
            return self
        alike = np.equal.outer(imaginary, imaginary)
        return as_matrix(np.where(alike, self.matrix[np.ix_(elements, elements)], 0.0))

    @property
    def null_spaces(self) -> tuple[np.ndarray, np.ndarray]:
        r"""Bases $U$ and $V$, each of shape `(size, m)`, with $U^T M = 0$ and $M V = 0$; `m = 0` if $M$ is nonsingular.

        Then $U^T f(t, y) = 0$ are the algebraic equations and $V$ the directions in which they are
        solved: unit vectors where $M$ has as many zero rows as zero columns and no other null space.
        """
        left, values, right = np.linalg.svd(self.matrix)
        null = values <= self.size * np.finfo(np.float64).eps * values.max(initial=0.0)
        rows, columns = (np.flatnonzero(~self.matrix.any(axis=axis)) for axis in (1, 0))
        if null.sum() == rows.size == columns.size:
            unit = np.eye(self.size)
            return unit[:, rows], unit[:, columns]
        return left[:, null], right[null].T


def as_mass(mass: Any) -> Mass | None:
    """Returns a user's mass matrix as a `Mass`.

    Raises:
        TypeError: If it is traced, or not real.
        ValueError: If it is not a finite square matrix.
    """
    if mass is None or isinstance(mass, Mass):
        return mass
    if not concrete(mass):
        raise TypeError(
            "`mass` must be constant, but it is traced: it was created under `jax.jit`, `jax.grad` or another "
            "transformation. Pass a NumPy array, and move factors that depend on parameters into the model."
        )
    if callable(mass):
        raise TypeError(
            "`mass` must be a constant matrix of shape (n, n), but is a function. A matrix that depends on time or "
            "state is part of a `sciml.DAE(lambda t, y, rate, args: M(t, y) @ rate - f(t, y, args))`."
        )
    matrix = np.asarray(mass)
    if not np.issubdtype(matrix.dtype, np.number) or np.iscomplexobj(matrix):
        raise TypeError(f"`mass` must be a real matrix, but has dtype {matrix.dtype}.")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"`mass` must be a square matrix of shape (n, n), where n is the number of elements of the state, but "
            f"has shape {matrix.shape}. For a diagonal matrix pass `numpy.diag(entries)`."
        )
    if not np.all(np.isfinite(matrix)):
        raise ValueError("`mass` must be finite, but has entries that are NaN or infinite.")
    return as_matrix(matrix)


def as_matrix(matrix: np.ndarray) -> Mass:
    """Returns a square matrix as a `Mass`."""
    return Mass(matrix.shape[0], np.ascontiguousarray(matrix, np.float64).tobytes())


def times_known(matrix: np.ndarray | None, v: Float[Array, " n"]) -> Float[Array, " n"]:
    """Returns a known matrix times a vector; None represents the identity."""
    if matrix is None:
        return v
    if len(matrix) > choices().linear.small_at_most:
        return jnp.matmul(jnp.asarray(matrix, v.dtype), v, precision="highest")
    nothing = jnp.zeros_like(v[0])
    rows = [[(float(m), v[j]) for j, m in enumerate(row) if m] for row in matrix]
    return jnp.stack([sum((m * x for m, x in row), nothing) for row in rows])
