"""Densities that drift and diffuse on a grid that is split over devices: the numbers and derivatives of one device."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import parallel
from sciml.models import FokkerPlanck
from sciml.spatial import Boundaries, Grid, Neumann, Periodic, Robin, Sides

pytestmark = pytest.mark.x64

CASES = {
    "a line": (Grid(16, -1.0, 1.0), {"x-": Neumann(0.1), "x+": Robin(0.3, 1.0)}),
    "a box": (Grid((16, 4), -1.0, 1.0), {"x": Neumann(0.0), "y": Periodic()}),
}


def wells(*coordinates):
    return sum(x**4 / 4 - x**2 / 2 for x in coordinates)


def both(case):
    grid, sides = CASES[case]
    mesh = parallel.mesh(member=1, x=8)
    domain = parallel.Domain(("x", None)[: grid.ndim], boundary=Boundaries(grid, sides), mesh=mesh)
    return *(FokkerPlanck(grid, boundary, wells, 0.3) for boundary in (sides, domain)), domain


def looked_at(model, y):
    fields = model(0.0, y, None), model.stationary() + 0 * y, model.solve_shifted(0.1, y, None)
    return fields, model.free_energy(y), model.spectral_radius(0.0, y, None)


@pytest.mark.parametrize("case", CASES)
def test_drift_over_devices_has_the_numbers_and_derivatives_of_one(case):
    """By the density, the potential, the diffusivity and what passes the sides; the implicit system's too."""
    whole, split, domain = both(case)
    y = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.0, size=whole.boundary.grid.shape))

    def loss(x):
        model, y = x
        if isinstance(model.boundary, Boundaries):
            found = looked_at(model, y)
        else:
            found = domain.run(lambda y, model: looked_at(model, y), y, model)
        return sum(jnp.sum(jnp.sin(1.0 + jnp.arange(float(x.size))) * x.ravel()) for x in jax.tree.leaves(found)), found

    gradient = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))
    found, expected = gradient((split, y)), gradient((whole, y))
    assert sum(bool(jnp.any(x != 0)) for x in jax.tree.leaves(expected[0])) >= 3
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * max(float(jnp.max(jnp.abs(b))), 1e-3))


def test_what_has_no_conditions_is_refused():
    grid = Grid(16)
    mesh = parallel.mesh(member=1, x=8)
    with pytest.raises(TypeError, match="a `Domain` with `boundary=Boundaries"):
        FokkerPlanck(grid, parallel.Domain(("x",), mesh=mesh), wells)
    with pytest.raises(TypeError, match="got Sides"):
        FokkerPlanck(grid, parallel.Domain(("x",), boundary=Sides(grid, Periodic()), mesh=mesh), wells)
    with pytest.raises(ValueError, match="belongs to another grid"):
        FokkerPlanck(grid, parallel.Domain(("x",), boundary=Boundaries(Grid(8), Periodic()), mesh=mesh), wells)
