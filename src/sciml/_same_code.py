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
from jaxtyping import PyTree

from ._announced import announced
from ._choices import choices
from ._digests import Hasher, digest_of, digest_of_array

_first: weakref.WeakValueDictionary[str, Callable] = weakref.WeakValueDictionary()  # by digest
_known: weakref.WeakKeyDictionary[Any, dict[Any, weakref.ref[Callable]]] = weakref.WeakKeyDictionary()


def first_of_same_code(tree: PyTree) -> PyTree:
    """Returns a tree in which the first function with the same code replaces each function.

    Two functions are the same if their code, their defaults, the module variables that they read and the variables that
    they close over are the same; two bound methods, if also the attributes of their objects are. Arrays are
    compared by their numbers, large ones of JAX and those on several devices by identity. A function is not
    replaced if it reads a traced value, a large NumPy array, a value of unknown kind, names that its code does not
    show (`getattr`, an import of a module of the user), or what changes without its code (files, the environment,
    NumPy's random numbers). As with `jax.jit`, a function object is compared once: later changes of the variables
    that it reads have no effect.
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
    if not isinstance(x, types.FunctionType | types.MethodType | functools.partial):
        return x
    try:
        # a bound method is made anew each time it is read: its object is the one that is compared once
        known = _known.setdefault(getattr(x, "__self__", x), {})
        name = getattr(x, "__func__", None)
        found = known[name]() if name in known else None
        if found is None:
            found = _first.setdefault(Hasher("function", _of_array, certain=True).digest(x), x)
            known[name] = weakref.ref(found)
        return found
    except (TypeError, ValueError, AttributeError, RecursionError):  # it reads what cannot be compared
        return x


def _of_array(x: Any) -> str:
    large = x.nbytes > choices().calls.compared_bytes_at_most
    if isinstance(x, jax.Array):
        if large or len(x.devices()) > 1:
            # the function keeps it, so that no other array has its place
            return digest_of("identity", str(id(x)))
        return digest_of("values", str(x.weak_type), str(x.sharding), digest_of_array(x))
    if large:
        raise TypeError("too large to be compared")
    return digest_of_array(x)
