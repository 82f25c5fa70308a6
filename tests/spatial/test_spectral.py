"""Transforms, spectral derivatives, and fields to start from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from sciml import inspect, spatial, verify
from sciml.spatial import Boundaries, Chebyshev, Dirichlet, Grid, Neumann, Periodic, Spectral

DTYPE = jnp.result_type(float)
TOLERANCE = 1e-11 if DTYPE == jnp.float64 else 2e-3


def basis(kind, at, field="real"):
    grid = Grid((8, 10), (0.0, -1.0), (2.0, 0.5))
    return Spectral(grid, Boundaries(grid, {"x": kind, "y": Periodic()}, (at, "center")), field)


@pytest.mark.parametrize(
    "kind, at",
    [
        (Periodic(), "center"),
        (Periodic(), "node"),
        (Dirichlet(), "center"),
        (Dirichlet(), "node"),
        (Neumann(), "center"),
        (Neumann(), "node"),
    ],
)
@pytest.mark.parametrize("field", ["real", "complex"])
def test_modes(kind, at, field):
    """There and back; one mode has one amplitude; the Laplacian is a product."""
    s = basis(kind, at, field)
    u = jax.random.normal(jax.random.key(0), (3, *s.shape), DTYPE)
    if field == "complex":
        u = jax.lax.complex(u, jax.random.normal(jax.random.key(1), u.shape, DTYPE))
    k = s.wavenumbers[0][2, 0]

    @jax.jit
    def measure(u):
        x, y = s.grid.coordinates(s.location)
        wave = (jnp.sin(k * x) if isinstance(kind, Dirichlet) else jnp.cos(k * x)) + 0 * y
        modes = s.transform(wave.astype(u.dtype))
        back = s.inverse(s.times(s.laplacian, modes)) + (k * k * wave).astype(u.dtype)
        return jnp.abs(s.inverse(s.transform(u)) - u).max(), jnp.abs(modes), jnp.abs(back).max()

    there_and_back, modes, product = measure(u)
    assert there_and_back < 10 * TOLERANCE and product < 100 * TOLERANCE
    amplitude = modes[2, 0] + (modes[-2, 0] if isinstance(kind, Periodic) else 0.0)
    assert abs(amplitude - 1) < TOLERANCE and jnp.sum(modes) < 1 + 100 * TOLERANCE


@pytest.mark.x64
@pytest.mark.parametrize("kind", [Periodic(), Dirichlet(), Neumann()])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_along_one_axis(kind, order):
    s = basis(kind, "center")
    x, y = s.grid.centers
    k = (1 if isinstance(kind, Periodic) else 2) * float(s.wavenumbers[0][1, 0])
    shift = 0.3 if isinstance(kind, Periodic) else 0.0

    def f(x):
        return jnp.cos(k * x) if isinstance(kind, Neumann) else jnp.sin(k * x + shift)

    df = f
    for _ in range(order):
        df = jax.grad(df)
    exact = jax.vmap(df)(x[:, 0])[:, None] * jnp.cos(0 * y)
    assert jnp.allclose(s.derivative(f(x) * jnp.cos(0 * y), "x", order), exact, atol=1e-9)


@pytest.mark.x64
def test_spectral_derivatives_are_exact_for_smooth_fields_and_transpose():
    grid = Grid((32,), 0.0, 2 * np.pi)
    s = Spectral(grid, Periodic())
    (x,) = grid.centers
    u = jnp.exp(jnp.sin(x))
    assert jnp.allclose(s.derivative(u), jnp.cos(x) * u, atol=1e-11)
    assert jnp.allclose(s.inverse(s.times(s.symbol("x", 1), s.transform(u))), jnp.cos(x) * u, atol=1e-11)
    v, w = jax.random.normal(jax.random.key(0), (2, 32))
    transpose = jax.linear_transpose(s.derivative, v)
    assert abs(jnp.vdot(s.derivative(v), w) - jnp.vdot(v, transpose(w)[0])) < 1e-12 * jnp.linalg.norm(s.derivative(v))
    verify.check_gradient(lambda v: jnp.sum(w * s.derivative(v) ** 2), v, rtol=1e-6, atol=1e-4)


def test_dealiasing_makes_products_exact():
    """Of two fields without the upper third, the lower modes of the product are those of a finer grid."""
    coarse, fine = (Spectral(Grid(n, 0.0, 2 * np.pi), Periodic()) for n in (24, 96))
    a, b = (coarse.dealias(coarse.transform(jax.random.normal(jax.random.key(i), (24,), DTYPE))) for i in range(2))
    product = coarse.dealias(coarse.transform(coarse.inverse(a) * coarse.inverse(b)))

    phase = np.exp(1j * np.arange(13) * (np.pi / 96 - np.pi / 24))

    def refined(modes):
        # Centres of the two grids lie half a cell apart.
        shifted = modes * jnp.asarray(phase, modes.dtype)
        return fine.inverse(jnp.pad(shifted, (0, 36)))

    exact = fine.transform(refined(a) * refined(b))[:13] / phase
    kept = jnp.abs(product) > 0
    assert jnp.sum(kept) == 8
    assert jnp.allclose(product[:8], exact[:8].astype(product.dtype), atol=1e-5)


def test_members_on_devices_need_no_collective():
    s = basis(Dirichlet(), "center")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("members",))
    u = jax.random.normal(jax.random.key(0), (8, *s.shape), DTYPE)

    def heat(u):
        return s.inverse(s.times(jnp.exp(0.1 * s.laplacian), s.transform(u)))

    members = PartitionSpec("members")
    run = jax.jit(jax.shard_map(jax.vmap(heat), mesh=mesh, in_specs=members, out_specs=members))
    assert jnp.allclose(run(u), heat(u), atol=1e-5)
    assert not inspect.collectives(run, u)


@pytest.mark.x64
def test_chebyshev():
    line = Chebyshev(24, 0.5, 2.0)
    x = line.points
    u = jnp.sin(3 * x)
    assert jnp.allclose(line.derivative(u), 3 * jnp.cos(3 * x), atol=1e-9)
    assert jnp.allclose(line.derivative(jnp.stack([u, u], 1), axis=0, derivative=2)[:, 1], -9 * u, atol=1e-7)
    assert jnp.allclose(line.matrix(1) @ u, 3 * jnp.cos(3 * x), atol=1e-9)
    assert abs(line.integrate(u) - (np.cos(1.5) - np.cos(6.0)) / 3) < 1e-13


def test_a_random_field_has_its_spectrum():
    grid = Grid((16, 16), 0.0, (1.0, 2.0))

    def spectrum(k):
        return 1 / (1 + k**2)

    draw = jax.vmap(lambda key: spatial.gaussian_random_field(grid, spectrum, key=key))
    fields = draw(jax.random.split(jax.random.key(0), 400))
    k = jnp.sqrt(-Spectral(grid, Periodic(), "complex").laplacian)
    expected = jnp.sum(jnp.where(k > 0, spectrum(k), 0.0))
    assert jnp.isclose(jnp.mean(fields**2), expected, rtol=0.1)


def test_fields_to_start_from():
    grid = Grid((16, 20), 0.0, (1.0, 2.0))
    key = jax.random.key(3)
    for field in (
        spatial.random_fourier_series(grid, 3, key=key),
        spatial.random_spots(grid, 4, key=key),
        spatial.random_vortices(grid, 4, key=key),
        spatial.pulse(grid),
    ):
        assert field.shape == grid.shape and field.dtype == DTYPE and bool(jnp.all(jnp.isfinite(field)))


@pytest.mark.parametrize(
    "error, message, fn",
    [
        (ValueError, "Neumann and Dirichlet", lambda: Spectral(Grid(4), {"x-": Neumann(), "x+": Dirichlet()})),
        (ValueError, "along x the conditions have other values", lambda: Spectral(Grid(4), Neumann(1.0))),
        (ValueError, "along x the conditions have", lambda: Spectral(Grid(4), Dirichlet(lambda t, args: t))),
        (ValueError, "must end with the axes", lambda: Spectral(Grid(4), Periodic()).transform(jnp.ones(5))),
        (
            TypeError,
            "the field is complex",
            lambda: Spectral(Grid(4), Periodic()).transform(jnp.ones(4, complex)),
        ),
        (ValueError, "Use `derivative`", lambda: Spectral(Grid(4), Dirichlet()).symbol("x", 1)),
        (ValueError, "positive integer", lambda: Chebyshev(0)),
        (ValueError, "5 values along axis", lambda: Chebyshev(4).derivative(jnp.ones(4))),
        (
            ValueError,
            "below half of every axis",
            lambda: spatial.random_fourier_series(Grid(8), 4, key=jax.random.key(0)),
        ),
        (ValueError, "two dimensions", lambda: spatial.random_vortices(Grid(8), key=jax.random.key(0))),
    ],
)
def test_bad_input(error, message, fn):
    with pytest.raises(error, match=message):
        fn()
