"""Differences between cell centres and faces, of fields that continue behind walls as images of themselves.

On the doubled, periodic grid of field and images the differences are each other's negative transpose, at any order and
with any coefficients, so that they conserve energy.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...spatial import Grid
from ...spatial._blocks import AbstractBlocks
from ...spatial._weights import midway

KINDS = ("rigid", "free", "periodic")

Sides = tuple[tuple[str, str], ...]
"""The kind of wall at both sides of each axis."""


def read_sides(grid: Grid, boundary: str | Mapping[str, str], name: str, known_kinds: tuple[str, ...] = KINDS) -> Sides:
    """Returns the walls at the sides, from one kind for all or kinds by the names of axes and sides.

    Args:
        grid: The grid.
        boundary: The given conditions.
        name: The model, for messages.
        known_kinds: The kinds that there are; one of them is `"periodic"`.

    Raises:
        TypeError: If the kinds are not strings.
        ValueError: If a side has none, or a kind is unknown, or one end of an axis is periodic and the other is not.
    """
    if not isinstance(boundary, str | Mapping):
        raise TypeError(
            f"`{name}(boundary=...)` must be one of {known_kinds}, or a mapping from sides to these, but is {boundary}."
        )
    kinds = dict.fromkeys(grid.names, boundary) if isinstance(boundary, str) else dict(boundary)
    known = {side for axis in grid.names for side in (axis, f"{axis}-", f"{axis}+")}
    found = []
    for axis in grid.names:
        pair = tuple(kinds.get(f"{axis}{end}", kinds.get(axis)) for end in "-+")
        if None in pair or (pair[0] == "periodic") != (pair[1] == "periodic") or not set(pair) <= set(known_kinds):
            raise ValueError(
                f"`{name}(boundary=...)` must be one of {known_kinds} for both sides along {axis}, with either both or "
                f"neither periodic, but is {pair}."
            )
        found.append(pair)
    if not set(kinds) <= known:
        raise ValueError(
            f"`{name}(boundary=...)` names sides {sorted(set(kinds) - known)}; {grid} has {sorted(known)}."
        )
    return tuple(found)


def face_names(sides: Sides, axis: int) -> tuple[str, ...]:
    """Returns the location of the faces across an axis; see `sciml.spatial.Grid`."""
    across = "lower" if sides[axis][0] == "periodic" else "node"
    return tuple(across if a == axis else "center" for a in range(len(sides)))


def slope(
    p: Float[Array, "..."],
    axis: int,
    pair: tuple[str, str],
    order: int,
    spacing: float,
    blocks: AbstractBlocks | None = None,
) -> Array:
    """Returns the derivative of a pressure at the faces across an axis, from its values at centres."""
    n, width = p.shape[axis], order // 2
    _check_block(n, axis, order, blocks)
    ahead = width if pair[0] != "periodic" else width - 1
    layers = _cut(p, axis, 0, ahead), _cut(p, axis, n - width, n)
    low, high = _beyond(layers, axis, pair, "free", blocks)
    return _differences(jnp.concatenate([low, p, high], axis), axis, order, spacing)


def divergence(
    v: Float[Array, "..."],
    axis: int,
    pair: tuple[str, str],
    order: int,
    spacing: float,
    blocks: AbstractBlocks | None = None,
) -> Array:
    """Returns the derivative of a velocity at the centres along an axis, from its values at faces."""
    n, width = v.shape[axis], order // 2
    _check_block(n, axis, order, blocks)
    if pair[0] == "periodic":
        layers = _cut(v, axis, 0, width), _cut(v, axis, n - width + 1, n)
    else:  # without the face itself that block and image share, as two blocks do
        layers = _cut(v, axis, 1, width), _cut(v, axis, n - width, n - 1)
    low, high = _beyond(layers, axis, pair, "rigid", blocks)
    return _differences(jnp.concatenate([low, v, high], axis), axis, order, spacing)


def _beyond(
    layers: tuple[Array, Array], axis: int, pair: tuple[str, str], odd: str, blocks: AbstractBlocks | None
) -> tuple[Array, Array]:
    """The layers beyond both ends of an axis: images of its end layers, the opposite layers, or a neighbour's."""
    first, last = layers
    closed, split = pair[0] != "periodic", blocks is not None and blocks.devices(axis) > 1
    made = (_image(first, axis, pair[0] == odd), _image(last, axis, pair[1] == odd)) if closed else (last, first)
    if not split:
        return made
    assert blocks is not None
    around = blocks.neighbours(first, last, axis, closed)
    return blocks.at_edges(made, around, axis) if closed else around


def _check_block(n: int, axis: int, order: int, blocks: AbstractBlocks | None) -> None:
    """Refuses blocks that hold fewer layers than their neighbours read."""
    if n < order // 2 and blocks is not None:
        raise ValueError(
            f"differences of order {order} read {order // 2} halo layers, but along axis {axis} the "
            f"{blocks.devices(axis)} devices hold {n} layers each. Use fewer devices along it, or a lower order."
        )


def largest(order: int) -> float:
    """Returns the largest singular value of the differences for unit spacing."""
    return float(abs(midway(order, 1)).sum())


def _cut(u: Array, axis: int, start: int, stop: int) -> Array:
    return jax.lax.slice_in_dim(u, start, stop, axis=axis)


def _image(u: Array, axis: int, odd: bool) -> Array:
    image = jax.lax.rev(u, (axis,))
    return -image if odd else image


def _differences(padded: Any, axis: int, order: int, spacing: float) -> Array:
    """Differences of order `order` between neighbours, those farther away included."""
    padded = jax.lax.optimization_barrier(padded)  # or XLA computes the ghost cells once for each read
    weights, n = midway(order, 1) / spacing, padded.shape[axis] - order + 1
    total = None
    for j in range(order // 2):
        ahead, behind = order // 2 + j, order // 2 - 1 - j
        step = _cut(padded, axis, ahead, ahead + n) - _cut(padded, axis, behind, behind + n)
        term = float(weights[ahead]) * step
        total = term if total is None else total + term
    assert total is not None
    return total
