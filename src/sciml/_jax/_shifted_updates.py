"""Programs that write a part of an array into the array itself at another place, as `y.at[1:].set(y[:-1])` does.

XLA on CPUs may do so in place, and read what it has overwritten (openxla/xla#49176). Behind a barrier the part is read
before anything is written.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.extend as jex

from ._jaxprs import is_literal, run_equation
from ._shards import off_explicit_axes
from ._vma import struct, typed_sharding, vma_of

_CALLS = "jit", "pjit"
_UPDATES = {"dynamic_update_slice": 1, "scatter": 2}
"""Where the update stands among the operands."""


def read_before_written(closed: jex.core.ClosedJaxpr) -> jex.core.ClosedJaxpr:
    """Returns a program whose updates by what they update are behind a barrier; itself where it has none."""
    if not _has_one(closed.jaxpr):
        return closed
    kinds = [struct(x.shape, x.dtype, vma_of(x), typed_sharding(x)) for x in closed.in_avals]
    placed = any(x.sharding is not None for x in kinds)
    with contextlib.nullcontext() if placed else off_explicit_axes():
        return jax.make_jaxpr(lambda *args: _run(closed.jaxpr, closed.consts, args))(*kinds)


def _has_one(jaxpr: jex.core.Jaxpr) -> bool:
    makers = _makers(jaxpr)
    return any(_is_one(eqn, makers) or any(map(_has_one, _called(eqn))) for eqn in jaxpr.eqns)


def _makers(jaxpr: jex.core.Jaxpr) -> dict[Any, Any]:
    return {out: eqn for eqn in jaxpr.eqns for out in eqn.outvars}


def _called(eqn: Any) -> list[jex.core.Jaxpr]:
    return [eqn.params["jaxpr"].jaxpr] if eqn.primitive.name in _CALLS else []


def _is_one(eqn: Any, makers: Mapping[Any, Any]) -> bool:
    """Whether an equation updates several numbers of an array, not all, by what depends on it."""
    if eqn.primitive.name not in _UPDATES:
        return False
    target, update = eqn.invars[0], eqn.invars[_UPDATES[eqn.primitive.name]]
    if is_literal(target) or is_literal(update) or not 1 < update.aval.size < target.aval.size:
        return False
    return bool(_sources(update, makers) & _sources(target, makers))


def _sources(var: Any, makers: Mapping[Any, Any]) -> set[Any]:
    """What a value is computed from, with itself."""
    found, left = set(), [var]
    while left:
        var = left.pop()
        if var not in found:
            found.add(var)
            left += [v for v in makers[var].invars if not is_literal(v)] if var in makers else []
    return found


def _run(jaxpr: jex.core.Jaxpr, consts: Any, args: Any) -> list:
    known, makers = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args))), _makers(jaxpr)
    for eqn in jaxpr.eqns:
        inputs = [v.val if is_literal(v) else known[v] for v in eqn.invars]
        if any(map(_has_one, _called(eqn))):
            out = _run(eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts, inputs)
        else:
            if _is_one(eqn, makers):
                place = _UPDATES[eqn.primitive.name]
                inputs[place] = jax.lax.optimization_barrier(inputs[place])
            out = run_equation(eqn, inputs, jaxpr.debug_info)
        known.update(zip(eqn.outvars, out))
    return [v.val if is_literal(v) else known[v] for v in jaxpr.outvars]
