"""Files that are complete or absent: written to a temporary file, flushed to disk, then renamed."""

import errno
import itertools
import json
import os
import pathlib
import re
import socket
import time
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

# .NAME.NUMBER.HOST.PID.tmp: its writer can be checked, so that a living writer's file is not removed.
_LEFTOVER = re.compile(r"^\..+\.\d+\.(?P<host>[^.]+)\.(?P<pid>\d+)\.tmp$")
_OTHER_HOST_SECONDS = 24 * 3600.0

_numbers = itertools.count()
_in_flight: set[str] = set()  # the names of this process's own files that are being written

_CAUSES = {
    errno.ENOSPC: "the disk is full. Free some space, or use a folder on another disk",
    errno.EDQUOT: "the disk quota is used up. Free some space, or use a folder on another disk",
    errno.EACCES: "writing there is not permitted. Use a folder that this user may write to",
    errno.EPERM: "writing there is not permitted. Use a folder that this user may write to",
    errno.EROFS: "the file system is read-only. Use a folder that can be written to",
    errno.ENOTDIR: "a part of the path is a file, not a folder. Use another folder",
    errno.EEXIST: "there is a file of that name, not a folder. Use another folder",
    errno.EIO: "the device reported an error",
}


class StoreError(RuntimeError):
    """Raised if results cannot be written or read, or do not belong to the run that requests them."""


class DamagedBlockError(StoreError):
    """Raised if a block was changed after it was written; a sweep computes such a block again.

    Example:
        ```python
        import pathlib
        import numpy as np
        from sciml.stores import DamagedBlockError, NpzStore

        NpzStore("some").put(0, {"u": np.ones(100)})
        file = pathlib.Path("some/block_0000000.npz")
        file.write_bytes(file.read_bytes()[:500])
        try:
            NpzStore("some").get(0)
        except DamagedBlockError as error:
            assert "block_0000000.npz" in str(error)
        ```
    """


def folder_of(path: str | os.PathLike, *, where: str) -> pathlib.Path:
    """Returns the path of a store.

    Raises:
        ValueError: If it is empty.
    """
    if os.fspath(path) == "":
        raise ValueError(
            f"`{where}`: the path of a store is empty. Pass the name of a folder, '.' for the current one."
        )
    return pathlib.Path(path)


def make_folder(path: str | os.PathLike) -> pathlib.Path:
    """Returns a folder that exists and can be written to, made where it was missing.

    Raises:
        StoreError: If it cannot be made or written to.
    """
    folder = pathlib.Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = _beside(folder / "probe")
        _in_flight.add(probe.name)  # or a thread that clears leftovers removes it between the two calls
        try:
            probe.touch()
            probe.unlink()
        finally:
            _in_flight.discard(probe.name)
    except OSError as error:
        raise StoreError(f"The folder {str(folder)!r} cannot be used: {cause_of(error)}.") from error
    return folder


def write(path: str | os.PathLike, fill: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file such that a reader finds the old one or the whole new one, whenever the writer dies.

    Args:
        path: The file, in a folder that exists.
        fill: Writes the content to an open file.

    Raises:
        StoreError: If the file cannot be written, for example because of a full disk; existing files are intact.
    """
    path = pathlib.Path(path)
    try:
        replace(path, fill)
    except OSError as error:
        raise StoreError(
            f"{str(path)!r} could not be written: {cause_of(error)}. Everything written before is intact: repeat the "
            "same call with `resume=True` to continue."
        ) from error


def replace(path: pathlib.Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file as `write` does, with the permissions of any new file; errors are system errors.

    Raises:
        OSError: If the file cannot be written; an earlier one is intact.
    """
    beside = _beside(path)
    _in_flight.add(beside.name)
    try:
        try:
            _write_through(beside, "wb", fill)
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)
    finally:
        _in_flight.discard(beside.name)


def create(path: str | os.PathLike, content: bytes) -> bool:
    """Writes a file where there is none, whole and at once; returns whether there was none.

    Of several processes that call this at the same time, one gets True because it wrote the file.

    Raises:
        StoreError: If the file cannot be written.
    """
    path = pathlib.Path(path)
    beside = _beside(path)
    _in_flight.add(beside.name)
    try:
        try:
            _write_through(beside, "xb", lambda file: file.write(content))
            _link(beside, path, content)
        finally:
            beside.unlink(missing_ok=True)
        _flush_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreError(f"{str(path)!r} could not be written: {cause_of(error)}.") from error
    finally:
        _in_flight.discard(beside.name)
    return True


