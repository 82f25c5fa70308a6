"""Shared programs of functions that are created in every call, such as `lambda t, y, args: -y` in a loop.

JAX compiles a program for each function object. Two functions with the same code that read the same values have the
same program. So the first of them replaces the others, and JAX finds its programs again.
"""

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ._announced import announced
from ._choices import choices
from ._digests import Hasher, digest_of, digest_of_array

_first: weakref.WeakValueDictionary[str, Callable] = weakref.WeakValueDictionary()  # by digest
_known: weakref.WeakKeyDictionary[Callable, weakref.ref[Callable]] = weakref.WeakKeyDictionary()


def first_of_same_code(tree: PyTree) -> PyTree:
    """Returns a tree in which the first function with the same code replaces each function.

    Two functions are the same if their code, their defaults, the module variables that they read and the variables that
    they close over are the same. JAX arrays are immutable and compared by identity, NumPy arrays by their numbers. A
    function is not replaced if it reads a traced value, a large NumPy array, a value of unknown kind, or names that its
    code does not show (`getattr`, an import of a module of the user). As with `jax.jit`, a function object is compared
    once: later changes of the variables that it reads have no effect.
    """
    return jax.tree.map(_first_of, tree)


def filter_jit(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `eqx.filter_jit(fn)` in whose arguments functions of the same code are the same."""
    jitted = eqx.filter_jit(announced(fn))

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = first_of_same_code((args, kwargs))
        return jitted(*args, **kwargs)

    return call


def _first_of(x: Any) -> Any:
    if not isinstance(x, types.FunctionType | functools.partial):
        return x
    try:
        known = _known.get(x)
        found = None if known is None else known()
        if found is None:
            found = _first.setdefault(Hasher("function", _of_array, certain=True).digest(x), x)
            _known[x] = weakref.ref(found)
        return found
    except (TypeError, ValueError, AttributeError, RecursionError):  # it reads what cannot be compared
        return x


def _of_array(x: Any) -> str:
    if isinstance(x, jax.Array):
        return digest_of("identity", str(id(x)))  # the function keeps it, so that no other array has its place
    if isinstance(x, np.ndarray) and x.nbytes > choices().calls.compared_bytes_at_most:
        raise TypeError("too large to be compared")
    return digest_of_array(x)
