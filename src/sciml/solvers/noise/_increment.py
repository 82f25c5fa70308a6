"""The Brownian motion over a step as a method reads it, and its product with the diffusion."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._types import RealScalarLike, Y


class Increment(NamedTuple):
    r"""Brownian motion over a step from $s$ to $t$.

    Attributes:
        w: $W_t - W_s$, of variance $|t - s|$.
        area: The space-time Levy area $H = \frac{1}{t - s} \int_s^t (W_r - W_s) \, dr - \frac12 (W_t - W_s)$, of
            variance $|t - s| / 12$ and independent of `w`; None if it is not requested.
        levy: The Levy areas of all pairs of Brownian motions, an antisymmetric matrix; None if it is not requested.
    """

    w: PyTree
    area: PyTree = None
    levy: Float[Array, "count count"] | None = None


class NoiseShape(NamedTuple):
    """How many Brownian motions there are, and which of them move which part of a state; static.

    Attributes:
        kind: "diagonal" if each element of the state has its own Brownian motion, "scalar" if all share one, "general"
            if the last axis of the diffusion runs over Brownian motions.
        count: How many there are.
        structure: The structure of the state.
        leaves: The shapes of its leaves.
        dtypes: The real dtypes of its leaves.
        additive: Whether the diffusion does not depend on the state.
    """

    kind: str
    count: int
    structure: Any
    leaves: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    additive: bool

    @property
    def dtype(self) -> Any:
        """The dtype in which the numbers are drawn: float64 where a leaf has it, else float32."""
        return jnp.float64 if any(x.itemsize == 8 for x in self.dtypes) else jnp.float32

    def shaped(self, numbers: Float[Array, " count"]) -> PyTree:
        """Returns the numbers of all Brownian motions as the diffusion meets them."""
        if self.kind == "scalar":
            return numbers[0]
        if self.kind == "general":
            return numbers
        found, start = [], 0
        for shape, dtype in zip(self.leaves, self.dtypes):
            size = int(np.prod(shape, dtype=int))
            found.append(numbers[start : start + size].reshape(shape).astype(dtype))
            start += size
        return jax.tree.unflatten(self.structure, found)

    def flat(self, increment: PyTree) -> Float[Array, " count"]:
        """Returns the numbers of all Brownian motions, of which `shaped` makes an increment."""
        return jnp.concatenate([x.reshape(-1).astype(self.dtype) for x in jax.tree.leaves(increment)])

    def column(self, diffusion: PyTree, number: int) -> Y:
        """Returns the part of a diffusion that one of the Brownian motions drives, a state."""
        unit = np.zeros(self.count, self.dtype)
        unit[number] = 1
        return self.product(diffusion, self.shaped(jnp.asarray(unit)))

    def integrals(self, increment: "Increment", h: RealScalarLike) -> list[PyTree]:
        r"""Returns $\int W_r \, dW_j$ over a step, for each $r$ as the diffusion meets them."""
        w = self.flat(increment.w)
        found = 0.5 * w[:, None] * w[None, :] + increment.levy
        found = found - 0.5 * jnp.asarray(h, w.dtype) * jnp.eye(self.count, dtype=w.dtype)
        return [self.shaped(row) for row in found]

    def product(self, diffusion: PyTree, increment: PyTree) -> Y:
        """Returns the diffusion times an increment, a state."""
        if self.kind == "diagonal":
            return jax.tree.map(lambda g, w: g * w.astype(g.dtype), diffusion, increment)
        if self.kind == "scalar":
            return jax.tree.map(lambda g: g * increment.astype(g.dtype), diffusion)

        def of_leaf(g: Array) -> Array:
            return jnp.sum(g * increment.astype(g.dtype).reshape((1,) * (g.ndim - 1) + increment.shape), axis=-1)

        return jax.tree.map(of_leaf, diffusion)
