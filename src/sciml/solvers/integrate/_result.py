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
    """

    ys: PyTree
    status: Array
    elapsed: Array
    accepted: Array
    rejected: Array
    executed: Array


class Saves(NamedTuple):
    """Saved times as elapsed times, `(saves,)` or `(saves, lanes)`, and whether they have lanes."""

    times: Array
    batched: bool
