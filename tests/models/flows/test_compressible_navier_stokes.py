"""Viscous gas: waves that decay, flow between plates, a shock's profile, what is conserved, and stable steps."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import sciml
from sciml.models import CompressibleNavierStokes, Euler
from sciml.solvers import SSPRK33
from sciml.spatial import (
    WENO5Z,
    Grid,
    Inflow,
    MovingWall,
    Muscl,
    NoSlipWall,
    OrthogonalGrid,
    Outflow,
    Periodic,
    Reflecting,
)
from sciml.spatial.geometry._coordinates import Cartesian

GAMMA, PRANDTL = 1.4, 0.71


def centred(behind, ahead):
    """A slope without a limiter."""
    return (behind + ahead) / 2


SMOOTH = dict(reconstruction=Muscl(centred), limiter=None)


def rates_of(law, y, t=0.0):
    return jax.jit(lambda y: law(t, y, None))(y)


def rough(grid, dtype=float):
    draw = np.random.default_rng(0).uniform(-0.2, 0.2, (grid.ndim + 2, *grid.shape))
    draw[[0, -1]] += 1.0
    return jnp.asarray(draw, dtype)


@pytest.mark.x64
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_small_waves_move_conduct_and_decay_as_the_linear_equations_say(ndim):
    """Density, velocity along and across the wave, and pressure, each with its own phase, along a diagonal; order 2."""
    viscosity, size, turn = 0.05, 1e-6, np.array([0.3, 1.1, 2.0, 2.9])
    along, across = np.ones(ndim) / np.sqrt(ndim), np.zeros(ndim)
    if ndim > 1:
        across[:2] = np.sqrt(0.5), -np.sqrt(0.5)
    k = 2 * np.pi * np.sqrt(ndim)
    conducted = GAMMA * viscosity / PRANDTL * k**2
    linear = np.array(
        [
            [0, -1j * k, 0, 0],
            [0, -4 / 3 * viscosity * k**2, 0, -1j * k],
            [0, 0, -viscosity * k**2, 0],
            [conducted, -GAMMA * 1j * k, 0, -conducted],
        ]
    )
    errors = []
    for cells in (12, 24):
        grid = Grid((cells,) * ndim)
        wave = np.exp(2j * np.pi * sum(np.asarray(c) for c in grid.centers)) * np.ones(grid.shape)

        def field(amounts, wave=wave):
            density, one, other, pressure = (np.real(a * wave) for a in amounts)
            return np.stack([density, *(a * one + b * other for a, b in zip(along, across)), pressure])

        law = CompressibleNavierStokes(grid, Periodic(), viscosity, PRANDTL, GAMMA, **SMOOTH)
        rest = np.zeros((ndim + 2, *grid.shape))
        rest[[0, -1]] = 1.0
        y = jnp.asarray(rest + size * field(np.exp(1j * turn)))
        rates = jax.jit(lambda y, law=law: law(0.0, law.conserved(y), None))(y) / size
        exact = field(linear @ np.exp(1j * turn))
        exact[-1] /= GAMMA - 1  # the energy of the pressure
        errors.append(np.max(np.abs(rates - exact)))
    assert errors[1] < 0.02 * np.max(np.abs(exact)) and 1.9 < np.log2(errors[0] / errors[1]) < 2.5


@pytest.mark.x64
def test_a_shear_wave_decays():
    """By the viscosity at the temperature of the gas, with steps of `solve`'s own; order 2."""
    errors = []
    for cells in (12, 24):
        grid = Grid((cells, 2))
        law = CompressibleNavierStokes(grid, Periodic(), 0.01, exponent=0.7, reference=2.0, **SMOOTH)
        wave = 1e-3 * jnp.sin(2 * jnp.pi * grid.centers[0]) + jnp.zeros(grid.shape)
        y0 = law.conserved(jnp.stack([1 + 0 * wave, 0 * wave, wave, 1 + 0 * wave]))
        sol = sciml.solve(law, y0, t0=0.0, t1=0.5)
        exact = np.exp(-0.01 * 0.5**0.7 * 4 * np.pi**2 * 0.5) * wave
        errors.append(jnp.max(jnp.abs(law.primitive(sol.ys[-1])[2] - exact)) / jnp.max(exact))
    assert errors[1] < 2e-3 and 1.8 < np.log2(errors[0] / errors[1]) < 2.3


