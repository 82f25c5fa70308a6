"""The time to compile a function: which lines its program comes from, and what would make it smaller."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from .._choices import choices
from ._hlo_text import parse
from ._lower import name_of
from ._measure import CallTimes, duration, staged
from ._program_facts import ProgramFacts, facts_of
from ._programs import places

_LONG = 2.0
"""Seconds from which a function takes long to compile."""

_MANY = 10_000
"""Equations from which a program is large."""

_SHOWN = 8
"""Lines that are printed."""


class LineSize(NamedTuple):
    """The equations of a program that come from a line.

    Attributes:
        line: The line of the user's code; empty if JAX does not know it.
        equations: Their number; equations of a loop's body count once.
        by_solver: How many of them the library wrote around that line: steps, linear systems, controllers.
    """

    line: str
    equations: int
    by_solver: int


class CompileTime(NamedTuple):
    """The time to compile a function; prints as a table.

    Attributes:
        name: The function.
        times: Seconds to trace, to lower and to compile.
        equations: The size of the program that JAX traced.
        instructions: The size of the program that the compiler made of it.
        lines: The lines that the equations come from, the largest number first.
        advice: Ways to shorten it, a sentence each.
    """

    name: str
    times: CallTimes
    equations: int
    instructions: int
    lines: tuple[LineSize, ...]
    advice: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds before the first run."""
        return self.times.trace + self.times.lower + self.times.compile

    def __str__(self) -> str:
        """A table of the lines, and the advice."""
        head = f"{self.name}: {duration(self.seconds)} before the first run ({self.times})"
        size = f"{self.equations:,} equations, {self.instructions:,} instructions after optimisation"
        rows = [f"{x.equations:>9,} {x.by_solver:>10,}  {x.line or '(unknown)'}" for x in self.lines[:_SHOWN]]
        return "\n".join([head, size, "equations  by solver  line", *rows, *(f"- {text}" for text in self.advice)])


def compile_time(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> CompileTime:
    """Measures how long a function takes to compile, and finds the lines that most of its program comes from.

    The function is traced, lowered and compiled; it does not run. JAX's cache on disk is used if it is on.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments; shapes are enough.
        **kwargs: Its keyword arguments.

    Returns:
        A `CompileTime`; print it.

    Raises:
        TypeError: If `fn` is not callable.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        def decay(y):
            for _ in range(100):
                y = y - 0.01 * y
            return y

        found = inspect.compile_time(decay, jnp.ones(1000))
        assert found.lines[0].equations == 200
        assert "fori_loop" in found.advice[0]
        ```
    """
    stages, times = staged(fn, args, kwargs)
    facts, lines = facts_of(stages.closed), Counter[str]()
    by_solver = Counter[str]()
    for place in places(stages.closed.jaxpr):
        line = "" if place.line is None else str(place.line)
        lines[line] += 1
        by_solver[line] += place.line is not None and place.line.internal
    return CompileTime(
        name_of(fn),
        times,
        facts.equations,
        sum(map(len, parse(stages.compiled.as_text() or "").computations.values())),
        tuple(LineSize(line, count, by_solver[line]) for line, count in lines.most_common()),
        tuple(_advice(facts, times, jax.tree.leaves((args, kwargs)))),
    )


def _advice(facts: ProgramFacts, times: CallTimes, leaves: list[Any]) -> Iterator[str]:
    for note in facts.unrolled[:3]:
        where = f" ({note.where})" if note.where else ""
        yield (
            f"A loop of Python's was written out {note.what} times{where}: write it as `jax.lax.fori_loop` or "
            "`jax.lax.scan`."
        )
    numbers = sum(getattr(x, "shape", None) == () for x in leaves)
    if numbers >= choices().batching.packed_from:
        yield f"{numbers} arguments are single numbers: put them into one array."
    if facts.equations >= _MANY:
        yield 'Within `sciml.inspect.choose("small")` small stiff systems compile faster, and run slower.'
    if facts.constants >= 2**20:
        yield "Large arrays are part of the program: pass them as arguments, or as fields of the model."
    if times.trace + times.lower + times.compile >= _LONG and not times.from_cache:
        yield (
            'Keep compiled programs on disk: `jax.config.update("jax_compilation_cache_dir", folder)`, which the next '
            "process reads."
        )
