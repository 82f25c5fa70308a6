"""Every method of sciml's own loops with what it promises; adding a method is adding a line.

`order` and `dense_order` are what a regression of the error over the step size must show. They are
measured on y' = 2 y cos t over [0, 2], on the given numbers of steps, where the slope is clean: coarser
steps are not yet asymptotic, finer ones end in rounding.
"""

from typing import NamedTuple

import diffrax
import pytest

from sciml.solvers import Rodas5P, Rosenbrock23


class Method(NamedTuple):
    """A diffrax solver; nothing is put on a device before a test asks."""

    solver: type[diffrax.AbstractSolver]
    order: int
    dense_order: int
    adaptive: bool
    steps: tuple[int, ...]

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
    Method(Rosenbrock23, 2, 2, True, (64, 128, 256)),
    Method(Rodas5P, 5, 5, True, (16, 32, 64)),
)

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
each_adaptive_method = pytest.mark.parametrize(
    "method", [method for method in METHODS if method.adaptive], ids=lambda method: method.name
)
