"""Conjugate gradients on a split field: the solution, its gradient, and what is said when there is none."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import Status, parallel
from sciml.spatial import Boundaries, Dirichlet, Grid, ImplicitDiffusion, Laplacian


@pytest.fixture(scope="module")
def domain():
    conditions = Boundaries(Grid((8, 4)), Dirichlet(0.0))
    return parallel.Domain(("x", "y"), boundary=conditions, mesh=parallel.mesh(member=1, x=4, y=2))


def operator(domain, rate, x):
    p = domain.pad(x, 1)
    return x - rate * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * x)


def solve(domain, b, rate, **options):
    return domain.cg(ft.partial(operator, domain, rate), b, **{"rtol": 1e-12, **options})


def right_hand_side():
    return jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)))


@pytest.mark.x64
def test_solution_and_gradient(domain):
    b, rate = right_hand_side(), jnp.asarray(0.7)

    def exact(b, rate):
        matrix = jax.jacfwd(ft.partial(operator, domain, rate))(jnp.zeros((8, 4))).reshape(32, 32)
        return jnp.linalg.solve(matrix, b.reshape(32)).reshape(8, 4)

    def loss(fn, b, rate):
        return jnp.sum(fn(b, rate) ** 3)

    def split(b, rate):
        return domain.run(lambda b, rate: solve(domain, b, rate).value, b, rate)

    found = domain.run(ft.partial(solve, domain), b, rate)
    np.testing.assert_allclose(found.value, exact(b, rate), rtol=1e-9, atol=1e-11)
    alone = solve(domain, b, rate)
    assert int(found.status) == 0 and 0 < int(found.n_steps) <= 32 and int(found.n_steps) == int(alone.n_steps)
    assert found.residual <= 1e-12 * np.linalg.norm(b)
    expected = jax.grad(ft.partial(loss, exact), argnums=(0, 1))(b, rate)
    for fn in (split, lambda b, rate: solve(domain, b, rate).value):
        slopes = jax.grad(ft.partial(loss, fn), argnums=(0, 1))(b, rate)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), slopes, expected)


@pytest.mark.x64
def test_failures_are_codes(domain):
    b, rate = right_hand_side(), jnp.asarray(0.7)
    short = domain.run(lambda b, rate: solve(domain, b, rate, max_steps=2), b, rate)
    assert Status(int(short.status)) is Status.diverged and np.isnan(short.value).all()
    broken = domain.run(ft.partial(solve, domain), b.at[1, 1].set(jnp.nan), rate)
    assert Status(int(broken.status)) is Status.nonfinite
    nothing = solve(domain, jnp.zeros((8, 4)), rate)
    assert int(nothing.n_steps) == 0 and int(nothing.status) == 0
    with pytest.raises(ValueError, match="`operator` must return arrays like `b`"):
        domain.cg(lambda x: x[1:], b, rtol=1e-6)


@pytest.mark.x64
def test_solution_over_devices(domain):
    b, rate = right_hand_side(), jnp.asarray(0.7)
    found, alone = domain.run(ft.partial(solve, domain), b, rate), solve(domain, b, rate)
    np.testing.assert_allclose(operator(domain, rate, alone.value), b, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.value, alone.value, rtol=1e-9, atol=1e-12)
    assert int(found.status) == 0 and int(found.n_steps) == int(alone.n_steps)


def second_difference(domain, x):
    """Minus the second derivative on the unit interval, with zero at the walls."""
    p = domain.pad(x, 1)
    return (2 * x - p[2:] - p[:-2]) * x.size**2


def poisson(n, kind):
    domain = parallel.Domain((None,), boundary=Boundaries(Grid((n,)), Dirichlet(0.0)))
    b = jnp.asarray(np.random.default_rng(1).normal(size=n), kind)
    return domain, ft.partial(second_difference, domain), b


def true_residual(operator, x, b):
    return float(np.linalg.norm(np.asarray(b, np.float64) - np.asarray(operator(x), np.float64)))


def test_what_rounding_does_not_allow_is_not_said_to_be_found():
    domain, operator, b = poisson(2048, jnp.float32)
    found = jax.jit(lambda b: domain.cg(operator, b, rtol=1e-6, max_steps=100_000))(b)
    assert Status(int(found.status)) is Status.stagnated and np.isnan(found.value).all()
    size = float(jnp.linalg.norm(b))
    assert found.residual > 1e-4 * size  # the recurrence says 5e-8
    accepted = jax.jit(lambda b: domain.cg(operator, b, rtol=1e-6, accept=0.1, max_steps=100_000))(b)
    assert int(accepted.status) == 0 and accepted.residual <= 0.1 * size
    true = true_residual(operator, accepted.value, b)
    assert 0.5 * true <= accepted.residual <= 2 * true


@pytest.mark.parametrize("kind", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.x64)])
def test_an_easy_system_takes_one_product_more_than_steps(kind):
    products = []

    def counted(x):
        jax.debug.callback(lambda: products.append(1))
        return second_difference(domain, x)

    domain, operator, _ = poisson(16, kind)
    b = jnp.ones(16, kind)
    found = domain.cg(counted, b, rtol=1e-5)
    jax.effects_barrier()
    assert int(found.status) == 0 and int(found.n_steps) == 8 == len(products) - 1  # by symmetry half of the unknowns
    assert found.residual <= 1e-5 * np.linalg.norm(b)
    true = true_residual(operator, found.value, b)
    assert abs(found.residual - true) <= 1e-6 * np.linalg.norm(b)


def test_a_restart_reaches_what_the_recurrence_only_claims():
    n = 512
    domain, operator, _ = poisson(n, jnp.float32)
    b = operator(jnp.asarray(np.random.default_rng(0).normal(size=n), jnp.float32))
    found = jax.jit(lambda b: domain.cg(operator, b, rtol=2e-7, max_steps=100_000))(b)
    single = jax.jit(lambda b: domain.cg(operator, b, rtol=2e-7, accept=1.0, max_steps=100_000))(
        b
    )  # takes what comes first
    assert single.residual > 2e-7 * jnp.linalg.norm(b)
    assert found.n_steps > single.n_steps and found.residual < single.residual


def test_indefinite_and_inconsistent_systems_are_no_success():
    domain = parallel.Domain((None,))
    signs = jnp.asarray([1.0, -1.0] * 8, jnp.float32)
    indefinite = domain.cg(lambda x: signs * x, jnp.ones(16, jnp.float32), rtol=1e-5)
    assert Status(int(indefinite.status)) is Status.diverged and np.isnan(indefinite.value).all()
    assert int(indefinite.n_steps) == 1 and indefinite.residual == 4.0  # there is no step to take
    # a periodic field, whose constants are the kernel, and a right-hand side with a mean
    wave = jnp.cos(2 * jnp.pi * jnp.arange(16, dtype=jnp.float32) / 16)
    inconsistent = domain.cg(ft.partial(second_difference, domain), 1.0 + wave, rtol=1e-5)
    assert int(inconsistent.status) in (Status.diverged, Status.stagnated) and np.isnan(inconsistent.value).all()
    assert inconsistent.residual >= 0.9 * 4.0


def test_members_stop_by_themselves_under_vmap():
    domain, operator, _ = poisson(16, jnp.float32)
    b = jnp.stack([jnp.ones(16), jnp.zeros(16), jnp.arange(16.0), jnp.full(16, jnp.nan)]).astype(jnp.float32)
    solve = ft.partial(domain.cg, operator, rtol=1e-5)
    found, alone = jax.vmap(solve)(b), [solve(x) for x in b]
    assert found.n_steps.tolist() == [int(x.n_steps) for x in alone] == [8, 0, 16, 0]
    assert found.status.tolist() == [0, 0, 0, int(Status.nonfinite)]
    slopes = jax.vmap(jax.grad(lambda b: jnp.sum(solve(b).value ** 2)))(b[:3])
    matrix = jax.jacfwd(operator)(b[0])
    inverse = jnp.linalg.inv(matrix)
    np.testing.assert_allclose(slopes, 2 * (b[:3] @ inverse) @ inverse, rtol=1e-3, atol=1e-5)


def test_devices_agree_where_rounding_ends_the_iteration():
    mesh = parallel.mesh(member=1, x=4, devices=jax.devices()[:4])
    domain = parallel.Domain(("x",), boundary=Boundaries(Grid((512,)), Dirichlet(0.0)), mesh=mesh)
    b = jnp.asarray(np.random.default_rng(1).normal(size=512), jnp.float32)

    def solve(b):
        def operator(x):
            p = domain.pad(x, 1)
            return (2 * x - p[2:] - p[:-2]) * 512**2

        return domain.cg(operator, b, rtol=1e-7, max_steps=100_000)

    found = domain.run(solve, b)
    assert Status(int(found.status)) is Status.stagnated
    assert found.residual > 1e-5 * np.linalg.norm(b)


def test_a_stiff_implicit_step_in_float32_is_as_exact_as_rounding_allows():
    grid = Grid((256,))
    domain = parallel.Domain((None,), boundary=Boundaries(grid, Dirichlet(0.0)))
    diffusion = ImplicitDiffusion(Laplacian(grid, domain), jnp.float32(1.0))
    right = jnp.asarray(np.random.default_rng(2).normal(size=256), jnp.float32)
    found = jax.jit(lambda r: diffusion.solve(1.0, r))(right)
    matrix = np.eye(256) + 256.0**2 * (2 * np.eye(256) - np.eye(256, k=1) - np.eye(256, k=-1))
    matrix[0, 0] += 256.0**2
    matrix[-1, -1] += 256.0**2
    exact = np.linalg.solve(matrix, np.asarray(right, np.float64))
    np.testing.assert_allclose(found, exact, atol=1e-3 * np.max(np.abs(exact)))


def test_what_may_stay_is_no_excuse_for_too_few_steps():
    domain, operator, b = poisson(64, jnp.float32)
    short = domain.cg(operator, b, rtol=1e-6, accept=1e3, max_steps=3)
    assert short.residual < 1e3 * jnp.linalg.norm(b) and Status(int(short.status)) is Status.diverged
