"""Sums as kernels lower them.

Where JAX adds tangents or cotangents it writes `add_any`, an addition that the lowering for GPUs does not know.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._jaxprs import is_literal, run_equation
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


def _run(closed: jex.core.ClosedJaxpr, args: list) -> list:
    jaxpr = closed.jaxpr
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args)))

    def read(v: Any) -> Any:
        return v.val if is_literal(v) else known[v]

    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "add_any":
            out = [jax.lax.add(*map(read, eqn.invars))]
        elif eqn.primitive.name in ("jit", "pjit"):  # opened, since sums may stand within
            out = _run(eqn.params["jaxpr"], list(map(read, eqn.invars)))
        else:
            out = run_equation(eqn, map(read, eqn.invars), jaxpr.debug_info)
        known.update(zip(eqn.outvars, out))
    return [read(v) for v in jaxpr.outvars]
