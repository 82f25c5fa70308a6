"""The frames of a run, read from its store on demand."""

import functools
import operator
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..stores._abstract import AbstractStore
from ..stores._atomic import StoreError


class Frames:
    """The saved frames, read block by block; like a sequence of PyTrees.

    Args:
        store: The store of the blocks.
        count: The number of frames.
        block: The number of frames in a block.
        like: A PyTree of the structure of a frame, or None for arrays by name.
        origin: The digest of the run that wrote them; None for frames in memory.
    """

    def __init__(self, store: AbstractStore, count: int, block: int, like: PyTree, origin: np.ndarray | None):
        self._origin = origin
        self._store, self._count, self.block = store, count, block
        self._structure = None if like is None else jax.tree.structure(like)
        self._read = functools.lru_cache(maxsize=4)(self._block)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> PyTree:
        if isinstance(at, slice):
            return self._some(np.arange(*at.indices(self._count)))
        if np.ndim(at) == 1:
            return self._some(np.arange(self._count)[list(at)])
        i = operator.index(at)
        if not -self._count <= i < self._count:
            raise IndexError(f"frame {i} does not exist: this run has {self._count} frames.")
        number, place = divmod(i % self._count, self.block)
        return jax.tree.map(lambda x: x[place], self._read(number))

    def __iter__(self) -> Iterator[PyTree]:
        return (self[i] for i in range(self._count))

    def _some(self, ids: np.ndarray) -> PyTree:
        """Returns frames by their numbers, with times first on every leaf."""
        if len(ids) == 0:
            return jax.tree.map(lambda x: x[:0], self._read(0)) if self._count else None
        pieces = []
        starts = np.flatnonzero(np.diff(ids // self.block, prepend=-1))
        for part in np.split(ids, starts[1:]):
            values = self._read(int(part[0]) // self.block)
            pieces.append(jax.tree.map(lambda x: x[part % self.block], values))
        return pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *xs: np.concatenate(xs), *pieces)

    def leaf(self, number: int) -> "Leaf":
        """Returns one leaf of all frames as an array that is read when it is indexed."""
        return Leaf(self, number)

    def _block(self, number: int) -> PyTree:
        if self._structure is None:
            named = self._store.get(number)
            self._check(number, named)
            of_values = (name for name in named if name not in ("time", "origin"))
            values = {name.removeprefix("values").removeprefix("/"): named[name] for name in of_values}
            return values[""] if list(values) == [""] else values
        leaves = range(self._structure.num_leaves)
        like = {"time": _Any(), "values": jax.tree.unflatten(self._structure, [_Any() for _ in leaves])}
        found = self._store.get(number, like if self._origin is None else {**like, "origin": _Any()})
        self._check(number, found)
        return found["values"]

    def _check(self, number: int, found: dict[str, Any]) -> None:
        if self._origin is not None and not np.all(found["origin"] == self._origin):
            raise StoreError(f"Block {number} of {self._store} belongs to another run, which writes to the same store.")


def check_frames(store: AbstractStore, count: int) -> None:
    """Checks that a store finds blocks of a run that has written frames.

    Raises:
        StoreError: If it finds none.
    """
    if count and not store.numbers():
        raise StoreError(
            f"{store} finds none of the {count} frames of its run. Open it with the options of the store that wrote "
            "it, such as `prefix`. Otherwise its blocks were removed."
        )


class _Any:
    """Stands for an array of any shape and dtype."""


class Leaf:
    """One leaf of all frames; indexing the first axis reads the blocks that it touches.

    Args:
        frames: The frames.
        number: The number of the leaf.
    """

    def __init__(self, frames: Frames, number: int):
        self._frames, self._number = frames, number
        first = jax.tree.leaves(frames[0])[number]
        self.shape = (len(frames), *first.shape)
        self.dtype = first.dtype

    def __getitem__(self, key: Any) -> np.ndarray:
        key = key if isinstance(key, tuple) else (key,)
        first, rest = (key[0] if key else slice(None)), key[1:]
        if isinstance(first, int | np.integer):
            return np.asarray(jax.tree.leaves(self._frames[first])[self._number][rest])
        ids = np.arange(len(self._frames))[first]
        leaf = jax.tree.leaves(self._frames._some(np.atleast_1d(ids)))[self._number]
        return leaf[(slice(None), *rest)]
