r"""Sine and cosine transforms of every location, by the fast Fourier transform of the field and its mirror image.

The amplitudes are those of the modes themselves: `sine` returns $b_k$ with $u = \sum_k b_k \sin(k \pi x / L)$,
$k = 1, 2, \dots$, and `cosine` returns $a_k$ with $u = \sum_k a_k \cos(k \pi x / L)$, $k = 0, 1, \dots$.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def complex_dtype(dtype: Any) -> Any:
    """Returns the complex dtype of a floating dtype's precision."""
    return jnp.complex128 if jnp.finfo(dtype).bits == 64 else jnp.complex64


def sine(u: Array, axis: int, location: str) -> Array:
    """Returns the amplitudes of sines of a field that vanishes at both walls."""
    n = u.shape[axis]
    if location == "center":
        spectrum = _fourier(jnp.concatenate([u, -jnp.flip(u, axis)], axis), axis)
        modes = _turned(_part(spectrum, 1, n + 1, axis), np.arange(1, n + 1) / (4 * n), axis, 1j, u)
        return modes * _weights(np.where(np.arange(1, n + 1) == n, 0.5, 1.0) / n, axis, modes)
    zero = jnp.zeros_like(_part(u, 0, 1, axis))
    spectrum = _fourier(jnp.concatenate([zero, u, zero, -jnp.flip(u, axis)], axis), axis)
    modes = _turned(_part(spectrum, 1, n + 1, axis), np.zeros(n), axis, 1j, u)
    return modes * _weights(np.full(n, 1.0 / (n + 1)), axis, modes)


def inverse_sine(modes: Array, axis: int, location: str) -> Array:
    """Returns the field with given amplitudes of sines."""
    n = modes.shape[axis]
    period, offset = (2 * n, 0.5) if location == "center" else (2 * (n + 1), 1.0)
    return _synthesis(modes, np.arange(1, n + 1), period, offset, axis, -1j)


def cosine(u: Array, axis: int, location: str) -> Array:
    """Returns the amplitudes of cosines of a field without slope at both walls."""
    n = u.shape[axis]
    if location == "center":
        spectrum = _fourier(jnp.concatenate([u, jnp.flip(u, axis)], axis), axis)
        modes = _turned(_part(spectrum, 0, n, axis), np.arange(n) / (4 * n), axis, 1.0, u)
        return modes * _weights(np.where(np.arange(n) == 0, 0.5, 1.0) / n, axis, modes)
    mirror = jnp.flip(_part(u, 1, n - 1, axis), axis)
    spectrum = _fourier(jnp.concatenate([u, mirror], axis), axis)
    modes = _turned(_part(spectrum, 0, n, axis), np.zeros(n), axis, 1.0, u)
    ends = (np.arange(n) == 0) | (np.arange(n) == n - 1)
    return modes * _weights(np.where(ends, 0.5, 1.0) / (n - 1), axis, modes)


def inverse_cosine(modes: Array, axis: int, location: str) -> Array:
    """Returns the field with given amplitudes of cosines."""
    n = modes.shape[axis]
    period, offset = (2 * n, 0.5) if location == "center" else (2 * (n - 1), 0.0)
    return _synthesis(modes, np.arange(n), period, offset, axis, 1.0)


def _synthesis(modes: Array, numbers: np.ndarray, period: int, offset: float, axis: int, factor: complex) -> Array:
    """The first values of the sum of modes, from the real part of one Fourier sum over a period."""
    n, parts = modes.shape[axis], [modes]
    if jnp.iscomplexobj(modes):
        parts = [modes.real, modes.imag]
    found = []
    for part in parts:
        dtype = complex_dtype(part.dtype)
        turn = np.exp(2j * np.pi * numbers * offset / period) * factor
        coefficients = part.astype(dtype) * _weights(turn, axis, jnp.zeros((1,) * part.ndim, dtype))
        pad = [(0, 0, 0)] * part.ndim
        pad[axis] = (int(numbers[0]), period - n - int(numbers[0]), 0)
        coefficients = jax.lax.pad(coefficients, jnp.zeros((), dtype), pad)
        found.append(_part(jnp.fft.ifft(coefficients, axis=axis, norm="forward").real, 0, n, axis))
    return found[0] if len(found) == 1 else jax.lax.complex(*found)


def _fourier(u: Array, axis: int) -> Array:
    """The lower half of the Fourier sum, whose values are real or imaginary but for a turn."""
    return (jnp.fft.fft if jnp.iscomplexobj(u) else jnp.fft.rfft)(u, axis=axis)


def _turned(spectrum: Array, turns: np.ndarray, axis: int, factor: complex, u: Array) -> Array:
    """The spectrum times `factor exp(-2 pi i turns)`: the amplitudes, real for a real field."""
    turned = spectrum * _weights(factor * np.exp(-2j * np.pi * turns), axis, spectrum)
    return turned if jnp.iscomplexobj(u) else turned.real


def _part(u: Array, start: int, stop: int, axis: int) -> Array:
    return jax.lax.slice_in_dim(u, start, stop, axis=axis)


def _weights(values: np.ndarray, axis: int, like: Array) -> Array:
    shape = [1] * like.ndim
    shape[axis] = len(values)
    return jnp.asarray(values.reshape(shape), like.dtype)
