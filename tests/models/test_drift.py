"""Drift and diffusion, by fluxes that are exact for a constant force: Fokker-Planck, Keller-Segel; Schnakenberg."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import verify
from sciml.models import FokkerPlanck, KellerSegel, Schnakenberg
from sciml.spatial import (
    Boundaries,
    Dirichlet,
    Extrapolate,
    Grid,
    Immersed,
    Neumann,
    OrthogonalGrid,
    Periodic,
    Polar,
    Robin,
    clustered_faces,
)

GRIDS = {
    "line": Grid(24, -2.0, 2.0),
    "stretched": OrthogonalGrid([clustered_faces(20, -2.0, 2.0)]),
    "disc": OrthogonalGrid([clustered_faces(6, widest=0.0), np.linspace(0.0, 2 * np.pi, 9)], Polar()),
}


def bumps(*x):
    """A potential of many barriers."""
    return sum(jnp.sin(3.0 * c) + 0.5 * jnp.square(c) for c in x)


@pytest.mark.parametrize("name", GRIDS)
def test_the_stationary_law_is_at_rest_and_nothing_is_lost(name, dtype):
    grid = GRIDS[name]
    model = FokkerPlanck(grid, Neumann(0.0), bumps, 0.3)
    eps = float(jnp.finfo(dtype).eps)
    rest = model.stationary().astype(dtype)
    scale = float(model.spectral_radius(0.0, rest, None)) * float(jnp.max(rest))
    rate = jax.jit(lambda y: model(0.0, y, None))
    assert jnp.max(jnp.abs(rate(rest))) < 8 * eps * scale
    exact = verify.reference("gibbs_density", grid, jnp.broadcast_to(bumps(*grid.centers), grid.shape), 0.3)
    assert jnp.allclose(rest, exact.astype(dtype), rtol=1e-5)
    y = jax.random.uniform(jax.random.key(0), grid.shape).astype(dtype)
    moved = rate(y)
    assert moved.dtype == dtype
    assert abs(grid.integrate(moved)) < 8 * eps * grid.integrate(jnp.abs(moved))
    # steps as long as the model says keep what is positive so
    dt = 2 / model.spectral_radius(0.0, y, None)
    spiky = jnp.where(jnp.arange(y.size).reshape(y.shape) % 3 == 0, y, 0)
    assert jnp.min(spiky + dt * rate(spiky)) > -eps


@pytest.mark.x64
def test_a_gaussian_in_a_parabola():
    """Of second order, through `solve` with its own method; the entropy of the gas never falls."""

    def error(n):
        grid = Grid(n, -5.0, 5.0)
        (x,) = grid.centers
        model = FokkerPlanck(grid, Neumann(0.0), x**2 / 2, 0.5)
        start = verify.reference("ornstein_uhlenbeck_density", x, 0.0, 1.0, 0.5, mean=1.5, variance=0.2)
        sol = sciml.solve(model, start, t0=0.0, t1=1.0, dt=0.02, saveat=jnp.linspace(0.0, 1.0, 6))
        energies = jax.vmap(model.free_energy)(sol.ys)
        assert sol.solver == "ARK(order=3)" and jnp.all(jnp.diff(energies) < 0)
        assert abs(grid.integrate(sol.ys[-1]) - grid.integrate(start)) < 1e-14
        exact = verify.reference("ornstein_uhlenbeck_density", x, 1.0, 1.0, 0.5, mean=1.5, variance=0.2)
        return jnp.max(jnp.abs(sol.ys[-1] - exact))

    assert abs(verify.order_in_space(error, (40, 80)).order - 2.0) < 0.1


SIDES = {
    "line": {"x-": Dirichlet(0.3), "x+": Robin(0.5, 1.0, 0.2)},
    "stretched": Periodic(),
    "disc": {"r": Dirichlet(0.1), "theta": Periodic()},
}


@pytest.mark.x64
@pytest.mark.parametrize("name", GRIDS)
def test_implicit_systems_are_those_of_the_rates(name):
    """Also of several members, and with a body that reflects."""
    grid = GRIDS[name]
    body = Immersed(jnp.zeros(grid.shape, bool).at[2].set(True))
    model = FokkerPlanck(grid, Boundaries(grid, SIDES[name], body=body), bumps, 0.4)
    y = jax.random.uniform(jax.random.key(0), (2, *grid.shape))
    found = jax.jit(lambda r: model.solve_shifted(0.3, r, None))(y)
    np.testing.assert_allclose(found - 0.3 * model.stiff(found, None), y, atol=1e-8)
    assert jnp.all(model(0.0, y, None)[:, 2] == 0.0)


@pytest.mark.x64
def test_a_density_leaves_through_a_side_that_absorbs():
    """The slowest mode of a box with a constant force: D (pi^2 / L^2 + (F / 2 D)^2)."""
    diffusivity, force = 0.5, 1.5

    def error(n):
        grid = Grid(n)
        model = FokkerPlanck(grid, Dirichlet(0.0), lambda x: -force * x, diffusivity)
        matrix = jax.jacfwd(lambda y: model(0.0, y, None))(jnp.zeros(n))
        slowest = -np.max(np.linalg.eigvals(np.asarray(matrix)).real)
        return abs(slowest - diffusivity * (np.pi**2 + (force / (2 * diffusivity)) ** 2))

    assert abs(verify.order_in_space(error, (20, 40)).order - 2.0) < 0.1


@pytest.mark.x64
def test_heaps_of_cells_grow_at_their_rate():
    """Of every mode of the grid to rounding, growing or not."""
    grid = Grid((8, 6), 0.0, (20.0, 12.0))
    x, y = grid.centers
    values = dict(sensitivity=1.4, diffusivity_u=0.7, diffusivity_c=1.3, production=0.9, decay=0.6)
    model = KellerSegel(grid, Periodic(), **values)
    k = 2 * np.pi * 2 / 20, 2 * np.pi / 12
    wave = jnp.cos(k[0] * x + k[1] * y)
    discrete = jnp.sqrt(-model.laplacian.symbol(*map(jnp.asarray, k)))
    rates = verify.reference("keller_segel_growth", discrete, density=2.0, **values)
    uniform = jnp.stack([jnp.full(grid.shape, 2.0), jnp.full(grid.shape, 3.0)])
    for rate in rates:
        # the second row of the matrix: the share of cells in the eigenvector
        cells = (rate + 1.3 * discrete**2 + 0.6) / 0.9
        tangent = jnp.stack([cells * wave, wave])
        slope = jax.jvp(lambda u: model(0.0, u, None), (uniform,), (tangent,))[1]
        np.testing.assert_allclose(slope, rate * tangent, atol=1e-11)


def test_cells_are_conserved_and_stay_positive(dtype):
    grid = Grid((10, 8), 0.0, 5.0)
    model = KellerSegel(grid, Neumann(0.0), sensitivity=3.0)
    eps = float(jnp.finfo(dtype).eps)
    y = jnp.abs(jax.random.normal(jax.random.key(0), (2, *grid.shape))).astype(dtype)
    rate = jax.jit(lambda y: model(0.0, y, None))
    assert abs(grid.integrate(rate(y))[0]) < 8 * eps * grid.integrate(jnp.abs(rate(y)))[0]
    sparse = jnp.where(y > 1, y, 0)
    stepped = sparse + 2 / model.spectral_radius(0.0, sparse, None) * rate(sparse)
    assert stepped.dtype == dtype and jnp.min(stepped) > -eps
    climbed = y.at[0].set(jnp.exp(3.0 * y[1]))  # balances the drift, however steep
    scale = model.spectral_radius(0.0, climbed, None) * jnp.max(climbed)
    assert jnp.max(jnp.abs(rate(climbed)[0])) < 8 * eps * scale


@pytest.mark.x64
def test_the_threshold_of_schnakenberg():
    reaction = Schnakenberg(0.1, 0.9, rate=3.0)
    ratio, wavenumber = verify.reference("turing_onset", reaction, reaction.rest())
    assert abs(ratio - 8.5676) < 1e-4  # Murray, Mathematical Biology II
    wavenumbers = jnp.append(jnp.linspace(0.0, 3.0, 61), wavenumber)
    below, at, above = (
        verify.reference("turing_growth", reaction, reaction.rest(), (1.0, d * ratio), wavenumbers)[:, 0].real
        for d in (0.99, 1.0, 1.01)
    )
    assert jnp.all(below < 0) and abs(at[-1]) < 1e-12 and jnp.all(at < 1e-12) and above[-1] > 0 > above[0]


def test_bad_input():
    grid = Grid(8)
    with pytest.raises(TypeError, match="must be Periodic"):
        FokkerPlanck(grid, Extrapolate(), lambda x: x)
    with pytest.raises(ValueError, match="must have the grid's shape"):
        FokkerPlanck(grid, Neumann(0.0), jnp.zeros(7))
    with pytest.raises(ValueError, match="must be a number"):
        FokkerPlanck(grid, Neumann(0.0), lambda x: x, jnp.ones(8))
    held = Boundaries(grid, Neumann(0.0), body=Immersed(jnp.arange(8) < 2, Dirichlet(1.0)))
    for make in (lambda: FokkerPlanck(grid, held, lambda x: x), lambda: KellerSegel(grid, held)):
        with pytest.raises(TypeError, match="must be Neumann"):
            make()
    with pytest.raises(ValueError, match="the pair"):
        KellerSegel(grid, Neumann(0.0))(0.0, jnp.zeros(8), None)


@pytest.mark.x64
def test_an_explicit_solve_of_cells_between_walls():
    """Heaps form from small noise, without a negative density, by a method that preserves strong stability."""
    grid = Grid(32, 0.0, 10.0)
    model = KellerSegel(grid, Neumann(0.0))
    cells = 2.0 + 0.1 * jnp.cos(jnp.pi * grid.centers[0] / 10)
    dt = 0.02
    sol = sciml.solve(model, jnp.stack([cells, cells]), t0=0.0, t1=40.0, dt=dt, solver=diffrax.Heun())
    assert jnp.min(sol.ys[-1]) > 0 and jnp.max(sol.ys[-1, 0]) > 4
    assert abs(grid.integrate(sol.ys[-1, 0]) - grid.integrate(cells)) < 1e-12
