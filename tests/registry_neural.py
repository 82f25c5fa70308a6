"""One case for every model with networks: `(name, make model of a key, a state, args)`.

Networks are as small as can be, so that a suite over all of them is quick.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import models
from sciml.models import neural
from sciml.models.neural._universal import NeuralTerm
from sciml.spatial import Grid, Neumann, Periodic, Rusanov

SMALL = dict(width=4, depth=1)
TS = (0.0, 0.3, 0.7, 1.0)


class Parts(sciml.AbstractModel):
    """The functions of a model with noise, side by side, as one vector field."""

    model: eqx.Module

    def __call__(self, t, y, args):
        rates = self.model.drift(t, y, args)
        strength = self.model.diffusion(t, y, args)
        return rates + (jnp.sum(strength, axis=1) if strength.ndim == 2 else strength)


class Case(NamedTuple):
    """A model with a state.

    Attributes:
        make: `make(key)` gives the model.
        state: `state()` gives a state, or a pair of them.
        args: `args()` gives what the model takes beside it.
        as_field: Whether it is a vector field itself.
    """

    name: str
    make: Callable[[Any], Any]
    state: Callable[[], Any]
    args: Callable[[], Any] = lambda: None
    as_field: bool = True

    def y0(self, dtype=None):
        dtype = jnp.result_type(float) if dtype is None else dtype
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self.state(), is_leaf=lambda x: isinstance(x, list))

    def field(self, key):
        """The model, or the parts of it, as a vector field."""
        model = self.make(key)
        return model if self.as_field else Parts(model)


def path():
    ts = jnp.asarray(TS)
    return neural.measured_path(ts, jnp.sin(3 * ts)[:, None])


def burgers(key):
    return models.InviscidBurgers(Grid(8), Periodic(), flux=neural.LearnedFlux(Rusanov(), **SMALL, key=key))


def closed_diffusion(key):
    grid = Grid((6, 5))
    return neural.ConservativeClosure(
        models.Diffusion(grid, {"x": Periodic(), "y": Neumann(0.0)}, 0.01), grid, (True, False), **SMALL, key=key
    )


def told(model, y):
    return jnp.stack([y, y**2])


def closed_waves(key):
    coarse = models.KuramotoSivashinsky(points=12, length=36.0)
    return neural.SpectralClosure(coarse, 1, told, 2, scale=(1.0, 0.5), gain=1.0, **SMALL, key=key)


def on_grid(*shape):
    return lambda: 0.5 + 0.3 * np.cos(np.arange(np.prod(shape))).reshape(shape)


CASES = (
    Case("NeuralTerm", lambda key: NeuralTerm(2, clock=neural.Elapsed(3.0), **SMALL, key=key), lambda: [0.5, 1.0]),
    Case("NeuralODE", lambda key: neural.NeuralODE(2, **SMALL, key=key), lambda: [0.5, -1.0]),
    Case(
        "AugmentedNeuralODE",
        lambda key: neural.AugmentedNeuralODE(1, 1, clock=neural.Seasons(2.0), **SMALL, key=key),
        lambda: [0.5, 0.0],
    ),
    Case(
        "UniversalODE",
        lambda key: neural.UniversalODE(models.LotkaVolterra(), 2, components=(1,), scale=30.0, **SMALL, key=key),
        lambda: [34.0, 6.0],
    ),
    Case("HamiltonianNetwork", lambda key: neural.HamiltonianNetwork(1, **SMALL, key=key), lambda: [0.5, -1.0]),
    Case(
        "PotentialNetwork",
        lambda key: neural.PotentialNetwork(2, mass=(1.0, 2.0), **SMALL, key=key),
        lambda: ([0.5, 1.0], [0.3, 0.0]),
    ),
    Case("LagrangianNetwork", lambda key: neural.LagrangianNetwork(2, **SMALL, key=key), lambda: [0.5, -1.0, 0.2, 0.4]),
    Case(
        "PortHamiltonian",
        lambda key: neural.PortHamiltonian(2, 1, **SMALL, key=key),
        lambda: [0.5, -1.0],
        lambda: jnp.array([0.7]),
    ),
    Case("NeuralSDE", lambda key: neural.NeuralSDE(2, **SMALL, key=key), lambda: [0.5, -1.0], as_field=False),
    Case("NeuralCDE", lambda key: neural.NeuralCDE(2, 2, **SMALL, key=key), lambda: [0.5, -1.0], path),
    Case("LatentODE", lambda key: neural.LatentODE(1, 2, memory=3, **SMALL, key=key), lambda: [0.5, -1.0]),
    Case("LearnedFlux", burgers, on_grid(8)),
    Case("ConservativeClosure", closed_diffusion, on_grid(6, 5)),
    Case("SpectralClosure", closed_waves, on_grid(12)),
)
