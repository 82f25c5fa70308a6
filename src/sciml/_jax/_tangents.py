"""Tangents of a function's arrays, of which only some have a tangent that counts."""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_derivatives import SymbolicZero


def along(fn: Callable[..., Any], primals: Any, tangents: Any, moved: Any) -> tuple[Any, Any]:
    """Returns a function's results and their tangents, if only some of its arrays have a tangent that counts.

    Args:
        fn: The function.
        primals: Its arrays.
        tangents: A tangent for each.
        moved: Whether it counts.
    """

    def run(*free):
        rest = iter(free)
        return fn(*(next(rest) if m else x for x, m in zip(primals, moved)))

    own, rates = ([x for x, m in zip(xs, moved) if m] for xs in (primals, tangents))
    return jax.jvp(run, own, rates)


def moves(tangent: Any) -> bool:
    """Whether a tangent that a rule with symbolic zeros is given may differ from zero."""
    return type(tangent) is not SymbolicZero and tangent.dtype != jax.dtypes.float0
