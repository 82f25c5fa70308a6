"""Stores without further packages: blocks in the host's memory, and a folder of npz files."""

import os
import pathlib
import re
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from . import _atomic
from ._abstract import AbstractStore
from ._atomic import StoreError
from ._pytree_names import base_of, from_named, name_of, to_named


class MemoryStore(AbstractStore):
    """Blocks in the host's memory."""

    def __init__(self):
        self._blocks: dict[int, dict[str, np.ndarray]] = {}
        self._manifest: dict[str, Any] | None = None

    def put(self, number: int, tree: PyTree) -> None:
        """Keeps a block."""
        self._blocks[number] = to_named(tree)

    def get(self, number: int, like: PyTree = None) -> PyTree:
        """Returns a block."""
        if number not in self._blocks:
            raise StoreError(f"{self} has no block {number}; it has {self.numbers()}.")
        return from_named(self._blocks[number], like, where=str(self))

    def numbers(self) -> list[int]:
        """Returns the numbers of the blocks."""
        return sorted(self._blocks)

    def remove(self, number: int) -> None:
        """Removes a block."""
        self._blocks.pop(number, None)

    def read_manifest(self) -> dict[str, Any] | None:
        """Returns the manifest."""
        return self._manifest

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Keeps the manifest."""
        self._manifest = manifest


class NpzStore(AbstractStore):
    """A folder with one npz file per block, which `numpy.load` reads.

    A file is written to a temporary file and renamed once it is complete and on the disk. Files that a killed writer
    leaves half written are removed when the folder is next written to.

    Args:
        path: The folder; made when first written to.
        prefix: The start of the names of its files.

    Example:
        ```python
        import numpy as np
        import sciml

        store = sciml.stores.NpzStore("results")
        store.put(3, {"mean": np.zeros(2), "count": 5})
        assert store.numbers() == [3] and store.get(3)["mean"].shape == (2,)
        assert np.load("results/block_0000003.npz")["count"] == 5
        ```
    """

    def __init__(self, path: str | os.PathLike, *, prefix: str = "block"):
        self._path = _atomic.folder_of(path, where="NpzStore")
        self._prefix = prefix
        self._ready = False

    @property
    def path(self) -> pathlib.Path:
        """The folder."""
        return self._path

    def put(self, number: int, tree: PyTree) -> None:
        """Writes a block; see `AbstractStore`."""
        if not self._ready:
            _atomic.clear_leftovers(_atomic.make_folder(self._path))
            self._ready = True
        _atomic.write_npz(self._file(number), to_named(tree))

    def get(self, number: int, like: PyTree = None) -> PyTree:
        """Reads a block; see `AbstractStore`."""
        file = self._file(number)
        if not file.exists():
            raise _atomic.StoreError(f"{self} has no block {number}; it has {_shown(self.numbers())}.")
        if like is None:
            return from_named(_atomic.read_npz(file), where=str(file))
        names = {name_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(like)}
        named = _atomic.read_npz(file, lambda name: base_of(name) in names)
        return from_named(named, like, where=str(file))

    def numbers(self) -> list[int]:
        """Returns the numbers of the blocks; see `AbstractStore`."""
        found = (re.fullmatch(rf"{re.escape(self._prefix)}_(\d+)\.npz", p.name) for p in self._path.glob("*.npz"))
        return sorted(int(m[1]) for m in found if m)

    def has(self, number: int) -> bool:
        """Returns whether a block is there."""
        return self._file(number).exists()

    def remove(self, number: int) -> None:
        """Removes a block if it is there."""
        self._file(number).unlink(missing_ok=True)

    def _file(self, number: int) -> pathlib.Path:
        return self._path / f"{self._prefix}_{int(number):07d}.npz"


def _shown(numbers: list[int]) -> str:
    if not numbers:
        return "none"
    return f"{len(numbers)}, from {numbers[0]} to {numbers[-1]}"
