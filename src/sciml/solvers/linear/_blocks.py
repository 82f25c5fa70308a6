"""Block-diagonal matrices: parts of a state that do not know of one another."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._jax._vma import match
from ._colouring import Colouring
from ._sparse import SparseArray
from ._structure import AbstractStructure, products, taken
from ._written_out import Factors, factorised, substituted, substituted_transposed


class Blocks(AbstractStructure):
    """A matrix of small blocks on the diagonal, after its unknowns are put in order.

    All blocks are eliminated at once, entry by entry, each entry an array over the blocks; smaller blocks are filled up
    with ones on the diagonal.

    Attributes:
        members: The unknowns of each block, of shape `(block size, blocks)`; `size` where a block is smaller.
        colouring: The columns of the Jacobian that are computed at once.
        pivot: Whether rows are exchanged.
    """

    def __init__(self, labels: np.ndarray, colouring: Colouring, mass: SparseArray, pivot: bool):
        self.size, self.colouring, self.pivot = labels.size, colouring, pivot
        order = np.argsort(labels, kind="stable")
        counts = np.bincount(labels)
        within = np.arange(labels.size) - np.repeat(np.cumsum(counts) - counts, counts)
        self.members = np.full((counts.max(), counts.size), labels.size)
        self.members[within, labels[order]] = order
        self.places = np.empty(labels.size, np.int64)  # of the unknowns among those of all blocks
        self.places[order] = within * counts.size + labels[order]
        shape = (len(self.members), *self.members.shape)
        filling = np.broadcast_to(np.eye(shape[0])[:, :, None], shape)
        self.constant = np.where((self.members >= self.size)[:, None], filling, 0)
        entries, pattern = mass.tocoo(), colouring.pattern.tocoo()
        self.constant[self._places_of(entries)] = entries.data
        self.stored = np.zeros(shape, bool)
        self.stored[self._places_of(pattern)] = True
        # in no block are the others anything but zero; rows that are exchanged have to have the same entries
        self.present = np.any(self.stored | (self.constant != 0), axis=2) | np.eye(shape[0], dtype=bool) | pivot
        inner = np.minimum(self.members, self.size - 1)
        self.source = inner[:, None] * len(colouring.directions) + colouring.colours[inner][None]

    def _places_of(self, entries: SparseArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and blocks of entries."""
        row, block = np.divmod(self.places[entries.row], self.members.shape[1])
        return row, self.places[entries.col] // self.members.shape[1], block

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Array:
        """Returns the matrix, of shape `(block size, block size, blocks)`."""
        columns = products(along, x, self.colouring.directions)
        jacobian = jnp.where(self.stored, taken(columns.reshape(-1), self.source), 0)
        return match(jnp.asarray(self.constant, x.dtype), x) - scale * jacobian

    def factorise(self, matrix: Array) -> Factors:
        """Returns the factors of a matrix."""
        entries = [[x if there else None for x, there in zip(row, stored)] for row, stored in zip(matrix, self.present)]
        return factorised(entries, self.pivot)

    def times(self, matrix: Array, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        # of arrays, not entry by entry: the matrix's cotangent would be put together of as many parts as it has entries
        return taken(jnp.sum(matrix * self._stacked(x)[None], axis=1).reshape(-1), self.places)

    def substitute(self, factors: Factors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""
        # otherwise each unknown would be selected among parts that are computed for it only, and nothing would be a
        # vector
        return self._joined(jax.lax.optimization_barrier(substituted(factors, self._parted(b))))

    def substitute_transposed(self, factors: Factors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""
        # the parts by vectors, as above, and put together once: else that is done again for each use
        parts = jax.lax.optimization_barrier(substituted_transposed(factors, self._parted(b)))
        return jax.lax.optimization_barrier(self._joined(parts))

    def is_singular(self, matrix: Array, factors: Factors) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular: of others no pivot is zero, but NaN."""
        return jnp.any(jnp.isinf(jnp.stack([row[k] for k, row in enumerate(factors.lu)])))

    def computed_once(self, matrix: Array, factors: Factors, *vectors: Array) -> tuple:
        """Returns its arguments, all but the matrix, whose entries are soon computed, from behind a barrier."""
        return matrix, *jax.lax.optimization_barrier((factors, *vectors))

    def _stacked(self, x: Array) -> Array:
        return taken(x if self.members.size == self.size else jnp.append(x, jnp.zeros_like(x[:1])), self.members)

    def _parted(self, x: Array) -> list[Array]:
        return list(self._stacked(x))

    def _joined(self, parts: list[Array]) -> Array:
        return taken(jnp.concatenate(parts), self.places)

    @property
    def words(self) -> str:
        """A description for people."""
        size, count = self.members.shape
        return f"{count} blocks of up to {size} unknowns, eliminated together entry by entry"
