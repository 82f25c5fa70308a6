"""From one level of a multigrid hierarchy to the next: by the Galerkin product, and as networks of resistances."""

import abc
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._jax._loops import scan
from ..._types import RealScalarLike
from ._couplings import (
    AbstractCouplings,
    Faces,
    ahead,
    behind,
    cut,
    inverse,
    order_of_colours,
    padded,
    parities,
    relaxed,
    shifted,
)


class AbstractTransfer(eqx.Module):
    """The interpolation along one axis from coarse cells to twice as many, and its transpose."""

    @abc.abstractmethod
    def prolong(self, u: Array) -> Array:
        """Returns a field of the coarse level on the fine one."""

    @abc.abstractmethod
    def restrict(self, r: Array) -> Array:
        """Returns the transpose of `prolong` applied to a residual of the fine level."""


class AbstractCoarsening(eqx.Module):
    """How a coarse level is made from a finer one: its operator, and the transfers between both."""

    @abc.abstractmethod
    def coarsen_axis(self, fine: AbstractCouplings, axis: int) -> tuple[AbstractCouplings, AbstractTransfer]:
        """Returns the operator on half as many unknowns along an axis, rounded up, and the interpolation from them.

        Args:
            fine: The operator of the finer level.
            axis: The axis.
        """

    def coarsen(
        self, fine: AbstractCouplings, axes: tuple[int, ...]
    ) -> tuple[AbstractCouplings, tuple[AbstractTransfer, ...]]:
        """Returns the operator of the next level, and the transfers along each of the axes in their order."""
        level, transfers = fine, []
        for axis in axes:
            level, transfer = self.coarsen_axis(level, axis)
            transfers.append(transfer)
        return level, tuple(transfers)


def prolong(u: Array, transfers: tuple[AbstractTransfer, ...]) -> Array:
    """Returns a field of the coarse level on the fine one."""
    for transfer in reversed(transfers):
        u = transfer.prolong(u)
    return u


def restrict(r: Array, transfers: tuple[AbstractTransfer, ...]) -> Array:
    """Returns the transpose of `prolong` applied to a residual."""
    for transfer in transfers:
        r = transfer.restrict(r)
    return r


