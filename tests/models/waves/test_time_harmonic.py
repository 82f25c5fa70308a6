"""Waves of one frequency: Green's functions, a gradient, members, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import sciml
from sciml import verify
from sciml.models import TimeHarmonicWave
from sciml.spatial import Grid, Points
from tests.gradients import check_gradient


@pytest.mark.x64
def test_greens_function_is_that_of_hankel():
    r = np.array([0.7, 1.0, 3.0, 20.0])
    exact = 0.25j * scipy.special.hankel1(0, 2.0 * r)
    np.testing.assert_allclose(verify.reference("helmholtz_green", jnp.asarray(r), 2.0, ndim=2), exact, rtol=1e-7)
    # and all of them solve the equation: by the slope of r^((d - 1) / 2) G in one and three dimensions
    for ndim in (1, 3):
        g = lambda r, d=ndim: r ** ((d - 1) / 2) * verify.reference("helmholtz_green", r, 2.0, ndim=d)  # noqa: E731
        second = (g(jnp.asarray(1.001)) - 2 * g(jnp.asarray(1.0)) + g(jnp.asarray(0.999))) / 1e-6
        assert abs(second + 4.0 * g(jnp.asarray(1.0))) < 1e-5 * abs(second)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_point_radiates_greens_function(ndim):
    """Away from the point and the layers, in both precisions, in few steps."""
    cells, layers, omega = {1: (120, 20, 5.0), 2: (64, 12, 9.0), 3: (28, 6, 5.0)}[ndim]
    h = 0.04 if ndim < 3 else 0.1
    length = cells * h
    grid = Grid((cells,) * ndim, 0.0, length)
    model = TimeHarmonicWave(grid, omega, layers=layers)
    middle = [length / 2 + h / 2] + [h / 2 * (cells + 1)] * (ndim - 1)
    source = Points(grid, middle).spread(jnp.ones(()))
    p = model.solve(source)
    assert p.dtype == (jnp.complex128 if source.dtype == jnp.float64 else jnp.complex64)
    far = jnp.sqrt(sum((x - m) ** 2 for x, m in zip(grid.centers, middle)))
    edge = layers * h
    inside = np.ones(grid.shape, bool)
    for x in grid.centers:
        inside &= np.broadcast_to((x > edge) & (x < length - edge), grid.shape)
    sees = inside & (np.asarray(far) > 5 * h)
    exact = (
        -1j * omega * np.asarray(verify.reference("helmholtz_green", jnp.where(far > 0, far, 1.0), omega, ndim=ndim))
    )
    error = np.max(np.abs(np.asarray(p) - exact)[sees]) / np.max(np.abs(exact[sees]))
    assert error < (0.03 if ndim == 1 else 0.06)
    assert int(model.steps(source)) < 50


def heterogeneous(shape, seed=0):
    return jnp.asarray(1 + 0.3 * np.random.default_rng(seed).uniform(size=shape))


@pytest.mark.x64
def test_the_gradient_is_that_of_the_equation():
    """By the frequency, speed, density, loss and the source; members as one by one."""
    grid = Grid((7, 6), 0.0, 0.7)
    draw = np.random.default_rng(1)
    source = jnp.asarray(draw.normal(size=(2, 7, 6)))

    def loss(x):
        omega, speed, density, lost, (real, imaginary) = x
        sides = {"x": "free", "y-": "rigid", "y+": "free"}
        model = TimeHarmonicWave(grid, omega, speed, density, lost, boundary=sides, layers={"x": 2}, tuned=1.3)
        p = model.solve(jax.lax.complex(real, imaginary), rtol=1e-12)
        return jnp.sum(jnp.real(p[3:5]) ** 2) + jnp.sum(jnp.imag(p[2]))

    x = (jnp.asarray(4.0), heterogeneous((7, 6)), heterogeneous((7, 6), 1), jnp.asarray(0.05), source)
    check_gradient(loss, x, rtol=1e-4, atol=1e-7)
    members = jax.tree.map(lambda v: jnp.stack([v, 1.05 * v]), x)
    both = jax.jit(jax.vmap(jax.grad(loss)))(members)
    alone = jax.jit(jax.grad(loss))(jax.tree.map(lambda v: v[1], members))
    for many, one in zip(jax.tree.leaves(both), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(many[1], one, rtol=1e-7, atol=1e-8)


@pytest.mark.x64
def test_it_is_what_sound_of_one_frequency_comes_to():
    """The residual of the equation, and reciprocity: what one place hears of another, the other hears of it."""
    grid = Grid((24, 20), 0.0, (2.4, 2.0))
    model = TimeHarmonicWave(grid, 8.0, heterogeneous((24, 20)), heterogeneous((24, 20), 1), layers=5)
    here, there = (jnp.zeros(grid.shape).at[place].set(1.0) for place in ((8, 9), (16, 11)))
    p, q = model.solve(here), model.solve(there)
    right = jnp.linalg.norm(model.residual(0 * p, here))
    assert jnp.linalg.norm(model.residual(p, here)) < 1e-7 * right
    assert abs(p[16, 11] - q[8, 9]) < 1e-6 * abs(p[16, 11]) and abs(p[16, 11]) > 1e-3 * jnp.max(jnp.abs(p))


def test_bad_input():
    grid = Grid((16, 16))
    model = TimeHarmonicWave(grid, 4.0, layers=4)
    with pytest.raises(ValueError, match="over the grid, of shape"):
        model.solve(jnp.ones((3, 3)))
    with pytest.raises(ValueError, match="frequency=...`|must be a number"):
        TimeHarmonicWave(grid, jnp.ones(2))
    with pytest.raises(ValueError, match="speed"):
        TimeHarmonicWave(grid, 4.0, jnp.ones(3))
    with pytest.raises(sciml.SolveError, match="did not converge"):
        model.solve(jnp.zeros(grid.shape).at[8, 8].set(1.0), max_steps=1)
    assert jnp.all(jnp.isnan(model.solve(jnp.zeros(grid.shape).at[8, 8].set(1.0), max_steps=1, throw=False)))
