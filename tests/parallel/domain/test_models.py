"""Models of `sciml.models` on a field that is split over devices, each with the method it has by default."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import parallel
from sciml.spatial import Boundaries, Dirichlet, Grid, Neumann, Periodic

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
