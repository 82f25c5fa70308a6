"""Packages and files that are loaded, which may be why a program is not the one that it was."""

import functools
import hashlib
import os
import sys
import types

from ._hasher import FOREIGN

FILE = "file "
"""Begins the entry of a module of the user; other entries are versions of packages."""


def sources() -> dict[str, str]:
    """Returns the versions of loaded packages, and a digest of the file of every other loaded module, by name."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        if not isinstance(module, types.ModuleType):
            continue
        known = object.__getattribute__(module, "__dict__")  # loads nothing that is imported lazily
        file, version = known.get("__file__"), known.get("__version__")
        if not isinstance(file, str):
            continue
        if not file.startswith(FOREIGN):
            digest = _digest_of(file)
            found |= {name: FILE + digest} if digest else {}
        elif "." not in name and isinstance(version, str):
            found[name] = version
    return found


def _digest_of(file: str) -> str | None:
    try:
        stat = os.stat(file)
        return _digest(file, stat.st_mtime_ns, stat.st_size) if file.endswith(".py") else None
    except OSError:
        return None


@functools.cache
def _digest(file: str, *changed: int) -> str:
    del changed  # only for the cache
    with open(file, "rb") as content:
        return hashlib.blake2b(content.read(), digest_size=4).hexdigest()
