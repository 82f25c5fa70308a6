"""Narrow bands as tridiagonal matrices of blocks, which are eliminated by cyclic reduction."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._jax._largest import largest
from ..._jax._vma import match
from ._colouring import Colouring
from ._cyclic_reduction import (
    Bands,
    Reduced,
    applied,
    reduced,
    rows_for,
    solved,
    solved_transposed,
    to_the_next,
    to_the_one_before,
)
from ._sparse import SparseArray
from ._structure import AbstractStructure, products, taken


class BlockTridiagonal(AbstractStructure):
    """A banded matrix, after its unknowns are put in order.

    Attributes:
        order: The unknowns in their order along the band.
        width: The size of the blocks: the distance of the farthest entry from the diagonal.
        rows: How many blocks stand in a column; see `Bands`.
        columns: How many columns there are.
        colouring: Which columns of the Jacobian are computed at once.
    """

    def __init__(self, order: np.ndarray, width: int, colouring: Colouring, mass: SparseArray):
        self.size, self.order, self.width, self.colouring = order.size, order, width, colouring
        blocks = -(-order.size // width)
        self.rows = rows_for(blocks, width)
        self.columns = -(-blocks // self.rows)
        self.places = np.empty(order.size, np.int64)
        self.places[order] = np.arange(order.size)
        padded = self.rows * self.columns * width
        pattern = colouring.pattern.tocoo()
        stored = np.zeros((padded, 3 * width), bool)  # which entries of the three blocks of a row there are
        constant = np.zeros((padded, 3 * width))
        source = np.zeros((padded, 3 * width), np.int64)
        constant[np.arange(order.size, padded), width + np.arange(order.size, padded) % width] = 1

        def column(i, j):
            return j - (i // width - 1) * width

        i, j = self.places[pattern.row], self.places[pattern.col]
        stored[i, column(i, j)] = True
        source[i, column(i, j)] = pattern.row * len(colouring.directions) + colouring.colours[pattern.col]
        entries = mass.tocoo()
        i, j = self.places[entries.row], self.places[entries.col]
        constant[i, column(i, j)] = entries.data
        self.stored, self.source, self.constant = (self._in_blocks(x) for x in (stored, source, constant))
        unknown = np.append(order, np.arange(order.size, padded))
        self.unknown = np.transpose(unknown.reshape(self.columns, self.rows, width), (2, 1, 0))

    def _in_blocks(self, rows: np.ndarray) -> np.ndarray:
        """Three blocks of each row of blocks, of shape `(3, width, width, rows, columns)`."""
        return np.transpose(rows.reshape(self.columns, self.rows, self.width, 3, self.width), (3, 2, 4, 1, 0))

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Bands:
        """Returns the matrix."""
        columns = products(along, x, self.colouring.directions)
        jacobian = jnp.where(self.stored, taken(columns.reshape(-1), self.source), 0)
        left, diagonal, right = match(jnp.asarray(self.constant, x.dtype), x) - scale * jacobian
        return Bands(diagonal, left, right)

    def factorise(self, matrix: Bands) -> Reduced:
        """Returns the factors of a matrix."""
        return reduced(matrix)

    def times(self, matrix: Bands, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        x = self._parted(x)
        parts = (
            applied(matrix.diagonal, x)
            + applied(matrix.left, to_the_next(x))
            + applied(matrix.right, to_the_one_before(x))
        )
        return self._joined(parts)

    def substitute(self, factors: Reduced, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""
        return jax.lax.optimization_barrier(self._joined(solved(factors, self._parted(b))))

    def substitute_transposed(self, factors: Reduced, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""
        return jax.lax.optimization_barrier(self._joined(solved_transposed(factors, self._parted(b))))

    def is_singular(self, matrix: Bands, factors: Reduced) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular, or its elimination lost half of all digits."""
        size = largest(jnp.abs(jnp.stack(matrix)))
        grown = largest(jnp.stack([largest(jnp.abs(x)) for x in jax.tree.leaves(factors)]))
        limit = jnp.finfo(size.dtype).eps ** -0.5
        # entries are of the size of a mass matrix, scaled by its largest
        return jnp.isfinite(size) & ~(grown < limit * jnp.maximum(size, 1 / size))

    def _parted(self, x: Array) -> Array:
        return taken(jnp.pad(x, (0, self.unknown.size - self.size)), self.unknown)

    def _joined(self, parts: Array) -> Array:
        return taken(parts.T.reshape(-1)[: self.size], self.places)

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"banded, {self.width} on each side of the diagonal, by cyclic reduction"
