"""Differences between the centres of cells and their faces, of fields that go on behind walls as images of themselves.

On the doubled, periodic grid of field and images the differences are each other's negative transpose, at any order and
beside any coefficients: what they make keeps its energy.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..spatial import Grid
from ..spatial._weights import midway

KINDS = ("rigid", "free", "periodic")

Sides = tuple[tuple[str, str], ...]
"""The kind of wall at both sides of each axis."""


def read_sides(grid: Grid, boundary: str | Mapping[str, str], name: str, known_kinds: tuple[str, ...] = KINDS) -> Sides:
    """Returns the walls at the sides, from one kind for all or kinds by the names of axes and sides.

    Args:
        grid: The grid.
        boundary: What is given.
        name: The model, for messages.
        known_kinds: The kinds that there are; one of them is `"periodic"`.

    Raises:
        TypeError: If the kinds are no words.
        ValueError: If a side has none, or a kind is unknown, or one end of an axis is periodic and the other is not.
    """
    if not isinstance(boundary, str | Mapping):
        raise TypeError(
            f"`{name}(boundary=...)` must be one of {known_kinds}, or a mapping of sides to these, but is {boundary}."
        )
    kinds = dict.fromkeys(grid.names, boundary) if isinstance(boundary, str) else dict(boundary)
    known = {side for axis in grid.names for side in (axis, f"{axis}-", f"{axis}+")}
    found = []
    for axis in grid.names:
        pair = tuple(kinds.get(f"{axis}{end}", kinds.get(axis)) for end in "-+")
        if None in pair or (pair[0] == "periodic") != (pair[1] == "periodic") or not set(pair) <= set(known_kinds):
            raise ValueError(
                f"`{name}(boundary=...)` must be one of {known_kinds} for both sides along {axis}, periodic at both or "
                f"at neither, but is {pair}."
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


def slope(p: Float[Array, "..."], axis: int, pair: tuple[str, str], order: int, spacing: float) -> Array:
    """Returns the derivative of a pressure at the faces across an axis, from its values at centres."""
    n, width = p.shape[axis], order // 2
    if pair[0] == "periodic":
        padded = jnp.concatenate([_cut(p, axis, n - width, n), p, _cut(p, axis, 0, width - 1)], axis)
    else:
        images = [_image(_cut(p, axis, 0, width), axis, pair[0] == "free")]
        images.append(_image(_cut(p, axis, n - width, n), axis, pair[1] == "free"))
        padded = jnp.concatenate([images[0], p, images[1]], axis)
    return _differences(padded, axis, order, spacing)


def divergence(v: Float[Array, "..."], axis: int, pair: tuple[str, str], order: int, spacing: float) -> Array:
    """Returns the derivative of a velocity at the centres along an axis, from its values at faces."""
    n, width = v.shape[axis], order // 2
    if pair[0] == "periodic":
        padded = jnp.concatenate([_cut(v, axis, n - width + 1, n), v, _cut(v, axis, 0, width)], axis)
    else:
        images = [_image(_cut(v, axis, 1, width), axis, pair[0] == "rigid")]
        images.append(_image(_cut(v, axis, n - width, n - 1), axis, pair[1] == "rigid"))
        padded = jnp.concatenate([images[0], v, images[1]], axis)
    return _differences(padded, axis, order, spacing)


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
