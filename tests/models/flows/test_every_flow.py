"""Every model of flows and waves: programs as large for any grid, both precisions, and devices that share a grid."""

import inspect as python
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models, parallel
from sciml.spatial import Boundaries, Grid, Neumann, NoSlip, NoSlipWall, Outflow, Periodic, Reflecting, Sides
from tests.conftest import X64

SSP = sciml.solvers.SSPRK33()


class Case(NamedTuple):
    """A model by its grid and its sides, and how it takes many devices.

    Attributes:
        ndim: The axes of its grid.
        make: From a grid and sides, None for its own, to a model.
        sides: From a grid to what a `Domain` has for its boundary; None where that is no argument of the model.
        solver: A method, None for that which it has by default.
    """

    ndim: int
    make: Callable[[Grid, Any], Any]
    sides: Callable[[Grid], Any] | None = None
    solver: Any = None


def law(kind: type, ndim: int, sides: Any, **options: Any) -> Case:
    """A conservation law."""
    make = lambda grid, domain: kind(grid, sides if domain is None else domain, **options)  # noqa: E731
    return Case(ndim, make, lambda grid: Sides(grid, sides), solver=SSP)


def diffusing(make: Callable[[Grid, Any], Any], solver: Any = diffrax.Heun()) -> Case:
    """A model with the conditions of fields."""
    sides = Neumann(0.0)
    made = lambda grid, domain: make(grid, sides if domain is None else domain)  # noqa: E731
    return Case(2, made, lambda grid: Boundaries(grid, sides), solver=solver)


TUNNEL = {"x": Outflow(), "y": Reflecting()}
CHANNEL = {"x-": Outflow(), "x+": NoSlipWall(), "y-": NoSlipWall(jnp.array([0.3, 0.0]), 1.2), "y+": Reflecting()}
CASES = {
    "Transport": law(lambda grid, sides: models.Transport(grid, sides, jnp.array([1.0, -0.5])), 2, Periodic()),
    "InviscidBurgers": law(models.InviscidBurgers, 1, Outflow()),
    "Traffic": law(models.Traffic, 1, Outflow()),
    "ShallowWater": law(lambda grid, sides: models.ShallowWater(grid, sides, 0.1, friction=0.1), 2, TUNNEL),
    "Euler": law(models.Euler, 2, TUNNEL),
    "Euler in 3-D": law(models.Euler, 3, Periodic()),
    "CompressibleNavierStokes": law(models.CompressibleNavierStokes, 2, CHANNEL, exponent=0.7),
    "KellerSegel": diffusing(models.KellerSegel),
    "Schnakenberg": diffusing(
        lambda grid, sides: models.ReactionDiffusion(models.Schnakenberg(), grid, sides, (0.1, 0.2))
    ),
    "FokkerPlanck": diffusing(lambda grid, sides: models.FokkerPlanck(grid, sides, jnp.zeros(grid.shape)), None),
    "IncompressibleFlow": Case(
        2,
        lambda grid, domain: models.IncompressibleFlow(grid, NoSlip(), domain=domain),
        solver=SSP,
    ),
    "NavierStokes3D": Case(3, lambda grid, domain: models.NavierStokes3D(grid, domain=domain)),
    "Maxwell": Case(2, lambda grid, domain: models.Maxwell(grid, layers=1, domain=domain)),
    "ElasticWave": Case(2, lambda grid, domain: models.ElasticWave(grid, layers=1, domain=domain)),
    "Acoustic": Case(2, lambda grid, domain: models.Acoustic(grid, layers=1, domain=domain)),
}


def grid_of(case: Case, cells: int) -> Grid:
    """Cells of the same size, however many."""
    shape = (cells, *(8,) * (case.ndim - 1))
    return Grid(shape, 0.0, tuple(n / 16 for n in shape))


