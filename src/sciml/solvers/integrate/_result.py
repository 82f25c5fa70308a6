"""What the loops have in common: the times that they save at, and what they return."""

from typing import NamedTuple

from jaxtyping import Array, PyTree


class Result(NamedTuple):
    """What an integration returns, arrays with members last.

    Attributes:
        ys: The state at the saved times, time first, or the end state.
        status: A code of `Status`.
        elapsed: The time reached, as time elapsed since t0.
        accepted: The number of accepted steps.
        rejected: The number of rejected steps.
        executed: The number of steps that the member's lane executed, waiting for other members included.
        step_times: Where its accepted steps begin, and the last one ends, as elapsed times, where that is asked for;
            the end is repeated where there were fewer than there is space for.
        kept: What a later solve goes on from, where that is asked for.
    """

    ys: PyTree
    status: Array
    elapsed: Array
    accepted: Array
    rejected: Array
    executed: Array
    step_times: Array | None = None
    kept: PyTree = None


class Saves(NamedTuple):
    """Saved times as elapsed times, `(saves,)` or `(saves, lanes)`, and whether they have lanes."""

    times: Array
    batched: bool
