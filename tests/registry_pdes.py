"""Every model of fields in one list, with walls or periodic, for the suite in `tests/models/test_contract.py`.

A model with a grid and conditions has its line in `tests/registry_fields.py`, one of periodic fields its line in
`tests/models/fields/test_periodic_fields.py`; either puts it here. A model that fits in neither has a line in `OTHERS`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sciml import models
from sciml.spatial import (
    AbstractFlux,
    Dirichlet,
    Extrapolate,
    FreeSlip,
    Grid,
    Inflow,
    MovingWall,
    Muscl,
    Neumann,
    NoSlip,
    NoSlipWall,
    Outflow,
    Periodic,
    PressureOutlet,
    Reflecting,
    Robin,
    VelocityInlet,
)
from tests import registry_fields
from tests.models.fields import test_periodic_fields as periodic

GRID = Grid((5, 7), 0.0, 1.0)


class Case(NamedTuple):
    """A model and a state of it; `field` is complex or real, and a linear model is so without its boundary values."""

    name: str
    make: Callable[[], Any]
    state: Callable[[Any], Any]
    field: str = "real"
    linear: bool = False
    dt: float | None = None

    def step(self, model: Any, y: Any) -> float:
        """A step that is stable for explicit methods, or given."""
        return self.dt or 0.2 / float(model.spectral_radius(0.0, y, None))


def walls():
    """Conditions of every kind, of which some values are arrays."""
    return {
        "x-": Dirichlet(jnp.linspace(0.2, 0.4, 7)),
        "x+": Neumann(0.3),
        "y-": Robin(1.0, 0.2, 0.5),
        "y+": Extrapolate(),
    }


def no_walls_left():
    """The same kinds as `walls` has, with zero for all values."""
    return {"x-": Dirichlet(0.0), "x+": Neumann(0.0), "y-": Robin(1.0, 0.2, 0.0), "y+": Extrapolate()}


LINEAR = ("Advection", "AdvectionDiffusion", "Diffusion", "Wave", "Darcy", "FokkerPlanck")


def on_grids(case: registry_fields.Case, sides: Callable[[], Any] = walls) -> Case:
    """A case of `registry_fields`, with walls."""
    return Case(
        case.name,
        lambda: case.make(GRID, sides()),
        lambda dtype: case.y0(GRID, dtype),
        linear=case.name in LINEAR,
    )


def on_circles(name: str) -> Case:
    """A case of `test_periodic_fields`."""

    def made(dtype=None):
        with jax.numpy_dtype_promotion("standard"):
            return periodic.case(name, dtype)

    field = "complex" if name in periodic.COMPLEX else "real"
    return Case(name, lambda: made()[0], lambda dtype: made(dtype)[1], field=field, dt=5e-3)


def darcy(sides: Callable[[], Any]) -> Case:
    k = np.exp(np.sin(np.arange(35.0))).reshape(5, 7)

    def make():
        kinds = sides() | {"y+": Neumann(sides is walls and 0.1 or 0.0)}
        return models.Darcy(GRID, kinds, jnp.asarray(k), q=0.5 if sides is walls else 0.0)

    return Case("Darcy", make, lambda dtype: registry_fields.Case("", lambda *_: None).y0(GRID, dtype), linear=True)


def drifting(sides: Callable[[], Any]) -> Case:
    """Its last side absorbs a part, since it has no condition that extrapolates."""

    def make():
        x, y = GRID.centers
        kinds = sides() | {"y+": Robin(0.5, 1.0, sides is walls and 0.1 or 0.0)}
        return models.FokkerPlanck(GRID, kinds, jnp.sin(4 * x) * y, 0.2)

    return Case(
        "FokkerPlanck", make, lambda dtype: registry_fields.Case("", lambda *_: None).y0(GRID, dtype), linear=True
    )


def pendulums() -> Case:
    """Its state is a pair of fields, and its solver a symplectic one."""
    one = registry_fields.Case("", lambda *_: None)

    def make():
        return models.KleinGordon(GRID, walls(), speed=1.5, mass=2.0, potential=lambda u: 1 - jnp.cos(u))

    return Case("KleinGordon", make, lambda dtype: (one.y0(GRID, dtype), 0.3 * one.y0(GRID, dtype)))


def sound() -> Case:
    """Its state is pressures at centres and velocities at faces; with a layer at one side and a source."""
    rough = np.exp(0.3 * np.sin(np.arange(35.0))).reshape(5, 7)

    def make():
        return models.Acoustic(
            GRID,
            jnp.asarray(rough),
            jnp.asarray(rough[::-1].copy()),
            boundary={"x": "rigid", "y-": "free", "y+": "rigid"},
            layers={"x-": 1},
            source=models.PointSources(GRID, [0.4, 0.6], models.Ricker(2.0, 0.1)),
        )

    def state(dtype):
        like = make().rest(dtype=jnp.dtype(dtype))
        draw = np.random.default_rng(0)
        return jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)).astype(x.dtype), like)

    return Case("Acoustic", make, state)


class Damped(AbstractFlux):
    """A flux of one's own without the kinks of others, so that finite differences are right."""

    def __call__(self, law, left, right, axis):
        jump = law.conserved(right) - law.conserved(left)
        return (law.flux(left, axis) + law.flux(right, axis)) / 2 - 1.5 * jump


