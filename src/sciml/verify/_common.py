"""Small helpers of the problems: their dtype and their time."""

import jax.numpy as jnp
from jax.typing import DTypeLike

from .._types import RealScalarLike


def floating(dtype: DTypeLike | None):
    """Returns `dtype`, or the default floating type for None."""
    return jnp.result_type(float) if dtype is None else dtype


def elapsed(problem, t: RealScalarLike, dtype: DTypeLike):
    """Returns `t - t0` as an array of `dtype`."""
    return jnp.asarray(t, dtype) - jnp.asarray(problem.t0, dtype)
