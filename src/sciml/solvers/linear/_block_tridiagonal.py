r"""Banded matrices as tridiagonal ones of blocks, by parallel cyclic reduction.

With blocks $D_i$ on the diagonal and, at a distance $s$, $L_i$ left and $U_i$ right of it, every row is freed of its
neighbours at once, with $A_i = L_i D_{i-s}^{-1}$ and $C_i = U_i D_{i+s}^{-1}$,

$$D_i' = D_i - A_i U_{i-s} - C_i L_{i+s}, \quad L_i' = -A_i L_{i-s}, \quad U_i' = -C_i U_{i+s}, \quad
  b_i' = b_i - A_i b_{i-s} - C_i b_{i+s},$$

which doubles the distance; after $\log_2$ of the number of blocks none has a neighbour. Every round is the same work on
arrays over all blocks, so the rounds are one loop: an elimination one after another would be a loop over the blocks.

Source:
    R. W. Hockney, C. R. Jesshope, Parallel Computers, Adam Hilger, 1981.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._jax._largest import largest
from ..._jax._loops import scan
from ..._jax._vma import match
from ._colouring import Colouring
from ._sparse import SparseArray
from ._structure import AbstractStructure, products, taken
from ._written_out import factorised, substituted

_WRITTEN_OUT = 3
"""Blocks of up to this many rows are inverted entry by entry."""


class Bands(NamedTuple):
    """The blocks on, left and right of the diagonal, each of shape `(block size, block size, blocks)`."""

    diagonal: Array
    left: Array
    right: Array


class Rounds(NamedTuple):
    """What a factorisation keeps.

    Attributes:
        before: $A$ of each round, of shape `(rounds, block size, block size, blocks)`.
        after: $C$ of each round.
        inverses: The inverses of the blocks that are left.
    """

    before: Array
    after: Array
    inverses: Array


class BlockTridiagonal(AbstractStructure):
    """A banded matrix, after its unknowns are put in order.

    Attributes:
        order: The unknowns in their order along the band.
        width: The size of the blocks: the distance of the farthest entry from the diagonal.
        colouring: Which columns of the Jacobian are computed at once.
    """

    def __init__(self, order: np.ndarray, width: int, colouring: Colouring, mass: SparseArray):
        self.size, self.order, self.width, self.colouring = order.size, order, width, colouring
        self.blocks = -(-order.size // width)
        self.places = np.empty(order.size, np.int64)
        self.places[order] = np.arange(order.size)
        padded = self.blocks * width
        unknown = np.append(order, np.full(padded - order.size, order.size)).reshape(self.blocks, width)
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
        self.unknown = unknown.T

    def _in_blocks(self, rows: np.ndarray) -> np.ndarray:
        """Three blocks of each row of blocks, of shape `(3, width, width, blocks)`."""
        return np.transpose(rows.reshape(self.blocks, self.width, 3, self.width), (2, 1, 3, 0))

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Bands:
        """Returns the matrix."""
        columns = products(along, x, self.colouring.directions)
        jacobian = jnp.where(self.stored, taken(columns.reshape(-1), self.source), 0)
        left, diagonal, right = match(jnp.asarray(self.constant, x.dtype), x) - scale * jacobian
        return Bands(diagonal, left, right)

    @property
    def _distances(self) -> np.ndarray:
        """How far the blocks are from their neighbours in each round."""
        return 2 ** np.arange(math.ceil(math.log2(self.blocks)), dtype=np.int32)

    def factorise(self, matrix: Bands) -> Rounds:
        """Returns the factors of a matrix."""

        def round_of(bands, distance):
            diagonal, left, right = bands
            inverses = inverse_of_blocks(diagonal)
            before, after = _times(left, _shifted(inverses, -distance)), _times(right, _shifted(inverses, distance))
            diagonal = diagonal - _times(before, _shifted(right, -distance)) - _times(after, _shifted(left, distance))
            left, right = -_times(before, _shifted(left, -distance)), -_times(after, _shifted(right, distance))
            return Bands(diagonal, left, right), (before, after)

        bands, (before, after) = scan(round_of, matrix, jnp.asarray(self._distances))
        return Rounds(before, after, inverse_of_blocks(bands.diagonal))

    def times(self, matrix: Bands, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        x = self._parted(x)
        parts = (
            _applied(matrix.diagonal, x)
            + _applied(matrix.left, _shifted(x, -1))
            + _applied(matrix.right, _shifted(x, 1))
        )
        return self._joined(parts)

    def substitute(self, factors: Rounds, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""

        def round_of(b, inputs):
            before, after, distance = inputs
            return b - _applied(before, _shifted(b, -distance)) - _applied(after, _shifted(b, distance)), None

        b, _ = scan(round_of, self._parted(b), (factors.before, factors.after, jnp.asarray(self._distances)))
        return jax.lax.optimization_barrier(self._joined(_applied(factors.inverses, b)))

    def substitute_transposed(self, factors: Rounds, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""

        def round_of(b, inputs):
            before, after, distance = inputs
            to_left, to_right = _applied(_transposed(before), b), _applied(_transposed(after), b)
            return b - _shifted(to_left, distance) - _shifted(to_right, -distance), None

        rounds = factors.before, factors.after, jnp.asarray(self._distances)
        b = _applied(_transposed(factors.inverses), self._parted(b))
        b, _ = scan(round_of, b, rounds, reverse=True)
        return jax.lax.optimization_barrier(self._joined(b))

    def is_singular(self, matrix: Bands, factors: Rounds) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular, or its elimination lost half of all digits."""
        size = largest(jnp.abs(jnp.stack(matrix)))
        grown = largest(jnp.stack([largest(jnp.abs(x)) for x in factors]))
        limit = jnp.finfo(size.dtype).eps ** -0.5
        # entries are of the size of a mass matrix, scaled by its largest
        return jnp.isfinite(size) & ~(grown < limit * jnp.maximum(size, 1 / size))

    def _parted(self, x: Array) -> Array:
        whole = self.unknown.size == self.size
        return taken(x if whole else jnp.append(x, jnp.zeros_like(x[:1])), self.unknown)

    def _joined(self, parts: Array) -> Array:
        return taken(parts.T.reshape(-1), self.places)

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"banded, {self.width} on each side of the diagonal, by parallel cyclic reduction"


def _times(a: Array, b: Array) -> Array:
    """Products of blocks; written as sums, since XLA would put the blocks first for a matrix product."""
    return sum((a[:, k, None] * b[None, k] for k in range(1, a.shape[1])), a[:, 0, None] * b[None, 0])


def _applied(a: Array, x: Array) -> Array:
    """Blocks times vectors."""
    return sum((a[:, k] * x[k][None] for k in range(1, a.shape[1])), a[:, 0] * x[0][None])


def _transposed(a: Array) -> Array:
    return jnp.swapaxes(a, 0, 1)


def inverse_of_blocks(a: Array) -> Array:
    """Inverses of blocks, of shape `(size, size, blocks)`, by elimination with exchanges of rows."""
    return _inverse_written_out(a) if a.shape[0] <= _WRITTEN_OUT else _inverse_by_rows(a)


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


def _shifted(x: Array, distance: Any) -> Array:
    """What stands so many places to the right of each; zero outside."""
    count = x.shape[-1]
    nothing = jnp.zeros_like(x)
    wide = jnp.concatenate([nothing, x, nothing], axis=-1)
    return jax.lax.dynamic_slice_in_dim(wide, count + distance, count, axis=-1)
