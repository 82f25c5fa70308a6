"""Whether a vector field may jump in the state, by its program."""

from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp

from ..._jax._jaxprs import programs_within
from ..._types import Y

_JUMPS = {
    *("lt", "le", "gt", "ge", "eq", "ne", "lt_to", "le_to", "is_finite", "nextafter"),
    *("sign", "floor", "ceil", "round", "rem", "argmax", "argmin", "sort", "top_k"),
    *("pure_callback", "io_callback", "ffi_call"),
}
"""Operations whose results may jump where their operands do not, or of which nothing is known."""


def may_jump(field: Any, t: Any, y: Y) -> bool:
    """Returns whether the program of a field has an operation that may make it jump; sums, products and sines do not.

    Args:
        field: A function of time and state.
        t: A time.
        y: A state.
    """
    return _has_jumps(jax.make_jaxpr(field)(t, y).jaxpr)


def _has_jumps(jaxpr: jex.core.Jaxpr) -> bool:
    return any(
        eqn.primitive.name in _JUMPS or _truncates(eqn) or any(map(_has_jumps, programs_within(eqn)))
        for eqn in jaxpr.eqns
    )


def _truncates(eqn: Any) -> bool:
    if eqn.primitive.name != "convert_element_type":
        return False
    before, after = eqn.invars[0].aval.dtype, eqn.params["new_dtype"]
    return jnp.issubdtype(before, jnp.inexact) and not jnp.issubdtype(after, jnp.inexact)
