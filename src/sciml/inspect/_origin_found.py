"""What a search for the first number that is not finite finds."""

from typing import Any, NamedTuple

from ._programs import Place


class Origin(NamedTuple):
    """An operation that makes of finite numbers one that is not.

    Attributes:
        place: The equation, and where it is.
        operands: The values of its operands.
        results: Its results.
        transposed: Whether what it makes is read by a backward pass alone, as far as its program says.
        loops: The iteration of each loop around it, the outermost first; of a loop that runs backwards over rows, the
            row.
        step: The number of the step that it belongs to, where a loop of sciml's says so.
        written: Whether the program itself has written it there.
        order: The iterations of the loops around it as they follow each other.
        device: Which device of a `jax.shard_map` it is on.
        coordinates: The place of that device in its mesh; None outside.
    """

    place: Place
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    transposed: bool
    loops: tuple[int, ...] = ()
    step: int | None = None
    written: bool = False
    order: tuple[int, ...] = ()
    device: int = 0
    coordinates: dict[str, int] | None = None


class FromInput(NamedTuple):
    """The trail leads out of a program.

    Attributes:
        numbers: Through which of its constants and inputs.
    """

    numbers: tuple[int, ...]
