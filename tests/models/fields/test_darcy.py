"""Darcy flow: the steady pressure, and the field of mobility found from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.models import Darcy
from sciml.spatial import Dirichlet, Grid, Neumann


@pytest.mark.x64
def test_the_steady_pressure_does_not_change_and_is_that_of_layers_in_series():
    grid = Grid((12, 6))
    sides = {"x-": Dirichlet(1.0), "x+": Dirichlet(0.0), "y": Neumann(0.0)}
    k = jnp.repeat(jnp.array([1.0, 100.0, 0.1, 5.0, 2.0, 7.0]), 2)[:, None] * jnp.ones((1, 6))
    model = Darcy(grid, sides, k, q=0.0)
    p = model.steady()
    assert jnp.max(jnp.abs(model(0.0, p, None))) < 1e-6
    inflow = 24 * k[0] * (1.0 - p[0])
    assert jnp.allclose(inflow, 1 / jnp.mean(1 / k[:, 0]), rtol=1e-8)


@pytest.mark.x64
def test_time_leads_to_the_steady_pressure():
    model = Darcy(Grid((6, 5)), Dirichlet(0.5), k=2.0, q=3.0)
    sol = sciml.solve(model, jnp.zeros((6, 5)), t0=0.0, t1=2.0, dt=2e-3)
    assert jnp.allclose(sol.ys[-1], model.steady(), rtol=0, atol=1e-6)


@pytest.mark.x64
def test_the_gradient_by_the_field_is_that_of_finite_differences():
    grid = Grid((9, 8))
    rng = np.random.default_rng(0)
    k, v = jnp.exp(jnp.asarray(rng.normal(size=(9, 8)))), jnp.asarray(rng.normal(size=(9, 8)))

    @jax.jit
    def loss(k):
        return jnp.mean(Darcy(grid, Dirichlet(0.0), k).steady() ** 2)

    gradient = eqx.filter_jit(jax.grad(loss))(k)
    central = (8 * (loss(k + 1e-3 * v) - loss(k - 1e-3 * v)) - loss(k + 2e-3 * v) + loss(k - 2e-3 * v)) / 12e-3
    assert np.isclose(jnp.vdot(gradient, v), central, rtol=1e-6)
