"""Reading programs that JAX has traced."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.extend as jex


def is_literal(atom: Any) -> bool:
    """Returns whether an operand is written into the program."""
    return isinstance(atom, jex.core.Literal)


def programs_within(eqn: Any) -> Iterator[jex.core.Jaxpr]:
    """Returns the programs that an equation runs, such as the branches of a `cond` or the body of a `scan`."""
    for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        program = getattr(value, "jaxpr", value)
        if isinstance(program, jex.core.Jaxpr):
            yield program


def run_equation(eqn: Any, inputs: Iterable[Any], debug_info: Any) -> list:
    """Returns the results of one equation as it stands, whatever its primitive: as a program of that equation alone.

    Args:
        eqn: The equation.
        inputs: The values of its operands, of which those written into the program do not count.
        debug_info: That of its program; JAX wants every program to carry one.
    """
    values = {v: x for v, x in zip(eqn.invars, inputs, strict=True) if not is_literal(v)}
    one = jex.core.Jaxpr((), list(values), list(eqn.outvars), [eqn], eqn.effects, debug_info)
    return jex.core.jaxpr_as_fun(jex.core.ClosedJaxpr(one, ()))(*values.values())
