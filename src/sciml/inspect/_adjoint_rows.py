r"""What each adjoint keeps between the solve and its gradient, and what that takes.

What the gradient of a known number of steps keeps grows with that number and is known by arithmetic: so many
states. Its working memory, the stages of a step and their derivatives, does not grow, and comes from the compiler: the
gradient of a solve of few steps is compiled, and what it keeps is subtracted. So

$$\text{bytes}(n) = \text{kept}(n) + \text{temporaries}(n_0) - \text{kept}(n_0).$$

The memory of other gradients does not depend on the number of steps: a reversible method and sensitivities keep
no states, and records and tables have a fixed size. With `Direct` only the compiler knows what a step keeps. In these
cases the gradient itself is compiled, and the compiler's plan read as it is.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .._jax import _checkpoint_levels
from ..solvers._plan import Plan
from ..solvers.adjoints import (
    AbstractAdjoint,
    Backsolve,
    Checkpointed,
    Direct,
    Forward,
    Gauss,
    Interpolating,
    Reversible,
)
from ..solvers.adjoints.reversible._fixed_steps import needed_coupling
from ..solvers.integrate._fixed_steps import PAIR

_FEW = 9  # steps: three blocks of three


class AdjointRow(NamedTuple):
    """One adjoint and what the gradient through it takes.

    Attributes:
        adjoint: To be passed to `solve`.
        bytes: The temporary memory of the gradient, on one device; None where the adjoint cannot run this solve.
        solves: About how often every step is run forwards, the solve itself included; the gradient's own sweep,
            which costs about twice a solve, comes on top. `Forward` has a tangent for each number
            instead of a sweep.
        keeps: What the memory is for, in words; or why the adjoint cannot run this solve.
        caveat: What besides rounding the gradient's accuracy depends on; empty for an exact one.
    """

    adjoint: AbstractAdjoint
    bytes: int | None
    solves: int
    keeps: str
    caveat: str = ""

    @property
    def name(self) -> str:
        """The adjoint as it is written, without what it is by default."""
        fields = getattr(self.adjoint, "__dataclass_fields__", {})
        values = {name: (getattr(self.adjoint, name), field.default) for name, field in fields.items()}
        given = ", ".join(f"{name}={value}" for name, (value, default) in values.items() if value != default)
        return f"{type(self.adjoint).__name__}({given})"


class Setting(NamedTuple):
    """A solve to be differentiated.

    Attributes:
        plan: What `solve` decided.
        state: Bytes of the state of all members.
        eps: The precision of the state.
        columns: How many real numbers one member's gradient is by.
        temporaries: Bytes that the compiler plans for the gradient through an adjoint, of the whole solve, or of
            the given number of steps.
        at_once: The share of the members that run at once: all, or one where they run one after another.
    """

    plan: Plan
    state: int
    eps: float
    columns: int
    temporaries: Callable[[AbstractAdjoint, int | None], int]
    at_once: float

    def kept(self, steps: int, counts: tuple[int, ...]) -> int:
        """Returns the bytes of states kept at once: the first level of all members, the others of those that run."""
        first, inner = _kept(steps, counts)
        return round((first + self.at_once * inner) * self.state)


def rows_of(setting: Setting, kinds: tuple[type[AbstractAdjoint], ...]) -> tuple[AdjointRow, ...]:
    """Returns the rows of each kind of adjoint."""
    rules = _THROUGH_STEPS if setting.plan.steps is not None else _THROUGH_LOOPS
    return tuple(row for kind in kinds for row in rules[kind](setting))


def _kept(steps: int, counts: tuple[int, ...]) -> tuple[int, int]:
    """Returns how many states are kept at once, in the first level and in the others.

    Steps that the counts leave over start from a state of their own, one for each level they run in.
    """
    left_over = len(_checkpoint_levels.pieces(steps, counts)) - 1
    return counts[0] + left_over, sum(counts[1:])


def _levels_of_steps(setting: Setting) -> Iterator[AdjointRow]:
    steps = setting.plan.steps
    assert steps is not None
    found = [_checkpoint_levels.split(steps, levels, multiple=PAIR) for levels in range(1, _checkpoint_levels.MOST + 1)]
    for shortest, some in ((1, found[:1]), (2, found[1:])):
        few = _checkpoint_levels.split(_FEW, shortest, multiple=PAIR)
        working = setting.temporaries(Checkpointed(levels=shortest), _FEW) - setting.kept(_FEW, few)
        for levels, counts in enumerate(some, shortest):
            kept = sum(_kept(steps, counts))
            if levels > 2 and kept > 0.9 * sum(_kept(steps, found[levels - 2])):
                return  # a level that saves no tenth is not worth a solve
            states = f"{kept} states of {steps + setting.plan.tail}"
            yield AdjointRow(Checkpointed(levels=levels), setting.kept(steps, counts) + working, levels, states)


def _direct(setting: Setting) -> Iterator[AdjointRow]:
    """What a step keeps is the compiler's, so the gradient through all steps is compiled."""
    yield _compiled(setting, Direct(), 1, "what every step computes")


