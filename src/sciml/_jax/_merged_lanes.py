"""Two batch axes of members as one axis of lanes, each device with the members that it had."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from ._vma import typed_sharding


class Merging(NamedTuple):
    """How an outer batch axis joins the lanes, and how results come apart again.

    Lanes vary fastest. If their axis is sharded by its type, members are in the order of the devices that they are on,
    and within a device in this order: nothing moves between devices. Nobody asks for the order of lanes.

    Attributes:
        count: The number of lanes.
        size: The length of the outer axis.
        mesh: The mesh on which lanes are sharded by their type; None where they are not.
        outer: The axes of the mesh over which the outer axis is sharded.
        inner: The axes over which lanes are.
    """

    count: int
    size: int
    mesh: Any = None
    outer: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()

    def merge(self, x: Any, old: bool, new: bool) -> Any:
        """Returns an array with all lanes last.

        Args:
            x: The array.
            old: Whether it has lanes, last.
            new: Whether it has the outer axis, first.
        """
        if not old and not new:
            return x
        x = x if old else x[..., None]
        x = jnp.moveaxis(x, 0, -2) if new else x[..., None, :]
        shape = x.shape[:-2]
        x = jnp.broadcast_to(x, (*shape, self.size, self.count))
        if self.mesh is None:
            return jax.lax.reshape(x, (*shape, self.size * self.count), out_sharding=_without_last(x))
        a, b = self._parts()
        rest = _spec(x)[:-2]
        x = jax.sharding.reshard(x, self._sharding(*rest, self.outer, self.inner))
        apart = self._sharding(*rest, self.outer, None, self.inner, None)
        x = jax.lax.reshape(x, (*shape, a, self.size // a, b, self.count // b), out_sharding=apart)
        whole = self._sharding(*rest, self.outer + self.inner)
        return jax.lax.reshape(jnp.swapaxes(x, -3, -2), (*shape, self.size * self.count), out_sharding=whole)

    def split(self, x: Array) -> Array:
        """Returns an array with all lanes first, with the outer axis and the lanes in their place."""
        shape = (self.size, self.count, *x.shape[1:])
        sharding = typed_sharding(x)
        if self.mesh is None:
            if sharding is not None:
                sharding = NamedSharding(sharding.mesh, PartitionSpec(sharding.spec[0], None, *sharding.spec[1:]))
            return jax.lax.reshape(x, shape, out_sharding=sharding)
        a, b = self._parts()
        rest = _spec(x)[1:]
        x = jax.sharding.reshard(x, self._sharding(self.outer + self.inner, *rest))
        apart = self._sharding(self.outer, self.inner, None, None, *rest)
        x = jax.lax.reshape(x, (a, b, self.size // a, self.count // b, *x.shape[1:]), out_sharding=apart)
        return jax.lax.reshape(jnp.swapaxes(x, 1, 2), shape, out_sharding=self._sharding(self.outer, self.inner, *rest))

    def _parts(self) -> tuple[int, int]:
        """Returns into how many parts the outer axis and the lanes are cut."""
        return tuple(math.prod(self.mesh.shape[name] for name in names) for names in (self.outer, self.inner))

    def _sharding(self, *parts: Any) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*(part or None for part in parts)))


def merging_of(arrays: Sequence[Any], old: Sequence[bool], new: Sequence[bool], count: int, size: int) -> Merging:
    """Returns how an outer batch axis joins the lanes of some arrays.

    Args:
        arrays: The arrays.
        old: The ones that have lanes, last.
        new: The ones that have the outer axis, first.
        count: The number of lanes.
        size: The length of the outer axis.
    """
    found = [(x, typed_sharding(x)) for x in arrays]
    meshes = [sharding.mesh for _, sharding in found if sharding is not None]
    outer = [_names(_spec(x)[0]) for (x, kind), has in zip(found, new) if has and kind is not None]
    inner = [_names(_spec(x)[-1]) for (x, kind), has in zip(found, old) if has and kind is not None]
    outer, inner = (next(filter(None, names), ()) for names in (outer, inner))
    if not inner or set(outer) & set(inner):  # an axis cannot cut both
        return Merging(count, size)
    return Merging(count, size, meshes[0], outer, inner)


def _spec(x: Any) -> tuple[Any, ...]:
    sharding = typed_sharding(x)
    parts = () if sharding is None else tuple(sharding.spec)
    return parts + (None,) * (x.ndim - len(parts))


def _without_last(x: Any) -> NamedSharding | None:
    sharding = typed_sharding(x)
    return None if sharding is None else NamedSharding(sharding.mesh, PartitionSpec(*_spec(x)[:-1]))


def _names(part: Any) -> tuple[str, ...]:
    return () if part is None else part if isinstance(part, tuple) else (part,)
