"""Programs of arrays on no mesh that name one all the same.

A library may compute a constant at once while it is traced, as Equinox does for its enumerations. JAX puts it on the
mesh that is set, even where the program around it is traced on none, and so types what depends on it. JAX 0.10 sets no
other within `jax.vmap`, as `on_no_mesh` would; from 0.11 on no such constant is left. And a model may say
of its state that every device has the whole of it, which is so for arrays on no mesh.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend as jex
import numpy as np
from jax.core import Tracer

from ._jaxprs import is_literal, programs_held, programs_within, run_equation, with_programs
from ._vma import typed_sharding

_CALLS = "jit", "pjit"
_PLACES = "reshard", "sharding_constraint"


def places_arrays(jaxpr: jex.core.Jaxpr) -> bool:
    """Returns whether a program says anywhere how an array is to be sharded."""
    return any(_places(eqn) or any(map(places_arrays, programs_within(eqn))) for eqn in jaxpr.eqns)


def _places(eqn: Any) -> bool:
    # JAX itself makes whole arrays of what it computes on no mesh, by `reshard`, which says nothing to automatic axes
    return eqn.primitive.name in _PLACES and not (eqn.primitive.name == "reshard" and _is_whole(eqn))


def off_mesh(closed: jex.core.ClosedJaxpr) -> jex.core.ClosedJaxpr:
    """Returns a program with its constants on no mesh, and its arrays where they are; itself where that is so.

    Args:
        closed: The program, whose inputs are on no mesh. To be called where new arrays are on none.
    """
    return _rewritten(closed) if _is_on_mesh(closed) else closed


def _is_on_mesh(closed: jex.core.ClosedJaxpr) -> bool:
    inner = (x for eqn in closed.jaxpr.eqns for x in _programs(eqn))
    return any(map(_typed, closed.consts)) or any(map(_is_whole, closed.jaxpr.eqns)) or any(map(_is_on_mesh, inner))


def _is_whole(eqn: Any) -> bool:
    """Whether an equation says that every device is to have the whole of an array."""
    target = next((eqn.params[name] for name in ("dst_sharding", "sharding") if name in eqn.params), None)
    return eqn.primitive.name in _PLACES and all(part is None for part in getattr(target, "spec", "?"))


def _typed(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer) and typed_sharding(x) is not None


def _programs(eqn: Any) -> list[jex.core.ClosedJaxpr]:
    return [_called(eqn)] if eqn.primitive.name in _CALLS else programs_held(eqn)


def _called(eqn: Any) -> jex.core.ClosedJaxpr:
    return eqn.params["jaxpr"]


def _rewritten(closed: jex.core.ClosedJaxpr) -> jex.core.ClosedJaxpr:
    avals = [v.aval for v in closed.jaxpr.invars]
    kinds = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in avals]
    return jax.make_jaxpr(_function(closed))(*kinds)


def _function(closed: jex.core.ClosedJaxpr) -> Callable[..., list]:
    def run(*args):
        consts = [np.asarray(x) if _typed(x) else x for x in closed.consts]
        known = dict(zip((*closed.jaxpr.constvars, *closed.jaxpr.invars), (*consts, *args)))

        def read(v):
            return v.val if is_literal(v) else known[v]

        for eqn in closed.jaxpr.eqns:
            inputs = list(map(read, eqn.invars))
            if eqn.primitive.name in _CALLS:
                out = _function(_called(eqn))(*inputs)
            elif _is_whole(eqn):
                out = inputs
            else:
                out = run_equation(with_programs(eqn, _rewritten), inputs, closed.jaxpr.debug_info)
            known.update(zip(eqn.outvars, out))
        return list(map(read, closed.jaxpr.outvars))

    return run