def _last_steps(setting: Setting) -> Iterator[AdjointRow]:
    """The record's size does not depend on the number of steps, so the compiler's plan is read as it is."""
    least = Checkpointed(segments=16)
    yield AdjointRow(Checkpointed(), setting.temporaries(Checkpointed(), None), 1, "all steps, as far as the record")
    yield AdjointRow(least, setting.temporaries(least, None), 3, "16 steps")


def _forward(setting: Setting) -> Iterator[AdjointRow]:
    columns = setting.columns
    yield _compiled(setting, Forward(), 1 + columns, f"a tangent for each of {columns} numbers")


def _reversible(setting: Setting) -> Iterator[AdjointRow]:
    """A step is two of the method's, and so is its share of the sweep: six solves in all, two for the sweep."""
    adjoint, keeps = Reversible(), "no states"
    if setting.plan.count is None:
        keeps = "the lengths of steps"
    else:
        needed = needed_coupling(setting.plan.count, setting.eps)
        if needed > adjoint.coupling:
            adjoint = Reversible(1 - float(f"{(1 - needed) / 2:.1g}"))
    yield _compiled(setting, adjoint, 4, keeps, "as exact as the steps can be undone")


def _gauss(setting: Setting) -> Iterator[AdjointRow]:
    """The solve runs again to fill the table."""
    yield _compiled(setting, Gauss(), 2, "a table of steps", _TOLERANCES)


def _interpolating(setting: Setting) -> Iterator[AdjointRow]:
    yield _compiled(setting, Interpolating(), 2, "a table of steps", _TOLERANCES)


def _backsolve(setting: Setting) -> Iterator[AdjointRow]:
    """The solve runs backwards, too."""
    yield _compiled(setting, Backsolve(), 2, "no states", _TOLERANCES)


_TOLERANCES = "right to the tolerances"


def _compiled(setting: Setting, adjoint: AbstractAdjoint, solves: int, keeps: str, caveat: str = "") -> AdjointRow:
    """Returns a row whose memory is the compiler's plan of the whole gradient, or why there is none."""
    try:
        return AdjointRow(adjoint, setting.temporaries(adjoint, None), solves, keeps, caveat)
    except (TypeError, ValueError) as error:  # the adjoint's own refusal, when it is traced
        return AdjointRow(adjoint, None, solves, _first_sentence(str(error)))


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:]) ", re.sub(r"\s+", " ", text.strip()))[0].rstrip(".:")


_Rule = Callable[[Setting], Iterator[AdjointRow]]

_THROUGH_BOTH: dict[type[AbstractAdjoint], _Rule] = {
    Forward: _forward,
    Reversible: _reversible,
    Gauss: _gauss,
    Interpolating: _interpolating,
    Backsolve: _backsolve,
}
"""Adjoints whose memory does not depend on the number of steps, so that it need not be known; the more exact first."""

_THROUGH_STEPS: dict[type[AbstractAdjoint], _Rule] = {
    Direct: _direct,
    Checkpointed: _levels_of_steps,
    **_THROUGH_BOTH,
}
"""The rows of each adjoint for a known number of steps; adding an adjoint is adding a function."""

_THROUGH_LOOPS: dict[type[AbstractAdjoint], _Rule] = {
    Direct: _direct,
    Checkpointed: _last_steps,
    **_THROUGH_BOTH,
}
"""The same where a loop finds the end."""

KINDS = tuple(_THROUGH_STEPS)
"""All adjoints that have rows."""
