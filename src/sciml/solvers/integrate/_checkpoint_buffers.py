"""A record of a loop of unknown length in a fixed number of slots.

Slot `k` holds what the loop carried before iteration `k * stride`. Whenever the slots are full, the stride doubles and
every second slot is given up. So the kept iterations are evenly spread, and the others can be computed again from them.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..._jax._loops import while_loop
from ..._jax._shards import on_mesh_of
from ..._jax._vma import rows_like, typed_sharding


@jax.tree_util.register_pytree_node_class
class Buffers:
    """Arrays with one item in each slot (first axis).

    Scalars share one array, since a loop spends more on a write than on what it writes: integers and
    truth values are stored in it as floating-point numbers, which represent them exactly.
    """

    def __init__(self, scalars: PyTree, arrays: list, like: tuple):
        self.scalars = scalars
        self.arrays = arrays
        self.like = like

    def tree_flatten(self):
        return (self.scalars, self.arrays), self.like

    @classmethod
    def tree_unflatten(cls, aux, children):
        scalars, arrays = children
        return cls(scalars, arrays, aux)

    @classmethod
    def blank(cls, item: PyTree[jax.ShapeDtypeStruct | Array], count: int) -> "Buffers":
        """Returns `count` slots for items like `item`, arrays or their shapes; what is in them is unspecified."""
        leaves, treedef = jax.tree.flatten(item)
        floats = [x.dtype for x in leaves if x.shape == () and jnp.issubdtype(x.dtype, jnp.floating)]
        common = max(floats, key=lambda d: d.itemsize, default=None)
        packed = tuple(_packs(x, common) for x in leaves)
        scalars = jnp.zeros((count, sum(packed)), common) if any(packed) else None
        scalars = on_mesh_of(next((x for x in leaves if typed_sharding(x) is not None), None), scalars)
        # XLA would make equal fillings once and copy them, one core at a time: twice the work and more
        unpacked = [x for x, p in zip(leaves, packed) if not p]
        # booleans are false: an unwritten entry is not an accepted step
        fillings = [0 if x.dtype == jnp.bool_ else number for number, x in enumerate(unpacked)]
        arrays = [rows_like(count, x, number) for number, x in zip(fillings, unpacked)]
        return cls(scalars, arrays, (treedef, packed, tuple(x.dtype for x in leaves)))

    def columns(self) -> PyTree[Array]:
        """Returns an array for each leaf of the items, the slots first: the same for one member as for many with lanes.

        JAX takes what a rule keeps for one member as the type of what it keeps for each of many, in a `cond` whose
        predicate differs between members.
        """
        treedef, packed, dtypes = self.like
        rest, table = iter(self.arrays), iter(() if self.scalars is None else list(self.scalars.T))
        leaves = [next(table).astype(d) if p else next(rest) for p, d in zip(packed, dtypes)]
        return jax.tree.unflatten(treedef, leaves)

    @classmethod
    def of(cls, columns: PyTree[Array]) -> "Buffers":
        """Returns the buffers that `columns` came from, or those with lanes if they have got lanes since."""
        leaves, treedef = jax.tree.flatten(columns)
        return cls(None, leaves, (treedef, (False,) * len(leaves), tuple(x.dtype for x in leaves)))

    def pack(self, item: PyTree[Array]) -> "Packed":
        """Returns an item as it is stored in a slot."""
        _, packed, _ = self.like
        leaves = jax.tree.leaves(item)
        row = None
        if self.scalars is not None:
            row = jnp.stack([x.astype(self.scalars.dtype) for x, p in zip(leaves, packed) if p])
        return Packed(row, [x for x, p in zip(leaves, packed) if not p])

    def unpack(self, found: "Packed") -> PyTree[Array]:
        """Returns the item that was packed."""
        treedef, packed, dtypes = self.like
        rest, row = iter(found.arrays), iter(() if found.row is None else list(found.row))
        leaves = [next(row).astype(d) if p else next(rest) for p, d in zip(packed, dtypes)]
        return jax.tree.unflatten(treedef, leaves)

    def write(self, slot: Int[Array, ""], item: "Packed") -> "Buffers":
        """Returns the buffers with a packed item in `slot`."""
        scalars = None if item.row is None else _put(self.scalars, slot, item.row)
        return Buffers(scalars, [_put(b, slot, x) for b, x in zip(self.arrays, item.arrays)], self.like)

    def read(self, slot: Int[Array, ""]) -> "Packed":
        """Returns the item in `slot`, packed."""
        row = None if self.scalars is None else _get(self.scalars, slot)
        return Packed(row, [_get(b, slot) for b in self.arrays])

    def write_rows(self, first: Int[Array, ""], items: "list[Packed]") -> "Buffers":
        """Returns the buffers with packed items in the slots from `first` on, by one write for each array."""
        new = jax.tree.map(lambda *rows: jnp.stack(rows), *items)
        write = partial(jax.lax.dynamic_update_slice_in_dim, axis=0, allow_negative_indices=False)
        scalars = None if new.row is None else write(self.scalars, new.row, start_index=first)
        arrays = [write(b, x, start_index=first) for b, x in zip(self.arrays, new.arrays)]
        return Buffers(scalars, arrays, self.like)

    def move(self, source: Int[Array, ""], target: Int[Array, ""]) -> "Buffers":
        """Returns the buffers with the item of one slot in another."""
        return jax.tree.map(lambda b: _put(b, target, _get(b, source)), self)


class Packed(NamedTuple):
    """An item as it is stored in a slot.

    Attributes:
        row: Its scalars; None where there are none.
        arrays: Its other arrays.
    """

    row: Array | None
    arrays: list[Array]


def _packs(leaf: Any, common: Any) -> bool:
    if common is None or leaf.shape != ():
        return False
    small = jnp.issubdtype(leaf.dtype, jnp.integer) or leaf.dtype == jnp.bool_
    return small or leaf.dtype == common


def _put(buffer: Array, slot: Int[Array, ""], item: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(buffer, item, slot, 0, allow_negative_indices=False)


def _get(buffer: Array, slot: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_index_in_dim(buffer, slot, 0, keepdims=False, allow_negative_indices=False)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Record:
    """The slots, and the stride between their iterations.

    Attributes:
        slots: The slots, and after them one as a bin.
        stride: The number of iterations between two slots.
        capacity: The number of slots.
    """

    slots: Buffers
    stride: Int[Array, ""]
    capacity: int = dataclasses.field(metadata={"static": True})


def blank(item: PyTree[jax.ShapeDtypeStruct | Array], count: int, stride: int = 1) -> Record:
    """Returns an empty record of every `stride`-th iteration, with `count` slots for items like `item`."""
    return Record(Buffers.blank(item, count + 1), jnp.full((), stride, jnp.int32), count)


def full_at(record: Record) -> Int[Array, ""]:
    """Returns the iteration at which the record will be full."""
    return record.capacity * record.stride


def put(record: Record, iteration: Int[Array, ""], item: PyTree[Array]) -> Record:
    """Returns the record with the item of an iteration, if that is one to be kept; a slot must be free."""
    # what is not kept goes into the bin: a conditional would copy the slots
    kept = jax.lax.rem(iteration, record.stride) == 0
    slot = jnp.where(kept, jax.lax.div(iteration, record.stride), record.capacity)
    return dataclasses.replace(record, slots=record.slots.write(slot, record.slots.pack(item)))


def get(slots: Buffers, stride: Int[Array, ""], iteration: Int[Array, ""]) -> tuple[Int[Array, ""], PyTree[Array]]:
    """Returns the last iteration up to a given one that a record has kept, and its item."""
    slot = jax.lax.div(iteration, stride)
    return slot * stride, slots.unpack(slots.read(slot))


def thin(record: Record, iteration: Int[Array, ""]) -> Record:
    """Returns the record with a slot for `iteration`: unchanged, or with every second slot given up."""
    half = record.capacity // 2
    full = iteration >= full_at(record)

    def move(carry):
        slot, slots = carry
        return slot + 1, slots.move(2 * slot, slot)

    # a loop of no iterations instead of a conditional, which would copy the slots
    first = jnp.where(full, 0, half)
    _, slots = while_loop(lambda c: c[0] < half, move, (first, record.slots))
    return Record(slots, jnp.where(full, 2 * record.stride, record.stride), record.capacity)
