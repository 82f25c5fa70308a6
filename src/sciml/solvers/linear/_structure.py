"""Matrices of a known structure: how they are stored, factorised and solved with."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..._choices import choices
from ..._jax._loops import scan
from ..._jax._vma import match


class DerivativeAlong:
    """A function linearised at a place: `along(v)` is its derivative along a direction.

    Attributes:
        function: The function, whose program determines the possible entries.
    """

    def __init__(self, along: Callable[[Array], Array], function: Callable[[Array], Array]):
        self._along, self.function = along, function

    def __call__(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the derivative along a direction."""
        return self._along(v)


class AbstractStructure(abc.ABC):
    r"""The positions of the entries of $W = M - s J$, with $M$ constant and $J$ a Jacobian; the solution of $W x = b$.

    The matrix and its factors are PyTrees that only the structure reads. Nothing is differentiated through the
    factorisation: the derivatives of `solve`, $W \dot x = \dot b - \dot W x$ and $W^T \bar b = \bar x$, use the same
    factors.

    Attributes:
        size: The number of unknowns.
        entry_by_entry: Whether everything is scalars, over which a method also writes out its stages.
        iterates: Whether a solution may not be found, though there is one; it is NaN then.
    """

    size: int
    entry_by_entry: ClassVar[bool] = False
    iterates: ClassVar[bool] = False

    @abc.abstractmethod
    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> PyTree:
        """Returns the matrix.

        Args:
            along: The derivative along a direction, the product of $J$ and a vector; a `DerivativeAlong` where
                the function is at hand.
            x: The state, for its dtype.
            scale: $s$.
        """

    def weighted(self, matrix: PyTree, tolerated: Float[Array, " n"]) -> PyTree:
        """Returns a matrix with the tolerated error of each unknown, if a solution depends on it."""
        del tolerated
        return matrix

    @abc.abstractmethod
    def factorise(self, matrix: PyTree) -> PyTree:
        """Returns the factors of a matrix; the factors of a singular matrix are not finite."""

    @abc.abstractmethod
    def times(self, matrix: PyTree, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""

    @abc.abstractmethod
    def substitute(self, factors: PyTree, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system by its factors."""

    @abc.abstractmethod
    def substitute_transposed(self, factors: PyTree, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""

    @abc.abstractmethod
    def is_singular(self, matrix: PyTree, factors: PyTree) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular, or could not be factorised exactly enough."""

    def solve(self, matrix: PyTree, factors: PyTree, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system whose factors were computed from `jax.lax.stop_gradient(matrix)`.

        Args:
            matrix: The matrix, for the derivative.
            factors: Its factors.
            b: The right-hand side.
        """
        return jax.lax.custom_linear_solve(
            lambda x: self.times(matrix, x),
            b,
            lambda _, b: self.substitute(factors, b),
            lambda _, b: self.substitute_transposed(factors, b),
        )

    def computed_once(self, matrix: PyTree, factors: PyTree, *vectors: Array) -> tuple:
        """Returns its arguments from behind a barrier, so that what uses them does not compute them again."""
        return jax.lax.optimization_barrier((matrix, factors, *vectors))

    def of_one(self) -> "AbstractStructure":
        """Returns the structure for the systems of a single member."""
        return self

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """A description for people."""


def solve(structure: AbstractStructure, matrix: PyTree, factors: PyTree, b: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solves a system; see `AbstractStructure.solve`."""
    return structure.solve(matrix, factors, b)


def products(along: Callable[[Array], Array], x: Float[Array, " n"], directions: np.ndarray) -> Any:
    """Returns the derivatives along directions, the rows of an array, as its columns."""
    count, n = directions.shape
    table = choices().linear
    together = max(table.directions_at_least, table.directions_at_once // n)
    if count <= 2 * together:
        return jax.vmap(along, out_axes=1)(match(jnp.asarray(directions, x.dtype), x))
    rounds = -(-count // together)
    together = -(-count // rounds)
    padded = np.concatenate([directions, np.zeros((rounds * together - count, n))]).reshape(rounds, together, n)
    _, found = scan(lambda _, some: ((), jax.vmap(along)(some)), (), match(jnp.asarray(padded, x.dtype), x), like=x)
    return found.reshape(-1, x.shape[0])[:count].T


def taken(x: Float[Array, " n"], places: np.ndarray) -> Array:
    """Returns the elements of a vector at known places; by moving axes where these are all in a regular order."""
    strides = [
        int(places.take(1, axis).flat[0] - places.flat[0]) if n > 1 else 0 for axis, n in enumerate(places.shape)
    ]
    order = sorted(range(places.ndim), key=lambda axis: -strides[axis])
    lengths = [places.shape[axis] for axis in order]
    if places.size == x.shape[0]:
        regular = np.transpose(np.arange(places.size).reshape(lengths), np.argsort(order))
        if np.array_equal(places, regular):
            return jnp.transpose(x.reshape(lengths), np.argsort(order))
    return x.at[places].get(mode="promise_in_bounds")
