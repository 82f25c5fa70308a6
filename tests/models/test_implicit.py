"""Models with diffusion under implicit-explicit and exponential methods, against tight explicit solutions."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml import models, solvers
from sciml.spatial import Dirichlet, Grid, ImplicitDiffusion, Laplacian, Neumann, Periodic, Robin
from tests import families
from tests.registry_fields import CASES, coefficient

GRID = Grid((6, 8), 0.0, 1.0)
WALLS = {"x-": Dirichlet(0.3), "x+": Neumann(0.1), "y": Periodic()}
STEPS = {"CrankNicolson": 400, "ARS222": 400, "ARS443": 200, "ARK324": 100, "ARK436": 50, "ETDRK4": 50, "ETDRK2": 200}


def _darcy(grid, sides):
    return models.Darcy(grid, sides, k=coefficient(grid), q=jnp.sin(6 * grid.centers[0] * grid.centers[1]), storage=2.0)


MODELS = {c.name: (c.make, c.y0) for c in CASES if c.name not in ("Advection", "Wave", "Diffusion")}
MODELS["Diffusion"] = (lambda grid, sides: models.Diffusion(grid, sides, 0.3), CASES[0].y0)
MODELS["Diffusion-variable"] = (lambda grid, sides: models.Diffusion(grid, sides, coefficient(grid)), CASES[0].y0)
MODELS["Diffusion-tensor"] = (
    lambda grid, sides: models.Diffusion(grid, sides, jnp.array([[1.0, 0.4], [0.4, 2.0]])),
    CASES[0].y0,
)
MODELS["Darcy"] = (_darcy, CASES[0].y0)
MODAL = [n for n in MODELS if n not in ("Diffusion-variable", "Diffusion-tensor", "Darcy")]
# Every method meets a model whose shifts are solved by transforms, and two meet those whose shifts take iterations.
METHODS = {n: ["ARK324", *["ETDRK4"] * (n in MODAL)] for n in MODELS} | {"AllenCahn": list(STEPS)}
METHODS |= {n: ["ARK324", "CrankNicolson"] for n in ("Diffusion-tensor", "Darcy")}
PAIRS = [(n, s) for n, methods in METHODS.items() for s in methods]


def by_small_steps(model, y0, t1=0.02, steps=4000):
    """The end by the classical method of order four, in loops that hold the model once: small programs compile soon."""
    h = t1 / steps
    stages = jnp.array([0.0, 0.5, 0.5, 1.0]), jnp.array([1.0, 2.0, 2.0, 1.0]) / 6

    def step(y, n):
        def stage(carry, x):
            slope, total = carry
            slope = model((n + x[0]) * h, y + x[0] * h * slope, None)
            return (slope, total + x[1] * slope), None

        (_, total), _ = jax.lax.scan(stage, (jnp.zeros_like(y), jnp.zeros_like(y)), stages)
        return y + h * total, None

    return jax.lax.scan(step, y0, jnp.arange(steps, dtype=y0.dtype))[0]


def value_and_gradient(name, periodic, end):
    """Of a weighted sum of the state at the end, by all that the model holds."""
    make, start = MODELS[name]
    model, y0 = make(GRID, Periodic() if periodic else WALLS), start(GRID)
    weights = jax.random.normal(jax.random.key(0), y0.shape)

    def loss(model):
        y = end(model, y0)
        return jnp.sum(weights * y), y

    return jax.jit(jax.value_and_grad(loss, has_aux=True, allow_int=True))(model)


@ft.cache
def reference(name, periodic):
    return value_and_gradient(name, periodic, by_small_steps)


def final(model, y0, solver, dt=None, t1=0.02, **options):
    return sciml.solve(model, y0, t0=0.0, t1=t1, dt=dt, solver=solver, **options).ys[-1]


@pytest.mark.x64
@pytest.mark.parametrize("name, method", PAIRS)
def test_solution_and_gradient_are_those_of_a_tight_explicit_solve(name, method):
    transformed = method.startswith("ETD") and name in ("Burgers", "AdvectionDiffusion")  # of order four
    (_, exact), by = reference(name, transformed)
    solver, dt = getattr(families, method)(), 0.02 / STEPS[method]
    (_, found), found_by = value_and_gradient(name, transformed, lambda model, y0: final(model, y0, solver, dt))
    assert jnp.max(jnp.abs(found - exact)) < 1e-5
    for a, b in zip(jax.tree.leaves(found_by), jax.tree.leaves(by), strict=True):
        assert jnp.max(jnp.abs(a - b)) < 1e-4 * (1 + jnp.max(jnp.abs(b)))


@pytest.mark.parametrize(
    "method, dtype",
    [
        ("CrankNicolson", jnp.float32),
        ("ARK324", jnp.float32),
        pytest.param("ARK324", jnp.float64, marks=pytest.mark.x64),
        pytest.param("ETDRK4", jnp.float64, marks=pytest.mark.x64),
    ],
)
def test_members_and_dtypes(method, dtype):
    """`vmap` over parameters, gradients either side, in the precision of the state."""
    grid = Grid(8)
    y0 = jnp.sin(jnp.pi * grid.centers[0]).astype(dtype)

    def loss(d):
        y = final(models.FisherKPP(grid, Neumann(0.0), d), y0, getattr(families, method)(), dt=0.005)
        assert y.dtype == dtype
        return jnp.sum(y)

    values = jnp.array([0.5, 1.5], dtype)
    slopes = jax.jit(jax.vmap(jax.grad(loss)))(values)
    assert slopes.dtype == dtype and bool(jnp.all(jnp.isfinite(slopes)))
    other = jax.jit(jax.grad(lambda d: jnp.sum(jax.vmap(loss)(d))))(values)
    assert jnp.allclose(slopes, other, rtol=1e-4)


def test_the_type_chooses_the_method():
    sol = sciml.solve(models.Diffusion(Grid(8), Dirichlet(0.0)), jnp.ones(8), t0=0.0, t1=0.1, dt=0.02)
    assert sol.solver == "ARK(order=3)"
    with pytest.raises(TypeError, match=r"requires a diagonal linear part.*Diffusion has no modes.*ARK\(\)`.*RKC2"):
        model = models.Diffusion(Grid(8), Robin(1.0, 1.0, 0.0))
        sciml.solve(model, jnp.ones(8), t0=0.0, t1=0.1, dt=0.02, solver=solvers.ETDRK(order=4))


@pytest.mark.parametrize("method", [families.ARK324, families.ARS222])
def test_walls_that_let_nothing_through_keep_the_mean(method):
    """In float32 too, over many steps: what is rounded must not add up."""
    model = models.Diffusion(Grid(32), Neumann(0.0), 0.01)
    y0 = jnp.asarray(1.5 + 0.4 * jnp.sin(jnp.arange(32.0)), jnp.float32)
    end = final(model, y0, method(), dt=0.01, t1=20.0)
    assert abs(float(jnp.mean(end) / jnp.mean(y0)) - 1) < 1e-5


class Heated(sciml.AbstractSplit):
    """Diffusion whose stiff part holds the values at the walls."""

    laplacian: Laplacian

    def stiff(self, y, args):
        return self.laplacian(y)

    def rest(self, t, y, args):
        return -(y**2)


class HeatedBySpectral(Heated):
    def solve_shifted(self, shift, right, args):
        return ImplicitDiffusion(self.laplacian, 1.0).solve(shift, right)


@pytest.mark.x64
@pytest.mark.parametrize("kind", [Heated, HeatedBySpectral])
def test_a_stiff_part_may_have_a_constant(kind):
    model = kind(Laplacian(Grid(8), Dirichlet(1.0)))
    exact = final(model, jnp.zeros(8), diffrax.Tsit5(), t1=0.1, rtol=1e-10, atol=1e-12)
    for method in (solvers.ARK(order=3), solvers.ARS(order=2), solvers.CrankNicolson()):
        found = final(model, jnp.zeros(8), method, dt=0.001, t1=0.1)
        assert jnp.max(jnp.abs(found - exact)) < 2e-4


@pytest.mark.x64
def test_components_may_have_walls_of_their_own():
    walls = {"x": Robin(1.0, jnp.array([0.5, 2.0])[:, None], 0.3), "y": Neumann(0.0)}
    model = models.ReactionDiffusion(lambda t, y, args: -y, Grid((6, 5)), walls, (0.3, 0.1))
    y0 = jnp.ones((2, 6, 5))
    exact = final(model, y0, diffrax.Tsit5(), t1=0.1, rtol=1e-9, atol=1e-11)
    assert jnp.max(jnp.abs(final(model, y0, solvers.ARK(order=3), dt=0.005, t1=0.1) - exact)) < 1e-5
