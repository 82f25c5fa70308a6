"""One case for every model: `(name, make model, y0, t1)` with values that work.

A suite that should hold for every model is parametrised over `CASES`. States are tuples, which a test
makes arrays of the dtype it wants; `t1` is short enough for a tight comparison between solvers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from sciml import AbstractModel, models


class Case(NamedTuple):
    """A model with an initial state and an end time; nothing is put on a device before a test asks."""

    name: str
    make: Callable[[], AbstractModel]
    state: tuple[float, ...]
    t1: float
    stiff: bool = False

    def y0(self, dtype=None):
        return jnp.asarray(self.state, jnp.result_type(float) if dtype is None else dtype)


CASES = (
    Case("Brusselator", models.Brusselator, (1.5, 3.0), 2.0),
    Case("FitzHughNagumo", models.FitzHughNagumo, (-1.0, 1.0), 10.0),
    Case("HIRES", models.HIRES, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0057), 1.0, stiff=True),
    Case("HarmonicOscillator", lambda: models.HarmonicOscillator(omega=2.0, zeta=0.1), (1.0, 0.0), 3.0),
    Case("Kepler", models.Kepler, (0.7, 0.0, 0.0, 1.3627702877384937), 3.0),
    Case("Linear", lambda: models.Linear([[-1.0, 4.0], [-4.0, -1.0]]), (1.0, 0.0), 1.0),
    Case("Logistic", models.Logistic, (0.1, 0.5), 3.0),
    Case("Lorenz63", models.Lorenz63, (1.0, 0.0, 0.0), 1.0),
    Case("Lorenz96", models.Lorenz96, (8.01, 8.0, 8.0, 8.0, 8.0, 8.0), 1.0),
    Case("LotkaVolterra", models.LotkaVolterra, (33.96, 5.93), 5.0),
    Case("Oregonator", models.Oregonator, (1.0, 2.0, 3.0), 1.0, stiff=True),
    Case("Pendulum", lambda: models.Pendulum(damping=0.2), (1.0, 0.5), 2.0),
    Case("RestrictedThreeBody", models.RestrictedThreeBody, (0.994, 0.0, 0.0, -2.0015851063790825), 0.1),
    Case("Robertson", models.Robertson, (1.0, 0.0, 0.0), 1.0, stiff=True),
    Case("SIR", models.SIR, (762.0, 1.0, 0.0), 5.0),
    Case("VanDerPol", models.VanDerPol, (2.0, 0.0), 3.0),
    Case("VanDerPolScaled", lambda: models.VanDerPolScaled(epsilon=0.01), (2.0, 0.0), 0.5),
)
