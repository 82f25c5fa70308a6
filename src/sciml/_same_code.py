"""Functions that are created anew in every call, such as `lambda t, y, args: -y` within a function or a loop.

JAX compiles a program for each function object. Two functions of the same code that read the same values give the same
program, so the first of them stands for all: its programs are found again.
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

from ._digests import Hasher, digest_of, digest_of_array

LARGE = 2**20
"""Bytes of a NumPy array that a function may read and still be compared: more take longer than a millisecond."""

_first: weakref.WeakValueDictionary[str, Callable] = weakref.WeakValueDictionary()  # by digest
_known: weakref.WeakKeyDictionary[Callable, weakref.ref[Callable]] = weakref.WeakKeyDictionary()


def first_of_same_code(tree: PyTree) -> PyTree:
    """Returns a tree in which the first function of the same code stands for each function.

    Functions are the same if their code, defaults, the values of the names that they read from their module and those
    that they close over are the same. Arrays of JAX, which never change, count by identity, and those of NumPy by their
    numbers. A function that reads anything else, a large array of NumPy, a traced value or names that its code does not
    show (`getattr`, an import of one's own module) stands for itself.
    A function that has been seen before stands for what it stood for, whatever it reads now: as under `jax.jit`.
    """
    return jax.tree.map(_first_of, tree)


def filter_jit(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `eqx.filter_jit(fn)` in whose arguments functions of the same code are the same."""
    jitted = eqx.filter_jit(fn)

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
    if isinstance(x, np.ndarray) and x.nbytes > LARGE:
        raise TypeError("too large to be compared")
    return digest_of_array(x)
