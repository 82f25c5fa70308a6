"""Small matrices, written out entry by entry.

A matrix is a list of rows of scalars. Over lanes every scalar is an array over all members. An entry that is zero
whatever the state costs nothing: where it is known beforehand it is None, and is not part of any loop's program.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._choices import choices
from ..._jax._vma import match
from ._entries import DenseMatrix
from ._structure import AbstractStructure


def few_products(present: np.ndarray) -> bool:
    """Returns whether the elimination of a matrix and its use for eight stages take few products.

    Args:
        present: The entries that are not zero, an array of booleans.
    """
    filled = present | np.eye(len(present), dtype=bool)
    products = 0
    for k in range(len(filled)):
        below = np.flatnonzero(filled[k + 1 :, k]) + k + 1
        right = np.flatnonzero(filled[k, k + 1 :]) + k + 1
        filled[np.ix_(below, right)] = True
        products += below.size * (1 + right.size)
    return products + 8 * int(filled.sum()) <= choices().linear.written_out_products_at_most


Entries = list[list[Array | None]]
"""Rows of scalars; None for what is zero."""


class Factors(NamedTuple):
    r"""A factorised matrix, $P W = L U$.

    Attributes:
        lu: Both triangles, with the inverse of the pivots on the diagonal.
        pivots: Whether rows were exchanged, in the order of the exchanges, or None.
    """

    lu: Entries
    pivots: list[Array] | None


class WrittenOut(AbstractStructure):
    """A small matrix.

    Attributes:
        mass: The constant part of the matrix.
        pivot: Whether rows are exchanged.
        present: The entries that are not zero, including the diagonal.
    """

    entry_by_entry: ClassVar[bool] = True

    def __init__(self, mass: np.ndarray, pivot: bool, jacobian: np.ndarray | None = None):
        """Makes the structure.

        Args:
            mass: The constant part of the matrix.
            pivot: Whether rows are exchanged.
            jacobian: The entries of the Jacobian that are not zero; None if this is not known.
        """
        self.size, self.mass, self.pivot, self.sparse = mass.shape[0], mass, pivot, jacobian is not None
        every = np.ones(mass.shape, bool)
        self.present = every if jacobian is None else jacobian | (mass != 0) | np.eye(self.size, dtype=bool)

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Entries:
        """Returns the matrix."""
        # unit vectors one by one: over lanes their zeros are known, and also the zeros of the Jacobian
        n = self.size
        columns = [along(match(jnp.asarray(unit, x.dtype), x)) for unit in np.eye(n)]

        def entry(i: int, j: int) -> Array | None:
            return float(self.mass[i, j]) - scale * columns[j][i] if self.present[i, j] else None

        return [[entry(i, j) for j in range(n)] for i in range(n)]

    def factorise(self, matrix: Entries) -> Factors:
        """Returns the factors of a matrix."""
        return factorised(matrix, self.pivot)

    def times(self, matrix: Entries, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        return jnp.stack(product(matrix, list(x)))

    def substitute(self, factors: Factors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""
        # else XLA would compute the substitution again for each use of an unknown
        return jax.lax.optimization_barrier(jnp.stack(substituted(factors, list(b))))

    def substitute_transposed(self, factors: Factors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""
        return jax.lax.optimization_barrier(jnp.stack(substituted_transposed(factors, list(b))))

    def is_singular(self, matrix: Entries, factors: Factors) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular."""
        return singular(matrix, factors)

    def computed_once(self, matrix: Any, factors: Any, *vectors: Array) -> tuple:
        """Returns its arguments from behind a barrier, so that what uses them does not compute them again."""
        # one array for each row: where a barrier is a branch, it copies each of its results
        held = [[jnp.stack([x for x in row if x is not None]) for row in rows] for rows in (matrix, factors.lu)]
        held, pivots, vectors = jax.lax.optimization_barrier((held, factors.pivots, vectors))
        matrix, lu = (
            [_apart(row, like) for row, like in zip(rows, entries)] for rows, entries in zip(held, (matrix, factors.lu))
        )
        return matrix, Factors(lu, pivots), *vectors

    def of_one(self) -> AbstractStructure:
        """Returns a dense matrix where this one is large: LAPACK is as fast for one member, and compiles faster."""
        return DenseMatrix(self.mass) if self.sparse and self.size > choices().linear.small_at_most else self

    @property
    def words(self) -> str:
        """A description for people."""
        return "small, its elimination written out entry by entry"


