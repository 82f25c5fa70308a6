"""A symmetric operator between neighbours on a box: what couples two unknowns is on the face between them."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._loops import scan
from ..._types import RealScalarLike
from ._couplings import AbstractCouplings, cut, inverse, order_of_colours, padded, parities, relaxed, shifted


class Faces(AbstractCouplings):
    r"""The operator $(A u)_i = c_i u_i + \sum_f w_f (u_i - u_{j(f)})$ over the faces of the cell $i$.

    Beyond a wall $u$ is zero. Axes along which a coefficient does not change may have the length 1.

    Attributes:
        shape: The number of unknowns along each axis.
        periodic: Which axes are periodic.
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
            # all cells are computed, and those of one colour kept
            new = relaxed(u, (f + self.neighbours(u)) * state, factor)
            return jnp.where(colour == now, new, u), None

        return scan(update, u, order_of_colours(colours, sweeps, backwards), like=(self, state, f))[0]

    def colours(self, axes: tuple[int, ...]) -> tuple[Array, int]:
        """Returns the two colours of a chessboard."""
        return sum(parities(self.shape, axes), jnp.int32(0)) % 2, 2
