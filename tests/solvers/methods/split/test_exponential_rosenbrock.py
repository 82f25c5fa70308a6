"""Exponential Rosenbrock methods: their functions of matrices, orders where an equation is stiff, Krylov spaces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import sciml
from sciml.solvers.methods.split._exponential_rosenbrock import exponential, krylov_space, whole_space
from tests.families import EXPRB32, EXPRB43


@pytest.mark.x64
def test_the_exponential_of_a_matrix():
    random = np.random.default_rng(0).normal(size=(6, 6))
    run, slope = jax.jit(exponential), jax.jit(jax.grad(lambda a: jnp.sum(exponential(a) * random)))
    for scale in (0.0, 1e-3, 1.0, 20.0):
        np.testing.assert_allclose(run(scale * random), expm(scale * random), rtol=1e-11, atol=1e-13)
    step = 1e-6 * np.random.default_rng(1).normal(size=(6, 6))
    change = np.sum((expm(random + step) - expm(random - step)) * random) / 2
    np.testing.assert_allclose(np.sum(slope(random) * step), change, rtol=1e-7)
    assert np.all(np.isnan(run(1e12 * random)))
    decaying = np.diag([-1e6, -1.0, 0.0])
    np.testing.assert_allclose(run(decaying), expm(decaying), rtol=1e-9, atol=1e-300)


@pytest.mark.x64
def test_functions_of_a_matrix_on_a_krylov_space():
    """They are those of the whole matrix, less about what they say is missing; also where the space ends early."""
    generator, n = np.random.default_rng(0), 30
    matrix = jnp.asarray(-np.diag(np.linspace(0.0, 12.0, n)) + 0.05 * generator.normal(size=(n, n)))
    vector, h = jnp.asarray(generator.normal(size=n)), jnp.asarray(0.7)
    exact = whole_space(matrix, vector).phi(h, 3)[:3]
    for size, most in ((8, 1e-2), (20, 1e-10)):
        found = krylov_space(lambda v: matrix @ v, vector, size).phi(h, 3)
        for value, missing, wanted in zip(found[:3], found[3:], exact):
            off = np.linalg.norm(value - wanted)
            assert off < most and (off < 1e-11 or 0.1 < np.linalg.norm(missing) / off < 10)
    few = jnp.diag(jnp.array([-1.0, -2.0] * (n // 2)))  # of which two products make no more
    found = krylov_space(lambda v: few @ v, vector, 8).phi(h, 1)[0]
    np.testing.assert_allclose(found, whole_space(few, vector).phi(h, 1)[0], rtol=1e-12)


def heat(t, u, args):
    """Diffusion with a source such that x (1 - x) exp(t) is its solution, also on cells (Hochbruck and Ostermann)."""
    n = u.shape[0]
    x = jnp.asarray(np.arange(1, n + 1) / (n + 1.0), u.dtype)
    exact, wide = x * (1 - x) * jnp.exp(t), jnp.pad(u, 1)
    source = exact + 2 * jnp.exp(t) - 1 / (1 + exact**2)
    return (n + 1.0) ** 2 * (wide[2:] - 2 * u + wide[:-2]) + 1 / (1 + u**2) + source


def start(n):
    x = jnp.arange(1.0, n + 1) / (n + 1)
    return x * (1 - x)


@pytest.mark.x64
@pytest.mark.parametrize("solver, order", [(EXPRB32, 3), (EXPRB43, 4)])
def test_the_order_is_that_of_equations_that_are_not_stiff(solver, order):
    """Steps times the largest eigenvalue are hundreds."""
    y0 = start(30)
    run = jax.jit(lambda dt: sciml.solve(heat, y0, t0=0.0, t1=1.0, dt=dt, solver=solver(), throw=False).ys[-1])
    errors = [np.max(np.abs(run(1 / n) - y0 * np.exp(1.0))) for n in (8, 16, 32)]
    slopes = np.diff(np.log2(errors))
    assert np.all(slopes < 0.1 - order) and np.all(slopes > -0.35 - order), errors


@pytest.mark.x64
@pytest.mark.parametrize("solver", [EXPRB32, EXPRB43])
def test_krylov_spaces_of_a_large_equation(solver):
    y0 = start(60)
    sol = sciml.solve(heat, y0, t0=0.0, t1=1.0, rtol=1e-5, atol=1e-6, solver=solver(krylov=25))
    assert np.max(np.abs(sol.ys[-1] - y0 * np.exp(1.0))) < 1e-5 and int(sol.stats.accepted) < 100


@pytest.mark.x64
@pytest.mark.parametrize("solver", [EXPRB32, EXPRB43])
def test_a_stiff_equation_agrees_with_scipy(solver):
    model, y0 = sciml.models.VanDerPol(mu=30.0), [2.0, 0.0]
    field = jax.jit(lambda t, y: model(t, y, None))
    expected = solve_ivp(field, (0.0, 20.0), y0, "Radau", rtol=1e-10, atol=1e-12).y[:, -1]
    sol = sciml.solve(model, jnp.array(y0), t0=0.0, t1=20.0, rtol=1e-6, atol=1e-8, solver=solver())
    np.testing.assert_allclose(sol.ys[-1], expected, rtol=1e-4)


@pytest.mark.x64
def test_gradients_through_krylov_spaces():
    def field(t, u, rate):
        return rate * jnp.roll(u, 1) * jnp.cos(t) - u**3

    def end(rate):
        options = dict(t0=0.0, t1=0.4, dt=0.1, args=rate, solver=sciml.solvers.EXPRB(order=3, krylov=5))
        return jnp.sum(sciml.solve(field, jnp.sin(jnp.arange(1.0, 9.0)), **options).ys ** 2)

    rates, step, run = jnp.array([0.7, 1.3]), 1e-6, jax.jit(end)
    expected = [(run(r + step) - run(r - step)) / (2 * step) for r in rates]
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(end)))(rates), expected, rtol=1e-6)


def test_too_few_dimensions():
    with pytest.raises(ValueError, match="at least 2"):
        sciml.solvers.EXPRB(krylov=1)
