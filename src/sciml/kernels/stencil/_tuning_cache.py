"""The file that `tune` writes and `select` reads: for each kernel, update and field how they are best cut into tiles.

It is a JSON file that may go at any time. What cannot be read is left alone, with one line in the log.
"""

import functools
import hashlib
import json
import logging
import os
import pathlib
import sys
import tempfile
from typing import Any

import jax
from jaxtyping import PyTree

from ..._jax._vma import jax_version
from ._ghost_weights import ghost_weights_of
from ._kernel import Tiling
from ._update import StencilUpdate
from .mosaic._primitives import operations

VARIABLE = "SCIML_KERNEL_PLANS"
"""The environment variable that names another file."""

_FORMAT = 1

_LOG = logging.getLogger("sciml.kernels")


def cache_file(cache: str | os.PathLike | None = None) -> pathlib.Path:
    """Returns the file: the one given, that of the environment variable, or the one in the user's folder of caches."""
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


def cache_key(kernel: str, interpreted: bool, update: StencilUpdate, params: PyTree, fields: Any) -> str:
    """Returns what a plan is found by: the device, JAX's version, the update's structure, shapes and dtype."""
    like = fields[0]
    walls = [
        [None if pair is None else [list(wall.weights.shape) for wall in pair] for pair in sides]
        for sides in ghost_weights_of(update, like.ndim, like.dtype)
    ]
    reads = sorted(update.reads(like.ndim, like.dtype, params).items())
    names = update.fields + update.coefficients + update.inner
    structure = (
        [len(update.fields), len(update.coefficients), len(update.inner), update.radius, update.stages],
        [[shift, sorted(map(names.index, read))] for shift, read in reads],
        walls,
        operations(update, like.ndim, like.dtype, params),
    )
    digest = hashlib.sha256(json.dumps(structure).encode()).hexdigest()[:16]
    backend = f"{kernel}, interpreted" if interpreted else kernel
    version = ".".join(map(str, jax_version()))
    shape = "x".join(map(str, like.shape))
    return f"{jax.devices()[0].device_kind}; JAX {version}; {backend}; {shape} {like.dtype}; update {digest}"


def look_up(key: str) -> Tiling | None:
    """Returns what was found for a key, or None."""
    path = cache_file()
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return _read(path, seen.st_mtime_ns, seen.st_size).get(key)


def store(path: pathlib.Path, key: str, tiling: Tiling, seconds: float) -> bool:
    """Writes what was found, beside what the file holds; returns whether that was possible."""
    plans = {}
    try:
        plans = _plans_in(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        warn_unused(path, str(error))
    plans = plans | {key: {**tiling._asdict(), "seconds": seconds}}
    text = json.dumps({"format": _FORMAT, "plans": plans}, indent=1, sort_keys=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, path)  # another process reads the old file or the new one, and no half of either
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        _LOG.warning("what was tuned is not kept, because %s cannot be written: %s", path, error)
        return False
    return True


@functools.cache
def warn_unused(path: pathlib.Path, reason: str) -> None:
    """Says once that what a file holds is not used."""
    _LOG.warning("what is in %s on stencils is not used: %s", path, reason)


@functools.lru_cache(maxsize=8)
def _read(path: pathlib.Path, changed: int, size: int) -> dict[str, Tiling]:
    """The plans of a file in the state that it has since it was changed."""
    del changed, size
    found = {}
    try:
        plans = _plans_in(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        warn_unused(path, f"{type(error).__name__}: {error}")
        return {}
    for key, entry in plans.items():
        tiling = Tiling(*(entry.get(name, 0) for name in Tiling._fields)) if isinstance(entry, dict) else Tiling(0, 0)
        if all(type(n) is int and n > 0 for n in tiling):
            found[key] = tiling
        else:
            warn_unused(path, f"{key!r} has {entry}")
    return found


def _plans_in(text: str) -> dict[str, Any]:
    """The plans in the text of a file.

    Raises:
        ValueError: If it is no such text.
    """
    whole = json.loads(text)
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT or not isinstance(whole.get("plans"), dict):
        raise ValueError(f"it is no file of format {_FORMAT}")
    return whole["plans"]
