"""A mark on values that forward mode may go through once more, and reverse mode may not.

JAX refuses reverse mode through loops of unknown length too, but in words that do not help.
"""

from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir, partial_eval
from jaxtyping import PyTree


def forward_only(tree: PyTree, message: str) -> PyTree:
    """Returns a PyTree of arrays as they are, to be differentiated in forward mode only.

    Args:
        tree: The arrays.
        message: The `TypeError` that reverse mode raises when it is traced.
    """

    def mark(x: Any) -> Any:
        return _mark.bind(x, message=message) if jnp.issubdtype(x.dtype, jnp.inexact) else x

    return jax.tree.map(mark, tree)


def _refuse_transpose(cotangent: Any, x: Any, *, message: str) -> Any:
    del cotangent, x
    raise TypeError(message)


def _refuse_unknown(trace: Any, x: Any, *, message: str) -> Any:
    if x.is_known():
        return trace.default_process_primitive(_mark_of_tangent, (x,), {"message": message})
    raise TypeError(message)  # a tangent that JAX means to transpose


# Values and their tangents have a mark each. JAX evaluates only in part what stands in a scan, values too, when it
# looks for what does not change from turn to turn; that says nothing of reverse mode. With tangents it does.
_mark = jex.core.Primitive("forward_only")
_mark_of_tangent = jex.core.Primitive("forward_only_tangent")
for _primitive in (_mark, _mark_of_tangent):
    _primitive.def_impl(lambda x, message: x)
    _primitive.def_abstract_eval(lambda x, message: x)
    ad.deflinear2(_primitive, _refuse_transpose)
    batching.defvectorized(_primitive)
    mlir.register_lowering(_primitive, lambda _, x, message: [x])
ad.defjvp(_mark, lambda tangent, x, message: _mark_of_tangent.bind(tangent, message=message))
partial_eval.custom_partial_eval_rules[_mark_of_tangent] = _refuse_unknown  # pyright: ignore[reportArgumentType]
