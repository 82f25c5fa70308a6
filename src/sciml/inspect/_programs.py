"""Walks over programs that JAX has traced, into called programs, loops and branches."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from .._jax._interpreters import Jaxpr
from .._jax.programs import _names as names, program_called, programs_within
from .._source_lines import SourceLine, source_line


def program_of(eqn: Any) -> tuple[Jaxpr, list] | None:
    """Returns the program that an equation only calls, and its constants; None where it does more, or other things."""
    name, params = eqn.primitive.name, eqn.params
    if name in ("custom_vmap_call", "custom_partitioning"):
        return params["call"].jaxpr, list(params["call"].consts)
    if name == "members":  # a function over lanes, see `kernels._lanes`
        return params["programs"][0].jaxpr, list(params["programs"][0].consts)
    return program_called(eqn)


class Place(NamedTuple):
    """An equation, and where it is.

    Attributes:
        eqn: The equation.
        scope: The names around it, such as transformations and `jax.named_scope`s, the outermost first.
        loops: How many loops are around it.
        program: The number of the program that it is in; equations of one program follow each other.
        around: The equation that runs this program, and where that is; None in the outermost.
    """

    eqn: Any
    scope: str
    loops: int
    program: int
    around: "Place | None" = None

    @property
    def line(self) -> SourceLine | None:
        """The user's line of it, or of its caller; None if JAX does not know it."""
        own = source_line(self.eqn)
        return own if own is not None or self.around is None else self.around.line


def places(jaxpr: Jaxpr) -> Iterator[Place]:
    """Returns every equation of a program and of all programs within it."""
    number = iter(range(10**9))

    def walk(jaxpr: Jaxpr, scope: str, loops: int, around: Place | None) -> Iterator[Place]:
        own = next(number)
        for eqn in jaxpr.eqns:
            here = f"{scope}/{eqn.source_info.name_stack}" if str(eqn.source_info.name_stack) else scope
            place = Place(eqn, here, loops, own, around)
            yield place
            called = program_of(eqn)
            inner = [called[0]] if called is not None else list(programs_within(eqn))
            deeper = loops + (eqn.primitive.name in names.LOOPS)
            for program in inner:
                yield from walk(program, here, deeper, place)

    return walk(jaxpr, "", 0, None)
