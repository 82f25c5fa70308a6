"""Symmetric operators on a box, which couple unknowns through faces, or with all unknowns around them."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._jax._loops import scan
from ..._types import RealScalarLike


class AbstractCouplings(eqx.Module):
    r"""The operator $(A u)_i = a_i u_i - \sum_j w_{ij} u_j$ with $w_{ij} = w_{ji}$. Beyond a wall $u$ is zero.

    Attributes:
        shape: The number of unknowns along each axis.
        periodic: The periodic axes.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    periodic: eqx.AbstractVar[tuple[bool, ...]]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @abc.abstractmethod
    def diagonal(self) -> Array:
        """Returns the diagonal, of the full shape."""

    @abc.abstractmethod
    def lower(self, axis: int) -> Array:
        """Returns what couples every unknown with the one before it along an axis."""

    @abc.abstractmethod
    def upper(self, axis: int) -> Array:
        """Returns what couples every unknown with the one after it along an axis."""

    @abc.abstractmethod
    def neighbours(self, u: Array, line: int | None = None) -> Array:
        """Returns the sum of the neighbours of every unknown times what couples them.

        Args:
            u: The field.
            line: The axis along which neighbours are left out, those on the same line; None for all neighbours.
        """

    @abc.abstractmethod
    def relaxation(self) -> Any:
        """Returns the data for `relax`, from the operator only."""

    @abc.abstractmethod
    def relax(self, state: Any, u: Array, f: Array, factor: RealScalarLike, sweeps: int, backwards: bool) -> Array:
        """Returns the field after sweeps of Gauss-Seidel, all unknowns of a colour at once.

        Args:
            state: The result of `relaxation`.
            u: The field.
            f: The right-hand side.
            factor: The factor on every update.
            sweeps: How many sweeps.
            backwards: Whether to take the colours in the opposite order.
        """

    @abc.abstractmethod
    def colours(self, axes: tuple[int, ...]) -> tuple[Array, int]:
        """Returns colours such that neighbours have different ones, and how many there are.

        Args:
            axes: The axes that count; cells that differ only along others have the same colour.
        """

    def __call__(self, u: Array) -> Array:
        """Returns the operator applied to a field."""
        return self.diagonal() * u - self.neighbours(u)

    def matrix(self) -> Array:
        """Returns the operator as a dense matrix."""
        size = int(np.prod(self.shape))
        units = jnp.eye(size, dtype=self.diagonal().dtype).reshape(size, *self.shape)
        return jax.vmap(self)(units).reshape(size, size)


def cut(x: Array, axis: int, start: int, stop: int, stride: int = 1) -> Array:
    """Returns a slice along one axis."""
    return jax.lax.slice_in_dim(x, start, stop, stride, axis)


def behind(x: Array, axis: int, periodic: bool) -> Array:
    """Returns the layer before the first: the last one along a periodic axis, zero at a wall."""
    n = x.shape[axis]
    return cut(x, axis, n - 1, n) if periodic else jnp.zeros_like(cut(x, axis, 0, 1))


def ahead(x: Array, axis: int, periodic: bool) -> Array:
    """Returns the layer after the last: the first one along a periodic axis, zero at a wall."""
    first = cut(x, axis, 0, 1)
    return first if periodic else jnp.zeros_like(first)


def padded(u: Array, periodic: tuple[bool, ...]) -> Array:
    """Returns a field inside of one layer of what lies beyond its ends."""
    for axis, closed in enumerate(periodic):
        u = jnp.concatenate([behind(u, axis, closed), u, ahead(u, axis, closed)], axis)
    # or XLA fuses the padding into every read of a neighbour and computes it again there
    return jax.lax.optimization_barrier(u)


def shifted(within: Array, offset: tuple[int, ...]) -> Array:
    """Returns the field inside of one layer, from cells at an offset."""
    start = [1 + step for step in offset]
    return jax.lax.slice(within, start, [first + n - 2 for first, n in zip(start, within.shape)])


