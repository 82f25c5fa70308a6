"""NumPy functions as JAX functions.

A function is traced with `jax.numpy` in place of its module's `np`. If it branches on values, or writes into arrays, it
is called back instead, and its derivatives are central differences.
"""

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_DIFFERENCE = float(np.finfo(float).eps) ** (1 / 3)
"""The step of a central difference, relative to one plus the size of the argument."""


class _Traceable:
    """`jax.numpy` with an `array` of rows that broadcast."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    @staticmethod
    def array(x: Any, *options: Any, **more: Any) -> jax.Array:
        """A nested list of arrays as one."""
        return jnp.asarray(_rows(x), *options, **more)

    asarray = array


def _rows(x: Any) -> Any:
    if not isinstance(x, list | tuple):
        return x
    parts = jnp.broadcast_arrays(*(jnp.asarray(_rows(part)) for part in x))
    return jnp.stack(_promoted(parts))


def _promoted(parts: Any) -> list:
    dtype = functools.reduce(jnp.promote_types, (x.dtype for x in parts))
    return [x.astype(dtype) for x in parts]


def _in_shape(x: Any, shape: tuple[int, ...]) -> Any:
    """Returns an array of a shape: a column as a row, fewer values repeated."""
    if x.size == math.prod(shape):
        return x.reshape(shape)
    return (np if isinstance(x, np.ndarray) else jnp).broadcast_to(x, shape)


def traced(function: Callable) -> Callable:
    """Returns the function with `jax.numpy` in place of `np`, if it is a plain one."""
    if not isinstance(function, types.FunctionType) or "np" not in function.__globals__:
        return function
    names = function.__globals__ | dict(np=_Traceable())
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def as_jax(
    function: Callable,
    shape: tuple[int, ...],
    dtype: Any,
    *like: Any,
    call: Callable[[Callable], Callable] = lambda f: f,
) -> Callable:
    """Returns a JAX function of arrays like these, whose result has this shape and dtype.

    `call` makes a function of these arrays of the given one, such as one that passes further arguments.
    """

    def by_tracing(*args: Any) -> jax.Array:
        found = jnp.asarray(_rows(call(traced(function))(*args)))
        return _in_shape(found.astype(dtype), shape)

    try:
        jax.eval_shape(by_tracing, *like)
        return by_tracing
    except Exception:  # whatever a NumPy function raises of arrays that have no values
        return called_back(call(function), shape, dtype)


def called_back(function: Callable, shape: tuple[int, ...], dtype: Any) -> Callable:
    """Returns a JAX function that calls a NumPy function."""

    def many(*args: np.ndarray) -> np.ndarray:
        """Over all leading axes, which `jax.vmap` adds to every argument alike."""
        args = tuple(np.asarray(x) for x in args)
        batch = args[0].shape[: args[0].ndim - ranks[0]]
        rows = [x.reshape(-1, *x.shape[len(batch) :]) for x in args]
        found = [_in_shape(np.asarray(function(*row), dtype), shape) for row in zip(*rows)]
        return np.stack(found).reshape(*batch, *shape) if found else np.zeros((*batch, *shape), dtype)

    ranks: list[int] = []

    @jax.custom_jvp
    def call(*args: jax.Array) -> jax.Array:
        ranks[:] = [jnp.ndim(x) for x in args]
        return jax.pure_callback(many, jax.ShapeDtypeStruct(shape, dtype), *args, vmap_method="broadcast_all")

    @call.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        size = sum(jnp.max(jnp.abs(x), initial=0.0) for x in primals)
        length = sum(jnp.max(jnp.abs(x), initial=0.0) for x in tangents)
        step = _DIFFERENCE * (1 + size) / jnp.where(length > 0, length, 1)
        ahead, behind = (call(*(x + s * step * v for x, v in zip(primals, tangents))) for s in (1, -1))
        return call(*primals), (ahead - behind) / (2 * step)

    return call
