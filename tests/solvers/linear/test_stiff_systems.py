"""Stiff systems of more than eight unknowns: what they come from decides how their linear systems are solved."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import sciml
from sciml import inspect
from sciml.solvers import Rodas5P, Rosenbrock23
from sciml.solvers.integrate import _interpolation

from ..common import close


def robertson_groups(t, y, rates):
    """Robertson's reaction, as often as there are rates."""
    a, b, c = y.reshape(-1, 3).T
    slow, fast = -0.04 * a + rates * b * c, 3e7 * b * b
    return jnp.stack([slow, -slow - fast, fast], axis=1).reshape(-1)


def reaction_diffusion(t, y, args):
    """Two species on a line, u next to v at every point."""
    u, v = y["u"], y["v"]
    spread = 30.0 * args

    def laplacian(x, wall):
        wide = jnp.concatenate([wall[None], x, wall[None]])
        return wide[2:] - 2 * x + wide[:-2]

    walls = jnp.asarray(1.0, u.dtype), jnp.asarray(3.0, u.dtype)
    return dict(
        u=1 + u * u * v - 4 * u + spread * laplacian(u, walls[0]),
        v=3 * u - u * u * v + spread * laplacian(v, walls[1]),
    )


def chain(n=60):
    """First-order reactions one after another, the stoichiometry a NumPy array that the model holds."""
    places = np.arange(n - 1)
    stoichiometry = np.zeros((n, n - 1))
    stoichiometry[places, places], stoichiometry[places + 1, places] = -1, 1
    rates = np.logspace(0, 4, n - 1)
    return lambda t, y, args: stoichiometry @ (rates * y[:-1])


GRID = jnp.linspace(0, 1, 20)
STATE = dict(u=1 + jnp.sin(jnp.pi * GRID), v=3 + 0 * GRID)
solve = ft.partial(sciml.solve, t0=0.0, rtol=1e-6, atol=1e-8)


@pytest.mark.x64
@pytest.mark.parametrize("solver", [Rodas5P, Rosenbrock23])
def test_groups_are_as_good_as_one(solver):
    rates = jnp.linspace(0.5e4, 2e4, 8)
    y0 = jnp.tile(jnp.array([1.0, 0.0, 0.0]), 8)
    run = ft.partial(solve, robertson_groups, t1=100.0, solver=solver(), rtol=1e-7, atol=1e-10)
    together = run(y0, args=rates).ys[-1].reshape(-1, 3)
    alone = jnp.stack([run(y0[:3], args=r[None]).ys[-1] for r in rates])
    close(together, alone, rtol=1e-5 if solver is Rosenbrock23 else 1e-6)


@pytest.mark.x64
@pytest.mark.parametrize("solver", [Rodas5P, Rosenbrock23])
def test_a_line_of_two_species_agrees_with_a_peer(solver):
    """SciPy's Radau, on the same right-hand side."""
    from jax.flatten_util import ravel_pytree

    y, unravel = ravel_pytree(STATE)
    field = jax.jit(lambda t, y: ravel_pytree(reaction_diffusion(t, unravel(y), 1.0))[0])
    expected = solve_ivp(lambda t, y: np.asarray(field(t, y)), (0, 2.0), np.asarray(y), "Radau", rtol=1e-9, atol=1e-11)
    sol = solve(reaction_diffusion, STATE, t1=2.0, args=1.0, solver=solver())
    close(ravel_pytree(sol.ys)[0], expected.y[:, -1], rtol=1e-4)


@pytest.mark.x64
@pytest.mark.parametrize("solver, order", [(Rodas5P, 5), (Rosenbrock23, 2)])
def test_order_of_a_large_system(solver, order):
    """Forty copies of a problem that depends on time, of which the solution is known."""
    rate = jnp.linspace(1.0, 2.0, 40)

    def model(t, y, args):
        return rate * jnp.cos(t) * y

    def error(steps):
        sol = sciml.solve(model, jnp.ones(40), t0=0.0, t1=2.0, dt=2.0 / steps, solver=solver())
        return np.abs(np.asarray(sol.ys[-1]) - np.exp(rate * np.sin(2.0))).max()

    coarse, fine = (16, 32) if order == 5 else (128, 256)
    assert abs(np.log2(error(coarse) / error(fine)) - order) < 0.25


CASES = {
    "blocks": (robertson_groups, jnp.tile(jnp.array([1.0, 3e-5, 0.2]), 6), jnp.full(6, 1e4)),
    "band": (reaction_diffusion, STATE, jnp.asarray(1.0)),
    "dense": (
        lambda t, y, k: k * jnp.roll(y, 7) * y.mean() - y**2,
        1 + 0.5 * jnp.sin(jnp.arange(20.0)),
        jnp.asarray(2.0),
    ),
}


@pytest.mark.x64
@pytest.mark.parametrize("case", CASES)
def test_gradients_against_finite_differences(case):
    model, y0, args = CASES[case]

    def loss(scale, adjoint=None):
        sol = sciml.solve(model, y0, t0=0.0, t1=0.5, dt=0.05, args=scale * args, solver=Rodas5P(), adjoint=adjoint)
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(sol.ys))

    step = 1e-5
    both = jax.jit(jax.value_and_grad(loss))
    expected = (both(1 + step)[0] - both(1 - step)[0]) / (2 * step)
    close(both(1.0)[1], expected, rtol=1e-6)
    forward = jax.jit(jax.jacfwd(lambda s: loss(s, sciml.adjoints.Direct())))
    close(forward(1.0), expected, rtol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize("case", CASES)
def test_ensembles_and_their_gradients(case):
    model, y0, args = CASES[case]
    scales = jnp.array([0.5, 1.0, 1.5])

    def end(scale):
        sol = solve(model, y0, t1=0.5, args=scale * args, solver=Rodas5P())
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(sol.ys))

    alone = jax.jit(jax.value_and_grad(end))
    values, each = map(jnp.stack, zip(*map(alone, scales)))
    found, slopes = jax.jit(jax.vmap(jax.value_and_grad(end)))(scales)
    close(found, values, rtol=1e-9)
    close(slopes, each, rtol=1e-6)
    close(jax.jit(jax.grad(lambda s: jax.vmap(end)(s).sum()))(scales), each, rtol=1e-6)


