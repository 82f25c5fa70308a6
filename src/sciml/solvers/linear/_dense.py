"""Matrices without structure, by LAPACK."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ._colouring import Colouring
from ._structure import AbstractStructure, products


class LapackFactors(NamedTuple):
    """Both triangles in one array, and the exchanges of rows."""

    lu: Array
    pivots: Array


class DenseMatrix(AbstractStructure):
    """A matrix stored whole.

    Attributes:
        mass: The constant part of the matrix.
        colouring: Which columns are computed at once, or None for one at a time.
    """

    def __init__(self, mass: np.ndarray, colouring: Colouring | None = None):
        self.size, self.mass, self.colouring = mass.shape[0], mass, colouring

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Array:
        """Returns the matrix."""
        if self.colouring is None:
            jacobian = products(along, x, np.eye(self.size))
        else:
            columns = products(along, x, self.colouring.directions)
            where = np.broadcast_to(self.colouring.colours, (self.size, self.size))
            jacobian = jnp.where(self.colouring.pattern.toarray(), jnp.take_along_axis(columns, where, axis=1), 0)
        return jnp.asarray(self.mass, x.dtype) - scale * jacobian

    def factorise(self, matrix: Array) -> LapackFactors:
        """Returns the factors of a matrix."""
        # lineax would do as well, but its solves fail under `jax.shard_map(check_vma=True)`
        return LapackFactors(*jax.scipy.linalg.lu_factor(matrix))

    def times(self, matrix: Array, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        return jnp.matmul(matrix, x, precision="highest")

    def substitute(self, factors: LapackFactors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""
        return jax.scipy.linalg.lu_solve(tuple(factors), b)

    def substitute_transposed(self, factors: LapackFactors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""
        return jax.scipy.linalg.lu_solve(tuple(factors), b, trans=1)

    def is_singular(self, matrix: Array, factors: Any) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular."""
        return jnp.all(jnp.isfinite(matrix)) & ~jnp.all(jnp.isfinite(1 / jnp.diagonal(factors.lu)))

    @property
    def words(self) -> str:
        """What it is, for people."""
        return "dense, factorised by LAPACK"
