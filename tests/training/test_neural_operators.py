"""Operators of neojax-operators as correctors of a coarse grid, as they are: trained through the solver's steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import sciml
from sciml import models, training
from sciml.spatial import Grid, Periodic

neojax = pytest.importorskip("neojax.models")
pytestmark = pytest.mark.float32  # its spectra are complex64, whatever the precision
STEPS = dict(t0=0.0, t1=0.2, solver=sciml.solvers.SSPRK33(), saveat=jnp.linspace(0.0, 0.2, 6))


class Corrected(eqx.Module):
    """A model, and a network of the field for what it lacks."""

    coarse: models.Burgers
    net: eqx.Module

    def __call__(self, t, u, args):
        """Returns the rates."""
        return self.coarse(t, u, args) + 0.1 * self.net(u[None])[0]


def fourier(key):
    return neojax.FNO(key, in_channels=1, out_channels=1, hidden_channels=8, n_layers=2, modes=(8,))


def u_shaped(key):
    sizes = dict(uno_out_channels=[8, 8, 8], uno_modes=[[8], [4], [8]], uno_scalings=[[0.5], [1.0], [2.0]])
    return neojax.UNO(key, in_channels=1, out_channels=1, hidden_channels=8, n_fno_layers=3, **sizes)


def waves():
    """Six waves that steepen, by 128 cells, as 32 cells see them."""
    fine = Grid(128)
    x = fine.centers[0]

    def solved(shift):
        start = 1 + 0.5 * jnp.sin(2 * jnp.pi * (x + shift)) + 0.3 * jnp.cos(4 * jnp.pi * (x - 2 * shift))
        return sciml.solve(models.Burgers(fine, Periodic(), viscosity=0.02), start, dt=0.001, **STEPS).ys

    return jax.jit(jax.vmap(solved))(jnp.linspace(0.0, 0.4, 6)).reshape(6, 6, 32, 4).mean(axis=-1)


@jax.numpy_dtype_promotion("standard")  # which neojax counts on
@pytest.mark.parametrize("make", [fourier, u_shaped])
def test_an_operator_corrects_a_coarse_grid_and_is_trained_in_its_steps(make):
    """Real and complex weights move, and a wave that it has not seen is less wrong than without."""
    coarse, seen = models.Burgers(Grid(32), Periodic(), viscosity=0.02), waves()
    model = Corrected(coarse, make(jax.random.key(0)))
    unseen, seen = seen[3], [wave for i, wave in enumerate(seen) if i != 3]
    problem = training.rollouts(model, [STEPS["saveat"]] * 5, seen, length=1, dt=0.01, solver=STEPS["solver"])
    options = dict(optimiser=optax.adam(3e-3), steps=200, batch_size=8, progress=False)
    found = training.train(*problem, where=lambda m: m.net, **options)
    assert found.history.loss[-1] < 0.1 * found.history.loss[0]
    before, after = (jax.tree.leaves(eqx.filter(m.net, eqx.is_inexact_array)) for m in (model, found.model))
    assert any(jnp.iscomplexobj(x) for x in before)
    assert all(jnp.any(x.imag != y.imag) for x, y in zip(before, after) if jnp.iscomplexobj(x))

    def error(of):
        return jnp.abs(sciml.solve(of, unseen[0], dt=0.01, **STEPS).ys - unseen).max()

    print(make.__name__, found.history.loss[0], found.history.loss[-1], error(found.model), error(coarse))
    assert error(found.model) < 0.5 * error(coarse)