def test_float32():
    sol = sciml.solve(reaction_diffusion, jax.tree.map(lambda x: x.astype(jnp.float32), STATE), t0=0.0, t1=2.0,
                      args=jnp.float32(1.0), rtol=1e-4, atol=1e-5, solver=Rodas5P())  # fmt: skip
    assert sol.ys["u"].dtype == jnp.float32
    # the steady state of this much diffusion is near that of the walls
    assert np.abs(np.asarray(sol.ys["u"][-1]) - 1).max() < 0.2


@pytest.mark.parametrize(
    "model, y0, args",
    [*(CASES[c] for c in ("blocks", "band")), (chain(), jnp.ones(60), None)],
    ids=["blocks", "band", "stoichiometry"],
)
def test_no_dense_factorisation(model, y0, args):
    program = inspect.hlo(lambda y: solve(model, y, t1=0.5, args=args, solver=Rodas5P()).ys, y0)
    assert "lapack" not in str(program)


@pytest.mark.parametrize("size, band, words", [(8, 8, "entry by entry"), (9, 9, "LAPACK"), (16, 1, "entry by entry"),
                                               (17, 1, "cyclic reduction")])  # fmt: skip
def test_how_a_system_is_solved(size, band, words):
    """By how much there is to compute, which is how long it takes to compile."""
    kernel = np.triu(np.tril(np.ones((size, size)), band), -band)
    assert words in inspect.jacobian(lambda t, y, args: jnp.sin(kernel @ y), jnp.ones(size)).structure


def test_dense_systems_are_factorised_by_lapack():
    model, y0, args = CASES["dense"]
    assert "lapack" in str(inspect.hlo(lambda y: solve(model, y, t1=0.5, args=args, solver=Rodas5P()).ys, y0))


def test_a_step_has_one_loop_over_its_stages():
    """Large systems take long to compile: the vector field stands in the program thrice, not once a stage."""
    model = lambda t, y, args: jnp.arctan(jnp.roll(y, 1)) - y  # noqa: E731
    program = str(jax.make_jaxpr(lambda y: solve(model, y, t1=0.5, solver=Rodas5P()).ys)(jnp.ones(40)))
    assert 0 < program.count("= atan") <= 6


def test_members_sharded_on_explicit_axes_with_saved_times():
    """What is read of a program and of an interpolation is computed on no mesh, whatever a call is traced on."""
    mesh = jax.make_mesh((2,), ("members",))
    args = jax.device_put(jnp.array([0.5, 1.0, 1.5, 2.0]), jax.NamedSharding(mesh, jax.P("members")))

    def loss(scale):
        saves = jnp.array([0.1, 0.2])
        ys = solve(reaction_diffusion, STATE, t1=0.2, args=scale, saveat=saves, rtol=1e-4, solver=Rodas5P()).ys
        return jnp.sum(ys["u"] ** 2)

    _interpolation._known.cache_clear()
    slopes = jax.jit(jax.vmap(jax.grad(loss)))(args)
    assert slopes.sharding.spec == jax.P("members")
    np.testing.assert_allclose(np.asarray(slopes)[0], jax.grad(loss)(0.5), rtol=1e-3)


@pytest.mark.x64
def test_two_species_on_a_grid():
    """A wide band: the end against SciPy's Radau, and the derivative by the spread against differences."""

    def field(t, y, spread):
        u, v = y
        wide = jnp.pad(y, ((0, 0), (1, 1), (1, 1)), mode="edge")
        around = wide[:, 2:, 1:-1] + wide[:, :-2, 1:-1] + wide[:, 1:-1, 2:] + wide[:, 1:-1, :-2] - 4 * y
        return jnp.stack([1 + u * u * v - 4 * u, 3 * u - u * u * v]) + spread * around

    x = jnp.linspace(0, 1, 11)
    y0 = jnp.stack([1 + jnp.outer(x, x), 3 - jnp.outer(x, x**2)])
    assert inspect.jacobian(field, y0, args=20.0).structure.startswith("banded, 24 on each side")
    run = jax.jit(lambda spread: solve(field, y0, t1=0.3, args=spread, solver=Rodas5P()).ys[-1])
    flat = jax.jit(lambda t, y: field(t, y.reshape(y0.shape), 20.0).reshape(-1))
    times = dict(rtol=1e-9, atol=1e-11)
    expected = solve_ivp(lambda t, y: np.asarray(flat(t, y)), (0, 0.3), np.asarray(y0).reshape(-1), "Radau", **times)
    close(run(20.0).reshape(-1), expected.y[:, -1], rtol=1e-5)
    slope = jax.jit(jax.grad(lambda spread: run(spread)[0, 2, 3]))(20.0)
    h = 1e-3
    close(slope, (run(20.0 + h) - run(20.0 - h))[0, 2, 3] / (2 * h), rtol=1e-5)
