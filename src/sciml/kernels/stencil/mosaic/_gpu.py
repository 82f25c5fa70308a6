"""`AbstractGpuKernel`: what kernels for GPUs have in common, global arrays as large as whole tiles."""

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._ghost_weights import Sides
from ._kernel import AbstractMosaicKernel


class AbstractGpuKernel(AbstractMosaicKernel):
    """A kernel whose plans say by `physical` how large the global arrays are."""

    name: ClassVar[str] = "mosaic_gpu"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")

    @abc.abstractmethod
    def first(self, plan: Any) -> tuple[int, ...]:
        """Returns where the first cell of a field stands in a global array."""

    def enter(self, x: Array, plan: Any) -> Array:
        ends = zip(self.first(plan), plan.physical, plan.shape)
        return jax.lax.pad(x, jnp.zeros((), x.dtype), [(b, size - b - n, 0) for b, size, n in ends])

    def leave(self, x: Array, plan: Any) -> Array:
        first = self.first(plan)
        return jax.lax.slice(x, first, [b + n for b, n in zip(first, plan.shape)])


def refreshed(x: Array, first: tuple[int, ...], shape: tuple[int, ...], sides: Sides) -> Array:
    """Returns a global array with new ghost cells along its periodic axes, axis by axis."""
    for axis, (width, n) in enumerate(zip(first, shape)):
        if sides[axis] is None:
            for start in (0, width + n):
                # the same cells counted around the axis, as often as it is shorter than the halo
                index = width + (np.arange(start, start + width, dtype=np.int32) - width) % n
                x = jax.lax.dynamic_update_slice_in_dim(x, jnp.take(x, index, axis=axis), start, axis)
    return x
