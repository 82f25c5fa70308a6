"""How often loops of unknown length run, counted by a run of the program with counters in its loops."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np

from .._jax._jaxprs import is_literal, run_equation, scan_counts
from .._jax._sources import at_source_of
from .._jax._vma import promote
from ._hlo_text import HloModule
from ._hlo_work import whiles_of
from ._programs import program_of


def trips_of(module: HloModule, closed: jex.core.ClosedJaxpr, inputs: Sequence[Any] | None) -> dict[str, float]:
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


def _counts(closed: jex.core.ClosedJaxpr, inputs: list) -> list:
    return _evaluate(closed.jaxpr, closed.consts, inputs)[1]


def _evaluate(jaxpr: jex.core.Jaxpr, consts: Sequence[Any], inputs: Sequence[Any]) -> tuple[list, list]:
    """Returns the results of a program, and for each loop in it, in their order, how often its body runs."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs)))
    counts: list[Any] = []

    def read(v: Any) -> Any:
        return jnp.asarray(v.val, v.aval.dtype) if is_literal(v) else known[v]

    for eqn in jaxpr.eqns:
        given = list(map(read, eqn.invars))
        called = program_of(eqn)
        name = eqn.primitive.name
        with at_source_of(eqn):
            if called is not None:
                out, more = _evaluate(*called, given)
            elif name == "while":
                out, more = _while(eqn, given)
            elif name == "scan":
                out, more = _scan(eqn, given)
            elif name == "cond":
                out, more = _cond(eqn, given)
            else:
                out, more = run_equation(eqn, given, jaxpr.debug_info), []
        counts += more
        known.update(zip(eqn.outvars, out))
    return list(map(read, jaxpr.outvars)), counts


def _loops_in(jaxpr: jex.core.Jaxpr) -> Iterator[Any]:
    """Returns the loops of a program in the order in which `_evaluate` counts them; none within `jax.shard_map`."""
    for eqn in jaxpr.eqns:
        called, name = program_of(eqn), eqn.primitive.name
        if called is not None:
            yield from _loops_in(called[0])
        elif name == "while":
            yield eqn
            yield from _loops_in(eqn.params["cond_jaxpr"].jaxpr)
            yield from _loops_in(eqn.params["body_jaxpr"].jaxpr)
        elif name == "scan":
            yield eqn
            yield from _loops_in(eqn.params["jaxpr"].jaxpr)
        elif name == "cond":
            for branch in eqn.params["branches"]:
                yield from _loops_in(branch.jaxpr)


def _blank(jaxpr: jex.core.Jaxpr) -> list:
    """Returns a count of zero for each loop in a program."""
    return [jnp.int32(0) for _ in _loops_in(jaxpr)]


def _add(a: list, b: list) -> list:
    return [x + y for x, y in zip(a, b, strict=True)]


def _while(eqn: Any, given: list) -> tuple[list, list]:
    p = eqn.params
    cond, body = p["cond_jaxpr"], p["body_jaxpr"]
    for_cond, rest = given[: p["cond_nconsts"]], given[p["cond_nconsts"] :]
    for_body, carry = rest[: p["body_nconsts"]], rest[p["body_nconsts"] :]

    def go_on(state):
        return _evaluate(cond.jaxpr, cond.consts, [*for_cond, *state[0]])[0][0]

    def iterate(state):
        carry, count, inner = state
        out, more = _evaluate(body.jaxpr, body.consts, [*for_body, *carry])
        return out, count + 1, _add(inner, more)

    inner = _blank(body.jaxpr)
    out, count, inner = jax.lax.while_loop(go_on, iterate, promote((carry, jnp.int32(0), inner)))
    return out, [count, *_blank(cond.jaxpr), *inner]


def _scan(eqn: Any, given: list) -> tuple[list, list]:
    closed, length = eqn.params["jaxpr"], eqn.params["length"]
    n_consts, n_carry = scan_counts(eqn)
    consts, carry, xs = given[:n_consts], given[n_consts : n_consts + n_carry], given[n_consts + n_carry :]

    def iterate(state, x):
        carry, inner = state
        out, more = _evaluate(closed.jaxpr, closed.consts, [*consts, *carry, *x])
        return (out[:n_carry], _add(inner, more)), out[n_carry:]

    start = promote((carry, _blank(closed.jaxpr)))
    (carry, inner), ys = jax.lax.scan(iterate, start, xs, length=length, reverse=eqn.params["reverse"])
    return [*carry, *ys], [jnp.int32(length), *inner]


def _cond(eqn: Any, given: list) -> tuple[list, list]:
    index, *operands = given
    branches = eqn.params["branches"]
    blanks = [_blank(b.jaxpr) for b in branches]

    def branch(number: int):
        def run(*operands):
            out, counts = _evaluate(branches[number].jaxpr, branches[number].consts, operands)
            before, after = (sum(map(len, part)) for part in (blanks[:number], blanks[number + 1 :]))
            return out, [jnp.int32(0)] * before + counts + [jnp.int32(0)] * after

        return run

    which = jnp.clip(index, 0, np.int32(len(branches) - 1))
    return jax.lax.switch(which, [branch(i) for i in range(len(branches))], *operands)
