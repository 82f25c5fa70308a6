"""How a value of one member is represented when many members run side by side.

A member's array of shape `s` takes one of two forms over `n` lanes:

- `Unstacked`: each of its elements is a separate array, of shape `(n,)`, or `()` if all members share it, or a NumPy
  scalar if it is known when the program is traced. Indexing, stacking and small matrix products then cost nothing; only
  elementwise work remains.
- `Stacked`: one array of shape `s + (n,)`, or `s` where all members share it. For large values.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from ..._choices import choices


@jax.tree_util.register_pytree_node_class
class Unstacked:
    """A member's array, one entry for each of its elements."""

    def __init__(self, elements: np.ndarray, dtype: Any):
        self.elements = elements
        self.dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape

    def tree_flatten(self):
        return tuple(self.elements.reshape(-1)), (self.elements.shape, self.dtype)

    @classmethod
    def tree_unflatten(cls, aux, children):
        shape, dtype = aux
        return cls(object_array(children, shape), dtype)


@jax.tree_util.register_pytree_node_class
class Stacked:
    """A member's array of `ndim` dimensions, whole; with members in one more, the last, unless all share it."""

    def __init__(self, array: Any, ndim: int):
        self.array = array  # or what stands for one while JAX evaluates shapes
        self.ndim = ndim

    @property
    def batched(self) -> bool:
        return self.array.ndim > self.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape[: self.ndim]

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def tree_flatten(self):
        return (self.array,), self.ndim

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(children[0], aux)


Value: TypeAlias = Unstacked | Stacked

Constant: TypeAlias = np.generic
"""An entry that is known when the program is traced."""


def object_array(entries: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the flat `entries` as an object array of `shape`, entries never unpacked."""
    flat = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        flat[i] = entry
    return flat.reshape(shape)


def unstacked_constant(array: Any) -> Unstacked:
    """Returns a concrete array as NumPy scalars."""
    array = np.asarray(array)
    return Unstacked(object_array([x for x in array.reshape(-1)], array.shape), array.dtype)


def unstack(value: Value) -> Unstacked:
    """Returns `value` with an entry for each element."""
    if isinstance(value, Unstacked):
        return value
    shape = value.shape
    flat = value.array.reshape((math.prod(shape),) + value.array.shape[len(shape) :])
    return Unstacked(object_array([flat[i] for i in range(flat.shape[0])], shape), value.dtype)


def as_operand(entry: Any, dtype: Any) -> Any:
    """Returns an entry as primitives take it: NumPy scalars as they are, sooner than arrays are made of them.

    Inside `shard_map` they have to be arrays, which can be promoted.
    """
    if isinstance(entry, Constant):
        if jax.sharding.get_abstract_mesh().manual_axes:
            return jnp.asarray(entry, dtype)
        return entry if entry.dtype == dtype else entry.astype(dtype)
    weak = getattr(entry, "weak_type", False)  # which NumPy's arrays, constants of loops in older JAX, have not got
    return entry if entry.dtype == dtype and not weak else jnp.asarray(entry, dtype)


def stack(value: Value, count: int | None) -> Stacked:
    """Returns `value` as one array, members last unless all members share it."""
    if isinstance(value, Stacked):
        return value
    entries = list(value.elements.reshape(-1))
    if not entries and count is not None:  # nothing says whether members share it
        return Stacked(jnp.zeros((*value.shape, count), value.dtype), len(value.shape))
    if all(isinstance(x, Constant) for x in entries):
        return Stacked(jnp.asarray(np.array(entries, dtype=value.dtype).reshape(value.shape)), len(value.shape))
    batched = any(x.ndim for x in entries)
    entries = [as_operand(x, value.dtype) for x in entries]
    lanes = (cast(int, count),) if batched else ()
    # together with entries with lanes, the entries that all members share also need the axis
    entries = [x if x.shape == lanes else jax.lax.broadcast(x, lanes) for x in entries]
    return Stacked(jnp.stack(entries).reshape(value.shape + lanes), len(value.shape))


def over_all_lanes(value: Value, count: int | None) -> Value:
    """Returns `value` as the carry of a loop must be: every entry over all lanes, its form decided by its size."""
    value = unstack(value) if is_small(value) else stack(value, count)
    if isinstance(value, Stacked):
        if value.batched or count is None:
            return value
        shape = value.shape + (count,)
        return Stacked(jnp.broadcast_to(value.array[..., None], shape), value.ndim)
    # a carry keeps its type, so what members share before the first iteration counts as their own
    lanes = () if count is None else (count,)
    entries = [as_operand(x, value.dtype) for x in value.elements.reshape(-1)]
    entries = [jnp.broadcast_to(x, lanes) if isinstance(x, Constant) or x.shape != lanes else x for x in entries]
    return Unstacked(object_array(entries, value.shape), value.dtype)


def is_small(value: Value) -> bool:
    """Whether a value is small enough to be unstacked wherever it comes from."""
    extended = jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended)
    return math.prod(value.shape) <= choices().lanes.unstacked_at_most and not extended


def take(value: Value, members: Any) -> Value:
    """Returns the value of some members, given by their numbers."""
    if isinstance(value, Stacked):
        array = jnp.take(value.array, members, axis=-1, mode="clip") if value.batched else value.array
        return Stacked(array, value.ndim)
    entries = [jnp.take(x, members, mode="clip") if np.ndim(x) else x for x in value.elements.reshape(-1)]
    return Unstacked(object_array(entries, value.shape), value.dtype)


def put(value: Value, members: Any, new: Value) -> Value:
    """Returns a value over all lanes with the values of some members, ascending, replaced; see `Lanes.put`."""

    def of(x: Any, n: Any) -> Any:
        return x.at[..., members].set(n, mode="drop", indices_are_sorted=True, unique_indices=True)

    leaves, treedef = jax.tree.flatten(value)
    return jax.tree.unflatten(treedef, list(map(of, leaves, jax.tree.leaves(new))))


def map_lanes(fn: Callable[[Any], Any], value: Value) -> Value:
    """Returns a value whose arrays over lanes a function has replaced; what all members share stays."""
    if isinstance(value, Stacked):
        return Stacked(fn(value.array), value.ndim) if value.batched else value
    entries = [fn(x) if np.ndim(x) else x for x in value.elements.reshape(-1)]
    return Unstacked(object_array(entries, value.shape), value.dtype)


def shared_and_large(value: Value) -> bool:
    """Whether all members share a value that is too large to be unstacked."""
    return isinstance(value, Stacked) and shared(value)


def shared(value: Value) -> bool:
    """Whether all members share a value."""
    return not value.batched if isinstance(value, Stacked) else all(np.ndim(x) == 0 for x in value.elements.reshape(-1))
