"""Every adjoint with the modes of differentiation it promises; adding an adjoint is adding a line."""

from typing import NamedTuple

import pytest

import sciml
from sciml.adjoints import AbstractAdjoint

KINDS = ("scan", "fixed", "fixed_saves", "adaptive", "adaptive_saves")
"""The loops: fixed steps known when traced, fixed steps to a traced end, and error control; the end or saved times."""


class Case(NamedTuple):
    """An adjoint, the loops through which reverse and forward mode work, and those it runs at all.

    A continuous adjoint is no more exact than the solve, and a reversible method is another method: `error` is what the
    fixed steps of the tests leave of both.
    """

    name: str
    adjoint: AbstractAdjoint
    reverse: tuple[str, ...]
    forward: tuple[str, ...]
    runs: tuple[str, ...] = KINDS
    error: float = 0.0


ADJOINTS = (
    Case("checkpointed", sciml.adjoints.Checkpointed(), KINDS, ()),
    # the least number of slots: the record is thinned and segments are computed again
    Case("little_memory", sciml.adjoints.Checkpointed(memory=1), KINDS, ()),
    # levels need a number of steps that is known when traced
    Case("one_level", sciml.adjoints.Checkpointed(levels=1), ("scan",), (), ("scan",)),
    Case("three_levels", sciml.adjoints.Checkpointed(levels=3), ("scan",), (), ("scan",)),
    Case("segments", sciml.adjoints.Checkpointed(segments=5), KINDS, ()),
    Case("direct", sciml.adjoints.Direct(), ("scan",), KINDS),
    Case("reversible", sciml.adjoints.Reversible(), KINDS, (), error=3e-7),
    Case("forward", sciml.adjoints.Forward(), KINDS, KINDS),
    Case("backsolve", sciml.adjoints.Backsolve(), KINDS, (), error=3e-7),
    Case("interpolating", sciml.adjoints.Interpolating(), KINDS, (), error=3e-7),
    Case("gauss", sciml.adjoints.Gauss(), KINDS, (), error=3e-7),
    # the least number of rows: segments of the solve are recorded again
    Case("gauss_little_memory", sciml.adjoints.Gauss(memory=1), KINDS, (), error=3e-7),
)


def _pairs(mode: str, wanted: bool = True):
    return [
        pytest.param(case, kind, id=f"{case.name}-{kind}")
        for case in ADJOINTS
        for kind in case.runs
        if (kind in getattr(case, mode)) == wanted
    ]


each_reverse = pytest.mark.parametrize(
    "case, kind",
    [
        p
        for p in _pairs("reverse")
        if p.values[0].name in ("checkpointed", "reversible", "gauss") or p.values[1] not in ("fixed", "adaptive")
    ],
)
"""Every pair of adjoint and loop that has reverse mode; variants of an adjoint without the loops to an end alone, which
are those with saved times but for these."""

each_reverse_with_saves = pytest.mark.parametrize(
    "case, kind",
    [p for p in _pairs("reverse") if p.values[0].name == "checkpointed" or p.values[1] in ("scan", "adaptive_saves")],
)
"""These, but for one adjoint without the loops that have less in them: what is slow runs those that have most."""

each_forward = pytest.mark.parametrize("case, kind", _pairs("forward"))
each_not_forward = pytest.mark.parametrize("case, kind", _pairs("forward", False))
each_not_reverse = pytest.mark.parametrize("case, kind", _pairs("reverse", False))
each_not_run = pytest.mark.parametrize(
    "case, kind",
    [pytest.param(c, kind, id=f"{c.name}-{kind}") for c in ADJOINTS for kind in KINDS if kind not in c.runs],
)
"""Every pair of adjoint and loop that an error refuses when it is traced."""

each_adjoint = pytest.mark.parametrize("case", ADJOINTS, ids=lambda case: case.name)
