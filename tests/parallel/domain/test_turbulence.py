"""Flow in Fourier modes that is split over devices: the numbers of one device, and one all-to-all a transform."""

import collections

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect, parallel
from sciml.models import NavierStokes3D, SteadyPower
from sciml.spatial import Grid

GRID = Grid((16, 8, 5), 0.0, (7.0, 11.0, 5.0))
MESH = dict(member=1, x=8)
CASES = {
    "two thirds": dict(forcing=SteadyPower(0.4), dealiasing="two_thirds"),
    "three halves": dict(dealiasing="three_halves"),
    "a force": dict(forcing=np.random.default_rng(1).normal(size=(3, *GRID.shape))),
}


def both(case):
    domain = parallel.Domain(("x", None, None), mesh=parallel.mesh(**MESH))
    make = lambda domain: NavierStokes3D(GRID, 0.3, **CASES[case], domain=domain)  # noqa: E731
    return make(None), make(domain), domain


def start(dtype):
    return jnp.asarray(np.random.default_rng(0).normal(size=(3, *GRID.shape))).astype(dtype)


def solved(model, y, domain):
    sol = sciml.solve(model, y, t0=0.0, t1=0.02, dt=0.01, norm=domain.rms)
    return sol.ys[-1], (model.energy(y), model.enstrophy(y), model.energy_spectrum(y))


@pytest.mark.parametrize("case", CASES)
def test_turbulence_over_devices_is_that_of_one(case):
    """After steps of ETDRK, with its energy, enstrophy and spectrum."""
    whole, split, domain = both(case)
    y = start(jnp.float32)
    found = domain.run(lambda y, model: solved(model, y, domain), y, split)
    expected = jax.jit(lambda y: solved(whole, y, domain))(y)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6 * float(jnp.max(jnp.abs(b))))


@pytest.mark.x64
@pytest.mark.parametrize("case", CASES)
def test_its_gradients_are_those_of_one(case):
    whole, split, domain = both(case)

    def loss(x):
        model, y = x
        if model.blocks is None:
            end, (energy, *_) = solved(model, y, domain)
        else:
            end, (energy, *_) = domain.run(lambda y, model: solved(model, y, domain), y, model)
        return jnp.sum(end * jnp.sin(jnp.arange(float(end.size))).reshape(end.shape)) + energy, end

    gradient = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))
    found, expected = gradient((split, start(float))), gradient((whole, start(float)))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * max(float(jnp.max(jnp.abs(b))), 1e-3))


def test_a_transform_takes_one_message_and_operators_none():
    _, split, domain = both("three halves")
    count = lambda fn, y: collections.Counter(m.kind for m in inspect.collectives(lambda y: domain.run(fn, y), y))  # noqa: E731
    y = start(float)
    assert count(lambda y: split(0.0, y, None), y) == {"all-to-all": 4}  # of state and rates, of fields and products
    assert count(split.project, y) == {"all-to-all": 2}
    found = domain.run(lambda y: (split.divergence(y), split.vorticity(y)), y)
    whole = both("three halves")[0]
    for a, b in zip(found, (whole.divergence(y), whole.vorticity(y)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * float(jnp.max(jnp.abs(b))))


def test_what_cannot_be_split_so_is_refused():
    mesh = parallel.mesh(member=1, x=4, y=2)
    with pytest.raises(ValueError, match=r"must split only the first axis of"):
        NavierStokes3D(GRID, domain=parallel.Domain(("x", "y", None), mesh=mesh))
    with pytest.raises(TypeError, match="must be a `sciml.parallel.Domain`"):
        NavierStokes3D(GRID, domain=mesh)
    domain = parallel.Domain(("x", None, None), mesh=parallel.mesh(**MESH))
    with pytest.raises(ValueError, match=r"must have shape \(3, 2, 8, 5\), but has \(3, 4, 8, 5\)"):
        domain.run(lambda y: NavierStokes3D(GRID, domain=domain)(0.0, y, None), jnp.ones((3, 32, 8, 5)))