def _link(beside: pathlib.Path, path: pathlib.Path, content: bytes) -> None:
    """Gives a file its name unless there is one of that name."""
    try:
        os.link(beside, path)
        return
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        pass
    _write_through(path, "xb", lambda file: file.write(content))


def _write_through(path: pathlib.Path, mode: str, fill: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file, down to the disk."""
    with open(path, mode) as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes a JSON file atomically; see `write`."""
    content = json_bytes(value)
    write(path, lambda file: file.write(content))


def json_bytes(value: Any) -> bytes:
    """Returns a value as the text of a JSON file."""
    return (json.dumps(value, indent=1, allow_nan=True) + "\n").encode()


def read_json(path: str | os.PathLike) -> Any:
    """Returns the content of a JSON file.

    Raises:
        StoreError: If it cannot be read.
    """
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        raise StoreError(f"{str(path)!r} cannot be read: {error}.") from error


def write_npz(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name to an npz file atomically; see `write`."""

    def fill(file: IO[bytes]) -> None:  # as `numpy.savez`, which takes no array of the name "file"
        with zipfile.ZipFile(file, "w") as archive:
            for name, x in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(x), allow_pickle=False)

    write(path, fill)


def read_npz(path: str | os.PathLike, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, np.ndarray]:
    """Returns the arrays of an npz file by name, those with a wanted name.

    Raises:
        StoreError: If it cannot be read.
    """
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            # `numpy.load` takes the array "a" for one of the name "a.npy"
            members = {member.removesuffix(".npy"): member for member in archive.namelist()}
            return {name: _read_member(archive, member) for name, member in members.items() if wanted(name)}
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be read: {cause_of(error)}.") from error
    except MemoryError:  # says nothing about the file
        raise
    except Exception as error:  # a damaged zip raises errors of many kinds
        raise DamagedBlockError(
            f"{str(path)!r} cannot be read: it is not a complete npz file of arrays ({type(error).__name__}: {error}). "
            "If it was damaged or truncated, delete it: missing blocks are recomputed if the run supports it."
        ) from error


def _read_member(archive: zipfile.ZipFile, member: str) -> np.ndarray:
    with archive.open(member) as content:
        return np.lib.format.read_array(content, allow_pickle=False)


def clear_leftovers(folder: str | os.PathLike) -> list[str]:
    """Removes what killed writers left half written, and returns the names; a living writer's files stay.

    A writer on this machine is checked by its process id. A process on another machine cannot be checked, and its file
    is removed when it is a day old.
    """
    removed = []
    for path in pathlib.Path(folder).glob(".*.tmp"):
        found = _LEFTOVER.match(path.name)
        if not found:
            continue
        try:
            if found["host"] != _host():
                gone = time.time() - path.stat().st_mtime > _OTHER_HOST_SECONDS
            else:
                gone = path.name not in _in_flight and not _alive(int(found["pid"]))
            if gone:
                path.unlink()
                removed.append(path.name)
        except FileNotFoundError:  # its writer was alive and has finished
            continue
        except OSError as error:
            raise StoreError(f"The leftover {str(path)!r} cannot be removed: {cause_of(error)}.") from error
    return removed


def _beside(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.{next(_numbers)}.{_host()}.{os.getpid()}.tmp")


def _host() -> str:
    return re.sub(r"[^\w-]", "-", socket.gethostname()) or "host"


def _alive(pid: int) -> bool:
    """Whether another process of this machine has that number."""
    if pid == os.getpid():
        return False  # an earlier process had this number, as the first one of a container always has
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's process, or a system that cannot tell
        return True
    return True


def _flush_folder(folder: pathlib.Path) -> None:
    # the new name itself must survive a power cut; not every system can open a folder
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def cause_of(error: OSError) -> str:
    """Returns an error of the operating system in words, with a remedy where there is one."""
    known = _CAUSES.get(error.errno or 0)
    return f"{error.strerror or error} ({known})" if known else str(error)