@pytest.mark.x64
@pytest.mark.parametrize("insulated", [False, True], ids=["both of one temperature", "one that insulates"])
def test_flow_between_plates(insulated):
    """Of which one moves: it stays to rounding, with the temperature that its friction makes.

    That is a parabola. Next to a wall its slope is taken between the wall and half a cell from it, which makes all
    warmer by a share of h^2.
    """
    grid, speed, warm = Grid((2, 8)), 0.8, 1.3
    lid = NoSlipWall(jnp.array([speed, 0.0]), None if insulated else warm)
    sides = {"x": Periodic(), "y-": NoSlipWall(temperature=warm), "y+": lid}
    law = CompressibleNavierStokes(grid, sides, 0.2, PRANDTL, GAMMA)
    x, y = grid.centers
    heat = PRANDTL * (GAMMA - 1) / GAMMA * speed**2
    temperature = warm + heat * ((y - y**2 / 2 if insulated else (y - y**2) / 2) + grid.spacing[1] ** 2 / 8)
    w = jnp.stack([jnp.broadcast_to(v, grid.shape) for v in (1 / temperature, speed * y, 0 * y, 1 + 0 * y)])
    assert jnp.max(jnp.abs(rates_of(law, law.conserved(w)))) < 1e-12
    assert jnp.max(jnp.abs(rates_of(law, law.conserved(w.at[1].multiply(0.9))))) > 1e-2


def becker(x, mach, viscosity):
    """Density, velocity and pressure of a shock at rest for a Prandtl number of 3/4, in gas of density and pressure 1.

    The enthalpy of flow is constant, and u du/dx = A (u - u1) (u - u2), whose integral is solved for u by bisection.
    R. Becker, Z. Phys. 8:321, 1922.
    """
    one = mach * np.sqrt(GAMMA)
    two = one * (2 + (GAMMA - 1) * mach**2) / ((GAMMA + 1) * mach**2)
    enthalpy = GAMMA / (GAMMA - 1) + one**2 / 2
    steep = 3 * (GAMMA + 1) / (8 * GAMMA) * one / viscosity

    def where(u):
        return (one * np.log(one - u) - two * np.log(u - two)) / (one - two) / steep

    middle = where((one + two) / 2)
    room = 1e-13 * (one - two)
    u = np.array([scipy.optimize.brentq(lambda u: where(u) - middle - at, two + room, one - room) for at in x])
    density = one / u
    return np.stack([density, u, density * (GAMMA - 1) / GAMMA * (enthalpy - u**2 / 2)])


@pytest.mark.x64
def test_the_profile_of_a_shock():
    """The rates there are zero to second order, but next to the sides, and it stays."""
    errors = []
    for cells in (40, 80):
        grid = Grid(cells, -0.4, 0.4)
        exact = becker(np.asarray(grid.centers[0]), 2.0, 0.1)
        sides = {"x-": Inflow(jnp.asarray(exact[:, 0])), "x+": Inflow(jnp.asarray(exact[:, -1]))}
        law = CompressibleNavierStokes(grid, sides, 0.1, 0.75, GAMMA, **SMOOTH)
        y = law.conserved(jnp.asarray(exact))
        errors.append(np.max(np.abs(rates_of(law, y)[:, 3:-3]), axis=1))
    assert np.all(np.log2(errors[0] / errors[1]) > 1.8)
    sol = sciml.solve(law, y, t0=0.0, t1=0.1)
    np.testing.assert_allclose(law.primitive(sol.ys[-1]), exact, atol=0.01)


@pytest.mark.x64
@pytest.mark.parametrize("how", [SMOOTH, {}, dict(reconstruction=WENO5Z())], ids=["smooth", "limited", "WENO5"])
def test_a_shock_stays_to_second_order(how):
    """Where it has come to rest at the sides: what flows in is even beyond them, wrong by h times a slope there."""
    errors, viscosity = [], 0.04
    for cells in (48, 96):
        grid = Grid(cells, -0.4, 0.4)
        exact = becker(np.asarray(grid.centers[0]), 2.0, viscosity)
        sides = {"x-": Inflow(jnp.asarray(exact[:, 0])), "x+": Inflow(jnp.asarray(exact[:, -1]))}
        law = CompressibleNavierStokes(grid, sides, viscosity, 0.75, GAMMA, **how)
        sol = sciml.solve(law, law.conserved(jnp.asarray(exact)), t0=0.0, t1=0.1)
        errors.append(np.mean(np.abs(law.primitive(sol.ys[-1]) - exact), axis=1))
    orders = np.log2(errors[0] / errors[1])
    assert np.all(orders > 1.75), orders


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_nothing_is_lost_and_without_viscosity_it_is_the_law_of_euler(ndim):
    grid = Grid((6,) * ndim)
    law = CompressibleNavierStokes(grid, Periodic(), 0.05, exponent=0.7)
    y = law.conserved(rough(grid))
    rates = rates_of(law, y)
    eps = jnp.finfo(y.dtype).eps
    assert jnp.max(jnp.abs(jnp.sum(rates.reshape(ndim + 2, -1), axis=1))) < 20 * eps * jnp.sum(jnp.abs(rates))
    sides = {"x-": Inflow(rough(Grid(1))[:, 0]), "x+": Outflow()} if ndim == 1 else NoSlipWall()
    still, euler = (
        rates_of(kind(grid, sides, *viscosity), y)
        for kind, viscosity in ((CompressibleNavierStokes, [0.0]), (Euler, []))
    )
    np.testing.assert_allclose(still, euler, rtol=0, atol=10 * eps * jnp.max(jnp.abs(still)))
    if ndim > 1:
        np.testing.assert_array_equal(euler, rates_of(Euler(grid, Reflecting()), y))


