"""Sums, means and root mean squares over all elements of all fields of a PyTree, on all devices that hold parts."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Real

from . import _collectives
from ._sharding import are_manual


@dataclasses.dataclass(frozen=True)
class Rms:
    """The root of the mean of squares over all devices that hold parts of a field; equal if the names are.

    Attributes:
        names: The mesh axes that split the field.
    """

    names: tuple[str, ...]

    def __call__(self, u: PyTree) -> Real[Array, ""]:
        """Returns the root mean square."""
        return jnp.sqrt(mean(jax.tree.map(square, u), self.names if are_manual(self.names) else ()))


def total(u: PyTree, names: _collectives.Names) -> Array:
    """Returns the sum of all elements of all fields."""
    first, *rest = [_collectives.total(x, names) for x in jax.tree.leaves(u)]
    return sum(rest, first)


def mean(u: PyTree, names: _collectives.Names) -> Array:
    """Returns the mean of all elements of all fields."""
    return total(u, names) / sum(_collectives.count(x, names) for x in jax.tree.leaves(u))


def square(x: Array) -> Array:
    """Returns the squares of moduli."""
    return jnp.real(jnp.conj(x) * x)
