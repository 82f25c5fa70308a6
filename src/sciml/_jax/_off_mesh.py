"""Programs of arrays on no mesh that name one all the same.

A library may compute a constant at once while it is traced, as Equinox does for its enumerations. JAX puts it on the
mesh that is set, even where the program around it is traced on none, and so types what depends on it. JAX 0.10 sets no
other within `jax.vmap`, as `on_no_mesh` would; from 0.11 on no such constant is left. And a model may say
of its state that every device has the whole of it, which is so for arrays on no mesh.
"""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ._interpreters import ClosedJaxpr, Jaxpr
from ._vma import typed_sharding
from .programs import _names as names, equations, evaluate, programs_held, run_equation, with_programs


def places_arrays(jaxpr: Jaxpr) -> bool:
    """Returns whether a program says anywhere how an array is to be sharded."""
    return any(map(_places, equations(jaxpr)))


def _places(eqn: Any) -> bool:
    # JAX itself makes whole arrays of what it computes on no mesh, by `reshard`, which says nothing to automatic axes
    return eqn.primitive.name in names.PLACEMENTS and not (eqn.primitive.name == "reshard" and _is_whole(eqn))


def off_mesh(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a program with its constants on no mesh, and its arrays where they are; itself where that is so.

    Args:
        closed: The program, whose inputs are on no mesh. To be called where new arrays are on none.
    """
    return _rewritten(closed) if _is_on_mesh(closed) else closed


def _is_on_mesh(closed: ClosedJaxpr) -> bool:
    visited = list(equations(closed.jaxpr, lambda eqn: [x.jaxpr for x in _programs(eqn)]))
    consts = (c for x in (closed, *(x for eqn in visited for x in _programs(eqn))) for c in x.consts)
    return any(map(_typed, consts)) or any(map(_is_whole, visited))


def _is_whole(eqn: Any) -> bool:
    """Whether an equation says that every device is to have the whole of an array."""
    target = next((eqn.params[name] for name in ("dst_sharding", "sharding") if name in eqn.params), None)
    return eqn.primitive.name in names.PLACEMENTS and all(part is None for part in getattr(target, "spec", "?"))


def _typed(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer) and typed_sharding(x) is not None


def _programs(eqn: Any) -> list[ClosedJaxpr]:
    return [eqn.params["jaxpr"]] if eqn.primitive.name in names.JITS else programs_held(eqn)


def _rewritten(closed: ClosedJaxpr) -> ClosedJaxpr:
    avals = [v.aval for v in closed.jaxpr.invars]
    kinds = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in avals]
    return jax.make_jaxpr(lambda *args: _run(closed, args))(*kinds)


def _run(closed: ClosedJaxpr, args: Iterable[Any]) -> list:
    consts = [np.asarray(x) if _typed(x) else x for x in closed.consts]
    return evaluate(closed.jaxpr, (*consts, *args), _off_mesh)


def _off_mesh(eqn: Any, inputs: list) -> list:
    if eqn.primitive.name in names.JITS:
        return _run(eqn.params["jaxpr"], inputs)
    return inputs if _is_whole(eqn) else run_equation(with_programs(eqn, _rewritten), inputs)
