r"""Normal random numbers by place: each is a function of a key and two counters, and none is kept.

The generator is Threefry-2x32 with 20 rounds, the one behind JAX's keys, written in the arithmetic of words: it runs
element by element over lanes and in kernels, where `jax.random` would draw from arrays.

Source:
    J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, Parallel random numbers: as easy as 1, 2, 3, SC11 (2011).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def words_of(key: Array) -> UInt32[Array, " 2"]:
    """Returns two words that stand for a random key of any generator."""
    return jax.random.bits(key, (2,), jnp.uint32)


def threefry(words: UInt32[Array, " 2"], a: Array, b: Array) -> tuple[Array, Array]:
    """Returns two words of random bits for the counters `a` and `b`, arrays of words that broadcast."""
    first, second = words[0], words[1]
    keys = (first, second, first ^ second ^ jnp.uint32(_PARITY))
    a, b = jnp.broadcast_arrays(a + keys[0], b + keys[1])
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            a = a + b
            b = ((b << jnp.uint32(rotation)) | (b >> jnp.uint32(32 - rotation))) ^ a
        a = a + keys[(block + 1) % 3]
        b = b + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return a, b


def normals(
    words: UInt32[Array, " 2"], place: UInt32[Array, ""], stream: int, count: int, dtype: Any
) -> Float[Array, " count"]:
    """Returns a number of independent normal numbers that belong to a place.

    Args:
        words: The key.
        place: The place.
        stream: The index of one of several independent sequences, less than 4.
        count: How many, less than 2**30.
        dtype: float32, for which 32 random bits make a number, or float64, for which 64 do.
    """
    if jnp.finfo(dtype).bits == 64:
        return _from_64(*threefry(words, place, _counters(stream, count)), dtype)
    pairs = threefry(words, place, _counters(stream, -(-count // 2)))
    return _from_32(pairs[0] if count == 1 else jnp.stack(pairs, axis=-1).reshape(-1)[:count], dtype)


def pairs_of_normals(
    words: UInt32[Array, " 2"], place: UInt32[Array, ""], count: int, dtype: Any
) -> tuple[Float[Array, " count"], Float[Array, " count"]]:
    """Returns a number of independent pairs of normal numbers that belong to a place; see `normals`."""
    first, second = threefry(words, place, _counters(0, count))
    if jnp.finfo(dtype).bits == 64:
        return _from_64(first, second, dtype), _from_64(*threefry(words, place, _counters(1, count)), dtype)
    return _from_32(first, dtype), _from_32(second, dtype)


def uniforms(
    words: UInt32[Array, " 2"], place: UInt32[Array, ""], count: int, dtype: Any, stream: int = 0
) -> Float[Array, " count"]:
    """Returns a number of independent numbers that are uniform between 0 and 1, both excluded; see `normals`."""
    first, second = threefry(words, place, _counters(stream, count))
    if jnp.finfo(dtype).bits == 64:
        return (
            (first >> jnp.uint32(6)).astype(dtype) * 2.0**26 + (second >> jnp.uint32(6)).astype(dtype) + 0.5
        ) * 2.0**-52
    return ((first >> jnp.uint32(9)).astype(dtype) + 0.5) * 2.0**-23


def _counters(stream: int, count: int) -> UInt32[Array, " count"]:
    return jnp.uint32(stream << 30) + jnp.arange(count, dtype=jnp.uint32)


def _from_64(high: Array, low: Array, dtype: Any) -> Array:
    whole = (high >> jnp.uint32(6)).astype(dtype) * 2.0**26 + (low >> jnp.uint32(6)).astype(dtype)
    return _normal(whole * 2.0**-51 + (2.0**-52 - 1))


def _from_32(bits: Array, dtype: Any) -> Array:
    return _normal((bits >> jnp.uint32(9)).astype(dtype) * 2.0**-22 + (2.0**-23 - 1))


def _normal(uniform: Array) -> Array:
    """Returns what is normal for numbers that are uniform between -1 and 1, neither of them included."""
    return math.sqrt(2) * jax.lax.erf_inv(uniform)
