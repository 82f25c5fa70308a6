"""Running traced programs: by a rule for each equation, or with other programs within them."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._interpreters import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from ._names import HELD
from ._reading import closed, is_literal, parts_of_scan, parts_of_while

Rule = Callable[[Any, list], Iterable[Any]]
"""`rule(eqn, values)`: the results of an equation."""

Function = Callable[..., list]
"""A program as a function of its inputs."""


def evaluate(
    jaxpr: Jaxpr, inputs: Iterable[Any], rule: Rule, literal: Callable[[Any], Any] = lambda atom: atom.val
) -> list:
    """Returns the results of a program over values of any kind.

    Args:
        jaxpr: The program.
        inputs: The values of its constants, then of its inputs.
        rule: Returns the results of an equation; it evaluates programs within the equation itself.
        literal: Returns the value of an operand that is written into the program.
    """
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), inputs, strict=True))

    def read(atom: Any) -> Any:
        return literal(atom) if is_literal(atom) else known[atom]

    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, rule(eqn, list(map(read, eqn.invars))), strict=True))
    return list(map(read, jaxpr.outvars))


def array_of(literal: Any) -> jax.Array:
    """Returns a literal as an array of its dtype."""
    return jnp.asarray(literal.val, literal.aval.dtype)


def run_equation(eqn: Any, inputs: Iterable[Any]) -> list:
    """Returns the results of one equation, whatever its primitive: it runs as a program with only that equation.

    Args:
        eqn: The equation.
        inputs: The values of its operands, of which those written into the program do not count.
    """
    values = {v: x for v, x in zip(eqn.invars, inputs, strict=True) if not is_literal(v)}
    one = Jaxpr((), list(values), list(eqn.outvars), [eqn], eqn.effects, _debug_info())
    return jaxpr_as_fun(ClosedJaxpr(one, ()))(*values.values())


@functools.cache
def _debug_info() -> Any:
    """The debug information that JAX requires of every program; nobody reads it for a single equation."""
    return jax.make_jaxpr(lambda: ())().jaxpr.debug_info


def with_programs(eqn: Any, rewrite: Callable[[ClosedJaxpr], ClosedJaxpr]) -> Any:
    """Returns an equation with other programs, which take and give the same types; rules of derivatives stay.

    Args:
        eqn: The equation.
        rewrite: Takes a program and returns the one in its place.
    """

    def of_value(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(map(of_value, value))
        found = rewrite(closed(value))
        return found if isinstance(value, ClosedJaxpr) else found.jaxpr

    names = HELD.get(eqn.primitive.name, ())
    return eqn.replace(params=eqn.params | {n: of_value(eqn.params[n]) for n in names}) if names else eqn


def run_anew(
    eqn: Any,
    inputs: Sequence[Any],
    function: Callable[[ClosedJaxpr], Function],
    carried: Callable[[list], list] = lambda results: results,
) -> list:
    """Returns the results of a loop or a choice, `while`, `scan` or `cond`, whose programs run as other functions.

    Args:
        eqn: The equation.
        inputs: The values of its operands.
        function: Returns the function that runs in place of a program.
        carried: Gives the results of bodies and of branches the types that the equation wants of all of them.
    """
    return _ANEW[eqn.primitive.name](eqn, inputs, function, carried)


def _while(eqn: Any, inputs: Sequence[Any], function: Any, carried: Any) -> list:
    tested, fixed, carry = parts_of_while(eqn, inputs)
    test, body = function(eqn.params["cond_jaxpr"]), function(eqn.params["body_jaxpr"])
    return jax.lax.while_loop(lambda c: test(*tested, *c)[0], lambda c: carried(body(*fixed, *c)), carry)


def _scan(eqn: Any, inputs: Sequence[Any], function: Any, carried: Any) -> list:
    fixed, carry, xs = parts_of_scan(eqn, inputs)
    body, count = function(eqn.params["jaxpr"]), len(carry)

    def step(carry: list, xs: list) -> tuple[list, list]:
        out = carried(body(*fixed, *carry, *xs))
        return out[:count], out[count:]

    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    carry, ys = jax.lax.scan(step, carry, xs, **options)
    return [*carry, *ys]


def _cond(eqn: Any, inputs: Sequence[Any], function: Any, carried: Any) -> list:
    branches = list(map(function, eqn.params["branches"]))
    return jax.lax.switch(inputs[0], [lambda *xs, run=run: carried(run(*xs)) for run in branches], *inputs[1:])


_ANEW = {"while": _while, "scan": _scan, "cond": _cond}
