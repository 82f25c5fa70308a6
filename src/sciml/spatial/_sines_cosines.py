r"""Cosine and sine transforms of types I to IV along an axis, each with its inverse, by fast Fourier transforms.

With $n$ values $x_j$ and $m = n - 1, n, n, n + 1$ for the cosine of type I, types II and IV, and the sine of type I:

| | cosine | sine |
|---|---|---|
| I | $\cos(\pi j k / m)$, first and last values halved | $\sin(\pi (j+1) (k+1) / m)$ |
| II | $\cos(\pi (j + \tfrac12) k / n)$ | $\sin(\pi (j + \tfrac12) (k + 1) / n)$ |
| III | the inverse of II | the inverse of II |
| IV | $\cos(\pi (j + \tfrac12) (k + \tfrac12) / n)$ | $\sin(\pi (j + \tfrac12) (k + \tfrac12) / n)$ |

All sums are taken twice, as is usual.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

Transform = Callable[[Array, int], Array]


def along(values: np.ndarray, x: Array, axis: int) -> Array:
    """Returns a vector along an axis of an array, in its dtype, or a complex one for complex values."""
    shape = [1] * x.ndim
    shape[axis] = len(values)
    kind = np.result_type(x.dtype, np.complex64) if np.iscomplexobj(values) else x.dtype
    return jnp.asarray(values.reshape(shape), kind)


def _alternate(x: Array, axis: int) -> Array:
    return x * along((-1.0) ** np.arange(x.shape[axis]), x, axis)


def _real_linear(transform: Transform) -> Transform:
    """A transform of real arrays, for complex ones too."""

    def both(x: Inexact[Array, "..."], axis: int) -> Inexact[Array, "..."]:
        if jnp.iscomplexobj(x):
            return jax.lax.complex(transform(x.real, axis), transform(x.imag, axis))
        return transform(x, axis)

    return both


@_real_linear
def dct1(x: Array, axis: int) -> Array:
    """Returns the cosine transform of type I."""
    n = x.shape[axis]
    inner = jnp.take(x, np.arange(n - 2, 0, -1), axis=axis)  # makes the values one period of an even sequence
    return jnp.fft.rfft(jnp.concatenate([x, inner], axis), axis=axis).real


def idct1(x: Array, axis: int) -> Array:
    """Returns the inverse of the cosine transform of type I."""
    return dct1(x, axis) / (2 * (x.shape[axis] - 1))


@_real_linear
def dst1(x: Array, axis: int) -> Array:
    """Returns the sine transform of type I."""
    n = x.shape[axis]
    zero = jnp.zeros_like(jnp.take(x, np.arange(1), axis=axis))
    odd = jnp.concatenate([zero, x, zero, -jnp.flip(x, axis)], axis)  # one period of an odd sequence
    return -jnp.take(jnp.fft.rfft(odd, axis=axis).imag, np.arange(1, n + 1), axis=axis)


def idst1(x: Array, axis: int) -> Array:
    """Returns the inverse of the sine transform of type I."""
    return dst1(x, axis) / (2 * (x.shape[axis] + 1))


@_real_linear
def dct2(x: Array, axis: int) -> Array:
    """Returns the cosine transform of type II.

    Its values are real and imaginary parts of the real transform of all even places and then the odd ones backwards.
    """
    n = x.shape[axis]
    odd = jnp.flip(_cut(x, axis, 1, n, 2), axis)
    modes = jnp.fft.rfft(jnp.concatenate([_cut(x, axis, 0, n, 2), odd], axis), axis=axis)
    modes = modes * along(2 * _quarter_turn(n), modes, axis)
    return jnp.concatenate([modes.real, -jnp.flip(_cut(modes.imag, axis, 1, (n + 1) // 2), axis)], axis)


@_real_linear
def idct2(x: Array, axis: int) -> Array:
    """Returns the inverse of the cosine transform of type II."""
    n = x.shape[axis]
    half = n // 2 + 1
    zero = jnp.zeros_like(_cut(x, axis, 0, 1))
    beyond = jnp.concatenate([zero, jnp.flip(_cut(x, axis, n - half + 1, n), axis)], axis)
    modes = jax.lax.complex(_cut(x, axis, 0, half), -beyond)
    found = jnp.fft.irfft(modes * along(0.5 / _quarter_turn(n), modes, axis), n, axis=axis)
    evens = n - n // 2
    even, odd = _cut(found, axis, 0, evens), jnp.flip(_cut(found, axis, evens, n), axis)
    odd = odd if n % 2 == 0 else jnp.concatenate([odd, zero], axis)
    place = axis % x.ndim + 1
    pairs = jnp.stack([even, odd], place)
    return _cut(pairs.reshape(*x.shape[: place - 1], 2 * evens, *x.shape[place:]), axis, 0, n)


def _quarter_turn(n: int) -> np.ndarray:
    """Known numbers: a program that works them out is taken apart, value by value, where they are few."""
    return np.exp(-0.5j * np.pi * np.arange(n // 2 + 1) / n)


def _cut(x: Array, axis: int, start: int, stop: int, stride: int = 1) -> Array:
    return jax.lax.slice_in_dim(x, start, stop, stride, axis % x.ndim)


def dst2(x: Array, axis: int) -> Array:
    """Returns the sine transform of type II."""
    return jnp.flip(dct2(_alternate(x, axis), axis), axis)


def idst2(x: Array, axis: int) -> Array:
    """Returns the inverse of the sine transform of type II."""
    return _alternate(idct2(jnp.flip(x, axis), axis), axis)


@_real_linear
def dct4(x: Array, axis: int) -> Array:
    r"""Returns the cosine transform of type IV.

    The phase is split as $(j + \tfrac12)(k + \tfrac12) = jk + \tfrac{j}{2} + \tfrac{k}{2} + \tfrac14$. An even number
    of values goes as the real and imaginary parts of half as many complex ones, an odd one with as many zeros.
    """
    n = x.shape[axis]
    if n % 2:
        phase = np.exp(-1j * np.pi * np.arange(n) / (2 * n))
        twist = along(phase, x, axis)
        spectrum = jnp.fft.fft(x.astype(twist.dtype) * twist, 2 * n, axis=axis)
        spectrum = jnp.take(spectrum, np.arange(n), axis=axis)
        return 2 * (spectrum * along(phase * np.exp(-1j * np.pi / (4 * n)), x, axis)).real
    phase = np.exp(-1j * np.pi * (np.arange(n // 2) + 0.125) / n)
    even = jnp.take(x, np.arange(0, n, 2), axis=axis)
    odd = jnp.take(x, np.arange(n - 1, 0, -2), axis=axis)
    twist = along(phase, even, axis)
    pairs = 2 * twist * jnp.fft.fft(jax.lax.complex(even, odd) * twist, axis=axis)
    place = axis % x.ndim + 1
    return jnp.stack([pairs.real, -jnp.flip(pairs.imag, axis)], place).reshape(x.shape)


def idct4(x: Array, axis: int) -> Array:
    """Returns the inverse of the cosine transform of type IV."""
    return dct4(x, axis) / (2 * x.shape[axis])


def dst4(x: Array, axis: int) -> Array:
    """Returns the sine transform of type IV."""
    return _alternate(dct4(jnp.flip(x, axis), axis), axis)


def idst4(x: Array, axis: int) -> Array:
    """Returns the inverse of the sine transform of type IV."""
    return dst4(x, axis) / (2 * x.shape[axis])
