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
        stiff: One where steps came to their limit at that of stability, else zero; None where nobody asks. It is no
            status before the solve returns: else a gradient, which reads the status, would compute it.
    """

    ys: PyTree
    status: Array
    elapsed: Array
    accepted: Array
    rejected: Array
    executed: Array
    step_times: Array | None = None
    kept: PyTree = None
    stiff: Array | None = None


def states_of(result: Result) -> tuple[PyTree, PyTree]:
    """Returns what has derivatives of a result: the states, and the one that a later solve goes on from, if any."""
    return result.ys, None if result.kept is None else result.kept.checkpoint.y


def with_states(result: Result, states: tuple[PyTree, PyTree]) -> Result:
    """Returns a result with others in the place of what `states_of` returns."""
    ys, y = states
    if result.kept is None:
        return result._replace(ys=ys)
    return result._replace(ys=ys, kept=result.kept._replace(checkpoint=result.kept.checkpoint._replace(y=y)))


class KeptCotangent(NamedTuple):
    """The cotangent of the state that a later solve goes on from.

    Attributes:
        y: The cotangent.
        passed: Whether a step from there was accepted; where not, it is the state at the end.
    """

    y: PyTree
    passed: Array


class Cotangents(NamedTuple):
    """The cotangents of a `Result`, of which states alone have any; arrays with members last.

    Attributes:
        ys: Of the states at saved times, or of the end state.
        kept: Of the state that a later solve goes on from; None where there is none.
    """

    ys: PyTree
    kept: KeptCotangent | None = None


class Saves(NamedTuple):
    """Saved times as elapsed times, `(saves,)` or `(saves, lanes)`, and whether they have lanes."""

    times: Array
    batched: bool
