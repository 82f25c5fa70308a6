"""Two-dimensional flow: its invariants, its spectrum, its stability, and another library's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.models import Vorticity, kolmogorov_forcing
from sciml.runs._simulate import space_of
from sciml.spatial import Grid, random_vortices
from tests.gradients import check_gradient

SHAPE, LENGTHS = (24, 20), (7.0, 5.0)


def vortices(shape=SHAPE, lengths=LENGTHS, radius=0.1):
    return random_vortices(Grid(shape, 0.0, lengths), 6, radius=radius, key=jax.random.key(0))


@pytest.mark.x64
def test_energy_and_enstrophy_are_kept_by_the_discretisation():
    """Their rates are zero to rounding, for a field that fills all modes."""
    model = Vorticity(SHAPE, jnp.array(LENGTHS), viscosity=0.0)

    @jax.jit
    def changes(y):
        rate = model(0.0, y, None)
        low = model.inverse(jnp.where(jnp.abs(model.transform(rate)) > 1e-9, model.transform(y), 0))
        return rate, [jax.jvp(quantity, (low,), (rate,)) for quantity in (model.energy, model.enstrophy)]

    for y in (vortices(), jax.random.normal(jax.random.key(1), SHAPE)):
        rate, found = changes(y)
        assert jnp.max(jnp.abs(rate)) > 0.1
        assert all(abs(change) < 1e-13 * value * jnp.max(jnp.abs(rate)) for value, change in found)


@pytest.mark.x64
def test_energy_falls_by_viscosity_and_drag():
    model = Vorticity(SHAPE, jnp.array(LENGTHS), viscosity=0.03, drag=0.2)
    y = vortices()
    _, change = jax.jvp(model.energy, (y,), (model(0.0, y, None),))
    want = -2 * 0.03 * model.enstrophy(y) - 2 * 0.2 * model.energy(y)
    assert jnp.isclose(change, want, rtol=1e-6)


def test_velocity_and_spectrum(dtype):
    model = Vorticity(SHAPE, jnp.array(LENGTHS))
    x, y = (2 * np.pi * np.arange(n)[s] / n for n, s in zip(SHAPE, (np.s_[:, None], np.s_[None])))
    kx, ky = 2 * 2 * np.pi / 7, 2 * np.pi / 5
    vorticity = jnp.asarray((kx**2 + ky**2) * np.cos(2 * x) * np.cos(y), dtype)
    u, v = model.velocity(vorticity)  # of the stream function cos cos
    assert u.dtype == dtype
    np.testing.assert_allclose(u, -ky * np.cos(2 * x) * np.sin(y), atol=1e-5)
    np.testing.assert_allclose(v, kx * np.sin(2 * x) * np.cos(y), atol=1e-5)
    k, energy = model.energy_spectrum(vorticity)
    assert energy.dtype == dtype and jnp.argmax(energy) == round(np.hypot(kx, ky) / (2 * np.pi / 5))
    many = vortices().astype(dtype)
    np.testing.assert_allclose(jnp.sum(model.energy_spectrum(many)[1]) * k[1], model.energy(many), rtol=1e-4)


@pytest.mark.x64
def test_long_waves_grow_on_kolmogorov_flow_beyond_the_square_root_of_two():
    """Meshalkin and Sinai: the critical Reynolds number tends to it as the box becomes long."""
    shape = (4, 16)  # one wave along x

    @jax.jit
    def growth(reynolds, slenderness):
        sides = jnp.stack([2 * jnp.pi / slenderness, jnp.asarray(2 * jnp.pi)])
        model = Vorticity(shape, sides, viscosity=1.0, forcing=kolmogorov_forcing(shape, waves=1, amplitude=reynolds))
        return jax.jacfwd(lambda y: model(0.0, y.reshape(shape), None).ravel())(model.forcing.ravel())

    def critical(slenderness):
        rates = []
        for reynolds in (1.40, 1.45):
            values = np.linalg.eigvals(np.asarray(growth(reynolds, slenderness))).real
            rates.append(values[np.argmax(np.where(np.abs(values) < 1e-10, -np.inf, values))])
        return 1.40 + 0.05 * rates[0] / (rates[0] - rates[1])

    thick, slender = critical(0.1), critical(0.05)
    assert 1.43 < thick < 1.44
    np.testing.assert_allclose(slender - (thick - slender) / 3, np.sqrt(2), rtol=1e-3)  # in powers of its square


@pytest.mark.x64
@pytest.mark.parametrize("forced", [False, True])
def test_against_exponax(forced):
    """The same method and step on the same modes. What it calls vorticity has the other sign."""
    exponax = pytest.importorskip("exponax")
    n, dt, steps = 64, 0.02, 25  # the highest modes are empty: each code leaves out others
    y0 = vortices((n, n), (2 * np.pi, 2 * np.pi), 0.06)
    options = dict(diffusivity=0.01, drag=-0.1, order=4)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        if forced:
            stepper = exponax.stepper.KolmogorovFlowVorticity(2, 2 * np.pi, n, dt, injection_mode=2, **options)
        else:
            stepper = exponax.stepper.NavierStokesVorticity(2, 2 * np.pi, n, dt, **options)
        theirs = -exponax.repeat(stepper, steps)(-y0[None])[0]
    forcing = -kolmogorov_forcing((n, n), waves=2) if forced else 0.0
    model = Vorticity((n, n), viscosity=0.01, drag=0.1, forcing=forcing)
    sol = sciml.solve(model, y0, t0=0.0, t1=dt * steps, dt=dt)
    assert jnp.max(jnp.abs(sol.ys[-1] - y0)) > 0.05 * jnp.max(jnp.abs(y0))
    np.testing.assert_allclose(sol.ys[-1], theirs, rtol=0, atol=1e-8 * float(jnp.max(jnp.abs(theirs))))


@pytest.mark.x64
def test_the_order_in_time_is_four():
    model = Vorticity((16, 16), viscosity=0.02)
    y0 = 5 * vortices((16, 16), (2 * np.pi, 2 * np.pi))
    end = jax.jit(lambda steps: sciml.solve(model, y0, t0=0.0, t1=1.0, dt=1.0 / steps).ys[-1], static_argnums=0)
    errors = [float(jnp.max(jnp.abs(end(n) - end(512)))) for n in (16, 32, 64)]
    order = np.polyfit(np.log([16, 32, 64]), -np.log(errors), 1)[0]
    assert abs(order - 4.0) < 0.2


@pytest.mark.x64
def test_gradients_by_forcing_and_start_in_members():
    shape = (8, 8)
    y0 = vortices(shape, (2 * np.pi, 2 * np.pi))
    model = Vorticity(shape, viscosity=0.1, forcing=kolmogorov_forcing(shape, waves=1))

    def loss(inputs):
        model, y0 = inputs
        return model.enstrophy(sciml.solve(model, y0, t0=0.0, t1=0.4, dt=0.1).ys[-1])

    by_model, _ = check_gradient(loss, (model, y0), rtol=1e-5, atol=1e-8)

    def of(viscosity):
        return loss((eqx.tree_at(lambda m: m.viscosity, model, viscosity), y0))

    values = jnp.array([0.05, 0.1])
    apart = jax.jit(jax.vmap(jax.grad(of)))(values)
    batched = jax.jit(jax.grad(lambda v: jnp.sum(jax.vmap(of)(v))))(values)
    np.testing.assert_allclose(apart, batched, rtol=1e-9)
    np.testing.assert_allclose(apart[1], by_model.viscosity, rtol=1e-9)


def test_a_grid_is_a_box_with_coordinates():
    grid = Grid(SHAPE, (1.0, -1.0), (8.0, 4.0))
    forcing = kolmogorov_forcing(grid, waves=1)
    model, other = Vorticity(grid, forcing=forcing), Vorticity(SHAPE, jnp.array(LENGTHS), forcing=forcing)
    k = 2 * np.pi / 5
    np.testing.assert_allclose(forcing[3], -k * np.cos(k * (-1.0 + 0.25 * (np.arange(20) + 0.5))), atol=1e-5)
    y0 = vortices()
    np.testing.assert_array_equal(model(0.0, y0, None), other(0.0, y0, None))
    places = space_of(model)  # for the frames of a run
    assert places is not None and space_of(other) is None
    for axis, centers in zip("xy", grid.centers, strict=True):
        np.testing.assert_allclose(places[axis], np.ravel(centers), rtol=1e-6)


def test_bad_input():
    with pytest.raises(ValueError, match=r"`Vorticity\(length=...\)` only applies to numbers of points"):
        Vorticity(Grid(SHAPE), 7.0)
    with pytest.raises(ValueError, match="a `Grid` of two axes, or two numbers of points"):
        Vorticity(Grid(4))
    with pytest.raises(ValueError, match="two numbers of points"):
        Vorticity((4, 4, 4))
    with pytest.raises(ValueError, match=r"`Vorticity\(forcing=...\)` must be an array of shape \(8, 6\)"):
        Vorticity((8, 6), forcing=jnp.ones((6, 8)))
