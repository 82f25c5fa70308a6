r"""How the states of a scan are kept in levels: arithmetic on the number of steps, before anything is traced.

To differentiate a loop of $n$ steps backwards, its states are needed from last to first. With one level all are
kept. With $L$ levels the outermost keeps $c_1$ of them, evenly spread; the steps between two of them are
run again when the backward pass reaches them, and of these $c_2$ are kept, and so on down to single steps,

$$n \approx c_1 c_2 \cdots c_L, \qquad \text{states kept at once} = c_1 + c_2 + \dots + c_L \approx L\, n^{1/L}.$$

Every level but the last runs all steps once more: a gradient takes $L - 1$ further forward passes.
"""

import math
from typing import Any, NamedTuple

from .._checks import check_count
from .._choices import choices


class Budget(NamedTuple):
    """The memory limit of a loop's gradient; `levels` or `segments` may be given instead of `memory`.

    Attributes:
        memory: About how many bytes, summed over all members; 0 for a loop that is not recorded.
        levels: The number of levels.
        segments: The number of segments of two levels, or of slots.
    """

    memory: int
    levels: int | None = None
    segments: int | None = None


NOTHING = Budget(0)
"""For a loop that is not recorded."""


def split(steps: int, levels: int, most: int | None = None, multiple: int = 1) -> tuple[int, ...]:
    """Returns how many states each level keeps, outermost first.

    Their product is the number of steps or less: `pieces` says where the other steps run. A program has a
    copy of the step for each of the pieces, so counts that divide are preferred to the most even ones.

    Args:
        steps: The number of steps.
        levels: The number of levels; fewer are made where there are too few steps for them.
        most: The largest number of states that will do; without it, up to a quarter more than needed.
        multiple: The divisor of the innermost count, if one fits: this number of steps is taken at a time.
    """
    exact = _split(steps, levels, True, multiple)
    if most is None or sum(exact) <= most:
        return exact
    return _split(steps, levels, False, multiple)


def _split(steps: int, levels: int, divide: bool, multiple: int = 1) -> tuple[int, ...]:
    if levels == 1 or steps < 4:
        return (steps,)
    # The innermost level first. Equal counts keep the fewest states; a divisor of the number of steps leaves no rest.
    root = steps ** (1 / levels)
    even = max(2, multiple * round(root / multiple))
    near = [c for c in range(max(2, math.ceil(root / 2)), math.floor(2 * root) + 1) if steps % c == 0]
    inner = min(near, key=lambda c: (c % multiple, abs(c - root)), default=even) if divide else even
    return _split(steps // inner, levels - 1, divide) + (inner,)


def _levels() -> range:
    return range(1, choices().checkpoints.levels_at_most + 1)


def deepest(steps: int, multiple: int = 1) -> tuple[int, ...]:
    """Returns the counts that keep the fewest states."""
    return min((_split(steps, levels, False, multiple) for levels in _levels()), key=sum)


def fit(steps: int, most: int, multiple: int = 1) -> tuple[int, ...] | None:
    """Returns the counts with the fewest levels that keep no more than `most` states, or None if there are none."""
    found = (split(steps, levels, most, multiple) for levels in _levels())
    return next((counts for counts in found if sum(counts) <= most), None)


def possible(steps: int, multiple: int = 1) -> list[tuple[int, ...]]:
    """Returns all that `fit` and `deepest` choose from, whatever the memory."""
    found = (_split(steps, levels, divide, multiple) for levels in _levels() for divide in (True, False))
    return list(dict.fromkeys(found))


def segmented(steps: int, segments: int) -> tuple[int, ...]:
    """Returns the counts of two levels with at most `segments` segments, as even as they can be."""
    inner = max(1, -(-steps // segments))
    return (steps,) if inner == 1 else (steps // inner, inner)


def pieces(steps: int, counts: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Returns where in the scan which counts run: all whole blocks first, then ever shorter ones.

    Written in the mixed radix of the counts, the number of steps has one digit for each level: this number of blocks of
    that level remains, and no step is padded.

    Returns:
        Pairs of the number of a piece's first step and its counts.
    """
    found, start = [], 0
    for level in range(len(counts)):
        block = math.prod(counts[level + 1 :])
        blocks = (steps - start) // block
        if blocks:
            found.append((start, (blocks, *counts[level + 1 :])))
        start += blocks * block
    return found


def check_policy(memory: Any, levels: Any, segments: Any, where: str) -> None:
    """Checks that at most one policy is given, and that it is a positive integer.

    Raises:
        ValueError: If not.
        TypeError: If one is not an integer.
    """
    given = {name: x for name, x in (("memory", memory), ("levels", levels), ("segments", segments)) if x is not None}
    if len(given) > 1:
        got = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise ValueError(f"`{where}` accepts at most one of `memory`, `levels` and `segments`, but got {got}.")
    for name, value in given.items():
        check_count(value, name, where)
    most = choices().checkpoints.levels_at_most
    if levels is not None and levels > most:
        raise ValueError(f"`{where}(levels=...)` must be at most {most}, but is {levels}; more would not save memory.")
