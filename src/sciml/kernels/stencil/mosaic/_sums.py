"""Sums as kernels lower them.

When JAX adds tangents or cotangents it writes `add_any`, an addition that the lowering for GPUs does not support.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._interpreters import ClosedJaxpr
from ...._jax.programs import _names as names, evaluate, run_equation
from .._update import Fields, StencilUpdate


def with_plain_sums(fn: Callable[..., Any], *args: Any) -> Any:
    """Returns `fn(*args)`, with every `add_any` of it an addition; arguments are PyTrees of arrays."""
    closed, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    return jax.tree.unflatten(jax.tree.structure(shape), _run(closed, jax.tree.leaves(args)))


def new_values(update: StencilUpdate, nb: Callable[..., Array], params: PyTree, like: Any) -> Fields:
    """Returns `update.new_values(nb, params, like)`, with every sum an addition."""
    reads: dict[tuple, None] = {}

    def noted(*read: Any) -> Array:
        reads[read] = None
        return jnp.zeros(like.shape, like.dtype)

    def from_values(params: PyTree, values: list[Array]) -> Fields:
        return update.new_values(lambda *read: values[list(reads).index(read)], params, like)

    jax.eval_shape(lambda params: update.new_values(noted, params, like), params)
    return with_plain_sums(from_values, params, [nb(*read) for read in reads])


def _run(closed: ClosedJaxpr, args: list) -> list:
    return evaluate(closed.jaxpr, (*closed.consts, *args), _plain)


def _plain(eqn: Any, inputs: list) -> list:
    if eqn.primitive.name == "add_any":
        return [jax.lax.add(*inputs)]
    if eqn.primitive.name in names.JITS:  # opened, since sums may be within
        return _run(eqn.params["jaxpr"], inputs)
    return run_equation(eqn, inputs)
