"""The members with the largest values of a score."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from ._abstract import AbstractReduction


class TopMembers(NamedTuple):
    """Some members, the one with the largest score first.

    Attributes:
        members: Their numbers.
        scores: Their scores.
        values: The stored values, arrays with a leading axis.

    Example:
        ```python
        import numpy as np
        from sciml import parallel

        lowest = parallel.TopK(1, by=lambda x: -x)
        found = parallel.sweep(lambda x: x, np.array([3.0, 1.0, 2.0]), reduce=lowest, progress=False).reduced
        assert found.members.tolist() == [1] and found.values.tolist() == [1.0]
        ```
    """

    members: Any
    scores: Any
    values: PyTree


class TopK(AbstractReduction):
    """The `k` members with the largest score, and their stored values.

    Members that failed, or whose score is NaN, do not count; of equal scores the member of the lower number
    comes first.

    Attributes:
        k: How many members; fewer are returned where fewer succeeded.
        by: The score of a member, a scalar, from its stored values; by default the value itself. The smallest come
            first with `by=lambda x: -x`.

    Example:
        ```python
        import numpy as np
        from sciml import parallel

        x = np.array([3.0, -1.0, np.nan, 7.0])
        best = parallel.sweep(lambda x: x, x, reduce=parallel.TopK(2), progress=False).reduced
        assert best.members.tolist() == [3, 0] and best.scores.tolist() == [7.0, 3.0]
        ```
    """

    k: int = eqx.field(static=True)
    by: Callable[[PyTree], Any] | None = None

    def __check_init__(self):
        if isinstance(self.k, bool) or not isinstance(self.k, (int, np.integer)) or self.k <= 0:
            raise ValueError(f"`TopK`: `k` must be a positive integer, got {self.k!r}.")
        if self.by is not None and not callable(self.by):
            raise TypeError(f"`TopK`: `by` must be callable or None, got {type(self.by).__name__}.")

    def of_block(self, values: PyTree, good: Bool[Array, " block"], ids: Int[Array, " block"]) -> TopMembers:
        """See `AbstractReduction.of_block`."""
        scores = jax.vmap(self._score)(values)
        counts = good & ~jnp.isnan(scores)
        order = jnp.lexsort((ids, -scores, ~counts))[: self.k]
        chosen = jnp.where(counts, ids, -1)[order]
        return TopMembers(chosen, scores[order], jax.tree.map(lambda x: x[order], values))

    def merge(self, so_far: PyTree, block: PyTree) -> PyTree:
        """See `AbstractReduction.merge`."""
        block = jax.tree.map(lambda x: np.asarray(x)[np.asarray(block.members) >= 0], block)
        if so_far is None:
            return block
        both = jax.tree.map(lambda a, b: np.concatenate([a, b]), so_far, block)
        order = np.lexsort((both.members, -both.scores))[: self.k]
        return jax.tree.map(lambda x: x[order], both)

    def result(self, merged: PyTree) -> PyTree:
        """See `AbstractReduction.result`."""
        return merged

    def _score(self, value: PyTree) -> Array:
        score = value if self.by is None else self.by(value)
        leaves = jax.tree.leaves(score)
        if len(leaves) != 1 or jnp.ndim(leaves[0]):
            shapes = [jnp.shape(x) for x in leaves]
            raise ValueError(
                f"`TopK`: the score of a member must be one number, got shapes {shapes}. Select one with `by`, such as "
                "`by=lambda value: value[0]`."
            )
        return jnp.asarray(leaves[0], jnp.result_type(float))
