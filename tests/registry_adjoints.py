"""Every adjoint with the modes of differentiation it promises; adding an adjoint is adding a line."""

from typing import NamedTuple

import pytest

import sciml
from sciml.solvers import AbstractAdjoint

KINDS = ("scan", "fixed", "fixed_saves", "adaptive", "adaptive_saves")
"""The loops: fixed steps known when traced, fixed steps to a traced end, and error control; the end or saved times."""


class Case(NamedTuple):
    """An adjoint, the loops through which reverse and forward mode work, and the loops that it runs at all."""

    name: str
    adjoint: AbstractAdjoint
    reverse: tuple[str, ...]
    forward: tuple[str, ...]
    runs: tuple[str, ...] = KINDS


ADJOINTS = (
    Case("checkpointed", sciml.Checkpointed(), KINDS, ()),
    # the least number of slots: the record is thinned and segments are computed again
    Case("little_memory", sciml.Checkpointed(memory=1), KINDS, ()),
    # levels need a number of steps that is known when traced
    Case("one_level", sciml.Checkpointed(levels=1), ("scan",), (), ("scan",)),
    Case("three_levels", sciml.Checkpointed(levels=3), ("scan",), (), ("scan",)),
    Case("segments", sciml.Checkpointed(segments=5), KINDS, ()),
    Case("direct", sciml.Direct(), ("scan",), KINDS),
)


def _is_slow(case: Case, kind: str) -> bool:
    if case.name in ("one_level", "segments"):
        return True
    return case.name == "little_memory" or (case.name == "checkpointed" and kind not in ("scan", "adaptive_saves"))


def _pairs(mode: str, wanted: bool = True):
    return [
        pytest.param(case, kind, id=f"{case.name}-{kind}", marks=[pytest.mark.slow] if _is_slow(case, kind) else [])
        for case in ADJOINTS
        for kind in case.runs
        if (kind in getattr(case, mode)) == wanted
    ]


each_reverse = pytest.mark.parametrize("case, kind", _pairs("reverse"))
"""Every pair of adjoint and loop that has reverse mode; slow where adjoints differ by memory, or between two loops."""

each_forward = pytest.mark.parametrize("case, kind", _pairs("forward"))
each_not_forward = pytest.mark.parametrize(
    "case, kind", [pytest.param(*p.values, id=p.id) for p in _pairs("forward", False)]
)
each_not_reverse = pytest.mark.parametrize("case, kind", _pairs("reverse", False))
