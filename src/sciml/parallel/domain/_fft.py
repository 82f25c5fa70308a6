r"""Fourier transforms of a field of which every device holds a part.

A transform along a dimension needs it whole. Dimensions that are whole are transformed where they are;
then an all-to-all makes the next one whole, by splitting one that is done:

- a slab, split along one dimension, takes one all-to-all;
- a pencil, three dimensions split along two, takes two;
- a field split along all its dimensions first hands over one of them, and takes one more.

The spectrum stays split along other dimensions than the field: that saves a second round, and does not affect
operations on single waves. Its own place is `spectral_axes`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

Split = tuple[tuple[str, ...], ...]
"""For each dimension the mesh axes that split it, none where it is whole."""


class Transform(NamedTuple):
    """Transforms along a dimension that is whole."""

    dim: int


class Move(NamedTuple):
    """Makes dimension `whole` whole, which the mesh axes `names` split, by splitting dimension `split`."""

    names: tuple[str, ...]
    whole: int
    split: int


def plan(axes: tuple[str | None, ...]) -> tuple[list[Transform | Move], Split]:
    """Returns how to transform a field whose dimensions are split so, and how its spectrum is split.

    Raises:
        ValueError: If there is only one dimension, and it is split.
    """
    split: list[tuple[str, ...]] = [(axis,) if axis else () for axis in axes]
    if len(axes) == 1 and axes[0]:
        raise ValueError(
            "A Fourier transform requires a dimension that is not split, or at least two dimensions in `axes`; a "
            "one-dimensional field must be whole on each device."
        )
    steps: list[Transform | Move] = []
    left = set(range(len(axes)))

    def move(whole, to):
        steps.append(Move(split[whole], whole, to))
        split[to], split[whole] = split[to] + split[whole], ()

    if all(split):
        move(len(axes) - 1, len(axes) - 2)
    while left:
        ready = [dim for dim in sorted(left, reverse=True) if not split[dim]]
        if ready:
            steps.extend(Transform(dim) for dim in ready)
            left -= set(ready)
            continue
        whole = max(left)
        move(whole, min(dim for dim in range(len(axes)) if dim not in left and not split[dim]))
    return steps, tuple(split)


def run(steps: list[Transform | Move], u: Array, transform: Callable[[Array, int], Array]) -> Array:
    """Carries out the steps on a device's part; `transform(u, dim)` transforms one dimension."""
    count = 1 + max(step.dim for step in steps if isinstance(step, Transform))
    first = u.ndim - count
    for step in steps:
        if isinstance(step, Transform):
            u = transform(u, first + step.dim)
        else:
            u = all_to_all(u, step.names, split=first + step.split, concat=first + step.whole)
    return u


def reverse(steps: list[Transform | Move]) -> list[Transform | Move]:
    """Returns the steps back from the spectrum to the field."""
    return [
        step if isinstance(step, Transform) else Move(step.names, step.split, step.whole) for step in reversed(steps)
    ]


def all_to_all(u: Array, names: tuple[str, ...], *, split: int, concat: int) -> Array:
    """Makes an array whole along `concat`, which the mesh axes `names` split, by splitting it along `split`."""
    devices = 1
    for name in names:
        devices *= jax.lax.axis_size(name)
    if devices == 1:
        return u
    if u.shape[split] % devices:
        raise ValueError(
            f"A transform must split dimension {split} over {devices} devices, which do not divide its "
            f"{u.shape[split]} cells. Make the extents multiples of the number of devices."
        )
    return jax.lax.all_to_all(u, names, split, concat, tiled=True)


def wavenumbers(n: int, spacing: Array, dim: int, ndim: int) -> Array:
    r"""Returns $2\pi m / (n h)$, for $m$ in the order of `jnp.fft.fftfreq`, along one of `ndim` dimensions."""
    k = 2 * jnp.pi * jnp.fft.fftfreq(n, 1.0, dtype=spacing.dtype) / spacing
    return k.reshape((1,) * dim + (n,) + (1,) * (ndim - dim - 1))
