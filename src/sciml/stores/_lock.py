"""One writer at a time: locks of files, which the operating system releases when their holder ends, however it ends."""

import contextlib
import errno
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Iterator

from ._atomic import StoreError, cause_of

try:
    import fcntl
except ImportError:  # Windows: writers are told apart within one process only
    fcntl = None

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of file systems that have no locks; a run there relies on the user to start it once."""

_BUSY = {errno.EAGAIN, errno.EACCES}

_short = threading.Lock()  # on some network file systems a process does not exclude itself
_guard = threading.Lock()
_held: set[object] = set()  # what this process holds for the length of a run
_handles: set[int] = set()


def _forget() -> None:
    """Closes the files in a child that was forked, which would keep them locked after its parent has ended."""
    for handle in _handles:
        with contextlib.suppress(OSError):
            os.close(handle)
    _handles.clear()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def owned(key: object, what: str) -> Iterator[None]:
    """Keeps other threads of this process from something for the length of a run.

    Raises:
        StoreError: If another thread has it.
    """
    with _guard:
        if key in _held:
            raise StoreError(
                f"{what} is being written by another run in this process ({os.getpid()}). Wait until it ends and call "
                "again, or use another path."
            )
        _held.add(key)
    try:
        yield
    finally:
        with _guard:
            _held.discard(key)


@contextlib.contextmanager
def owned_file(path: pathlib.Path, what: str) -> Iterator[None]:
    """Keeps other runs, in any process, from something for the length of a run, by a file that names this process.

    Raises:
        StoreError: If another run has it; the message names its process.
    """
    with owned(os.path.realpath(path), what):
        handle = _take(path, what, wait=False)
        try:
            yield
        finally:
            _release(path, handle)


@contextlib.contextmanager
def briefly(path: pathlib.Path, what: str) -> Iterator[None]:
    """Waits until no other process or thread is within such a context of the same file."""
    with _short:
        handle = _take(path, what, wait=True)
        try:
            yield
        finally:
            _release(path, handle)


def _take(path: pathlib.Path, what: str, *, wait: bool) -> int | None:
    """Returns the handle of a file that this process has locked; None where there are no locks."""
    if fcntl is None:
        return None
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StoreError(f"{str(path)!r} cannot be written: {cause_of(error)}.") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if not _is_at(path, handle):  # the holder before has removed it meanwhile
                os.close(handle)
                continue
        except OSError as error:
            holder = os.pread(handle, 1000, 0)
            os.close(handle)
            if error.errno in _NO_LOCKS:
                return None
            if error.errno not in _BUSY:
                raise StoreError(f"{str(path)!r} cannot be locked: {cause_of(error)}.") from error
            raise StoreError(_busy(what, path, holder)) from error
        _handles.add(handle)
        os.ftruncate(handle, 0)
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        os.pwrite(handle, json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since}).encode(), 0)
        return handle


def _release(path: pathlib.Path, handle: int | None) -> None:
    if handle is None or handle not in _handles:
        return
    with contextlib.suppress(OSError):
        if _is_at(path, handle):
            path.unlink()
    _handles.discard(handle)
    os.close(handle)


def _is_at(path: pathlib.Path, handle: int) -> bool:
    """Whether an open file is the one that has the name now."""
    try:
        there, mine = os.stat(path), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _busy(what: str, path: pathlib.Path, holder: bytes) -> str:
    try:
        found = json.loads(holder)
        host, who = found["host"], f"process {found['pid']} on host {found['host']} since {found['since']}"
    except (ValueError, KeyError, TypeError):  # it has not written its name yet
        host, who = "", "another process"
    remedy = "Wait until it ends and call again, or use another path."
    if host not in ("", socket.gethostname()):
        remedy += f" If that host has crashed, delete {str(path)!r}."
    return f"{what} is being written by {who}. {remedy}"
