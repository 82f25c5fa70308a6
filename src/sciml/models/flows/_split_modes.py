"""Fourier modes of a box in three dimensions whose fields are split over devices along the first axis.

A device has a slab of a field, whole along the last two axes, and transforms it along these. One all-to-all then makes
the first axis whole, and splits the modes of the second. So modes are the modes of `jnp.fft.rfftn`, split along the
second axis, and operations on single modes are local.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ...spatial import Grid
from ...spatial._blocks import AbstractBlocks


class Resolved(NamedTuple):
    """The modes that take part in products.

    Attributes:
        points: The points along each axis where fields are multiplied.
        highest: The highest mode along each axis that takes part.
    """

    points: tuple[int, ...]
    highest: tuple[int, ...]


def check_domain(blocks: AbstractBlocks | None, grid: Grid, model: str) -> None:
    """Refuses a domain that splits more than the first axis.

    Raises:
        ValueError: If it does, or does not split that.
    """
    if blocks is not None and [blocks.planned(axis) > 1 for axis in range(3)] not in (
        [True, False, False],
        [False] * 3,
    ):
        raise ValueError(
            f'`{model}(domain=...)` must split only the first axis of {grid}, `Domain(("x", None, None))`, so that '
            "a transform needs one all-to-all."
        )


def everything(shape: tuple[int, ...]) -> Resolved:
    """Returns the grid as it is, with all of its modes."""
    return Resolved(shape, tuple(n // 2 for n in shape))


def transform(u: Float[Array, "..."], shape: tuple[int, ...], kept: Resolved, blocks: AbstractBlocks) -> Array:
    """Returns a block of the modes of a grid of a shape, from slabs of fields on the points of `kept`."""
    u = _resized(jnp.fft.rfft(u, axis=-1), -1, kept.points[2], shape[2], kept.highest[2], True)
    u = _resized(jnp.fft.fft(u, axis=-2), -2, kept.points[1], shape[1], kept.highest[1], False)
    u = blocks.exchange_all(u, 0, split=u.ndim - 2, whole=u.ndim - 3)
    return _resized(jnp.fft.fft(u, axis=-3), -3, kept.points[0], shape[0], kept.highest[0], False)


def inverse(modes: Complex[Array, "..."], shape: tuple[int, ...], kept: Resolved, blocks: AbstractBlocks) -> Array:
    """Returns slabs of fields on the points of `kept`, from a block of the modes of a grid of a shape."""
    u = _resized(modes, -3, shape[0], kept.points[0], kept.highest[0], False)
    u = blocks.exchange_all(jnp.fft.ifft(u, axis=-3), 0, split=u.ndim - 3, whole=u.ndim - 2)
    u = jnp.fft.ifft(_resized(u, -2, shape[1], kept.points[1], kept.highest[1], False), axis=-2)
    return jnp.fft.irfft(_resized(u, -1, shape[2], kept.points[2], kept.highest[2], True), kept.points[2], axis=-1)


def part(x: Any, blocks: AbstractBlocks) -> Array:
    """Returns values that broadcast to all modes, for the modes of this device."""
    x = jnp.asarray(x)
    return x if x.ndim < 2 or x.shape[-2] == 1 else blocks.part_of(x, 0, x.ndim - 2)


def _resized(modes: Array, axis: int, here: int, there: int, highest: int, half: bool) -> Array:
    """The modes of `here` points as modes of `there` points, zero above the highest one."""
    if here == there and highest >= here // 2:
        return modes
    at = modes.ndim + axis
    cut: Callable[[int, int], Array] = lambda start, stop: jnp.take(modes, np.arange(start, stop), axis=at)  # noqa: E731
    zeros: Callable[[int], Array] = lambda n: jnp.zeros((*modes.shape[:at], n, *modes.shape[at + 1 :]), modes.dtype)  # noqa: E731
    if half:
        parts = [cut(0, highest + 1), zeros(there // 2 - highest)]
    else:
        parts = [cut(0, highest + 1), zeros(there - 2 * highest - 1), cut(here - highest, here)]
    found = jnp.concatenate(parts, at)
    return found if here == there else found * (there / here)