def state(name: str, model: Any, grid: Grid, dtype: Any) -> Any:
    """A smooth state between 0.3 and 0.9; that of a gas from such density, velocities and pressure."""
    gas = isinstance(model, models.Euler | models.CompressibleNavierStokes)
    components = {"ShallowWater": grid.ndim + 1, "NavierStokes3D": 3, "KellerSegel": 2, "Schnakenberg": 2}
    count = grid.ndim + 2 if gas else components.get(name)
    if name in ("IncompressibleFlow", "Maxwell", "ElasticWave"):
        like = model.start()
    elif name == "Acoustic":
        like = model.rest()
    else:
        like = jnp.zeros(grid.shape if count is None else (count, *grid.shape))

    def smooth(x: Any) -> Any:
        axes = np.meshgrid(*(np.linspace(0.0, 1.0, n, endpoint=False) for n in x.shape), indexing="ij")
        total = sum(np.sin(2 * np.pi * a + k) for k, a in enumerate(axes)) / max(len(axes), 1)
        return jnp.asarray(0.6 + 0.3 * total, dtype)

    found = jax.tree.map(smooth, like)
    return model.conserved(found) if gas else found


def solved(case: Case, model: Any, y: Any, **options: Any) -> Any:
    """The state after two steps."""
    sol = sciml.solve(model, y, t0=0.0, t1=4e-3, dt=2e-3, solver=case.solver, throw=False, **options)
    return jax.tree.map(lambda x: x[-1], sol.ys)


def equations(jaxpr: Any) -> int:
    """How many equations a program has, those within others included."""
    total = 0
    for equation in jaxpr.eqns:
        total += 1
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            total += equations(inner) if hasattr(inner, "eqns") else 0
    return total


each_case = pytest.mark.parametrize("name", CASES)


@each_case
def test_a_program_is_as_large_for_any_grid(name):
    """So that the time to trace, lower and compile does not depend on the number of cells."""
    case, sizes = CASES[name], []
    for cells in (64, 1024):  # smaller states may be taken apart, element by element
        grid = grid_of(case, cells)
        model = case.make(grid, None)
        y = state(name, model, grid, jnp.float32)
        sizes.append(equations(jax.make_jaxpr(lambda y, model=model: solved(case, model, y))(y).jaxpr))
    # sixteen times the cells: large fields have some barriers more, and multigrid a level for every doubling
    most = 2.0 if name == "FokkerPlanck" else 1.2
    assert 20 < sizes[1] < most * sizes[0]


@pytest.mark.x64
@each_case
def test_both_precisions_agree(name):
    """The state keeps its dtype, whatever the parameters have, and differs by rounding alone."""
    case = CASES[name]
    grid = grid_of(case, 16)
    model = case.make(grid, None)
    ends = {}
    for dtype in (jnp.float32, jnp.float64):
        y = state(name, model, grid, dtype)
        ends[dtype] = jax.tree.leaves(jax.jit(lambda y: solved(case, model, y))(y))
        assert all(x.dtype == dtype for x in ends[dtype])
    for a, b in zip(*ends.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * max(float(jnp.max(jnp.abs(b))), 1e-3))


@each_case
def test_eight_devices_share_a_grid(name):
    """To rounding."""
    case = CASES[name]
    grid = grid_of(case, 32)
    axes = ("x", *(None,) * (case.ndim - 1))
    boundary = None if case.sides is None else case.sides(grid)
    domain = parallel.Domain(axes, boundary=boundary, mesh=parallel.mesh(member=1, x=8))
    whole, split = case.make(grid, None), case.make(grid, domain)
    y = state(name, whole, grid, jnp.float64 if X64 else jnp.float32)
    to_blocks, from_blocks = (getattr(split, way, lambda y: y) for way in ("to_blocks", "from_blocks"))
    found = domain.run(lambda y, model: solved(case, model, y, norm=domain.rms), to_blocks(y), split)
    expected = jax.jit(lambda y: solved(case, whole, y))(y)
    for a, b in zip(jax.tree.leaves(from_blocks(found)), jax.tree.leaves(expected), strict=True):
        atol = (1e-11 if X64 else 1e-5) * max(float(jnp.max(jnp.abs(b))), 1e-3)
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def test_every_conservation_law_and_partitioned_model_is_here():
    kinds = sciml.AbstractConservationLaw, sciml.AbstractPartitioned
    public = (getattr(models, name) for name in dir(models))
    found = {x.__name__ for x in public if python.isclass(x) and issubclass(x, kinds) and not python.isabstract(x)}
    found -= {"AbstractScalarLaw"}
    assert found <= {name.split(" ")[0] for name in CASES}
    assert all(isinstance(case.make(grid_of(case, 16), None), eqx.Module) for case in CASES.values())