def parities(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[Array]:
    """Whether the indices along some axes are odd. Computed: a constant would be stored in the program."""
    return [jax.lax.broadcasted_iota(jnp.int32, shape, axis) % 2 for axis in axes]


def order_of_colours(colours: int, sweeps: int, backwards: bool) -> Array:
    """Returns the colour that each iteration of some sweeps updates."""
    # computed, for `shard_map` refuses constants in a solve that is differentiated
    order = jax.lax.iota(jnp.int32, colours * sweeps) % colours
    return colours - 1 - order if backwards else order


def inverse(diagonal: Array) -> Array:
    """Returns the reciprocal of a diagonal, zero where nothing is coupled."""
    return jnp.where(diagonal == 0, 0.0, 1 / jnp.where(diagonal == 0, 1.0, diagonal))


def relaxed(old: Array, new: Array, factor: RealScalarLike) -> Array:
    """Returns what a factor makes of an update."""
    if isinstance(factor, int | float) and factor == 1:
        return new
    return old + jnp.asarray(factor, old.dtype) * (new - old)


class Faces(AbstractCouplings):
    r"""The operator $(A u)_i = c_i u_i + \sum_f w_f (u_i - u_{j(f)})$ over the faces of the cell $i$.

    Beyond a wall $u$ is zero. Axes along which a coefficient does not change may have the length 1.

    Attributes:
        shape: The number of unknowns along each axis.
        periodic: The periodic axes.
        couplings: For each axis $w$ on its faces, one more than cells; along a periodic axis the first and the
            last are the same face.
        reaction: $c$.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)
    couplings: tuple[Array, ...]
    reaction: Array

    @property
    def uniform(self) -> bool:
        """Whether no coupling changes across its axis: the coefficients are numbers."""
        return all(w.size == w.shape[axis] for axis, w in enumerate(self.couplings))

    def diagonal(self) -> Array:
        """Returns the diagonal, of the full shape."""
        total = jnp.broadcast_to(self.reaction, self.shape)
        for axis in range(self.ndim):
            total = total + jnp.broadcast_to(self.lower(axis) + self.upper(axis), self.shape)
        return total

    def lower(self, axis: int) -> Array:
        """Returns what couples every unknown with the one before it along an axis."""
        return cut(self.couplings[axis], axis, 0, self.shape[axis])

    def upper(self, axis: int) -> Array:
        """Returns what couples every unknown with the one after it along an axis."""
        return cut(self.couplings[axis], axis, 1, self.shape[axis] + 1)

    def neighbours(self, u: Array, line: int | None = None) -> Array:
        """Returns the sum of the neighbours of every unknown, all or those off a line, times what couples them."""
        within, total = padded(u, self.periodic), None
        for axis in range(self.ndim):
            if axis == line:
                continue
            for step, w in ((-1, self.lower(axis)), (1, self.upper(axis))):
                offset = tuple(step if a == axis else 0 for a in range(self.ndim))
                term = w * shifted(within, offset)
                total = term if total is None else total + term
        return jnp.zeros_like(u) if total is None else total

    def relaxation(self) -> Array:
        """Returns the reciprocal of the diagonal."""
        return inverse(self.diagonal())

    def relax(self, state: Array, u: Array, f: Array, factor: RealScalarLike, sweeps: int, backwards: bool) -> Array:
        """Returns the field after red and black are updated, one after the other."""
        colour, colours = self.colours(tuple(range(self.ndim)))

        def update(u: Array, now: Array) -> tuple[Array, None]:
            # all cells are computed, and the cells of one colour kept
            new = relaxed(u, (f + self.neighbours(u)) * state, factor)
            return jnp.where(colour == now, new, u), None

        return scan(update, u, order_of_colours(colours, sweeps, backwards), like=(self, state, f))[0]

    def colours(self, axes: tuple[int, ...]) -> tuple[Array, int]:
        """Returns the two colours of a chessboard."""
        return sum(parities(self.shape, axes), jnp.int32(0)) % 2, 2
