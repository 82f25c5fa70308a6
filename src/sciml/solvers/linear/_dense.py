"""Matrices without structure, by LAPACK; of many members side by side by loops over them all."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._choices import choices
from ..._jax._vma import match
from ._colouring import Colouring
from ._entries import Entries, entries_of
from ._structure import AbstractStructure, DerivativeAlong, products


class LapackFactors(NamedTuple):
    """Both triangles in one array, and which row came to each place."""

    lu: Array
    order: Array


class DenseMatrix(AbstractStructure):
    """A matrix stored whole.

    Attributes:
        mass: The constant part of the matrix.
        colouring: The columns that are computed at once, or None for one at a time.
    """

    def __init__(self, mass: np.ndarray, colouring: Colouring | None = None):
        self.size, self.mass, self.colouring = mass.shape[0], mass, colouring

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Array:
        """Returns the matrix."""
        found = self.entries(along.function, x) if isinstance(along, DerivativeAlong) else None
        if found is not None:
            mass = match(jnp.asarray(self.mass.reshape(-1), x.dtype), (found.values, scale))
            summed = mass.at[found.places].add(-scale * found.values, indices_are_sorted=True, mode="promise_in_bounds")
            return summed.reshape(self.size, self.size)
        if self.colouring is None:
            jacobian = products(along, x, np.eye(self.size))
        else:
            columns = products(along, x, self.colouring.directions)
            where = np.broadcast_to(self.colouring.colours, (self.size, self.size))
            jacobian = jnp.where(self.colouring.pattern.toarray(), jnp.take_along_axis(columns, where, axis=1), 0)
        return jnp.asarray(self.mass, x.dtype) - scale * jacobian

    def entries(self, function: Callable[[Array], Array], x: Float[Array, " n"]) -> Entries | None:
        """Returns the entries of the Jacobian of a function one by one, where that is cheaper than along directions."""
        directions = self.size if self.colouring is None else len(self.colouring.directions)
        return None if directions < choices().linear.entries_from else entries_of(function, x, directions)

    def factorise(self, matrix: Array) -> LapackFactors:
        """Returns the factors of a matrix."""
        # lineax would do as well, but its solves fail under `jax.shard_map(check_vma=True)`
        lu, _, order = jax.lax.linalg.lu(matrix)
        return LapackFactors(lu, order)

    def times(self, matrix: Array, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        return jnp.matmul(matrix, x, precision="highest")

    def substitute(self, factors: LapackFactors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""
        x = b.at[factors.order].get(mode="promise_in_bounds", unique_indices=True)
        return self._divided(factors, self._divided(factors, x, lower=True), lower=False)

    def substitute_transposed(self, factors: LapackFactors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""
        x = self._divided(factors, self._divided(factors, b, False, transpose_a=True), True, transpose_a=True)
        return jnp.zeros_like(x).at[factors.order].set(x, mode="promise_in_bounds", unique_indices=True)

    @staticmethod
    def _divided(factors: LapackFactors, b: Array, lower: bool, **options: bool) -> Array:
        x = jax.lax.linalg.triangular_solve(
            factors.lu, b[:, None], left_side=True, lower=lower, unit_diagonal=lower, **options
        )
        return x[:, 0]

    def is_singular(self, matrix: Array, factors: Any) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular."""
        return jnp.all(jnp.isfinite(matrix)) & ~jnp.all(jnp.isfinite(1 / jnp.diagonal(factors.lu)))

    @property
    def words(self) -> str:
        """A description for people."""
        return "dense, factorised by LAPACK, or for many members at once"
