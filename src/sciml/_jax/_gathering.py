"""Which entries of a long vector of truth values hold, for gathering what belongs to them.

`jnp.nonzero` and `jnp.cumsum` take as long on a CPU as a step of all members: XLA adds up a window of sixteen numbers
for each. So only the counts of short rows are added up, and within the row of an entry its place is counted.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

_ROW = 8


def first_that_hold(holds: Bool[Array, " entries"], width: int) -> tuple[Int[Array, " width"], Bool[Array, " entries"]]:
    """Returns the numbers of the first entries that hold, ascending, and which entries hold beyond these.

    Args:
        holds: The truth values.
        width: How many numbers to return; where fewer hold, numbers beyond the last entry follow, each once.
    """
    count = holds.shape[0]
    rows = jnp.pad(holds, (0, -count % _ROW)).reshape(-1, _ROW)
    until = jnp.cumsum(jnp.sum(rows, axis=1, dtype=jnp.int32), dtype=jnp.int32)
    ordinal = jnp.arange(1, width + 1, dtype=jnp.int32)
    there = ordinal <= until[-1]
    row = jnp.minimum(jnp.searchsorted(until, ordinal).astype(jnp.int32), rows.shape[0] - 1)
    before = jnp.where(row > 0, until[jnp.maximum(row - 1, 0)], 0)
    place, found = jnp.zeros_like(row), before
    for column in range(_ROW - 1):
        found = found + rows[row, column].astype(jnp.int32)
        place = place + (found < ordinal).astype(jnp.int32)
    numbers = jnp.where(there, row * _ROW + place, count + ordinal)
    return numbers, holds & (jnp.arange(count, dtype=jnp.int32) > numbers[-1])
