"""One step as XLA runs it: what every kernel must agree with, and the fastest formulation for the CPU.

All fields are padded once, behind an `optimization_barrier`, and every read comes from the padded arrays, including the
cell itself: on the CPU, XLA otherwise computes ghost cells again for every read.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ._update import Fields, StencilUpdate, extend, pad


def step(update: StencilUpdate, state: Fields, params: PyTree, coefficients: Fields) -> Fields:
    """Returns the state one step on."""
    count, values = len(state), state + (jnp.zeros_like(state[0]),) * len(update.inner)
    for k in range(update.stages):
        values = _stage(update.stage(k), values[:count], values[count:], params, coefficients)
    return values[:count]


def _stage(update: StencilUpdate, state: Fields, inner: Fields, params: PyTree, coefficients: Fields) -> Fields:
    r, passed_on = update.radius, dict(zip(update.inner, inner))
    arrays = behind_barriers(padded(update, state, coefficients))
    read = reader(update, named(update, arrays), (r,) * state[0].ndim, state[0].shape)

    def nb(name: str, *shift: int) -> Any:
        update.check_shift(name, shift, state[0].ndim)
        return passed_on[name] if name in passed_on else read(name, *shift)

    return update.new_values(nb, params, state[0])


def padded(update: StencilUpdate, state: Fields, coefficients: Fields) -> Fields:
    """Returns fields and coefficients with as many ghost layers as the update reads."""
    boundaries = update.boundaries
    return (
        *(pad(b, u, update.radius, update.accuracy) for b, u in zip(boundaries, state)),
        *(extend(boundaries[0], c, update.radius) for c in coefficients),
    )


def named(update: StencilUpdate, arrays: Fields) -> dict[str, Array]:
    """Returns the arrays of fields and coefficients by their names."""
    return dict(zip(update.fields + update.coefficients, arrays))


def behind_barriers(arrays: Fields) -> Fields:
    """Returns unchanged arrays, each computed once; one barrier each, so that unread arrays are removed."""
    return tuple(map(jax.lax.optimization_barrier, arrays))


def reader(
    update: StencilUpdate, arrays: dict[str, Array], corner: tuple[int, ...], shape: tuple[int, ...]
) -> Callable[..., Array]:
    """Returns `nb` for a block of cells.

    Args:
        update: The update, which checks what is read.
        arrays: Padded fields by name.
        corner: The position of the first cell of the block in them.
        shape: The shape of the block.
    """

    def nb(name: str, *shift: int) -> Any:
        shift = update.check_shift(name, shift, len(shape))
        return window(arrays[name], tuple(c + s for c, s in zip(corner, shift)), shape)

    return nb


def window(x: Array, start: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Returns a block of an array."""
    return jax.lax.slice(x, start, [a + n for a, n in zip(start, shape)])
