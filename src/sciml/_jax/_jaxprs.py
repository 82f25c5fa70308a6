"""Reading programs that JAX has traced."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp

_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",  # the only one of these three from JAX 0.12 on
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
"""Primitives that only call a program, and the parameter that holds it."""

_HELD = {
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
    "scan": ("jaxpr",),
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr",),
    "checkpoint": ("jaxpr",),
    "remat": ("jaxpr",),
    "remat2": ("jaxpr",),
}
"""Where a primitive has the programs that it runs and that another of the same types may take the place of."""


def is_literal(atom: Any) -> bool:
    """Returns whether an operand is written into the program."""
    return isinstance(atom, jex.core.Literal)


def from_outside(arrays: Iterable[Any]) -> list[bool]:
    """Returns which arrays are none of the program that is being traced: to the body of a loop, what it closes over."""
    here = getattr(jnp.zeros(()), "_trace", None)  # a new array belongs to the program that is being traced now
    return [here is not None and getattr(x, "_trace", None) is not here for x in arrays]


def program_called(eqn: Any) -> tuple[jex.core.Jaxpr, list] | None:
    """Returns the program that an equation stands for, and its constants; None where it stands for an operation."""
    if eqn.primitive.name not in _CALLS:
        return None
    inner = eqn.params[_CALLS[eqn.primitive.name]]
    return (inner.jaxpr, list(inner.consts)) if isinstance(inner, jex.core.ClosedJaxpr) else (inner, [])


def programs_within(eqn: Any) -> Iterator[jex.core.Jaxpr]:
    """Returns the programs that an equation runs, such as the branches of a `cond` or the body of a `scan`."""
    for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        program = getattr(value, "jaxpr", value)
        if isinstance(program, jex.core.Jaxpr):
            yield program


def programs_held(eqn: Any) -> list[jex.core.ClosedJaxpr]:
    """Returns the programs of an equation that `with_programs` replaces."""
    found = [eqn.params[name] for name in _HELD.get(eqn.primitive.name, ()) if name in eqn.params]
    return [_closed(x) for value in found for x in (value if isinstance(value, tuple | list) else (value,))]


def with_programs(eqn: Any, rewrite: Callable[[jex.core.ClosedJaxpr], jex.core.ClosedJaxpr]) -> Any:
    """Returns an equation with other programs, which take and give the same types; rules of derivatives stay.

    Args:
        eqn: The equation.
        rewrite: Takes a program and returns the one in its place.
    """

    def of_value(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(map(of_value, value))
        found = rewrite(_closed(value))
        return found if isinstance(value, jex.core.ClosedJaxpr) else found.jaxpr

    names = _HELD.get(eqn.primitive.name, ())
    return eqn.replace(params=eqn.params | {n: of_value(eqn.params[n]) for n in names}) if names else eqn


def _closed(x: Any) -> jex.core.ClosedJaxpr:
    return x if isinstance(x, jex.core.ClosedJaxpr) else jex.core.ClosedJaxpr(x, ())


def depend_on(jaxpr: jex.core.Jaxpr, inputs: list[bool]) -> list[bool]:
    """Returns which results of a program depend on any of some inputs; what it runs within counts as a whole."""
    found = dict(zip(jaxpr.invars, inputs, strict=True))
    for eqn in jaxpr.eqns:
        reached = any(found.get(v, False) for v in eqn.invars if not is_literal(v))
        found.update((v, reached) for v in eqn.outvars)
    return [not is_literal(v) and found.get(v, False) for v in jaxpr.outvars]


def scan_counts(eqn: Any) -> tuple[int, int]:
    """Returns how many inputs of a scan are constants and how many its carry; the rest are scanned over."""
    if "num_consts" in eqn.params:  # jax < 0.12
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].update(list(eqn.invars)).unpack()
    return len(list(consts)), len(list(carry))


def run_equation(eqn: Any, inputs: Iterable[Any], debug_info: Any) -> list:
    """Returns the results of one equation, whatever its primitive: it runs as a program of that equation alone.

    Args:
        eqn: The equation.
        inputs: The values of its operands, of which those written into the program do not count.
        debug_info: That of its program; JAX wants every program to carry one.
    """
    values = {v: x for v, x in zip(eqn.invars, inputs, strict=True) if not is_literal(v)}
    one = jex.core.Jaxpr((), list(values), list(eqn.outvars), [eqn], eqn.effects, debug_info)
    return jex.core.jaxpr_as_fun(jex.core.ClosedJaxpr(one, ()))(*values.values())
