"""The law of particles that have not been absorbed, and the rate of absorption, against exact ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import parallel
from sciml.models import FokkerPlanck
from sciml.models.fields._fokker_planck import geometric_mean, weights
from sciml.spatial import (
    Boundaries,
    Dirichlet,
    Grid,
    Immersed,
    Neumann,
    OrthogonalGrid,
    Periodic,
    Polar,
    Robin,
    clustered_faces,
)

ONE_SIDE = {"x-": Dirichlet(0.0), "x+": Neumann(0.0)}


def between_walls(n, diffusivity=0.5, boundary=None):
    boundary = Dirichlet(0.0) if boundary is None else boundary
    return FokkerPlanck(Grid(n, 0.0, 1.0), boundary, lambda x: 0 * x, diffusivity=diffusivity)


def over_barrier(diffusivity, n=100, mirrored=False):
    sides = {"x-": Neumann(0.0), "x+": Dirichlet(0.0)}
    low, high = -2.0, 0.0
    if mirrored:
        sides, low, high = ONE_SIDE, -high, -low
    return FokkerPlanck(Grid(n, low, high), sides, lambda x: x**4 / 4 - x**2 / 2, diffusivity=diffusivity)


def rate(diffusivity):
    return over_barrier(diffusivity).quasi_stationary()[1]


def test_between_walls_it_is_a_sine():
    for n, tolerance in ((32, 1e-3), (64, 2.5e-4)):  # of second order
        model = between_walls(n)
        density, rate = model.quasi_stationary()
        np.testing.assert_allclose(rate, 0.5 * np.pi**2, rtol=tolerance)
        np.testing.assert_allclose(density, np.pi / 2 * jnp.sin(np.pi * model.boundary.grid.centers[0]), atol=tolerance)


def test_a_spring_with_an_absorbing_middle():
    grid = Grid(128, 0.0, 8.0)
    density, rate = FokkerPlanck(grid, ONE_SIDE, lambda x: x**2 / 2, diffusivity=1.0).quasi_stationary()
    x = grid.centers[0]
    np.testing.assert_allclose(rate, 1.0, rtol=1e-3)
    np.testing.assert_allclose(density, x * jnp.exp(-(x**2) / 2), atol=2e-4)


@pytest.mark.x64  # in float32 the potential may vary by 80 times the diffusivity
@pytest.mark.parametrize("diffusivity", [0.02, 0.01])
def test_rare_escapes_over_a_barrier(diffusivity):
    """Against the mean time of the first passage, which is a double integral: up to 10^10 time units."""
    x = np.linspace(-2.0, 0.0, 20001)
    potential = x**4 / 4 - x**2 / 2
    within = np.cumsum(np.exp(-potential / diffusivity)) * (x[1] - x[0])
    mean = np.trapezoid(np.exp(potential / diffusivity) * within, x) / diffusivity
    rates = [over_barrier(diffusivity, n).quasi_stationary()[1] for n in (200, 400)]
    extrapolated = (4 * rates[1] - rates[0]) / 3
    np.testing.assert_allclose(extrapolated * mean, 1.0, rtol=5e-3)
    mirrored = over_barrier(diffusivity, 200, mirrored=True).quasi_stationary()[1]
    np.testing.assert_allclose(mirrored, rates[0], rtol=1e-10)


@pytest.mark.x64
def test_it_decays_at_the_rate():
    model = over_barrier(0.1)
    density, rate = model.quasi_stationary()
    np.testing.assert_allclose(model(0.0, density, None), -rate * density, atol=1e-9)
    sol = sciml.solve(model, density, t0=0.0, t1=2.0, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(sol.ys[-1], density * jnp.exp(-2.0 * rate), rtol=1e-5, atol=1e-9)


@pytest.mark.x64
def test_derivatives():
    h = 1e-5
    np.testing.assert_allclose(jax.grad(rate)(0.05), (rate(0.05 + h) - rate(0.05 - h)) / (2 * h), rtol=1e-6)
    second = (jax.grad(rate)(0.05 + h) - jax.grad(rate)(0.05 - h)) / (2 * h)
    np.testing.assert_allclose(jax.hessian(rate)(0.05), second, rtol=1e-5)
    density = lambda d: over_barrier(d).quasi_stationary()[0]  # noqa: E731
    by_differences = (density(0.05 + h) - density(0.05 - h)) / (2 * h)
    np.testing.assert_allclose(jax.jacrev(density)(0.05), by_differences, atol=1e-5)
    members = jnp.array([0.05, 0.1])
    each = jax.vmap(jax.grad(rate))(members)
    np.testing.assert_allclose(jax.grad(lambda d: jnp.sum(jax.vmap(rate)(d)))(members), each, rtol=1e-10)
    np.testing.assert_allclose(each[0], jax.grad(rate)(0.05), rtol=1e-8)


@pytest.mark.x64
def test_a_square():
    grid = Grid((12, 12), 0.0, 1.0)
    model = lambda d: FokkerPlanck(grid, Dirichlet(0.0), lambda x, y: 0 * x * y, diffusivity=d)  # noqa: E731
    density, rate = model(0.5).quasi_stationary()
    line = between_walls(12).quasi_stationary()
    np.testing.assert_allclose(rate, 2 * line[1], rtol=1e-8)
    np.testing.assert_allclose(density, line[0][:, None] * line[0][None], rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda d: model(d).quasi_stationary()[1])(0.5), 2 * rate, rtol=1e-7)


LINE, SQUARE = Grid(24, -2.0, 2.0), Grid((8, 8), 0.0, 1.0)
DISC = OrthogonalGrid([clustered_faces(8, widest=0.0), np.linspace(0.0, 2 * np.pi, 9)], Polar())
PLACES = {
    "stretched": (OrthogonalGrid([clustered_faces(20, -2.0, 2.0)]), Dirichlet(0.0), None),
    "disc": (DISC, {"r": Dirichlet(0.0), "theta": Periodic()}, None),
    "body on a line": (LINE, Dirichlet(0.0), jnp.zeros(24, bool).at[8].set(True)),
    "body in a square": (SQUARE, Dirichlet(0.0), jnp.zeros((8, 8), bool).at[3:5, 3:5].set(True)),
}


@pytest.mark.x64
@pytest.mark.parametrize("name", PLACES)
def test_it_is_the_slowest_decay_on_every_grid(name):
    """Against all eigenvalues of the rates."""
    grid, sides, solid = PLACES[name]
    body = None if solid is None else Immersed(solid)
    model = FokkerPlanck(grid, Boundaries(grid, sides, body=body), lambda *x: sum(c**2 / 2 for c in x), 0.5)
    density, rate = model.quasi_stationary()
    np.testing.assert_allclose(model(0.0, density, None), -rate * density, atol=1e-8)
    np.testing.assert_allclose(grid.integrate(density), 1.0, rtol=1e-12)
    inside = np.ones(density.size, bool) if solid is None else ~np.asarray(solid).ravel()
    jacobian = jax.jacfwd(lambda u: model(0.0, u, None))(density).reshape(density.size, -1)[inside][:, inside]
    np.testing.assert_allclose(rate, -np.linalg.eigvals(jacobian).real.max(), rtol=1e-8)
    assert jnp.all(density.ravel()[inside] > 0) and not density.ravel()[~inside].any()


@pytest.mark.x64
def test_a_grid_that_is_split_over_devices():
    grid, sides = Grid(16, -1.0, 1.0), {"x-": Neumann(0.0), "x+": Robin(0.3, 1.0)}
    domain = parallel.Domain(("x",), boundary=Boundaries(grid, sides), mesh=parallel.mesh(member=1, x=8))
    whole, split = (FokkerPlanck(grid, boundary, lambda x: x**4 / 4, 0.3) for boundary in (sides, domain))

    def found(_, model):
        density, rate = model.quasi_stationary()
        return density, jnp.full_like(density, rate)

    density, rate = domain.run(found, jnp.zeros(16), split)
    expected = whole.quasi_stationary()
    np.testing.assert_allclose(density, expected[0], rtol=1e-12)
    np.testing.assert_allclose(rate, expected[1], rtol=1e-12)


def test_float32():
    model = sciml.with_dtype(between_walls(64), jnp.float32)
    density, rate = model.quasi_stationary()
    assert density.dtype == rate.dtype == jnp.float32
    np.testing.assert_allclose(rate, 0.5 * np.pi**2, rtol=5e-4)


@pytest.mark.x64
def test_a_side_that_lets_little_out():
    boundary = {"x-": Neumann(0.0), "x+": Robin(1e-6, 1.0)}
    np.testing.assert_allclose(between_walls(64, boundary=boundary).quasi_stationary()[1], 0.5e-6, rtol=1e-5)


def test_a_rate_that_is_lost_in_rounding_is_nan():
    density, rate = over_barrier(0.003, 400).quasi_stationary()  # exp(-83)
    assert jnp.isnan(rate) and jnp.all(jnp.isnan(density))


def test_without_absorption_it_is_refused():
    with pytest.raises(ValueError, match="needs a side that absorbs"):
        between_walls(8, boundary=Neumann(0.0)).quasi_stationary()


@pytest.mark.parametrize("diffusivity", [0.0, -0.1, jnp.nan])
def test_the_diffusivity_is_positive(diffusivity):
    with pytest.raises(ValueError, match="`diffusivity` must be positive and finite"):
        FokkerPlanck(Grid(8, 0.0, 1.0), Dirichlet(0.0), lambda x: x, diffusivity=diffusivity)


def test_particles_that_arrive_are_refused():
    inflow = {"x-": Neumann(0.1), "x+": Dirichlet(0.0)}
    with pytest.raises(ValueError, match="through which nothing arrives"):
        between_walls(8, boundary=inflow).quasi_stationary()

    def rate(slope):
        return between_walls(8, boundary={"x-": Neumann(slope), "x+": Dirichlet(0.0)}).quasi_stationary()[1]

    traced = jax.jit(rate)
    assert jnp.isnan(traced(0.1)) and traced(0.0) > 0


def test_detailed_balance_to_rounding():
    """Also where the force between two cells is small, and the weights are polynomials."""
    p = jnp.linspace(-0.02, 0.02, 401)
    (down, up), rounding = weights(p), 50 * float(jnp.finfo(p.dtype).eps)
    np.testing.assert_allclose(up, down * jnp.exp(p), rtol=rounding)
    np.testing.assert_allclose(geometric_mean(p), jnp.sqrt(down * up), rtol=rounding)
