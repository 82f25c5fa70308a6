"""Histograms over members: counts, which merge exactly."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from ._abstract import AbstractReduction, as_floats, over_members


class Counts(NamedTuple):
    """How many members lie in each bin.

    Attributes:
        inside: For each bin, with the bins last.
        below: Below the first edge.
        above: Above the last edge.

    Example:
        ```python
        import numpy as np
        from sciml import parallel

        x = np.array([-1.0, 0.5, 3.0])
        counts = parallel.sweep(lambda x: x, x, reduce=parallel.Histogram([0, 1]), progress=False).reduced
        assert (counts.below, counts.inside.tolist(), counts.above) == (1, [1], 1)
        ```
    """

    inside: Any
    below: Any
    above: Any


def _edges(given: Any) -> tuple[float, ...]:
    try:
        return tuple(map(float, given))
    except (TypeError, ValueError):
        raise TypeError(
            "`Histogram`: `edges` must be the edges of the bins, rising numbers such as `np.linspace(0.0, 1.0, 11)` "
            f"for ten bins, got {given!r}. The range is not known before the members have run."
        ) from None


class Histogram(AbstractReduction):
    """How many of the members that succeeded lie between given edges, for every number of the values.

    As in `numpy.histogram` a bin holds its left edge, and the last one both. What lies outside is counted too.

    Attributes:
        edges: The edges, rising.

    Example:
        ```python
        import numpy as np
        from sciml import parallel

        x = np.array([0.5, 1.5, 1.7, 9.0, np.nan])
        counts = parallel.sweep(lambda x: x, x, reduce=parallel.Histogram([0.0, 1.0, 2.0]), progress=False).reduced
        assert counts.inside.tolist() == [1, 2] and counts.above == 1
        ```
    """

    edges: tuple[float, ...] = eqx.field(static=True, converter=lambda x: _edges(x))

    def __check_init__(self):
        if len(self.edges) < 2 or not all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError(f"`Histogram`: `edges` must be two or more rising numbers, got {self.edges}.")

    def of_block(self, values: PyTree, good: Bool[Array, " block"], ids: Int[Array, " block"]) -> PyTree:
        """See `AbstractReduction.of_block`."""
        del ids
        return jax.tree.map(lambda x: self._count(as_floats(x), good), values)

    def merge(self, so_far: PyTree, block: PyTree) -> PyTree:
        """See `AbstractReduction.merge`."""
        wide = jax.tree.map(lambda x: np.asarray(x).astype(np.int64), block)
        return wide if so_far is None else jax.tree.map(np.add, so_far, wide)

    def result(self, merged: PyTree) -> PyTree:
        """See `AbstractReduction.result`."""
        return jax.tree.map(lambda x: Counts(np.moveaxis(x[1:-1], 0, -1), x[0], x[-1]), merged)

    def _count(self, x: Array, good: Array) -> Array:
        edges = jnp.asarray(self.edges, x.dtype)
        place = jnp.searchsorted(edges, x, side="right").astype(jnp.int32)
        place = jnp.where(x == edges[-1], len(self.edges) - 1, place)
        one = jnp.broadcast_to(over_members(good, x), x.shape).astype(jnp.int32)
        bins = jnp.arange(len(self.edges) + 1, dtype=jnp.int32)
        return jax.vmap(lambda bin: jnp.sum(jnp.where(place == bin, one, 0), axis=0, dtype=jnp.int32))(bins)
