"""Truth values and numbers that the forward pass of a rule of reverse mode leaves for the backward pass.

Under `jax.jit`, JAX keeps the program of a forward pass for each set of arguments that are differentiated, but the
structure of what it leaves once for all, that of the pass traced last. A truth value in that structure would be another
pass's. As the shape of a small array it belongs to the program. The array is not empty: XLA of JAX 0.11.2 ends the
process where an empty one leaves a `shard_map`.
"""

from collections.abc import Iterable, Sequence

import jax.numpy as jnp
from jaxtyping import Array

_BASE = 16


def as_shapes(flags: Iterable[bool]) -> tuple[Array, ...]:
    """Returns a small array for each truth value."""
    return tuple(_of_length(int(flag)) for flag in flags)


def of_shapes(arrays: Iterable[Array]) -> tuple[bool, ...]:
    """Returns the truth values of small arrays."""
    return tuple(x.shape[0] > 1 for x in arrays)


def numbers_as_shapes(numbers: Iterable[int]) -> tuple[tuple[Array, ...], ...]:
    """Returns small arrays for each number, which is not negative: one for each of its digits."""
    return tuple(tuple(map(_of_length, _digits(number))) for number in numbers)


def numbers_of_shapes(arrays: Iterable[Sequence[Array]]) -> tuple[int, ...]:
    """Returns the numbers of small arrays, which may have other axes after the first."""
    return tuple(sum((x.shape[0] - 1) * _BASE**place for place, x in enumerate(digits)) for digits in arrays)


def _of_length(number: int) -> Array:
    return jnp.zeros((number + 1,), jnp.bool_)


def _digits(number: int) -> list[int]:
    """Returns the digits of a number, the least significant first."""
    rest, digit = divmod(number, _BASE)
    return [digit, *(_digits(rest) if rest else [])]
