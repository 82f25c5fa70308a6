"""A symmetric operator between each cell of a box and all cells that touch it, across corners too."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._loops import scan
from ..._types import RealScalarLike
from ._couplings import AbstractCouplings, cut, inverse, order_of_colours, padded, parities, relaxed, shifted

Offset = tuple[int, ...]


class Compact(AbstractCouplings):
    r"""The operator $(A u)_i = \sum_o a_{o, i} u_{i + o}$ over the offsets $o$ in $\{-1, 0, 1\}^d$.

    Attributes:
        shape: The number of unknowns along each axis.
        periodic: Which axes are periodic.
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
        # Each colour is an array of its own inside of one layer: an update touches the cells of one colour alone.
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
