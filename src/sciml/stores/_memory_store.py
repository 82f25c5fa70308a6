"""Blocks in the host's memory, for runs that are not stored."""

from typing import Any

import numpy as np
from jaxtyping import PyTree

from ._abstract import AbstractStore
from ._atomic import StoreError
from ._pytree_names import from_named, to_named


class MemoryStore(AbstractStore):
    """Blocks in the host's memory."""

    def __init__(self):
        self._blocks: dict[int, dict[str, np.ndarray]] = {}
        self._manifest: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return "MemoryStore()"

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