@pytest.mark.x64
def test_steps_are_stable_by_what_diffuses():
    """Against the eigenvalues of the Jacobian; `solve` and its Courant number follow them."""
    grid = Grid((6, 5), 0.0, (0.6, 0.4))
    for viscosity in (1e-3, 0.05, 2.0):
        law = CompressibleNavierStokes(grid, Periodic(), viscosity, **SMOOTH)
        y = law.conserved(jnp.broadcast_to(jnp.array([1.0, 0.3, 0.2, 1.0])[:, None, None], (4, *grid.shape)))
        jacobian = jax.jit(jax.jacfwd(lambda y, law=law: law(0.0, y, None)))(y).reshape(y.size, y.size)
        values = jnp.asarray(np.linalg.eigvals(np.asarray(jacobian)))
        stability = sciml.solvers.stability(SSPRK33())
        values = values[values.real < -1e-6 * jnp.max(jnp.abs(values))]
        exact, found = stability.longest_step(values), stability.longest_step(law.spectrum(0.0, y, None))
        assert 0.4 * exact < found < 1.02 * exact
        assert 1 / law.crossing_rate(0.0, y, None) < exact
    y = law.conserved(rough(grid))
    sol = sciml.solve(law, y, t0=0.0, t1=0.02)
    assert int(sol.stats.accepted) >= 0.02 * float(law.crossing_rate(0.0, sol.ys[-1], None)) / 0.45 - 1
    assert jnp.max(jnp.abs(law.primitive(sol.ys[-1])[1])) < 0.2
    with pytest.raises(ValueError, match="too long for .* stable"):
        sciml.solve(law, y, t0=0.0, t1=1.0, dt=0.01, solver=diffrax.Heun())


def test_walls_move_slip_and_are_warm_where_they_are_said_to():
    """Values along a wall, functions of time, and a wall along which nothing rubs."""
    grid = Grid((5, 4))
    law = CompressibleNavierStokes(grid, {"x": Periodic(), "y": Reflecting()}, 0.1)
    shear = jnp.stack([jnp.full(grid.shape, v) for v in (1.0, 0.3, 0.0, 1.0)])
    assert jnp.max(jnp.abs(rates_of(law, law.conserved(shear)))) < 1e-5
    belt = NoSlipWall(lambda t, args: jnp.stack([t * jnp.arange(5.0), jnp.zeros(5)]), 1.0 + 0.1 * jnp.arange(5.0)[None])
    law = CompressibleNavierStokes(grid, {"x": Periodic(), "y-": NoSlipWall(), "y+": belt}, 0.1)
    rest = law.conserved(shear.at[1].set(0.0))
    rates = rates_of(law, rest, 2.0)
    np.testing.assert_allclose(rates[1, :, -1], 0.1 * 2 * jnp.arange(5.0) * 2 * 16, rtol=1e-5)
    still = rates_of(law, rest)[-1]
    conductivity = 0.1 * 1.4 / 0.4 / 0.71
    np.testing.assert_allclose(still[:, -1], conductivity * 0.1 * jnp.arange(5.0) * 2 * 16, rtol=1e-4, atol=1e-5)
    piston = CompressibleNavierStokes(Grid(8), {"x-": MovingWall(0.2), "x+": Outflow()}, 0.1)
    assert piston(0.0, piston.conserved(jnp.ones((3, 8)) * jnp.array([1.0, 0.0, 1.0])[:, None]), None)[1, 0] > 0


def test_what_it_does_not_take_is_refused():
    grid = Grid((4, 4))
    rest = jnp.ones((4, 4, 4))
    with pytest.raises(TypeError, match="must be a `sciml.spatial.Grid`"):
        CompressibleNavierStokes(OrthogonalGrid([np.linspace(0, 1, 5)], Cartesian()), Periodic())
    with pytest.raises(TypeError, match="forces"):
        CompressibleNavierStokes(grid, Periodic(), forces=1.0)
    for wrong, message in (
        (NoSlipWall(jnp.ones(3)), "one value for each of the 2 axes"),
        (NoSlipWall(jnp.array([0.0, 1.0])), "must be zero along y"),
        (NoSlipWall(temperature=jnp.ones(4)), "must be a number or of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            CompressibleNavierStokes(grid, {"x": Periodic(), "y": wrong})(0.0, rest, None)
    with sciml.kernels.use("pallas"), pytest.raises(ValueError, match="cannot run this conservation law"):
        sciml.solve(CompressibleNavierStokes(grid, Periodic()), rest, t0=0.0, t1=0.1)
