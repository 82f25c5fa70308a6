"""Reading programs that JAX has traced."""

from collections.abc import Mapping
from typing import Any

import jax.extend as jex


def is_literal(atom: Any) -> bool:
    """Returns whether an operand is written into the program."""
    return isinstance(atom, jex.core.Literal)


def run_equation(jaxpr: jex.core.Jaxpr, eqn: Any, known: Mapping[Any, Any]) -> list:
    """Returns the results of one equation of a program as it stands, whatever its primitive.

    Args:
        jaxpr: The program.
        eqn: The equation.
        known: The values of its variables.
    """
    inputs = {v: known[v] for v in eqn.invars if not is_literal(v)}
    one = jex.core.Jaxpr((), list(inputs), list(eqn.outvars), [eqn], eqn.effects, jaxpr.debug_info)
    return jex.core.jaxpr_as_fun(jex.core.ClosedJaxpr(one, ()))(*inputs.values())
