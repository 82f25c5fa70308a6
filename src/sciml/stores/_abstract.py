"""What every store does: numbered blocks of a PyTree of arrays that are whole or absent, and a manifest."""

import abc
import pathlib
from typing import Any, ClassVar

from jaxtyping import PyTree

from . import _atomic


class AbstractStore(abc.ABC):
    """Numbered blocks of arrays under a manifest.

    A block, once put, is whole, whenever the process is killed. Blocks may be put in any order, and the same one
    twice; several processes may put different ones.

    Attributes:
        spans_hosts: Whether every process of a run that spans several puts its part of a block; otherwise one does.

    Example:
        ```python
        import sciml

        assert isinstance(sciml.stores.NpzStore("results"), sciml.stores.AbstractStore)
        ```
    """

    spans_hosts: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def path(self) -> pathlib.Path:
        """The folder."""

    @abc.abstractmethod
    def put(self, number: int, tree: PyTree) -> None:
        """Writes block `number`, a PyTree of arrays and numbers.

        Raises:
            StoreError: If it cannot be written; all other blocks are intact.
        """

    @abc.abstractmethod
    def get(self, number: int, like: PyTree = None) -> PyTree:
        """Returns block `number` as NumPy arrays.

        Args:
            number: The block.
            like: A PyTree whose structure, shapes and dtypes the block has. With None, returns arrays by name.

        Raises:
            StoreError: If there is no such block, or it cannot be read, or is not like that.
        """

    @abc.abstractmethod
    def numbers(self) -> list[int]:
        """Returns the numbers of the blocks that are there, ascending."""

    @abc.abstractmethod
    def remove(self, number: int) -> None:
        """Removes block `number` if it is there."""

    def has(self, number: int) -> bool:
        """Returns whether block `number` is there."""
        return number in self.numbers()

    def read_manifest(self) -> dict[str, Any] | None:
        """Returns the manifest, or None where none has been written."""
        path = self.path / "manifest.json"
        return _atomic.read_json(path) if path.exists() else None

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest, what JSON can hold.

        Raises:
            StoreError: If it cannot be written.
        """
        _atomic.make_folder(self.path)
        _atomic.write_json(self.path / "manifest.json", manifest)
