"""Models of `sciml.models` on a field that is split over devices, each with the method it has by default."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import parallel
from sciml.spatial import (
    Axisymmetric,
    Boundaries,
    Dirichlet,
    Divergence,
    Extrapolate,
    Gradient,
    Grid,
    Laplacian,
    Neumann,
    OrthogonalGrid,
    Periodic,
    Polar,
    Robin,
    clustered_faces,
    stretched_faces,
)

pytestmark = pytest.mark.x64

GRID = Grid((16, 16))
WALLS = {"x-": Dirichlet(0.5), "x+": Neumann(0.1), "y": Dirichlet(0.0)}
CASES = [
    ("Diffusion", "walls", "fixed"),
    ("AllenCahn", "walls", "adaptive"),
    ("AllenCahn", "periodic", "fixed"),
    ("GrayScott", "walls", "adaptive"),
    ("Wave", "walls", "fixed"),
    ("Advection", "periodic", "adaptive"),
    ("AdvectionDiffusion", "walls", "adaptive"),
]


@pytest.fixture(scope="module")
def mesh():
    return parallel.mesh(member=1, devices=jax.devices()[:4], x=2, y=2)


def model_of(name, boundary):
    more = {"velocity": jnp.array([1.0, -0.5])} if name.startswith("Advection") else {}
    return getattr(sciml.models, name)(GRID, boundary, **more)


def start(name):
    x, y = GRID.centers
    u = 0.5 + 0.3 * jnp.sin(2 * jnp.pi * x) * jnp.sin(2 * jnp.pi * y)
    return jnp.stack([u, 1 - u]) if name in ("GrayScott", "Wave") else u


@pytest.mark.parametrize("name, sides, steps", CASES)
def test_a_model_takes_a_domain_for_its_boundary(mesh, name, sides, steps):
    boundaries = Boundaries(GRID, Periodic() if sides == "periodic" else WALLS)
    domain = parallel.Domain(("x", "y"), boundary=boundaries, mesh=mesh)
    options = dict(dt=2e-4) if steps == "fixed" else dict(rtol=1e-6, atol=1e-8)

    def end(u, rate, model):
        return sciml.solve(model, rate * u, t0=0.0, t1=2e-3, norm=domain.rms, **options).ys[-1]

    u, one = start(name), jnp.ones(())
    split = lambda u, rate: domain.run(lambda u, rate: end(u, rate, model_of(name, domain)), u, rate)  # noqa: E731
    whole = lambda u, rate: end(u, rate, model_of(name, boundaries))  # noqa: E731
    if name != "AllenCahn":
        np.testing.assert_allclose(split(u, one), whole(u, one), rtol=1e-8, atol=1e-8)
        return

    def cubes(f, u, rate):
        last = f(u, rate)
        return jnp.sum(last**3), last

    gradient = lambda f: jax.jit(jax.grad(ft.partial(cubes, f), (0, 1), has_aux=True))(u, one)  # noqa: E731
    (found, last), (expected, last_of_whole) = gradient(split), gradient(whole)
    np.testing.assert_allclose(last, last_of_whole, rtol=1e-8, atol=1e-8)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * float(jnp.max(jnp.abs(b))))


@pytest.mark.parametrize("name", ["CahnHilliard", "SwiftHohenberg", "GrossPitaevskii", "Darcy"])
def test_models_that_need_whole_axes_say_so(name):
    domain = parallel.Domain(("x", "y"), boundary=Boundaries(GRID, Periodic()))
    with pytest.raises(TypeError, match=r"must be Boundaries\(grid, conditions\).* a Domain|parameter 'boundary'"):
        getattr(sciml.models, name)(GRID, domain)


CELLS = {
    "stretched": OrthogonalGrid([clustered_faces(16), stretched_faces(16, lambda s: s + 0.1 * np.sin(3 * s))]),
    "disc": OrthogonalGrid([np.linspace(0.0, 1.0, 17), np.linspace(0.0, 2 * np.pi, 17)], Polar()),
    "sector": OrthogonalGrid([np.linspace(0.5, 1.0, 17), np.linspace(0.2, 1.0, 17)], Polar()),
    "can": OrthogonalGrid([clustered_faces(16, widest=0.0), clustered_faces(16)], Axisymmetric()),
}


@pytest.mark.parametrize("devices", [2, 8])
@pytest.mark.parametrize("name", CELLS)
def test_cells_that_differ_are_split_as_well(name, devices):
    """Operators of order two, with their gradients by the field and by a value at a wall along the side."""
    grid = CELLS[name]
    split = {2: dict(a=2, b=1), 8: dict(a=4, b=2)}[devices] if name != "disc" else dict(a=devices, b=1)
    mesh = parallel.mesh(member=1, devices=jax.devices()[:devices], **split)
    first, second = grid.names
    walls = {first + "+": Robin(1.0, 0.5, jnp.linspace(0.3, 0.8, 16))}
    walls |= {} if grid.on_axis else {first + "-": Extrapolate()}
    walls |= {} if grid.turns else {second + "-": Neumann(0.3), second + "+": Dirichlet(0.2)}
    u = 1 + jnp.sin(3 * grid.centers[0]) * jnp.cos(grid.centers[1])

    def applied(boundary, u):
        laplacian, gradient = Laplacian(grid, boundary), Gradient(grid, boundary)
        slopes = gradient(u)
        return laplacian(u), slopes, Divergence(grid, [boundary, boundary])(slopes)

    boundaries = Boundaries(grid, walls)
    domain = parallel.Domain(("a", None if grid.turns else "b"), boundary=boundaries, mesh=mesh)
    found = jax.jit(lambda u: domain.run(lambda u: applied(domain, u), u))(u)
    for ours, theirs in zip(found, jax.jit(lambda u: applied(boundaries, u))(u), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11 * float(jnp.max(jnp.abs(theirs))))

    def loss(x, split):
        u, value = x
        conditions = Boundaries(grid, walls | {first + "+": Robin(1.0, 0.5, value)})
        if not split:
            return sum(jnp.sum(jnp.sin(part)) for part in applied(conditions, u))
        over = parallel.Domain(domain.axes, boundary=conditions, mesh=mesh)
        parts = over.run(lambda u, over: applied(over, u), u, over)
        return sum(jnp.sum(jnp.sin(part)) for part in parts)

    inputs = u, jnp.linspace(0.3, 0.8, 16)
    ours, theirs = (jax.jit(jax.grad(lambda x, s=s: loss(x, s)))(inputs) for s in (True, False))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * float(jnp.max(jnp.abs(b))))


def test_diffusion_on_rings_by_the_method_it_has_by_default(mesh):
    """Implicit steps, whose systems are symmetric by the volumes of cells."""
    grid = CELLS["can"]
    boundaries = Boundaries(grid, {"r": Dirichlet(0.0), "z": Neumann(0.0)})
    domain = parallel.Domain(("x", "y"), boundary=boundaries, mesh=mesh)
    u = jnp.cos(1.5 * grid.centers[0]) * (1 + grid.centers[1])

    def end(boundary, u):
        model = sciml.models.Diffusion(grid, boundary, 0.1)
        return sciml.solve(model, u, t0=0.0, t1=0.2, dt=0.02, norm=domain.rms).ys[-1]

    found = jax.jit(lambda u: domain.run(lambda u: end(domain, u), u))(u)
    np.testing.assert_allclose(found, end(boundaries, u), rtol=1e-8, atol=1e-9)


def test_what_blocks_of_such_cells_have_no_form_for_is_refused(mesh):
    disc = Boundaries(CELLS["disc"], {"r": Dirichlet(0.0)})
    with pytest.raises(ValueError, match="angles cannot be split"):
        parallel.Domain(("x", "y"), boundary=disc, mesh=mesh)
    with pytest.raises(ValueError, match="exchange='step'.*requires a uniform `Grid`"):
        parallel.Domain(("x", None), boundary=disc, mesh=mesh, exchange="step")
    with pytest.raises(ValueError, match="but the operator to"):
        Laplacian(CELLS["can"], parallel.Domain(("x", None), boundary=disc, mesh=mesh))
    nodes = Boundaries(CELLS["stretched"], Dirichlet(0.0), "node")
    with pytest.raises(ValueError, match="unknowns must be at centres"):
        parallel.Domain(("x", "y"), boundary=nodes, mesh=mesh)
    domain = parallel.Domain(("x", None), boundary=disc, mesh=mesh)
    varying = sciml.spatial.VariableLaplacian(CELLS["disc"], domain, jnp.ones((16, 16)))
    with pytest.raises(ValueError, match="a coefficient must be a number"):
        varying(jnp.ones((16, 16)))
    with pytest.raises(ValueError, match="requires a `Domain` with `boundary=`"):
        parallel.Domain(("x", None), mesh=mesh).along(jnp.ones(4), 0)
