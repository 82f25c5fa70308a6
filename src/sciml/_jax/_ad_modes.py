"""Marks on values that one mode of differentiation may go through, and the other may not.

JAX refuses reverse mode through loops of unknown length too, and forward mode through rules of reverse mode, but in
words that do not help.
"""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ._interpreters import Primitive, ad, batching, mlir, partial_eval
from ._vma import match


def forward_only(tree: PyTree, message: str) -> PyTree:
    """Returns a PyTree of arrays as they are, to be differentiated in forward mode only.

    Args:
        tree: The arrays.
        message: The `TypeError` that reverse mode raises when it is traced.
    """
    return _marked(_mark, tree, message)


def not_transposed(tree: PyTree, message: str) -> PyTree:
    """Returns a PyTree of arrays as they are, to be differentiated or linearised, but not in reverse mode.

    Args:
        tree: The arrays.
        message: The `TypeError` that the reverse pass raises.
    """
    return _marked(_lenient, tree, message)


def reverse_only(tree: PyTree, message: str) -> PyTree:
    """Returns a PyTree of arrays as they are, to be differentiated in reverse mode only.

    Args:
        tree: The arrays.
        message: The `TypeError` that forward mode raises: when it runs, and under `jax.jit` when it is compiled.
    """
    return _marked(_reverse, tree, message)


def never_computed(kinds: Iterable[Any], message: str) -> list[Array]:
    """Returns arrays of given shapes and dtypes that stand for values which nothing may need.

    They are the tangents of operations that only have reverse mode, and are transposed by a rule that does not look at
    them.

    Args:
        kinds: Arrays or their types.
        message: The `TypeError` that is raised where they are computed, or compiled.
    """
    return [_never.bind(match(jnp.zeros(x.shape, x.dtype), x), message=message) for x in kinds]


def not_differentiated(tree: PyTree, message: str) -> PyTree:
    """Returns a PyTree of arrays as they are, not to be differentiated.

    Args:
        tree: The arrays.
        message: The `TypeError` that any derivative raises.
    """

    @jax.custom_jvp
    def same(tree):
        return tree

    def refuse(primals, tangents):
        del primals, tangents
        raise TypeError(message)

    same.defjvp(refuse)
    return same(tree)


def _marked(primitive: Any, tree: PyTree, message: str) -> PyTree:
    def mark(x: Any) -> Any:
        return primitive.bind(x, message=message) if jnp.issubdtype(x.dtype, jnp.inexact) else x

    return jax.tree.map(mark, tree)


def _refuse_transpose(cotangent: Any, x: Any, *, message: str) -> Any:
    del cotangent, x
    raise TypeError(message)


def _refuse_unknown(trace: Any, x: Any, *, message: str) -> Any:
    if x.is_known():
        return trace.default_process_primitive(_mark_of_tangent, (x,), {"message": message})
    raise TypeError(message)  # a tangent that JAX means to transpose


def _primitive(name: str) -> Any:
    mark = Primitive(name)
    mark.def_impl(lambda x, message: x)
    mark.def_abstract_eval(lambda x, message: x)
    ad.deflinear2(mark, _refuse_transpose)
    batching.defvectorized(mark)
    mlir.register_lowering(mark, lambda _, x, message: [x])
    return mark


# Values and their tangents have a mark each. JAX partially evaluates the body of a scan, including values, when it
# looks for parts that do not change from iteration to iteration: that is not a sign of reverse mode. With tangents it
# is.
_mark, _mark_of_tangent = _primitive("forward_only"), _primitive("forward_only_tangent")
ad.defjvp(_mark, lambda tangent, x, message: _mark_of_tangent.bind(tangent, message=message))
partial_eval.custom_partial_eval_rules[_mark_of_tangent] = _refuse_unknown  # pyright: ignore[reportArgumentType]
_lenient = _primitive("not_transposed")


def _refuse(*operands: Any, message: str, **options: Any) -> Any:
    del operands, options
    raise TypeError(message)


def _leave_mark(primals: Any, tangents: Any, *, message: str) -> Any:
    (x,), (tangent,) = primals, tangents
    # the value loses its mark: forward mode may go through what reverse mode makes of it
    return x, tangent if isinstance(tangent, ad.Zero) else _reverse_tangent.bind(tangent, message=message)


# Reverse mode transposes the tangent's mark away. Whoever computes the tangent itself is forward mode.
_reverse, _reverse_tangent = _primitive("reverse_only"), _primitive("reverse_only_tangent")
ad.primitive_jvps[_reverse] = _leave_mark
ad.deflinear2(_reverse_tangent, lambda cotangent, x, message: [cotangent])
ad.primitive_jvps[_reverse_tangent] = _refuse
_reverse_tangent.def_impl(_refuse)
batching.primitive_batchers[_reverse_tangent] = _refuse
mlir.register_lowering(_reverse_tangent, _refuse)

_never = _primitive("never_computed")
_never.def_impl(_refuse)
mlir.register_lowering(_never, _refuse)
