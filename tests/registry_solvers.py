"""Every method of sciml's own loops with what it promises; adding a method is adding a line.

`order` and `dense_order` are what a regression of the error over the step size must show; steps of a method without
`dense_order` end at saved times. They are measured on y' = rate y cos t over [0, 2], on the given numbers of steps,
where the slope is clean: coarser steps are not yet asymptotic, finer ones end in rounding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import pytest

from sciml.solvers import (
    BDF,
    SSPRK33,
    SSPRK43,
    SSPRK104,
    Radau5,
    Rodas5P,
    Rosenbrock23,
    Switching,
    Vern6,
    Vern7,
    Vern8,
    Vern9,
)
from tests.families import (
    EXPRB32,
    EXPRB43,
    CarpenterKennedy54,
    GaussLegendre4,
    GaussLegendre6,
    ImplicitMidpoint,
    Williamson3,
)


class Method(NamedTuple):
    """A solver; nothing is put on a device before a test asks."""

    solver: Callable[..., Any]
    order: int
    dense_order: int | None
    adaptive: bool
    steps: tuple[int, ...]
    rate: float = 2.0

    @property
    def name(self) -> str:
        return self.solver.__name__


METHODS = (
    Method(diffrax.Euler, 1, 1, False, (64, 128, 256)),
    Method(diffrax.Heun, 2, 2, True, (32, 64, 128)),
    Method(diffrax.Midpoint, 2, 2, True, (32, 64, 128)),
    Method(diffrax.Ralston, 2, 2, True, (32, 64, 128)),
    Method(diffrax.Bosh3, 3, 3, True, (16, 32, 64)),
    Method(diffrax.Tsit5, 5, 5, True, (32, 48, 64)),
    Method(diffrax.Dopri5, 5, 5, True, (32, 64, 128)),
    Method(diffrax.Dopri8, 8, 6, True, (8, 12, 16)),
    Method(SSPRK33, 3, None, True, (32, 64, 128)),
    Method(SSPRK43, 3, None, True, (32, 64, 128)),
    Method(SSPRK104, 4, None, True, (32, 64, 128)),
    Method(Vern6, 6, None, True, (32, 48, 64), rate=6.0),
    Method(Vern7, 7, None, True, (24, 32, 40)),
    Method(Vern8, 8, None, True, (8, 12, 16), rate=3.0),
    Method(Vern9, 9, None, True, (24, 32), rate=6.0),
    Method(Williamson3, 3, None, False, (32, 64, 128)),
    Method(CarpenterKennedy54, 4, None, False, (64, 128, 256), rate=6.0),
    Method(Switching, 5, 5, True, (32, 48, 64)),
    Method(Radau5, 5, 4, True, (16, 32, 64)),
    Method(diffrax.Kvaerno5, 5, 5, True, (16, 32, 64)),
    Method(EXPRB32, 3, None, True, (32, 64, 128), rate=4.0),
    Method(EXPRB43, 4, None, True, (16, 32, 64)),
    Method(ImplicitMidpoint, 2, 2, False, (32, 64, 128)),
    Method(GaussLegendre4, 4, 4, False, (16, 32, 64)),
    Method(GaussLegendre6, 6, None, False, (8, 16, 24)),
    Method(BDF, 5, 5, True, (128, 192, 256)),
    Method(Rosenbrock23, 2, 2, True, (64, 128, 256)),
    Method(Rodas5P, 5, 5, True, (16, 32, 64)),
)

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
each_dense_method = pytest.mark.parametrize(
    "method", [method for method in METHODS if method.dense_order], ids=lambda method: method.name
)
each_method_of_diffrax = pytest.mark.parametrize(
    "method",
    # with fixed steps diffrax wants tolerances for stages that it iterates for
    [
        m
        for m in METHODS
        if isinstance(m.solver, type)
        and issubclass(m.solver, diffrax.AbstractSolver)
        and not hasattr(m.solver, "root_finder")
    ],
    ids=lambda method: method.name,
)
each_adaptive_method_of_diffrax = pytest.mark.parametrize(
    "method",
    [m for m in METHODS if m.adaptive and isinstance(m.solver, type) and issubclass(m.solver, diffrax.AbstractSolver)],
    ids=lambda method: method.name,
)
each_adaptive_method = pytest.mark.parametrize(
    "method", [method for method in METHODS if method.adaptive], ids=lambda method: method.name
)
