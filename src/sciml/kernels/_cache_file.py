"""The file of measurements on a machine: the best tiles of stencils, and the trusted kernels.

It is a JSON file that may go at any time. A file that cannot be read is not changed, with one line in the log.
"""

import functools
import json
import logging
import os
import pathlib
import sys
import threading
from typing import Any

VARIABLE = "SCIML_KERNEL_PLANS"
"""The environment variable that names another file."""

_FORMAT = 1

_SECTIONS = ("plans", "verdicts")

_LOG = logging.getLogger("sciml.kernels")


def cache_file(cache: str | os.PathLike | None = None) -> pathlib.Path:
    """Returns the file: the given one, the file of the environment variable, or the one in the user's cache folder."""
    if cache is not None or (cache := os.environ.get(VARIABLE)):
        return pathlib.Path(cache).expanduser()
    home = pathlib.Path.home()
    if sys.platform == "win32":
        folder = os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local"
    elif sys.platform == "darwin":
        folder = home / "Library" / "Caches"
    else:
        folder = os.environ.get("XDG_CACHE_HOME") or home / ".cache"
    return pathlib.Path(folder) / "sciml" / "stencils.json"


def entries(section: str) -> dict[str, Any]:
    """Returns the entries of one of its sections, by keys; empty if there is no file."""
    path = cache_file()
    try:
        seen = os.stat(path)
    except OSError:
        return {}
    return _read(path, seen.st_mtime_ns, seen.st_size).get(section, {})


def store(path: pathlib.Path, section: str, key: str, entry: dict[str, Any]) -> bool:
    """Adds an entry to the file; returns whether that was possible."""
    whole: dict[str, Any] = {}
    try:
        whole = _sections_in(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        warn_unused(path, str(error))
    whole = {"plans": {}} | whole
    whole[section] = whole.get(section, {}) | {key: entry}
    text = json.dumps({"format": _FORMAT, **whole}, indent=1, sort_keys=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # not by `tempfile`, whose files nobody else may read
        name = f"{path}.{os.getpid()}.{threading.get_ident()}.part"
        try:
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, path)  # another process reads the old file or the new one, and no half of either
        except BaseException:
            pathlib.Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        _LOG.warning("measurements are not saved, because %s cannot be written: %s", path, error)
        return False
    return True


@functools.cache
def warn_unused(path: pathlib.Path, reason: str) -> None:
    """Logs once that the contents of a file are not used."""
    _LOG.warning("the kernel measurements in %s are not used: %s", path, reason)


@functools.lru_cache(maxsize=8)
def _read(path: pathlib.Path, changed: int, size: int) -> dict[str, dict[str, Any]]:
    """The sections of a file in the state that it has since it was changed."""
    del changed, size
    try:
        return _sections_in(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        warn_unused(path, f"{type(error).__name__}: {error}")
        return {}


def _sections_in(text: str) -> dict[str, dict[str, Any]]:
    """The sections in the text of a file.

    Raises:
        ValueError: If it is not such a text.
    """
    whole = json.loads(text)
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        raise ValueError(f"it is not a file of format {_FORMAT}")
    sections = {name: whole[name] for name in _SECTIONS if name in whole}
    if "plans" not in sections or not all(isinstance(x, dict) for x in sections.values()):
        raise ValueError(f"it is not a file of format {_FORMAT}")
    return sections
