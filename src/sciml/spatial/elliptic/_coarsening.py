r"""From one level of a multigrid hierarchy to the next: what couples the coarse cells, and the transfers between.

Coarse cells are pairs of cells along each axis that is coarsened; the last one is a single cell where their number is
odd. The reciprocals $1 / w$ of the couplings are resistances. From the middle of a pair to the middle of the next the
current passes half of the resistance within the first pair, that of the face between them, and half of that within the
second: in series. Rows of cells side by side conduct in parallel. So a coarse level is a network as the finest is,
whatever the coefficients, the walls and the number of cells, and it needs no coefficients but those of the finer level.

The prolongation follows the same current: a cell takes from the neighbouring pair the share of the voltage that has
dropped on the way from the middle of its own pair. For equal coefficients that is linear interpolation, and across a
jump it keeps to the side it is on. The restriction is its transpose.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._faces import Faces, ahead, behind, cut


class Transfer(NamedTuple):
    """The interpolation along one axis.

    Attributes:
        lower: The share that the lower cell of a pair takes from the pair before.
        upper: The share that the upper cell of a pair takes from the pair after.
    """

    lower: Array
    upper: Array


def axes_to_coarsen(shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """Returns the axes along which the unknowns are close together, for there the coupling is strong."""
    able = [axis for axis, n in enumerate(shape) if n > 2]
    if not able:
        return ()
    finest = min(spacing[axis] for axis in able)
    return tuple(axis for axis in able if spacing[axis] < 1.5 * finest)


def coarsen(fine: Faces, axes: tuple[int, ...]) -> tuple[Faces, tuple[Transfer, ...]]:
    """Returns the next level, and the interpolation along each of the axes in their order."""
    level, transfers = fine, []
    for axis in axes:
        level, transfer = _coarsen_axis(level, axis)
        transfers.append(transfer)
    return level, tuple(transfers)


def _reciprocal(x: Array) -> Array:
    return jnp.where(x == 0, jnp.inf, 1 / jnp.where(x == 0, 1.0, x))


def _coarsen_axis(fine: Faces, axis: int) -> tuple[Faces, Transfer]:
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
    coarse = Faces(couplings, _add_pairs(fine.reaction, axis, n), shape, fine.periodic)
    return coarse, Transfer(lower, upper)


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
    even, odd = _split(x, axis)
    return even + odd


def _split(x: Array, axis: int) -> tuple[Array, Array]:
    """The lower and the upper cells of all pairs, zero for the one that is missing."""
    n = x.shape[axis]
    even = cut(x, axis, 0, n, 2)
    odd = cut(x, axis, 1, n, 2) if n > 1 else jnp.zeros_like(even)
    if n > 1 and n % 2:
        odd = jnp.concatenate([odd, jnp.zeros_like(cut(x, axis, 0, 1))], axis)
    return even, odd


def prolong(u: Array, fine: Faces, axes: tuple[int, ...], transfers: tuple[Transfer, ...]) -> Array:
    """Returns a field of the coarse level on the fine one."""
    for axis, transfer in reversed(list(zip(axes, transfers))):
        n, pairs, periodic = fine.shape[axis], u.shape[axis], fine.periodic[axis]
        padded = jnp.concatenate([behind(u, axis, periodic), u, ahead(u, axis, periodic)], axis)
        lower = u + transfer.lower * (cut(padded, axis, 0, pairs) - u)
        upper = u + transfer.upper * (cut(padded, axis, 2, pairs + 2) - u)
        shape = (*u.shape[:axis], 2 * pairs, *u.shape[axis + 1 :])
        u = cut(jnp.stack([lower, upper], axis + 1).reshape(shape), axis, 0, n)
    return u


def restrict(r: Array, fine: Faces, axes: tuple[int, ...], transfers: tuple[Transfer, ...]) -> Array:
    """Returns the transpose of `prolong` applied to a residual."""
    for axis, transfer in zip(axes, transfers):
        even, odd = _split(r, axis)
        pairs, periodic = even.shape[axis], fine.periodic[axis]
        down, up = transfer.lower * even, transfer.upper * odd
        given = jnp.concatenate([cut(down, axis, 1, pairs), ahead(down, axis, periodic)], axis)
        taken = jnp.concatenate([behind(up, axis, periodic), cut(up, axis, 0, pairs - 1)], axis)
        r = even - down + odd - up + given + taken
    return r
