"""Particles and condensates in a trap: levels that are known, what is kept, and how the centre swings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models, verify
from sciml.models import GrossPitaevskii
from sciml.spatial import Dirichlet, Grid, Neumann, Periodic
from tests.gradients import check_gradient

GRID = Grid(64, -10.0, 10.0)


def trapped(coupling=0.0, sides=Periodic(), grid=GRID):
    (x,) = grid.centers
    return GrossPitaevskii(grid, sides, potential=x**2 / 2, coupling=coupling)


@pytest.mark.x64
@pytest.mark.parametrize("sides", [Periodic(), Dirichlet(0.0)], ids=["periodic", "walls"])
def test_levels_of_the_harmonic_oscillator(sides):
    """E_n = n + 1/2: as eigenvalues of the vector field, to rounding."""
    model = trapped(sides=sides)
    for n in range(6):
        psi = verify.reference("oscillator_state", GRID.centers[0], 0.0, n)
        np.testing.assert_allclose(model(0.0, psi, None), -1j * (n + 0.5) * psi, atol=1e-9)
        np.testing.assert_allclose(model.energy(psi), n + 0.5, atol=1e-10)
        np.testing.assert_allclose(model.mass(psi), 1.0, atol=1e-12)


@pytest.mark.x64
def test_a_level_turns_with_its_energy():
    problem = verify.problem("schroedinger_level", 2)
    sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=2.0, dt=0.01)
    assert sol.solver == "ETDRK(order=4)" and float(problem.error(sol.ys[-1])) < 1e-6
    overlap = jnp.sum(jnp.conj(problem.y0) * sol.ys[-1]) * GRID.spacing[0]
    np.testing.assert_allclose(-jnp.angle(overlap) % (2 * np.pi), 2.5 * 2.0, atol=1e-7)
    mass, energy = problem.model.mass, problem.model.energy
    np.testing.assert_allclose(mass(sol.ys[-1]), 1.0, atol=1e-7)
    np.testing.assert_allclose(energy(sol.ys[-1]), 2.5, atol=1e-6)


def test_a_coherent_state_swings():
    (x,) = GRID.centers
    sol = sciml.solve(trapped(), verify.reference("coherent_state", x, 0.0, 2.0), t0=0.0, t1=2.0, dt=0.01)
    atol = 1e-6 if x.dtype == jnp.float64 else 1e-3
    np.testing.assert_allclose(sol.ys[-1], verify.reference("coherent_state", x, 2.0, 2.0), atol=atol)


@pytest.mark.x64
def test_the_centre_swings_whatever_the_coupling_and_all_is_kept():
    """Kohn's theorem."""
    (x,) = GRID.centers
    model = trapped(3.0)
    size, phase = jnp.exp(-((x - 1.0) ** 2)), 0.3 * x
    psi = jax.lax.complex(size * jnp.cos(phase), size * jnp.sin(phase))
    ts = np.linspace(0.0, 2.0, 5)
    ys = sciml.solve(model, psi, t0=0.0, t1=2.0, dt=0.005, saveat=ts).ys
    square = jnp.abs(ys) ** 2
    centre = jnp.sum(x[None] * square, axis=1) / jnp.sum(square, axis=1)
    np.testing.assert_allclose(centre, np.cos(ts) + 0.3 * np.sin(ts), atol=1e-6)
    np.testing.assert_allclose(jax.vmap(model.mass)(ys), model.mass(psi), rtol=1e-7)
    np.testing.assert_allclose(jax.vmap(model.energy)(ys), model.energy(psi), rtol=1e-6)


@pytest.mark.x64
def test_without_a_potential_it_is_the_other_model():
    grid = Grid((12, 10), 0.0, (7.0, 5.0))
    psi = jax.random.normal(jax.random.key(0), grid.shape, complex)
    other = models.NonlinearSchroedinger(grid.shape, jnp.asarray(grid.extent), coupling=-0.7)
    model = GrossPitaevskii(grid, Periodic(), coupling=0.7)
    np.testing.assert_allclose(model(0.0, psi, None), other(0.0, psi, None), atol=1e-12)
    np.testing.assert_allclose(model.mass(psi), other.mass(psi), rtol=1e-13)


@pytest.mark.x64
def test_gradients_of_a_solve_and_members():
    grid = Grid(16, -5.0, 5.0)
    (x,) = grid.centers
    weights = jax.random.normal(jax.random.key(0), (16,))

    def loss(model, shift):
        size = jnp.exp(-((x - shift) ** 2))
        psi = jax.lax.complex(size * jnp.cos(0.2 * x), size * jnp.sin(0.2 * x))
        return jnp.sum(weights * jnp.real(sciml.solve(model, psi, t0=0.0, t1=0.2, dt=0.02).ys[-1]))

    model = trapped(1.5, grid=grid)
    shifts = jnp.array([0.1, 0.5])
    _, alone = check_gradient(lambda v: loss(*v), (model, shifts[1]), rtol=1e-5, atol=1e-8)
    inside = jax.jit(jax.vmap(jax.grad(loss, argnums=1), (None, 0)))(model, shifts)
    np.testing.assert_allclose(inside[1], alone, rtol=1e-9)
    outside = jax.jit(jax.grad(lambda a: jnp.sum(jax.vmap(lambda a: loss(model, a))(a))))(shifts)
    np.testing.assert_allclose(outside, inside, rtol=1e-9)


def test_dtypes(dtype):
    kind = jnp.zeros((), dtype).astype(complex if dtype == jnp.float64 else jnp.complex64).dtype
    psi = jax.ShapeDtypeStruct((64,), kind)
    model = trapped(1.0)
    rate, energy = jax.eval_shape(lambda psi: (model(0.0, psi, None), model.energy(psi)), psi)
    end = jax.eval_shape(lambda psi: sciml.solve(model, psi, t0=0.0, t1=0.1, dt=0.05).ys, psi)
    assert rate.dtype == end.dtype == kind and energy.dtype == dtype
    x = GRID.centers[0].astype(dtype)
    assert (
        verify.reference("oscillator_state", x, 0.3, 3).dtype
        == verify.reference("coherent_state", x, 0.3).dtype
        == kind
    )


@pytest.mark.parametrize(
    "message, fn",
    [
        (
            "`GrossPitaevskii\\(potential=...\\)` must be a number or an array over the grid",
            lambda: GrossPitaevskii(GRID, Periodic(), jnp.ones(3)),
        ),
        ("must end with the axes", lambda: trapped()(0.0, jnp.ones(5, complex), None)),
        ("Neumann and Dirichlet", lambda: trapped(sides={"x-": Neumann(), "x+": Dirichlet()})),
        ("`level` must be at least zero", lambda: verify.reference("oscillator_state", GRID.centers[0], 0.0, -1)),
    ],
)
def test_bad_input(message, fn):
    with pytest.raises(ValueError, match=message):
        fn()
