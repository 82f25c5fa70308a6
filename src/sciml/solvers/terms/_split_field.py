"""A model with structure as the functions that a method needs of it, over one list of operands.

A semilinear model is not one vector field but a linear part, the rest and transforms. Each function is traced once, as
`_field` does it for one, and they share the model's parameters. Values that a step of known length needs and no step
changes are computed once before the loops: the tables.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import Array, PyTree

from ..._types import Args, RealScalarLike, Y
from ._barrier import stage_barrier
from ._field import AbstractField, Program, close, parameters_of


class BoundSplitField:
    """The functions of a model with their operands bound; called as the vector field of the loop's state.

    Attributes:
        functions: The functions by their names.
        tables: The tables; None if there are none.
        operands: The operands of the functions.
        long: Whether stages are best evaluated in a loop, since each evaluation takes long to compile.
    """

    def __init__(
        self, functions: dict[str, Callable], tables: PyTree = None, operands: Sequence = (), long: bool = False
    ):
        self.functions = functions
        self.tables = tables
        self.operands = operands
        self.long = long

    def __call__(self, t: RealScalarLike, y: Y) -> Y:
        """Returns the vector field."""
        return self.functions["field"](t, y)

    def __contains__(self, name: str) -> bool:
        """Whether the model has a function of that name."""
        return name in self.functions

    def __getitem__(self, name: str) -> Callable:
        """Returns a function by its name."""
        return self.functions[name]


class SplitField(AbstractField):
    """The functions of a model, closed: a vector field with more of them."""

    def __init__(self, programs: dict[str, tuple[Program, slice, str]], count: int, tables: tuple[int, Any] | None):
        self.programs = programs
        self.count = count
        self.tables = tables

    @property
    def reads_time(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether its vector field depends on the time."""
        return self.programs["field"][0].reads_first_input if "field" in self.programs else True

    @property
    def has_rules(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether a function calls others with custom derivative rules."""
        return any(program.has_rules for program, _, _ in self.programs.values())

    @property
    def captures(self) -> bool:
        """Whether a function closes over a traced value, by which it may be differentiated."""
        return any(program.captures for program, _, _ in self.programs.values())

    def __call__(self, t: RealScalarLike, y: Y, operands: list) -> Y:
        """Returns the vector field."""
        return self.bind(operands)(t, y)

    def bind(self, operands: list, whole: bool = True) -> BoundSplitField:
        """Returns the functions with their operands.

        Args:
            operands: The operands, arrays or PyTrees of them.
            whole: Whether for a step of the length that the tables are for, if there are any.
        """

        def bound(program: Program, consts: slice, barriers: str) -> Callable:
            def run(*inputs):
                if not barriers:
                    return program(operands[: self.count], operands[consts], *inputs)
                t, *others, y = inputs  # each evaluation reads a computed state, and is computed before it is read
                y = stage_barrier(y, t) if barriers == "both" else _computed(program, y, t)
                found = program(operands[: self.count], operands[consts], t, *others, y)
                return stage_barrier(found, t) if barriers == "both" else found

            return run

        tables = None
        if whole and self.tables is not None:
            first, structure = self.tables
            tables = jax.tree.unflatten(structure, operands[first:])
        functions = {name: bound(*entry) for name, entry in self.programs.items()}
        return BoundSplitField(functions, tables, operands, self._long)

    @property
    def _long(self) -> bool:
        program, _, barriers = self.programs.get("field", (None, None, ""))
        return program is not None and program.takes_long(bool(barriers))


_WITH_BARRIERS = ("field", "wide field", "explicit", "acceleration")
"""The functions of time and state that a step evaluates more than once."""

_AFTER_BARRIERS = ("first_drive", "second_drive")
"""Those that read half of a state, and whose results are read once, at the same place."""


def _computed(program: Program, y: Y, t: RealScalarLike) -> Y:
    """Returns a state of which what a program reads is computed before."""
    leaves, structure = jax.tree.flatten(y)
    reads = program.reads_inputs(1, len(leaves))
    held = iter(stage_barrier([x for x, read in zip(leaves, reads) if read], t))
    return jax.tree.unflatten(structure, [next(held) if read else x for x, read in zip(leaves, reads)])


Functions = dict[str, tuple[Callable, tuple]]
"""By name, `function(model, args, *inputs)` and inputs to trace it with; "field" is the vector field."""


def close_split_field(model: Callable, args: Args, functions: Functions) -> tuple[SplitField, list[Array]]:
    """Traces each of the functions of a model once, and returns them with their operands."""
    parameters, rebuild = parameters_of(model, args)
    operands, programs = list(parameters), {}
    for name, (function, inputs) in functions.items():

        def flat(*arguments, function=function):
            *inputs, parameters = arguments
            return function(*rebuild(parameters), *inputs)

        program, _, consts = close(flat, inputs, parameters)
        kind = "both" if name in _WITH_BARRIERS else "before" if name in _AFTER_BARRIERS else ""
        barriers = kind if kind and program.reads_neighbours else ""
        programs[name] = program, slice(len(operands), len(operands) + len(consts)), barriers
        operands += consts
    return SplitField(programs, len(parameters), None), operands


def with_tables(field: SplitField, operands: list[Array], tables: PyTree) -> tuple[SplitField, list[Array]]:
    """Returns the functions together with their tables."""
    leaves, structure = jax.tree.flatten(tables)
    return SplitField(field.programs, field.count, (len(operands), structure)), operands + leaves


def open_split_field(model: Callable, args: Args, functions: Functions) -> BoundSplitField:
    """Returns the functions of a model without tracing them first."""

    def bound(function: Callable) -> Callable:
        return lambda *inputs: function(model, args, *inputs)

    return BoundSplitField({name: bound(function) for name, (function, _) in functions.items()})
