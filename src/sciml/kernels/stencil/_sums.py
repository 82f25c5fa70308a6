"""Sums as kernels lower them.

Where JAX's reverse mode adds cotangents it writes `add_any`, an addition that the lowering for GPUs does not know.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend as jex

from ..._jaxprs import is_literal, run_equation


def with_plain_sums(fn: Callable[..., Any], *args: Any) -> Any:
    """Returns `fn(*args)`, with every `add_any` of it an addition; arguments are PyTrees of arrays."""
    closed, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    return jax.tree.unflatten(jax.tree.structure(shape), _run(closed, jax.tree.leaves(args)))


def _run(closed: jex.core.ClosedJaxpr, args: list) -> list:
    jaxpr = closed.jaxpr
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args)))

    def read(v: Any) -> Any:
        return v.val if is_literal(v) else known[v]

    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "add_any":
            out = [jax.lax.add(*map(read, eqn.invars))]
        elif eqn.primitive.name in ("jit", "pjit"):
            out = _run(eqn.params["jaxpr"], list(map(read, eqn.invars)))
        else:
            out = run_equation(eqn, map(read, eqn.invars), jaxpr.debug_info)
        known.update(zip(eqn.outvars, out))
    return [read(v) for v in jaxpr.outvars]
