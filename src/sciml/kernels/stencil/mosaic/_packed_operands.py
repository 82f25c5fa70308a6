"""The numbers that all cells share, as a kernel is given them: parameters, leaves of the function, weights at walls."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._ghost_weights import NotForKernelsError
from .._update import StencilUpdate


class PackedOperands:
    """A PyTree of numbers, packed into an array for a kernel, one row of equal lanes each, and unpacked inside of it.

    Attributes:
        rows: The rows, of shape `(count, lanes)`.
    """

    def __init__(self, tree: PyTree, dtype: Any, lanes: int):
        numbers, self._static = eqx.partition(tree, eqx.is_array)
        self._leaves, self._treedef = jax.tree.flatten(numbers)
        flat = [jnp.asarray(x, dtype).reshape(-1) for x in self._leaves] or [jnp.zeros(1, dtype)]
        self.rows: Array = jnp.tile(jnp.concatenate(flat)[:, None], (1, lanes))

    def unpack(self, read: Callable[[int], Any]) -> PyTree:
        """Returns the PyTree with what `read(row)` gives in place of each number."""
        found, at = [], 0
        for leaf in self._leaves:
            size = math.prod(leaf.shape)
            values = np.empty(size, dtype=object)
            for k in range(size):
                values[k] = read(at + k)
            found.append(values.reshape(leaf.shape) if leaf.ndim else values[0])
            at += size
        return eqx.combine(jax.tree.unflatten(self._treedef, found), self._static)


def check_operands(update: StencilUpdate, params: PyTree, dtype: Any) -> None:
    """Checks that a kernel can be given all parameters: each is one number.

    Raises:
        NotForKernelsError: If not.
    """
    for x in jax.tree.leaves(eqx.filter((update.fn, params), eqx.is_array)):
        if x.ndim or x.dtype != dtype:
            raise NotForKernelsError(
                f"a parameter has dtype {x.dtype} and shape {x.shape}, but the kernel supports numbers of dtype "
                f"{jnp.dtype(dtype)}"
            )
