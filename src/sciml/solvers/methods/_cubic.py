"""The cubic polynomial through both ends of a step."""

from typing import Any

import jax
import jax.numpy as jnp

from ..._types import RealScalarLike, Y


def cubic(theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, k0: Any, k1: Any) -> Y:
    """Returns the state at `t + theta * h` by the cubic polynomial of states and slopes at both ends.

    Args:
        theta: The place in the step, from 0 to 1.
        h: The length of the step.
        y0: The state where it begins.
        y1: The state where it ends.
        k0: The slope where it begins.
        k1: The slope where it ends.
    """

    def of_leaf(y0, y1, k0, k1):
        real = jnp.finfo(y0.dtype).dtype
        s, length = jnp.asarray(theta, real), jnp.asarray(h, real)
        bend = (1 - 2 * s) * (y1 - y0) + (s - 1) * length * k0 + s * length * k1
        return (1 - s) * y0 + s * y1 + s * (s - 1) * bend

    return jax.tree.map(of_leaf, y0, y1, k0, k1)
