"""Gas in coordinates with a radius: at rest, conserved, explosions of lines and points, and over devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import parallel, verify
from sciml.models import Euler, ShallowWater
from sciml.spatial import (
    Axisymmetric,
    Muscl,
    OrthogonalGrid,
    Outflow,
    Polar,
    Reflecting,
    Sides,
    Spherical,
    clustered_faces,
)
from sciml.spatial.finite_volumes._reconstruction import minmod
from tests.gradients import check_gradient

pytestmark = pytest.mark.x64

CAN = OrthogonalGrid([clustered_faces(16, widest=0.0, strength=1.0), np.linspace(-0.5, 0.5, 17)], Axisymmetric())
GRIDS = {
    "can": CAN,
    "pipe between walls": OrthogonalGrid([np.linspace(0.3, 1.0, 9), np.linspace(0.0, 0.5, 5)], Axisymmetric()),
    "line": OrthogonalGrid([np.linspace(0.0, 1.0, 9)], Axisymmetric()),
    "ball": OrthogonalGrid([np.linspace(0.0, 1.0, 9)], Spherical()),
    "disc": OrthogonalGrid([np.linspace(0.0, 1.0, 9)], Polar()),
}


def gust(grid, size=0.2):
    """A state of gas that moves in all directions."""
    waves = sum((jnp.sin(3 * (k + 1) * c + k) for k, c in enumerate(grid.centers)), jnp.zeros(grid.shape))
    return jnp.stack([1 + size * waves, *[size * waves * c for c in grid.centers], 1 - size * waves])


@pytest.mark.parametrize("name", GRIDS)
def test_gas_at_rest_stays_and_nothing_is_lost(name):
    """Under uniform pressure, with any density, to rounding; mass and energy by the volumes of rings."""
    grid = GRIDS[name]
    law = Euler(grid, Reflecting())
    density = 1 + 0.5 * jnp.sin(7 * sum(grid.centers[1:], grid.centers[0]))
    still = jnp.stack([density, *[0 * density] * grid.ndim, 0 * density + 0.7])
    np.testing.assert_allclose(law(0.0, law.conserved(still), None), 0.0, atol=2e-13)
    y = law.conserved(gust(grid))
    rates = law(0.0, y, None)
    assert float(jnp.max(jnp.abs(rates))) > 0.1
    assert abs(grid.integrate(rates[0])) < 1e-13 and abs(grid.integrate(rates[-1])) < 1e-13
    end = sciml.solve(law, y, t0=0.0, t1=0.05).ys[-1]
    for k in (0, -1):
        np.testing.assert_allclose(grid.integrate(end[k]), grid.integrate(y[k]), rtol=1e-12)


def explosion(grid, distance, inside, energy, ndim, t1):
    """Density and pressure after an explosion of which a small ball has all the energy."""
    law = Euler(grid, Outflow(), reconstruction=Muscl(minmod))
    there = distance < inside
    volume = grid.integrate(jnp.where(there, 1.0, 0.0))
    pressure = jnp.where(there, 0.4 * energy / volume, 1e-6)
    still = jnp.zeros(grid.shape)
    y = law.conserved(jnp.stack([still + 1.0, *[still] * grid.ndim, pressure]))
    return law.primitive(sciml.solve(law, y, t0=0.0, t1=t1).ys[-1])


@pytest.mark.parametrize("system, ndim", [(Axisymmetric(), 2), (Spherical(), 3)], ids=["line", "point"])
def test_explosions_are_those_of_sedov(system, ndim):
    def error(n):
        grid = OrthogonalGrid([np.linspace(0.0, 1.2, n + 1)], system)
        (r,) = grid.centers
        found = explosion(grid, r, 0.05, 0.8, ndim, 0.6)
        exact = verify.reference("sedov", r, 0.6, 0.8, ndim=ndim)
        return grid.integrate(jnp.abs(found[0] - exact[0])) / grid.integrate(jnp.ones(n))

    errors = [float(error(n)) for n in (96, 192)]
    assert errors[1] < 0.7 * errors[0] and errors[1] < 0.08


def test_a_point_in_r_and_z_is_one_along_the_radius():
    """What explodes in a point is round, and as in spherical coordinates on a finer grid."""
    n = 40
    flat = OrthogonalGrid([np.linspace(0.0, 1.0, n + 1), np.linspace(0.0, 1.0, n + 1)], Axisymmetric())
    r, z = flat.centers
    law = Euler(flat, {"r": Outflow(), "z-": Reflecting(), "z+": Outflow()})
    distance = jnp.hypot(r, z)
    smooth = lambda s: 0.1 + 2.0 * jnp.exp(-((s / 0.25) ** 2))  # noqa: E731
    still = 0 * distance
    y = law.conserved(jnp.stack([still + 1, still, still, smooth(distance)]))
    density, along_r, along_z, pressure = law.primitive(sciml.solve(law, y, t0=0.0, t1=0.25).ys[-1])
    ball = OrthogonalGrid([np.linspace(0.0, 1.5, 601)], Spherical())
    (s,) = ball.centers
    fine = Euler(ball, Outflow())
    y = fine.conserved(jnp.stack([0 * s + 1, 0 * s, smooth(s)]))
    exact = fine.primitive(sciml.solve(fine, y, t0=0.0, t1=0.25).ys[-1])
    away = (r * along_r + z * along_z) / distance
    for found, wanted, most in ((density, exact[0], 0.02), (away, exact[1], 0.02), (pressure, exact[2], 0.02)):
        wanted = jnp.interp(distance, s, wanted)
        assert float(flat.integrate(jnp.abs(found - wanted)) / flat.integrate(jnp.abs(wanted) + 0 * r)) < most


def test_gradients_and_members():
    grid = GRIDS["pipe between walls"]

    def loss(x):
        pressure, gamma = x
        law = Euler(grid, Reflecting(), gamma)
        w = gust(grid)
        y = law.conserved(jnp.concatenate([w[:-1], (w[-1] * pressure)[None]]))
        return jnp.sum(jnp.sin(sciml.solve(law, y, t0=0.0, t1=0.02, dt=0.005).ys[-1]))

    inputs = jnp.linspace(1.0, 1.2, grid.shape[0])[:, None] * jnp.ones(grid.shape), jnp.asarray(1.4)
    alone = check_gradient(loss, inputs, rtol=1e-5, atol=1e-8)
    members = jax.tree.map(lambda x: jnp.stack([1.05 * x, x]), inputs)
    both = jax.jit(jax.vmap(jax.grad(loss)))(members)
    for many, one in zip(both, alone, strict=True):
        np.testing.assert_allclose(many[1], one, rtol=1e-9, atol=1e-12)


def test_what_turns_with_the_axes_is_refused():
    around = OrthogonalGrid([np.linspace(0.5, 1.0, 5), np.linspace(0.0, 2 * np.pi, 9)], Polar())
    with pytest.raises(ValueError, match="rotate with the axes"):
        Euler(around, {"r": Outflow()})(0.0, jnp.ones((4, *around.shape)), None)
    with pytest.raises(ValueError, match="rotate with the axes"):
        ShallowWater(CAN, Outflow())(0.0, jnp.ones((3, *CAN.shape)), None)


@pytest.mark.parametrize("devices", [2, 8])
def test_over_devices(devices):
    """Rates, steps that follow the waves and gradients are those of one device."""
    shape = {2: dict(r=2, z=1), 8: dict(r=4, z=2)}[devices]
    mesh = parallel.mesh(member=1, devices=jax.devices()[:devices], **shape)
    conditions = {"r": Reflecting(), "z-": Reflecting(), "z+": Outflow()}
    domain = parallel.Domain(("r", "z"), boundary=Sides(CAN, conditions), mesh=mesh)
    whole, split = Euler(CAN, conditions), Euler(CAN, domain)
    y = whole.conserved(gust(CAN))
    found = jax.jit(lambda y: domain.run(lambda y: (split(0.0, y, None), split.crossing_rate(0.0, y, None)), y))(y)
    np.testing.assert_allclose(found[0], whole(0.0, y, None), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[1], whole.crossing_rate(0.0, y, None), rtol=1e-13)

    def end(law, y):
        return sciml.solve(law, y, t0=0.0, t1=0.02, dt=0.005, norm=domain.rms).ys[-1]

    def loss(y, run):
        return jnp.sum(jnp.sin(run(y)))

    ours = jax.jit(jax.value_and_grad(lambda y: loss(y, lambda y: domain.run(lambda y: end(split, y), y))))(y)
    theirs = jax.jit(jax.value_and_grad(lambda y: loss(y, lambda y: end(whole, y))))(y)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-10, atol=1e-11)
