"""The interface of every store: numbered blocks of a PyTree of arrays that are complete or absent, and a manifest."""

import abc
import contextlib
import pathlib
import threading
from typing import Any, ClassVar

from jaxtyping import PyTree

from . import _atomic, _lock

_CREATING = threading.Lock()


class AbstractStore(abc.ABC):
    """Numbered blocks of arrays under a manifest: the storage of `simulate`, `iterate` and `sweep`.

    A block, once put, is whole, whenever the process is killed. Blocks may be put in any order, and the same one
    twice; several processes may put different ones.

    A custom store defines the location of blocks: `put`, `get`, `numbers` and `remove`. A store that is a folder also
    defines its `path`. The library writes to this folder itself, so these names are reserved: `manifest.json`,
    `checkpoints`, and all names that begin with a dot, such as `.lock`. A store that is not a folder overrides
    `read_manifest` and `write_manifest`, and `create_manifest` and `lock` if several processes share it; a run in it
    needs its own `checkpoints=` to resume after a crash. `to_named` and `from_named` convert PyTrees to arrays by name
    and back. `sciml.verify.check_store` checks all of it. The manifest contains the name of the class, and only that
    class or a subclass opens the run.

    Attributes:
        spans_hosts: Whether every process of a run that spans several puts its part of a block; otherwise one does.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.stores import AbstractStore, StoreError, from_named, to_named

        class DictStore(AbstractStore):
            def __init__(self):
                self._blocks, self._manifest = {}, None

            def put(self, number, tree):
                self._blocks[number] = to_named(tree)

            def get(self, number, like=None):
                if number not in self._blocks:
                    raise StoreError(f"There is no block {number}.")
                return from_named(self._blocks[number], like)

            def numbers(self):
                return sorted(self._blocks)

            def remove(self, number):
                self._blocks.pop(number, None)

            def read_manifest(self):
                return self._manifest

            def write_manifest(self, manifest):
                self._manifest = manifest

        options = dict(t0=0.0, t1=2.0, dt=0.1, save_every=0.5, progress=False)
        stores = dict(store=DictStore(), checkpoints=DictStore())
        run = sciml.simulate(lambda t, y, args: -y, jnp.ones(2), **stores, **options)
        assert len(run) == 5 and run.store.numbers() == [0]
        ```
    """

    spans_hosts: ClassVar[bool] = False

    def __repr__(self) -> str:
        try:
            return f"{type(self).__name__}({str(self.path)!r})"
        except _atomic.StoreError:
            return f"{type(self).__name__}()"

    @property
    def path(self) -> pathlib.Path:
        """The folder; by default there is none.

        Raises:
            StoreError: If the store is not a folder.
        """
        own = (type(self).read_manifest, type(self).write_manifest)
        if AbstractStore.read_manifest in own or AbstractStore.write_manifest in own:
            remedy = "Define `path`, or `read_manifest` and `write_manifest`."
        else:
            remedy = "Pass a path as `store` to write results to disk."
        # without `self`, whose text contains the path
        raise _atomic.StoreError(f"`{type(self).__name__}` is not a folder. {remedy}")

    @abc.abstractmethod
    def put(self, number: int, tree: PyTree) -> None:
        """Writes block `number`, replacing an existing one.

        Args:
            number: The block, from 0.
            tree: A PyTree of arrays, NumPy's or JAX's, and numbers. Later changes of these arrays by the caller need
                not show, but may.

        Raises:
            StoreError: If it cannot be written; all other blocks are intact.
            TypeError: If a leaf is neither an array nor a number.
        """

    @abc.abstractmethod
    def get(self, number: int, like: PyTree = None) -> PyTree:
        """Returns block `number` as NumPy arrays.

        Args:
            number: The block.
            like: A PyTree of the structure to return, of arrays or `jax.ShapeDtypeStruct` whose shapes and dtypes the
                block must have, or of other objects where these may be any. It may request only some of the arrays.
                With None, returns a dictionary of the arrays by name, such as "u" or "layers/0/weight", or the array
                where the block is nothing else.

        Raises:
            StoreError: If there is no such block, or it cannot be read, or is not like that: `DamagedBlockError` if it
                was changed after it was put, which a store must detect.
        """

    @abc.abstractmethod
    def numbers(self) -> list[int]:
        """Returns the numbers of the blocks that are there, ascending."""

    @abc.abstractmethod
    def remove(self, number: int) -> None:
        """Removes block `number` if it is there."""

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context within which no other run writes: `simulate`, `iterate` and `train` are within it.

        By default by the file `.lock` in `path`, which names the process. The operating system releases it when the
        process ends, also if it is killed. A store that is not a folder is locked within this process; a store that
        several processes share must override this method. Blocks of a sweep are put by several processes without a
        lock.

        Raises:
            StoreError: When the context is entered, if another run is within it.
        """
        try:
            folder = self.path
        except _atomic.StoreError:
            return _lock.owned(id(self), str(self))
        return _lock.owned_file(_atomic.make_folder(folder) / ".lock", str(self))

    def has(self, number: int) -> bool:
        """Returns whether block `number` is there; by default by `numbers`."""
        return number in self.numbers()

    def read_manifest(self) -> dict[str, Any] | None:
        """Returns the manifest, or None where none has been written; by default from a file in `path`.

        Raises:
            StoreError: If it cannot be read, or is not a manifest.
        """
        path = self.path / "manifest.json"
        if not path.exists():
            return None
        found = _atomic.read_json(path)
        if not isinstance(found, dict):
            raise _atomic.StoreError(
                f"{str(path)!r} must be a manifest, a JSON object, but contains a {type(found).__name__}: it was "
                "damaged or changed. Restore it, or use another path."
            )
        return found

    def create_manifest(self, manifest: dict[str, Any]) -> bool:
        """Writes the manifest where none has been written, and returns whether that was so.

        If several runs open one new store at the same time, only one gets True. By default by a file in `path`; a
        store with its own `write_manifest` checks first, under a lock of this process.

        Raises:
            StoreError: If it cannot be written.
        """
        if type(self).write_manifest is AbstractStore.write_manifest:
            _atomic.make_folder(self.path)
            return _atomic.create(self.path / "manifest.json", _atomic.json_bytes(manifest))
        with _CREATING:
            if self.read_manifest() is not None:
                return False
            self.write_manifest(manifest)
            return True

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest, a dictionary of JSON values, instead of the last; by default to a file in `path`.

        Raises:
            StoreError: If it cannot be written.
        """
        _atomic.make_folder(self.path)
        _atomic.write_json(self.path / "manifest.json", manifest)
