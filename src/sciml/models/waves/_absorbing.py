r"""Layers that absorb waves: derivatives across them are taken along a complex coordinate.

With $e^{-i \omega t}$ a derivative across a layer becomes $\partial_x / s$ with
$s = 1 + \sigma / (\alpha - i \omega)$. In time that is $\partial_x u + \psi$ with

$$\dot \psi = -(\alpha + \sigma)\, \psi - \sigma\, \partial_x u$$

a separate equation that any explicit method supports, for any equation whose derivatives are stretched in this way. The
memory $\psi$ exists only within the layers. $\sigma$ grows with the cube of the depth; $\alpha$ falls to zero at the
bottom, and lets what hardly oscillates pass on.

Source: J. A. Roden, S. D. Gedney, Microw. Opt. Technol. Lett. 27:334, 2000; D. Komatitsch, R. Martin, Geophysics
72:SM155, 2007.
"""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._parameters import Parameter
from ...spatial import Grid
from ...spatial._blocks import AbstractBlocks

_REFLECTED = 1e-7
"""How much of a wave that meets a layer head on comes back, but for the grid's share."""

_GRADING = 3

_SHIFT = 0.05
r"""The largest $\alpha$, over the largest $\sigma$."""


class Absorber(eqx.Module):
    """Absorbing layers along the sides of a grid.

    Attributes:
        grid: The grid, with the layers.
        layers: The width of the layers in cells, a pair for each axis.
        speed: The speed of waves for which they are made.
        blocks: How the grid is split over devices, of which those at its edges have layers; None if it is not.
    """

    grid: Grid
    layers: tuple[tuple[int, int], ...] = eqx.field(static=True)
    speed: Parameter
    blocks: AbstractBlocks | None = None

    def memory_shape(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        """Returns the shape of the memory of a derivative along an axis, itself of a given shape."""
        return tuple(sum(self.layers[axis]) if a == axis else n for a, n in enumerate(shape))

    def within(self, derivative: Array, axis: int) -> Array:
        """Returns the part of a derivative along an axis that is within the layers along it."""
        (low, high), n = self.layers[axis], derivative.shape[axis]
        if max(low, high) > n:
            raise ValueError(
                f"absorbing layers of {max(low, high)} cells along {self.grid.names[axis]} must fit into one block, "
                f"but a device holds {n}. Use fewer devices along this axis, or thinner layers."
            )
        return jnp.concatenate([_cut(derivative, axis, 0, low), _cut(derivative, axis, n - high, n)], axis)

    def stretched(self, total: Array, memory: Array, axis: int) -> Array:
        """Returns a sum of derivatives, with the memory of the one along an axis."""
        (low, high), n = self.layers[axis], total.shape[axis]
        if low + high > n:  # of a block, whose layers at both ends overlap: one of them at least remembers nothing
            first = [_cut(total, axis, 0, low) + _cut(memory, axis, 0, low), _cut(total, axis, low, n)]
            total = jnp.concatenate(first, axis)
            last = [
                _cut(total, axis, 0, n - high),
                _cut(total, axis, n - high, n) + _cut(memory, axis, low, low + high),
            ]
            return jnp.concatenate(last, axis)
        parts = [
            _cut(total, axis, 0, low) + _cut(memory, axis, 0, low),
            _cut(total, axis, low, n - high),
            _cut(total, axis, n - high, n) + _cut(memory, axis, low, low + high),
        ]
        return jnp.concatenate(parts, axis)

    def rate(self, within: Array, memory: Array, axis: int, at: str, tau: Array | None = None) -> Array:
        r"""Returns the rate of the memory of a derivative, or $(1 + \tau (\alpha + \sigma))^{-1}$ of it.

        Args:
            within: The derivative within the layers.
            memory: Its memory.
            axis: The axis along which it is one.
            at: The positions of its values along the axis, `"center"` or `"node"`.
            tau: Half of a step, for that at its middle; None for the rate itself.
        """
        sigma, alpha = self._profiles(axis, at, within.dtype)
        rate = -(alpha + sigma) * memory - sigma * within
        return rate if tau is None else rate / (1 + tau * (alpha + sigma))

    def largest(self, dtype: Any) -> Array:
        r"""Returns the largest $\sigma + \alpha$, the rate at which the memory decays."""
        rates = [_largest(width, h) for pair, h in zip(self.layers, self.grid.spacing) for width in pair if width]
        return self.speed.astype(dtype) * jnp.asarray(max(rates, default=0.0), dtype)

    def _profiles(self, axis: int, at: str, dtype: Any) -> tuple[Array, Array]:
        r"""$\sigma$ and $\alpha$ within the layers, arrays that broadcast over the memory."""
        shift = 0.5 if at == "center" else 0.0
        sigma, alpha = [], []
        for end, width in enumerate(self.layers[axis]):
            depth = (width - np.arange(width) - shift) / max(width, 1)
            size = _largest(width, self.grid.spacing[axis])
            for found, profile in ((sigma, depth**_GRADING), (alpha, _SHIFT * (1 - depth))):
                found.append(size * (profile[::-1] if end else profile))
        shape = [-1 if a == axis else 1 for a in range(self.grid.ndim)]
        speed = self.speed.astype(dtype)
        both = (np.concatenate(x).reshape(shape) for x in (sigma, alpha))
        sigma_, alpha_ = (speed * jnp.asarray(x, dtype) for x in both)
        if self.blocks is not None and self.blocks.devices(axis) > 1:
            ends = zip(self.blocks.edges(axis), self.layers[axis])
            there = jnp.concatenate([jnp.broadcast_to(edge, (width,)) for edge, width in ends]).reshape(shape)
            sigma_, alpha_ = (jnp.where(there, x, jnp.zeros_like(x)) for x in (sigma_, alpha_))
        return sigma_, alpha_


def read_layers(grid: Grid, layers: int | Mapping[str, int], model: str) -> tuple[tuple[int, int], ...]:
    """Returns the width of the layers at both sides of each axis, from one number or numbers by the names of sides.

    Raises:
        ValueError: If a side is unknown, a width is not a number of cells, or the layers leave nothing.
    """
    if isinstance(layers, int | np.integer):
        layers = dict.fromkeys(grid.names, layers)
    known = {side for name in grid.names for side in (name, f"{name}-", f"{name}+")}
    found = []
    for side, width in layers.items():
        if side not in known or isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 0:
            raise ValueError(
                f"`{model}(layers=...)` must map the names {sorted(known)} to numbers of cells, but has {side!r}: "
                f"{width!r}."
            )
    for name, cells in zip(grid.names, grid.shape):
        pair = tuple(int(layers.get(f"{name}{end}", layers.get(name, 0))) for end in "-+")
        if sum(pair) >= cells:
            raise ValueError(f"`{model}(layers=...)` leaves nothing of the {cells} cells along {name}: {pair}.")
        found.append(pair)
    return tuple(found)


def check_layers(layers: tuple[tuple[int, int], ...], periodic: tuple[bool, ...], grid: Grid, model: str) -> None:
    """Refuses layers across the ends of a periodic axis.

    Raises:
        ValueError: If there are any.
    """
    for name, pair, closed in zip(grid.names, layers, periodic):
        if closed and any(pair):
            raise ValueError(
                f"`{model}(layers=...)`: along {name} the sides are periodic, but there are layers {pair}."
            )


def _largest(width: int, spacing: float) -> float:
    r"""The largest $\sigma$ of a layer, for a speed of one."""
    return (_GRADING + 1) * math.log(1 / _REFLECTED) / (2 * width * spacing) if width else 0.0


def _cut(x: Array, axis: int, start: int, stop: int) -> Array:
    return jax.lax.slice_in_dim(x, start, stop, axis=axis)
