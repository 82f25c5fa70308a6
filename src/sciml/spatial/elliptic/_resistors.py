r"""Coarse levels that are networks of resistances, as the finest level is.

Coarse cells are pairs of cells along each axis that is coarsened; the last one is a single cell where their number is
odd. The reciprocals $1 / w$ of the couplings are resistances. From the middle of a pair to the middle of the next the
current passes half of the resistance within the first pair, that of the face between them, and half of that within the
second: in series. Rows of cells side by side conduct in parallel. So a coarse level is a network as the finest is,
whatever the coefficients, the walls and the number of cells, and it needs no coefficients but those of the finer level.

The prolongation follows the same current: a cell takes from the neighbouring pair the share of the voltage that has
dropped on the way from the middle of its own pair. For equal coefficients that is linear interpolation, and across a
jump it keeps to the side it is on. The restriction is its transpose.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._coarsening import AbstractCoarsening, AbstractTransfer, merge, split
from ._couplings import AbstractCouplings, ahead, behind, cut
from ._faces import Faces


class PairTransfer(AbstractTransfer):
    """The interpolation between the middles of pairs.

    Attributes:
        lower: The share that the lower cell of a pair takes from the pair before.
        upper: The share that the upper cell of a pair takes from the pair after.
        axis: The axis.
        n: The number of fine cells.
        periodic: Whether the axis is periodic.
    """

    lower: Array
    upper: Array
    axis: int = eqx.field(static=True)
    n: int = eqx.field(static=True)
    periodic: bool = eqx.field(static=True)

    def prolong(self, u: Array) -> Array:
        """Returns a field of the pairs on their cells."""
        axis, pairs = self.axis, u.shape[self.axis]
        padded = jnp.concatenate([behind(u, axis, self.periodic), u, ahead(u, axis, self.periodic)], axis)
        lower = u + self.lower * (cut(padded, axis, 0, pairs) - u)
        upper = u + self.upper * (cut(padded, axis, 2, pairs + 2) - u)
        return merge(lower, upper, axis, self.n)

    def restrict(self, r: Array) -> Array:
        """Returns the transpose applied to a residual."""
        axis = self.axis
        even, odd = split(r, axis)
        pairs = even.shape[axis]
        down, up = self.lower * even, self.upper * odd
        given = jnp.concatenate([cut(down, axis, 1, pairs), ahead(down, axis, self.periodic)], axis)
        taken = jnp.concatenate([behind(up, axis, self.periodic), cut(up, axis, 0, pairs - 1)], axis)
        return even - down + odd - up + given + taken


class Resistors(AbstractCoarsening):
    """Coarse cells are pairs, and their couplings those of a network of resistances in series and in parallel.

    A coarse level couples neighbours alone, as the finest does, and coefficients that are numbers stay numbers: the
    cheapest coarse levels, and as good as any where the coefficient is the same everywhere. Where it jumps they are
    not: the Galerkin product couples neighbours across corners too, and at corners of the jumps its energy is larger,
    so that corrections of the network are too large there.
    """

    def coarsen_axis(self, fine: AbstractCouplings, axis: int) -> tuple[Faces, PairTransfer]:
        """Returns the network of the pairs along an axis, and the interpolation between their middles."""
        assert isinstance(fine, Faces)
        n, periodic = fine.shape[axis], fine.periodic[axis]
        pairs = (n + 1) // 2
        resistance = _reciprocal(fine.couplings[axis])
        within = cut(resistance, axis, 1, n, 2) / 2  # from the middle of a pair to one of its cells
        if n % 2:
            within = jnp.concatenate([within, jnp.zeros_like(cut(resistance, axis, 0, 1))], axis)
        between = jnp.concatenate([cut(resistance, axis, 0, n, 2), cut(resistance, axis, n, n + 1)], axis)
        before = jnp.concatenate([behind(within, axis, periodic), within], axis)
        after = jnp.concatenate([within, ahead(within, axis, periodic)], axis)
        coupling = _reciprocal(before + between + after)

        # Where a pair is not connected within, each of its cells belongs to the outside as much as to the pair.
        share = jnp.where(jnp.isfinite(within), within, 1.0)
        connected = jnp.isfinite(within)
        lower = jnp.where(connected, share * cut(coupling, axis, 0, pairs), 0.0)
        upper = jnp.where(connected, share * cut(coupling, axis, 1, pairs + 1), 0.0)

        couplings = tuple(coupling if a == axis else _add_pairs(w, axis, n) for a, w in enumerate(fine.couplings))
        shape = tuple(pairs if a == axis else m for a, m in enumerate(fine.shape))
        coarse = Faces(shape, fine.periodic, couplings, _add_pairs(fine.reaction, axis, n))
        return coarse, PairTransfer(lower, upper, axis, n, periodic)


def _reciprocal(x: Array) -> Array:
    return jnp.where(x == 0, jnp.inf, 1 / jnp.where(x == 0, 1.0, x))


def _add_pairs(x: Array, axis: int, n: int) -> Array:
    """The sums over the pairs of `n` cells of what may be the same for all."""
    if x.shape[axis] == 1 and n > 1:
        if n % 2 == 0:
            return 2 * x
        counts = np.full((n + 1) // 2, 2.0)
        counts[-1] = 1.0
        shape = [1] * x.ndim
        shape[axis] = len(counts)
        return x * jnp.asarray(counts.reshape(shape), x.dtype)
    even, odd = split(x, axis)
    return even + odd
