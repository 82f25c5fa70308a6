"""Products of matrices in pullbacks: sums of them as one product, and factors transposed before a loop."""

import collections
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jax._matrix_products import with_fast_products


def operations(fn, *args):
    return collections.Counter(eqn.primitive.name for eqn in jax.make_jaxpr(fn)(*args).eqns)


def factors(shape, count, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), count)
    return [jax.random.normal(key, shape, dtype) for key in keys]


SUMS = {
    # lanes last, members of a sum and a term that is none; how many products are left
    "rows": (lambda a, b, c, d: b + (a @ c.T + c @ d.T + b), 1),
    "columns": (lambda a, b, c, d: b + (a @ c.T).T + (c @ d.T).T, 1),
    "transposed twice": (lambda a, b, c, d: (a @ c.T).T.T + (c @ d.T).T.T, 1),
    "two kinds": (lambda a, b, c, d: a @ c.T + (c @ d.T).T + d @ a.T + (a @ d.T).T, 2),
    "one is used twice": (lambda a, b, c, d: (lambda p: p + c @ d.T + d @ a.T + jnp.sin(p))(a @ c.T), 2),
    "a sum is used twice": (lambda a, b, c, d: (lambda p: p + jnp.cos(p))(a @ c.T + c @ d.T), 1),
    "beside a number": (lambda a, b, c, d: 2.0 + (a @ c.T + c @ d.T), 1),
    "one product": (lambda a, b, c, d: b + a @ c.T, 1),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_products_are_one_product(name, dtype):
    fn, products = SUMS[name]
    a, c, d = factors((20, 3), 3, dtype)
    (b,) = factors((20, 20), 1, dtype)
    fast = with_fast_products(fn)
    assert operations(fast, a, b, c, d)["dot_general"] == products
    np.testing.assert_allclose(jax.jit(fast)(a, b, c, d), fn(a, b, c, d), rtol=1e-5, atol=1e-5)
    stacked = [jnp.stack([x, 2 * x]) for x in (a, b, c, d)]
    np.testing.assert_allclose(jax.vmap(fast)(*stacked), jax.vmap(fn)(*stacked), rtol=1e-5, atol=1e-5)
    if dtype == jnp.float32:
        expected = jax.grad(lambda *x: jnp.sum(fn(*x) ** 2), argnums=(0, 1, 2, 3))(a, b, c, d)
        found = jax.grad(lambda *x: jnp.sum(fast(*x) ** 2), argnums=(0, 1, 2, 3))(a, b, c, d)
        for x, y in zip(found, expected):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-3)


def test_products_of_many_lanes_are_added():
    a, c, d = factors((4, 50), 3)  # their factors are larger than the sum
    assert operations(with_fast_products(lambda a, c, d: a @ c.T + c @ d.T), a, c, d)["dot_general"] == 2


def test_what_returns_nothing_runs():
    seen = []

    def fn(a, c):
        jax.debug.callback(lambda x: seen.append(float(x)), jnp.sum(a))
        return a @ c.T + c @ a.T

    a, c = factors((20, 3), 2)
    np.testing.assert_allclose(with_fast_products(fn)(a, c), a @ c.T + c @ a.T, rtol=1e-5)
    jax.effects_barrier()
    assert len(seen) == 1


N, WIDTH, MEMBERS = 6, 40, 4
FIELDS = {
    "W @ y": lambda t, y, w: w[0] @ jnp.tanh(w[1] @ y),
    "W.T @ y": lambda t, y, w: w[1].T @ jnp.tanh(w[0].T @ y),
    "y @ W": lambda t, y, w: jnp.tanh(y @ w[0]) @ w[1],
    "y @ W.T": lambda t, y, w: jnp.tanh(y @ w[1].T) @ w[0].T,
    "y times t": lambda t, y, w: jnp.tanh(y @ (w[0] * jnp.cos(t))) @ w[1],
}
STEPS = {"fixed": dict(dt=0.125), "adaptive": dict(rtol=1e-4, atol=1e-4)}


def weights():
    one, other = factors((N, WIDTH), 2, jnp.result_type(float))
    return [one, other.T / WIDTH]


def solve(field, steps, w, y0, adjoint=None):
    return sciml.solve(field, y0, t0=0.0, t1=1.0, args=w, adjoint=adjoint, throw=False, **steps).ys


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", FIELDS)
def test_networks_in_every_notation_are_right(name, steps):
    field, steps, w = FIELDS[name], STEPS[steps], weights()
    y0 = jax.random.normal(jax.random.key(1), (MEMBERS, N))

    def total(every):  # over all members, or one after another
        return jax.jit(jax.value_and_grad(lambda w, y0: jnp.sum(every(lambda y: solve(field, steps, w, y), y0) ** 2)))

    value, found = total(lambda one, y0: jax.vmap(one)(y0))(w, y0)
    expected_value, expected = total(jax.lax.map)(w, y0)
    tol = 1e-5 if jnp.result_type(float) == jnp.float32 else 1e-11
    np.testing.assert_allclose(value, expected_value, rtol=tol)
    for x, y in zip(found, expected):
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol * float(jnp.max(jnp.abs(y))))


@pytest.mark.parametrize("name", FIELDS)
def test_forward_mode_in_every_notation_is_right(name):
    w, y0 = weights(), jax.random.normal(jax.random.key(1), (MEMBERS, N))

    def moved(every):
        def ends(w):
            return every(lambda y: solve(FIELDS[name], STEPS["fixed"], w, y, sciml.adjoints.Direct()), y0)

        return jax.jit(lambda w: jax.jvp(ends, (w,), (w,)))(w)

    tol = 1e-4 if jnp.result_type(float) == jnp.float32 else 1e-11
    for x, y in zip(moved(lambda one, y0: jax.vmap(one)(y0)), moved(jax.lax.map)):
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol)


@pytest.mark.optimised
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", ["W @ y", "W.T @ y", "y @ W", "y @ W.T"])
def test_no_loop_over_steps_reads_weights_by_columns(name, gradient):
    field, w, y0 = FIELDS[name], weights(), jnp.ones((MEMBERS, N))

    def batch(w):
        return jax.vmap(lambda y: solve(field, dict(rtol=1e-4, atol=1e-4), w, y))(y0)

    run = jax.grad(lambda w: jnp.sum(batch(w) ** 2)) if gradient else batch
    text = jax.jit(run).lower(w).compile().as_text()
    products = [line for line in text.splitlines() if re.search(r" dot\(", line)]
    by_columns = [line for line in products if "lhs_contracting_dims={0}" in line]
    assert len(products) > 10
    assert len(by_columns) <= 4  # those of the first step's size stand in no loop
    by_weights = [line for line in products if re.search(rf"= \w+\[({N},{WIDTH}|{WIDTH},{N})\]", line)]
    assert len(by_weights) == (2 if gradient else 0)  # their cotangents, in one product for each