def _apart(row: Array, like: Sequence[Array | None]) -> list[Array | None]:
    """Returns the entries of a row that were put together, each in its place."""
    places = np.cumsum([x is not None for x in like]) - 1
    return [None if x is None else row[int(place)] for x, place in zip(like, places)]


def factorised(matrix: Entries, pivot: bool) -> Factors:
    """Factorises a matrix; a singular one gives factors that are not finite.

    Args:
        matrix: Rows of entries; arrays stand for as many matrices.
        pivot: Whether to exchange rows, none of whose entries may be None.
    """
    n = len(matrix)
    lu = [list(row) for row in matrix]
    exchanges = []
    for k in range(n):
        if pivot:
            for i in range(k + 1, n):
                swap = jnp.abs(lu[i][k]) > jnp.abs(lu[k][k])
                lu[k], lu[i] = _exchanged(swap, lu[k], lu[i])
                exchanges.append(swap)
        inverse = 1 / lu[k][k]  # kept in place of the pivot: substitutions multiply by it
        for i in range(k + 1, n):
            if lu[i][k] is None:
                continue
            factor = lu[i][k] * inverse
            lu[i][k] = factor
            for j in range(k + 1, n):
                if lu[k][j] is not None:
                    product = factor * lu[k][j]
                    lu[i][j] = -product if lu[i][j] is None else lu[i][j] - product
        lu[k][k] = inverse
    return Factors(lu, exchanges if pivot else None)


def singular(matrix: Entries, factors: Factors) -> Bool[Array, ""]:
    """Whether a matrix of finite entries turned out to be singular."""
    entries = jnp.stack([jnp.asarray(x) for row in matrix for x in row if x is not None])
    pivots = jnp.stack([row[k] for k, row in enumerate(factors.lu)])  # their inverses
    return jnp.all(jnp.isfinite(entries)) & ~jnp.all(jnp.isfinite(pivots))


def product(matrix: Entries, x: list[Array]) -> list[Array]:
    """Returns a matrix times a vector."""
    return [sum((w * x[j] for j, w in enumerate(row) if w is not None), jnp.zeros_like(x[0])) for row in matrix]


def substituted(factors: Factors, b: list[Array]) -> list[Array]:
    """Solves a system by its factors."""
    lu, n, x = factors.lu, len(b), list(b)
    # row i moved on with its multipliers, so that all exchanges may come first
    for (k, i), swap in _exchanges(factors, n):
        (x[k],), (x[i],) = _exchanged(swap, [x[k]], [x[i]])
    for i in range(n):
        x[i] = _without(x[i], lu[i], x, range(i))
    for i in reversed(range(n)):
        x[i] = _without(x[i], lu[i], x, range(i + 1, n)) * lu[i][i]
    return x


def substituted_transposed(factors: Factors, b: list[Array]) -> list[Array]:
    """Solves the transposed system by the same factors."""
    lu, n, x = factors.lu, len(b), list(b)
    columns = list(zip(*lu))
    for i in range(n):
        x[i] = _without(x[i], columns[i], x, range(i)) * lu[i][i]
    for i in reversed(range(n)):
        x[i] = _without(x[i], columns[i], x, range(i + 1, n))
    for (k, i), swap in reversed(_exchanges(factors, n)):
        (x[k],), (x[i],) = _exchanged(swap, [x[k]], [x[i]])
    return x


def _without(value: Array, weights: Sequence[Array | None], x: list[Array], places: range) -> Array:
    """Returns a value without the weighted sum of some unknowns."""
    for j in places:
        weight = weights[j]
        if weight is not None:
            value = value - weight * x[j]
    return value


def _exchanges(factors: Factors, n: int) -> list[tuple[tuple[int, int], Array]]:
    """Returns the pairs of rows that are exchanged, each with its condition, in their order."""
    pairs = itertools.combinations(range(n), 2)
    return [] if factors.pivots is None else list(zip(pairs, factors.pivots))


def _exchanged(swap: Array, a: list[Array], b: list[Array]) -> tuple[list[Array], list[Array]]:
    """Returns two rows, exchanged where `swap`."""
    pairs = [(jnp.where(swap, y, x), jnp.where(swap, x, y)) for x, y in zip(a, b)]
    return [first for first, _ in pairs], [second for _, second in pairs]
