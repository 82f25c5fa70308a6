"""Functions that read a vector in parts: the same values and derivatives, with a barrier on the way back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jax.programs import programs_within
from sciml.solvers.linear._read_in_parts import read_in_parts
from sciml.solvers.methods.implicit import _rosenbrock
from sciml.solvers.terms._barrier import stage_barrier

N = 96


def reaction(a, b, c):
    slow, fast = -0.04 * a + b * c, jnp.sin(b) * b
    return jnp.concatenate([slow, -slow - fast, fast])


def by_rows(t, x):
    return t * reaction(*x.reshape(3, -1))


def by_slices(t, x):
    return t * reaction(x[:32], x[32:64], x[64:])


def by_split(t, x):
    return t * reaction(*jnp.split(x, 3))


def within_jit(t, x):
    return jax.jit(lambda x: by_rows(t, x * 1.0))(x) + jax.jit(by_rows)(t, x)


def behind_a_barrier(t, x):
    return by_rows(t, stage_barrier(x, t))


def some_of_it(t, x):
    return t * jnp.concatenate([jnp.cos(x[8:48]), x[8:48] ** 2, jnp.ones(16, x.dtype)])


def overlapping(t, x):
    return t * reaction(x[:32], x[31:63], x[64:])


def one_by_one(t, x):
    return t * jnp.stack([x[k] * x[0] for k in range(3)])


def interleaved(t, x):
    return t * reaction(*x.reshape(-1, 3).T)


def as_a_whole(t, x):
    return t * x**2 + by_rows(t, x)


IN_PARTS = [by_rows, by_slices, by_split, behind_a_barrier, some_of_it]
OTHERS = [within_jit, overlapping, one_by_one, interleaved, as_a_whole]


def barriers(jaxpr):
    return sum(
        (eqn.primitive.name == "optimization_barrier") + sum(map(barriers, programs_within(eqn))) for eqn in jaxpr.eqns
    )


@pytest.mark.parametrize("function", [*IN_PARTS, *OTHERS], ids=lambda f: f.__name__)
def test_values_and_derivatives_are_the_same(function):
    t, x = jnp.asarray(0.7), jnp.linspace(-1.0, 2.0, N)
    v, w = jnp.cos(3 * x), jnp.cos(3 * function(t, x))
    run = read_in_parts(function)

    def all_of(f):
        value, back = jax.vjp(f, t, x)
        product = lambda x: jnp.vdot(w, f(t, x))  # noqa: E731
        hessian = jax.jacfwd(jax.grad(product))(x)
        members = jax.vmap(jax.grad(lambda x: jnp.sum(f(t, x) ** 2)))(jnp.stack([x, v]))
        return value, back(w), jax.jvp(f, (t, x), (t, v))[1], hessian, members

    for got, wanted in zip(jax.tree.leaves(all_of(run)), jax.tree.leaves(all_of(function)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5 if x.dtype == jnp.float32 else 1e-13, atol=1e-6)


@pytest.mark.parametrize("function", [*IN_PARTS, *OTHERS], ids=lambda f: f.__name__)
def test_cotangents_of_parts_are_behind_a_barrier(function):
    def pulled(v):
        value, back = jax.vjp(lambda x: read_in_parts(function)(jnp.asarray(0.7), x), v)
        return back(value)

    found = barriers(jax.make_jaxpr(pulled)(jnp.linspace(-1.0, 2.0, N)).jaxpr)
    assert (found >= 2) == (function in IN_PARTS)


def gradients_of_groups(state, members, **steps):
    """Gradients of a solve by its initial state, or the trees of such, and by a rate; a new one for each call."""

    def field(t, y, rate):
        a, b, c = y.reshape(3, -1) if state == "vector" else (y["a"], y["b"], y["c"])
        slow, fast = -0.04 * a + 1e2 * b * c, rate * b * b
        parts = slow, -slow - fast, fast
        return jnp.concatenate(parts) if state == "vector" else dict(zip("abc", parts))

    def end(y0, rate):
        y = sciml.solve(field, y0, t0=0.0, t1=3.0, args=rate, solver=sciml.solvers.Rodas5P(), **steps).ys
        return sum(jnp.sum(x[-1] ** 2) for x in jax.tree.leaves(y))

    parts = jnp.linspace(0.5, 1.0, 32), jnp.zeros(32), jnp.zeros(32)
    y0, gradient = jnp.concatenate(parts) if state == "vector" else dict(zip("abc", parts)), jax.grad(end, (0, 1))
    if members:
        y0, gradient = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x]), y0), jax.vmap(gradient, (0, None))
    return jax.tree.leaves(jax.jit(gradient)(y0, jnp.asarray(3e3)))


@pytest.mark.parametrize(
    ("state", "members", "steps"),
    [
        ("vector", False, dict(dt=0.25)),
        ("tree", False, dict(rtol=1e-3, atol=1e-6)),
        ("vector", True, dict(rtol=1e-3, atol=1e-6)),
    ],
    ids=["vector", "tree", "members"],
)
def test_gradients_of_stiff_groups_are_the_same(state, members, steps, monkeypatch):
    used = []
    monkeypatch.setattr(_rosenbrock, "read_in_parts", lambda f: used.append(f) or read_in_parts(f))
    found = gradients_of_groups(state, members, **steps)
    assert used
    monkeypatch.setattr(_rosenbrock, "read_in_parts", lambda f: f)
    for got, wanted in zip(found, gradients_of_groups(state, members, **steps), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4 if got.dtype == jnp.float32 else 1e-11)


def test_second_derivatives_of_stiff_groups():
    def field(t, y, rate):
        a, b = y.reshape(2, -1)
        return jnp.concatenate([b, 50 * (1 - a**2) * b - rate * a])

    def end(rate):
        return jnp.sum(sciml.solve(field, y0, t0=0.0, t1=1.0, args=rate, solver=solver, dt=0.1).ys[-1] ** 2)

    y0, solver = jnp.concatenate([jnp.linspace(1.5, 2.0, 32), jnp.zeros(32)]), sciml.solvers.Rodas5P()
    rate = jnp.asarray(1.3)
    slope = jax.jit(jax.grad(end))
    step = 1e-4 if rate.dtype == jnp.float64 else 3e-2
    differences = (slope(rate + step) - slope(rate - step)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(jax.grad(end)))(rate), differences, rtol=10 * step)
