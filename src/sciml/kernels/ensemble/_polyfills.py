r"""What a compiler lacks, composed of what every one has.

Accuracy is that of the dtype, a few units in the last place, except of `pow`, whose relative error is about
$|b \log a|$ units for $a^b$, and of `erfc`, which is absent since its small values would be lost.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._erf_inv import erf_inv

_LARGE = 1e8  # whose square is the same with one added
_LOG_2 = math.log(2)


def _like(x: Array, value: float) -> Array:
    return jnp.full_like(x, value)


def _is_finite(x: Array) -> Array:
    return jnp.abs(x) < _like(x, np.inf)


def _sqrt(x: Array, **_: Any) -> Array:
    inverse = jax.lax.rsqrt(x)
    root = x * inverse
    root = root + 0.5 * inverse * (x - root * root)  # hardware's inverse root is not correctly rounded
    return jnp.where((x == 0) | (x == np.inf), x, root)


def _log1p(x: Array, **_: Any) -> Array:
    near = jnp.abs(x) < 0.5
    ratio = x / jnp.where(near, 2 + x, _like(x, 1))  # log(1 + x) = 2 artanh(x / (2 + x))
    square = ratio * ratio
    terms = 17 if x.dtype == np.float64 else 8
    total = _like(x, 1 / (2 * terms + 1))
    for k in reversed(range(terms)):
        total = 1 / (2 * k + 1) + square * total
    return jnp.where(near, 2 * ratio * total, jnp.log(1 + x))


def _expm1(x: Array, **_: Any) -> Array:
    up = jnp.exp(x)
    known = (up == 1) | (up == 0)
    small = (up - 1) * (x / jnp.log(jnp.where(known, _like(x, 2), up)))
    small = jnp.where(up == 1, x, jnp.where(up == 0, _like(x, -1), small))
    return jnp.where(x > 1, up - 1, small)


def _pow(x: Array, y: Array) -> Array:
    if jnp.issubdtype(y.dtype, jnp.integer):
        odd = jax.lax.rem(y, _int(y, 2)) != 0
        y, whole = y.astype(x.dtype), y == y
    else:
        floor = _floor(y)
        whole, odd = floor == y, _floor(0.5 * y) * 2 != y
    size = jnp.exp(y * jnp.log(jnp.abs(x)))
    size = jnp.where(y == 0, _like(x, 1), size)
    signed = jnp.where(whole, jnp.where(odd, -size, size), _like(x, np.nan))
    return jnp.where(x < 0, signed, size)


def _int(like: Array, value: int) -> Array:
    return jnp.full_like(like, value)


def _truncated(x: Array) -> Array:
    def cut(x: Array) -> Array:
        return x.astype(np.int32).astype(x.dtype)

    small = jnp.abs(x) < 2.0 ** jnp.finfo(x.dtype).nmant  # what is larger has no fraction
    inside = jnp.where(small, x, _like(x, 0))
    if x.dtype == np.float32:
        return jnp.where(small, cut(inside), x)
    high = cut(inside * 2.0**-26) * 2.0**26
    return jnp.where(small, high + cut(inside - high), x)


def _floor(x: Array) -> Array:
    cut = _truncated(x)
    return cut - jnp.where(cut > x, _like(x, 1), _like(x, 0))


def _ceil(x: Array) -> Array:
    return -_floor(-x)


def _rem(x: Array, y: Array) -> Array:
    return x - y * _truncated(x / y)


def _sinh(x: Array) -> Array:
    grown = jnp.expm1(jnp.abs(x))
    rest = jnp.where(grown > 1, 1 - 1 / (grown + 1), grown / (1 + jnp.where(grown > 1, _like(x, 0), grown)))
    return jnp.sign(x) * 0.5 * (grown + rest)


def _cosh(x: Array) -> Array:
    grown = jnp.exp(jnp.abs(x))
    return 0.5 * (grown + 1 / grown)


def _asinh(x: Array) -> Array:
    size = jnp.abs(x)
    small = jnp.where(size > _LARGE, _like(x, 1), size)
    near = jnp.log1p(small + small * small / (1 + jnp.sqrt(small * small + 1)))
    return jnp.sign(x) * jnp.where(size > _LARGE, jnp.log(size) + _LOG_2, near)


def _acosh(x: Array) -> Array:
    small = jnp.where(x > _LARGE, _like(x, 1), x)
    near = jnp.log1p((small - 1) + jnp.sqrt((small - 1) * (small + 1)))
    return jnp.where(x > _LARGE, jnp.log(x) + _LOG_2, near)


def _asin(x: Array, **_: Any) -> Array:
    return jnp.atan2(x, jnp.sqrt((1 - x) * (1 + x)))


def _acos(x: Array, **_: Any) -> Array:
    return jnp.atan2(jnp.sqrt((1 - x) * (1 + x)), x)


def _cbrt(x: Array, **_: Any) -> Array:
    size = jnp.where(x == 0, _like(x, 1), jnp.abs(x))
    root = jnp.exp(jnp.log(size) * (1 / 3))
    root = root - (root - size / (root * root)) * (1 / 3)
    return jnp.where(x == 0, x, jnp.sign(x) * root)


def _round(x: Array, rounding_method: Any) -> Array:
    near = _floor(x + 0.5) if rounding_method == jax.lax.RoundingMethod.TO_NEAREST_EVEN else _floor(jnp.abs(x) + 0.5)
    if rounding_method != jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return jnp.sign(x) * near
    tie = (near - x == 0.5) & (_floor(0.5 * near) * 2 != near)  # half way, and up to an odd number
    return jnp.where(tie, near - 1, near)


POLYFILLS: dict[str, Callable[..., Array]] = {
    "acos": _acos,
    "acosh": _acosh,
    "add_any": jnp.add,
    "asin": _asin,
    "asinh": _asinh,
    "atan": lambda x, **_: jnp.atan2(x, _like(x, 1)),
    "atanh": lambda x: 0.5 * (jnp.log1p(x) - jnp.log1p(-x)),
    "cbrt": _cbrt,
    "ceil": _ceil,
    "cosh": _cosh,
    "erf_inv": erf_inv,
    "expm1": _expm1,
    "floor": _floor,
    "is_finite": _is_finite,
    "log1p": _log1p,
    "pow": _pow,
    "rem": _rem,
    "round": _round,
    "sign": lambda x: jnp.where(x > 0, _like(x, 1), jnp.where(x < 0, _like(x, -1), x)),
    "sinh": _sinh,
    "sqrt": _sqrt,
    "tan": lambda x, **_: jnp.sin(x) / jnp.cos(x),
}
"""For each primitive a function that computes it; may use others of these."""
