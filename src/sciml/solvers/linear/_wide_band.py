r"""Wide bands, as of fields on a grid in two dimensions: dense blocks, eliminated one after another.

With blocks $D_i$ on the diagonal, $L_i$ left and $U_i$ right of it,

$$S_i = D_i - L_i G_{i-1}, \quad G_i = S_i^{-1} U_i, \qquad
  z_i = S_i^{-1} (b_i - L_i z_{i-1}), \quad x_i = z_i - G_i x_{i+1}.$$

For $n$ unknowns and a band of $w$ on each side that is work of $6 n w^2$, where a dense matrix asks for $\frac23 n^3$.
Blocks are inverted by matrix products: a call of LAPACK for each would wake its threads thousands of times in a step.

Source:
    G. H. Golub, C. F. Van Loan, Matrix Computations, 4th edition, Johns Hopkins, 2013, section 4.5.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._jax._largest import largest
from ..._jax._loops import scan
from ..._jax._vma import match
from ._colouring import Colouring
from ._inverse_of_blocks import inverse_of_blocks
from ._sparse import SparseArray, sp
from ._structure import AbstractStructure, products

_PANEL = 8
"""How many rows of a block are eliminated at once."""


class BlockFactors(NamedTuple):
    """The result of a factorisation, each of shape `(blocks, width, width)`.

    Attributes:
        inverses: $S_i^{-1}$.
        left: $L_i$.
        following: $G_i$.
    """

    inverses: Array
    left: Array
    following: Array


class WideBand(AbstractStructure):
    """A banded matrix, after its unknowns are put in order, stored as the entries that there can be.

    Attributes:
        order: The unknowns in their order along the band.
        width: The size of the blocks: the distance of the farthest entry from the diagonal, or a little more.
        colouring: The columns of the Jacobian that are computed at once.
    """

    def __init__(self, order: np.ndarray, width: int, colouring: Colouring, mass: SparseArray):
        width = -(-width // _PANEL) * _PANEL
        self.size, self.order, self.width, self.colouring = order.size, order, width, colouring
        self.blocks = -(-order.size // width)
        places = np.empty(order.size, np.int64)
        places[order] = np.arange(order.size)
        present = sp.csr_array(mass.astype(bool) + colouring.pattern).tocoo()
        self.rows, self.columns = present.row, present.col
        jacobian = np.asarray(colouring.pattern.tocsr()[self.rows, self.columns]).ravel().astype(bool)
        self.constant = np.asarray(sp.csr_array(mass)[self.rows, self.columns]).ravel().astype(float)
        self.source = np.where(jacobian, self.rows * len(colouring.directions) + colouring.colours[self.columns], -1)
        i, j = places[self.rows], places[self.columns]
        row_block, column_block = i // width, j // width
        side = column_block - row_block + 1  # 0 left of the diagonal, 1 on it, 2 right of it
        self.slots = ((side * self.blocks + row_block) * width + i % width) * width + j % width
        self.padding = np.arange(order.size, self.blocks * width)

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Array:
        """Returns the entries of the matrix, row by row."""
        columns = products(along, x, self.colouring.directions).reshape(-1)
        known = columns.at[np.maximum(self.source, 0)].get(mode="promise_in_bounds")
        jacobian = jnp.where(self.source >= 0, known, 0)
        return match(jnp.asarray(self.constant, x.dtype), x) - scale * jacobian

    def factorise(self, matrix: Array) -> BlockFactors:
        """Returns the factors of a matrix."""
        width, count = self.width, self.blocks
        whole = match(jnp.zeros(3 * count * width * width, matrix.dtype), matrix)
        whole = whole.at[self.slots].set(matrix, unique_indices=True, mode="promise_in_bounds")
        left, diagonal, right = whole.reshape(3, count, width, width)
        unused = np.zeros((count * width, width))
        unused[self.padding, self.padding % width] = 1.0
        diagonal = diagonal + jnp.asarray(unused.reshape(count, width, width), matrix.dtype)

        def eliminate(before, blocks):
            left, diagonal, right = blocks
            remaining = diagonal - _product(left, before)
            inverse = _inverse(remaining)
            following = _product(inverse, right)
            return following, (inverse, following)

        _, (inverses, following) = scan(eliminate, jnp.zeros_like(diagonal[0]), (left, diagonal, right))
        return BlockFactors(inverses, left, following)

    def times(self, matrix: Array, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        products = matrix * x.at[self.columns].get(mode="promise_in_bounds")
        return jax.ops.segment_sum(products, self.rows, self.size, indices_are_sorted=True)

    def substitute(self, factors: BlockFactors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""

        def forward(z, inputs):
            inverse, left, b = inputs
            z = _product(inverse, b - _product(left, z))
            return z, z

        def backward(x, inputs):
            following, z = inputs
            x = z - _product(following, x)
            return x, x

        b = self._parted(b)
        _, z = scan(forward, jnp.zeros_like(b[0]), (factors.inverses, factors.left, b))
        _, x = scan(backward, jnp.zeros_like(b[0]), (factors.following, z), reverse=True)
        return self._joined(x)

    def substitute_transposed(self, factors: BlockFactors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""

        # W = P Q with P the rows of S and L, Q the rows of 1 and G: first Q^T, from the first block on, then P^T
        def forward(z, inputs):
            before, b = inputs
            z = b - _product(before.T, z)
            return z, z

        def backward(carry, inputs):
            inverse, left, z = inputs
            x = _product(inverse.T, z - carry)
            return _product(left.T, x), x

        b = self._parted(b)
        nothing = jnp.zeros_like(factors.following[:1])
        before = jnp.concatenate([nothing, factors.following[:-1]])
        _, z = scan(forward, jnp.zeros_like(b[0]), (before, b))
        _, x = scan(backward, jnp.zeros_like(b[0]), (factors.inverses, factors.left, z), reverse=True)
        return self._joined(x)

    def is_singular(self, matrix: Array, factors: BlockFactors) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular, or its elimination lost half of all digits."""
        size = largest(jnp.abs(matrix))
        grown = jnp.maximum(largest(jnp.abs(factors.inverses)), largest(jnp.abs(factors.following)))
        limit = jnp.finfo(size.dtype).eps ** -0.5
        return jnp.isfinite(size) & ~(grown < limit * jnp.maximum(size, 1 / size))

    def _parted(self, x: Array) -> Array:
        ordered = x.at[self.order].get(mode="promise_in_bounds")
        return jnp.pad(ordered, (0, self.padding.size)).reshape(self.blocks, self.width)

    def _joined(self, parts: Array) -> Array:
        found = parts.reshape(-1)[: self.size]
        return jnp.zeros_like(found).at[self.order].set(found, unique_indices=True, mode="promise_in_bounds")

    @property
    def words(self) -> str:
        """A description for people."""
        return f"banded, {self.width} on each side of the diagonal, by blocks one after another"


def _inverse(a: Float[Array, "w w"]) -> Float[Array, "w w"]:
    """The inverse of a block by elimination of some rows at a time; within these rows are exchanged.

    Each sweep puts the inverse of a panel's own block into the place of that block.
    """
    width = a.shape[0]

    def sweep(a, start):
        rows, columns = (functools.partial(jax.lax.dynamic_slice_in_dim, axis=axis) for axis in (0, 1))
        put_rows, put_columns = (functools.partial(jax.lax.dynamic_update_slice_in_dim, axis=axis) for axis in (0, 1))
        row, column = rows(a, start, _PANEL), columns(a, start, _PANEL)
        own = inverse_of_blocks(columns(row, start, _PANEL)[:, :, None])[:, :, 0]
        row = put_columns(_product(own, row), own, start)
        column = put_rows(column, jnp.zeros_like(own), start)
        others = put_columns(a, jnp.zeros_like(column), start) - _product(column, row)
        return put_rows(others, row, start), None

    return scan(sweep, a, jnp.arange(0, width, _PANEL, dtype=jnp.int32))[0]


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
