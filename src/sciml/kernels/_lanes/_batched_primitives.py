"""Primitives over stacked values, members in the last axis, where `jax.vmap` would move that axis.

JAX's own rules bring members to the front where an operand that all share has to be broadcast. XLA then lays out
the arrays in between with members first, and a matrix product of such an array takes twice the time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._choices import choices
from ..._jax._marks import chosen
from ..._jax._vma import promote
from ..._jax.programs import _names as names
from . import _linear_algebra as linear_algebra
from ._values import Stacked

_RULES: dict[str, Callable[..., Array | Sequence[Array] | None]] = {}


def run(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> list[Array] | None:
    """Returns the results of an equation with members last, or None where JAX's rule is as good.

    Args:
        eqn: The equation of one member.
        values: Its operands, at least one of them not shared.
        arrays: Their arrays, ready for the primitive.
        count: The number of lanes.
    """
    name = eqn.primitive.name
    if name in names.ELEMENTWISE:
        out = _elementwise(eqn, values, arrays, count)
    elif name in _RULES:
        out = _RULES[name](eqn, values, arrays, count)
    else:
        return None
    return [out] if isinstance(out, jax.Array) else out


def _elementwise(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    shape = eqn.outvars[0].aval.shape
    if any(v.ndim not in (0, len(shape)) for v in values) or all(v.batched and v.shape == shape for v in values):
        return None
    params = dict(eqn.params)
    if "sharding" in params:
        params["sharding"] = None
    return eqn.primitive.bind(*(_spread(v, x, shape, count) for v, x in zip(values, arrays)), **params)


def _spread(value: Stacked, x: Array, shape: tuple[int, ...], count: int) -> Array:
    """The array of an operand over all elements of the result and all lanes."""
    if value.batched and value.shape == shape:
        return x
    axes = tuple(range(len(shape))) if value.ndim else ()
    stretched = [i for i in axes if value.shape[i] != shape[i]]  # of length one
    axes = tuple(i for i in axes if i not in stretched) + ((len(shape),) if value.batched else ())
    return jax.lax.broadcast_in_dim(jax.lax.squeeze(x, stretched), (*shape, count), axes)


def _rule(name: str) -> Callable:
    def register(rule: Callable) -> Callable:
        _RULES[name] = rule
        return rule

    return register


@_rule("broadcast_in_dim")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    if len(values) > 1:  # a shape that is traced
        return None
    shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    return jax.lax.broadcast_in_dim(arrays[0], (*shape, count), (*map(int, axes), len(shape)))


@_rule("reshape")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    if len(values) > 1 or eqn.params.get("dimensions") is not None:
        return None
    return jax.lax.reshape(arrays[0], (*eqn.params["new_sizes"], count))


@_rule("transpose")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    return jax.lax.transpose(arrays[0], (*map(int, eqn.params["permutation"]), values[0].ndim))


@_rule("dot_general")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    """A product whose second operand all members share, the operands exchanged: what is last stays last."""
    del count
    (contract_a, contract_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
    if values[1].batched or batch_a:
        return None
    free_a = values[0].ndim - len(contract_a)
    free_b = values[1].ndim - len(contract_b)
    if free_a and free_b:
        return None
    precision = eqn.params["precision"]
    precision = precision[::-1] if isinstance(precision, tuple) else precision
    params = eqn.params | dict(dimension_numbers=((contract_b, contract_a), ((), ())), precision=precision)
    return eqn.primitive.bind(arrays[1], arrays[0], **params)


@_rule("concatenate")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    whole = [_spread(v, x, v.shape, count) for v, x in zip(values, arrays)]
    return jax.lax.concatenate(promote(whole), eqn.params["dimension"])


@_rule("slice")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    start, limit, strides = (eqn.params[name] for name in ("start_indices", "limit_indices", "strides"))
    strides = None if strides is None else (*strides, 1)
    return jax.lax.slice(arrays[0], (*start, 0), (*limit, count), strides)


@_rule("dynamic_slice")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    if any(v.batched for v in values[1:]):
        return None
    last = jnp.zeros((), arrays[1].dtype) if len(arrays) > 1 else 0
    return jax.lax.dynamic_slice(arrays[0], (*arrays[1:], last), (*eqn.params["slice_sizes"], count))


@_rule("dynamic_update_slice")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    if any(v.batched for v in values[2:]) or len(arrays) < 3:
        return None
    whole, update = promote([_spread(v, x, v.shape, count) for v, x in zip(values[:2], arrays)])
    return jax.lax.dynamic_update_slice(whole, update, (*arrays[2:], jnp.zeros((), arrays[2].dtype)))


@_rule("gather")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    """The elements of a vector in an order that each member has for itself."""
    operand, indices = values
    numbers = eqn.params["dimension_numbers"]
    simple = (numbers.offset_dims, numbers.collapsed_slice_dims, numbers.start_index_map) == ((), (0,), (0,))
    if not simple or operand.ndim != 1 or indices.ndim != 2 or not indices.batched:
        return None
    if eqn.params["mode"] != jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        return None
    whole = _spread(operand, arrays[0], operand.shape, count)
    return jnp.take_along_axis(whole, arrays[1][:, 0], axis=0, mode="promise_in_bounds")


@_rule("lu")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Sequence[Array] | None:
    del eqn, count
    if values[0].ndim != 2 or not linear_algebra.serves(arrays[0]):
        return None
    with chosen("linear.lanes_from"):
        return linear_algebra.lu(arrays[0])


@_rule("lu_pivots_to_permutation")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    size = eqn.params["permutation_size"]
    if values[0].ndim != 1 or size > choices().linear.lanes_rows_at_most:
        return None
    return linear_algebra.permutation(arrays[0], size)


@_rule("triangular_solve")
def _(eqn: Any, values: Sequence[Stacked], arrays: Sequence[Array], count: int) -> Array | None:
    matrix, right = values
    if not matrix.batched or matrix.ndim != 2 or not linear_algebra.serves(arrays[0]):
        return None  # one matrix for all members is divided by once
    right = _spread(right, arrays[1], right.shape, count)
    return linear_algebra.solve_triangular(arrays[0], right, **eqn.params)
