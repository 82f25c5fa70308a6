"""Conservation laws: shocks against exact solutions, order, positivity, gradients, and steps that follow the waves."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import verify
from sciml.models import Euler, InviscidBurgers, ShallowWater, Traffic, Transport
from sciml.spatial import (
    HLL,
    PPM,
    WENO5,
    WENO5Z,
    Characteristic,
    Constant,
    Grid,
    Inflow,
    LaxWendroff,
    MovingWall,
    Muscl,
    Outflow,
    Periodic,
    Reflecting,
    Roe,
    Rusanov,
)

SOLVER = sciml.solvers.SSPRK33()

# left and right state, time, where the jump is
TUBES = {
    "Sod": ((1.0, 0.0, 1.0), (0.125, 0.0, 0.1), 0.2, 0.5),
    "Lax": ((0.445, 0.698, 3.528), (0.5, 0.0, 0.571), 0.13, 0.5),
    "sonic": ((1.0, 0.75, 1.0), (0.125, 0.0, 0.1), 0.2, 0.3),
    "vacuum": ((1.0, -2.0, 0.4), (1.0, 2.0, 0.4), 0.15, 0.5),
    "blast": ((1.0, 0.0, 1000.0), (1.0, 0.0, 0.01), 0.012, 0.5),
}

SCHEMES = {
    "Muscl": dict(),
    "WENO5Z": dict(reconstruction=WENO5Z()),
    "waves": dict(reconstruction=WENO5(), variables=Characteristic(), flux=HLL()),
}

# the mean error of the density, of pressure and of velocity in units of their largest, with 200 cells
BOUNDS = {"Sod": 0.003, "Lax": 0.0125, "sonic": 0.004, "vacuum": 0.0075, "blast": 0.09}


def jump(law, left, right, at=0.5):
    (x,) = law.volumes.grid.centers
    return law.conserved(jnp.where((x < at)[None], jnp.asarray(left)[:, None], jnp.asarray(right)[:, None]))


@ft.cache
def shock_tube(scheme):
    """Solves a shock tube; the states are arguments, so that it is compiled once for each scheme."""

    def solve(left, right, t, at, cells):
        law = Euler(Grid(cells), Outflow(), **SCHEMES[scheme])
        sol = sciml.solve(law, jump(law, left, right, at), t0=0.0, t1=t, throw=False)
        return law.primitive(sol.ys[-1]), sol.status

    return jax.jit(solve, static_argnames="cells")


@pytest.mark.x64
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("tube", TUBES)
def test_shock_tubes_against_the_exact_solution(tube, scheme):
    """The error falls with the cells, of which shocks smear few; nothing is negative, next to a vacuum neither."""
    left, right, t, at = TUBES[tube]
    errors = []
    for cells in (100, 200):
        w, status = shock_tube(scheme)(jnp.array(left), jnp.array(right), t, at, cells=cells)
        assert status == 0 and jnp.min(w[0]) > 0 and jnp.min(w[2]) > 0
        exact = verify.reference("riemann_euler", jnp.array(left), jnp.array(right), (Grid(cells).centers[0] - at) / t)
        errors.append(np.mean(np.abs(w - exact), axis=1))
    assert errors[1][0] < BOUNDS[tube]
    assert errors[1][0] < 0.7 * errors[0][0] and errors[1][2] < 0.7 * errors[0][2]


@pytest.mark.x64
@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.optimised)])
def test_nothing_is_negative_in_many_riemann_problems(count):
    """Jumps of nine orders of magnitude, towards one another and apart, of which many open a vacuum."""
    draw = np.random.default_rng(0)
    size = 10 ** draw.uniform(-1, 1, count)
    states = [
        np.stack(
            [10 ** draw.uniform(-6, 3, count), 4 * size * draw.normal(size=count), 10 ** draw.uniform(-6, 3, count)]
        )
        for _ in range(2)
    ]
    law = Euler(Grid(12), Outflow(), reconstruction=WENO5Z())

    @jax.jit
    def solve(left, right):  # the last axis is that of the problems, as members lie side by side
        def one(left, right):
            y = jump(law, left, right)
            time = 3.0 / law.crossing_rate(0.0, y, None)
            sol = sciml.solve(law, y, t0=0.0, t1=time, throw=False)
            return jnp.stack(law.positive(sol.ys[-1])), sol.status, sol.stats

        return jax.vmap(one, in_axes=1)(left, right)

    found, status, stats = solve(*map(jnp.asarray, states))
    assert jnp.all(status == 0) and jnp.min(found) > 0
    assert jnp.min(stats.accepted) < jnp.max(stats.accepted) and jnp.sum(stats.rejected) == 0
    opens = [5 * np.sqrt(1.4 * s[2] / s[0]) for s in states]
    assert np.sum(states[1][1] - states[0][1] > opens[0] + opens[1]) > 0.03 * count
    assert jnp.min(found) < 1e-6 < 1e2 < jnp.max(found)


@pytest.mark.x64
@pytest.mark.parametrize("reconstruction", [Muscl(), WENO5Z()], ids=lambda r: type(r).__name__)
def test_no_depth_is_negative_in_many_dam_breaks(reconstruction):
    """On beds that are dry on either side, or both, with films of a micrometre; over steps and ripples, too."""
    draw = np.random.default_rng(0)
    count = 200
    states = []
    for _ in range(2):
        depth = np.where(draw.uniform(size=count) < 0.3, 0.0, 10 ** draw.uniform(-6, 1, count))
        states.append(np.stack([depth, 5 * draw.normal(size=count) * 10 ** draw.uniform(-1, 1, count)], 1))
    grid = Grid(16)
    (x,) = grid.centers

    @jax.jit
    @jax.vmap
    def solve(left, right, step, ripple):
        bed = 0.0 if reconstruction.correction else jnp.where(x < 0.5, 0.0, step) + ripple * jnp.sin(20 * x)
        law = ShallowWater(grid, {"x-": Outflow(), "x+": Reflecting()}, bed, reconstruction=reconstruction)
        y = jump(law, jnp.append(left, 0.0), jnp.append(right, 0.0))
        time = 5.0 / jnp.maximum(law.crossing_rate(0.0, y, None), 100.0)
        sol = sciml.solve(law, y, t0=0.0, t1=time, throw=False)
        return sol.ys[-1][0], sol.status, sol.stats

    steps, ripples = draw.normal(size=count), 10 ** draw.uniform(-3, 0, count)
    depth, status, stats = solve(*map(jnp.asarray, (*states, steps, ripples)))
    assert jnp.all(status == 0)
    assert jnp.all(jnp.min(depth, axis=1) >= -4e-16 * jnp.max(depth, axis=1))
    assert 20 * jnp.sum(stats.rejected) < jnp.sum(stats.accepted)
    assert jnp.sum(depth == 0) > 100 and jnp.max(depth) > 5


@pytest.mark.x64
def test_a_vortex_is_carried_with_the_order_of_the_scheme():
    """Smooth flow in two dimensions; steps so short that the error in time does not count."""
    errors = []
    for cells in (40, 80):
        grid = Grid((cells, cells), -7.0, 7.0)
        law = Euler(grid, Periodic(), reconstruction=WENO5Z(), limiter=None)
        vortex = ft.partial(verify.reference, "isentropic_vortex", *grid.centers, velocity=(1.0, 0.5), period=14.0)
        sol = sciml.solve(law, law.conserved(vortex(0.0)), t0=0.0, t1=0.5, dt=0.5 / (10 * (cells / 40) ** 2))
        errors.append(jnp.mean(jnp.abs(law.primitive(sol.ys[-1]) - vortex(0.5)), axis=(1, 2)))
    assert jnp.all(jnp.log2(errors[0] / errors[1]) > 4.8)


@pytest.mark.x64
@pytest.mark.parametrize("scheme", [dict(limiter=None), dict(reconstruction=WENO5Z(), limiter=None)], ids=str)
def test_the_gradient_of_where_a_shock_is(scheme):
    """By the pressure that drives it; of the first moment of the density, which is smooth."""
    grid = Grid(50)
    (x,) = grid.centers
    law = Euler(grid, Outflow(), **scheme)

    def moment(pressure):
        left = jnp.stack([jnp.ones(()), jnp.zeros(()), pressure])
        sol = sciml.solve(law, jump(law, left, jnp.array([0.125, 0.0, 0.1])), t0=0.0, t1=0.1, dt=0.1 / 30)
        return grid.integrate(x * sol.ys[-1][0])

    value = jax.jit(moment)
    central = (value(1.0 + 1e-4) - value(1.0 - 1e-4)) / 2e-4
    slope = jax.jit(jax.grad(moment))(1.0)
    places = (jnp.arange(50000.0) + 0.5) / 50000

    def exact(pressure):
        left = jnp.stack([jnp.ones(()), jnp.zeros(()), pressure])
        return jnp.mean(
            places * verify.reference("riemann_euler", left, jnp.array([0.125, 0.0, 0.1]), (places - 0.5) / 0.1)[0]
        )

    assert abs(slope - central) < 2e-3 * abs(central)
    assert abs(slope - (exact(1.05) - exact(0.95)) / 0.1) < 0.02 * abs(slope)


@pytest.mark.x64
def test_a_piston_drives_a_shock():
    """As hard as two equal gases that meet."""
    law = Euler(Grid(100), {"x-": MovingWall(1.0), "x+": Outflow()})
    rest = jnp.array([1.0, 0.0, 1.0])
    sol = sciml.solve(law, jump(law, rest, rest), t0=0.0, t1=0.2)
    exact = verify.reference("riemann_euler", jnp.array([1.0, 2.0, 1.0]), rest, jnp.array([1.0]))
    np.testing.assert_allclose(law.primitive(sol.ys[-1])[:, 24:34].mean(1), exact[:, 0], rtol=0.01)


# --- steps


def test_steps_follow_the_waves_of_each_member():
    """Members have their own steps, each as alone; what is said of the Courant number holds at every step."""
    law = Euler(Grid(20), Outflow(), limiter=None)
    right = jnp.array([0.125, 0.0, 0.1])

    def solve(pressure, **options):
        left = jnp.stack([jnp.ones(()), jnp.zeros(()), pressure])
        return sciml.solve(law, jump(law, left, right), t0=0.0, t1=0.1, throw=False, **options)

    pressures = jnp.array([1.0, 4.0, 16.0])
    many = jax.jit(jax.vmap(solve))(pressures)
    for i in (0, 2):
        alone = solve(pressures[i])
        assert alone.solver == "SSPRK33" and alone.stats.accepted == many.stats.accepted[i]
        np.testing.assert_allclose(alone.ys, many.ys[i], rtol=1e-5, atol=1e-5)
    first, _, last = many.stats.accepted.tolist()
    assert last > 2.5 * first
    assert abs(first - 2 * int(solve(pressures[0], cfl=0.9).stats.accepted)) < 3


def test_the_step_is_the_courant_number_over_the_rate():
    grid = Grid((10, 5))
    law = Transport(grid, Periodic(), jnp.array([2.0, -3.0]))
    y = jnp.ones(grid.shape)
    assert abs(law.crossing_rate(0.0, y, None) - (2 * 10 + 3 * 5)) < 1e-4
    sol = sciml.solve(law, y, t0=0.0, t1=1.0, cfl=0.7)
    assert sol.stats.accepted == 50 and sol.stats.rejected == 0
    still = sciml.solve(InviscidBurgers(Grid(8), Periodic()), jnp.zeros(8), t0=0.0, t1=1.0)
    assert still.stats.accepted == 1 and jnp.all(still.ys == 0)


@pytest.mark.x64
def test_gradients_go_through_steps_that_follow_the_waves():
    """Steps are chosen, not differentiated: with equal ones the gradient is that of fixed steps, of each member too."""
    grid = Grid(10)
    y = 1 + jnp.sin(2 * jnp.pi * grid.centers[0])

    def loss(scale, velocity, options):
        law = Transport(grid, Periodic(), velocity, reconstruction=Constant())
        return jnp.sum(sciml.solve(law, scale * y, t0=0.0, t1=0.3, **options).ys[-1][:5] ** 2)

    follow, fixed = dict(cfl=0.5), dict(dt=0.05, solver=SOLVER)
    gradient = jax.grad(loss, (0, 1))
    slopes = [jax.jit(lambda s, v, o=options: gradient(s, v, o))(1.5, 1.0) for options in (follow, fixed)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-12)
    many = jax.jit(jax.vmap(jax.grad(lambda s: loss(s, 1.0, follow))))(jnp.array([1.5, 3.0]))
    np.testing.assert_allclose(many, jnp.array([1.0, 2.0]) * slopes[0][0], rtol=1e-12)


def test_a_step_to_a_state_that_may_not_be_is_tried_again():
    """Without a limiter and with long steps gases that part would have a negative pressure."""
    law = Euler(Grid(20), Outflow(), reconstruction=Constant(), flux=Rusanov(), limiter=None)
    y = jump(law, jnp.array([1.0, -2.0, 0.4]), jnp.array([1.0, 2.0, 0.4]))
    long, short = (sciml.solve(law, y, t0=0.0, t1=0.1, cfl=cfl, throw=False) for cfl in (2.5, 0.45))
    assert long.stats.rejected > 0 == short.stats.rejected
    assert long.status == 0 and jnp.min(law.primitive(long.ys[-1])[2]) > 0


def test_errors_limit_the_steps_too():
    grid = Grid(20)
    law = Transport(grid, Periodic(), reconstruction=Constant())
    y = jnp.sin(2 * jnp.pi * grid.centers[0])
    counts = [
        int(sciml.solve(law, y, t0=0.0, t1=0.5, **options).stats.accepted)
        for options in (dict(), dict(cfl=0.45, rtol=1e-4, atol=1e-4), dict(rtol=1e-4, atol=1e-4))
    ]
    assert counts[0] == 23 and counts[1] >= max(counts[0], counts[2])


def test_a_long_run_takes_the_same_steps(tmp_path):
    law = InviscidBurgers(Grid(20), Periodic())
    y = 1 + jnp.sin(2 * jnp.pi * law.volumes.grid.centers[0])
    sol = sciml.solve(law, y, t0=0.0, t1=0.3, saveat=jnp.array([0.0, 0.1, 0.2, 0.3]))
    run = sciml.simulate(law, y, t0=0.0, t1=0.3, save_every=0.1, progress=False)
    np.testing.assert_array_equal(run.values, sol.ys)


def test_what_does_not_fit_is_refused():
    law, y = InviscidBurgers(Grid(8), Periodic()), jnp.ones(8)
    times = dict(t0=0.0, t1=1.0)
    with pytest.raises(ValueError, match="follow the fastest wave"):
        sciml.solve(law, y, dt=0.1, cfl=0.4, **times)
    for wrong in (0.0, -1.0, jnp.inf, "fast"):
        with pytest.raises((ValueError, TypeError), match="cfl"):
            sciml.solve(law, y, cfl=wrong, **times)
    with pytest.raises(ValueError, match="crossing_rate"):
        sciml.solve(sciml.models.Lorenz63(), jnp.ones(3), cfl=0.4, **times)
    with pytest.raises(ValueError, match="requires an explicit or implicit-explicit method"):
        sciml.solve(law, y, cfl=0.4, solver=diffrax.Kvaerno5(), **times)
    with pytest.raises(ValueError, match="stable"):
        sciml.solve(law, y, dt=0.5, **times)


# --- one quantity


@pytest.mark.parametrize("reconstruction", [Muscl(), PPM(), WENO5()], ids=lambda r: type(r).__name__)
def test_burgers_breaks_into_a_shock_of_the_right_speed(reconstruction):
    """And a rarefaction, which meet only later."""
    grid = Grid(100)
    (x,) = grid.centers
    law = InviscidBurgers(grid, Outflow(), reconstruction=reconstruction)
    sol = sciml.solve(law, jnp.where((x > 0.1) & (x < 0.5), 1.0, 0.0), t0=0.0, t1=0.5)
    exact = jnp.where(x < 0.6, jnp.clip((x - 0.1) / 0.5, 0.0, 1.0), jnp.where(x < 0.75, 1.0, 0.0))
    assert jnp.mean(jnp.abs(sol.ys[-1] - exact)) < 0.01


def test_the_end_of_a_queue_moves_back():
    road = Grid(100)
    (x,) = road.centers
    law = Traffic(road, {"x-": Inflow(30.0), "x+": Inflow(90.0)}, speed=30.0, jam=90.0)
    sol = sciml.solve(law, jnp.where(x < 0.8, 30.0, 90.0), t0=0.0, t1=0.01)
    shock = 0.8 - 30.0 * 30.0 * (1 - 30 / 90) / 60.0 * 0.01
    cars = 30 * 0.8 + 90 * 0.2 + 0.01 * law.flux(jnp.array(30.0), 0)
    jammed = road.integrate(jnp.where(sol.ys[-1] > 60, 1.0, 0.0))
    assert abs(jammed - (1 - shock)) < 0.015 and abs(road.integrate(sol.ys[-1]) - cars) < 0.01


def test_a_negative_pressure_at_the_start_is_named():
    law = Euler(Grid(8), Outflow(), reconstruction=Constant(), flux=Rusanov(), limiter=None)
    y0 = jnp.ones((3, 8)).at[1, 5].set(2.0)  # primitive variables by mistake: the kinetic energy exceeds the energy
    with pytest.raises(sciml.SolveError, match=r"pressure of `y0` is -0.4 in cell \[5\].*`model.conserved`"):
        sciml.solve(law, y0, t0=0.0, t1=0.01, dt=0.01, solver=diffrax.Euler())


# --- shallow water


def hills():
    grid = Grid((16, 12))
    x, y = grid.centers
    bed = 0.8 * jnp.exp(-30 * ((x - 0.5) ** 2 + (y - 0.4) ** 2)) + 0.1 * jnp.sin(9 * x) * jnp.cos(7 * y)
    return grid, bed + jnp.where(x > 0.8, 0.5, 0.0)


@pytest.mark.parametrize("scheme", [dict(), dict(flux=Roe()), dict(flux=HLL(), reconstruction=PPM())], ids=str)
def test_a_lake_stays_at_rest(scheme):
    """To rounding, over hills, a step and dry land, between sides of every kind."""
    grid, bed = hills()
    depth = jnp.maximum(0.5 - bed, 0.0)
    assert jnp.sum(depth == 0) > 20
    y = jnp.stack([depth, jnp.zeros(grid.shape), jnp.zeros(grid.shape)])
    law = ShallowWater(grid, {"x": Periodic(), "y-": Reflecting(), "y+": Outflow()}, bed, **scheme)
    sol = sciml.solve(law, y, t0=0.0, t1=0.2)
    assert jnp.max(jnp.abs(sol.ys[-1] - y)) < 100 * jnp.finfo(y.dtype).eps


@pytest.mark.x64
def test_water_runs_up_dry_land_and_none_is_lost():
    grid, bed = hills()
    x, _ = grid.centers
    depth = jnp.maximum(0.5 - bed, 0.0) + jnp.where((x < 0.2) & (bed < 0.5), 0.3, 0.0)
    y = jnp.stack([depth, jnp.zeros(grid.shape), jnp.zeros(grid.shape)])
    sol = sciml.solve(ShallowWater(grid, Reflecting(), bed), y, t0=0.0, t1=0.5)
    assert jnp.min(sol.ys) > -jnp.inf and jnp.min(sol.ys[-1][0]) >= -1e-15
    assert abs(grid.integrate(sol.ys[-1][0]) - grid.integrate(depth)) < 1e-13
    assert jnp.sum((sol.ys[-1][0] > 1e-4) & (depth == 0)) > 3


DAM_SCHEMES = {"Muscl": dict(), "WENO5Z": dict(reconstruction=WENO5Z()), "Roe": dict(flux=Roe())}


@ft.cache
def dam(scheme):
    """Lets the water of a dam go, compiled once for each scheme."""

    def solve(downstream, cells):
        grid = Grid(cells, -10.0, 10.0)
        law = ShallowWater(grid, Outflow(), **DAM_SCHEMES[scheme])
        y = jnp.stack([jnp.where(grid.centers[0] < 0, 10.0, downstream), jnp.zeros(cells)])
        sol = sciml.solve(law, y, t0=0.0, t1=0.4, throw=False)
        return sol.ys[-1][0], sol.status

    return jax.jit(solve, static_argnames="cells")


@pytest.mark.x64
@pytest.mark.parametrize("downstream", [0.0, 0.5, 5.0], ids=["Ritter", "Stoker", "deep"])
@pytest.mark.parametrize("scheme", DAM_SCHEMES)
def test_dams_break_as_stoker_and_ritter_say(downstream, scheme):
    errors = []
    for cells in (50, 100):
        found, status = dam(scheme)(downstream, cells=cells)
        assert status == 0
        depth, _ = verify.reference("dam_break", Grid(cells, -10.0, 10.0).centers[0], 0.4, 10.0, downstream)
        errors.append(float(jnp.mean(jnp.abs(found - depth))))
    assert errors[1] < 0.1 and errors[1] < 0.65 * errors[0]


def test_friction_slows_a_river():
    """Where the bed is level, as v' = -k v^2 with a depth of one."""
    grid = Grid(10, 0.0, 100.0)
    law = ShallowWater(grid, Periodic(), friction=0.02)
    y = jnp.stack([jnp.ones(10), 3 * jnp.ones(10)])
    sol = sciml.solve(law, y, t0=0.0, t1=10.0)
    assert abs(sol.ys[-1][1, 0] - 3 / (1 + 0.02 * 3 * 10)) < 1e-3


def test_beds_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="bed"):
        ShallowWater(Grid(8), Periodic(), jnp.ones(7))
    with pytest.raises(ValueError, match="corrects fluxes"):
        ShallowWater(Grid(8), Periodic(), jnp.ones(8), reconstruction=WENO5())
    for wrong in (dict(variables=Characteristic()), dict(flux=LaxWendroff(0.1))):
        with pytest.raises(ValueError, match="varying `bed`"):
            ShallowWater(Grid(8), Periodic(), jnp.ones(8), **wrong)
    with pytest.raises(ValueError, match="one or two axes"):
        ShallowWater(Grid((8, 8, 8)), Periodic())
    with pytest.raises(ValueError, match=r"2 primitive variables \(depth, velocity\)"):
        ShallowWater(Grid(8), Inflow(jnp.ones(3)))(0.0, jnp.ones((2, 8)), None)
