"""The interface of every reduction over members."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree


class AbstractReduction(eqx.Module):
    """A number for all members instead of one for each; for `sweep(..., reduce=...)`.

    A custom reduction has three methods. `of_block` summarises one block on the device that ran it; `merge` joins the
    summaries of blocks on the host, in the order of the blocks, independent of the order in which they finish; `result`
    turns the last summary into the result of the sweep. The settings of the reduction are its fields, as of any
    `eqx.Module`. Results should not depend on how the members are cut into blocks, which `sciml.verify.check_reduction`
    checks.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import numpy as np
        import sciml
        from sciml import parallel

        class Largest(parallel.AbstractReduction):  # of every number of a member's state, over the members
            def of_block(self, values, good, ids):
                def largest(x):
                    mask = good.reshape((-1,) + (1,) * (x.ndim - 1))
                    return jnp.max(jnp.where(mask, x, -jnp.inf), axis=0)

                return jax.tree.map(largest, values)

            def merge(self, so_far, block):
                return block if so_far is None else jax.tree.map(np.maximum, so_far, block)

            def result(self, merged):
                return merged

        def run(rate):
            return sciml.solve(lambda t, y, args: -rate * y, jnp.array([1.0, 2.0]), t0=0.0, t1=1.0).ys[-1]

        result = parallel.sweep(run, np.linspace(0.0, 3.0, 10), reduce=Largest(), block=4, progress=False)
        np.testing.assert_allclose(result.reduced, [1.0, 2.0])
        ```
    """

    @abc.abstractmethod
    def of_block(self, values: PyTree, good: Bool[Array, " block"], ids: Int[Array, " block"]) -> PyTree:
        """Returns the summary of a block; traced by JAX, once for all blocks.

        Args:
            values: The results of `fn`, or of `output`, of each member: a PyTree of arrays with a leading axis of
                `block`.
            good: The members that count: those that did not fail, without the copies that fill up the last block. There
                may be none. The others' values may be NaN, or anything.
            ids: The members' numbers.

        Returns:
            A PyTree of arrays, whose shapes do not depend on how many members count.
        """

    @abc.abstractmethod
    def merge(self, so_far: PyTree, block: PyTree) -> PyTree:
        """Returns the summary of all blocks so far and one more, on the host: of any structure, in any precision.

        Args:
            so_far: The result of this method for the blocks before; None at first.
            block: The result of `of_block`, with NumPy arrays.
        """

    @abc.abstractmethod
    def result(self, merged: PyTree) -> PyTree:
        """Returns what `SweepResult.reduced` is to hold, from what `merge` returned for all blocks."""


def over_members(good: Any, like: Any) -> Any:
    """Returns which members count, with as many axes as `like`."""
    return good.reshape(good.shape + (1,) * (like.ndim - 1))


def as_floats(x: Array) -> Array:
    """Returns integers and booleans as floating numbers."""
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.result_type(float))
