r"""The rule of `Forward`: the Jacobian of a march, column by column, and its products.

Let $S = \partial y / \partial x$ hold the derivatives of all saved states by the numbers $x$ that have a
tangent. Its columns are tangents of the loop itself, pushed along unit vectors while the loop
runs once. JAX then sees a linear map $\dot y = S \dot x$ with a known matrix, whose transpose
$\bar x = S^T \bar y$ it finds itself. Rows of states that a failed member did not reach are special: $\dot
y$ is NaN there, and $\bar x$ is NaN only where $\bar y$ is not zero.
"""

import math
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, PyTree

from ..._forward_only import forward_only
from ..._vma import match, promote
from ...kernels.lanes import batched
from .._loop import Loop, Result
from .._march import Operands
from .._refill import Refill
from .._scan import Steps
from ._replay import differentiable_parts, enter


def run(loop: Loop | Steps | Refill, y0: PyTree, operands: Operands, times: bool, limit: int) -> Result:
    """Runs a march whose derivatives are computed alongside; under `jax.vmap`, over lanes.

    Args:
        loop: What to run.
        y0: The initial state.
        operands: What the march depends on.
        times: Whether t0, t1 and saved times are differentiated.
        limit: The most columns.

    Raises:
        ValueError: If more numbers than that are differentiated.
    """
    spec = differentiable_parts(operands, times)
    leaves, treedef = jax.tree.flatten((y0, operands))
    free = jax.tree.leaves((jax.tree.map(lambda _: True, y0), spec))
    lockstep = loop.loop if isinstance(loop, Refill) else loop
    state_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(y0))

    def march(loop, count, flags, leaves):
        inputs, flags = jax.tree.unflatten(treedef, leaves), jax.tree.unflatten(treedef, flags)
        here, y0, operands, saves = enter(loop, count, flags, inputs, state_bytes, 1)
        return here.forward(y0, operands, saves)

    def plain(count, flags, *leaves):
        return march(loop, count, flags, leaves)

    def columns(moved):
        def run(count, flags, *leaves):
            def push(number):
                def of(*xs):
                    xs = iter(xs)
                    return march(lockstep, count, flags, [next(xs) if m else x for x, m in zip(leaves, moved)])

                units, first = [], 0
                for leaf, flag in ((x, f) for x, f, m in zip(leaves, flags, moved) if m):
                    shape = leaf.shape[:-1] if flag else leaf.shape
                    unit = _unit(number - first, shape, leaf.dtype)
                    unit = jnp.broadcast_to(unit[..., None], leaf.shape) if flag else unit
                    units.append(match(unit, leaf))
                    first += _count(shape, leaf.dtype)
                result, rates = jax.jvp(of, [x for x, m in zip(leaves, moved) if m], units)
                return result, rates.ys

            total = sum(_count(v, x.dtype) for x, v, m in zip(leaves, members, moved) if m)
            return jax.vmap(push, out_axes=(None, 0))(jnp.arange(total))

        return batched(run)

    members = [x.shape for x in leaves]

    @jax.custom_jvp
    def solve(*leaves):
        return batched(plain)(*leaves)

    def jvp(leaves, tangents):
        moved = tuple(f and type(t) is not SymbolicZero for f, t in zip(free, tangents))
        total = sum(_count(x.shape, x.dtype) for x, m in zip(leaves, moved) if m)
        if total > limit:
            raise ValueError(
                f"`adjoint=Forward()` carries a column for each number by which the solution is differentiated, "
                f"and these are {total}, more than `limit`={limit}. Use `sciml.Checkpointed()` for so many."
            )
        if not total:
            result = batched(plain)(*leaves)
            return result, _tangent(result, jax.tree.map(jnp.zeros_like, result.ys))
        result, matrix = columns(moved)(*forward_only(leaves, _REVERSE_TWICE))
        v = [_reals(t) for t, m in zip(tangents, moved) if m]
        lost = jax.tree.map(lambda y: jnp.isnan(y) & (result.status != 0), result.ys)
        rates = jax.tree.map(lambda s, lost: _without(_product(v, s), lost), matrix, lost)
        return result, _tangent(result, rates)

    solve.defjvp(jvp, symbolic_zeros=True)
    return solve(*promote(leaves))


_REVERSE_TWICE = (
    "A gradient through `adjoint=sciml.Forward()` cannot be differentiated in reverse mode again, but in forward mode "
    "it can: take `jax.hessian(f)` or `jax.jacfwd(jax.grad(f))`."
)


def _count(shape: tuple[int, ...], dtype: Any) -> int:
    """Returns how many real numbers an array holds."""
    return math.prod(shape) * (2 if jnp.issubdtype(dtype, jnp.complexfloating) else 1)


def _unit(number: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Returns an array whose real number of this number is one and the others zero, or all where there is none."""
    is_one = (jnp.arange(_count(shape, dtype)) == number).astype(jnp.finfo(dtype).dtype)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        real, imag = is_one.reshape(2, *shape)
        return jax.lax.complex(real, imag)
    return is_one.reshape(shape)


def _reals(x: Array) -> Array:
    """Returns the real numbers of an array in the order of `_unit`."""
    parts = [x.real, x.imag] if jnp.iscomplexobj(x) else [x]
    return jnp.concatenate([part.reshape(-1) for part in parts])


def _product(v: list[Array], matrix: Array) -> Array:
    """Returns the sum of the matrix's columns, in its first axis, weighted by the numbers of `v` in turn."""
    total, first = [], 0
    for part in v:
        block = jax.lax.slice_in_dim(matrix, first, first + part.size)
        weights, block = promote((part.astype(matrix.dtype), block))
        total.append(jnp.tensordot(weights, block, axes=1, precision="highest"))
        first += part.size
    return sum(total[1:], total[0])


def _tangent(result: Result, ys: PyTree) -> Result:
    """Returns the tangent of a result whose saved states have these tangents."""

    def none(x: Array) -> Any:
        inexact = jnp.issubdtype(x.dtype, jnp.inexact)
        return jnp.zeros_like(x) if inexact else np.zeros(x.shape, jax.dtypes.float0)

    return Result(ys, *(none(x) for x in result[1:]))


def _without(rate: Array, lost: Array) -> Array:
    """Returns a tangent, NaN where lost, whose transpose is NaN where what is lost was used and zero elsewhere."""
    rate, lost = promote((rate, lost))
    return _without_lost.bind(rate, lost)


def _nan_where(rate, lost):
    return jnp.where(lost, jnp.full_like(rate, jnp.nan), rate)


def _jvp_without(primals, tangents):
    rate, lost = primals
    rate_dot, _ = tangents
    zero = type(rate_dot) is ad.Zero
    return _without_lost.bind(rate, lost), rate_dot if zero else _without_lost.bind(rate_dot, lost)


def _transpose_without(cotangent, rate, lost):
    if type(cotangent) is ad.Zero:
        return [None, None]
    used = jnp.where(cotangent != 0, jnp.full_like(cotangent, jnp.nan), jnp.zeros_like(cotangent))
    return [jnp.where(lost, used, cotangent), None]


def _batch_without(args, dims):
    size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
    first = [jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    return _without_lost.bind(*promote(first)), 0


_without_lost = jex.core.Primitive("without_lost")
_without_lost.def_impl(_nan_where)
_without_lost.def_abstract_eval(lambda rate, lost: rate)
ad.primitive_jvps[_without_lost] = _jvp_without
ad.primitive_transposes[_without_lost] = _transpose_without
batching.primitive_batchers[_without_lost] = _batch_without
mlir.register_lowering(_without_lost, mlir.lower_fun(_nan_where, multiple_results=False))
