"""How the members of a batch run: over lanes, one after another, or batched by JAX.

Over lanes the members are the last axis of every array. Small states gain most by that; a large field is slower on a
CPU: nothing of it stays in the cache while each member takes a step, and loops over few members are short. There
each member runs to its end before the next begins, with as many steps as it needs itself.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._choices import choices
from ..._jax import _marks
from ..._jax._platform import default_platform
from ..._jax._shards import as_one_of_many, parts_of_members, shardable
from ...kernels._lanes import batched
from ..methods._stepper import AbstractStepper

_STRIDE, _LINE = 2048, 64
"""At which distance in bytes two numbers share a place in a cache, or nearly so, and the size of a line."""


class Batch(NamedTuple):
    """The members that one call computes.

    Attributes:
        lanes: The number of members in the last axis of arrays; None for one member without that axis.
        sequential: The number of members that run one after another, on all devices; what they keep for a gradient adds
            up.
    """

    lanes: int | None
    sequential: int = 1

    def share(self, memory: int) -> int:
        """Returns how many of the bytes that all members may keep are there for these."""
        return memory // self.sequential


Function = Callable[[Batch, Any, PyTree], PyTree]
"""`fn(batch, flags, tree)`: `flags` says which leaves of `tree` have lanes, and all leaves of the result have them."""


def members_of(stepper: AbstractStepper, y0: PyTree = None) -> Callable[[Function], Callable[[PyTree], PyTree]]:
    """Returns how the members of a batch run: what makes a function of one member's tree.

    Args:
        stepper: The method.
        y0: One member's state, where members may run one after another.
    """
    if not stepper.traits.elementwise:
        return one_by_one
    large = sum(math.prod(x.shape) for x in jax.tree.leaves(y0)) >= choices().batching.one_by_one_from
    return sequential if large and default_platform() == "cpu" else over_lanes


def pad_to_vector(count: int, itemsize: int) -> int:
    """Returns a number of lanes, no less, over which a CPU works with vectors from the first lane to the last.

    LLVM vectorises the long loops of a step where it can unroll them, and does not where their number of iterations is
    odd: a stiff step for 999 members takes several times as long as one for 1000.

    Args:
        count: The number of members.
        itemsize: The size of a number in bytes.
    """
    if default_platform() != "cpu":
        return count
    multiple = _LINE // itemsize  # a line of the cache, or less where that adds too many lanes
    while (added := -count % multiple) * choices().batching.spare_lanes > count:
        multiple //= 2
    return count + added


def pad_against_aliasing(count: int, itemsize: int) -> int:
    """Returns an aligned number of lanes at which hundreds of arrays over them, one behind the other, fit a cache.

    If their size is a multiple of a large power of two, the entries of one lane all fall on the same few cache lines.

    Args:
        count: The number of members.
        itemsize: The size of a number in bytes.
    """
    lanes = pad_to_vector(count, itemsize)
    if lanes == 0 or default_platform() != "cpu" or lanes * itemsize % _STRIDE:
        return lanes
    return lanes + _LINE // itemsize


def repeated(tree: PyTree, flags: PyTree[bool], lanes: int) -> PyTree:
    """Returns arrays over a number of lanes: lanes without a member get the values of the last member.

    Args:
        tree: Arrays.
        flags: The leaves that have lanes.
        lanes: How many to fill.
    """

    def fill(x: Any, has_lanes: bool) -> Any:
        if not has_lanes or x.shape[-1] == lanes:
            return x
        last = jnp.repeat(x[..., -1:], lanes - x.shape[-1], axis=-1)
        return jnp.concatenate([x, last], axis=-1)

    return jax.tree.map(fill, tree, flags)


def over_lanes(fn: Function) -> Callable[[PyTree], PyTree]:
    """Runs members over lanes, of which a few may be added; see `pad_to_vector`."""

    def run(batch: Batch, flags: Any, tree: PyTree) -> PyTree:
        sizes = [x.dtype.itemsize for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
        if batch.lanes is None or not sizes:
            return fn(batch, flags, tree)
        # added lanes repeat the last member, so no lane takes more steps than a member does
        lanes = pad_to_vector(batch.lanes, max(sizes))
        with _marks.over_lanes(batch.lanes):
            out = fn(Batch(lanes, batch.sequential), flags, repeated(tree, flags, lanes))
        return jax.tree.map(lambda x: x[..., : batch.lanes], out)

    return _merged(run)


def _merged(fn: Function) -> Callable[[PyTree], PyTree]:
    """Merges nested `jax.vmap`s into one axis of members."""

    def member(tree: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(tree)

        def flat(count, flags, *leaves):
            return fn(Batch(count), jax.tree.unflatten(treedef, flags), jax.tree.unflatten(treedef, leaves))

        return batched(flat)(*leaves)

    return member


def sequential(fn: Function) -> Callable[[PyTree], PyTree]:
    """Runs one member after another."""

    def run(batch: Batch, flags: Any, tree: PyTree) -> PyTree:
        count = batch.lanes
        if count is None:
            return fn(batch, flags, tree)
        leaves, treedef = jax.tree.flatten(tree)
        has_lanes = jax.tree.leaves(flags)
        none = jax.tree.unflatten(treedef, [False] * len(leaves))
        every = count * parts_of_members()  # those of other devices, too: what is kept has one shape everywhere

        def one(own):
            rest = iter(own)
            mine = [next(rest) if has else x for x, has in zip(leaves, has_lanes)]
            with as_one_of_many():
                return fn(Batch(None, every), none, jax.tree.unflatten(treedef, mine))

        own = [jnp.moveaxis(x, -1, 0) for x, has in zip(leaves, has_lanes) if has]
        with _marks.one_by_one(count), _marks.chosen("batching.one_by_one_from"):
            return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), jax.lax.map(one, own))

    return _merged(run)


def one_by_one(fn: Function) -> Callable[[PyTree], PyTree]:
    """Leaves members to JAX, which batches a member's program as it does any other; on each device its own."""

    def one(tree: PyTree) -> PyTree:
        tree = jax.tree.map(lambda x: x if isinstance(x, jax.Array) else jnp.asarray(x), tree)
        with as_one_of_many():
            return fn(Batch(None), jax.tree.map(lambda _: False, tree), tree)

    def run(batch: Batch, flags: Any, tree: PyTree) -> PyTree:
        if batch.lanes is None:
            return one(tree)
        axes = jax.tree.map(lambda has: -1 if has else None, flags)
        return jax.vmap(one, in_axes=(axes,), out_axes=-1, axis_size=batch.lanes)(tree)

    return _merged(run) if shardable() else one
