"""Programs whose inputs vary over other axes of a mesh than when they were traced.

JAX writes into a program where its values are promoted, and refuses to promote what varies already.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from ._interpreters import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from ._vma import match, promote, struct, to_varying, vma_of
from .programs import (
    _names as names,
    array_of,
    evaluate,
    is_literal,
    program_called,
    programs_within,
    run_anew,
    run_equation,
)


def as_promoted_function(closed: ClosedJaxpr) -> Callable[..., list]:
    """Returns a program as a function whose inputs may vary over other axes than when it was traced.

    JAX writes into a program where its values are promoted, and refuses to promote what varies already.
    Here values are promoted to the axes that the inputs vary over now.
    """

    def run(*args):
        # all to the same axes, for JAX refuses operands of one equation that vary over different ones
        values = promote((*closed.consts, *args))
        axes = vma_of(values)

        def promoted(eqn: Any, inputs: list) -> Iterable[Any]:
            if eqn.primitive.name in names.PROMOTIONS:
                return to_varying(inputs, axes)
            if eqn.primitive.name in names.JITS:
                return as_promoted_function(eqn.params["jaxpr"])(*inputs)
            if eqn.primitive.name in _TRACED_ANEW and not all(map(_as_then, inputs, eqn.invars)):
                return _traced_anew(eqn, to_varying(inputs, axes), axes)
            if any(programs_within(eqn)):
                return run_equation(eqn, inputs)
            # literals, and what `axis_index` makes anew, vary over fewer axes than what was promoted
            made = eqn.primitive.bind(*promote(inputs), **eqn.params)
            return made if eqn.primitive.multiple_results else [made]

        return evaluate(closed.jaxpr, values, promoted, array_of)

    return run


def _as_then(x: Any, atom: Any) -> bool:
    """Whether an operand varies over the axes that it varied over when the program was traced."""
    return is_literal(atom) or vma_of(x) == vma_of(atom.aval)


_TRACED_ANEW = names.LOOPS | {"cond", "custom_jvp_call"}
"""Primitives that keep programs for the axes over which their inputs varied when they were traced."""


def _traced_anew(eqn: Any, inputs: list, axes: frozenset) -> list:
    if eqn.primitive.name == "custom_jvp_call":
        return _promoted_custom_jvp(eqn, inputs, axes)
    return run_anew(eqn, inputs, as_promoted_function, lambda results: to_varying(results, axes))


def _promoted_custom_jvp(eqn: Any, inputs: list, axes: frozenset) -> list:
    called = program_called(eqn)
    assert called is not None
    moving = [i for i, v in enumerate(eqn.invars) if jnp.issubdtype(v.aval.dtype, jnp.inexact)]

    @jax.custom_jvp
    def run(*xs: Any) -> list:
        return to_varying(run_program(*called, *xs), axes)

    def pushed(primals: list, tangents: list) -> list:
        def of_moving(*xs: Any) -> list:
            rest = iter(xs)
            return run_equation(eqn, [next(rest) if i in moving else x for i, x in enumerate(primals)])

        return jax.jvp(of_moving, [primals[i] for i in moving], tangents)[1]

    @run.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[list, list]:
        then = [struct(v.aval.shape, v.aval.dtype, vma_of(v.aval)) for v in eqn.invars]
        program = jax.make_jaxpr(pushed)(then, [then[i] for i in moving])
        moved = as_promoted_function(program)(*primals, *(tangents[i] for i in moving))
        return run(*primals), to_varying(moved, axes)

    return run(*inputs)


def run_program(jaxpr: Jaxpr, consts: Iterable[Any], *args: Any) -> list:
    """Runs a program, whose inputs may by now vary over more axes of a mesh than when it was traced."""
    closed = ClosedJaxpr(jaxpr, list(consts))
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return (as_promoted_function(closed) if manual else jaxpr_as_fun(closed))(*args)


def as_varying(fn: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
    """Returns a function of a PyTree to one like it, all of whose closure varies over the axes that its argument does.

    `jax.lax.custom_linear_solve` makes what its functions close over vary so, and keeps the programs it had traced.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return fn
    program = jax.make_jaxpr(fn)(x)
    consts = match(list(program.consts), x)
    structure = jax.tree.structure(x)
    return lambda x: jax.tree.unflatten(structure, run_program(program.jaxpr, consts, *jax.tree.leaves(x)))
