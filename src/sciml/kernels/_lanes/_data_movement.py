"""Primitives that only move elements: over unstacked values they only cost work in the tracer."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax._shards import on_no_mesh
from ._values import Constant, object_array

MOVEMENTS: dict[str, Callable[..., Sequence[np.ndarray] | None]] = {}
"""Rules `(*element_arrays, **params) -> element arrays`, or None where the rule does not apply."""


def _movement(*names: str):
    def register(rule):
        for name in names:
            MOVEMENTS[name] = rule
        return rule

    return register


def _constant_ints(arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    if not all(isinstance(x, Constant) for a in arrays for x in a.reshape(-1)):
        return None
    return [a.astype(np.int64) for a in arrays]


def _part(x: np.ndarray, slices: Sequence[slice]) -> np.ndarray:
    """A view of an array; NumPy would return the element of an array without axes instead of an array."""
    return x[(*slices, ...)]


@_movement("broadcast_in_dim")
def _(x, *dynamic, shape, broadcast_dimensions, **_params):
    if dynamic:
        return None
    kept = [1] * len(shape)
    for i, d in enumerate(broadcast_dimensions):
        kept[d] = x.shape[i]
    return [np.broadcast_to(x.reshape(kept), shape)]


@_movement("reshape")
def _(x, *dynamic, new_sizes, **params):
    return None if dynamic or params.get("dimensions") is not None else [x.reshape(new_sizes)]


@_movement("squeeze")
def _(x, *, dimensions):
    return [np.squeeze(x, axis=tuple(dimensions))]


@_movement("transpose")
def _(x, *, permutation):
    return [x.transpose(permutation)]


@_movement("rev")
def _(x, *, dimensions):
    return [_part(x, [slice(None, None, -1) if i in dimensions else slice(None) for i in range(x.ndim)])]


@_movement("slice")
def _(x, *, start_indices, limit_indices, strides):
    strides = strides or [1] * x.ndim
    return [_part(x, [slice(*bounds) for bounds in zip(start_indices, limit_indices, strides)])]


@_movement("concatenate")
def _(*xs, dimension):
    return [np.concatenate(xs, axis=dimension)]


@_movement("stack")
def _(*xs, axis):
    return [np.stack(xs, axis=axis)]


@_movement("unstack")
def _(x, *, axis, **_params):
    return [object_array(list(np.take(x, [i], axis=axis).reshape(-1)), x.shape[:axis] + x.shape[axis + 1 :])
            for i in range(x.shape[axis])]  # fmt: skip


@_movement("split")
def _(x, *, sizes, axis):
    return np.split(x, np.cumsum(sizes)[:-1], axis=axis)


@_movement("pad")
def _(x, padding, *, padding_config):
    for axis, (low, high, interior) in enumerate(padding_config):
        length = x.shape[axis]
        padded = int(low + high + length + max(0, length - 1) * interior)  # JAX may give NumPy integers
        shape = x.shape[:axis] + (padded,) + x.shape[axis + 1 :]
        out = object_array([padding[()]] * int(np.prod(shape)), shape)
        for i in range(length):
            position = low + i * (interior + 1)
            if 0 <= position < padded:  # negative padding crops
                index = (slice(None),) * axis
                out[index + (position,)] = x[index + (i,)]
        x = out
    return [x]


@_movement("dynamic_slice")
def _(x, *starts, slice_sizes):
    starts = _constant_ints(starts)
    if starts is None:
        return None
    corner = [int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, x.shape, slice_sizes)]
    return [_part(x, [slice(c, c + k) for c, k in zip(corner, slice_sizes)])]


@_movement("dynamic_update_slice")
def _(x, update, *starts):
    starts = _constant_ints(starts)
    if starts is None:
        return None
    corner = [int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, x.shape, update.shape)]
    out = x.copy()
    _part(out, [slice(c, c + k) for c, k in zip(corner, update.shape)])[...] = update
    return [out]


OUTSIDE = -1
"""The number of what stands in no operand."""


def moved_by_index(
    bind: Callable[..., Any], operands: Sequence[np.ndarray], indices: np.ndarray, fill: Any = None
) -> np.ndarray | None:
    """Runs a gather or scatter on the numbers of its elements to learn where each comes from.

    Args:
        bind: The primitive as a function of the operands' element numbers and the indices.
        operands: The element arrays that are moved.
        indices: The primitive's indices, which must be constant.
        fill: The value at places where `bind` returns `OUTSIDE`, or None if a rule sets it itself.

    Returns:
        The element array of the result, or None where the indices are not constant or an element of
        the result comes from none of the operands.
    """
    constant = _constant_ints([indices])
    if constant is None:
        return None
    offsets = np.cumsum([0] + [x.size for x in operands])
    numbers = [np.arange(o, o + x.size, dtype=np.int32).reshape(x.shape) for o, x in zip(offsets, operands)]
    with jax.ensure_compile_time_eval():
        source = np.asarray(bind(*map(jnp.asarray, numbers), jnp.asarray(constant[0], np.int32)))
    source, inside = source.reshape(-1), source != OUTSIDE
    if fill is None and not inside.all():
        return None
    pool = [entry for x in operands for entry in x.reshape(-1)]
    return object_array([pool[i] if i != OUTSIDE else fill for i in source], inside.shape)


def places_of_updates(eqn: Any, shape: Sequence[int], indices: np.ndarray, updates: Sequence[int]) -> np.ndarray:
    """Returns where an addition by index puts each of its updates, a place among the operand's elements.

    Args:
        eqn: The addition.
        shape: The shape of what is added to.
        indices: The target places.
        updates: The shape of the updates.

    Returns:
        The places, in a row; `OUTSIDE` for an update that goes nowhere.
    """
    with on_no_mesh(), jax.ensure_compile_time_eval():
        # the transpose of an addition reads where each update went, one more than its place, and zero outside
        zeros, places = jnp.zeros(shape), jnp.arange(1.0, math.prod(shape) + 1).reshape(shape)
        transposed = jax.linear_transpose(
            lambda u: eqn.primitive.bind(zeros, jnp.asarray(indices, jnp.int32), u, **eqn.params), jnp.zeros(updates)
        )
        return np.rint(np.asarray(transposed(places)[0])).astype(np.int64).reshape(-1) - 1


def added_at(
    eqn: Any, operand: np.ndarray, indices: np.ndarray, updates: np.ndarray, add: Callable[[Any, Any], Any]
) -> Sequence[np.ndarray] | None:
    """Adds updates where they go: what reverse mode makes of elements that were taken by number.

    Args:
        eqn: The addition.
        operand: The array to which they are added.
        indices: The target places; they must be known.
        updates: The updates.
        add: Adds two elements.
    """
    known = _constant_ints([indices])
    if known is None:
        return None
    targets = places_of_updates(eqn, operand.shape, known[0], updates.shape)
    entries = list(operand.reshape(-1))
    for target, update in zip(targets, updates.reshape(-1)):
        if target != OUTSIDE:
            entries[target] = add(entries[target], update)
    return [object_array(entries, operand.shape)]
