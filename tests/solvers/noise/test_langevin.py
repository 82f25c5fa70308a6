"""Particles in a bath: the laws of positions and velocities, with long steps too, and what is refused."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import BAOAB

from .test_brownian import within

KEYS = jax.random.split(jax.random.key(0), 4000)


def ends(model, dt, solver=None, **options):
    def end(key):
        start = (jnp.zeros(1), jnp.zeros(1))
        sol = sciml.solve(model, start, t0=0.0, t1=12.0, dt=dt, key=key, solver=solver, **options)
        return sol.ys[0][-1, 0], sol.ys[1][-1, 0]

    return tuple(np.asarray(x, np.float64) for x in jax.jit(jax.vmap(end))(KEYS))


def test_a_spring_with_long_steps():
    """The law of the positions is exact for every step that is stable; that of another method is not."""
    spring = sciml.Langevin(lambda t, x, args: -4.0 * x, friction=1.0, temperature=0.5, mass=2.0)
    x, v = ends(spring, 0.5, BAOAB())
    within(x, 0.0, np.sqrt(0.125))
    within(x**2, 0.125, np.sqrt(2) * 0.125)
    other, _ = ends(spring, 0.5, diffrax.Euler())
    assert np.abs(np.mean(other**2) - 0.125) > 0.05
    assert np.abs(np.mean(v**2) - 0.25) < 0.15  # that of the velocities is off by the square of the step


def test_two_wells():
    """Moments of the positions against the integral over exp(-U / T)."""
    wells = sciml.Langevin(lambda t, x, args: args * (x - x**3), friction=1.0, temperature=0.4)
    x, v = ends(wells, 0.1, BAOAB(), args=2.0)
    grid = np.linspace(-4, 4, 4001)
    law = np.exp(-2.0 * (grid**4 / 4 - grid**2 / 2) / 0.4)
    for power in (2, 4):
        mean, square = (np.sum(grid**p * law) / law.sum() for p in (power, 2 * power))
        within(x**power, mean, np.sqrt(square - mean**2))
    within(v**2, 0.4, np.sqrt(2) * 0.4)


@pytest.mark.x64
def test_path_and_gradients():
    """On one path BAOAB and SRA1 agree for short steps; derivatives are those of differences."""
    model = functools.partial(sciml.Langevin, lambda t, x, args: -args * jnp.sin(x), temperature=0.3)
    path = sciml.BrownianPath(KEYS[0], 0.0, 1.0)

    def end(args, friction, steps, solver=None, adjoint=None):
        start = (jnp.ones(2), jnp.zeros(2))
        options = dict(t0=0.0, t1=1.0, dt=1 / steps, args=args, key=path, solver=solver, adjoint=adjoint)
        return sciml.solve(model(friction=friction), start, **options).ys[0][-1, 0]

    fine = end(2.0, 0.7, 1024)
    coarse, shorter = (abs(end(2.0, 0.7, n, BAOAB()) - fine) for n in (16, 128))
    assert shorter < 0.25 * coarse < 0.02
    for argument in (0, 1):
        up, down = ([x + s * 1e-5 * (i == argument) for i, x in enumerate((2.0, 0.7))] for s in (1, -1))
        expected = (end(*up, 16, BAOAB()) - end(*down, 16, BAOAB())) / 2e-5
        np.testing.assert_allclose(jax.grad(end, argument)(2.0, 0.7, 16, BAOAB()), expected, rtol=1e-6)


def test_refusals():
    with pytest.raises(TypeError, match="`force` must be a function"):
        sciml.Langevin(1.0, friction=1.0, temperature=1.0)
    plain = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: 1.0)
    with pytest.raises(TypeError, match="requires a Langevin equation"):
        sciml.solve(plain, 1.0, t0=0.0, t1=1.0, dt=0.1, key=KEYS[0], solver=BAOAB())
