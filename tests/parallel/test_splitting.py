"""Probabilities of rare events, against exact ones of the same chain."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import sciml
from sciml import parallel

A, S, STEPS = 0.9, 0.5, 10
TIMES = jnp.arange(STEPS + 1.0)


def chain(t, y, key):
    return A * y + S * jax.random.normal(key, y.shape, y.dtype)


def value(t, y):
    return y


def estimate(level, advance=chain, y0=0.0, score=value, ts=TIMES, seed=0, dtype=None, **options):
    y0 = jnp.asarray(y0, dtype or jnp.result_type(float))
    return parallel.splitting(advance, y0, score, level=level, ts=ts, key=jax.random.key(seed), **options)


def exact(level):
    """The density of chains below the level, step by step on a grid."""
    x = np.linspace(-8.0, level, 2001)
    weights = np.full(x.size, x[1] - x[0])
    weights[[0, -1]] /= 2
    density = np.exp(-((x / S) ** 2) / 2) / (S * np.sqrt(2 * np.pi))
    matrix = np.exp(-(((x[:, None] - A * x[None]) / S) ** 2) / 2) / (S * np.sqrt(2 * np.pi))
    for _ in range(STEPS - 1):
        density = matrix @ (weights * density)
    return 1 - np.sum(weights * density)


@pytest.mark.parametrize("level", [3.0, 5.5])
def test_the_probability_of_a_chain(level, dtype):
    found = estimate(level, repeats=16, dtype=dtype)
    assert found.status == 0 and found.ys.dtype == dtype
    assert abs(found.probability - exact(level)) < 4 * found.standard_error
    assert found.standard_error < 0.4 * found.probability
    # the paths that reach it do, and all start at the same state
    highest = np.max(found.ys, axis=2)
    np.testing.assert_array_equal(found.reached, highest >= level)
    assert found.ys.shape == (16, 256, STEPS + 1) and not found.ys[:, :, 0].any()


def test_any_score_has_the_same_mean():
    """A poor one, which does not increase with the state everywhere, and has ties."""
    found = estimate(0.5, score=lambda t, y: jnp.floor(2 * y) / 4, repeats=32, paths=64)
    assert abs(found.probability - exact(1.0)) < 4 * found.standard_error


def test_single_molecules():
    """Births and deaths, whose law is a matrix exponential; the count is read at given times."""
    population = sciml.Reactions([[1], [-1]], lambda x, args: jnp.stack([jnp.full_like(x[0], 4.0), x[0]]))

    def advance(t, y, key):
        return sciml.solve(population, y, t0=t, t1=t + 0.25, key=key, max_steps=400).ys[-1]

    found = estimate(14, advance, jnp.full(1, 4.0), lambda t, y: y[0], jnp.linspace(0.0, 2.0, 9), paths=64)
    n = 60
    rates = np.zeros((n, n))
    for x in range(n):
        for to, rate in ((x + 1, 4.0), (x - 1, float(x))):
            rates[x, x] -= rate
            if 0 <= to < n:
                rates[to, x] += rate
    below, law = scipy.linalg.expm(0.25 * rates), np.eye(n)[4]
    for _ in range(8):
        law = below @ law
        law[14:] = 0
    assert abs(found.probability - (1 - law.sum())) < 4 * found.standard_error


def test_a_solve_with_time():
    def advance(t, y, key):
        model = sciml.Stochastic(lambda t, y, args: jnp.sin(t) - y, lambda t, y, args: jnp.full_like(y, 0.3))
        return sciml.solve(model, y, t0=t, t1=t + 0.5, dt=0.25, key=key, solver=diffrax.Euler()).ys[-1]

    ts = jnp.linspace(0.0, 2.0, 5)
    rare = estimate(1.2, advance, ts=ts, paths=128)
    often = jax.vmap(lambda key: estimate(-9.0, advance, ts=ts, paths=128, repeats=1, seed=key).ys[0].max(axis=1))
    counted = np.mean(np.asarray(often(jnp.arange(40))) >= 1.2)
    assert abs(rare.probability - counted) < 4 * np.hypot(rare.standard_error, np.sqrt(counted / 5120))


def test_what_happens_at_once_or_never():
    sure = estimate(-1.0)
    assert sure.probability == 1 and sure.standard_error == 0 and not sure.rounds.any()
    never = estimate(1.5, score=lambda t, y: jnp.minimum(y, 1.0))
    assert never.probability == 0 and not never.reached.any() and never.status == 0


def test_rounds_that_do_not_suffice_and_scores_that_are_nan():
    short = estimate(5.5, max_rounds=3)
    assert short.status == sciml.Status.max_steps_reached and jnp.isnan(short.probability)
    bad = estimate(2.0, score=lambda t, y: jnp.sqrt(y))
    assert bad.status == sciml.Status.nonfinite and jnp.isnan(bad.probability)


def test_members_under_vmap():
    each = jax.vmap(lambda level: estimate(level, repeats=4).probability)(jnp.array([2.0, 3.0]))
    np.testing.assert_allclose(each[1], estimate(3.0, repeats=4).probability, rtol=1e-6)


def test_what_is_refused():
    with pytest.raises(TypeError, match="no useful derivative"):
        jax.grad(lambda y: estimate(3.0, y0=y).probability)(0.0)
    with pytest.raises(ValueError, match="at least two times"):
        estimate(3.0, ts=jnp.zeros(1))
    with pytest.raises(ValueError, match="must be finite and ascending"):
        estimate(3.0, ts=jnp.array([0.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match=r"returns an array of shape \(1,\)"):
        estimate(3.0, score=lambda t, y: y[None])
    with pytest.raises(ValueError, match="`level` must be a number, but is nan"):
        estimate(jnp.nan)
    with pytest.raises(ValueError, match="`advance` must return a state like `y0`"):
        estimate(3.0, advance=lambda t, y, key: y[None])
    with pytest.raises(ValueError, match="`paths` must be at least 2"):
        estimate(3.0, paths=1)
    with pytest.raises(TypeError, match=r"advance\(t, y, key\)"):
        estimate(3.0, advance=lambda y: y)