def centred(behind, ahead):
    """A slope without a limiter."""
    return (behind + ahead) / 2


SMOOTH = dict(reconstruction=Muscl(centred), flux=Damped(), limiter=None)


def gas() -> Case:
    """Between sides of every kind; its state is density, momentum and energy."""

    def make():
        wind = jnp.array([1.0, 0.3, 0.1, 1.0])
        sides = {"x-": Inflow(wind), "x+": Outflow(), "y-": Reflecting(), "y+": MovingWall(-0.1)}
        return models.Euler(GRID, sides, **SMOOTH)

    def state(dtype):
        smooth = registry_fields.Case("", lambda *_: None, 4).y0(GRID, dtype)
        return make().conserved(jnp.stack([0.5 + smooth[0], 0.5 * smooth[1], 0.5 * smooth[2], 0.5 + smooth[3]]))

    return Case("Euler", make, state)


def viscous_gas() -> Case:
    """Between sides of every kind, with a viscosity that depends on the temperature."""

    def make():
        sides = {
            "x-": Inflow(jnp.array([1.0, 0.3, 0.1, 1.0])),
            "x+": NoSlipWall(),
            "y-": NoSlipWall(jnp.array([0.2, 0.0]), 1.3),
            "y+": MovingWall(-0.1),
        }
        return models.CompressibleNavierStokes(GRID, sides, 0.02, exponent=0.7, reference=1.2, **SMOOTH)

    def state(dtype):
        smooth = registry_fields.Case("", lambda *_: None, 4).y0(GRID, dtype)
        return make().conserved(jnp.stack([0.5 + smooth[0], 0.5 * smooth[1], 0.5 * smooth[2], 0.5 + smooth[3]]))

    return Case("CompressibleNavierStokes", make, state)


def pond() -> Case:
    """Over a bed that is not level, with friction."""

    def make():
        bed = (np.arange(35.0) % 2 + 0.1 * np.sin(np.arange(35.0))).reshape(5, 7)  # of steps at every face
        sides = {"x": Reflecting(), "y-": Inflow(jnp.array([1.0, 0.0, 0.2])), "y+": Outflow()}
        return models.ShallowWater(GRID, sides, 0.1 * jnp.asarray(bed), friction=0.1, **SMOOTH)

    def state(dtype):
        smooth = registry_fields.Case("", lambda *_: None, 3).y0(GRID, dtype)
        return smooth.at[0].add(1.0)

    return Case("ShallowWater", make, state)


def queue() -> Case:
    """One quantity that is carried along two axes."""

    def make():
        velocity = jnp.array([1.0, -0.5])
        return models.Transport(GRID, {"x-": Inflow(0.3), "x+": Outflow(), "y": Periodic()}, velocity)

    return Case("Transport", make, lambda dtype: registry_fields.Case("", lambda *_: None).y0(GRID, dtype))


def stirred() -> Case:
    """Between sides of every kind, with a temperature that lifts it, a body in its way, and eddies."""

    def make():
        inlet = VelocityInlet((jnp.linspace(0.5, 1.0, 7), lambda t, args: 0.1 + t))
        sides = {"x-": inlet, "x+": PressureOutlet(0.2), "y-": NoSlip((0.3, 0.0)), "y+": FreeSlip()}
        heat = {"x-": Dirichlet(1.0), "x+": Extrapolate(), "y": Neumann(0.1)}
        share = 0.5 + 0.4 * jnp.sin(jnp.arange(35.0)).reshape(5, 7)
        return models.IncompressibleFlow(
            GRID,
            sides,
            viscosity=0.05,
            carried={"heat": models.Carried(heat, 0.02)},
            forces=[models.Buoyancy("heat", (0.1, 1.0)), models.Obstacle(share, 0.5), models.BodyForce((0.3, 0.0))],
            eddies=models.Smagorinsky(0.2),
        )

    return Case("IncompressibleFlow", make, lambda dtype: smooth_flow(make(), dtype))


