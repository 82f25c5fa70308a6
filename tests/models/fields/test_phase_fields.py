"""Cahn-Hilliard and Swift-Hohenberg: what is kept, what never grows, and rates that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import sciml
from sciml import verify
from sciml.models import CahnHilliard, SwiftHohenberg
from sciml.spatial import Dirichlet, Grid, Neumann, Periodic, Robin
from tests import families
from tests.gradients import check_gradient

GRID = Grid((24, 20), 0.0, (1.2, 1.0))
MIXED = {"x": Periodic(), "y": Neumann(0.0)}
ENDS = {"y-": Neumann(0.0), "y+": Dirichlet(0.0)}
BOUNDARIES = [
    pytest.param(Periodic(), id="periodic"),
    pytest.param(Neumann(0.0), id="walls"),
    pytest.param(MIXED, id="mixed"),
]


def separating(sides=Periodic(), **options):
    return CahnHilliard(GRID, sides, width=0.05, **options)


def noise(grid=GRID, mean=0.1):
    return mean + 0.2 * jax.random.normal(jax.random.key(0), grid.shape)


@pytest.mark.x64
@pytest.mark.parametrize("sides", BOUNDARIES)
def test_energy_falls_by_the_flux_and_mass_is_kept(sides):
    """dE/dt is -M times the integral of |grad mu|^2, to rounding, at a state no grid resolves."""
    model = separating(sides, mobility=0.7)
    u = noise()
    energy, slope = jax.jvp(model.energy, (u,), (model(0.0, u, None),))
    mu = model.potential(u)
    flux = -GRID.integrate(mu * model._laplacian(mu))
    assert energy > 0
    np.testing.assert_allclose(slope, -0.7 * flux, rtol=1e-12)
    assert abs(model.mass(model(0.0, u, None))) < 1e-13 * float(jnp.max(jnp.abs(model(0.0, u, None))))


@pytest.mark.parametrize("sides", BOUNDARIES)
@pytest.mark.parametrize("dt", [2e-4, pytest.param(0.02, marks=pytest.mark.x64)])
def test_energy_falls_along_a_solve_and_mass_is_kept(dt, sides):
    """Also with steps a hundred times too long to be right, by the stabilisation."""
    model, u = separating(sides), noise()
    sol = sciml.solve(model, u, t0=0.0, t1=50 * dt, dt=dt, saveat=dt * np.arange(51))
    energies, masses = jax.vmap(model.energy)(sol.ys), jax.vmap(model.mass)(sol.ys)
    assert sol.solver == "ETDRK(order=4)"
    assert float(energies[-1]) < 0.8 * float(energies[0])
    assert bool(jnp.all(jnp.diff(energies) < 0))
    eps = float(jnp.finfo(u.dtype).eps)
    np.testing.assert_allclose(masses, masses[0], atol=20 * eps * 0.3 * 1.2)


@pytest.mark.x64
@pytest.mark.parametrize("solver", ["ETD1", "ETDRK2", "ETDRK4", "ARS222"])
def test_energy_falls_by_every_method_and_step(solver):
    """By exponential methods with any step, by implicit-explicit ones with those that are not far too long."""
    model, u = separating(), noise(mean=-0.2)
    for dt in (1e-4, 1e-2) if solver == "ARS222" else (1e-4, 1e-2, 1.0):
        times = dt * np.arange(61)
        sol = sciml.solve(model, u, t0=0.0, t1=60 * dt, dt=dt, saveat=times, solver=getattr(families, solver)())
        energies = jax.vmap(model.energy)(sol.ys)
        assert bool(jnp.all(jnp.diff(energies) < 1e-12 * energies[0]))
        np.testing.assert_allclose(jax.vmap(model.mass)(sol.ys), model.mass(u), atol=1e-14)


@pytest.mark.x64
def test_a_wall_rests_and_has_its_energy():
    grid = Grid(64, -1.0, 1.0)
    u = verify.reference("phase_wall", grid.centers[0], 0.1)
    model = CahnHilliard(grid, Neumann(0.0), width=0.1)
    # at the ends the wall has not quite become flat, by 1e-6 of its height
    assert jnp.max(jnp.abs(model.potential(u))) < 1e-4
    np.testing.assert_allclose(model.energy(u), 2 * np.sqrt(2) / 3 * 0.1, rtol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize("name", ["CahnHilliard", "SwiftHohenberg"])
def test_small_waves_grow_as_they_should(name):
    """Eigenvectors of the linearisation, whose rates are known; those between walls, too."""
    grid = Grid((16, 16), 0.0, (2.0, 3.0))
    x, y = grid.centers
    sides = {"x": Periodic(), "y": Neumann(0.0)}
    k = np.hypot(2 * np.pi * 2 / 2, 3 * np.pi / 3)
    wave = jnp.cos(2 * np.pi * x) * jnp.cos(np.pi * y)
    if name == "CahnHilliard":
        model, mean = CahnHilliard(grid, sides, width=0.1, mobility=0.5), 0.3
        rate = verify.reference("cahn_hilliard_growth", jnp.asarray(k), 0.1, 0.5, mean)
    else:
        model, mean = SwiftHohenberg(grid, sides, rate=0.4, wavenumber=7.0, quadratic=0.9), 0.0
        rate = verify.reference("swift_hohenberg_growth", jnp.asarray(k), 0.4, 7.0)
    assert rate.shape == ()
    slope = jax.jvp(lambda u: model(0.0, u, None), (jnp.full(grid.shape, mean),), (wave,))[1]
    np.testing.assert_allclose(slope, rate * wave, atol=1e-10 * (1 + abs(float(rate))))


@pytest.mark.x64
def test_cahn_hilliard_against_scipy():
    n, width = 24, 0.06
    model = CahnHilliard(Grid(n), Periodic(), width=width)
    k = 2 * np.pi * np.fft.rfftfreq(n, 1 / n)
    u = np.asarray(noise(Grid(n)))

    def formula(t, u):
        modes = np.fft.rfft(u**3 - u) + width**2 * k**2 * np.fft.rfft(u)
        return np.fft.irfft(-(k**2) * modes, n)

    want = solve_ivp(formula, (0, 0.02), u, method="Radau", rtol=1e-9, atol=1e-11).y[:, -1]
    got = sciml.solve(model, jnp.asarray(u), t0=0.0, t1=0.02, dt=2.5e-5).ys[-1]
    np.testing.assert_allclose(got, want, atol=1e-6)
    adaptive = sciml.solve(model, jnp.asarray(u), t0=0.0, t1=0.02, rtol=1e-6, atol=1e-8).ys[-1]
    np.testing.assert_allclose(adaptive, want, atol=1e-4)


@pytest.mark.x64
def test_another_double_well_is_this_one_in_other_units():
    """With the constants of the first benchmark of PFHub: f = 5 (c - 0.3)^2 (0.7 - c)^2, kappa = 2, M = 5."""
    n, kappa = 32, 2.0
    grid = Grid(n, 0.0, 200.0)
    c = 0.5 + 0.2 * noise(grid)
    well = 4 * 5 * 0.2**2
    model = CahnHilliard(grid, Periodic(), width=np.sqrt(kappa / well), mobility=well * 5)
    slope = jax.vmap(jax.grad(lambda c: 5 * (c - 0.3) ** 2 * (0.7 - c) ** 2))(c)
    square = (2 * np.pi * np.fft.rfftfreq(n, 200 / n)) ** 2
    potential = np.fft.rfft(np.asarray(slope)) + kappa * square * np.fft.rfft(np.asarray(c))
    want = np.fft.irfft(-5 * square * potential, n)
    np.testing.assert_allclose(0.2 * model(0.0, (c - 0.5) / 0.2, None), want, atol=1e-12)


@pytest.mark.x64
def test_the_energy_of_swift_and_hohenberg_falls_by_the_square_of_the_rate():
    grid = Grid((16, 12), 0.0, 15.0)
    model = SwiftHohenberg(grid, Periodic(), rate=0.3, quadratic=0.8)
    u = noise(grid)
    rate = model(0.0, u, None)
    _, slope = jax.jvp(model.energy, (u,), (rate,))
    np.testing.assert_allclose(slope, -grid.integrate(rate**2), rtol=1e-12)
    sol = sciml.solve(model, u, t0=0.0, t1=20.0, dt=0.25, saveat=0.5 * np.arange(41))
    assert bool(jnp.all(jnp.diff(jax.vmap(model.energy)(sol.ys)) < 0))


@pytest.mark.x64
@pytest.mark.parametrize("rate", [-0.05, 0.02])
def test_rolls_grow_above_the_threshold_alone(rate):
    """To the amplitude sqrt(4 r / 3), up to terms of relative size r / 512."""
    grid = Grid(32, 0.0, 8 * np.pi)
    model = SwiftHohenberg(grid, Periodic(), rate=rate)
    end = sciml.solve(model, 0.1 * jnp.cos(grid.centers[0]), t0=0.0, t1=400.0, dt=1.0).ys[-1]
    amplitude = 2 * float(jnp.abs(jnp.fft.rfft(end)[4])) / 32
    assert abs(amplitude - np.sqrt(4 * max(rate, 0.0) / 3)) < 1e-4


@pytest.mark.x64
@pytest.mark.parametrize("make", [separating, lambda: SwiftHohenberg(GRID, Periodic())], ids=["phases", "rolls"])
def test_amplitudes_that_no_real_field_has_do_not_grow(make):
    """They belong to the field zero, so that nothing would ever stop them."""
    model = make()
    modes = jnp.zeros((24, 11), complex).at[jnp.array([2, -2]), 0].set(1j)
    assert jnp.max(jnp.abs(model.inverse(modes))) < 1e-15
    assert jnp.max(jnp.abs(model.rest(0.0, modes, None))) < 1e-10
    assert bool(jnp.all(model.linear(None) <= 0))


MAKE = {
    "phases": separating,
    "rolls": lambda: SwiftHohenberg(GRID, Periodic(), rate=0.5, wavenumber=12.0, quadratic=0.4),
}


def end_of(name):
    weights = jax.random.normal(jax.random.key(1), GRID.shape)

    def loss(model, amplitude):
        sol = sciml.solve(model, amplitude * noise(), t0=0.0, t1=4e-3, dt=1e-3)
        return jnp.mean(weights * sol.ys[-1])

    return MAKE[name](), loss


@pytest.mark.x64
@pytest.mark.parametrize("name", MAKE)
def test_gradients_of_a_solve(name):
    model, loss = end_of(name)
    check_gradient(lambda x: loss(*x), (model, jnp.asarray(1.1)), rtol=1e-5, atol=1e-9)


@pytest.mark.x64
@pytest.mark.parametrize("name", MAKE)
def test_vmap_on_both_sides_of_grad(name):
    model, loss = end_of(name)
    amplitudes = jnp.array([0.5, 1.1])
    slope = jax.grad(loss, argnums=1)
    alone = jnp.stack([slope(model, a) for a in amplitudes])
    inside = jax.jit(jax.vmap(slope, (None, 0)))(model, amplitudes)
    outside = jax.jit(jax.grad(lambda a: jnp.sum(jax.vmap(lambda a: loss(model, a))(a))))(amplitudes)
    np.testing.assert_allclose(inside, alone, rtol=1e-10)
    np.testing.assert_allclose(outside, alone, rtol=1e-10)


def test_dtypes(dtype):
    """Of the rate, the energy and a solve, for parameters of the default precision."""
    for make in MAKE.values():
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), make())
        u = jax.ShapeDtypeStruct(GRID.shape, dtype)
        rate, energy = jax.eval_shape(lambda u, m=model: (m(0.0, u, None), m.energy(u)), u)
        end = jax.eval_shape(lambda u, m=model: sciml.solve(m, u, t0=0.0, t1=1e-3, dt=5e-4).ys, u)
        assert rate.dtype == energy.dtype == end.dtype == dtype


@pytest.mark.parametrize(
    "error, message, fn",
    [
        (ValueError, "along y it is Dirichlet", lambda: separating({"x": Periodic(), "y": Dirichlet(0.0)})),
        (ValueError, "Robin", lambda: separating(Robin(1.0, 1.0, 0.0))),
        (ValueError, "at least zero, but is -1", lambda: separating(stabilisation=-1.0)),
        (ValueError, "must end with the axes", lambda: separating()(0.0, jnp.ones((3, 3)), None)),
        (ValueError, "Neumann and Dirichlet", lambda: SwiftHohenberg(GRID, {"x": Periodic()} | ENDS)),
        (TypeError, "must be a number", lambda: SwiftHohenberg(GRID, Periodic(), wavenumber="1")),
        (ValueError, "must end with the axes", lambda: SwiftHohenberg(GRID, MIXED)(0.0, jnp.ones(24), None)),
    ],
)  # fmt: skip
def test_bad_input(error, message, fn):
    with pytest.raises(error, match=message):
        fn()
