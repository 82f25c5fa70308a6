"""Noise of fields: its covariance against that of the spectrum, in solves, over devices, and what is refused."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from sciml.spatial import (
    ColouredNoise,
    Dirichlet,
    GaussianSpectrum,
    Grid,
    MaternSpectrum,
    Neumann,
    Periodic,
    PowerLawSpectrum,
    WhiteNoise,
)

from ..solvers.common import close


def covariance(noise, shape):
    """The covariance of a field of noise in a unit of time, of all its points with one another."""
    count = int(np.prod(shape))
    root = np.asarray(noise.size) * np.asarray(noise.correlated(jnp.eye(count).reshape(count, *shape)), np.float64)
    root = root.reshape(count, count)
    return root.T @ root


def of_distance(kind, r, length):
    if kind == "gaussian":
        return np.exp(-((r / length) ** 2) / 2)
    x = np.sqrt(5.0) * np.maximum(r, 1e-9) / length
    return 2 ** (1 - 2.5) / scipy.special.gamma(2.5) * x**2.5 * scipy.special.kv(2.5, x)


@pytest.mark.parametrize("kind", ["gaussian", "matern"])
def test_covariance_is_that_of_the_spectrum(kind):
    spectrum = GaussianSpectrum(0.1, 2.0) if kind == "gaussian" else MaternSpectrum(0.1, 2.5, 2.0)
    for shape, upper in (((24,), 1.2), ((16, 15), (1.0, 0.9))):
        grid = Grid(shape, 0.0, upper)
        noise = ColouredNoise(grid, spectrum)
        places = [(np.arange(n) * h).reshape([-1 if i == a else 1 for i in range(len(shape))])
                  for a, (n, h) in enumerate(zip(shape, grid.spacing))]  # fmt: skip
        expected = 0.0
        for periods in np.ndindex(*(3,) * len(shape)):
            moved = [x + (p - 1) * length for x, p, length in zip(places, periods, grid.extent)]
            expected = expected + 2.0 * of_distance(kind, np.sqrt(sum(x**2 for x in moved)), 0.1)
        found = covariance(noise, shape)[0].reshape(shape)
        np.testing.assert_allclose(found, expected, atol=2e-3 if kind == "gaussian" else 2e-2)
        np.testing.assert_allclose(noise.size**2, found.flat[0], rtol=1e-5)


@pytest.mark.parametrize(("side", "sign"), [(Neumann(), 1), (Dirichlet(), -1)])
def test_walls_mirror_noise(side, sign):
    grid = Grid(32)
    noise = ColouredNoise(grid, GaussianSpectrum(0.08), side)
    (x,) = (np.asarray(x, np.float64) for x in grid.centers)
    images = [(m + x[None], 1) for m in (-2, 0, 2)] + [(m - x[None], sign) for m in (-2, 0, 2)]
    expected = sum(s * of_distance("gaussian", np.abs(x[:, None] - at), 0.08) for at, s in images)
    np.testing.assert_allclose(covariance(noise, (32,)), expected, atol=2e-5)


def test_white_noise_and_a_flat_spectrum_are_one():
    grid = Grid((6, 5), 0.0, (3.0, 1.0))
    flat = covariance(ColouredNoise(grid, jnp.ones_like), grid.shape)
    np.testing.assert_allclose(flat, covariance(WhiteNoise(grid), grid.shape), atol=1e-4)
    np.testing.assert_allclose(np.diag(flat), 1 / grid.volume, rtol=1e-5)
    nodes = WhiteNoise(grid, ("node", "center"))
    assert nodes.size.shape == (7, 5) and nodes.size[0, 0] > nodes.size[1, 0]
    steep = covariance(ColouredNoise(grid, PowerLawSpectrum(2.0)), grid.shape)
    np.testing.assert_allclose(steep.sum(axis=0), 0.0, atol=1e-5)  # nothing of the mean


GRID = Grid((8, 8))
KEYS = jax.random.split(jax.random.key(0), 8)


def relaxing(key):
    noise = ColouredNoise(GRID, MaternSpectrum(0.2))
    model = sciml.Stochastic(lambda t, u, args: -u, lambda t, u, args: 0.2 * (1 - u**2), noise=noise)
    options = dict(t0=0.0, t1=1.0, dt=0.25, key=key, solver=diffrax.Euler())
    return sciml.solve(model, jnp.zeros((8, 8)), **options).ys[-1]


def test_members_and_devices():
    """The same bits in blocks of any size and on any devices; alone but for the rounding of a transform."""
    plain = jax.jit(jax.vmap(relaxing))(KEYS)
    assert np.unique(np.asarray(plain)).size == plain.size
    close(relaxing(KEYS[3]), plain[3], rtol=1e-12 if jax.config.jax_enable_x64 else 1e-4, atol=1e-6)
    blocks = [sciml.parallel.ensemble(relaxing, KEYS, block=b) for b in (2, 4)]
    np.testing.assert_array_equal(blocks[0], blocks[1])
    for axis in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((4,), ("m",), (axis,), devices=jax.devices()[:4])
        keys = jax.device_put(KEYS, NamedSharding(mesh, P("m")))
        found = jax.jit(jax.vmap(relaxing))(keys)
        np.testing.assert_array_equal(found, blocks[0])
        assert found.sharding.spec[0] == "m"


def field(key, length):
    phases = sciml.models.AllenCahn(GRID, Periodic(), width=0.1)
    noise = ColouredNoise(GRID, MaternSpectrum(length))
    model = sciml.Stochastic(phases, lambda t, u, args: 0.2 * (1 - u**2), noise=noise)
    return sciml.solve(model, jnp.zeros((8, 8)), t0=0.0, t1=1.0, dt=0.25, key=key)


@pytest.mark.x64
def test_derivative_by_the_correlation_length():
    loss = lambda length, key: jnp.mean(field(key, length).ys ** 2)  # noqa: E731
    each = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(0.2, KEYS[:2])
    values = jax.jit(jax.vmap(loss, (0, None)))(jnp.array([0.2 - 1e-5, 0.2 + 1e-5]), KEYS[1])
    np.testing.assert_allclose(each[1], (values[1] - values[0]) / 2e-5, rtol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize("name", ["SRIW1", "ItoMilstein"])
def test_explicit_methods_see_the_same_noise(name):
    """Growth at each point, of which the solution on a path is known; the noise of neighbours is related."""
    grid, path = Grid(8), sciml.BrownianPath(KEYS[0], 0.0, 1.0)
    noise = ColouredNoise(grid, GaussianSpectrum(0.2))
    model = sciml.Stochastic(lambda t, u, args: 0.1 * u, lambda t, u, args: 0.3 * u, noise=noise)
    solver = sciml.solvers.SRIW1() if name == "SRIW1" else getattr(diffrax, name)()
    end = sciml.solve(model, jnp.ones(8), t0=0.0, t1=1.0, dt=2.0**-7, key=path, solver=solver).ys[-1]
    w = noise.size * noise.correlated(path.increment(0.0, 1.0, (8,)))
    exact = jnp.exp(0.1 - 0.3**2 * noise.size**2 / 2 + 0.3 * w)
    np.testing.assert_allclose(end, exact, rtol=1e-3 if name == "SRIW1" else 6e-3)


def test_refusals():
    solve = lambda noise, y0, **how: sciml.solve(  # noqa: E731
        sciml.Stochastic(lambda t, u, args: -u, lambda t, u, args: 0.1, noise=noise), y0,
        **(dict(t0=0.0, t1=1.0, dt=0.5, key=KEYS[0]) | how),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"field of shape \(8, 8\)"):
        solve(ColouredNoise(GRID, GaussianSpectrum(0.1), Neumann()), jnp.zeros((7, 8)))
    with pytest.raises(ValueError, match=r"must end with the axes \(8, 8\)"):
        solve(ColouredNoise(GRID, GaussianSpectrum(0.1)), jnp.zeros((7, 8)))
    with pytest.raises(ValueError, match="noise of a field such as"):
        solve("white", jnp.zeros(3))
    with pytest.raises(ValueError, match="Field noise, or a `driver`, requires sciml's own loops"):
        solve(WhiteNoise(GRID), jnp.zeros((8, 8)), solver=diffrax.ReversibleHeun())
    with pytest.raises(TypeError, match="must be a spectrum"):
        ColouredNoise(GRID, 0.1)
    with pytest.raises(ValueError, match="positive number"):
        MaternSpectrum(0.1, smoothness=-1.0)
    with pytest.raises(ValueError, match="two Periodic, two Dirichlet or two Neumann"):
        ColouredNoise(GRID, GaussianSpectrum(0.1), {"x-": Neumann(), "x+": Dirichlet(), "y": Periodic()})
