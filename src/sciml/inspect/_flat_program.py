"""A traced program as a list of operations, with called programs written out; loops and choices stay operations."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._jax._interpreters import Jaxpr
from .._jax._marks import STEP
from .._jax.programs import evaluate
from .._source_lines import SourceLine
from ._programs import Place, program_of


class Fixed(NamedTuple):
    """A number or an array that is part of the program.

    Attributes:
        value: It.
        literal: Whether it is written into the program, such as a NaN that marks values that were not reached.
    """

    value: Any
    literal: bool


Ref: TypeAlias = int | Fixed
"""An operand: the number of a value, or a part of the program."""


class Op(NamedTuple):
    """An operation.

    Attributes:
        place: The equation, and where it is.
        inputs: Its operands.
        outputs: The numbers of its results.
        fresh: Whether no operand is a value of the program: results that are not finite were written there.
    """

    place: Place
    inputs: tuple[Ref, ...]
    outputs: tuple[int, ...]
    fresh: bool

    @property
    def name(self) -> str:
        """Its primitive."""
        return self.place.eqn.primitive.name

    @property
    def line(self) -> SourceLine | None:
        """The user's line that it comes from."""
        return self.place.line

    @property
    def reads(self) -> set[int]:
        """The numbers of the values that it reads."""
        return {x for x in self.inputs if not isinstance(x, Fixed)}

    @property
    def marks_step(self) -> bool:
        """Whether its result is the number of a step."""
        return STEP in str(self.place.eqn.source_info.name_stack)


class FlatProgram:
    """A program as a list of operations; the values of its constants and inputs have the first numbers.

    Attributes:
        ops: The operations.
        size: The number of values, including constants and inputs.
        inputs: How many of them are constants and inputs.
        results: Its results.
        last_use: After which operation a value is not read any more.
    """

    def __init__(self, jaxpr: Jaxpr, around: Place | None = None):
        self.ops: list[Op] = []
        self.inputs = self.size = len(jaxpr.constvars) + len(jaxpr.invars)
        self.dtypes: list[Any] = [getattr(v.aval, "dtype", None) for v in (*jaxpr.constvars, *jaxpr.invars)]
        self._written: set[int] = set()
        self.last_use: dict[int, int] = {}
        self.results = self._add(jaxpr, list(range(self.inputs)), around)
        for index, op in enumerate(self.ops):
            self.last_use.update((x, index) for x in op.inputs if not isinstance(x, Fixed))
        self.last_use.update((x, len(self.ops)) for x in self.results if not isinstance(x, Fixed))

    def _add(self, jaxpr: Jaxpr, given: Sequence[Ref], around: Place | None) -> list[Ref]:
        def listed(eqn: Any, inputs: list[Ref]) -> list[Ref]:
            place, called = _place(eqn, around), program_of(eqn)
            if called is not None:
                program, consts = called
                return self._add(program, [*(Fixed(c, False) for c in consts), *inputs], place)
            results: list[Any] = list(range(self.size, self.size + len(eqn.outvars)))
            self.size += len(results)
            self.dtypes += [getattr(v.aval, "dtype", None) for v in eqn.outvars]
            fresh = all(isinstance(x, Fixed) or x in self._written for x in inputs)
            fresh = fresh and not any(isinstance(x, Fixed) and not x.literal for x in inputs)
            self._written |= set(results) if fresh else set()
            self.ops.append(Op(place, tuple(inputs), tuple(results), fresh))
            return results

        return evaluate(jaxpr, given, listed, lambda v: Fixed(np.asarray(v.val, v.aval.dtype), True))

    def is_float(self, number: int) -> bool:
        """Whether a value can be not finite."""
        return self.dtypes[number] is not None and jnp.issubdtype(self.dtypes[number], jnp.inexact)


def _place(eqn: Any, around: Place | None) -> Place:
    scope = "" if around is None else around.scope
    return Place(eqn, f"{scope}/{eqn.source_info.name_stack}", 0, 0, around)


def bad_in(x: Any) -> Array:
    """Returns whether any entry is not finite, as an array."""
    if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.inexact) or x.size == 0:
        return jnp.zeros((), bool)
    return ~jnp.all(jnp.isfinite(x))


def badness(x: Any) -> int:
    """Returns 0 where all entries are finite, 2 where any is NaN, else 1."""
    if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.inexact):
        return 0
    entries = np.asarray(x)
    return 0 if np.all(np.isfinite(entries)) else 2 if np.any(np.isnan(entries)) else 1
