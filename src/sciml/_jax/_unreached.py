"""A mark on the tangents of states that were not reached: whoever uses them gets NaN, and whoever does not, zero."""

import jax.extend as jex
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from ._vma import promote


def without_unreached(rate: Array, unreached: Array) -> Array:
    """Returns a tangent, NaN in unreached states; its transpose is NaN where such a state is used, else zero."""
    rate, unreached = promote((rate, unreached))
    return _without_unreached.bind(rate, unreached)


def _nan_where(rate, unreached):
    return jnp.where(unreached, jnp.full_like(rate, jnp.nan), rate)


def _jvp_without(primals, tangents):
    rate, unreached = primals
    rate_dot, _ = tangents
    zero = type(rate_dot) is ad.Zero
    return _without_unreached.bind(rate, unreached), rate_dot if zero else _without_unreached.bind(rate_dot, unreached)


def _transpose_without(cotangent, rate, unreached):
    if type(cotangent) is ad.Zero:
        return [None, None]
    used = jnp.where(cotangent != 0, jnp.full_like(cotangent, jnp.nan), jnp.zeros_like(cotangent))
    return [jnp.where(unreached, used, cotangent), None]


def _batch_without(args, dims):
    size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
    first = [jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    return _without_unreached.bind(*promote(first)), 0


# a primitive, because its transpose is not that of the `jnp.where` that it computes: see `_transpose_without`
_without_unreached = jex.core.Primitive("without_unreached")
_without_unreached.def_impl(_nan_where)
_without_unreached.def_abstract_eval(lambda rate, unreached: rate)
ad.primitive_jvps[_without_unreached] = _jvp_without
ad.primitive_transposes[_without_unreached] = _transpose_without
batching.primitive_batchers[_without_unreached] = _batch_without
mlir.register_lowering(_without_unreached, mlir.lower_fun(_nan_where, multiple_results=False))
