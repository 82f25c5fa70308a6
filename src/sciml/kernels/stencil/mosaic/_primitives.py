"""The operations of an update's function that a kernel supports."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._interpreters import ClosedJaxpr
from ...._jax.programs import _names as names, equations
from ..._lowered import LOWERED
from .._update import StencilUpdate

_REWRITTEN = frozenset({"add_any"})
"""Operations that kernels replace by other primitives because their compiler lacks them; see `_sums`."""


def missing(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree, kernel: str) -> list[str]:
    """Returns the primitives of an update's function that a kernel does not support."""
    closed = _traced(update, ndim, dtype, params)
    found = sorted(set(_names(closed)) - LOWERED[kernel] - _REWRITTEN)
    return found + ([f"an array of shape {c.shape}" for c in closed.consts if jnp.ndim(c)])


def operations(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree) -> list[str]:
    """Returns the primitives of an update's function in their order."""
    return _names(_traced(update, ndim, dtype, params))


def _traced(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree) -> ClosedJaxpr:
    def cell(value: Array, params: PyTree) -> tuple:
        def nb(name: str, *shift: int) -> Array:
            update.check_shift(name, shift, ndim)
            return value

        return update.new_values(nb, params, value)

    row = jnp.zeros((8,), dtype)
    return jax.make_jaxpr(cell)(row, _as_rows(params, 8))


def _as_rows(params: PyTree, width: int) -> PyTree:
    return jax.tree.map(lambda x: jnp.full((width,), x) if isinstance(x, jax.Array) else x, params)


def _names(closed: ClosedJaxpr) -> list[str]:
    """The primitives of a program but those that promote arrays: inside of a kernel all vary alike."""
    return [eqn.primitive.name for eqn in equations(closed.jaxpr) if eqn.primitive.name not in names.PROMOTIONS]
