"""The structure of traced programs: equations, the programs within them, and what depends on what."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from .._interpreters import ClosedJaxpr, Jaxpr, Literal, partial_eval
from ._names import CALLS, HELD

_T = TypeVar("_T")


def is_literal(atom: Any) -> bool:
    """Returns whether an operand is written into the program."""
    return isinstance(atom, Literal)


def from_outside(arrays: Iterable[Any]) -> list[bool]:
    """Returns the arrays from outside of the traced program: for a loop's body, the values that it closes over."""
    here = getattr(jnp.zeros(()), "_trace", None)  # a new array belongs to the program that is being traced now
    return [here is not None and getattr(x, "_trace", None) is not here for x in arrays]


def program_called(eqn: Any) -> tuple[Jaxpr, list] | None:
    """Returns the program that an equation stands for, and its constants; None where it stands for an operation."""
    if eqn.primitive.name not in CALLS:
        return None
    inner = eqn.params[CALLS[eqn.primitive.name]]
    return (inner.jaxpr, list(inner.consts)) if isinstance(inner, ClosedJaxpr) else (inner, [])


def programs_within(eqn: Any) -> Iterator[Jaxpr]:
    """Returns the programs that an equation runs, such as the branches of a `cond` or the body of a `scan`."""
    for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        program = getattr(value, "jaxpr", value)
        if isinstance(program, Jaxpr):
            yield program


def programs_held(eqn: Any) -> list[ClosedJaxpr]:
    """Returns the programs of an equation that `with_programs` replaces."""
    found = [eqn.params[name] for name in HELD.get(eqn.primitive.name, ()) if name in eqn.params]
    return [closed(x) for value in found for x in (value if isinstance(value, tuple | list) else (value,))]


def closed(program: Any) -> ClosedJaxpr:
    """Returns a program with its constants, of which it may have none."""
    return program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())


def equations(jaxpr: Jaxpr, within: Callable[[Any], Iterable[Jaxpr]] = programs_within) -> Iterator[Any]:
    """Returns every equation of a program, each followed by the equations of the programs within it.

    Args:
        jaxpr: The program.
        within: Returns the programs of an equation that are visited.
    """
    for eqn in jaxpr.eqns:
        yield eqn
        for program in within(eqn):
            yield from equations(program, within)


def makers(jaxpr: Jaxpr) -> dict[Any, Any]:
    """Returns the equation that computes each variable of a program."""
    return {out: eqn for eqn in jaxpr.eqns for out in eqn.outvars}


def depend_on(jaxpr: Jaxpr, inputs: list[bool]) -> list[bool]:
    """Returns which results of a program depend on any of some inputs; what it runs within counts as a whole."""
    found = dict(zip(jaxpr.invars, inputs, strict=True))
    for eqn in jaxpr.eqns:
        reached = any(found.get(v, False) for v in eqn.invars if not is_literal(v))
        found.update((v, reached) for v in eqn.outvars)
    return [not is_literal(v) and found.get(v, False) for v in jaxpr.outvars]


def reads(jaxpr: Jaxpr, variable: Any) -> bool:
    """Returns whether an operation of a program, or of one that it calls, has a variable among its operands."""
    for eqn in jaxpr.eqns:
        for position, atom in enumerate(eqn.invars):
            if atom is variable:
                called = program_called(eqn)
                if called is None or reads(called[0], called[0].invars[position]):
                    return True
    return any(atom is variable for atom in jaxpr.outvars)


def used_inputs(jaxpr: Jaxpr) -> list[bool]:
    """Returns the inputs on which the results of a program depend, also within the programs that it runs."""
    return list(partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1])


def without_unused(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a program of the same inputs without the equations that no result depends on."""
    return partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)[0]


def with_constants_as_inputs(program: ClosedJaxpr, which: Sequence[bool]) -> ClosedJaxpr:
    """Returns a program that takes some of its constants as its last inputs."""
    jaxpr, kept = program.jaxpr, [not w for w in which]
    inputs = [*jaxpr.invars, *_chosen(jaxpr.constvars, which)]
    whole = Jaxpr(_chosen(jaxpr.constvars, kept), inputs, jaxpr.outvars, jaxpr.eqns, jaxpr.effects, jaxpr.debug_info)
    return ClosedJaxpr(whole, _chosen(program.consts, kept))


def _chosen(values: Iterable[_T], which: Iterable[bool]) -> list[_T]:
    return [x for x, w in zip(values, which, strict=True) if w]


def scan_counts(eqn: Any) -> tuple[int, int]:
    """Returns how many inputs of a scan are constants and how many its carry; the rest are scanned over."""
    if "num_consts" in eqn.params:  # jax < 0.12
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].update(list(eqn.invars)).unpack()
    return len(list(consts)), len(list(carry))


def parts_of_scan(eqn: Any, inputs: Sequence[_T]) -> tuple[list[_T], list[_T], list[_T]]:
    """Returns the inputs of a scan that are constants, its carry, and those that are scanned over."""
    consts, carried = scan_counts(eqn)
    inputs, end = list(inputs), consts + carried
    return inputs[:consts], inputs[consts:end], inputs[end:]


def parts_of_while(eqn: Any, inputs: Sequence[_T]) -> tuple[list[_T], list[_T], list[_T]]:
    """Returns the inputs of a `while` that are constants of its condition, constants of its body, and its carry."""
    inputs, first = list(inputs), eqn.params["cond_nconsts"]
    end = first + eqn.params["body_nconsts"]
    return inputs[:first], inputs[first:end], inputs[end:]
