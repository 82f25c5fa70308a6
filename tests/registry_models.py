"""One case for every model: `(name, make model, y0, t1)` with values that work.

A suite that should hold for every model is parametrised over `CASES`, those that are vector fields, or over `EVERY`.
States are tuples, which a test makes arrays of the dtype it wants; `t1` is short enough for a tight comparison between
solvers. What a model with noise, of reactions or with a delay is made of are functions of a state and of its
parameters, too: `Parts` makes one vector field of them, which has to stand the same tests.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from sciml import AbstractModel, models


class Case(NamedTuple):
    """A model with an initial state and an end time; nothing is put on a device before a test asks.

    Attributes:
        beside: What of the model its events depend on, as a function of model and state.
    """

    name: str
    make: Callable[[], AbstractModel]
    state: tuple[float, ...]
    t1: float
    stiff: bool = False
    beside: Callable | None = None

    def y0(self, dtype=None):
        return jnp.asarray(self.state, jnp.result_type(float) if dtype is None else dtype)


class Parts(AbstractModel):
    """The functions of a model that is no vector field, side by side."""

    model: eqx.Module
    read: Callable = eqx.field(static=True)

    def __call__(self, t, y, args):
        return self.read(self.model, t, y, args)


def spike(model, y):
    return jnp.stack([model.above_threshold(0.0, y, None), model.after_spike(0.0, y, None)[0]])


def of_noise(model, t, y, args):
    return jnp.concatenate([model.drift(t, y[:1], args), model.diffusion(t, y[1:], args)])


def of_reactions(model, t, y, args):
    return model.propensities(y[:1], args)


def of_delay(model, t, y, args):
    rate, before = model.rate(t, y[0], (y[1],), args), model.before(jnp.asarray(t, y.dtype), args)
    return jnp.stack([rate, before, model.delays.astype(y.dtype)])


CASES = (
    Case("BouncingBall", models.BouncingBall, (1.0, 0.5), 0.5, beside=lambda model, y: model.rebound(0.0, y, None)),
    Case("Brusselator", models.Brusselator, (1.5, 3.0), 2.0),
    Case("FitzHughNagumo", models.FitzHughNagumo, (-1.0, 1.0), 10.0),
    Case("HIRES", models.HIRES, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0057), 1.0, stiff=True),
    Case("HarmonicOscillator", lambda: models.HarmonicOscillator(omega=2.0, zeta=0.1), (1.0, 0.0), 3.0),
    Case("IntegrateAndFire", models.IntegrateAndFire, (-60.0,), 10.0, beside=spike),
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
    Case("Schnakenberg", lambda: models.Schnakenberg(rate=2.0), (1.2, 0.7), 2.0),
    Case("TwoCompartment", models.TwoCompartment, (100.0, 50.0, 10.0, 20.0), 1.0),
    Case("VanDerPol", models.VanDerPol, (2.0, 0.0), 3.0),
    Case("VanDerPolScaled", lambda: models.VanDerPolScaled(epsilon=0.01), (2.0, 0.0), 0.5),
)

EVERY = (
    *CASES,
    Case("BirthDeath", lambda: Parts(models.BirthDeath(), of_reactions), (3.0, 4.0), 1.0),
    Case("GeometricBrownian", lambda: Parts(models.GeometricBrownian(), of_noise), (100.0, 90.0), 1.0),
    Case("MackeyGlass", lambda: Parts(models.MackeyGlass(), of_delay), (1.2, 0.9, 0.0), 1.0),
    Case("OrnsteinUhlenbeck", lambda: Parts(models.OrnsteinUhlenbeck(), of_noise), (0.1, 0.2), 1.0),
    Case("Schloegl", lambda: Parts(models.Schloegl(), of_reactions), (250.0, 1.0, 2.0, 3.0), 0.01),
)
