"""The common part of the loops: the times that they save at, and their results."""

from typing import NamedTuple

from jaxtyping import Array, PyTree


class Result(NamedTuple):
    """The result of an integration, arrays with members last.

    Attributes:
        ys: The state at the saved times, time first, or the end state.
        status: A code of `Status`.
        elapsed: The time reached, as time elapsed since t0.
        accepted: The number of accepted steps.
        rejected: The number of rejected steps.
        executed: The number of steps that the member's lane executed, waiting for other members included.
        step_times: The starts of its accepted steps and the end of the last one, as elapsed times, if requested; the
            end is repeated to fill the space.
        kept: The start of a later solve, if requested.
        stiff: One if steps reached their limit while stability limited them, otherwise zero; None if not requested. It
            becomes a status only when the solve returns: otherwise a gradient, which reads the status, would compute
            it.
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
    """The cotangents of a `Result`, of which only states have any; arrays with members last.

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
