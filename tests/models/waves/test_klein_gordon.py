"""The Klein-Gordon equation: its discrete dispersion relation, breathers and kinks, its energy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import verify
from sciml.models import KleinGordon, Wave
from sciml.spatial import Dirichlet, Grid, Neumann, Periodic
from tests.gradients import check_gradient


def pendulums(u):
    return 1 - jnp.cos(u)


class Quartic(eqx.Module):
    """A potential with a parameter."""

    strength: jax.Array

    def __call__(self, u):
        return u**2 / 2 + self.strength * u**4


def held(**options):
    return KleinGordon(Grid(4), Dirichlet(0.0), **options)


def moving(exact):
    """A field and its rate at the start."""
    return jax.jvp(exact, (0.0,), (1.0,))


@pytest.mark.x64
@pytest.mark.parametrize("mass", [0.0, 3.0])
def test_the_discrete_dispersion_relation(mass):
    """sin^2(w dt / 2) = dt^2/4 (sum of 4 c^2/h^2 sin^2(k h / 2) + m^2), to rounding; the wave equation has no mass."""
    grid, speed, dt = Grid((12, 10), 0.0, (1.0, 2.0)), 1.3, 0.02
    x, y = grid.centers
    k = 2 * np.pi * 2, np.pi * 3
    model = KleinGordon(grid, Periodic(), speed, mass)
    squares = sum((2 / h * np.sin(q * h / 2)) ** 2 for q, h in zip(k, grid.spacing))
    exact = np.sqrt(speed**2 * squares + mass**2)
    omega = 2 / dt * np.arcsin(dt / 2 * exact)
    assert float(model.spectral_radius(0.0, (x + y, x), None)) >= exact
    phase = k[0] * x + k[1] * y
    # the rate that goes with a wave which moves: of a central difference over a step
    start = jnp.cos(phase), np.sin(omega * dt) / dt * jnp.sin(phase)
    sol = sciml.solve(model, start, t0=0.0, t1=200 * dt, dt=dt)
    assert sol.solver == "VelocityVerlet"
    np.testing.assert_allclose(sol.ys[0][-1], jnp.cos(phase - omega * 200 * dt), atol=2e-12)


@pytest.mark.x64
def test_the_linear_equation_is_of_second_order():
    def error(n):
        grid = Grid(n, 0.0, 2 * np.pi)
        (x,) = grid.centers
        start = moving(lambda t: verify.reference("klein_gordon_wave", x, t, 2.0, 1.5, 0.7))
        sol = sciml.solve(KleinGordon(grid, Periodic(), 1.5, 0.7), start, t0=0.0, t1=2.0, dt=2.0 / n)
        return jnp.max(jnp.abs(sol.ys[0][-1] - verify.reference("klein_gordon_wave", x, 2.0, 2.0, 1.5, 0.7)))

    assert abs(verify.order_in_space(error, (32, 64)).order - 2) < 0.1


@pytest.mark.parametrize("name", ["breather", "kink"])
def test_sine_gordon(name):
    """Both at the order two of differences and steps, and with the energy that they have."""
    if name == "breather":
        exact, sides, energy = (
            lambda x, t: verify.reference("sine_gordon_breather", x, t, 0.6),
            Dirichlet(0.0),
            16 * 0.8,
        )
    else:
        exact, sides, energy = (
            lambda x, t: verify.reference("sine_gordon_kink", x, t, 0.5),
            Neumann(0.0),
            8 / np.sqrt(0.75),
        )

    def end(n):
        grid = Grid(n, -20.0, 20.0)
        (x,) = grid.centers
        model = KleinGordon(grid, sides, potential=pendulums)
        start = moving(lambda t: exact(x, t))
        np.testing.assert_allclose(model.energy(start), energy, rtol=0.01)
        sol = sciml.solve(model, start, t0=0.0, t1=4.0, dt=20.0 / n)
        np.testing.assert_allclose(model.energy(jax.tree.map(lambda y: y[-1], sol.ys)), energy, rtol=0.01)
        return float(jnp.max(jnp.abs(sol.ys[0][-1] - exact(x, 4.0))))

    coarse, fine = end(200), end(400)
    assert fine < 0.02 and abs(np.log2(coarse / fine) - 2) < 0.1


@pytest.mark.x64
@pytest.mark.parametrize("sides", [Periodic(), Neumann(0.0), Dirichlet(0.0)], ids=["periodic", "free", "held"])
def test_the_energy_does_not_change(sides):
    grid = Grid((7, 6))
    model = KleinGordon(grid, sides, 0.8, 1.2, Quartic(jnp.asarray(0.3)))
    y = tuple(jax.random.normal(jax.random.key(i), grid.shape) for i in range(2))
    _, slope = jax.jvp(model.energy, (y,), (model(0.0, y, None),))
    assert abs(slope) < 1e-11


@pytest.mark.x64
def test_without_a_mass_it_is_the_wave_equation():
    grid = Grid((8, 9))
    y = jax.random.normal(jax.random.key(0), (2, 8, 9))
    sides = {"x": Dirichlet(lambda t, args: t), "y": Neumann(0.3)}
    one, other = (make(grid, sides, 1.0 + grid.centers[0] * grid.centers[1], order=4) for make in (KleinGordon, Wave))
    one = eqx.tree_at(lambda m: m.mass, one, jnp.zeros(()))
    np.testing.assert_allclose(one(0.5, (y[0], y[1]), None), other(0.5, y, None), atol=1e-12)


@pytest.mark.x64
def test_gradients_by_parameters_boundary_values_and_state():
    grid = Grid(8)
    model = KleinGordon(grid, {"x-": Dirichlet(0.4), "x+": Neumann(0.2)}, 0.9, 1.1, Quartic(jnp.asarray(0.3)))
    y = tuple(jax.random.normal(jax.random.key(i), (8,)) for i in range(2))

    def loss(x):
        model, y = x
        return jnp.sum(sciml.solve(model, y, t0=0.0, t1=0.5, dt=0.05).ys[0][-1] ** 2)

    check_gradient(loss, (model, y), rtol=1e-5, atol=1e-8)


@pytest.mark.x64
def test_members_and_vmap_on_both_sides_of_grad():
    grid = Grid(16, -4.0, 4.0)
    (x,) = grid.centers
    model = KleinGordon(grid, Dirichlet(0.0), potential=pendulums)

    def loss(mass, frequency):
        start = moving(lambda t: verify.reference("sine_gordon_breather", x, t, frequency))
        member = eqx.tree_at(lambda m: m.mass, model, mass)
        return jnp.sum(sciml.solve(member, start, t0=0.0, t1=1.0, dt=0.05).ys[0][-1] ** 2)

    masses, frequencies = jnp.array([0.8, 1.2]), jnp.array([0.5, 0.7])
    slope = jax.grad(loss)
    alone = jnp.stack([slope(m, f) for m, f in zip(masses, frequencies)])
    np.testing.assert_allclose(jax.jit(jax.vmap(slope))(masses, frequencies), alone, rtol=1e-10)
    outside = jax.jit(jax.grad(lambda m: jnp.sum(jax.vmap(loss)(m, frequencies))))(masses)
    np.testing.assert_allclose(outside, alone, rtol=1e-10)


@pytest.mark.x64
def test_spectral_radius_is_a_bound():
    grid = Grid((5, 4))
    for sides in (Periodic(), Neumann(0.0), Dirichlet(0.0)):
        model = KleinGordon(grid, sides, 0.8, 1.5, Quartic(jnp.asarray(0.3)))
        u = jax.random.normal(jax.random.key(0), grid.shape)
        jacobian = jax.jacfwd(lambda u: model.acceleration(0.0, u, None))(u).reshape(20, 20)
        fastest = float(np.sqrt(np.max(-np.linalg.eigvalsh(np.asarray(jacobian)))))
        assert fastest <= float(model.spectral_radius(0.0, (u, u), None)) * (1 + 1e-9)


def test_dtypes(dtype):
    grid = Grid(12)
    strong = jnp.asarray(1.5, jnp.result_type(float))
    model = KleinGordon(grid, Periodic(), strong, strong, Quartic(strong))
    u = jnp.linspace(0.0, 1.0, 12).astype(dtype)
    rate, acceleration = model(0.0, (u, 2 * u), None)
    assert rate.dtype == acceleration.dtype == dtype
    assert model.energy((u, u)).dtype == model.spectral_radius(0.0, (u, u), None).dtype == dtype
    assert (
        verify.reference("sine_gordon_kink", u, 0.3, 0.5).dtype
        == verify.reference("klein_gordon_wave", u, 0.3, 1.0).dtype
        == dtype
    )


@pytest.mark.parametrize(
    "error, message, fn",
    [
        (ValueError, "`speed` must be a number or an array", lambda: held(speed=jnp.ones(3))),
        (TypeError, "potential", lambda: held(potential=1.0)),
        (ValueError, "must end with", lambda: held()(0.0, (jnp.ones(5), jnp.ones(5)), None)),
        (
            TypeError,
            "`y0` must be a pair `\\(q, v\\)`",
            lambda: sciml.solve(held(), jnp.ones((2, 4)), t0=0.0, t1=1.0, dt=0.1),
        ),
    ],
)
def test_bad_input(error, message, fn):
    with pytest.raises(error, match=message):
        fn()
