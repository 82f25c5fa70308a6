"""Distributions over members: histograms, and quantiles from counts in bins, which merge exactly."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from ._abstract import AbstractReduction, as_floats, over_members


class Counts(NamedTuple):
    """The number of members in each bin.

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
            "`Histogram`: `edges` must be the edges of the bins in ascending order, such as `np.linspace(0.0, 1.0, "
            f"11)` for ten bins, got {given!r}. The range cannot be determined before the members have run."
        ) from None


class Histogram(AbstractReduction):
    """The number of successful members between given edges, for every number of the values.

    As in `numpy.histogram` a bin holds its left edge, and the last one both. Values outside are also counted.

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
            raise ValueError(f"`Histogram`: `edges` must be two or more ascending numbers, got {self.edges}.")

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


class _Bins(NamedTuple):
    """A block's summary of one array.

    Attributes:
        indices: The bin of every number, rising with the number.
        low: The least number of each element over the members.
        high: The largest.
        good: The members that count.
    """

    indices: Any
    low: Any
    high: Any
    good: Any


class _Sketch(NamedTuple):
    """The merged counts of one array.

    Attributes:
        bins: The bins that hold a member, sorted, with the number of the element above bit 32.
        counts: How many members each of them holds.
        low: The least number of each element.
        high: The largest.
    """

    bins: np.ndarray
    counts: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Quantiles(AbstractReduction):
    r"""Quantiles over the members that succeeded, to a relative accuracy, for every number of the values.

    A number falls into the bin of its sign, its exponent and the leading bits of its mantissa, so that a bin is
    narrower than `accuracy` times its numbers, large or small. Only the bins that hold a member are kept, with their
    counts, and the extremes. Counts merge exactly, in any order. NaN counts as above infinity. A quantile is the value
    of a member, as by `numpy.quantile(..., method="lower")`: nothing is interpolated between two members.

    Attributes:
        q: The probabilities, each between 0 and 1; they come first in the result.
        accuracy: The relative accuracy, at least 1e-6.

    Example:
        ```python
        import numpy as np
        from sciml import parallel

        x = np.random.default_rng(0).lognormal(size=1000).astype(np.float32)
        result = parallel.sweep(lambda x: x, x, reduce=parallel.Quantiles([0.05, 0.5, 0.95]), progress=False)
        np.testing.assert_allclose(result.reduced, np.quantile(x, [0.05, 0.5, 0.95]), rtol=0.02)
        ```

    Reference:
        C. Masson, J. E. Rim and H. K. Lee, DDSketch, PVLDB 12 (2019); the bins here come from the bits of a number
        instead of its logarithm.
    """

    q: tuple[float, ...] = eqx.field(static=True, converter=lambda x: tuple(map(float, np.atleast_1d(x))))
    accuracy: float = eqx.field(static=True, default=0.01)

    def __check_init__(self):
        if not self.q or not all(0 <= q <= 1 for q in self.q):
            raise ValueError(f"`Quantiles`: `q` must be probabilities between 0 and 1, got {self.q}.")
        if not 1e-6 <= self.accuracy < 1:
            raise ValueError(f"`Quantiles`: `accuracy` must be at least 1e-6 and below 1, got {self.accuracy}.")

    def of_block(self, values: PyTree, good: Bool[Array, " block"], ids: Int[Array, " block"]) -> PyTree:
        """See `AbstractReduction.of_block`."""
        del ids
        return jax.tree.map(lambda x: self._bins(x, good), values)

    def merge(self, so_far: PyTree, block: PyTree) -> PyTree:
        """See `AbstractReduction.merge`."""
        if so_far is None:
            return jax.tree.map(lambda new: _add(None, new), block, is_leaf=_is_summary)
        return jax.tree.map(_add, so_far, block, is_leaf=_is_summary)

    def result(self, merged: PyTree) -> PyTree:
        """See `AbstractReduction.result`."""
        return jax.tree.map(self._quantiles, merged, is_leaf=_is_summary)

    def _bins(self, x: Array, good: Array) -> _Bins:
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            raise TypeError(
                "`Quantiles`: complex numbers have no order. Return their modulus from `output`, for example."
            )
        x = as_floats(x)
        if x.dtype.itemsize < 4:
            x = x.astype(jnp.float32)
        shift, small = self._layout(x.dtype)
        whole = jnp.uint32 if x.dtype.itemsize == 4 else jnp.uint64
        sign = jnp.asarray(1 << (8 * x.dtype.itemsize - 1), whole)
        bits = jax.lax.bitcast_convert_type(x, whole)
        rising = jnp.where(bits & sign != 0, ~bits, bits | sign)
        mask = over_members(good, x)
        infinity = jnp.asarray(jnp.inf, x.dtype)
        low = jnp.min(jnp.where(mask, x, infinity), axis=0)
        high = jnp.max(jnp.where(mask, x, -infinity), axis=0)
        return _Bins((rising >> jnp.asarray(shift, whole)).astype(small), low, high, good)

    def _layout(self, dtype: Any) -> tuple[int, Any]:
        """Returns how many low bits of a number are dropped, and an integer type that holds the others."""
        info = np.finfo(dtype)
        kept = min(math.ceil(-math.log2(self.accuracy)), info.nmant)
        return info.nmant - kept, np.uint16 if info.bits - info.nmant + kept <= 16 else np.uint32

    def _quantiles(self, sketch: _Sketch) -> np.ndarray:
        dtype = sketch.low.dtype
        shift, _ = self._layout(dtype)
        element, index = sketch.bins >> 32, sketch.bins & 0xFFFFFFFF
        found = np.full((len(self.q), sketch.low.size), np.nan, dtype)
        edges = np.searchsorted(element, np.arange(sketch.low.size + 1))
        for i in range(sketch.low.size):
            counts = sketch.counts[edges[i] : edges[i + 1]]
            if counts.size == 0:
                continue
            ends = np.cumsum(counts)
            rank = np.asarray(self.q) * (ends[-1] - 1)
            at = np.minimum(np.searchsorted(ends, rank, side="right"), counts.size - 1)
            share = (rank - (ends[at] - counts[at]) + 0.5) / counts[at]
            indices = index[edges[i] : edges[i + 1]][at].astype(np.uint64)
            left = _number(indices << np.uint64(shift), dtype)
            right = _number(((indices + np.uint64(1)) << np.uint64(shift)) - np.uint64(1), dtype)
            with np.errstate(invalid="ignore", over="ignore"):
                inside = (left + (right - left) * np.clip(share, 0, 1)).astype(dtype)
            inside = np.where(np.isinf(left) | np.isinf(right), left, inside)
            found[:, i] = np.fmin(np.fmax(inside, sketch.low.flat[i]), sketch.high.flat[i])
        return found.reshape((len(self.q), *sketch.low.shape))


def _add(old: _Sketch | None, new: _Bins) -> _Sketch:
    indices = np.asarray(new.indices)[np.asarray(new.good)].astype(np.int64)
    elements = np.arange(math.prod(indices.shape[1:]), dtype=np.int64).reshape(indices.shape[1:])
    bins, counts = np.unique(indices | (elements << 32), return_counts=True)
    low, high = np.asarray(new.low), np.asarray(new.high)
    if old is not None:
        low, high = np.fmin(old.low, low), np.fmax(old.high, high)
        bins, place = np.unique(np.concatenate([old.bins, bins]), return_inverse=True)
        counts = np.concatenate([old.counts, counts])
        counts = np.bincount(place, weights=counts, minlength=bins.size).astype(np.int64)
    return _Sketch(bins, counts, low, high)


def _is_summary(x: Any) -> bool:
    return isinstance(x, (_Bins, _Sketch))


def _number(rising: np.ndarray, dtype: Any) -> np.ndarray:
    """Returns the numbers whose bits, made to rise with the number, are given."""
    bits = 8 * np.dtype(dtype).itemsize
    sign = np.uint64(1 << (bits - 1))
    raw = np.where(rising & sign != 0, rising ^ sign, ~rising)
    return raw.astype(np.uint32 if bits == 32 else np.uint64).view(dtype)
