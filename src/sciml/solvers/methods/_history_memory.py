"""What a method of several steps remembers, apart from what it merely reuses."""

from typing import NamedTuple

from jaxtyping import PyTree


class HistoryMemory(NamedTuple):
    """The memory of a method with `history` of which a part can be made anew.

    Attributes:
        past: What is part of the state.
        reused: What the next step reuses where it can; None in a step that a gradient repeats, which makes it anew.
    """

    past: PyTree
    reused: PyTree


def past_of(memory: PyTree) -> PyTree:
    """Returns what is part of the state."""
    return memory.past if isinstance(memory, HistoryMemory) else memory


def reused_of(memory: PyTree) -> PyTree:
    """Returns what is not, or None."""
    return memory.reused if isinstance(memory, HistoryMemory) else None


def joined(past: PyTree, reused: PyTree) -> PyTree:
    """Returns the memory of both."""
    return past if reused is None else HistoryMemory(past, reused)
