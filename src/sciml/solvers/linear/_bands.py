"""Banded matrices: narrow bands by cyclic reduction of blocks, and wide ones by dense blocks one after another."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._choices import choices
from ..._jax._largest import largest
from ..._jax._loops import scan
from ..._jax._vma import match
from ._colouring import Colouring
from ._sparse import SparseArray, sp
from ._structure import AbstractStructure, products, taken
from ._written_out import factorised, substituted


def inverse_of_blocks(a: Array) -> Array:
    """Returns the inverses of blocks, of shape `(size, size, *blocks)`, by elimination with exchanges of rows."""
    flat = a.reshape(*a.shape[:2], -1)
    small = a.shape[0] <= choices().linear.inverse_at_most
    return (_inverse_written_out if small else _inverse_by_rows)(flat).reshape(a.shape)


def _inverse_written_out(a: Array) -> Array:
    n = a.shape[0]
    factors = factorised([list(row) for row in a], pivot=n > 1)
    one, zero = jnp.ones_like(a[0, 0]), jnp.zeros_like(a[0, 0])
    columns = [substituted(factors, [one if i == j else zero for i in range(n)]) for j in range(n)]
    return jnp.stack([jnp.stack(column) for column in columns], axis=1)


def _inverse_by_rows(a: Array) -> Array:
    """Gauss-Jordan elimination."""
    n = a.shape[0]
    one = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype)[:, :, None], a.shape)
    rows = jnp.concatenate([a, match(one, a)], axis=1)
    places = jnp.arange(n)[:, None]
    for k in range(n):
        sizes = jnp.where(places < k, -1, jnp.abs(rows[:, k]))
        best = places == jnp.argmax(sizes, axis=0)[None]
        chosen = jnp.sum(jnp.where(best[:, None], rows, 0), axis=0)
        rows = jnp.where(best[:, None], rows[k][None], rows)
        pivot = chosen / chosen[k][None]
        others = rows - rows[:, k, None] * pivot[None]
        rows = jnp.where((places == k)[:, None], pivot[None], others)
    return rows[:, n:]


# Cyclic reduction of tridiagonal matrices of blocks: half of the blocks are eliminated at once, and half of the rest.
#
# With blocks $D_i$ on the diagonal, $L_i$ left and $U_i$ right of it, every other row, $i$ odd, is eliminated from its
# neighbours,
#
# $$F_i = D_i^{-1} L_i, \quad G_i = D_i^{-1} U_i, \quad y_i = D_i^{-1} b_i, \qquad
#   x_i = y_i - F_i x_{i-1} - G_i x_{i+1},$$
#
# and those that are left, $i$ even, are a matrix of the same form,
#
# $$D_i' = D_i - L_i G_{i-1} - U_i F_{i+1}, \quad L_i' = -L_i F_{i-1}, \quad U_i' = -U_i G_{i+1}, \quad
#   b_i' = b_i - L_i y_{i-1} - U_i y_{i+1}.$$
#
# All of it is about twice the work of the first half. The blocks stand in columns of $2^k$, one column after another,
# and columns side by side: in $k$ such rounds a column becomes one block, and rows of an array remain rows. The few
# that are left are eliminated by parallel cyclic reduction: with $A_i = L_i D_{i-s}^{-1}$ and $C_i = U_i D_{i+s}^{-1}$
# every row is freed of its neighbours at the distance $s$,
#
# $$D_i' = D_i - A_i U_{i-s} - C_i L_{i+s}, \quad L_i' = -A_i L_{i-s}, \quad U_i' = -C_i U_{i+s}, \quad
#   b_i' = b_i - A_i b_{i-s} - C_i b_{i+s},$$
#
# which doubles the distance. That takes $\log_2$ of their number of rounds of the same work, which are one loop.
#
# Source:
#     R. W. Hockney, C. R. Jesshope, Parallel Computers, Adam Hilger, 1981.


class Bands(NamedTuple):
    """The blocks on, left and right of the diagonal, each of shape `(block size, block size, rows, columns)`."""

    diagonal: Array
    left: Array
    right: Array


class Halved(NamedTuple):
    """The result of a round that eliminates every other row, each of shape `(block size, block size, rows, columns)`.

    Attributes:
        inverses: $D^{-1}$ of those that are eliminated.
        before: Their $F$.
        after: Their $G$.
        left: $L$ of those that are left.
        right: Their $U$.
    """

    inverses: Array
    before: Array
    after: Array
    left: Array
    right: Array


class Freed(NamedTuple):
    """The results of the rounds that free all rows at once.

    Attributes:
        before: $A$ of each round, of shape `(rounds, block size, block size, blocks)`.
        after: $C$ of each round.
        inverses: The inverses of the blocks that are left.
    """

    before: Array
    after: Array
    inverses: Array


class Reduced(NamedTuple):
    """The factors of a matrix.

    Attributes:
        halved: The results of the rounds of the first kind.
        freed: The results of the rounds of the second kind.
    """

    halved: tuple[Halved, ...]
    freed: Freed


def rows_for(blocks: int, size: int) -> int:
    """Returns how long columns are to be, a power of two.

    Args:
        blocks: How many blocks there are on the diagonal.
        size: How many rows a block has.
    """
    table = choices().linear
    large = size >= table.cyclic_large_from
    most = table.cyclic_large_rounds_at_most if large else table.cyclic_rounds_at_most
    return 2 ** min(most, max(0, int(math.log2(blocks / table.cyclic_columns_at_least))))


def reduced(bands: Bands) -> Reduced:
    """Returns the factors of a matrix."""
    halved = []
    while bands.diagonal.shape[2] > 1:
        kept, gone = (Bands(*(x[:, :, start::2] for x in bands)) for start in (0, 1))
        # behind barriers: else what reads it would compute it again
        inverses = jax.lax.optimization_barrier(inverse_of_blocks(gone.diagonal))
        before, after = jax.lax.optimization_barrier((times(inverses, gone.left), times(inverses, gone.right)))
        diagonal = kept.diagonal - times(kept.left, to_the_next(after)) - times(kept.right, before)
        left, right = -times(kept.left, to_the_next(before)), -times(kept.right, after)
        halved.append(Halved(inverses, before, after, kept.left, kept.right))
        bands = Bands(*jax.lax.optimization_barrier((diagonal, left, right)))
    return Reduced(tuple(halved), _freed(Bands(*(x[:, :, 0] for x in bands))))


def solved(factors: Reduced, b: Float[Array, "w r c"]) -> Float[Array, "w r c"]:
    """Returns the solution of a system."""
    gone = []
    for kept in factors.halved:
        y = jax.lax.optimization_barrier(applied(kept.inverses, b[:, 1::2]))
        b = b[:, ::2] - applied(kept.left, to_the_next(y)) - applied(kept.right, y)
        gone.append(y)
        b = jax.lax.optimization_barrier(b)
    x = _solved_freed(factors.freed, b[:, 0])[:, None]
    for kept, y in zip(reversed(factors.halved), reversed(gone)):
        x = _interleaved(x, y - applied(kept.before, x) - applied(kept.after, to_the_one_before(x)))
    return x


def solved_transposed(factors: Reduced, b: Float[Array, "w r c"]) -> Float[Array, "w r c"]:
    """Returns the solution of the transposed system."""
    gone = []
    for kept in factors.halved:
        y = b[:, 1::2]
        to_left, to_right = applied(transposed(kept.before), y), applied(transposed(kept.after), y)
        b = jax.lax.optimization_barrier(b[:, ::2] - to_left - to_the_next(to_right))
        gone.append(y)
    x = _solved_freed_transposed(factors.freed, b[:, 0])[:, None]
    for kept, y in zip(reversed(factors.halved), reversed(gone)):
        to_left, to_right = applied(transposed(kept.left), x), applied(transposed(kept.right), x)
        x = _interleaved(x, applied(transposed(kept.inverses), y - to_the_one_before(to_left) - to_right))
    return x


def _interleaved(kept: Array, gone: Array) -> Array:
    both = jnp.stack([kept, gone], axis=2)
    return both.reshape(both.shape[0], -1, both.shape[-1])


def _distances(count: int) -> Array:
    """How far blocks are from their neighbours in each round of the loop."""
    return jnp.asarray(2 ** np.arange(math.ceil(math.log2(count)), dtype=np.int32))


def _freed(bands: Bands) -> Freed:
    def round_of(bands, distance):
        diagonal, left, right = bands
        inverses = inverse_of_blocks(diagonal)
        before, after = times(left, _shifted(inverses, -distance)), times(right, _shifted(inverses, distance))
        diagonal = diagonal - times(before, _shifted(right, -distance)) - times(after, _shifted(left, distance))
        left, right = -times(before, _shifted(left, -distance)), -times(after, _shifted(right, distance))
        return Bands(diagonal, left, right), (before, after)

    bands, (before, after) = scan(round_of, bands, _distances(bands.diagonal.shape[-1]))
    return Freed(before, after, inverse_of_blocks(bands.diagonal))


def _solved_freed(factors: Freed, b: Float[Array, "w c"]) -> Float[Array, "w c"]:
    def round_of(b, inputs):
        before, after, distance = inputs
        return b - applied(before, _shifted(b, -distance)) - applied(after, _shifted(b, distance)), None

    b, _ = scan(round_of, b, (factors.before, factors.after, _distances(b.shape[-1])))
    return applied(factors.inverses, b)


def _solved_freed_transposed(factors: Freed, b: Float[Array, "w c"]) -> Float[Array, "w c"]:
    def round_of(b, inputs):
        before, after, distance = inputs
        to_left, to_right = applied(transposed(before), b), applied(transposed(after), b)
        return b - _shifted(to_left, distance) - _shifted(to_right, -distance), None

    b = applied(transposed(factors.inverses), b)
    rounds = factors.before, factors.after, _distances(b.shape[-1])
    return scan(round_of, b, rounds, reverse=True)[0]


def times(a: Array, b: Array) -> Array:
    """Returns products of blocks; written as sums, since XLA would put the blocks first for a matrix product."""
    return sum((a[:, k, None] * b[None, k] for k in range(1, a.shape[1])), a[:, 0, None] * b[None, 0])


def applied(a: Array, x: Array) -> Array:
    """Returns blocks times vectors."""
    return sum((a[:, k] * x[k][None] for k in range(1, a.shape[1])), a[:, 0] * x[0][None])


def transposed(a: Array) -> Array:
    """Returns the transposed blocks."""
    return jnp.swapaxes(a, 0, 1)


def to_the_next(x: Float[Array, "*w r c"]) -> Float[Array, "*w r c"]:
    """Returns what stands one place before each, down the columns; zero before the first."""
    last = x[..., -1:, :]
    first = jnp.concatenate([jnp.zeros_like(last[..., :1]), last[..., :-1]], axis=-1)
    return jnp.concatenate([first, x[..., :-1, :]], axis=-2)


def to_the_one_before(x: Float[Array, "*w r c"]) -> Float[Array, "*w r c"]:
    """Returns what stands one place behind each, down the columns; zero behind the last."""
    first = x[..., :1, :]
    last = jnp.concatenate([first[..., 1:], jnp.zeros_like(first[..., :1])], axis=-1)
    return jnp.concatenate([x[..., 1:, :], last], axis=-2)


def _shifted(x: Array, distance: Any) -> Array:
    """The entries a number of places to the right of each; zero outside."""
    count = x.shape[-1]
    nothing = jnp.zeros_like(x)
    wide = jnp.concatenate([nothing, x, nothing], axis=-1)
    return jax.lax.dynamic_slice_in_dim(wide, count + distance, count, axis=-1)


class BlockTridiagonal(AbstractStructure):
    """A banded matrix, after its unknowns are put in order.

    Attributes:
        order: The unknowns in their order along the band.
        width: The size of the blocks: the distance of the farthest entry from the diagonal.
        rows: How many blocks stand in a column; see `Bands`.
        columns: How many columns there are.
        colouring: The columns of the Jacobian that are computed at once.
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
        """A description for people."""
        return f"banded, {self.width} on each side of the diagonal, by cyclic reduction"


# Wide bands, as of fields on a grid in two dimensions: dense blocks, eliminated one after another.
#
# With blocks $D_i$ on the diagonal, $L_i$ left and $U_i$ right of it,
#
# $$S_i = D_i - L_i G_{i-1}, \quad G_i = S_i^{-1} U_i, \qquad
#   z_i = S_i^{-1} (b_i - L_i z_{i-1}), \quad x_i = z_i - G_i x_{i+1}.$$
#
# For $n$ unknowns and a band of $w$ on each side that is work of $6 n w^2$, where a dense matrix asks for $\frac23
# n^3$. Blocks are inverted by matrix products: a call of LAPACK for each would wake its threads thousands of times in a
# step.
#
# Source:
#     G. H. Golub, C. F. Van Loan, Matrix Computations, 4th edition, Johns Hopkins, 2013, section 4.5.


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
