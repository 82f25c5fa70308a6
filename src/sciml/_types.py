"""The vocabulary of types that the whole library speaks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int, Key as _Key, PyTree, Real, Shaped, UInt32

if TYPE_CHECKING:  # as in diffrax: to a type checker `Real[ArrayLike, ""]` is `ArrayLike`, with complex numbers
    RealScalarLike: TypeAlias = float | Array | np.ndarray
    IntScalarLike: TypeAlias = int | Array | np.ndarray
    BoolScalarLike: TypeAlias = bool | Array | np.ndarray
else:
    RealScalarLike: TypeAlias = Real[ArrayLike, ""]
    """A real number: a Python or NumPy scalar or a JAX array of shape `()`, traced or not."""

    IntScalarLike: TypeAlias = Int[ArrayLike, ""]
    """An integer, as a Python or NumPy scalar or a JAX array of shape `()`."""

    BoolScalarLike: TypeAlias = Bool[ArrayLike, ""]
    """A truth value, as a Python or NumPy scalar or a JAX array of shape `()`."""

Y: TypeAlias = PyTree[Shaped[ArrayLike, "..."]]
"""A state: any PyTree of real or complex floating-point arrays."""

Args: TypeAlias = PyTree[Any]
"""What a vector field takes beside time and state; any PyTree."""

VectorField: TypeAlias = Callable[[RealScalarLike, Y, Args], Y]
"""`f(t, y, args) -> dy/dt`, the right-hand side of an ordinary differential equation."""

Key: TypeAlias = _Key[Array, ""] | UInt32[Array, "2"]
"""A random key, typed (`jax.random.key`) or raw (`jax.random.PRNGKey`)."""
