"""Runs whose state spans several processes: one of them writes, all decide alike.

Every process runs the same program on its devices, so that all must launch the same segments in the same order.
Decisions of the host that depend on its clock or its disk are therefore made by process 0 and sent to the others.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ._atomic import StoreError

_T = TypeVar("_T")


class Hosts(NamedTuple):
    """The processes that a run spans.

    Attributes:
        mesh: Their devices; None where the run is within this process.
    """

    mesh: Mesh | None = None

    @property
    def several(self) -> bool:
        """Whether the run spans several processes."""
        return self.mesh is not None

    @property
    def leads(self) -> bool:
        """Whether this process writes and decides."""
        return self.mesh is None or jax.process_index() == 0

    def whole(self, tree: _T) -> _T:
        """Returns arrays such that every process can read all of them; they may still be computed."""
        return tree if self.mesh is None else _everywhere(self.mesh)(tree)

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        """Returns the flags of the process that leads; all processes wait for each other."""
        if self.mesh is None:
            return flags
        from jax.experimental import multihost_utils  # only needed here, and not quick to import

        found = np.asarray(multihost_utils.broadcast_one_to_all(np.asarray(flags, np.int32)))
        return tuple(bool(flag) for flag in found)

    def lead(self, job: Callable[[], Any]) -> None:
        """Does something in the process that leads, while the others wait.

        Raises:
            StoreError: In all processes if it fails.
        """
        error = None
        if self.leads:
            try:
                job()
            except BaseException as found:  # noqa: BLE001, it is raised once the others know
                error = found
        (failed,) = self.agree(error is not None)
        if error is not None:
            raise error
        if failed:
            raise StoreError("Process 0 failed to write the results of this run. See the error of that process.")


@functools.cache
def _everywhere(mesh: Mesh) -> Callable[[_T], _T]:
    """Returns a function that gives every device all of its arguments."""
    return jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, PartitionSpec()))


def hosts_of(tree: PyTree) -> Hosts:
    """Returns the processes over which arrays are spread.

    Raises:
        ValueError: If an array that spans processes is not on a mesh.
    """
    for x in jax.tree.leaves(tree):
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            if not isinstance(x.sharding, NamedSharding) or not isinstance(x.sharding.mesh, Mesh):
                raise ValueError(
                    "A state that spans processes must be on a mesh, placed by `sciml.parallel.Domain.split` or "
                    f"`jax.sharding.NamedSharding`, but has the sharding {x.sharding}."
                )
            return Hosts(x.sharding.mesh)
    return Hosts()


def is_spread(x: Any) -> bool:
    """Whether a value is an array of which this process holds a part only."""
    return isinstance(x, jax.Array) and not x.is_fully_addressable and not x.is_fully_replicated


def checksum(x: Array) -> str:
    """Returns a checksum of an array that is spread over processes, the same however it is spread.

    Every word of 32 bits is scrambled together with its place, and all are added up: 128 bits.
    """
    return np.asarray(_checksum(x)).tobytes().hex()


@jax.jit
def _checksum(x: Array) -> Array:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = jnp.stack([x.real, x.imag], -1)
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    bits = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
    words = jax.lax.bitcast_convert_type(x, bits).astype(jnp.uint32)
    place = jnp.zeros(words.shape, jnp.uint32)
    for dim in range(words.ndim):
        place = _scramble(place + jax.lax.broadcasted_iota(jnp.uint32, words.shape, dim))
    sums = [jnp.sum(_scramble(words ^ _scramble(place + jnp.uint32(seed))), dtype=jnp.uint32) for seed in range(1, 5)]
    return jnp.stack(sums)


def _scramble(x: Array) -> Array:
    """The finalizer of MurmurHash3: every bit of the input changes about half of the output's."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> jnp.uint32(shift))) * jnp.uint32(factor)
    return x ^ (x >> jnp.uint32(16))
