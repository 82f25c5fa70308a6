"""Periodic fields as Fourier coefficients, for the models of this package."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact


def transform(y: Inexact[Array, "..."], axes: int) -> Inexact[Array, "..."]:
    """Returns the Fourier coefficients of a field over its last axes; for a real field half of the modes."""
    over = tuple(range(-axes, 0))
    return jnp.fft.fftn(y, axes=over) if jnp.iscomplexobj(y) else jnp.fft.rfftn(y, axes=over)


def inverse(modes: Inexact[Array, "..."], shape: tuple[int, ...], real: bool) -> Inexact[Array, "..."]:
    """Returns the field of given Fourier coefficients on a grid of a shape."""
    over = tuple(range(-len(shape), 0))
    return jnp.fft.irfftn(modes, s=shape, axes=over) if real else jnp.fft.ifftn(modes, axes=over)


def wavenumbers(shape: tuple[int, ...], length: Any, real: bool, dtype: Any) -> list[Float[Array, "..."]]:
    r"""Returns $2 \pi n / \ell$ of every mode along each axis, each of shape 1 along the others.

    Args:
        shape: The numbers of points.
        length: The length of the box, one for all axes or one for each.
        real: Whether the field is real, so that the last axis holds half of the modes.
        dtype: A real dtype.
    """
    lengths = jnp.broadcast_to(jnp.asarray(length, dtype), (len(shape),))
    found = []
    for axis, points in enumerate(shape):
        half = real and axis == len(shape) - 1
        numbers = np.fft.rfftfreq(points, 1 / points) if half else np.fft.fftfreq(points, 1 / points)
        kept = [-1 if axis == other else 1 for other in range(len(shape))]
        found.append(2 * math.pi / lengths[axis] * jnp.asarray(numbers.reshape(kept), dtype))
    return found


def odd_wavenumbers(shape: tuple[int, ...], length: Any, real: bool, dtype: Any) -> list[Float[Array, "..."]]:
    """Returns the wavenumbers for odd derivatives: zero at the highest mode of an even number of points.

    That mode's odd derivatives vanish on the grid, and any other value would make real fields complex.
    """
    full = wavenumbers(shape, length, real, dtype)
    return [k * jnp.asarray(_without_highest(n, k.shape), dtype) for n, k in zip(shape, full)]


def _without_highest(points: int, shape: tuple[int, ...]) -> np.ndarray:
    kept = np.ones(max(shape))
    if points % 2 == 0 and points > 1:
        kept[points // 2] = 0
    return kept.reshape(shape)


def two_thirds(shape: tuple[int, ...], real: bool) -> np.ndarray:
    """Returns the lower two thirds of the modes as truth values: products of two of these are free of aliases."""
    mask = np.ones((), bool)
    for axis, points in enumerate(shape):
        half = real and axis == len(shape) - 1
        numbers = np.fft.rfftfreq(points, 1 / points) if half else np.fft.fftfreq(points, 1 / points)
        kept = [-1 if axis == other else 1 for other in range(len(shape))]
        mask = mask & (np.abs(numbers) < points / 3).reshape(kept)
    return mask


def kept(modes: Inexact[Array, "..."], mask: np.ndarray | Array) -> Inexact[Array, "..."]:
    """Returns the modes with zeros where the mask, over the last axes, is not set."""
    return jnp.where(jnp.broadcast_to(jnp.asarray(mask), modes.shape), modes, jnp.zeros_like(modes))


def times_i(k: Float[Array, "..."], modes: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """Returns $i k$ times the modes, without products with zero."""
    return jax.lax.complex(-k * modes.imag, k * modes.real)
