"""Conjugate gradients on a split field: the solution, its gradient, and what is said when there is none."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import Status, parallel
from sciml.spatial import Boundaries, Dirichlet, Grid

pytestmark = pytest.mark.x64


@pytest.fixture(scope="module")
def domain():
    conditions = Boundaries(Grid((8, 4)), Dirichlet(0.0))
    return parallel.Domain(("x", "y"), boundaries=conditions, mesh=parallel.mesh(member=1, x=4, y=2))


def operator(domain, rate, x):
    p = domain.pad(x, 1)
    return x - rate * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * x)


def solve(domain, b, rate, **options):
    return domain.cg(ft.partial(operator, domain, rate), b, **{"rtol": 1e-12, **options})


def right_hand_side():
    return jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)))


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
    assert int(found.status) == 0 and 0 < int(found.steps) <= 32 and int(found.steps) == int(alone.steps)
    assert found.residual <= 1e-12 * np.linalg.norm(b)
    expected = jax.grad(ft.partial(loss, exact), argnums=(0, 1))(b, rate)
    for fn in (split, lambda b, rate: solve(domain, b, rate).value):
        slopes = jax.grad(ft.partial(loss, fn), argnums=(0, 1))(b, rate)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), slopes, expected)


def test_failures_are_codes(domain):
    b, rate = right_hand_side(), jnp.asarray(0.7)
    short = domain.run(lambda b, rate: solve(domain, b, rate, max_steps=2), b, rate)
    assert Status(int(short.status)) is Status.diverged and np.isnan(short.value).all()
    broken = domain.run(ft.partial(solve, domain), b.at[1, 1].set(jnp.nan), rate)
    assert Status(int(broken.status)) is Status.nonfinite
    nothing = solve(domain, jnp.zeros((8, 4)), rate)
    assert int(nothing.steps) == 0 and int(nothing.status) == 0
    with pytest.raises(ValueError, match="`operator` must return what is like `b`"):
        domain.cg(lambda x: x[1:], b, rtol=1e-6)


def test_solution_over_devices(domain):
    b, rate = right_hand_side(), jnp.asarray(0.7)
    found, alone = domain.run(ft.partial(solve, domain), b, rate), solve(domain, b, rate)
    np.testing.assert_allclose(operator(domain, rate, alone.value), b, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.value, alone.value, rtol=1e-9, atol=1e-12)
    assert int(found.status) == 0 and int(found.steps) == int(alone.steps)
