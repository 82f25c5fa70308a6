"""Flow that cannot be compressed on a grid that is split over devices: the numbers and derivatives of one device."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect, parallel
from sciml.models import BodyForce, Buoyancy, Carried, ImplicitFriction, IncompressibleFlow, Obstacle, Smagorinsky
from sciml.spatial import (
    Central,
    Dirichlet,
    Extrapolate,
    FreeSlip,
    Grid,
    LimitedUpwind,
    Neumann,
    NoSlip,
    OrthogonalGrid,
    Periodic,
    PressureOutlet,
    VelocityInlet,
)

pytestmark = pytest.mark.x64

BOX, CUBE = Grid((16, 8), upper=(2.0, 1.0)), Grid((8, 8, 4))


def cavity():
    sides = {"x": NoSlip(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}
    return BOX, sides, dict(viscosity=0.05), dict(x=4)


def channel():
    """Gusts around a body, with viscosity that varies, between walls that the flow slips along."""
    profile, (x, y) = jnp.linspace(0.1, 1.0, 8), BOX.centers
    disc = Obstacle(jnp.clip(0.5 - (jnp.hypot(x - 1.0, y - 0.5) - 0.2) * 8, 0.0, 1.0), 0.1)
    dye = Carried({"x-": Dirichlet(jnp.linspace(0.0, 1.0, 8)), "x+": Neumann(0.0), "y": Neumann(0.0)}, 0.02)
    sides = {
        "x-": VelocityInlet((lambda t, args: (1 + t) * profile, 0.0)),
        "x+": PressureOutlet(0.2),
        "y": FreeSlip(),
    }
    options = dict(
        viscosity=jnp.linspace(0.01, 0.1, 128).reshape(16, 8),
        forces=[disc, BodyForce((0.3 * jnp.ones((16, 8)), 0.1))],
        transport=LimitedUpwind(),
        carried={"dye": dye},
    )
    return BOX, sides, options, dict(x=4, y=2)


def convection():
    heat = Carried({"x": Periodic(), "y": Dirichlet(1.0), "z": Neumann(0.0)}, 0.1)
    options = dict(eddies=Smagorinsky(), carried={"T": heat}, forces=[Buoyancy("T", (0.0, 1.0, 0.2))])
    return CUBE, {"x": Periodic(), "y": NoSlip(), "z": FreeSlip()}, options, dict(x=2, y=2)


def suction():
    """An outlet at the lower end of the axis that is split, and a belt whose speed varies along it."""
    belt = NoSlip((jnp.linspace(0.0, 1.0, 16), 0.0))
    sides = {"x-": PressureOutlet(), "x+": VelocityInlet((-1.0, 0.1)), "y": belt}
    return BOX, sides, dict(viscosity=0.1, eddies=Smagorinsky()), dict(x=4)


def both(case):
    grid, sides, options, counts = case()
    axes = tuple(name if name in counts else None for name in grid.names)
    devices = jax.devices()[: int(np.prod(list(counts.values())))]
    domain = parallel.Domain(axes, mesh=parallel.mesh(member=1, **counts, devices=devices))
    whole, split = (IncompressibleFlow(grid, sides, **options, domain=d) for d in (None, domain))
    draw = np.random.default_rng(0)
    like = whole.start(carried=dict.fromkeys(whole.carried, 0.0))
    y = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), like)
    return whole, split, domain, whole.project(y, t=0.0)


def looked_at(model, y):
    numbers = model.crossing_rate(0.1, y, None), model.spectrum(0.1, y, None).imag, model.energy(y, t=0.1)
    bodies = [force.force(model, y) for force in model.forces if isinstance(force, Obstacle)]
    fields = model.divergence(y, t=0.1), model.pressure(y, t=0.1), model.at_centers(y, t=0.1)
    return (model(0.1, y, None), model.project(y, t=0.1)), (*numbers, bodies), fields


def over_devices(domain, look):
    def run(model, y):
        states, numbers, fields = domain.run(lambda y, model: look(model, y), model.to_blocks(y), model)
        return tuple(model.from_blocks(state) for state in states), numbers, fields

    return run


def compare(found, expected, tol=1e-12):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tol * max(float(jnp.max(jnp.abs(b))), 1e-2))


@pytest.mark.parametrize("case", [channel, convection, suction])
def test_rates_over_devices_are_those_of_one(case):
    """And the projected state, what steps follow, energy, force on a body, divergence and pressure."""
    whole, split, domain, y = both(case)
    compare(split.from_blocks(split.to_blocks(y)), y)
    expected = jax.jit(lambda y: looked_at(whole, y))(y)
    compare(jax.jit(lambda y: over_devices(domain, looked_at)(split, y))(y), expected)
    assert jnp.max(jnp.abs(whole.divergence(expected[0][1], t=0.1))) < 1e-10


def gradients(case, run):
    """On one device and over all: by the state and every leaf, of a sum of all that `run` returns, and that itself."""
    whole, split, domain, y = both(case)

    def of(x, run):
        def loss(x):
            found = run(*x)
            parts = (jnp.sin(1.0 + jnp.arange(float(x.size))) * x.ravel() for x in jax.tree.leaves(found))
            return sum(map(jnp.sum, parts)), found

        return eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))(x)

    return of((whole, y), run), of((split, y), over_devices(domain, run))


@pytest.mark.parametrize("case", [cavity, channel, convection])
def test_their_gradients_are_those_of_one(case):
    """By the state and every leaf: values at sides, viscosities, bodies, forces."""
    expected, found = gradients(case, looked_at)
    assert sum(bool(jnp.any(x != 0)) for x in jax.tree.leaves(expected[0])) >= 3
    compare(found, expected)


PIPE = {"x-": VelocityInlet((1.0, 0.0)), "x+": PressureOutlet(), "y": Periodic()}
SHARED = {
    "waves along both axes, 2": (Grid((12, 10)), Periodic(), dict(x=2)),
    "cosines and waves, 8": (Grid((24, 10)), {"x": NoSlip(), "y": Periodic()}, dict(x=8)),
    "waves and sines, the other axis, 4": (Grid((10, 12)), PIPE, dict(y=4)),
    "two of three axes, 8": (
        Grid((6, 16, 10)), {"x": NoSlip(), "y": Periodic(), "z": Periodic()}, dict(x=2, y=4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARED)
def test_each_device_does_its_share_of_the_pressure(case):
    """Whether or not the coefficients divide, of which the devices hold a part each; no field is gathered."""
    whole, split, domain, y = both(lambda: (*SHARED[case][:2], {}, SHARED[case][2]))
    run = jax.jit(lambda y: domain.run(lambda y, model: model.pressure(y), split.to_blocks(y), split))
    compare(run(y), jax.jit(lambda y: whole.pressure(y))(y))
    kinds = [message.kind for message in inspect.collectives(run, y)]
    assert "all-to-all" in kinds and "all-gather" not in kinds


def test_what_enters_must_leave_on_several_devices():
    domain, box = parallel.Domain(("x", None), mesh=parallel.mesh(member=1, x=8)), Grid((24, 8))

    def rates(inlet):
        sides = {"x-": VelocityInlet((inlet, 0.0)), "x+": VelocityInlet((1.0, 0.0)), "y": NoSlip()}
        split = IncompressibleFlow(box, sides, domain=domain)
        y = split.to_blocks(split.start())
        return domain.run(lambda y, model: model(0.0, y, None).velocity[0], y, split)

    good, bad = (jax.jit(rates)(jnp.array(inlet)) for inlet in (1.0, 0.9))
    assert bool(jnp.isfinite(good).all()) and bool(jnp.isnan(bad).any())


def test_members_under_vmap_are_those_of_one_device():
    """Their rates, and their gradients by the state and the viscosity that each has for itself."""
    whole, split, domain, y = both(cavity)
    ys = jax.tree.map(lambda x: jnp.stack([x, -2 * x]), y)

    def rate(model, y, viscosity):
        return eqx.tree_at(lambda m: m.viscosity, model, viscosity)(0.1, y, None)

    def over_blocks(y, viscosity):
        run = lambda y, x: rate(x[0], y, x[1])  # noqa: E731
        return split.from_blocks(domain.run(run, split.to_blocks(y), (split, viscosity)))

    def slopes(fn):
        def loss(y, viscosity):
            found = fn(y, viscosity)
            return sum(jnp.sum(jnp.sin(jnp.arange(float(x.size))) * x.ravel()) for x in jax.tree.leaves(found)), found

        return jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1), has_aux=True)))(ys, jnp.array([0.01, 0.1]))

    compare(slopes(over_blocks), slopes(lambda y, viscosity: rate(whole, y, viscosity)))


def dyed():
    """A channel that is split along the flow, with a force and something carried."""
    grid, sides, options, _ = channel()
    return grid, sides, options | dict(viscosity=0.05, transport=Central()), dict(x=4)


def stirred():
    """Walls at the ends of all axes, both of which are split."""
    return *cavity()[:2], dict(viscosity=0.1, eddies=Smagorinsky()), dict(x=4, y=2)


def implicit(model, y):
    friction = ImplicitFriction(model)
    solved = friction.solve_shifted(0.7, y, None)
    return (friction.stiff(y, None), friction.rest(0.1, y, None), solved), friction.crossing_rate(0.1, y, None), ()


def test_implicit_friction_over_devices_is_that_of_one():
    whole, split, domain, y = both(cavity)
    expected = jax.jit(lambda y: implicit(whole, y))(y)
    compare(jax.jit(lambda y: over_devices(domain, implicit)(split, y))(y), expected, 1e-9)


@pytest.mark.parametrize("case", [cavity, dyed, convection, stirred])
def test_gradients_of_implicit_friction_are_those_of_one(case):
    """By the state and every leaf, of both parts of the rates and of the solve."""
    expected, found = gradients(case, implicit)
    compare(found, expected, 1e-9)


def test_implicit_steps_over_devices_are_those_of_one():
    whole, split, domain, y = both(cavity)

    def solved(model, y):
        options = dict(t0=0.0, t1=0.2, dt=0.05, solver=sciml.solvers.ARS(order=2), norm=domain.rms)
        sol = sciml.solve(ImplicitFriction(model), y, **options)
        return (jax.tree.map(lambda x: x[-1], sol.ys),), sol.stats.accepted, ()

    expected = jax.jit(lambda y: solved(whole, y))(y)
    found = jax.jit(lambda y: over_devices(domain, solved)(split, y))(y)
    compare(found, expected, 1e-9)
    assert jnp.max(jnp.abs(whole.divergence(found[0][0], t=0.2))) < 1e-10


def test_a_solve_that_follows_the_flow_takes_the_same_steps():
    whole, split, domain, y = both(cavity)

    def solved(model, y):
        sol = sciml.solve(model, y, t0=0.0, t1=0.1, cfl=0.8, solver=sciml.solvers.SSPRK33(), norm=domain.rms)
        return (jax.tree.map(lambda x: x[-1], sol.ys),), sol.stats.accepted, ()

    expected = jax.jit(lambda y: solved(whole, y))(y)
    assert expected[1] > 3
    compare(jax.jit(lambda y: over_devices(domain, solved)(split, y))(y), expected)


def test_what_cannot_be_split_is_refused():
    domain = parallel.Domain(("x", None), mesh=parallel.mesh(member=1, x=8))
    with pytest.raises(TypeError, match="must be sides. Pass the `Domain` as `domain=`"):
        IncompressibleFlow(BOX, domain)
    with pytest.raises(TypeError, match=r"`IncompressibleFlow\(domain=...\)` must be a `sciml.parallel.Domain`"):
        IncompressibleFlow(BOX, NoSlip(), domain=8)
    with pytest.raises(ValueError, match="cannot split x: with outlets at both ends"):
        IncompressibleFlow(BOX, {"x": PressureOutlet(), "y": NoSlip()}, domain=domain)
    with pytest.raises(ValueError, match="requires a uniform `Grid`"):
        IncompressibleFlow(
            OrthogonalGrid([np.linspace(0.0, 1.0, 17), np.linspace(0.0, 1.0, 9)]), NoSlip(), domain=domain
        )
    flow = IncompressibleFlow(BOX, NoSlip(), domain=domain)
    leaky = {"dye": Carried({"x": Extrapolate(), "y": Neumann(0.0)}, 0.1)}
    with pytest.raises(
        ValueError, match=r"requires fast transforms of all diffusing fields, but `carried\['dye'\]` has"
    ):
        ImplicitFriction(IncompressibleFlow(BOX, NoSlip(), carried=leaky, domain=domain))
    with pytest.raises(ValueError, match="runs on one device. Create it with `domain=`"):
        IncompressibleFlow(BOX, NoSlip()).to_blocks(flow.start())
    wide = IncompressibleFlow(BOX, NoSlip(), transport=LimitedUpwind(), domain=domain)
    with pytest.raises(ValueError, match="2 ghost layers of a flow require blocks of at least 3 cells, but along x 8"):
        domain.run(lambda y, model: model(0.0, y, None), wide.to_blocks(wide.start()), wide)
