"""States of waves as blocks side by side, which `Domain.run` hands to its devices, and back.

A field at the nodes of an axis with ends has one more value than there are cells, also in every block: the node between
two blocks is an unknown of both. Of what layers remember only the first and the last block have a part.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._staggered_fields import Places, WaveFields

Layers = tuple[tuple[int, int], ...]


def read_domain(domain: Any, grid: Any, model: str) -> Any:
    """Returns the blocks of a grid in a domain, None where there is none.

    Raises:
        TypeError: If it is not a domain.
    """
    if domain is None:
        return None
    if not hasattr(domain, "blocks_of"):
        raise TypeError(f"`{model}(domain=...)` must be a `sciml.parallel.Domain`, or None, but is {domain!r}.")
    return domain.blocks_of(grid)


def to_blocks(x: Array, places: Places, name: str, remembered: int | None = None, layers: Layers = ()) -> Array:
    """Returns an array over the whole grid as blocks side by side.

    Args:
        x: The array; its last axes are the axes of the grid.
        places: The positions of fields.
        name: The field that it belongs to.
        remembered: The axis of the layers whose memory it is.
        layers: Their widths.

    Raises:
        ValueError: If the model has no domain, or its devices do not divide the cells.
    """
    for axis, count in _split(places):
        at = x.ndim - places.grid.ndim + axis
        if axis == remembered:
            (low, high), n = layers[axis], x.shape[at]
            if max(low, high) > places.grid.shape[axis] // count:
                raise ValueError(
                    f"absorbing layers of {max(low, high)} cells along {places.grid.names[axis]} must fit into one "
                    f"block, but {count} devices hold {places.grid.shape[axis] // count} each. Use fewer devices "
                    "along this axis, or thinner layers."
                )
            between = jnp.zeros((*x.shape[:at], (count - 1) * n, *x.shape[at + 1 :]), x.dtype)
            x = jnp.concatenate([_cut(x, at, 0, low), between, _cut(x, at, low, n)], at)
        elif axis in places.at_nodes(name) and not places.periodic[axis]:
            n = places.grid.shape[axis] // count
            x = jnp.take(x, np.concatenate([np.arange(n + 1) + n * k for k in range(count)]), axis=at)
    return x


def to_whole(x: Array, places: Places, name: str, remembered: int | None = None, layers: Layers = ()) -> Array:
    """Returns what `to_blocks` was given."""
    for axis, count in _split(places):
        at = x.ndim - places.grid.ndim + axis
        if axis == remembered:
            (low, high), n = layers[axis], x.shape[at]
            x = jnp.concatenate([_cut(x, at, 0, low), _cut(x, at, n - high, n)], at)
        elif axis in places.at_nodes(name) and not places.periodic[axis]:
            n = places.grid.shape[axis] // count
            kept = [np.arange(n) + (n + 1) * k for k in range(count)]
            x = jnp.take(x, np.concatenate([*kept, [count * (n + 1) - 1]]), axis=at)
    return x


def each_array(change: Callable[..., Array], y: WaveFields, places: Places, layers: Layers) -> WaveFields:
    """Returns a state of which every array is changed by `to_blocks` or `to_whole`."""
    fields = {name: change(u, places, name) for name, u in y.fields.items()}
    kept = {}
    for key, memory in y.layers.items():
        name, axis = key.split()
        kept[key] = change(memory, places, name, "xyz".index(axis), layers)
    media = tuple(
        {name: jax.tree.map(lambda x, name=name: change(x, places, name), one) for name, one in memory.items()}
        for memory in y.media
    )
    return WaveFields(fields, kept, media)


def _split(places: Places) -> list[tuple[int, int]]:
    """The axes that devices share, and how many of these there are."""
    if places.blocks is None:
        raise ValueError("the model runs on one device. Create it with `domain=`, a `sciml.parallel.Domain`.")
    counts = [(axis, places.blocks.planned(axis)) for axis in range(places.grid.ndim)]
    return [(axis, count) for axis, count in counts if count > 1]


def _cut(x: Array, at: int, start: int, stop: int) -> Array:
    return jax.lax.slice_in_dim(x, start, stop, axis=at)
