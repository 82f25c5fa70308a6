"""`jax.jit` by the arrays among the arguments, with all else static, and its parts, for calls that come again."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

_Result = TypeVar("_Result")

ARRAYS = (jax.Array, np.ndarray, np.generic)


class Static:
    """The structure of arguments and all leaves that are no arrays; its hash is computed once.

    Attributes:
        treedef: The structure.
        leaves: The leaves, with `Static.ARRAY` in the place of each array.
    """

    ARRAY = object()

    def __init__(self, treedef: Any, leaves: tuple):
        self.treedef = treedef
        self.leaves = leaves
        # 1, 1.0 and True are equal and trace to different programs
        self._key = (treedef, leaves, tuple(map(type, leaves)))
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Static) and self._hash == other._hash and self._key == other._key)

    def combine(self, arrays: list) -> PyTree:
        """Returns the arguments."""
        rest = iter(arrays)
        return jax.tree.unflatten(self.treedef, [next(rest) if x is Static.ARRAY else x for x in self.leaves])


def split(tree: PyTree) -> tuple[Static, list]:
    """Returns what is static of arguments, and their arrays.

    Raises:
        TypeError: If what is static cannot be hashed.
    """
    leaves, treedef = jax.tree.flatten(tree)
    arrays = [x for x in leaves if isinstance(x, ARRAYS)]
    return Static(treedef, tuple(Static.ARRAY if isinstance(x, ARRAYS) else x for x in leaves)), arrays


class Compiled(Generic[_Result]):
    """A function that JAX compiles once for each `Static` and the shapes and dtypes of the arrays.

    Attributes:
        fn: The function.
    """

    def __init__(self, fn: Callable[..., _Result]):
        self.fn = fn

        def run(static: Static, arrays: list) -> _Result:
            return fn(*static.combine(arrays))

        run.__name__ = run.__qualname__ = fn.__name__
        self.call = partial(jax.jit(run, static_argnums=0))

    def __call__(self, *args: Any) -> _Result:
        """Calls the function."""
        return self.call(*split(args))


def compiled(fn: Callable[..., _Result]) -> Compiled[_Result]:
    """Returns a function compiled by the arrays among its arguments; see `Compiled`."""
    return Compiled(fn)
