r"""Dense systems of many members side by side, members in the last axis: elimination without a call of LAPACK.

JAX calls LAPACK for one member after another, each time for a few microseconds of arithmetic, and its threads wait for
one another in every step of an integration. Here all members are eliminated at once. Each column's largest entry is
brought to the diagonal, for each member its own. A loop takes the columns of a panel; what stands right of a panel is
updated once for all of its columns. There are four panels at most.

Source:
    G. H. Golub, C. F. Van Loan, Matrix Computations, 4th edition, Johns Hopkins, 2013, sections 3.2.11 and 3.4.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from ..._choices import choices
from ..._jax._barrier import held_back
from ..._jax._loops import for_loop
from ..._jax._platform import default_platform


def serves(matrix: Array) -> bool:
    """Returns whether square matrices, of shape `(n, n, lanes)`, are small and many enough to be eliminated here."""
    rows, columns, lanes = matrix.shape
    many = lanes >= choices().linear.lanes_from and default_platform() == "cpu"
    return many and rows == columns and 0 < rows <= choices().linear.lanes_rows_at_most


def lu(a: Shaped[Array, "n n lanes"]) -> tuple[Array, Int[Array, "n lanes"], Int[Array, "n lanes"]]:
    """Returns what `jax.lax.linalg.lu` does: both triangles in one array, the exchanges of rows, and their order.

    Args:
        a: The matrices.
    """
    n = a.shape[0]
    width = -(-n // -(-n // choices().linear.lanes_panel_at_most))  # as even as can be
    exchanges = []
    for start in range(0, n, width):
        stop = min(start + width, n)
        panel, moved, exchanged = _panel(a[start:, start:stop])
        others = _rows(jnp.concatenate([a[start:, :start], a[start:, stop:]], axis=1), moved)
        left, right = others[:, :start], others[:, start:]
        count = stop - start
        above = solve_triangular(panel[:count], right[:count], lower=True, unit_diagonal=True)
        below = _without_products(right[count:], panel[count:], above)
        a = jnp.concatenate([a[:start], jnp.concatenate([left, panel, jnp.concatenate([above, below])], axis=1)])
        if stop < n:
            (a,) = held_back(a)  # else XLA computes the update again for each of its uses, panel within panel
        exchanges.append(exchanged + start)
    exchanges = jnp.concatenate(exchanges)
    return a, exchanges, permutation(exchanges, n)


def _without_products(x: Shaped[Array, "m r lanes"], left: Array, right: Array) -> Array:
    """A matrix without the product of two others."""

    def subtract(k, x):
        return x - _at(left, k, 1)[:, None] * _at(right, k, 0)[None]

    return for_loop(subtract, x, len(right), like=(left, right)) if x.size else x


def _panel(a: Shaped[Array, "m b lanes"]) -> tuple[Array, Int[Array, "m lanes"], Int[Array, "b lanes"]]:
    """Factorises some columns.

    Args:
        a: Their rows from the diagonal on.

    Returns:
        The factors, which row went to each place, and with which row each was exchanged.
    """
    m, width, lanes = a.shape
    row, column = jnp.arange(m, dtype=jnp.int32), jnp.arange(width, dtype=jnp.int32)
    row, tall, wide = row[:, None], row[:, None, None], column[None, :, None]

    def eliminate(k, carry):
        a, moved, exchanged = carry
        entries = _at(a, k, 1)
        sizes = jnp.where(row >= k, jnp.abs(entries), -1)
        largest = jnp.max(sizes, axis=0)
        chosen = jnp.min(jnp.where(sizes == largest[None], row, m - 1), axis=0)  # the last where one is NaN
        here, pivots = _at(a, k, 0), _rows(a, chosen[None])[0]
        pivot = _at(pivots, k, 0)
        entries = jnp.where(row == chosen[None], _at(here, k, 0)[None], entries)
        inverse = 1 / jnp.where(pivot == 0, jnp.ones_like(pivot), pivot)  # all of its column is zero then
        factors = jnp.where(row > k, entries * inverse[None], 0)
        a = jnp.where(tall == chosen[None, None], here[None], a)
        a = jnp.where(tall == k, pivots[None], a)
        a = jnp.where(wide > k, a - factors[:, None] * pivots[None], a)
        a = jnp.where((tall > k) & (wide == k), factors[:, None], a)
        moved = _exchanged(moved, row, k, chosen)
        return a, moved, jax.lax.dynamic_update_index_in_dim(exchanged, chosen, k, 0)

    start = a, _numbers(m, lanes), jnp.zeros((width, lanes), jnp.int32)
    return for_loop(eliminate, start, width)


def permutation(exchanges: Int[Array, "k lanes"], size: int) -> Int[Array, "n lanes"]:
    """Returns what `jax.lax.linalg.lu_pivots_to_permutation` does: the order of rows after exchanges.

    Args:
        exchanges: With which row each was exchanged.
        size: The number of rows.
    """
    row = jnp.arange(size, dtype=jnp.int32)[:, None]

    def exchange(k, order):
        return _exchanged(order, row, k, _at(exchanges, k, 0))

    return for_loop(exchange, _numbers(size, exchanges.shape[1]), len(exchanges), like=exchanges)


def solve_triangular(
    a: Shaped[Array, "n n lanes"],
    b: Shaped[Array, "n k lanes"],
    *,
    lower: bool = False,
    left_side: bool = True,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Shaped[Array, "n k lanes"]:
    """Returns what `jax.lax.linalg.triangular_solve` does.

    Args:
        a: The matrices.
        b: The right-hand sides.
        lower: Whether the lower triangles count.
        left_side: Whether the matrices stand left of the unknowns.
        transpose_a: Whether they are transposed.
        conjugate_a: Whether they are conjugated.
        unit_diagonal: Whether their diagonals are ones.
    """
    if not left_side:
        b, transpose_a = jnp.swapaxes(b, 0, 1), not transpose_a
    a = jnp.conj(a) if conjugate_a else a
    forward = lower != transpose_a
    row = jnp.arange(a.shape[0], dtype=jnp.int32)[:, None, None]

    def substitute(k, x):
        column, found = _at(a, k, 0 if transpose_a else 1), _at(x, k, 0)
        if not unit_diagonal:
            found = found / _at(column, k, 0)[None]
            x = jnp.where(row == k, found[None], x)
        return jnp.where(row > k if forward else row < k, x - column[:, None] * found[None], x)

    x = for_loop(substitute, b, a.shape[0], reverse=not forward, like=a)
    return x if left_side else jnp.swapaxes(x, 0, 1)


def _numbers(count: int, lanes: int) -> Int[Array, "n lanes"]:
    return jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[:, None], (count, lanes))


def _at(x: Array, k: Array, axis: int) -> Array:
    """The entry at a number that all lanes share."""
    return jax.lax.dynamic_index_in_dim(x, k, axis, keepdims=False)


def _rows(x: Array, numbers: Int[Array, "m lanes"]) -> Array:
    """The rows of given numbers, of each lane its own."""
    numbers = numbers.reshape(numbers.shape[0], *(1,) * (x.ndim - 2), numbers.shape[-1])
    return jnp.take_along_axis(x, numbers, axis=0, mode="promise_in_bounds")


def _exchanged(order: Array, row: Array, k: Any, other: Int[Array, " lanes"]) -> Array:
    """An order of rows after the exchange of one that all lanes share with another, of each lane its own."""
    here, there = _at(order, k, 0), _rows(order, other[None])[0]
    order = jnp.where(row == other[None], here[None], order)
    return jnp.where(row == k, there[None], order)
