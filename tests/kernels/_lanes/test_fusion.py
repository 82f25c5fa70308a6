"""Elementwise work over lanes is compiled once for all of its results, and gives what it gave before."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml._choices import choices
from sciml.kernels import _lanes as lanes
from sciml.kernels._lanes._interpret import evaluate, trace

COUNT = 48
MATRIX = np.linspace(-1.0, 1.0, 400).reshape(20, 20)


def mixed(x, s):
    """Three results that share their work, in ten rounds with one subtraction and one slow operation in each."""
    a, b, c = x
    for _ in range(10):
        a, b, c = 0.5 * (b * s + c), a - 0.5 * c, jnp.tanh(a * b)
    return jnp.stack([a, b, c]), a + b * c, a > b


def kinds(x, s):
    y, total, larger = mixed(x, s)
    whole = jnp.floor(10 * y).astype(jnp.int32)
    return (
        y.astype(jnp.float32),
        whole,
        larger,
        jax.lax.complex(total, 2 * total),
        jnp.where(larger, whole, -1).astype(jnp.int8),
    )


def product(x, s):
    """A matrix product, too large to be taken apart, between elementwise work."""
    y, total, _ = mixed(x, s)
    z = jnp.asarray(MATRIX, y.dtype) @ jnp.concatenate([y] * 6 + [y[:2]])
    return mixed(z[:3], total)


def held_back(x, s):
    y, total, _ = mixed(x, s)
    y, total = jax.lax.optimization_barrier((y, total))
    return mixed(y, total)


CASES = (mixed, kinds, product, held_back)


def arguments(count):
    shape = () if count is None else (count,)
    key = jax.random.key(3)
    return jax.random.normal(key, (3, *shape)), jax.random.uniform(key, shape)


def by_lanes(fn, count):
    engine = lanes.Lanes(count)
    return lambda *args: engine.leave(engine.call(fn, *engine.enter(args, count is not None)))


def without_fusion(fn, count):
    engine = lanes.Lanes(count)

    def run(*args):
        values = engine.enter(args, count is not None)
        closed, structure = trace(fn, *values)
        return engine.leave(jax.tree.unflatten(structure, evaluate(closed, values, count)))

    return run


def program(fn, *args):
    return jax.jit(fn).lower(*args).compile().as_text()


def times(name, text):
    return len(re.findall(rf" {name}\(", text))


@pytest.mark.parametrize("count", [None, COUNT])
@pytest.mark.parametrize("fn", CASES)
def test_results_are_those_of_the_function(fn, count):
    args = arguments(count)
    expected = fn(*args) if count is None else jax.vmap(fn, in_axes=-1, out_axes=-1)(*args)
    tol = 1e-12 if args[0].dtype == jnp.float64 else 2e-5
    for ours, theirs in zip(jax.jit(by_lanes(fn, count))(*args), expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=tol, atol=tol if ours.dtype != jnp.float32 else 2e-5)


@pytest.mark.parametrize("count", [None, COUNT])
def test_what_is_not_finite_and_signed_zeros_pass(count):
    def fn(x, s):
        y = [-x[0], x[1] / s, jnp.sqrt(x[2])]
        for _ in range(choices().lanes.fusion_from):
            y = [-y[1], -y[2], -y[0]]
        return jnp.stack(y)

    x, s = jnp.array([0.0, 1.0, -1.0]), jnp.zeros(())
    if count is not None:
        x, s = jnp.broadcast_to(x[:, None], (3, count)), jnp.zeros(count)
    found, expected = np.asarray(jax.jit(by_lanes(fn, count))(x, s)), np.asarray(fn(x, s))
    assert np.isnan(expected).any() and np.isinf(expected).any() and (expected == 0).any()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(expected)[~np.isnan(found)])


@pytest.mark.parametrize("count", [None, COUNT])
def test_work_for_several_results_is_compiled_once(count):
    args = arguments(count)
    assert times("subtract", program(by_lanes(mixed, count), *args)) == 10
    assert times("subtract", program(without_fusion(mixed, count), *args)) > 20


def test_what_a_loop_does_not_change_is_computed_before_it_and_in_one_row():
    def run(x, s):
        engine = lanes.Lanes(COUNT)
        s = engine.enter(s, True)

        def body(_, y):
            return engine.carry(engine.call(lambda y, s: mixed(y, jnp.cos(jnp.exp(-s)))[0], y, s))

        return engine.leave(jax.lax.fori_loop(0, 5, body, engine.carry(engine.enter(x, True))))

    x, s = arguments(COUNT)
    text = program(run, x, s)
    body = next(part for part in text.split("\n\n") if times("tanh", part))
    assert times("subtract", text) == 10 and not times("cosine", body) and times("cosine", text) == 1
    assert not re.search(rf"f\d\d\[2,{COUNT}\]\S* parameter", text)
    expected = x
    for _ in range(5):
        expected = jax.vmap(lambda y, s: mixed(y, jnp.cos(jnp.exp(-s)))[0], -1, -1)(expected, s)
    np.testing.assert_allclose(jax.jit(run)(x, s), expected, rtol=1e-4)


@pytest.mark.parametrize("longest", [1500, 50])
def test_long_work_is_cut_at_barriers(longest, choose):
    choose({"lanes.fusion_ends_from": longest})
    text = program(by_lanes(held_back, COUNT), *arguments(COUNT))
    assert times("subtract", text) == 20 and times("reduce", text) == (2 if longest == 50 else 1)


@pytest.mark.parametrize("count", [None, COUNT])
def test_derivatives(count):
    args = arguments(count)
    run, plain = by_lanes(held_back, count), held_back if count is None else jax.vmap(held_back, -1, -1)
    tangents = jax.tree.map(jnp.ones_like, args)
    for ours, theirs in zip(jax.jvp(run, args, tangents)[1][:2], jax.jvp(plain, args, tangents)[1][:2]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    ours, theirs = (jax.grad(lambda x, s: jnp.sum(fn(x, s)[1]))(*args) for fn in (run, plain))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fn", [mixed, held_back])
@pytest.mark.parametrize("count", [None, COUNT])
def test_forward_mode_in_fusions(fn, count, choose):
    """Where no reverse mode goes, tangents are fused too, and many of them share the results."""
    choose({"lanes.tangents_unfused_at_most": 0})
    args = arguments(count)
    engine = lanes.Lanes(count, reverse=False)
    tangents = jax.tree.map(lambda x: jnp.stack([jnp.ones_like(x), jnp.cos(x)]), args)

    def run(*args):
        return engine.leave(engine.call(fn, *engine.enter(args, count is not None)))

    def twice(run):
        def moved(args, tangents):
            return jax.jvp(lambda *x: jax.lax.scan(lambda x, _: (run(*x)[:2], None), x, length=2)[0], args, tangents)

        return moved

    ours, plain = twice(run), twice(fn if count is None else jax.vmap(fn, -1, -1))
    # the results are not batched, as they are the same for each tangent
    found, expected = (jax.vmap(f, (None, 0), (None, 0))(args, tangents) for f in (ours, plain))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    text = program(ours, args, jax.tree.map(lambda x: x[0], tangents))
    # what the plain program has depends on the JAX: 124 and 248 to 278
    assert times("reduce", text) == 2 and times("subtract", text) <= {mixed: 85, held_back: 270}[fn]


def test_very_long_work_is_cut_wherever_it_is(choose):
    choose({"lanes.fusion_ends_from": 20, "lanes.fusion_at_most": 40})
    args = arguments(COUNT)
    text = program(by_lanes(mixed, COUNT), *args)
    assert times("subtract", text) == 10 and times("reduce", text) == 2
    for ours, theirs in zip(jax.jit(by_lanes(mixed, COUNT))(*args), jax.vmap(mixed, -1, -1)(*args), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("count", [None, COUNT])
def test_work_that_nobody_wants(count):
    def fn(x, s):
        mixed(x, s)
        return x[0]

    args = arguments(count)
    np.testing.assert_array_equal(jax.jit(by_lanes(fn, count))(*args), args[0][0])
