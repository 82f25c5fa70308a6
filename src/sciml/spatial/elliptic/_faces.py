"""A symmetric operator between neighbours on a box: what couples two unknowns stands on the face between them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Faces(eqx.Module):
    r"""The operator $(A u)_i = c_i u_i + \sum_f w_f (u_i - u_{j(f)})$ over the faces of the cell $i$.

    Beyond a wall $u$ is zero. Axes along which a coefficient does not change may have the length 1.

    Attributes:
        couplings: For each axis $w$ on its faces, one more than cells; along a periodic axis the first and the
            last are the same face.
        reaction: $c$.
        shape: The number of unknowns along each axis.
        periodic: Which axes are periodic.
    """

    couplings: tuple[Array, ...]
    reaction: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

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

    def neighbours(self, u: Array, axes: tuple[int, ...] | None = None) -> Array:
        """Returns the sum of the neighbours of every unknown times what couples them, along some axes or all."""
        padded = u
        for axis, periodic in enumerate(self.periodic):
            ends = behind(padded, axis, periodic), ahead(padded, axis, periodic)
            padded = jnp.concatenate([ends[0], padded, ends[1]], axis)
        padded = jax.lax.optimization_barrier(padded)
        total = None
        for axis in range(self.ndim) if axes is None else axes:
            for step, w in ((-1, self.lower(axis)), (1, self.upper(axis))):
                term = w * _inside(padded, axis, step)
                total = term if total is None else total + term
        return jnp.zeros_like(u) if total is None else total

    def __call__(self, u: Array) -> Array:
        """Returns the operator applied to a field."""
        return self.diagonal() * u - self.neighbours(u)

    def matrix(self) -> Array:
        """Returns the operator as a dense matrix."""
        size = int(np.prod(self.shape))
        units = jnp.eye(size, dtype=self.reaction.dtype).reshape(size, *self.shape)
        return jax.vmap(self)(units).reshape(size, size)


def cut(x: Array, axis: int, start: int, stop: int, stride: int = 1) -> Array:
    """Returns a slice along one axis."""
    return jax.lax.slice_in_dim(x, start, stop, stride, axis)


def _inside(padded: Array, axis: int, step: int) -> Array:
    """The field inside of one ghost layer, shifted along an axis."""
    start = [1 + step * (a == axis) for a in range(padded.ndim)]
    return jax.lax.slice(padded, start, [first + n - 2 for first, n in zip(start, padded.shape)])


def behind(x: Array, axis: int, periodic: bool) -> Array:
    """Returns the layer before the first: the last one along a periodic axis, zero at a wall."""
    n = x.shape[axis]
    return cut(x, axis, n - 1, n) if periodic else jnp.zeros_like(cut(x, axis, 0, 1))


def ahead(x: Array, axis: int, periodic: bool) -> Array:
    """Returns the layer after the last: the first one along a periodic axis, zero at a wall."""
    first = cut(x, axis, 0, 1)
    return first if periodic else jnp.zeros_like(first)
