"""The blocks of a sweep on disk, and what tells one sweep from another."""

import hashlib
import os
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..._warn import warn
from ...stores._abstract import AbstractStore
from ...stores._atomic import DamagedBlockError
from ...stores._fingerprint import Part, calls_python, describe, fingerprint, leaves_of, program as compiled
from ...stores._manifest import digest_of_run, open_run
from ...stores._npz_store import NpzStore
from ...stores._zarr_store import ZarrStore
from ..members._generated import Generated, lowered_text
from ..members._pytree import is_array
from ._batches import BlockPlan
from ._executable import BlockResult, SweepSpec


def open_store(store: Any, *, rows_only: bool) -> AbstractStore:
    """Returns the store that `store`, a folder or a store, stands for.

    Args:
        store: The argument of `sweep`.
        rows_only: Whether all that is written has a row for each member, and every member one.

    Raises:
        TypeError: If it is neither.
        ValueError: If it cannot hold the blocks of this sweep.
    """
    if isinstance(store, (str, os.PathLike)):
        return NpzStore(store)
    if not isinstance(store, AbstractStore):
        raise TypeError(f"`sweep`: `store` must be a folder or a store of `sciml.stores`, got {type(store).__name__}.")
    if isinstance(store, ZarrStore) and not rows_only:
        raise ValueError(
            "`sweep`: a `ZarrStore` holds a row for each member, and neither reductions nor retries. Give a folder as "
            "`store`; `SweepResult.to_xarray().to_zarr(...)` writes the results as zarr."
        )
    return store


class StoredBlocks:
    """The blocks of one sweep in a store.

    Every block carries a digest: that of the run in the first pass, and of what they were made from in retries, which
    may be changed later. A block with another digest counts as missing, and so does one that was damaged.

    Args:
        store: The store.
        like: What a block returns.
        run: The digest of the run.
    """

    def __init__(self, store: AbstractStore, like: BlockResult, run: np.ndarray):
        self._store = store
        self._like = like
        self._run = run
        self._there = set(store.numbers())

    def read(self, number: int, ids: np.ndarray, origin: np.ndarray | None = None) -> BlockResult | None:
        """Returns a block, or None if it is not there; `origin` is what a retry is made from."""
        if number not in self._there:
            return None
        origin = self._run if origin is None else origin
        shapes, static = eqx.partition(self._tree(self._like, ids, origin), _has_shape)
        try:
            found = eqx.combine(self._store.get(number, shapes), static)
        except DamagedBlockError as error:
            warn(f"`sweep` computes block {number} of the store again: {error}")
            return None
        if not np.array_equal(found["origin"], np.tile(origin, (ids.size, 1))) or not np.array_equal(
            found["members"], ids
        ):
            return None
        return BlockResult(found["values"], found["status"], found["work"], found["summaries"])

    def write(self, number: int, ids: np.ndarray, result: BlockResult, origin: np.ndarray | None = None) -> None:
        """Writes a block, without the copies that fill it up."""
        origin = self._run if origin is None else origin
        self._store.put(number, eqx.filter(self._tree(result, ids, origin), _has_shape))

    def _tree(self, result: BlockResult, ids: np.ndarray, origin: np.ndarray) -> dict[str, Any]:
        def cut(x):
            if isinstance(x, jax.ShapeDtypeStruct):
                return jax.ShapeDtypeStruct((ids.size, *x.shape[1:]), x.dtype)
            return x[: ids.size] if is_array(x) else x

        members = jax.tree.map(cut, (result.values, result.status, result.work))
        values, status, work = members
        tree = {"values": values, "status": status, "work": work, "summaries": result.summaries}
        # one row for each member in every array, as a store that lays the blocks end to end needs it
        return {**tree, "members": ids, "origin": np.tile(origin, (ids.size, 1))}


def open_sweep(
    store: AbstractStore, spec: SweepSpec, members: Any, plan: BlockPlan, program: str, *, schedule: str, resume: bool
) -> np.ndarray:
    """Checks that a store is that of this sweep, or makes it so, and returns the digest of the sweep.

    Raises:
        StoreError: If it is another's, or holds any and `resume` is not set, or cannot be written to.
    """
    code = _code(program, spec, (spec.fn, spec.output, spec.reduce))
    found = fingerprint(
        members=_arrays(members),
        shared=_arrays(spec.shared),
        key=spec.key,
        block=plan.block,
        schedule=schedule,
        order=None if np.array_equal(plan.order, np.arange(plan.order.size)) else plan.order,
    )
    if isinstance(members, Generated):
        generator = compiled(lowered_text(members)).digest
        found.parts["generator"] = Part(generator, f"{len(members)} generated")
    for name, tree in (("members", members), ("shared", spec.shared)):  # by arrays alone, but named as the caller does
        named = eqx.filter(tree, is_array)
        found.parts[name] = Part(found.parts[name].digest, describe(named), leaves_of(name, named))
    text = describe(_named(spec.fn)) + ("" if spec.output is None else f" with output={describe(spec.output)}")
    # the program is also that of the members' shapes and the block
    found = found._replace(parts={"function": Part(code, text, follows=True), **found.parts})
    info = {"members": int(plan.order.size), "block": plan.block, "blocks": plan.blocks, "schedule": schedule}
    return digest_of_run(open_run(store, found, info, kind="sweep", resume=resume), store)


def stored_block(store: AbstractStore) -> int | None:
    """Returns the block size of the sweep that a store holds, if it holds any."""
    block = (store.read_manifest() or {}).get("block")
    return block if isinstance(block, int) else None


def origin_of(program: str, spec: SweepSpec, ids: np.ndarray) -> np.ndarray:
    """Returns a digest of what a retry is made from."""
    found = hashlib.blake2b(_code(program, spec, spec).encode(), digest_size=16)
    found.update(np.ascontiguousarray(ids).tobytes())
    return np.frombuffer(found.digest(), np.uint8)


def _arrays(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if is_array(x)]


def _code(program: str, spec: SweepSpec, holds: Any) -> str:
    """Returns a digest of a program and of arrays that its functions hold."""
    functions = (spec.fn, spec.output, spec.reduce) if calls_python(program) else ()
    return compiled(program, (_arrays(holds), functions)).digest


def _has_shape(x: Any) -> bool:
    return hasattr(x, "shape")


def _named(fn: Any) -> Any:
    while not hasattr(fn, "__qualname__") and hasattr(fn, "func"):
        fn = fn.func
    return fn