def axes_to_coarsen(shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """Returns the axes along which the unknowns are close together, for there the coupling is strong."""
    able = [axis for axis, n in enumerate(shape) if n > 2]
    if not able:
        return ()
    finest = min(spacing[axis] for axis in able)
    return tuple(axis for axis in able if spacing[axis] < 1.5 * finest)


def split(x: Array, axis: int) -> tuple[Array, Array]:
    """Returns the even and the odd cells along an axis, with a zero for an odd one that is missing."""
    n = x.shape[axis]
    even = cut(x, axis, 0, n, 2)
    odd = cut(x, axis, 1, n, 2) if n > 1 else jnp.zeros_like(even)
    if n > 1 and n % 2:
        odd = jnp.concatenate([odd, jnp.zeros_like(cut(x, axis, 0, 1))], axis)
    return even, odd


def merge(even: Array, odd: Array, axis: int, n: int) -> Array:
    """Returns the first `n` cells whose even and odd ones are given."""
    shape = (*even.shape[:axis], 2 * even.shape[axis], *even.shape[axis + 1 :])
    return cut(jnp.stack([even, odd], axis + 1).reshape(shape), axis, 0, n)


# Coarse levels that are networks of resistances, as the finest level is.
#
# Coarse cells are pairs of cells along each axis that is coarsened; the last one is a single cell if their number is
# odd. The reciprocals $1 / w$ of the couplings are resistances. From the middle of a pair to the middle of the next the
# current passes half of the resistance within the first pair, the resistance of the face between them, and half of the
# resistance within the second: in series. Rows of cells side by side conduct in parallel. So a coarse level is a
# network like the finest, whatever the coefficients, the walls and the number of cells, and it only needs the
# coefficients of the finer level.
#
# The prolongation follows the same current: a cell takes from the neighbouring pair the share of the voltage that has
# dropped on the way from the middle of its own pair. For equal coefficients that is linear interpolation, and across a
# jump it keeps to the side it is on. The restriction is its transpose.


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
    """Coarse cells are pairs, and their couplings are a network of resistances in series and in parallel.

    A coarse level only couples neighbours, like the finest, and coefficients that are numbers stay numbers: the
    cheapest coarse levels, and as good as any for a constant coefficient. If it jumps they are not: the Galerkin
    product also couples neighbours across corners, and at corners of the jumps its energy is larger, so that
    corrections of the network are too large there.
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

        # If a pair is not connected within, each of its cells belongs to the outside as much as to the pair.
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


# Coarse levels by the Galerkin product $P^T A P$, one axis after the other.
#
# Every second cell along an axis is a coarse one. A cell between two of them takes from both what would make its own
# equation hold, if the field did not change across the axis: with $A$ added up over the offsets across, the row of the
# cell is $(s_-, s_0, s_+)$, and its value $-(s_- u_- + s_+ u_+) / s_0$. At a jump it keeps to the side it is on.
#
# The product needs no matrices. Let $a_o$ be the entries of the rows, $o \in \{-1, 0, 1\}$ along the axis, $l, r$ the
# lower and upper shares of the odd cells, and $l_-, r_-$ the shares of the odd cells before. The even row $i$ of $A P$
# couples with the coarse cells $i - 1, i, i + 1$ by $a_- l_-,\ a_0 + a_- r_- + a_+ l,\ a_+ r$, and the odd row after it
# with $i, i + 1$ by $a_- + a_0 l,\ a_+ + a_0 r$. To each even row $P^T$ adds $l$ times the odd row after it and $r_-$
# times the one before. That holds for each offset across the axis, with the shares taken at that offset. So an operator
# between cells that touch stays one.


# A symmetric operator between each cell of a box and all cells that touch it, across corners too.
Offset = tuple[int, ...]


class Compact(AbstractCouplings):
    r"""The operator $(A u)_i = \sum_o a_{o, i} u_{i + o}$ over the offsets $o$ in $\{-1, 0, 1\}^d$.

    Attributes:
        shape: The number of unknowns along each axis.
        periodic: The periodic axes.
        rows: $a$, zero where it would reach beyond a wall; of shape `(3, ..., 3, *shape)`.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)
    rows: Array

    def row(self, offset: Offset) -> Array:
        """Returns what every unknown takes from the one at an offset."""
        return self.rows[tuple(1 + step for step in offset)]

    def diagonal(self) -> Array:
        """Returns the diagonal."""
        return self.row((0,) * self.ndim)

    def lower(self, axis: int) -> Array:
        """Returns what couples every unknown with the one before it along an axis."""
        return -self.row(tuple(-1 if a == axis else 0 for a in range(self.ndim)))

    def upper(self, axis: int) -> Array:
        """Returns what couples every unknown with the one after it along an axis."""
        return -self.row(tuple(1 if a == axis else 0 for a in range(self.ndim)))

    def neighbours(self, u: Array, line: int | None = None) -> Array:
        """Returns the sum of the neighbours of every unknown, all or those off a line, times what couples them."""
        within, total = padded(u, self.periodic), jnp.zeros_like(u)
        for offset in offsets(self.ndim):
            if line is None or any(step for axis, step in enumerate(offset) if axis != line):
                total = total - self.row(offset) * shifted(within, offset)
        return total

    def relaxation(self) -> tuple[Array, Array]:
        """Returns the rows and the reciprocal of the diagonal, by colours."""
        return _by_colour(self.rows, self.ndim), _by_colour(inverse(self.diagonal()), self.ndim)

    def relax(
        self, state: tuple[Array, Array], u: Array, f: Array, factor: RealScalarLike, sweeps: int, backwards: bool
    ) -> Array:
        """Returns the field after all colours are updated, one after the other."""
        # Each colour is a separate array inside of one layer: an update touches only the cells of one colour.
        d, half = self.ndim, [(n + 1) // 2 for n in self.shape]
        right = _by_colour(f, d)

        def update(classes: Array, colour: Array) -> tuple[Array, None]:
            rows, reciprocal, new = (jax.lax.dynamic_index_in_dim(x, colour, 0, False) for x in (*state, right))
            odd = [(colour >> axis) & 1 for axis in range(d)]

            def seen(offset: Offset) -> Array:
                # The neighbour's index along each axis, counted from twice this cell's place within its colour: its
                # last bit says which colour the neighbour has, the others how far it lies from this place.
                places = [first + step for first, step in zip(odd, offset)]
                other = sum((place & 1) << axis for axis, place in enumerate(places))
                start = [other, *(1 + (place >> 1) for place in places)]
                return jax.lax.dynamic_slice(classes, start, [1, *half])[0]

            for offset in offsets(d):
                new = new - rows[tuple(1 + step for step in offset)] * seen(offset)
            new = relaxed(seen((0,) * d), new * reciprocal, factor)
            return self._closed(jax.lax.dynamic_update_slice(classes, new[None], [colour] + [jnp.int32(1)] * d)), None

        classes = jnp.pad(_by_colour(u, d), [(0, 0)] + [(1, 1)] * d)
        order = order_of_colours(2**d, sweeps, backwards)
        classes, _ = scan(update, self._closed(classes), order, like=(self, state, f))
        return _from_colours(jax.lax.slice(classes, [0] + [1] * d, [2**d, *(m + 1 for m in half)]), self.shape)

    def _closed(self, classes: Array) -> Array:
        """The colours with what neighbours see around the ends of periodic axes."""
        d = self.ndim
        apart = classes.reshape([2] * d + list(classes.shape[1:]))
        for axis, n in enumerate(self.shape):
            if not self.periodic[axis]:
                continue
            # (odd or even, place within the layer): behind the first cell, and where the cell `n` would be
            ghosts = {(1, 0): ((n - 1) % 2, 1 + (n - 1) // 2), (n % 2, 1 + n // 2): (0, 1)}
            for (to, there), (source, here) in ghosts.items():
                ends = cut(cut(apart, d - 1 - axis, source, source + 1), d + axis, here, here + 1)
                place = [0] * apart.ndim
                place[d - 1 - axis], place[d + axis] = to, there
                apart = jax.lax.dynamic_update_slice(apart, ends, place)
        return apart.reshape(classes.shape)

    def colours(self, axes: tuple[int, ...]) -> tuple[Array, int]:
        """Returns two colours for every axis: even and odd."""
        return sum((odd << k for k, odd in enumerate(parities(self.shape, axes))), jnp.int32(0)), 1 << len(axes)


def offsets(ndim: int) -> list[Offset]:
    """Returns the offsets to all cells that touch one."""
    return [offset for offset in itertools.product((-1, 0, 1), repeat=ndim) if any(offset)]


def _by_colour(x: Array, ndim: int) -> Array:
    """The cells of each colour apart, zero where the last is missing; the colours come first."""
    lead, axes = x.ndim - ndim, range(ndim)
    x = jnp.pad(x, [(0, 0)] * lead + [(0, n % 2) for n in x.shape[lead:]])
    half = [n // 2 for n in x.shape[lead:]]
    x = x.reshape([*x.shape[:lead], *(size for m in half for size in (m, 2))])
    odd, places = [lead + 2 * axis + 1 for axis in reversed(axes)], [lead + 2 * axis for axis in axes]
    return x.transpose([*odd, *range(lead), *places]).reshape([2**ndim, *x.shape[:lead], *half])


def _from_colours(x: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of `_by_colour`, for fields."""
    d, half = len(shape), x.shape[1:]
    apart = x.reshape([2] * d + list(half))
    joined = apart.transpose([axis for k in range(d) for axis in (d + k, d - 1 - k)])
    return jax.lax.slice(joined.reshape([2 * m for m in half]), [0] * d, shape)


class InterpolationTransfer(AbstractTransfer):
    """The interpolation of the odd cells along an axis from the even ones, zero or around the end beyond both ends.

    Attributes:
        lower: The share of the even cell before.
        upper: The share of the even cell after.
        axis: The axis.
        n: The number of fine cells.
    """

    lower: Array
    upper: Array
    axis: int = eqx.field(static=True)
    n: int = eqx.field(static=True)

    def prolong(self, u: Array) -> Array:
        """Returns a field of the even cells on all."""
        return merge(u, self.lower * u + self.upper * jnp.roll(u, -1, self.axis), self.axis, self.n)

    def restrict(self, r: Array) -> Array:
        """Returns the transpose applied to a residual."""
        even, odd = split(r, self.axis)
        return even + self.lower * odd + jnp.roll(self.upper * odd, 1, self.axis)


class Galerkin(AbstractCoarsening):
    r"""Coarse levels are $P^T A P$, with an interpolation $P$ that follows the coefficients.

    Coarse cells are coupled across their corners too, with 9 cells in two dimensions and 27 in three. A cycle reduces
    the residual as much where coefficients jump between regions that coarser grids still show as where they are smooth,
    and somewhat more than with `Resistors`; it takes more memory and time, the more the fewer coefficients the finest
    level has.

    Source:
        R. Alcouffe, A. Brandt, J. Dendy and J. Painter, SIAM J. Sci. Stat. Comput. 2:430, 1981; J. Dendy, J. Comput.
        Phys. 48:366, 1982.
    """

    def coarsen_axis(self, fine: AbstractCouplings, axis: int) -> tuple[Compact, InterpolationTransfer]:
        """Returns the Galerkin product along an axis, and the interpolation from every second cell."""
        n, d = fine.shape[axis], fine.ndim
        across, table = _table(fine, axis)
        even, odd = split(table, axis + 2)
        lower, upper = _shares(*jnp.sum(odd, 0))
        shape, meet = lower.shape, fine.periodic[axis] and n % 2 == 1
        wrapped = [padded(share, (True,) * d) for share in (lower, upper)]  # beyond walls the entries are zero
        wider = tuple(m + (a == axis) for a, m in enumerate(shape))  # from the odd cell before the first
        own = jnp.concatenate([behind(upper, axis, True), upper], axis)
        odd = jnp.concatenate([behind(odd, axis + 2, True), odd], axis + 2)

        first = lambda x: cut(x, axis, 0, shape[axis])  # noqa: E731
        last = lambda x: cut(x, axis, 1, shape[axis] + 1)  # noqa: E731

        def product(_: None, row: tuple[Array, Array, Array]) -> tuple[None, tuple[Array, ...]]:
            offset, (to_before, to_itself, to_after), (odd_before, odd_itself, odd_after) = row
            low, high = (jax.lax.dynamic_slice(share, list(offset), wider) for share in wrapped)
            down, up = odd_before + odd_itself * low, odd_after + odd_itself * high
            before = to_before * first(low) + first(own * down)
            itself = to_itself + to_before * first(high) + to_after * last(low) + lower * last(down) + first(own * up)
            after = to_after * last(high) + lower * last(up)
            if meet:  # the last even cell and the first
                place = jax.lax.broadcasted_iota(jnp.int32, shape, axis)
                before = before + jnp.where(place == 0, to_before, 0.0)
                after = after + jnp.where(place == shape[axis] - 1, to_after, 0.0)
            return None, (before, itself, after)

        # where the shares at an offset begin within their layer
        start = 1 + jnp.insert(across, axis, -1, axis=1)
        _, found = scan(product, None, (start, even, odd), like=fine)
        if len(across) == 3 ** (d - 1):
            rows = jnp.stack(found, 1)
        else:
            places = {tuple(offset): k for k, offset in enumerate(across.tolist())}
            none = jnp.zeros_like(found[0][0])
            rows = jnp.stack([x[places[o]] if o in places else none for o in _offsets(d - 1) for x in found])
        rows = jnp.moveaxis(rows.reshape((3,) * d + shape), d - 1, axis)
        return Compact(shape, fine.periodic, rows), InterpolationTransfer(lower, upper, axis, n)


def _offsets(ndim: int) -> list[Offset]:
    return list(itertools.product((-1, 0, 1), repeat=ndim))


def _table(operator: AbstractCouplings, axis: int) -> tuple[np.ndarray, Array]:
    """The offsets across an axis that occur, and the entries there, of shape `(offsets, 3 along it, *shape)`."""
    d = operator.ndim
    if isinstance(operator, Compact):
        across = np.array(_offsets(d - 1), int).reshape(-1, d - 1)
        return across, jnp.moveaxis(operator.rows, axis, d - 1).reshape((len(across), 3, *operator.shape))
    none = jnp.zeros(operator.shape, operator.diagonal().dtype)
    found = {(0,) * (d - 1): [_entry(operator, axis, -1), operator.diagonal(), _entry(operator, axis, 1)]}
    for k, other in enumerate(a for a in range(d) if a != axis):
        for step in (-1, 1):
            found[tuple(step if j == k else 0 for j in range(d - 1))] = [none, _entry(operator, other, step), none]
    across = sorted(found)
    table = jnp.stack([entry for offset in across for entry in found[offset]])  # at once: nothing is stored twice
    return np.array(across, int).reshape(-1, d - 1), table.reshape((len(across), 3, *none.shape))


def _entry(operator: AbstractCouplings, axis: int, step: int) -> Array:
    """The entries of all rows for the neighbour along an axis, zero where it would lie beyond a wall."""
    w = jnp.broadcast_to(operator.lower(axis) if step < 0 else operator.upper(axis), operator.shape)
    index = jax.lax.broadcasted_iota(jnp.int32, operator.shape, axis)
    end = 0 if step < 0 else operator.shape[axis] - 1
    return -w if operator.periodic[axis] else -jnp.where(index == end, 0.0, w)


def _shares(before: Array, middle: Array, after: Array) -> tuple[Array, Array]:
    """The contribution of the even cells on both sides to odd cells: their rows without change across the axis."""
    middle = jnp.where(middle == 0, jnp.inf, middle)  # a cell that nothing is coupled with takes nothing
    return -before / middle, -after / middle
