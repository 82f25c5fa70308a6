"""The file that `tune` writes and `select` reads: the best tiles for each kernel, update and field."""

import hashlib
import json
import pathlib
from typing import Any

import jax
from jaxtyping import PyTree

from ..._jax._vma import jax_version
from .. import _cache_file
from ._ghost_weights import ghost_weights_of
from ._kernel import Tiling
from ._update import StencilUpdate
from .mosaic._primitives import operations

_SECTION = "plans"


def cache_key(kernel: str, interpreted: bool, update: StencilUpdate, params: PyTree, fields: Any) -> str:
    """Returns the key of a plan: the device, JAX's version, the update's structure, shapes and dtype."""
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
    """Returns the stored result for a key, or None."""
    plans = _cache_file.entries(_SECTION)
    entry = plans.get(key)
    if entry is None:
        strange = [name for name, plan in plans.items() if not isinstance(plan, dict)]
        if strange:
            _cache_file.warn_unused(_cache_file.cache_file(), f"{strange[0]!r} has {plans[strange[0]]}")
        return None
    tiling = Tiling(*(entry.get(name, 0) for name in Tiling._fields)) if isinstance(entry, dict) else Tiling(0, 0)
    if all(type(n) is int and n > 0 for n in tiling):
        return tiling
    _cache_file.warn_unused(_cache_file.cache_file(), f"{key!r} has {entry}")
    return None


def store(path: pathlib.Path, key: str, tiling: Tiling, seconds: float) -> bool:
    """Stores a result; returns whether that was possible."""
    return _cache_file.store(path, _SECTION, key, {**tiling._asdict(), "seconds": seconds})
