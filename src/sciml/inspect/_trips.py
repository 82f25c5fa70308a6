"""How often loops of unknown length run, counted by a run of the program with counters in its loops."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._jax._interpreters import ClosedJaxpr, Jaxpr
from .._jax._sources import at_source_of
from .._jax._vma import promote
from .._jax.programs import (
    _names as names,
    array_of,
    equations,
    evaluate,
    parts_of_scan,
    parts_of_while,
    programs_held,
    run_equation,
)
from ._hlo_text import HloModule
from ._hlo_work import whiles_of
from ._programs import program_of


def trips_of(module: HloModule, closed: ClosedJaxpr, inputs: Sequence[Any] | None) -> dict[str, float]:
    """Returns the iterations, on average, of loops whose number the compiler does not know, by their names.

    Args:
        module: The compiled program.
        closed: What it was made of.
        inputs: Its inputs; None where there are only shapes.
    """
    loops = whiles_of(module)
    if inputs is None or all(loop.trips is not None for loop, _ in loops):
        return {}
    traced = list(_loops_in(closed.jaxpr))
    found = [int(n) for n in jax.device_get(jax.jit(lambda *xs: _counts(closed, list(xs)))(*inputs))]
    if len(traced) == len(loops):
        rows = list(zip(loops, found))
    else:  # short loops are unrolled, and some are found to have a known length
        unknown = [n for n, eqn in zip(found, traced) if eqn.primitive.name == "while"]
        open_ = [loop for loop in loops if loop[0].trips is None]
        if len(unknown) != len(open_):
            return {}
        rows = list(zip(open_, unknown))
    totals = {loop.name: float(n) for (loop, _), n in rows}
    known = {loop.name: loop for loop, _ in loops}

    def runs(around: tuple[str, ...]) -> float:
        """How often the innermost of some loops runs its body, in all."""
        if not around:
            return 1.0
        name = around[-1]
        if name in totals:
            return totals[name]
        return runs(around[:-1]) * (known[name].trips or 1)

    trips = {}
    for (loop, around), n in rows:
        if loop.trips is None:
            trips[loop.name] = n / max(runs(around), 1.0)
    return trips


def _counts(closed: ClosedJaxpr, inputs: list) -> list:
    return _evaluate(closed, inputs)[1]


def _evaluate(closed: ClosedJaxpr, inputs: Sequence[Any]) -> tuple[list, list]:
    """Returns the results of a program, and for each loop in it, in their order, how often its body runs."""
    counts: list[Any] = []

    def counted(eqn: Any, given: list) -> list:
        called = program_of(eqn)
        with at_source_of(eqn):
            if called is not None:
                out, more = _evaluate(ClosedJaxpr(*called), given)
            elif eqn.primitive.name in _COUNTED:
                out, more = _COUNTED[eqn.primitive.name](eqn, given)
            else:
                return run_equation(eqn, given)
        counts.extend(more)
        return out

    return evaluate(closed.jaxpr, (*closed.consts, *inputs), counted, array_of), counts


def _loops_in(jaxpr: Jaxpr) -> Iterator[Any]:
    """Returns the loops of a program in the order in which `_evaluate` counts them; none within `jax.shard_map`."""
    return (eqn for eqn in equations(jaxpr, _programs_counted) if eqn.primitive.name in names.LOOPS)


def _programs_counted(eqn: Any) -> Iterable[Jaxpr]:
    called = program_of(eqn)
    if called is not None:
        return (called[0],)
    return (x.jaxpr for x in programs_held(eqn)) if eqn.primitive.name in _COUNTED else ()


def _blank(jaxpr: Jaxpr) -> list:
    """Returns a count of zero for each loop in a program."""
    return [jnp.int32(0) for _ in _loops_in(jaxpr)]


def _add(a: list, b: list) -> list:
    return [x + y for x, y in zip(a, b, strict=True)]


def _while(eqn: Any, given: list) -> tuple[list, list]:
    cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    for_cond, for_body, carry = parts_of_while(eqn, given)

    def go_on(state):
        return _evaluate(cond, [*for_cond, *state[0]])[0][0]

    def iterate(state):
        carry, count, inner = state
        out, more = _evaluate(body, [*for_body, *carry])
        return out, count + 1, _add(inner, more)

    inner = _blank(body.jaxpr)
    out, count, inner = jax.lax.while_loop(go_on, iterate, promote((carry, jnp.int32(0), inner)))
    return out, [count, *_blank(cond.jaxpr), *inner]


def _scan(eqn: Any, given: list) -> tuple[list, list]:
    closed, length = eqn.params["jaxpr"], eqn.params["length"]
    consts, carry, xs = parts_of_scan(eqn, given)

    def iterate(state, x):
        carry, inner = state
        out, more = _evaluate(closed, [*consts, *carry, *x])
        return (out[: len(carry)], _add(inner, more)), out[len(carry) :]

    start = promote((carry, _blank(closed.jaxpr)))
    (carry, inner), ys = jax.lax.scan(iterate, start, xs, length=length, reverse=eqn.params["reverse"])
    return [*carry, *ys], [jnp.int32(length), *inner]


def _cond(eqn: Any, given: list) -> tuple[list, list]:
    index, *operands = given
    branches = eqn.params["branches"]
    blanks = [_blank(b.jaxpr) for b in branches]

    def branch(number: int):
        def run(*operands):
            out, counts = _evaluate(branches[number], operands)
            before, after = (sum(map(len, part)) for part in (blanks[:number], blanks[number + 1 :]))
            return out, [jnp.int32(0)] * before + counts + [jnp.int32(0)] * after

        return run

    which = jnp.clip(index, 0, np.int32(len(branches) - 1))
    return jax.lax.switch(which, [branch(i) for i in range(len(branches))], *operands)


_COUNTED = {"while": _while, "scan": _scan, "cond": _cond}
