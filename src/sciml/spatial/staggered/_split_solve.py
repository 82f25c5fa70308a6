"""Solves by transforms of a field that is split over devices, whose places need not all be unknowns.

Fast transforms of a field of which every device holds a block: each does its share of them.

A transform along an axis needs it whole. Axes that are whole are transformed where they are; then an all-to-all makes
another one whole, by splitting one that is done. Its coefficients may not divide, so zeros fill them up. The way back
is the same, backwards.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._blocks import AbstractBlocks
from ..elliptic._poisson import Axis, divide, eigenvalues, separate
from ._split_boundaries import SplitBoundaries


class AxisTransform(NamedTuple):
    """Transforms along an axis that is whole.

    Attributes:
        axis: The axis.
        halved: Whether half of the coefficients are enough, since the values are real.
    """

    axis: int
    halved: bool


class AxisMove(NamedTuple):
    """Makes an axis whole by splitting another.

    Attributes:
        whole: The axis that is whole then.
        split: The axis that is split then.
        over: The axis of the grid whose devices split it.
        size: The number of coefficients along the axis that is split then.
        skips: Whether the first place of the axis that is then whole is not an unknown.
    """

    whole: int
    split: int
    over: int
    size: int
    skips: bool


def plan(
    axes: list[Axis], devices: list[int], skips: Sequence[bool] | None = None
) -> list[AxisTransform | AxisMove] | None:
    """Returns how to transform a real field, or None where every axis is split and none is whole to begin with.

    Args:
        axes: How each axis is transformed.
        devices: Over how many devices each is split.
        skips: The axes whose first place is not an unknown when they are split; None for none.
    """
    split = {axis: axis for axis, count in enumerate(devices) if count > 1}
    left, sizes, steps = list(range(len(axes))), [len(axis.eigenvalues) for axis in axes], []
    real = True
    while left:
        # what is real as long as it can be, which makes the first of Fourier's transforms one of real values
        for axis in sorted(set(left) - set(split), key=lambda a: (axes[a].periodic, -a)):
            halved = real and axes[axis].periodic
            real = real and not axes[axis].periodic
            if halved:
                sizes[axis] = sizes[axis] // 2 + 1
            steps.append(AxisTransform(axis, halved))
            left.remove(axis)
        if left:
            whole = left[0]
            count = devices[split[whole]]
            free = [axis for axis in range(len(axes)) if axis not in left and axis not in split]
            if not free:
                return None
            to = min(free, key=lambda axis: _filled(sizes[axis], count) / sizes[axis])
            split[to] = split.pop(whole)
            skipped = skips is not None and skips[whole]
            steps.append(AxisMove(whole, to, split[to], sizes[to], skipped))
    return steps


def divide_blocks(
    axes: list[Axis],
    steps: list[AxisTransform | AxisMove],
    f: Array,
    blocks: AbstractBlocks,
    denominator: Callable[[Array], Array] = lambda total: total,
) -> Array:
    """Returns the block of the field whose coefficients are the coefficients of `f` over a function of the eigenvalues.

    If that is zero they are zero, as are places that are not unknowns.

    Args:
        axes: How each axis is transformed.
        steps: The plan.
        f: The block of a real field.
        blocks: How it is split.
        denominator: The function of the sum of the eigenvalues of all axes.
    """
    first = f.ndim - len(axes)
    values = [jnp.asarray(axis.eigenvalues, f.dtype) for axis in axes]
    u = f
    for step in steps:
        if isinstance(step, AxisTransform):
            u = _forward(axes, step, u, first)
            if step.halved:
                values[step.axis] = values[step.axis][: u.shape[first + step.axis]]
        else:
            count = blocks.devices(step.over)
            u = _widened(u, first + step.split, _filled(step.size, count))
            u = blocks.exchange_all(u, step.over, split=first + step.split, whole=first + step.whole)
            if step.skips:
                at = first + step.whole
                u = jax.lax.slice_in_dim(u, 1, u.shape[at], axis=at)
            wide = _widened(values[step.split], 0, _filled(step.size, count))
            values[step.split] = blocks.part_of(wide, step.over, 0)
    total = jnp.zeros((), f.dtype)
    for axis, x in enumerate(values):
        total = total + x.reshape([-1 if axis == other else 1 for other in range(len(axes))])
    total = denominator(total)
    inverse = jnp.where(total == 0, jnp.zeros_like(total), 1 / jnp.where(total == 0, jnp.ones_like(total), total))
    u = u * inverse.astype(u.dtype)
    for step in reversed(steps):
        if isinstance(step, AxisTransform):
            u = _backward(axes, step, u, first)
        else:
            if step.skips:
                u = _widened(u, first + step.whole, u.shape[first + step.whole] + 1, before=True)
            u = blocks.exchange_all(u, step.over, split=first + step.whole, whole=first + step.split)
            u = jax.lax.slice_in_dim(u, 0, step.size, axis=first + step.split)
    return u


def _forward(axes: list[Axis], step: AxisTransform, u: Array, first: int) -> Array:
    forward, at = axes[step.axis].forward, first + step.axis
    if forward is not None:
        return forward(u, at - u.ndim)
    return jnp.fft.rfft(u, axis=at) if step.halved else jnp.fft.fft(u, axis=at)


def _backward(axes: list[Axis], step: AxisTransform, u: Array, first: int) -> Array:
    backward, at = axes[step.axis].backward, first + step.axis
    if backward is not None:
        return backward(u, at - u.ndim)
    return jnp.fft.irfft(u, len(axes[step.axis].eigenvalues), axis=at) if step.halved else jnp.fft.ifft(u, axis=at)


def _filled(size: int, count: int) -> int:
    """The next multiple of a number of devices."""
    return -(-size // count) * count


def _widened(x: Array, at: int, size: int, before: bool = False) -> Array:
    """An array with zeros at an end of an axis."""
    width = np.zeros((x.ndim, 2), int)
    width[at, 0 if before else 1] = size - x.shape[at]
    return jnp.pad(x, width) if width[at].any() else x


def divide_split(boundary: SplitBoundaries, f: Array, denominator: Callable[[Array], Array]) -> Array:
    """Returns the block of the field whose coefficients are the coefficients of `f` over a function of the eigenvalues.

    If that is zero they are zero.

    Args:
        boundary: The conditions.
        f: The block of a real field, with any number at a place that is not an unknown.
        denominator: The function of the eigenvalues of the Laplacian.

    Raises:
        ValueError: If some axis has no fast transform; the message names it.
    """
    blocks, whole = boundary.blocks, boundary.whole
    axes, ndim = separate(whole, 2), boundary.grid.ndim
    devices = [blocks.devices(axis) for axis in range(ndim)]
    steps = plan(axes, devices, [name == "inner" for name in whole.location])
    if steps is not None:
        return divide_blocks(axes, steps, f, blocks, denominator)
    # a transform needs whole axes, and none is whole: each device solves all of it
    everywhere = blocks.whole(f)
    for axis, name in enumerate(whole.location):
        if name == "inner" and devices[axis] > 1:
            at = f.ndim - ndim + axis
            everywhere = jax.lax.slice_in_dim(everywhere, 1, everywhere.shape[at], axis=at)
    values = denominator(eigenvalues(axes, [jnp.ones((), f.dtype)] * ndim, True))
    return boundary.unknown(boundary.part(divide(axes, everywhere, values)))
