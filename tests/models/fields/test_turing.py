"""Reactions that diffuse: the dispersion relation of Turing's instability, and a front with its speed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import verify
from sciml.models import Brusselator, FitzHughNagumo, ReactionDiffusion
from sciml.spatial import Grid, Neumann, Periodic

RATES = jnp.array([5.0, 12.0])


@pytest.mark.x64
def test_turing_growth_is_that_of_the_discrete_equation():
    """Every eigenvector of a mode of the grid, to rounding."""
    grid = Grid((8, 6), 0.0, (20.0, 12.0))
    x, y = grid.centers
    k = 2 * np.pi * 2 / 20, 2 * np.pi / 12
    reaction, rest = Brusselator(3.0, 9.0), jnp.array([3.0, 3.0])
    model = ReactionDiffusion(reaction, grid, Periodic(), RATES)
    wave = jnp.cos(k[0] * x + k[1] * y)
    discrete = jnp.sqrt(-model.laplacian.symbol(*map(jnp.asarray, k)))
    rates = verify.reference("turing_growth", reaction, rest, RATES, discrete)
    jacobian = jax.jacfwd(lambda u: reaction(0.0, u, None))(rest) - discrete**2 * jnp.diag(RATES)
    values, vectors = np.linalg.eig(np.asarray(jacobian))
    np.testing.assert_allclose(np.sort(rates.real), np.sort(values.real), rtol=1e-12)
    assert rates[0].real >= rates[1].real
    uniform = jnp.broadcast_to(rest[:, None, None], (2, *grid.shape))
    for value, vector in zip(values, vectors.T):
        assert value.imag == 0
        tangent = jnp.asarray(vector.real)[:, None, None] * wave[None]
        slope = jax.jvp(lambda u: model(0.0, u, None), (uniform,), (tangent,))[1]
        np.testing.assert_allclose(slope, value.real * tangent, atol=1e-11)


@pytest.mark.x64
def test_the_threshold_of_the_brusselator():
    """b = (1 + a sqrt(Du / Dv))^2 at k^2 = a / sqrt(Du Dv)."""
    a, (du, dv) = 2.0, (1.0, 8.0)
    threshold = (1 + a * np.sqrt(du / dv)) ** 2
    critical = jnp.sqrt(jnp.asarray(a / np.sqrt(du * dv)))
    wavenumbers = jnp.concatenate([jnp.linspace(0.0, 3.0, 61), critical[None]])
    below, at, above = (
        verify.reference("turing_growth", Brusselator(a, b), jnp.array([a, b / a]), (du, dv), wavenumbers)[:, 0].real
        for b in (0.99 * threshold, threshold, 1.01 * threshold)
    )
    assert jnp.all(below < 0) and abs(at[-1]) < 1e-12 and jnp.all(at < 1e-12) and above[-1] > 0 > above[0]


@pytest.mark.x64
def test_a_pattern_grows_at_its_rate():
    grid = Grid(32, 0.0, 4 * 2 * np.pi / (3.0 / 60**0.5) ** 0.5)
    (x,) = grid.centers
    reaction, rest = Brusselator(3.0, 9.0), jnp.array([3.0, 3.0])
    model = ReactionDiffusion(reaction, grid, Periodic(), RATES, order=6)
    k = 4 * 2 * np.pi / grid.extent[0]
    start = rest[:, None] + 1e-6 * jnp.cos(k * x)[None]
    times = np.array([2.0, 3.0])
    ys = sciml.solve(model, start, t0=0.0, t1=3.0, dt=0.01, saveat=times, solver=sciml.solvers.RKC2()).ys
    sizes = jnp.abs(jnp.fft.rfft(ys[:, 0])[:, 4])
    rate = float(verify.reference("turing_growth", reaction, rest, RATES, jnp.asarray(k))[0].real)
    np.testing.assert_allclose(np.log(sizes[1] / sizes[0]), rate, rtol=1e-3)


@pytest.mark.x64
def test_a_front_of_nagumo_travels():
    """FitzHugh-Nagumo with a recovery that does not move, `epsilon=0`; of second order."""
    middle, diffusivity = -0.4, 1.7
    held = middle - middle**3 / 3

    def error(n):
        grid = Grid(n, -30.0, 30.0)
        (x,) = grid.centers
        model = ReactionDiffusion(FitzHughNagumo(epsilon=0.0), grid, Neumann(0.0), (diffusivity, 0.0))
        v = verify.reference("nagumo_front", x, 0.0, middle, diffusivity)
        start = jnp.stack([v, jnp.full(n, held + 0.5)])  # the stimulus is 0.5
        end = sciml.solve(model, start, t0=0.0, t1=4.0, dt=8.0 / n, solver=sciml.solvers.RKC2()).ys[-1]
        return jnp.max(jnp.abs(end[0] - verify.reference("nagumo_front", x, 4.0, middle, diffusivity)))

    assert verify.reference("nagumo_front", jnp.array(-30.0), 0.0, middle) > 1.5
    assert abs(verify.order_in_space(error, (120, 240)).order - 2.0) < 0.1


def test_dtypes(dtype):
    x = jnp.linspace(-1.0, 1.0, 5).astype(dtype)
    assert verify.reference("nagumo_front", x, 0.3, 0.1).dtype == dtype
    rates = verify.reference("turing_growth", Brusselator(), jnp.array([1.0, 3.0], dtype), (1.0, 2.0), x)
    assert rates.shape == (5, 2) and rates.real.dtype == dtype
