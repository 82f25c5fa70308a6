"""Which operations of an update's function a kernel supports."""

from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._jaxprs import programs_within
from ..._lowered import LOWERED
from .._update import StencilUpdate

_TYPES = frozenset({"pcast", "pvary"})
"""What promotes arrays within `jax.shard_map`; inside of a kernel all vary alike."""

_REWRITTEN = frozenset({"add_any"})
"""What kernels do by other primitives where their compiler lacks it; see `_sums`."""


def missing(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree, kernel: str) -> list[str]:
    """Returns the primitives of an update's function that a kernel does not support."""
    closed = _traced(update, ndim, dtype, params)
    found = sorted(set(_names(closed.jaxpr)) - LOWERED[kernel] - _TYPES - _REWRITTEN)
    return found + ([f"an array of shape {c.shape}" for c in closed.consts if jnp.ndim(c)])


def operations(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree) -> list[str]:
    """Returns the primitives of an update's function in their order."""
    return [name for name in _names(_traced(update, ndim, dtype, params).jaxpr) if name not in _TYPES]


def _traced(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree) -> jex.core.ClosedJaxpr:
    def cell(value: Array, params: PyTree) -> tuple:
        def nb(name: str, *shift: int) -> Array:
            update.check_shift(name, shift, ndim)
            return value

        return update.new_values(nb, params, value)

    row = jnp.zeros((8,), dtype)
    return jax.make_jaxpr(cell)(row, _as_rows(params, 8))


def _as_rows(params: PyTree, width: int) -> PyTree:
    return jax.tree.map(lambda x: jnp.full((width,), x) if isinstance(x, jax.Array) else x, params)


def _names(jaxpr: jex.core.Jaxpr) -> list[str]:
    found = []
    for eqn in jaxpr.eqns:
        found.append(eqn.primitive.name)
        for program in programs_within(eqn):
            found += _names(program)
    return found