def thick() -> Case:
    """The same kind of state, whose viscosity and diffusion are implicit."""

    def make():
        sides = {"x": Periodic(), "y-": NoSlip(), "y+": NoSlip((0.3, 0.0))}
        dye = models.Carried({"x": Periodic(), "y": Neumann(0.0)}, 0.02)
        flow = models.IncompressibleFlow(GRID, sides, viscosity=0.1, carried={"dye": dye})
        return models.ImplicitFriction(flow)

    return Case("ImplicitFriction", make, lambda dtype: smooth_flow(make().flow, dtype))


def smooth_flow(flow, dtype):
    """A state that is smooth, and not without divergence."""
    return jax.tree.map(
        lambda x: (0.3 + 0.2 * jnp.sin(1.0 + jnp.arange(float(x.size)).reshape(x.shape))).astype(dtype),
        flow.start(carried=dict.fromkeys(flow.carried, 0.0)),
    )


def turbulence() -> Case:
    """A force on the large eddies keeps it going."""
    grid = Grid((6, 5, 4), 0.0, (7.0, 11.0, 5.0))

    def make():
        return models.NavierStokes3D(grid, viscosity=0.3, forcing=models.SteadyPower(0.4))

    def state(dtype):
        return jnp.asarray(np.random.default_rng(0).normal(size=(3, *grid.shape))).astype(dtype)

    return Case("NavierStokes3D", make, state, dt=5e-3)


def some_fields(make, dtype):
    """Random fields, memories of layers and media included."""
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)).astype(x.dtype), make().start(dtype=dtype))


def light() -> Case:
    """In a medium that varies, conducts and disperses, with walls of every kind, a layer, and a source."""
    rough = np.exp(0.3 * np.sin(np.arange(35.0))).reshape(5, 7)

    def make():
        there = jnp.asarray(rough)
        return models.Maxwell(
            GRID,
            there,
            jnp.asarray(rough[::-1].copy()),
            0.3 * there,
            media=[models.Drude(2.0 * there, 0.5), models.Lorentz(there, 3.0, 0.2), models.Debye(0.4 * there, 0.7)],
            boundary={"x": "conductor", "y-": "magnetic", "y+": "conductor"},
            layers={"x-": 1},
            source=models.FieldSource("Ez", 0.5, models.Ricker(2.0, 0.1)),
            polarization="Ez",
        )

    return Case("Maxwell", make, lambda dtype: some_fields(make, jnp.dtype(dtype)))


def shakes() -> Case:
    """In a solid that varies, with sides of every kind, a layer, and a source."""
    rough = np.exp(0.3 * np.sin(np.arange(35.0))).reshape(5, 7)

    def make():
        grid = models.ElasticWave(GRID)
        return models.ElasticWave(
            GRID,
            jnp.asarray(rough),
            jnp.asarray(rough[::-1].copy()),
            jnp.asarray(rough[:, ::-1].copy()),
            boundary={"x-": "roller", "x+": "clamped", "y-": "roller", "y+": "free"},
            layers={"y-": 1},
            source=models.FieldSource("vx", grid.points("vx", [0.47, 0.6]), models.Ricker(2.0, 0.1)),
        )

    return Case("ElasticWave", make, lambda dtype: some_fields(make, jnp.dtype(dtype)))


OTHERS = (
    *(
        darcy(walls),
        drifting(walls),
        pendulums(),
        sound(),
        gas(),
        viscous_gas(),
        pond(),
        queue(),
        stirred(),
        thick(),
        turbulence(),
    ),
    *(light(), shakes()),
)

CASES = (*map(on_grids, registry_fields.CASES), *map(on_circles, periodic.FORMULAS), *OTHERS)

HOMOGENEOUS = (
    *(on_grids(case, no_walls_left) for case in registry_fields.CASES if case.name in LINEAR),
    darcy(no_walls_left),
    drifting(no_walls_left),
)
"""The linear models, with zero at the walls."""
