"""Blocks as the rows of zarr arrays, which xarray, dask and other languages read as one data set."""

import collections
import hashlib
import os
import pathlib
import re
import unicodedata
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import PyTree

from . import _atomic, _lock
from ._abstract import AbstractStore
from ._pytree_names import from_named, to_named

_UNSAFE = '~\\:*?"<>|'
"""Characters that do not occur in names: the sign of escaped ones, and characters that some disks do not support."""

_LONGEST = 200
"""Bytes of a name; disks take 255."""


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

    @property
    def path(self) -> pathlib.Path:
        """The folder."""
        return self._path

    def put(self, number: int, tree: PyTree) -> None:
        """Writes a block; see `AbstractStore`.

        Raises:
            StoreError: If it cannot be written, or its rows do not fit the rows of the other blocks.
        """
        if not self._ready:
            for folder in (self._path, self._markers):
                _atomic.clear_leftovers(_atomic.make_folder(folder))
            self._ready = True
        named = to_named(tree)
        lengths = {name: x.shape[:1] for name, x in named.items()}
        if any("|" in name for name in named) or len(set(lengths.values())) != 1 or () in lengths.values():
            raise _atomic.StoreError(
                f"A block of {self} must contain arrays of a dtype that zarr supports, with equal numbers of rows, but "
                f"has {lengths} rows. `NpzStore` supports all arrays."
            )
        (rows,) = next(iter(lengths.values()))
        size = self._rows(number, rows)
        first = number * size
        places = array_names(named)
        try:
            with _lock.briefly(self._path / ".arrays.lock", str(self)):  # others make the same arrays, or longer ones
                group = _zarr().open_group(self._path / "frames.zarr", mode="a")
                arrays = {name: self._array(group, places[name], x, size, first + rows) for name, x in named.items()}
            for name, x in named.items():
                arrays[name][first : first + rows] = x
        except OSError as error:
            raise _atomic.StoreError(
                f"Block {number} of {self} could not be written: {error}. Everything written before is intact: repeat "
                "the same call with `resume=True` to continue."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise _atomic.StoreError(
                f"Block {number} of {self} could not be written: the zarr metadata was damaged or belongs to "
                f"another run ({type(error).__name__}: {error}). Use another path."
            ) from error
        checks = {name: _checksum(x) for name, x in named.items()}
        _atomic.write_json(self._marker(number), {"rows": rows, "arrays": places, "crc32": checks})

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
            places = marker.get("arrays") or {name: _plain(name) for name in marker["names"]}
            named = {name: np.asarray(group[place][first : first + rows]) for name, place in places.items()}
        except MemoryError:  # says nothing about the files
            raise
        except PermissionError as error:
            raise _atomic.StoreError(f"Block {number} of {self} cannot be read: {error}.") from error
        except Exception as error:  # damaged chunks and metadata raise errors of many kinds
            raise self._damaged(number, f"{type(error).__name__}: {error}") from error
        # zarr reads a chunk whose file is gone as zeros, and other bytes as other numbers
        for name, x in named.items():
            if len(x) != rows or _checksum(x) != checks.get(name):
                raise self._damaged(number, f"`{name}` was changed, or a file is missing")
        return from_named(named, like, where=str(self))

    def _damaged(self, number: int, why: str) -> _atomic.DamagedBlockError:
        return _atomic.DamagedBlockError(
            f"Block {number} of {self} cannot be read: {why}. If its files were damaged, call `remove({number})`: "
            "missing blocks are recomputed if the run supports it."
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
        """Returns the number of rows of a block: from the manifest, or from the block that is put first."""
        size = (self.read_manifest() or {}).get("block")
        if size is None and self.numbers():
            size = _atomic.read_json(self._marker(self.numbers()[0]))["rows"]
        size = rows if size is None else int(size)
        if rows > size:
            raise _atomic.StoreError(f"Block {number} of {self} has {rows} rows, but the others have {size}.")
        return size

    def _array(self, group: Any, name: str, x: np.ndarray, size: int, length: int) -> Any:
        """Returns the array of a leaf, which has that many rows or more; made or made longer where it must be."""
        if name in group:
            array = group[name]
            if array.shape[0] < length:
                array.resize((length, *x.shape[1:]))
            return array
        return group.create_array(
            name,
            shape=(length, *x.shape[1:]),
            chunks=(size, *(max(1, n) for n in x.shape[1:])),
            dtype=x.dtype,
            dimension_names=["time", *(f"{name}_{i}" for i in range(x.ndim - 1))],
        )


def _checksum(x: np.ndarray) -> int:
    kind = zlib.crc32(f"{x.dtype.str}{x.shape}".encode())
    return zlib.crc32(np.ascontiguousarray(x).data.cast("B"), kind) if x.size else kind


def array_names(names: Iterable[str]) -> dict[str, str]:
    """Returns the names of the arrays of leaves: with dots instead of slashes, and a digest if that is not possible.

    It will not do if two names would be one, as "a/b" and "a.b" would, also on disks that do not tell capitals, or if
    zarr or a disk would not take the name.
    """
    plain = {name: _plain(name) for name in names}
    counts = collections.Counter(map(_folded, plain.values()))
    return {name: x if counts[_folded(x)] == 1 and _is_safe(x) else _escaped(name) for name, x in plain.items()}


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _is_safe(name: str) -> bool:
    """Whether zarr and every disk support a name (of a folder), and zarr does not use that name itself."""
    if name.startswith("__") or name == "zarr.json" or not name.strip(". ") or any(x in name for x in _UNSAFE):
        return False
    return name.isprintable() and len(name.encode()) <= _LONGEST


def _escaped(name: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", _plain(name)).strip("._")[:60]
    return f"{readable}~{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"


def _plain(name: str) -> str:
    return name.replace("/", ".")


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError(
            "`ZarrStore` requires zarr: `pip install 'sciml-jax[io]'`. `NpzStore` requires nothing."
        ) from error
    return zarr
