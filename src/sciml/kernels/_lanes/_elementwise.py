"""Primitives that act on each element separately, applied entry by entry to unstacked values."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._jax._barrier import held_back
from ..._jax._interpreters import Jaxpr
from ..._jax._vma import promote
from ..._jax.programs import _names as names, is_literal
from ._values import Constant, as_operand

_FOLD: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.bitwise_not,
    "or": np.bitwise_or,
    "sign": np.sign,
    "square": np.square,
    "stop_gradient": lambda x: x,
    "sub": np.subtract,
    "xor": np.bitwise_xor,
}
"""Values worth computing at trace time: the arithmetic of indices and of factors."""


def _shortcut(name: str, entries: list[Any]) -> Any:
    """Returns the result where a constant makes it one of the entries, else None.

    A constant zero times anything is zero, and so is zero divided by anything, be it NaN, infinite or
    zero: what is zero by construction, as most entries of a Jacobian are, costs nothing.
    """
    if name == "select_n":
        cases = entries[1:]
        if isinstance(entries[0], Constant):
            return cases[int(entries[0])]
        if all(isinstance(x, Constant) and x == cases[0] for x in cases):
            return cases[0]
    if name in ("mul", "div") and isinstance(entries[0], Constant) and entries[0] == 0:
        return entries[0]
    if name == "mul" and isinstance(entries[1], Constant) and entries[1] == 0:
        return entries[1]
    if name in ("and", "or") and entries[0].dtype == bool:
        neutral = name == "and"
        for known, other in (entries, entries[::-1]):
            if isinstance(known, Constant) and bool(known) == neutral:
                return other
    if name in ("add", "add_any", "mul", "sub") and len(entries) == 2:
        a, b = entries
        neutral = 1 if name == "mul" else 0
        if isinstance(b, Constant) and b == neutral:
            return a
        if name != "sub" and isinstance(a, Constant) and a == neutral:
            return b
    return None


def folded(name: str, entries: Sequence[Any], out_dtype: Any) -> Any:
    """Returns the result of an operation on constants; None if it is left to the program."""
    if name in _FOLD:  # by NumPy, which warns where XLA gives infinities
        with np.errstate(all="ignore"):
            return np.dtype(out_dtype).type(_FOLD[name](*entries))
    if name != "convert_element_type":
        return None
    real = entries[0] if jnp.issubdtype(out_dtype, jnp.complexfloating) else entries[0].real
    return real.astype(out_dtype)  # NumPy warns where an imaginary part is dropped


def apply(name: str, bind: Callable[..., Any], entries: list[Any], dtypes: list[Any], out_dtype: Any) -> Any:
    """Applies an elementwise primitive to one entry of each input.

    Args:
        name: The primitive's name.
        bind: The primitive as a function of arrays of one shape.
        entries: NumPy scalars, arrays of shape `()` or of shape `(lanes,)`.
        dtypes: The entries' dtypes.
        out_dtype: The result's dtype.
    """
    if name in names.IDENTITIES:
        return entries[0]
    constants = [isinstance(x, Constant) for x in entries]
    if any(constants):
        known = _shortcut(name, entries)
        if known is not None:
            return known
    if all(constants):
        known = folded(name, entries, out_dtype)
        if known is not None:
            return known
    lanes = max((x.shape for x in entries), key=len)
    arrays = [as_operand(x, d) for x, d in zip(entries, dtypes)]
    return bind(*promote([x if x.shape == lanes else jax.lax.broadcast(x, lanes) for x in arrays]))


# Extrema along axes, whose derivative does not depend on how the compiler rounds.
#
# JAX gives the derivative of an extremum to the elements that equal it. A compiler that computes the elements again for
# that comparison, with a multiplication and an addition contracted in one place and not in the other, may find that
# none does: the derivative is NaN, or zero without a word. So what is compared is computed once.


EXTREMA = {"reduce_max": jnp.max, "reduce_min": jnp.min}


def compared_with_extrema(jaxpr: Jaxpr) -> set:
    """Returns the variables of a program that are compared with their own extrema, as in JAX's rule of derivatives."""
    reduced = {eqn.invars[0] for eqn in jaxpr.eqns if eqn.primitive.name in EXTREMA and not is_literal(eqn.invars[0])}
    return {v for eqn in jaxpr.eqns if eqn.primitive.name == "eq" for v in eqn.invars if not is_literal(v)} & reduced


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def extremum(name: str, axes: tuple[int, ...], x: Array) -> Array:
    """Returns the largest or the smallest elements along axes.

    Args:
        name: The primitive, of `EXTREMA`.
        axes: The axes.
        x: The elements.
    """
    return EXTREMA[name](x, axis=axes)


@extremum.defjvp
def _extremum_jvp(name, axes, primals, tangents):
    (x,) = held_back(*primals)
    found = EXTREMA[name](x, axis=axes, keepdims=True)
    chosen = (x == found).astype(x.dtype)
    tangent = jnp.sum(chosen * tangents[0], axis=axes) / jnp.sum(chosen, axis=axes)
    return found.squeeze(axes), tangent
