"""Flow that cannot be compressed on grids whose cells differ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import verify
from sciml.models import Carried, FlowState, ImplicitFriction, IncompressibleFlow, Obstacle, Smagorinsky
from sciml.solvers import RKC2, SSPRK33
from sciml.spatial import (
    Boundaries,
    Dirichlet,
    EllipticOperator,
    Extrapolate,
    Grid,
    Laplacian,
    LimitedUpwind,
    Neumann,
    NoSlip,
    OrthogonalGrid,
    Periodic,
    Polar,
    PressureOutlet,
    VelocityInlet,
    clustered_faces,
    stretched_faces,
)


def largest(tree):
    return max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(tree))


def random_state(flow, seed=0):
    rng = np.random.default_rng(seed)
    u = tuple(jnp.asarray(rng.normal(size=shape)) for shape in flow.velocity.shapes)
    carried = {name: jnp.asarray(rng.normal(size=flow.grid.shape)) for name in flow.carried}
    return flow.project(FlowState(u, carried))


@pytest.mark.x64
def test_even_faces_are_as_a_grid():
    """Every term and side: inlet, outlet, walls, a body, what is carried, eddies; and the pressure by matrices."""
    shape, upper = (6, 4), (1.5, 1.0)
    even = Grid(shape, (0.0, 0.0), upper)
    faces = OrthogonalGrid([np.linspace(0.0, b, n + 1) for n, b in zip(shape, upper)])
    share = jnp.asarray(np.random.default_rng(1).uniform(size=shape))
    x_sides = {"x-": VelocityInlet((jnp.array([0.3, 1.0, 1.0, 0.2]), 0.1)), "x+": PressureOutlet(0.4)}

    @jax.jit
    def rates():
        found = []
        for eddies in (None, Smagorinsky()):
            for grid in (even, faces):
                dye = Carried({"x-": Dirichlet(1.0), "x+": Extrapolate(), "y": Neumann(0.0)}, 0.2)
                flow = IncompressibleFlow(
                    grid,
                    {**x_sides, "y-": NoSlip(), "y+": NoSlip((0.5, 0.0))},
                    viscosity=0.1,
                    carried={"dye": dye},
                    forces=[Obstacle(share, 0.2)],
                    eddies=eddies,
                )
                y = random_state(flow)
                more = flow.pressure(y), flow.divergence(y), flow.energy(y), flow.crossing_rate(0.0, y, None)
                found.append((flow(0.0, y, None), more, flow.forces[0].force(flow, y), flow.vorticity(y)))
        return found

    plain, stretched, thick, thick_stretched = rates()
    assert largest(jax.tree.map(jnp.subtract, plain, stretched)) < 1e-10
    assert largest(jax.tree.map(jnp.subtract, thick, thick_stretched)) < 1e-10


@pytest.mark.x64
@pytest.mark.parametrize("closed", [False, True], ids=["periodic", "walls"])
def test_balances_where_cells_differ(closed):
    """Transport keeps the energy, momentum goes to the body alone, and the divergence is zero to rounding."""
    grid = OrthogonalGrid([clustered_faces(7, 0.0, 1.0, strength=1.5), stretched_faces(6, lambda s: s + s**2)])
    sides = NoSlip() if closed else Periodic()
    body = Obstacle(jnp.asarray(np.random.default_rng(2).uniform(size=grid.shape)), 0.1)
    still, stopped = IncompressibleFlow(grid, sides, 0.0), IncompressibleFlow(grid, sides, 0.1, forces=[body])

    @jax.jit
    def run():
        y = random_state(still)
        places = [still.velocity.component(i).location for i in range(2)]
        moved = still(0.0, y, None)
        work = sum(grid.integrate(u * v, at) for u, v, at in zip(y.velocity, moved.velocity, places))
        slowed = stopped(0.0, y, None)
        lost = jnp.stack([grid.integrate(u, at) for u, at in zip(slowed.velocity, places)])
        return work, lost + body.force(stopped, y), still.divergence(y), still.divergence(moved)

    work, left, *divergence = run()
    assert abs(work) < 1e-12 and largest(divergence) < 1e-11
    if not closed:
        np.testing.assert_allclose(left, 0.0, atol=1e-12)


@pytest.mark.x64
def test_vortices_on_stretched_cells_at_their_order():
    """The rates of Taylor's and Green's vortices, and gradients by viscosity, on cells that differ threefold."""

    def errors(n):
        bent = stretched_faces(n, lambda s: 2 * np.pi * (s + 0.5 / (2 * np.pi) * np.sin(2 * np.pi * s)))
        flow = IncompressibleFlow(OrthogonalGrid([bent, bent]), Periodic(), viscosity=0.05)

        @jax.jit
        def run():
            start = flow.start(lambda x, y: verify.reference("taylor_green_flow", x, y)[:2])
            return sciml.solve(flow, start, t0=0.0, t1=0.2, dt=0.02, solver=SSPRK33()).ys.velocity[1][-1]

        exact = verify.reference("taylor_green_flow", *flow.velocity.coordinates(1), 0.2)[1]
        return float(jnp.sqrt(jnp.mean((run() - exact) ** 2)))

    coarse, fine = errors(16), errors(32)
    assert fine < 0.01 and 3.3 < coarse / fine < 5.0, (coarse, fine)


def test_bad_input():
    disc = OrthogonalGrid([np.linspace(0.5, 1.0, 5), np.linspace(0.0, 1.0, 5)], Polar())
    with pytest.raises(ValueError, match="Cartesian"):
        IncompressibleFlow(disc, NoSlip())
    grid = OrthogonalGrid([np.linspace(0.0, 1.0, 5) ** 2] * 2)
    with pytest.raises(ValueError, match="uniform `Grid`"):
        ImplicitFriction(IncompressibleFlow(grid, NoSlip()))
    upwind = IncompressibleFlow(grid, NoSlip(), transport=LimitedUpwind())
    with pytest.raises(ValueError, match="Central"):
        upwind(0.0, upwind.start(), None)
    with pytest.raises(ValueError, match="unknowns at centres"):
        EllipticOperator(Boundaries(grid, Dirichlet(0.0), "node"))
    with pytest.raises(ValueError, match="unknowns at centres"):
        Laplacian(grid, Boundaries(grid, Dirichlet(0.0), "node"))


@pytest.mark.x64
def test_walls_of_a_body_are_where_they_are_meant_to_be():
    """Above a plate within the grid that is at rest, below a lid: a line from the surface, and its friction."""
    surface, viscosity = 0.31, 1.0

    def errors(n, width, time):
        grid = Grid((4, n))
        plate = Obstacle.of_distance(grid.centers[1] - surface + 0 * grid.centers[0], width / n, viscosity, time)
        sides = {"x": Periodic(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}
        flow = IncompressibleFlow(grid, sides, viscosity, forces=[plate])
        start = flow.start(lambda x, y: (jnp.maximum(y - surface, 0.0) / (1 - surface) + 0 * x, 0.0))
        ys = sciml.solve(flow, start, t0=0.0, t1=0.4, dt=0.01, solver=RKC2()).ys
        end = jax.tree.map(lambda x: x[-1], ys)
        above = grid.centers[1][0] > surface + width / n
        exact = (grid.centers[1][0] - surface) / (1 - surface)
        moved = jnp.where(above, end.velocity[0][0] - exact, 0.0)
        return jnp.max(jnp.abs(moved)), plate.force(flow, end)[0] - viscosity / (1 - surface)

    found = jax.jit(lambda: (errors(32, 2.0, 2e-4), errors(32, 3.0, 5e-5)))()
    for velocity, force in found:  # to a tenth of a cell
        assert velocity < 0.1 / 32 and abs(force) < 0.2 / 32
