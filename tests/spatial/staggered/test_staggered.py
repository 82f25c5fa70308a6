"""Velocities at the faces of cells: their projection, what they carry, and friction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.spatial import (
    Central,
    Dirichlet,
    FreeSlip,
    Grid,
    LimitedUpwind,
    NoSlip,
    Periodic,
    PressureOutlet,
    StaggeredGradient,
    VelocityInlet,
)
from sciml.spatial.staggered._friction import friction
from sciml.spatial.staggered._projection import Projection
from sciml.spatial.staggered._stokes import viscous
from sciml.spatial.staggered._transport import carry_momentum
from sciml.spatial.staggered._velocity import StaggeredVelocity

GRID = Grid((6, 5), (0.0, 0.0), (1.0, 1.5))
CLOSED = {"x": NoSlip(), "y-": FreeSlip(), "y+": NoSlip((1.0, 0.0))}
THROUGH = {"x-": VelocityInlet((2.0, 0.1)), "x+": PressureOutlet(), "y-": NoSlip(), "y+": PressureOutlet(0.3)}
SETS = {
    "closed": (GRID, CLOSED),
    "through": (GRID, THROUGH),
    "periodic": (GRID, Periodic()),
    "3-D": (Grid((3, 4, 5)), {"x": Periodic(), "y-": NoSlip(), "y+": PressureOutlet(), "z": FreeSlip()}),
}
each_set = pytest.mark.parametrize("name", SETS)


def normal(velocity, seed):
    draw = np.random.default_rng(seed)
    return tuple(jnp.asarray(draw.normal(size=shape)) for shape in velocity.shapes)


def inner(velocity, a, b):
    """The integral of the product, in which faces on a side have half of the volume of others."""
    total = 0.0
    for i, (x, y) in enumerate(zip(a, b)):
        at = tuple("node" if axis == i else "center" for axis in range(velocity.grid.ndim))
        volumes = velocity.grid.volumes(at)
        volumes = jnp.full_like(volumes, velocity.grid.volume) if velocity.pressure.periodic[i] else volumes
        total = total + jnp.sum(velocity.to_unknown(volumes, i) * x * y)
    return float(total)


def at_rest(sides):
    """The same kinds of sides, without values."""
    if not isinstance(sides, dict):
        return sides
    return {key: NoSlip() if isinstance(side, VelocityInlet) else type(side)() for key, side in sides.items()}


def largest(tree):
    return max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(tree))


@pytest.mark.x64
@each_set
def test_the_projection_is_orthogonal_and_leaves_no_divergence(name):
    velocity = StaggeredVelocity(*SETS[name])
    project = Projection(velocity)

    @jax.jit
    def run(u, v):
        end = project(u, t=0.0)
        linear, other = project.linear(u), project.linear(v)
        return end, project.divergence(end, t=0.0), project(end, t=0.0), linear, other, project.accelerate(u, t=0.0)

    u, v = normal(velocity, 0), normal(velocity, 1)
    end, divergence, again, linear, other, (moved, _) = run(u, v)
    assert largest(divergence) < 1e-13 and largest(jax.tree.map(jnp.subtract, end, again)) < 1e-13
    assert abs(inner(velocity, linear, v) - inner(velocity, u, other)) < 1e-13  # symmetric
    gone = jax.tree.map(jnp.subtract, u, linear)
    assert abs(inner(velocity, linear, gone)) < 1e-13
    # given pressures push, without making divergence
    assert largest(project.linear(jax.tree.map(jnp.subtract, moved, project.linear(moved)))) < 1e-13


@pytest.mark.x64
@pytest.mark.parametrize("name", ["closed", "3-D"])
def test_central_transport_keeps_the_energy(name):
    grid, sides = SETS[name]
    sides = {**sides, "y+": NoSlip()} if isinstance(sides, dict) else sides
    velocity = StaggeredVelocity(grid, sides)

    @jax.jit
    def run(u):
        u = Projection(velocity)(u)
        return u, *(carry_momentum(velocity, scheme, u, 0.0, None) for scheme in (Central(), LimitedUpwind()))

    u, rates, smeared = run(normal(velocity, 2))
    assert abs(inner(velocity, u, rates)) < 1e-13 < abs(inner(velocity, rates, rates))
    assert inner(velocity, u, smeared) < 0


@pytest.mark.x64
@each_set
def test_friction_of_a_uniform_viscosity_is_the_laplacian(name):
    """Where the velocity has no divergence; not in the cells at an outlet, where no stress acts."""
    grid, sides = SETS[name]
    velocity = StaggeredVelocity(grid, at_rest(sides))

    @jax.jit
    def run(u):
        u = Projection(velocity).linear(u)
        stress = friction(velocity, velocity.strain(u), jnp.full(grid.shape, 0.7))
        return stress, viscous(velocity, jnp.asarray(0.7), u)

    stress, plain = run(normal(velocity, 3))
    apart = jax.tree.map(jnp.subtract, stress, plain)
    inside = [x[(slice(1, -1),) * x.ndim] for x in apart] if name in ("through", "3-D") else apart
    assert largest(inside) < 1e-11


@pytest.mark.x64
def test_orders_of_transport_and_rates_of_sides():
    """Second order away from walls, for both schemes; where a side moves, its rate is part of the balance."""

    def error(n, scheme):
        grid = Grid((n, n), 0.0, 2 * np.pi)
        velocity = StaggeredVelocity(grid, Periodic())
        u = velocity.sample(lambda x, y: (2 + jnp.sin(x + y), 3 - jnp.sin(x + y)))
        rate = jax.jit(lambda u: carry_momentum(velocity, scheme, u, 0.0, None)[0])(u)
        x, y = velocity.coordinates(0)
        return float(jnp.mean(jnp.abs(rate + 5 * jnp.cos(x + y))))

    for scheme in (Central(), LimitedUpwind()):
        assert 3.3 < error(16, scheme) / error(32, scheme) < 5.5
    sides = {**THROUGH, "x-": VelocityInlet((lambda t, args: args * t**2, 0.0))}
    velocity = StaggeredVelocity(GRID, sides)

    @jax.jit
    def run(force):
        acceleration, _ = Projection(velocity).accelerate(force, t=3.0, args=0.5)
        faces = velocity.face_rates(acceleration, t=3.0, args=0.5)
        return faces, StaggeredGradient(GRID, velocity.pressure).divergence(faces)

    faces, divergence = run(normal(velocity, 4))
    assert jnp.allclose(faces[0][0], 3.0)  # the rate of t**2 / 2
    assert largest(divergence) < 1e-12
    with pytest.raises(ValueError, match="was given"):
        velocity.faces(velocity.zeros())


def test_bad_input():
    with pytest.raises(ValueError, match="two or three axes"):
        StaggeredVelocity(Grid(8), NoSlip())
    with pytest.raises(TypeError, match="must be Periodic"):
        StaggeredVelocity(GRID, Dirichlet(0.0))
    with pytest.raises(TypeError, match="one value for each axis"):
        NoSlip(1.0)
    with pytest.raises(ValueError, match="normal to the side"):
        StaggeredVelocity(GRID, {"x": Periodic(), "y": NoSlip((1.0, 0.5))})
    with pytest.raises(ValueError, match="none for the component along y"):
        StaggeredVelocity(GRID, {"x": VelocityInlet((1.0,)), "y": NoSlip()})
    velocity = StaggeredVelocity(GRID, NoSlip())
    with pytest.raises(ValueError, match=r"along y must be .* shape \(6, 4\)"):
        velocity.sample((0.0, jnp.zeros((6, 5))))
    with pytest.raises(ValueError, match="2 components"):
        velocity.sample((0.0,))
    # one value for each place along the side
    wrong = StaggeredVelocity(GRID, {**THROUGH, "x-": VelocityInlet((jnp.ones(6), 0.0))})
    with pytest.raises(ValueError, match="across x must broadcast"):
        wrong.faces(wrong.zeros(), t=0.0)
