"""Programs that write a part of an array into the array itself at another place, as `y.at[1:].set(y[:-1])` does.

XLA on CPUs may do so in place, and read what it has overwritten (openxla/xla#49176). Behind a barrier the part is read
before anything is written.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np

from ._jaxprs import is_literal, program_called, programs_held, run_equation, scan_counts, with_programs
from ._shards import off_explicit_axes
from ._vma import struct, typed_sharding, vma_of

_CALLS = "jit", "pjit"
_UPDATES = {"dynamic_update_slice": 1, "scatter": 2}
"""Where the update stands among the operands."""

_MOVES = {*_UPDATES, "slice", "dynamic_slice", "gather", "concatenate", "pad", "rev"}
"""What a function reads its neighbours with, whose own rule of derivatives may then shift and update, too."""


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
    return any(_is_one(eqn, makers) or _holds_one(eqn) for eqn in jaxpr.eqns)


def _holds_one(eqn: Any) -> bool:
    return any(map(_moves if eqn.primitive.name in _RULES else _has_one, _programs(eqn)))


def _programs(eqn: Any) -> list[jex.core.Jaxpr]:
    return [x.jaxpr for x in ([eqn.params["jaxpr"]] if eqn.primitive.name in _CALLS else programs_held(eqn))]


def _moves(jaxpr: jex.core.Jaxpr) -> bool:
    within = (x for eqn in jaxpr.eqns for x in _programs(eqn))
    return _has_one(jaxpr) or any(eqn.primitive.name in _MOVES for eqn in jaxpr.eqns) or any(map(_moves, within))


def _makers(jaxpr: jex.core.Jaxpr) -> dict[Any, Any]:
    return {out: eqn for eqn in jaxpr.eqns for out in eqn.outvars}


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


def _run(jaxpr: jex.core.Jaxpr, consts: Iterable[Any], args: Iterable[Any]) -> list:
    known, makers = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args))), _makers(jaxpr)
    for eqn in jaxpr.eqns:
        inputs = [v.val if is_literal(v) else known[v] for v in eqn.invars]
        if not _holds_one(eqn):
            if _is_one(eqn, makers):
                place = _UPDATES[eqn.primitive.name]
                inputs[place] = jax.lax.optimization_barrier(inputs[place])
            out = run_equation(eqn, inputs, jaxpr.debug_info)
        elif eqn.primitive.name in _CALLS:
            out = _run(eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts, inputs)
        elif eqn.primitive.name == "scan" and eqn.params["length"] == 1:
            out = _turn(eqn, inputs)
        elif eqn.primitive.name in _RULES:
            out = _RULES[eqn.primitive.name](eqn, jaxpr.debug_info)(*inputs)
        else:
            out = run_equation(with_programs(eqn, read_before_written), inputs, jaxpr.debug_info)
        known.update(zip(eqn.outvars, out))
    return [v.val if is_literal(v) else known[v] for v in jaxpr.outvars]


def _turn(eqn: Any, inputs: list) -> list:
    """A scan of one turn without the loop, which XLA takes away after the barriers."""
    consts, carried = scan_counts(eqn)
    before = consts + carried
    closed = eqn.params["jaxpr"]
    out = _run(closed.jaxpr, closed.consts, [*inputs[:before], *(x[0] for x in inputs[before:])])
    return [*out[:carried], *(x[None] for x in out[carried:])]


def _called(fn: Callable, *args: Any) -> Any:
    """Calls a function as a program without such updates."""
    closed, out = jax.make_jaxpr(fn, return_shape=True)(*args)
    found = jex.core.jaxpr_as_fun(read_before_written(closed))(*jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(out), found)


class _Parted:
    """An equation as a function of those of its operands that have derivatives, and its results that have any."""

    def __init__(self, eqn: Any, debug_info: Any):
        self.eqn, self.debug_info = eqn, debug_info
        self.moving = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in eqn.invars]
        self.moved = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in eqn.outvars]

    def plain(self, *inputs: Any) -> list:
        """Its results, by its own program."""
        called = program_called(self.eqn)
        assert called is not None
        return _run(*called, inputs)

    def of_moving(self, inputs: Iterable[Any]) -> tuple[Callable[..., tuple[list, list]], list]:
        """The function, which returns the other results beside, and where it is to be taken."""
        inputs = list(inputs)

        def run(*xs: Any) -> tuple[list, list]:
            given = iter(xs)
            every = [next(given) if moves else x for x, moves in zip(inputs, self.moving)]
            out = run_equation(self.eqn, every, self.debug_info)
            return self.parted(out), [x for x, moves in zip(out, self.moved) if not moves]

        return run, [x for x, moves in zip(inputs, self.moving) if moves]

    def parted(self, out: Iterable[Any]) -> list:
        """Of as many as there are results, those that have derivatives."""
        return [x for x, moves in zip(out, self.moved) if moves]

    def joined(self, moved: Iterable[Any], rest: Iterable[Any]) -> list:
        """All results."""
        moved, rest = iter(moved), iter(rest)
        return [next(moved if moves else rest) for moves in self.moved]


def _custom_jvp(eqn: Any, debug_info: Any) -> Callable[..., list]:
    parts = _Parted(eqn, debug_info)
    run = jax.custom_jvp(parts.plain)

    @run.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[list, list]:
        def pushed(inputs: tuple, rates: list) -> tuple[list, list, list]:
            fn, at = parts.of_moving(inputs)
            return jax.jvp(fn, at, rates, has_aux=True)

        rates = [x for x, moves in zip(tangents, parts.moving) if moves]
        out, moved, rest = _called(pushed, primals, rates)
        return parts.joined(out, rest), parts.joined(moved, [np.zeros(x.shape, jax.dtypes.float0) for x in rest])

    return run


def _custom_vjp(eqn: Any, debug_info: Any) -> Callable[..., list]:
    parts = _Parted(eqn, debug_info)
    run = jax.custom_vjp(parts.plain)

    def forward(*inputs: Any) -> tuple[list, Any]:
        def fn(*inputs: Any) -> tuple[list, Any, list]:
            moving, at = parts.of_moving(inputs)
            return jax.vjp(moving, *at, has_aux=True)

        out, pull, rest = _called(fn, *inputs)
        return parts.joined(out, rest), pull

    def backward(pull: Callable, cotangents: list) -> tuple:
        found = iter(_called(lambda pull, given: pull(given), pull, parts.parted(cotangents)))
        return tuple(next(found) if moves else None for moves in parts.moving)

    run.defvjp(forward, backward)
    return run


_RULES = {"custom_jvp_call": _custom_jvp, "custom_vjp_call": _custom_vjp}
"""Functions with derivatives of their own, whose rules are programs only where they are differentiated."""
