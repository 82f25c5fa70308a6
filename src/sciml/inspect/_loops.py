"""The loops of a compiled function and what one iteration runs."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ._hlo_text import HloModule, Instruction, parse
from ._hlo_work import FREE
from ._lower import compile as _compile


class Loop(NamedTuple):
    """One `while` of the compiled program; `lax.scan`, `fori_loop` and `while_loop` all become one.

    Attributes:
        trips: Number of iterations where the compiler knows it, else None.
        loop_depth: Number of loops around it.
        carry: What it carries, in HLO's notation.
        operations: For one iteration, condition included: opcode and how often it occurs. A `fusion` is one pass
            over its data; a `copy`, a small `fusion` or a `while` beside the one large fusion is what makes a step
            slow.
        source: JAX's name for it, such as `jit(solve)/while`.
        name: Its name in the compiled program.
    """

    trips: int | None
    loop_depth: int
    carry: str
    operations: dict[str, int]
    source: str
    name: str = ""


def _opcodes(module: HloModule, caller: Instruction) -> Iterator[str]:
    for name in caller.calls:
        for instruction in module.computations.get(name, ()):
            if instruction.opcode == "call":  # the CPU compiler puts small loops behind one
                yield from _opcodes(module, instruction)
            elif instruction.opcode not in FREE:
                yield instruction.opcode


def loops(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Loop]:
    """The loops in the compiled program of `fn(*args, **kwargs)`.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments; array leaves may be `jax.ShapeDtypeStruct`, other leaves are static.
        **kwargs: Its keyword arguments.

    Returns:
        One `Loop` for each, in the order of the program text. The compiler removes a loop of one iteration and may
        unroll a short one.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inspect

        def decay(y):
            return jax.lax.scan(lambda y, _: (y * 0.9, None), y, length=100)[0]

        (loop,) = inspect.loops(decay, jnp.ones(1000))
        assert loop.trips == 100
        print(loop.operations)
        ```
    """
    return loops_of(parse(_compile(fn, args, kwargs).as_text() or ""))


def loops_of(module: HloModule) -> list[Loop]:
    """Returns the loops of a compiled program."""
    found = []
    for instruction, depth in module.walk():
        if instruction.opcode == "while":
            operations = Counter(_opcodes(module, instruction))
            found.append(
                Loop(
                    instruction.trips,
                    depth,
                    instruction.shape,
                    dict(operations.most_common()),
                    instruction.op_name,
                    instruction.name,
                )
            )
    return found
