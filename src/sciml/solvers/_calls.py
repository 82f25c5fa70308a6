"""Calls of a compiled function by the arrays among its arguments, all else static; and repeated calls.

A call in a loop of Python, `sciml.solve(model, y0, ...)` with other arrays each time, would spend more time on reading
its arguments than on its steps. The decisions of `solve` depend on arrays only through shape and dtype, except for
times, tolerances and steps, which count by value, and for stable steps, which are never cached.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from .._announced import announced
from .._choices import changed_choices, choices
from .._same_code import first_of_same_code

_Result = TypeVar("_Result")

ARRAYS = (jax.Array, np.ndarray, np.generic)


class Static:
    """The structure of the arguments and all leaves that are not arrays; its hash is computed once.

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

    def __repr__(self) -> str:
        return "Static(...)"

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Static) and self._hash == other._hash and self._key == other._key)

    def combine(self, arrays: list) -> PyTree:
        """Returns the arguments."""
        rest = iter(arrays)
        return jax.tree.unflatten(self.treedef, [next(rest) if x is Static.ARRAY else x for x in self.leaves])


def split(tree: PyTree) -> tuple[Static, list]:
    """Returns the static part of arguments, and their arrays; functions of the same code are the same.

    Raises:
        TypeError: If the static part cannot be hashed.
    """
    leaves, treedef = jax.tree.flatten(first_of_same_code(tree))
    arrays = [x for x in leaves if isinstance(x, ARRAYS)]
    return Static(treedef, tuple(Static.ARRAY if isinstance(x, ARRAYS) else x for x in leaves)), arrays


class Compiled(Generic[_Result]):
    """A function that JAX compiles once for each `Static` and the shapes and dtypes of the arrays.

    Attributes:
        fn: The function.
        call: `call(static, arrays)`, with the two parts of its arguments that `split` returns.
    """

    def __init__(self, fn: Callable[..., _Result]):
        self.fn = fn

        def run(static: Static, arrays: list) -> _Result:
            return fn(*static.combine(arrays))

        run.__name__ = run.__qualname__ = fn.__name__
        self.call = jax.jit(announced(run), static_argnums=0)


def compiled(fn: Callable[..., _Result]) -> Compiled[_Result]:
    """Returns a function compiled by the arrays among its arguments; see `Compiled`."""
    return Compiled(fn)


class WarmCall(NamedTuple):
    """A call that has been decided.

    Attributes:
        static: The key of the compiled program.
        arrays: The other arrays, after the arrays of the model, the state and args: times and tolerances.
        kept: The objects that the key names by identity, so that no other object takes their place.
    """

    static: Static
    arrays: list
    kept: PyTree


_CALLS: dict[tuple, WarmCall] = {}


def key_of(inputs: PyTree, given: PyTree) -> tuple[tuple | None, list]:
    """Returns the key of a call, None if it has none, and the arrays of its inputs.

    Args:
        inputs: Model, state and args, whose arrays count by shape and dtype.
        given: All else, where arrays count by identity and numbers by value.
    """
    leaves, treedef = jax.tree.flatten(first_of_same_code(inputs))
    key: list[Any] = [changed_choices(), treedef]
    arrays = []
    for x in leaves:
        if isinstance(x, jax.Array):
            if isinstance(x, Tracer):
                return None, []
            arrays.append(x)
            key.append((x.shape, x.dtype, getattr(x, "weak_type", False)))  # a random key has none
        elif isinstance(x, np.ndarray | np.generic):
            return None, []
        else:
            key.append((type(x), x))
    leaves, treedef = jax.tree.flatten(first_of_same_code(given))
    key.append(treedef)
    for x in leaves:
        if isinstance(x, Tracer | np.ndarray):  # whose numbers may change
            return None, []
        key.append(id(x) if isinstance(x, jax.Array) else (type(x), x))
    found = tuple(key)
    try:
        hash(found)
    except TypeError:
        return None, []
    return found, arrays


def find(key: tuple | None) -> WarmCall | None:
    """Returns a call that has been decided, or None."""
    return None if key is None else _CALLS.get(key)


def remember(key: tuple | None, call: WarmCall) -> None:
    """Keeps a call under its key, unless something of it is traced."""
    if key is None or any(isinstance(x, Tracer) for x in call.arrays):
        return
    if len(_CALLS) >= choices().calls.remembered:
        _CALLS.clear()
    _CALLS[key] = call


def wait_shortly(array: Any) -> None:
    """Waits a moment for an array, awake: to be woken takes longer than a small solve does."""
    for _ in range(choices().calls.looks):
        if array.is_ready():
            return
