r"""Mean and variance over members, block by block.

A block's summary is made on the device that ran it, from the members that succeeded. The host merges the summaries in
the order of the blocks, in float64. Since blocks do not depend on the devices, the last bits of merged results do not
depend on them either.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from ._abstract import AbstractReduction, as_floats, over_members


class Moments(NamedTuple):
    """The first moments of some members' values.

    Attributes:
        count: The number of members.
        mean: Their mean, like the values.
        squares: The sum of squared deviations from it, like the values.
    """

    count: Any
    mean: PyTree
    squares: PyTree


class Mean(AbstractReduction):
    r"""The mean over the members that succeeded, in float64; NaN if none did.

    Blocks are merged by $\bar x = \bar x_a + (\bar x_b - \bar x_a)\, n_b / (n_a + n_b)$.

    Example:
        ```python
        import numpy as np
        from sciml import parallel

        x = np.array([1.0, 2.0, 6.0, np.nan])  # a member that fails does not count
        result = parallel.sweep(lambda x: x, x, reduce=parallel.Mean(), progress=False)
        assert result.reduced == 3.0 and result.failed.tolist() == [3]
        ```

    Reference:
        T. F. Chan, G. H. Golub and R. J. LeVeque, Algorithms for computing the sample variance, Amer. Statist. 37
        (1983).
    """

    def of_block(self, values: PyTree, good: Bool[Array, " block"], ids: Int[Array, " block"]) -> Moments:
        """See `AbstractReduction.of_block`."""
        del ids
        return _moments(values, good)

    def merge(self, so_far: PyTree, block: PyTree) -> PyTree:
        """See `AbstractReduction.merge`."""
        return _merge(so_far, block)

    def result(self, merged: PyTree) -> PyTree:
        """See `AbstractReduction.result`."""
        return jax.tree.map(lambda x: np.where(merged.count > 0, x, np.nan)[()], merged.mean)


class Variance(AbstractReduction):
    r"""The variance over the members that succeeded, in float64; NaN where fewer than `ddof + 1` did.

    The sums of squared deviations of two sets of members are merged by
    $S = S_a + S_b + (\bar x_b - \bar x_a)^2\, n_a n_b / (n_a + n_b)$, which loses no digits if the mean is large. The
    square root is the standard deviation.

    Attributes:
        ddof: The sum of squared deviations is divided by the number of members less `ddof`.

    Example:
        ```python
        import numpy as np
        from sciml import parallel

        x = np.array([1.0, 2.0, 6.0]) + 1e3
        reduce = {"mean": parallel.Mean(), "variance": parallel.Variance(ddof=1)}
        result = parallel.sweep(lambda x: x, x, reduce=reduce, progress=False)
        assert result.reduced["mean"] == 1003.0
        np.testing.assert_allclose(result.reduced["variance"], 7.0)
        ```

    Reference:
        T. F. Chan, G. H. Golub and R. J. LeVeque, Algorithms for computing the sample variance, Amer. Statist. 37
        (1983).
    """

    ddof: int = eqx.field(static=True, default=0)

    def of_block(self, values: PyTree, good: Bool[Array, " block"], ids: Int[Array, " block"]) -> Moments:
        """See `AbstractReduction.of_block`."""
        del ids
        return _moments(values, good)

    def merge(self, so_far: PyTree, block: PyTree) -> PyTree:
        """See `AbstractReduction.merge`."""
        return _merge(so_far, block)

    def result(self, merged: PyTree) -> PyTree:
        """See `AbstractReduction.result`."""
        degrees = merged.count - self.ddof
        return jax.tree.map(lambda x: np.where(degrees > 0, x / max(degrees, 1), np.nan)[()], merged.squares)


def _moments(values: PyTree, good: Array) -> Moments:
    count = jnp.sum(good, dtype=jnp.int32)
    n = jnp.maximum(count, 1)

    def total(x):
        return jnp.sum(jnp.where(over_members(good, x), x, jnp.zeros((), x.dtype)), axis=0)

    values = jax.tree.map(as_floats, values)
    mean = jax.tree.map(lambda x: total(x) / n.astype(x.dtype), values)
    squares = jax.tree.map(lambda x, m: total(jnp.abs(x - m[None]) ** 2), values, mean)
    return Moments(count, mean, squares)


def _merge(a: Any, b: Moments) -> Moments:
    b = Moments(int(b.count), jax.tree.map(_wide, b.mean), jax.tree.map(_wide, b.squares))
    if a is None or not a.count:
        return b
    if not b.count:
        return a
    n = a.count + b.count
    delta = jax.tree.map(lambda x, y: y - x, a.mean, b.mean)
    mean = jax.tree.map(lambda x, d: x + d * (b.count / n), a.mean, delta)
    cross = a.count * (b.count / n)
    squares = jax.tree.map(lambda x, y, d: x + y + np.abs(d) ** 2 * cross, a.squares, b.squares, delta)
    return Moments(n, mean, squares)


def _wide(x: Any) -> np.ndarray:
    return np.asarray(x).astype(np.complex128 if np.iscomplexobj(x) else np.float64)
