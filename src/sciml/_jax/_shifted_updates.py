"""Programs that write a part of an array into the array itself at another place, as `y.at[1:].set(y[:-1])` does.

XLA on CPUs may do so in place, and read what it has overwritten (openxla/xla#49176). Behind a barrier the part is read
before anything is written.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._interpreters import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from ._shards import off_explicit_axes
from ._vma import struct, typed_sharding, vma_of
from .programs import (
    _names as names,
    equations,
    evaluate,
    is_literal,
    makers,
    parts_of_scan,
    program_called,
    programs_held,
    run_equation,
    with_programs,
)


def read_before_written(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a program whose updates by what they update are behind a barrier; itself where it has none."""
    if not _has_one(closed.jaxpr):
        return closed
    kinds = [struct(x.shape, x.dtype, vma_of(x), typed_sharding(x)) for x in closed.in_avals]
    placed = any(x.sharding is not None for x in kinds)
    with contextlib.nullcontext() if placed else off_explicit_axes():
        return jax.make_jaxpr(lambda *args: _run(closed.jaxpr, [*closed.consts, *args]))(*kinds)


def _has_one(jaxpr: Jaxpr) -> bool:
    made = makers(jaxpr)
    return any(_is_one(eqn, made) or _holds_one(eqn) for eqn in jaxpr.eqns)


def _holds_one(eqn: Any) -> bool:
    return any(map(_moves if eqn.primitive.name in _RULES else _has_one, _programs(eqn)))


def _programs(eqn: Any) -> list[Jaxpr]:
    return [x.jaxpr for x in ([eqn.params["jaxpr"]] if eqn.primitive.name in names.JITS else programs_held(eqn))]


def _moves(jaxpr: Jaxpr) -> bool:
    """Whether a function reads its neighbours; its own derivative rule may then also shift and update."""
    return any(
        eqn.primitive.name in names.MOVES or eqn.primitive.name in names.UPDATES for eqn in equations(jaxpr, _programs)
    )


def _is_one(eqn: Any, made: Mapping[Any, Any]) -> bool:
    """Whether an equation updates several numbers of an array, not all, by what depends on it."""
    if eqn.primitive.name not in names.UPDATES:
        return False
    target, update = eqn.invars[0], eqn.invars[names.UPDATES[eqn.primitive.name]]
    if is_literal(target) or is_literal(update) or not 1 < update.aval.size < target.aval.size:
        return False
    return bool(_sources(update, made) & _sources(target, made))


def _sources(var: Any, made: Mapping[Any, Any]) -> set[Any]:
    """The inputs of a value, and the value itself."""
    found, left = set(), [var]
    while left:
        var = left.pop()
        if var not in found:
            found.add(var)
            left += [v for v in made[var].invars if not is_literal(v)] if var in made else []
    return found


def _run(jaxpr: Jaxpr, inputs: Iterable[Any]) -> list:
    made = makers(jaxpr)

    def rewritten(eqn: Any, inputs: list) -> list:
        if not _holds_one(eqn):
            if _is_one(eqn, made):
                place = names.UPDATES[eqn.primitive.name]
                inputs[place] = jax.lax.optimization_barrier(inputs[place])
            return run_equation(eqn, inputs)
        if eqn.primitive.name in names.JITS:
            return _run(eqn.params["jaxpr"].jaxpr, [*eqn.params["jaxpr"].consts, *inputs])
        if eqn.primitive.name == "scan" and eqn.params["length"] == 1:
            return _turn(eqn, inputs)
        if eqn.primitive.name in _RULES:
            return _RULES[eqn.primitive.name](eqn)(*inputs)
        return run_equation(with_programs(eqn, read_before_written), inputs)

    return evaluate(jaxpr, inputs, rewritten)


def _turn(eqn: Any, inputs: list) -> list:
    """A scan of one turn without the loop, which XLA takes away after the barriers."""
    consts, carry, xs = parts_of_scan(eqn, inputs)
    closed = eqn.params["jaxpr"]
    out = _run(closed.jaxpr, [*closed.consts, *consts, *carry, *(x[0] for x in xs)])
    return [*out[: len(carry)], *(x[None] for x in out[len(carry) :])]


def _called(fn: Callable, *args: Any) -> Any:
    """Calls a function as a program without such updates."""
    closed, out = jax.make_jaxpr(fn, return_shape=True)(*args)
    found = jaxpr_as_fun(read_before_written(closed))(*jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(out), found)


class _Parted:
    """An equation as a function of the operands that have derivatives, with the results that have any."""

    def __init__(self, eqn: Any):
        self.eqn = eqn
        self.moving = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in eqn.invars]
        self.moved = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in eqn.outvars]

    def plain(self, *inputs: Any) -> list:
        """Its results, by its own program."""
        called = program_called(self.eqn)
        assert called is not None
        return _run(called[0], [*called[1], *inputs])

    def of_moving(self, inputs: Iterable[Any]) -> tuple[Callable[..., tuple[list, list]], list]:
        """The function, which also returns the other results, and the point of evaluation."""
        inputs = list(inputs)

        def run(*xs: Any) -> tuple[list, list]:
            given = iter(xs)
            every = [next(given) if moves else x for x, moves in zip(inputs, self.moving)]
            out = run_equation(self.eqn, every)
            return self.parted(out), [x for x, moves in zip(out, self.moved) if not moves]

        return run, [x for x, moves in zip(inputs, self.moving) if moves]

    def parted(self, out: Iterable[Any]) -> list:
        """Of as many as there are results, those that have derivatives."""
        return [x for x, moves in zip(out, self.moved) if moves]

    def joined(self, moved: Iterable[Any], rest: Iterable[Any]) -> list:
        """All results."""
        moved, rest = iter(moved), iter(rest)
        return [next(moved if moves else rest) for moves in self.moved]


def _custom_jvp(eqn: Any) -> Callable[..., list]:
    parts = _Parted(eqn)
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


def _custom_vjp(eqn: Any) -> Callable[..., list]:
    parts = _Parted(eqn)
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
