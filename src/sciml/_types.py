"""Types that the whole library uses."""

import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int, Key as _Key, PyTree, Real, Shaped, UInt32

if TYPE_CHECKING:  # as in diffrax: to a type checker `Real[ArrayLike, ""]` is `ArrayLike`, with complex numbers
    RealScalarLike: TypeAlias = float | Array | np.ndarray
    IntScalarLike: TypeAlias = int | Array | np.ndarray
    BoolScalarLike: TypeAlias = bool | Array | np.ndarray
    Y: TypeAlias = PyTree[Shaped[ArrayLike, "..."]]
    Args: TypeAlias = PyTree[Any]
    Key: TypeAlias = Array
else:

    def _named(name: str, kind: Any, doc: str) -> type:
        """Returns a type that prints as its name, because an alias would print its full definition, line after line.

        `kind` decides what is an instance, so type checks at run time are the checks of `kind`.
        """
        # of a union one by one: `typing.Union` asks for the class of a value, which says nothing of its shape
        kinds = typing.get_args(kind) or (kind,)
        checks = type(f"_{name}", (type,), {"__instancecheck__": lambda cls, x: isinstance(x, kinds)})
        return checks(name, (), {"__doc__": doc, "__module__": __name__})

    RealScalarLike = _named(
        "RealScalarLike",
        Real[ArrayLike, ""],
        "A real number: a Python or NumPy scalar or a JAX array of shape `()`, traced or not.",
    )
    IntScalarLike = _named(
        "IntScalarLike", Int[ArrayLike, ""], "An integer, as a Python or NumPy scalar or a JAX array of shape `()`."
    )
    BoolScalarLike = _named(
        "BoolScalarLike",
        Bool[ArrayLike, ""],
        "A truth value, as a Python or NumPy scalar or a JAX array of shape `()`.",
    )
    Y = _named("Y", PyTree[Shaped[ArrayLike, "..."]], "A state: any PyTree of real or complex floating-point arrays.")
    Args = _named("Args", PyTree[Any], "The third argument of a vector field, after time and state; any PyTree.")
    Key = _named(
        "Key",
        _Key[Array, ""] | UInt32[Array, "2"],
        "A random key, typed (`jax.random.key`) or raw (`jax.random.PRNGKey`).",
    )

VectorField: TypeAlias = Callable[[RealScalarLike, Y, Args], Y]
"""`f(t, y, args) -> dy/dt`, the right-hand side of an ordinary differential equation."""
