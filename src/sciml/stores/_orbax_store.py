"""Blocks as Orbax checkpoints, for arrays that are spread over the devices of several hosts."""

import contextlib
import os
import pathlib
import shutil
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from . import _atomic, _lock
from ._abstract import AbstractStore
from ._pytree_names import base_of, from_named, name_of


class OrbaxStore(AbstractStore):
    """A folder with one Orbax checkpoint per block, to which every host writes its part. Needs orbax-checkpoint.

    For `simulate(..., checkpoints=OrbaxStore(path))` where one state spans hosts; a state on one host is stored faster
    by the npz files that `simulate` writes by default.

    Args:
        path: The folder, the same on all hosts; made when first written to.

    Example:
        ```python
        import sciml

        store = sciml.stores.OrbaxStore("checkpoints")  # for `simulate(..., checkpoints=store)`
        assert store.numbers() == []
        ```
    """

    spans_hosts: ClassVar[bool] = True

    def __init__(self, path: str | os.PathLike):
        self._path = _atomic.folder_of(path, where="OrbaxStore").absolute()

    @property
    def path(self) -> pathlib.Path:
        """The folder."""
        return self._path

    def put(self, number: int, tree: PyTree) -> None:
        """Writes a block; see `AbstractStore`."""
        named = {}
        for path, x in jax.tree_util.tree_leaves_with_path(tree):
            name = name_of(path)
            if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                name, x = f"{name}|key {jax.random.key_impl(x)}", jax.random.key_data(x)
            named[name] = x
        _atomic.make_folder(self._path)
        # processes of one run put their parts of a block at once; processes of several runs, one after another
        alone = jax.process_count() == 1
        turn = _lock.briefly(self._path / ".blocks.lock", str(self)) if alone else contextlib.nullcontext()
        try:
            with turn, _orbax().StandardCheckpointer() as checkpointer:
                checkpointer.save(self._block(number), named, force=True)
                checkpointer.wait_until_finished()
        except OSError as error:
            raise _atomic.StoreError(
                f"{str(self._block(number))!r} could not be written: {error}. Everything written before is intact."
            ) from error

    def get(self, number: int, like: PyTree = None) -> PyTree:
        """Reads a block; see `AbstractStore`. Arrays are placed on devices like the arrays of `like`."""
        if not self.has(number):
            raise _atomic.StoreError(f"{self} has no block {number}; it has {self.numbers()}.")
        layout = {
            name_of(path): x.sharding
            for path, x in jax.tree_util.tree_leaves_with_path(like)
            if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1
        }
        everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("all",)), PartitionSpec())
        wanted = {name_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(like)}
        orbax = _orbax()

        def target(name: str, x: Any) -> jax.ShapeDtypeStruct:
            sharding = layout.get(base_of(name), everywhere if jax.process_count() > 1 else None)
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

        try:
            with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
                known = checkpointer.metadata(self._block(number)).item_metadata
                if known is None:
                    raise _atomic.StoreError(
                        f"{str(self._block(number))!r} cannot be read: it is not a complete checkpoint."
                    )
                found = known.tree
                found = {name: target(name, x) for name, x in found.items() if like is None or base_of(name) in wanted}
                options = orbax.checkpoint_utils.construct_restore_args(found)
                arguments = orbax.args.PyTreeRestore(found, restore_args=options, partial_restore=True)
                named = checkpointer.restore(self._block(number), args=arguments)
        except (_atomic.StoreError, MemoryError):
            raise
        except (
            Exception
        ) as error:  # what is damaged, or removed by another process meanwhile, raises errors of many kinds
            raise _atomic.StoreError(
                f"{str(self._block(number))!r} cannot be read ({type(error).__name__}: {error})."
            ) from error
        return from_named(named, like, where=str(self._block(number)))

    def numbers(self) -> list[int]:
        """Returns the numbers of the blocks; see `AbstractStore`. Orbax names a block when it is whole."""
        return sorted(int(p.name) for p in self._path.glob("*") if p.name.isdigit() and p.is_dir())

    def remove(self, number: int) -> None:
        """Removes a block if it is there."""
        if jax.process_index() == 0:
            shutil.rmtree(self._block(number), ignore_errors=True)

    def _block(self, number: int) -> pathlib.Path:
        return self._path / f"{int(number):07d}"


def _orbax() -> Any:
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise ImportError("`OrbaxStore` requires orbax-checkpoint: `pip install 'sciml-jax[checkpoint]'`.") from error
    return orbax.checkpoint
