r"""The amplitudes of sines and cosines in a field, at centres and at nodes.

The amplitudes are those of the modes themselves: `sine` returns $b_k$ with $u = \sum_k b_k \sin(k \pi x / L)$,
$k = 1, 2, \dots$, and `cosine` returns $a_k$ with $u = \sum_k a_k \cos(k \pi x / L)$, $k = 0, 1, \dots$.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from . import _sines_cosines as trig


def complex_dtype(dtype: Any) -> Any:
    """Returns the complex dtype of a floating dtype's precision."""
    return jnp.complex128 if jnp.finfo(dtype).bits == 64 else jnp.complex64


def sine(u: Array, axis: int, location: str) -> Array:
    """Returns the amplitudes of sines of a field that vanishes at both walls."""
    return (trig.dst2 if location == "center" else trig.dst1)(u, axis) * _sine_weights(u, axis, location)


def inverse_sine(modes: Array, axis: int, location: str) -> Array:
    """Returns the field with given amplitudes of sines."""
    return (trig.idst2 if location == "center" else trig.idst1)(modes / _sine_weights(modes, axis, location), axis)


def cosine(u: Array, axis: int, location: str) -> Array:
    """Returns the amplitudes of cosines of a field without slope at both walls."""
    return (trig.dct2 if location == "center" else trig.dct1)(u, axis) * _cosine_weights(u, axis, location)


def inverse_cosine(modes: Array, axis: int, location: str) -> Array:
    """Returns the field with given amplitudes of cosines."""
    return (trig.idct2 if location == "center" else trig.idct1)(modes / _cosine_weights(modes, axis, location), axis)


def _sine_weights(like: Array, axis: int, location: str) -> Array:
    n = like.shape[axis]
    if location != "center":
        return trig.along(np.full(n, 1 / (n + 1)), like, axis)
    weights = np.full(n, 1 / n)
    weights[-1] /= 2
    return trig.along(weights, like, axis)


def _cosine_weights(like: Array, axis: int, location: str) -> Array:
    n = like.shape[axis]
    weights = np.full(n, 1 / n if location == "center" else 1 / (n - 1))
    weights[0] /= 2
    if location != "center":
        weights[-1] /= 2
    return trig.along(weights, like, axis)
