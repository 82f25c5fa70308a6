"""Which entries of a long vector of truth values hold, for gathering what belongs to them, some at a time.

`jnp.nonzero` and `jnp.cumsum` take as long on a CPU as a step of all members: XLA adds up a window of sixteen numbers
for each. So only the counts of short rows are added up, once, and within the row of an entry its place is counted.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

_ROW = 8


class Holding(NamedTuple):
    """The entries of a vector that hold.

    Attributes:
        rows: The entries in short rows, false beyond the last.
        until: How many hold in each row and those before it.
    """

    rows: Bool[Array, " rows columns"]
    until: Int[Array, " rows"]

    @classmethod
    def of(cls, holds: Bool[Array, " entries"]) -> "Holding":
        """Returns those of a vector."""
        rows = jnp.pad(holds, (0, -holds.shape[0] % _ROW)).reshape(-1, _ROW)
        return cls(rows, jnp.cumsum(jnp.sum(rows, axis=1, dtype=jnp.int32), dtype=jnp.int32))

    @property
    def count(self) -> Int[Array, ""]:
        """How many hold."""
        return self.until[-1]

    def numbers(self, before: Int[Array, ""], width: int) -> Int[Array, " width"]:
        """Returns the numbers of the next entries that hold, ascending.

        Args:
            before: How many that hold are passed over.
            width: How many numbers to return; where fewer follow, numbers beyond the last entry do, each once.
        """
        rows, until = self
        ordinal = before + jnp.arange(1, width + 1, dtype=jnp.int32)
        row = jnp.minimum(jnp.searchsorted(until, ordinal).astype(jnp.int32), rows.shape[0] - 1)
        found = jnp.where(row > 0, until[jnp.maximum(row - 1, 0)], 0)
        place = jnp.zeros_like(row)
        for column in range(_ROW - 1):
            found = found + rows[row, column].astype(jnp.int32)
            place = place + (found < ordinal).astype(jnp.int32)
        return jnp.where(ordinal <= self.count, row * _ROW + place, rows.size + ordinal)
