"""Blocks as the rows of zarr arrays, which xarray, dask and other languages read as one data set."""

import os
import pathlib
import zlib
from typing import Any

import numpy as np
from jaxtyping import PyTree

from . import _atomic
from ._abstract import AbstractStore
from ._pytree_names import from_named, to_named


class ZarrStore(AbstractStore):
    """A folder with one zarr array per leaf, whose rows are the rows of all blocks, one after another. Needs zarr.

    Every block but the last has the same number of rows in each of its leaves, and is one chunk, so that blocks may be
    put in any order. A block counts as there once all of its chunks are written.

    Args:
        path: The folder; made when first written to. The arrays are in the zarr group `frames.zarr` within it.

    Example:
        ```python
        import sciml

        store = sciml.stores.ZarrStore("decay")  # for `simulate(..., store=store)`
        assert store.numbers() == []
        ```
    """

    def __init__(self, path: str | os.PathLike):
        self._path = _atomic.folder_of(path, where="ZarrStore")
        self._markers = self._path / "blocks"
        self._ready = False

    def __repr__(self) -> str:
        return f"ZarrStore({str(self._path)!r})"

    @property
    def path(self) -> pathlib.Path:
        """The folder."""
        return self._path

    def put(self, number: int, tree: PyTree) -> None:
        """Writes a block; see `AbstractStore`.

        Raises:
            StoreError: If it cannot be written, or its rows do not fit those of the other blocks.
        """
        if not self._ready:
            for folder in (self._path, self._markers):
                _atomic.clear_leftovers(_atomic.make_folder(folder))
            self._ready = True
        named = to_named(tree)
        lengths = {name: x.shape[:1] for name, x in named.items()}
        if any("|" in name for name in named) or len(set(lengths.values())) != 1 or () in lengths.values():
            raise _atomic.StoreError(
                f"A block of {self} must hold arrays of numbers that zarr knows, with the same number of rows, but has "
                f"the rows {lengths}. `NpzStore` takes any arrays."
            )
        (rows,) = next(iter(lengths.values()))
        size = self._rows(number, rows)
        try:
            group = _zarr().open_group(self._path / "frames.zarr", mode="a")
            for name, x in named.items():
                array = self._array(group, name, x, size)
                first = number * size
                if array.shape[0] < first + rows:
                    array.resize((first + rows, *x.shape[1:]))
                array[first : first + rows] = x
        except OSError as error:
            raise _atomic.StoreError(
                f"Block {number} of {self} could not be written: {error}. What was written before is intact: run the "
                "same call again with `resume=True` to go on from there."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise _atomic.StoreError(
                f"Block {number} of {self} could not be written: what zarr knows of its arrays was damaged or is of "
                f"another run ({type(error).__name__}: {error}). Give another path."
            ) from error
        checks = {name: _checksum(x) for name, x in named.items()}
        _atomic.write_json(self._marker(number), {"rows": rows, "names": list(named), "crc32": checks})

    def get(self, number: int, like: PyTree = None) -> PyTree:
        """Reads a block; see `AbstractStore`."""
        if not self.has(number):
            raise _atomic.StoreError(f"{self} has no block {number}; it has {self.numbers()}.")
        zarr = _zarr()
        try:
            marker = _atomic.read_json(self._marker(number))
            group = zarr.open_group(self._path / "frames.zarr", mode="r")
            rows, checks = int(marker["rows"]), marker["crc32"]
            first = number * self._rows(number, rows)
            named = {name: np.asarray(group[_plain(name)][first : first + rows]) for name in marker["names"]}
        except MemoryError:  # says nothing about the files
            raise
        except PermissionError as error:
            raise _atomic.StoreError(f"Block {number} of {self} cannot be read: {error}.") from error
        except Exception as error:  # damaged chunks and metadata raise errors of many kinds
            raise self._damaged(number, f"{type(error).__name__}: {error}") from error
        # zarr reads a chunk whose file is gone as zeros, and other bytes as other numbers
        for name, x in named.items():
            if len(x) != rows or _checksum(x) != checks.get(name):
                raise self._damaged(number, f"`{name}` is not what was written, or a file is gone")
        return from_named(named, like, where=str(self))

    def _damaged(self, number: int, why: str) -> _atomic.DamagedBlockError:
        return _atomic.DamagedBlockError(
            f"Block {number} of {self} cannot be read: {why}. If its files were damaged, `remove({number})` it: what "
            "is missing is computed again where the run allows it."
        )

    def numbers(self) -> list[int]:
        """Returns the numbers of the blocks; see `AbstractStore`."""
        return sorted(int(p.stem) for p in self._markers.glob("*.json"))

    def has(self, number: int) -> bool:
        """Returns whether a block is there."""
        return self._marker(number).exists()

    def remove(self, number: int) -> None:
        """Makes a block count as absent; its rows stay until they are written again."""
        self._marker(number).unlink(missing_ok=True)

    def _marker(self, number: int) -> pathlib.Path:
        return self._markers / f"{int(number):07d}.json"

    def _rows(self, number: int, rows: int) -> int:
        """Returns how many rows a block has: from the manifest, or those of the block that is put first."""
        size = (self.read_manifest() or {}).get("block")
        if size is None and self.numbers():
            size = _atomic.read_json(self._marker(self.numbers()[0]))["rows"]
        size = rows if size is None else int(size)
        if rows > size:
            raise _atomic.StoreError(f"Block {number} of {self} has {rows} rows, more than the {size} of the others.")
        return size

    def _array(self, group: Any, name: str, x: np.ndarray, size: int) -> Any:
        name = _plain(name)
        if name in group:
            return group[name]
        return group.create_array(
            name,
            shape=(0, *x.shape[1:]),
            chunks=(size, *(max(1, n) for n in x.shape[1:])),
            dtype=x.dtype,
            dimension_names=["time", *(f"{name}_{i}" for i in range(x.ndim - 1))],
        )


def _checksum(x: np.ndarray) -> int:
    kind = zlib.crc32(f"{x.dtype.str}{x.shape}".encode())
    return zlib.crc32(np.ascontiguousarray(x).data.cast("B"), kind) if x.size else kind


def _plain(name: str) -> str:
    return name.replace("/", ".")


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("`ZarrStore` needs zarr: `pip install 'sciml-jax[io]'`. `NpzStore` needs nothing.") from error
    return zarr
