"""Calls from Python that come again: what follows from their structure, dtypes and numbers is decided once.

A call in a loop of Python, `sciml.solve(model, y0, ...)` with other arrays each time, would spend more time on reading
its arguments than on its steps. What `solve` decides depends on arrays by shape and dtype alone, but for the times,
tolerances and steps, which count by value here, and for stable steps, which are never kept.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from .._jax._compiled import Static

_MOST = 256
"""So many calls are remembered; then all are forgotten, which costs each of them a millisecond."""


class WarmCall(NamedTuple):
    """A call that has been decided.

    Attributes:
        static: What the compiled program is found by.
        arrays: Its arrays after those of the model, the state and args: times and tolerances.
        kept: What the key names by identity, so that nothing else takes its place.
    """

    static: Static
    arrays: list
    kept: PyTree


_CALLS: dict[tuple, WarmCall] = {}


def key_of(inputs: PyTree, choices: PyTree) -> tuple[tuple | None, list]:
    """Returns what a call is remembered by, None where it cannot be, and the arrays of its inputs.

    Args:
        inputs: Model, state and args, whose arrays count by shape and dtype.
        choices: All else, where arrays count by identity and numbers by value.
    """
    leaves, treedef = jax.tree.flatten(inputs)
    key: list[Any] = [treedef]
    arrays = []
    for x in leaves:
        if isinstance(x, jax.Array):
            if isinstance(x, Tracer):
                return None, []
            arrays.append(x)
            key.append((x.shape, x.dtype, x.weak_type))
        elif isinstance(x, np.ndarray | np.generic):
            return None, []
        else:
            key.append((type(x), x))
    leaves, treedef = jax.tree.flatten(choices)
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
    if len(_CALLS) >= _MOST:
        _CALLS.clear()
    _CALLS[key] = call
