"""Flow that cannot be compressed, against exact solutions, published tables and balances."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models, verify
from sciml.models import BodyForce, Buoyancy, Carried, ImplicitFriction, IncompressibleFlow, NavierStokes3D, Obstacle
from sciml.solvers import ARS, SSPRK33
from sciml.spatial import (
    Dirichlet,
    Extrapolate,
    Grid,
    Neumann,
    NoSlip,
    OrthogonalGrid,
    Periodic,
    PressureOutlet,
    VelocityInlet,
)

CAVITY = {"x": NoSlip(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}


def last(ys):
    return jax.tree.map(lambda x: x[-1], ys)


def largest(tree):
    return max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(tree))


# --- orders and exact solutions


@pytest.mark.x64
def test_vortices_of_taylor_and_green_at_their_order():
    """Velocity and pressure at second order in space, and no divergence after all steps."""

    def errors(n):
        grid = Grid((n, n), 0.0, 2 * np.pi)
        flow = IncompressibleFlow(grid, Periodic(), viscosity=0.05)

        @jax.jit
        def run():
            start = flow.start(lambda x, y: verify.reference("taylor_green_flow", x, y)[:2])
            end = last(sciml.solve(flow, start, t0=0.0, t1=0.5, dt=0.05, solver=SSPRK33()).ys)
            return end.velocity[1], flow.pressure(end), flow.divergence(end)

        v, p, divergence = run()
        assert largest(divergence) < 1e-13
        exact = verify.reference("taylor_green_flow", *flow.velocity.coordinates(1), 0.5)[1]
        pressure = verify.reference("taylor_green_flow", *grid.centers, 0.5)[2]
        return largest(v - exact), largest(p - pressure)

    coarse, fine = errors(16), errors(32)
    assert all(3.6 < a / b < 4.6 for a, b in zip(coarse, fine)), (coarse, fine)


@pytest.mark.x64
def test_flow_behind_rods_at_its_order():
    """Kovasznay's, steady between an inlet with its profile at either end."""

    def error(n):
        grid = Grid((3 * n // 2, n), (-0.5, 0.0), (1.0, 1.0))
        y, nodes = grid.centers[1][0], grid.coordinates("lower")[1][0]
        ends = {
            side: VelocityInlet(
                (verify.reference("kovasznay", x + 0 * y, y)[0], verify.reference("kovasznay", x + 0 * nodes, nodes)[1])
            )
            for side, x in (("x-", jnp.array(-0.5)), ("x+", jnp.array(1.0)))
        }
        flow = IncompressibleFlow(grid, {**ends, "y": Periodic()}, viscosity=1 / 40)
        start = flow.start(lambda x, y: verify.reference("kovasznay", x, y)[:2])
        end = last(sciml.solve(flow, start, t0=0.0, t1=4.0, cfl=0.9, solver=SSPRK33()).ys)
        exact = verify.reference("kovasznay", *flow.velocity.coordinates(0))[0]
        return float(jnp.sqrt(jnp.mean((end.velocity[0] - exact) ** 2)))

    coarse, fine = error(12), error(24)
    assert fine < 0.02 and 3.4 < coarse / fine < 4.8, (coarse, fine)


@pytest.mark.x64
@pytest.mark.parametrize("drive", ["force", "pressure"])
def test_flow_between_plates_is_exact_but_for_the_walls(drive):
    """The discrete solution is the parabola and G h^2 / 8 nu: second order, here to rounding."""
    n, slope, viscosity = 6, 3.0, 0.5
    grid = Grid((4, n), (0.0, 0.0), (2.0, 1.0))
    if drive == "force":
        sides, forces = {"x": Periodic()}, [BodyForce((slope, 0.0))]
    else:
        sides, forces = {"x-": PressureOutlet(2 * slope), "x+": PressureOutlet(0.0)}, []
    flow = IncompressibleFlow(grid, {**sides, "y": NoSlip()}, viscosity, forces=forces)

    @jax.jit
    def run():
        parabola = lambda x, y: (verify.reference("poiseuille", y, slope=slope, viscosity=viscosity) + 0 * x, 0.0)  # noqa: E731
        shift = slope / n**2 / (8 * viscosity)
        state = flow.start(lambda x, y: (parabola(x, y)[0] + shift, 0.0))
        return flow(0.0, state, None), flow.pressure(state)

    rates, pressure = run()
    assert largest(rates) < 1e-12
    if drive == "pressure":
        assert jnp.allclose(pressure, slope * (2 - grid.centers[0]))


@pytest.mark.x64
def test_a_plate_that_starts_to_move_by_an_implicit_method():
    """Couette's flow as it builds up, by steps of fifteen times the longest explicit one."""
    grid = Grid((4, 32))
    flow = IncompressibleFlow(grid, {"x": Periodic(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}, viscosity=1.0)
    start = flow.start(lambda x, y: (verify.reference("couette", y, 0.02) + 0 * x, 0.0))
    end = last(sciml.solve(ImplicitFriction(flow), start, t0=0.02, t1=0.12, dt=0.005, solver=ARS(order=2)).ys)
    assert largest(end.velocity[0] - verify.reference("couette", grid.centers[1], 0.12)) < 1e-3
    assert largest(flow.divergence(end)) < 1e-13


@pytest.mark.x64
def test_a_cavity_as_in_the_table():
    """Slow: 64 by 64 cells until the flow is steady."""
    grid = Grid((64, 64))
    flow = IncompressibleFlow(grid, CAVITY, viscosity=0.01)
    end = last(sciml.solve(flow, flow.start(), t0=0.0, t1=20.0, cfl=0.95, solver=SSPRK33()).ys)
    assert largest(flow(0.0, end, None)) < 1e-2 and largest(flow.divergence(end)) < 1e-11
    table, (x, y) = verify.reference("cavity_table", 100), (np.arange(64) + 0.5) / 64 * np.ones((2, 1))
    u, v = np.asarray(end.velocity[0][31]), np.asarray(end.velocity[1][:, 31])  # faces 0.5 from the walls
    assert np.max(np.abs(np.interp(table.y, [0.0, *y, 1.0], [0.0, *u, 1.0]) - table.u)) < 0.02
    assert np.max(np.abs(np.interp(table.x, [0.0, *x, 1.0], [0.0, *v, 0.0]) - table.v)) < 0.02


def heated_layer(rayleigh, prandtl=1.0, cells=(16, 16)):
    """A layer heated from below, one wave wide, in units of its depth and of the time heat takes through it."""
    wavenumber = verify.reference("rayleigh_benard_onset")[1]
    grid = Grid(cells, (0.0, 0.0), (2 * np.pi / wavenumber, 1.0))
    heat = Carried({"x": Periodic(), "y-": Dirichlet(1.0), "y+": Dirichlet(0.0)}, 1.0)
    lift = Buoyancy("heat", jnp.stack([0.0 * rayleigh, prandtl * rayleigh]))
    sides = {"x": Periodic(), "y": NoSlip()}
    flow = IncompressibleFlow(grid, sides, viscosity=prandtl, carried={"heat": heat}, forces=[lift])
    x, y = grid.centers
    small = 1e-3 * jnp.cos(wavenumber * x) * jnp.sin(np.pi * y)
    return flow, flow.start(carried={"heat": 1 - y + small})


@pytest.mark.x64
def test_a_layer_heated_from_below_turns_over_beyond_the_critical_number():
    """Disturbances grow and fade at the rates of the linear theory, one program for both numbers."""

    @jax.jit
    @jax.vmap
    def rate(rayleigh):
        flow, start = heated_layer(rayleigh)
        ts = jnp.array([0.2, 0.3])
        ys = sciml.solve(flow, start, t0=0.0, t1=0.3, dt=1 / 1200, saveat=ts, solver=SSPRK33()).ys
        speed = jnp.sqrt(jnp.mean(ys.velocity[1] ** 2, axis=(1, 2)))
        return jnp.log(speed[1] / speed[0]) / 0.1

    numbers = (1500.0, 1900.0)
    found = rate(jnp.array(numbers))
    for got, number in zip(found, numbers):  # the error of 16 cells is that of 2 percent of the number
        assert abs(got - verify.reference("rayleigh_benard_growth", number)) < 0.3, (number, got)
    assert found[0] < 0 < found[1]
    onset = numbers[0] - found[0] * (numbers[1] - numbers[0]) / (found[1] - found[0])
    assert 1650 < onset < 1770


@pytest.mark.x64
def test_turbulence_in_a_box():
    """A flow of Beltrami decays exactly; transport keeps the energy, and what drives it puts in what it says."""
    grid = Grid((8, 8, 8), 0.0, 2 * np.pi)
    start = verify.reference("beltrami_flow", *grid.centers)
    model = NavierStokes3D(grid, viscosity=0.3)
    assert largest(sciml.solve(model, start, t0=0.0, t1=1.0, dt=0.1).ys[-1] - start * np.exp(-0.3)) < 1e-14

    box = Grid((8, 6, 10), 0.0, (2.0, 3.0, 4.0))
    y = NavierStokes3D(box).project(jnp.asarray(np.random.default_rng(0).normal(size=(3, *box.shape))))
    still, driven = NavierStokes3D(box, 0.0), NavierStokes3D(box, 0.0, models.SteadyPower(0.7))
    power = lambda model: float(jnp.mean(jnp.sum(y * model(0.0, y, None), axis=0)))  # noqa: E731
    assert abs(power(still)) < 1e-13 and abs(power(driven) - 0.7) < 1e-13
    assert abs(power(NavierStokes3D(box, 0.0, dealiasing="three_halves"))) < 1e-13
    assert largest(still.divergence(still(0.0, y, None))) < 1e-12
    k, energy = still.energy_spectrum(y)
    np.testing.assert_allclose(jnp.sum(energy) * k[1], still.energy(y), rtol=1e-12)


# --- balances


@pytest.mark.x64
def test_momentum_goes_to_the_body_and_what_is_carried_stays():
    """In a periodic box the force on the body is what the fluid loses."""
    grid = Grid((8, 6), 0.0, (1.0, 2.0))
    share = jnp.asarray(np.random.default_rng(0).uniform(size=grid.shape))
    body = Obstacle(share, time=0.1, velocity=(0.2, -0.1))
    flow = IncompressibleFlow(grid, Periodic(), 0.1, carried={"dye": Carried(Periodic(), 0.1)}, forces=[body])

    @jax.jit
    def run():
        y = flow.start(lambda x, y: (1 + jnp.sin(np.pi * y) + 0 * x, jnp.cos(2 * np.pi * x) + 0 * y), {"dye": share})
        return flow(0.0, y, None), body.force(flow, y), flow.energy(y)

    rates, force, energy = run()
    lost = [float(grid.integrate(u, flow.velocity.component(i).location)) for i, u in enumerate(rates.velocity)]
    np.testing.assert_allclose(force, -np.array(lost), rtol=1e-12)
    assert abs(grid.integrate(rates.carried["dye"])) < 1e-14
    np.testing.assert_allclose(energy, 0.5 * (1.0 + 0.5 + 0.5) * 2.0, rtol=1e-12)


@pytest.mark.x64
def test_an_even_warmth_lifts_nothing_and_a_moving_side_is_followed():
    """Buoyancy of a layered fluid is a pressure; behind an inlet whose speed changes the flow goes as fast."""
    grid = Grid((6, 8))
    heat = Carried({"x": Neumann(0.0), "y-": Dirichlet(0.0), "y+": Dirichlet(1.0)}, 0.1)
    flow = IncompressibleFlow(grid, NoSlip(), carried={"heat": heat}, forces=[Buoyancy("heat", (0.0, 9.0), 0.5)])
    layers = flow.start(carried={"heat": lambda x, y: y + 0 * x})
    assert largest(flow(0.0, layers, None)) < 1e-12

    sides = {"x-": VelocityInlet((lambda t, args: jnp.sin(t), 0.0)), "x+": PressureOutlet(), "y": NoSlip()}
    dye = Carried({"x-": Dirichlet(1.0), "x+": Extrapolate(), "y": Neumann(0.0)}, 0.01)
    channel = IncompressibleFlow(grid, sides, 0.1, carried={"dye": dye})
    run = jax.jit(lambda start: last(sciml.solve(channel, start, t0=0.0, t1=1.0, dt=0.02, solver=SSPRK33()).ys))
    end = run(channel.start(carried={"dye": 0.0}))
    assert largest(channel.divergence(end, t=1.0)) < 1e-3  # of the time step
    assert largest(channel.divergence(channel.project(end, t=1.0), t=1.0)) < 1e-13
    np.testing.assert_allclose(jnp.mean(end.velocity[0][-1]), np.sin(1.0), rtol=1e-3)


# --- steps, members and input


@pytest.mark.x64
def test_steps_follow_the_flow_and_members_are_as_alone():
    """Also with friction implicit; gradients of members by the speed of the lid are as finite differences say."""
    grid = Grid((6, 6))

    def end(speed, implicit):
        flow = IncompressibleFlow(grid, {**CAVITY, "y+": NoSlip((speed, 0.0))}, viscosity=0.05)
        model, solver = (ImplicitFriction(flow), ARS(order=2)) if implicit else (flow, SSPRK33())
        sol = sciml.solve(model, flow.start(), t0=0.0, t1=0.5, cfl=0.5, solver=solver, max_steps=64)
        return flow.energy(last(sol.ys), t=0.5), sol.stats.accepted

    speeds = jnp.array([1.0, 8.0])
    energies, counts = eqx.filter_jit(jax.vmap(lambda speed: end(speed, False)))(speeds)
    assert 4 < counts[0] < counts[1] < 64
    smooth, fewer = eqx.filter_jit(jax.vmap(lambda speed: end(speed, True)))(speeds)
    assert jnp.all(fewer < counts)
    np.testing.assert_allclose(smooth, energies, rtol=0.05)


@pytest.mark.x64
def test_gradients_of_members():
    """By viscosity and the lid's speed: `vmap(grad)` is `grad(vmap)`, and as differences say."""
    grid = Grid((4, 4))

    def energy(x):
        flow = IncompressibleFlow(grid, {**CAVITY, "y+": NoSlip((x[0], 0.0))}, viscosity=x[1])
        ys = sciml.solve(flow, flow.start(), t0=0.0, t1=0.18, dt=0.06, solver=SSPRK33()).ys
        return flow.energy(last(ys))

    x, h = jnp.array([2.0, 0.08]), jnp.array([1e-4, 1e-5])
    members = x[None] + jnp.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]) * h[None]
    energies, within = jax.jit(jax.vmap(jax.value_and_grad(energy)))(members)
    around = jax.jit(jax.grad(lambda xs: jnp.sum(jax.vmap(energy)(xs))))(members)
    assert jnp.all(jnp.isfinite(within))
    np.testing.assert_allclose(within, around, rtol=1e-11)
    central = jnp.stack([energies[1] - energies[2], energies[3] - energies[4]]) / (2 * h)
    np.testing.assert_allclose(within[0], central, rtol=1e-6)


def test_bad_input():
    grid = Grid((4, 4))
    flow = IncompressibleFlow(grid, NoSlip(), carried={"dye": Carried(Neumann(0.0))})
    with pytest.raises(ValueError, match=r"names \['dye'\]"):
        flow.start()
    with pytest.raises(TypeError, match="FlowState"):
        sciml.solve(flow, jnp.zeros((4, 4)), t0=0.0, t1=1.0, dt=0.1)
    with pytest.raises(ValueError, match="must name a carried field"):
        lifted = IncompressibleFlow(grid, NoSlip(), forces=[Buoyancy("heat", jnp.array([0.0, 1.0]))])
        lifted(0.0, models.FlowState(lifted.velocity.zeros(), {}), None)
    with pytest.raises(TypeError, match="AbstractFlowForce"):
        IncompressibleFlow(grid, NoSlip(), forces=[lambda *given: 0.0])
    with pytest.raises(ValueError, match=r"shape \(4, 4\)"):
        IncompressibleFlow(grid, NoSlip(), viscosity=jnp.ones(4))
    with pytest.raises(ValueError, match="is a number"):
        ImplicitFriction(IncompressibleFlow(grid, NoSlip(), viscosity=jnp.ones((4, 4))))
    with pytest.raises(ValueError, match="three axes"):
        NavierStokes3D(grid)
    with pytest.raises(ValueError, match="`dealiasing` must be 'two_thirds' or 'three_halves', but got 'none'"):
        NavierStokes3D(Grid((4, 4, 4)), dealiasing="none")
    with pytest.raises(ValueError, match="too long for"):
        plain = IncompressibleFlow(grid, NoSlip(), viscosity=1.0)
        sciml.solve(plain, models.FlowState(plain.velocity.zeros(), {}), t0=0.0, t1=1.0, dt=0.1, solver=SSPRK33())
    with pytest.raises(ValueError, match="must be one of"):
        verify.reference("cavity_table", 400)


# --- what enters must leave


BOX = Grid((8, 6))
FLUXES = {
    "nothing leaves": (1.0, NoSlip(), "`boundary`: 1 enters the box per unit of time and 0 leaves it"),
    "less leaves": (1.0, VelocityInlet((0.9, 0.0)), "1 enters .* and 0.9 leaves it.* `PressureOutlet"),
    "more leaves than a profile lets in": (np.linspace(0.0, 1.0, 6), VelocityInlet((0.6, 0.0)), "0.5 enters .* 0.6"),
}


def between(inlet, outlet, lid=NoSlip()):
    outlet = outlet if isinstance(outlet, NoSlip) else VelocityInlet((outlet, 0.0))
    sides = {"x-": VelocityInlet((inlet, 0.0)), "x+": outlet, "y-": NoSlip(), "y+": lid}
    return IncompressibleFlow(BOX, sides, viscosity=0.1)


@pytest.mark.parametrize("inlet, outlet, told", FLUXES.values(), ids=FLUXES)
def test_what_enters_and_does_not_leave_is_refused(inlet, outlet, told):
    with pytest.raises(ValueError, match=told):
        IncompressibleFlow(BOX, {"x-": VelocityInlet((inlet, 0.0)), "x+": outlet, "y": NoSlip()})
    stretched = OrthogonalGrid([np.linspace(0.0, 1.0, 9), np.array([0.0, 0.1, 0.3, 1.0])])
    inlet = inlet if np.ndim(inlet) == 0 else np.array([0.0, 0.5, 4.0 / 7.0])  # by widths, not by cells
    with pytest.raises(ValueError, match=told):
        IncompressibleFlow(stretched, {"x-": VelocityInlet((inlet, 0.0)), "x+": outlet, "y": NoSlip()})


@pytest.mark.parametrize("wrap", [lambda flow: flow, ImplicitFriction], ids=["flow", "implicit friction"])
def test_traced_velocities_that_do_not_balance_end_their_member_alone(wrap):
    """A lid that moves along itself and inlets at both sides."""

    def run(outlet):
        flow = between(1.0, outlet, NoSlip((0.5, 0.0)))
        sol = sciml.solve(wrap(flow), flow.start(), t0=0.0, t1=0.1, dt=0.05, throw=False)
        return sol.status, sol.t_reached, flow.divergence(last(sol.ys))

    status, reached, divergence = jax.jit(jax.vmap(run))(jnp.array([1.0, 0.9, 1.0]))
    np.testing.assert_array_equal(status, [0, sciml.Status.nonfinite, 0])
    assert reached[1] == 0 and bool(jnp.isnan(divergence[1]).all())
    assert largest(divergence[::2]) < 1e-4


def test_gradients_by_inlets_that_do_not_balance_are_nan():
    total = lambda inlet, outlet: between(inlet, outlet).start().velocity[0].sum()  # noqa: E731
    np.testing.assert_allclose(jax.grad(lambda inlet: total(inlet, inlet))(1.0), 7 * 6, rtol=1e-4)
    assert jnp.isnan(jax.grad(total)(1.0, 0.9))
    across = lambda v: IncompressibleFlow(BOX, CAVITY | {"y+": NoSlip((1.0, v))}).start().velocity[0].sum()  # noqa: E731
    assert jnp.isfinite(jax.jit(across)(0.0)) and jnp.isnan(jax.jit(across)(0.1))


def test_inlets_that_balance_until_some_time():
    later = lambda t, args: 1 + jnp.maximum(t - 0.05, 0)  # noqa: E731
    flow = between(later, lambda t, args: 1.0)
    sol = sciml.solve(flow, flow.start(), t0=0.0, t1=0.1, dt=0.02, solver=SSPRK33(), throw=False)
    assert sol.status == sciml.Status.nonfinite and abs(float(sol.t_reached) - 0.04) < 1e-6
    with pytest.raises(ValueError, match="1.05 enters the box per unit of time and 1 leaves it"):
        flow.start(t=0.1)
    with pytest.raises(ValueError, match="1.05 enters"):
        flow.project(flow.start(), t=0.1)
    together = lambda t, args: 1 + t  # noqa: E731
    both = between(together, together)
    sol = sciml.solve(both, both.start(), t0=0.0, t1=0.1, dt=0.02, solver=SSPRK33())
    assert largest(both.divergence(last(sol.ys), t=0.1)) < 1e-4
