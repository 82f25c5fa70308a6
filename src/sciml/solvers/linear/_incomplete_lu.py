r"""Incomplete factorisation: $L U \approx W$ with entries where $W$ has them and nowhere else.

The unknowns are put in order by colours, such that none is linked with another of its own colour. All rows of one
colour are then eliminated at once, and a substitution has one step per colour: two for the five-point stencil of a
grid, however large.

Source:
    Y. Saad, Iterative Methods for Sparse Linear Systems, 2nd edition, SIAM, 2003, sections 10.3 and 12.4.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._jax._vma import match
from ._colouring import Colouring
from ._sparse import SparseArray, sp
from ._structure import AbstractStructure, products


class _Part(NamedTuple):
    """Entries of a triangle by the rows of one colour, or of a transposed triangle by its columns.

    Attributes:
        rows: The first and the last but one of the unknowns in their order.
        places: The places of the entries, of shape `(rows, entries of a row)`; the last place of all for missing
            entries.
        columns: With which unknowns in their order they are multiplied.
    """

    rows: tuple[int, int]
    places: np.ndarray
    columns: np.ndarray


class IncompleteLU(AbstractStructure):
    """An approximation of a sparse matrix by factors as sparse as itself.

    Attributes:
        colouring: The columns of the Jacobian that are computed at once.
        count: How many groups of unknowns are eliminated one after another.
    """

    def __init__(self, colouring: Colouring, mass: SparseArray, groups: np.ndarray):
        n = colouring.pattern.shape[0]
        self.size, self.colouring = n, colouring
        present = sp.csr_array(mass.astype(bool) + colouring.pattern + sp.eye_array(n, dtype=bool, format="csr"))
        self.count = int(groups.max()) + 1
        self.order = np.argsort(groups, kind="stable")
        self.back = np.empty(n, np.int64)
        self.back[self.order] = np.arange(n)
        bounds = np.searchsorted(groups[self.order], np.arange(self.count + 1)).tolist()
        ordered = sp.csr_array(present[self.order][:, self.order])
        ordered.sort_indices()
        rows = np.repeat(np.arange(n), np.diff(ordered.indptr))
        columns = ordered.indices.astype(np.int64)
        self.entries = rows.size
        number = sp.csr_array((np.arange(1, rows.size + 1), columns, ordered.indptr), shape=(n, n))
        self.diagonal = np.flatnonzero(rows == columns)
        own_rows, own_columns = self.order[rows], self.order[columns]
        pattern = sp.csr_array(colouring.pattern)
        there = np.asarray(pattern[own_rows, own_columns]).ravel().astype(bool)
        self.source = np.where(there, own_rows * len(colouring.directions) + colouring.colours[own_columns], -1)
        self.constant = np.asarray(sp.csr_array(mass)[own_rows, own_columns]).ravel().astype(float)
        self.phases = [_phase(number, rows, columns, bounds[c], bounds[c + 1]) for c in range(self.count - 1)]
        lower, upper = rows > columns, rows < columns
        self.lower = _parts(rows[lower], columns[lower], np.flatnonzero(lower), bounds, self.entries)
        self.upper = _parts(rows[upper], columns[upper], np.flatnonzero(upper), bounds, self.entries)
        self.lower_transposed = _parts(columns[lower], rows[lower], np.flatnonzero(lower), bounds, self.entries)
        self.upper_transposed = _parts(columns[upper], rows[upper], np.flatnonzero(upper), bounds, self.entries)

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Array:
        """Returns the entries of the matrix, row by row."""
        columns = products(along, x, self.colouring.directions).reshape(-1)
        known = columns.at[np.maximum(self.source, 0)].get(mode="promise_in_bounds")
        jacobian = jnp.where(self.source >= 0, known, 0)
        return match(jnp.asarray(self.constant, x.dtype), x) - scale * jacobian

    def factorise(self, matrix: Array) -> Array:
        """Returns both triangles, with the inverse of the pivots on the diagonal, and a zero behind them."""
        lu = matrix
        for scaled, pivots, targets, left, right in self.phases:
            multipliers = _at(lu, scaled) / _at(lu, pivots)
            lu = lu.at[scaled].set(multipliers, unique_indices=True, mode="promise_in_bounds")
            lu = lu.at[targets].add(-_at(lu, left) * _at(lu, right), mode="promise_in_bounds")
        inverses = 1 / _at(lu, self.diagonal)
        lu = lu.at[self.diagonal].set(inverses, unique_indices=True, mode="promise_in_bounds")
        return jnp.append(lu, jnp.zeros_like(lu[:1]))

    def times(self, matrix: Array, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        whole, x = jnp.append(matrix, jnp.zeros_like(matrix[:1])), _at(x, self.order)
        total = _at(matrix, self.diagonal) * x
        for triangle in (self.lower, self.upper):
            total = total + jnp.concatenate([_row_sums(whole, part, x) for part in triangle])
        return _at(total, self.back)

    def substitute(self, factors: Array, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""
        y = _forwards(factors, self.lower, _at(b, self.order), None)
        return _at(_backwards(factors, self.upper, y, _at(factors, self.diagonal)), self.back)

    def substitute_transposed(self, factors: Array, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""
        y = _forwards(factors, self.upper_transposed, _at(b, self.order), _at(factors, self.diagonal))
        return _at(_backwards(factors, self.lower_transposed, y, None), self.back)

    def is_singular(self, matrix: Array, factors: Array) -> Bool[Array, ""]:
        """Whether a matrix of finite entries has factors that are not."""
        return jnp.all(jnp.isfinite(matrix)) & ~jnp.all(jnp.isfinite(factors))

    @property
    def words(self) -> str:
        """A description for people."""
        return f"an incomplete factorisation (ILU(0)) of {self.entries} entries, in {self.count} steps"


def groups_of(pattern: SparseArray, mass: SparseArray) -> np.ndarray:
    """Returns a colour for each unknown, such that none is linked with another of its own."""
    present = mass.astype(bool) + pattern
    linked = sp.csr_array(present + present.T)
    colours = np.full(linked.shape[0], -1)
    for i in range(colours.size):
        taken = colours[linked.indices[linked.indptr[i] : linked.indptr[i + 1]]]  # its own is none so far
        free = np.ones(taken.size + 1, bool)
        free[taken[(taken >= 0) & (taken <= taken.size)]] = False
        colours[i] = np.argmax(free)
    return colours


def _phase(number: SparseArray, rows: np.ndarray, columns: np.ndarray, first: int, last: int) -> tuple:
    """The elimination of the unknowns from `first` to `last` from the rows of all that come later.

    Returns which entries are divided by which pivots, and to which entries which products are added.
    """
    scaled = np.flatnonzero((columns >= first) & (columns < last) & (rows >= last))
    pivots = np.asarray(number[columns[scaled], columns[scaled]]).ravel() - 1
    # entries (i, k) with (k, j) where there is an entry (i, j)
    starts, ends = number.indptr[columns[scaled]], number.indptr[columns[scaled] + 1]
    counts = ends - starts
    left = np.repeat(scaled, counts)
    right = np.repeat(starts, counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    further = columns[right] >= last
    left, right = left[further], right[further]
    targets = np.asarray(number[rows[left], columns[right]]).ravel().astype(np.int64) - 1
    there = targets >= 0
    return scaled, pivots, targets[there], left[there], right[there]


def _parts(rows: np.ndarray, columns: np.ndarray, numbers: np.ndarray, bounds: list[int], none: int) -> list[_Part]:
    parts = []
    for first, last in zip(bounds[:-1], bounds[1:]):
        mine = np.flatnonzero((rows >= first) & (rows < last))
        mine = mine[np.argsort(rows[mine], kind="stable")]
        counts = np.bincount(rows[mine] - first, minlength=last - first)
        place = np.arange(mine.size) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = (last - first, int(counts.max(initial=0)))
        entries, with_column = np.full(shape, none), np.zeros(shape, np.int64)
        entries[rows[mine] - first, place] = numbers[mine]
        with_column[rows[mine] - first, place] = columns[mine]
        parts.append(_Part((int(first), int(last)), entries, with_column))
    return parts


def _at(x: Array, places: np.ndarray) -> Array:
    return x.at[places].get(mode="promise_in_bounds")


def _row_sums(lu: Array, part: _Part, x: Array) -> Array:
    """The products of rows with a vector."""
    if part.places.shape[1] == 0:
        return jnp.zeros_like(x[part.rows[0] : part.rows[1]])
    return jnp.sum(_at(lu, part.places) * _at(x, part.columns), axis=1)


def _forwards(lu: Array, parts: list[_Part], b: Array, pivots: Array | None) -> Array:
    done = jnp.zeros_like(b[:0])
    for part in parts:
        first, last = part.rows
        mine = b[first:last] if not first else b[first:last] - _row_sums(lu, part, done)
        done = jnp.concatenate([done, mine if pivots is None else mine * pivots[first:last]])
    return done


def _backwards(lu: Array, parts: list[_Part], b: Array, pivots: Array | None) -> Array:
    done = jnp.zeros_like(b[:0])
    for part in reversed(parts):
        first, last = part.rows
        beyond = part._replace(columns=np.maximum(part.columns - last, 0))
        mine = b[first:last] if not done.shape[0] else b[first:last] - _row_sums(lu, beyond, done)
        done = jnp.concatenate([mine if pivots is None else mine * pivots[first:last], done])
    return done
