"""One case for every model of fields: how it is made on a grid with conditions, and the shape of its state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sciml import models
from sciml.spatial import Grid


class Case(NamedTuple):
    """A model on a grid of two dimensions; its state has `components` fields, None for a plain one."""

    name: str
    make: Callable[[Grid, Any], Any]
    components: int | None = None

    def y0(self, grid, dtype=None):
        """A smooth state between 0.2 and 0.8, which every model takes."""
        x, y = (2 * jnp.pi * c for c in grid.centers)
        fields = [0.5 + 0.2 * jnp.sin(x + i) * jnp.cos(y) + 0.1 * jnp.sin(y - i) for i in range(self.components or 1)]
        state = jnp.stack(fields) if self.components else fields[0]
        return state.astype(jnp.result_type(float) if dtype is None else dtype)


def velocity(grid):
    x, y = (2 * jnp.pi * c for c in grid.centers)
    return jnp.stack([jnp.sin(y) + 0.3 + 0 * x, jnp.cos(x) - 0.2 + 0 * y])


def coefficient(grid):
    x, y = grid.centers
    return 1.0 + 0.5 * x * y


CASES = (
    Case("Advection", lambda grid, sides: models.Advection(grid, sides, velocity(grid))),
    Case("AdvectionDiffusion", lambda grid, sides: models.AdvectionDiffusion(grid, sides, jnp.array([1.0, -0.5]))),
    Case("AllenCahn", lambda grid, sides: models.AllenCahn(grid, sides, width=0.1)),
    Case("Burgers", models.Burgers, 2),
    Case("Diffusion", lambda grid, sides: models.Diffusion(grid, sides, coefficient(grid))),
    Case("FisherKPP", models.FisherKPP),
    Case("GrayScott", models.GrayScott, 2),
    Case("KellerSegel", models.KellerSegel, 2),
    Case(
        "ReactionDiffusion",
        lambda grid, sides: models.ReactionDiffusion(models.Brusselator(), grid, sides, (0.1, 0.2)),
        2,
    ),
    Case("Wave", models.Wave, 2),
)


def spectral_radius(model, y):
    """The largest modulus of the Jacobian's eigenvalues."""
    jacobian = jax.jit(jax.jacfwd(lambda y: model(0.0, y, None)))(y).reshape(y.size, y.size)
    return float(np.max(np.abs(np.linalg.eigvals(np.asarray(jacobian)))))


FLOWS = {"IncompressibleFlow", "ImplicitFriction", "FlowState", "Carried", "AbstractFlowForce", "BodyForce", "Buoyancy"}
FLOWS |= {"Obstacle", "AbstractEddyViscosity", "Smagorinsky", "NavierStokes3D", "SteadyPower"}
"""What `tests/models/flows/test_incompressible_flow.py` is about."""

WAVES = {"Maxwell", "AbstractDispersion", "Drude", "Lorentz", "Debye", "ElasticWave", "WaveFields", "FieldSource"}
WAVES |= {"TimeHarmonicWave"}
"""What `tests/models/waves/test_maxwell.py`, `test_elastic_wave.py` and `test_time_harmonic.py` are about."""
