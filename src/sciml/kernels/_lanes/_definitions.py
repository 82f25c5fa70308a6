"""Primitives that stand for a program of others, written out.

JAX turns some functions, of which it used to trace the arithmetic, into primitives of their own, so that it can
differentiate them better. For lanes and for kernels, which meet them after that, their arithmetic is what counts.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._interpreters import Jaxpr


def _polynomial(x: Array, *coefficients: Array, **options: Any) -> Array:
    """Horner's rule, the constant term first; JAX 0.12 and later, `jnp.polyval`."""
    del options  # how long a polynomial is unrolled
    *lower, total = coefficients
    for coefficient in reversed(lower):
        total = total * x + coefficient
    return total


_DEFINITIONS: dict[str, Callable[..., Array]] = {"polynomial": _polynomial}


def program_of_definition(eqn: Any) -> tuple[Jaxpr, list] | None:
    """Returns the program that an equation's primitive is defined by, and its constants; None if it has none here."""
    define = _DEFINITIONS.get(eqn.primitive.name)
    if define is None:
        return None
    result = eqn.outvars[0].aval

    def program(*inputs: Array) -> Array:
        return jnp.broadcast_to(define(*inputs, **eqn.params), result.shape)

    closed = jax.make_jaxpr(program)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars))
    return closed.jaxpr, list(closed.consts)
