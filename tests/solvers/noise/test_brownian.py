"""Brownian motion as a function of a key and of time."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers.noise._brownian import CountedSteps
from sciml.solvers.noise._random_bits import normals, pairs_of_normals, threefry

WORDS = jnp.array([123, 456], jnp.uint32)
DTYPES = [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.x64)]


def within(values, expected, spread, deviations=4.0):
    """The mean of independent values is what is expected, within so many standard errors."""
    values = np.asarray(values, np.float64)
    assert np.all(np.abs(values.mean(0) - expected) < deviations * spread / np.sqrt(len(values)))


def test_bits_are_those_of_jax():
    a, b = jnp.arange(5, dtype=jnp.uint32), 7 + jnp.arange(5, dtype=jnp.uint32)
    found = jnp.concatenate(threefry(WORDS, a, b))
    np.testing.assert_array_equal(found, jax.extend.random.threefry_2x32(WORDS, jnp.concatenate([a, b])))


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_normal(dtype):
    z = np.asarray(jax.jit(lambda: normals(WORDS, jnp.uint32(3), 0, 200_001, dtype))(), np.float64)
    within(z, 0.0, 1.0)
    within(z**2, 1.0, np.sqrt(2))
    within(z**4, 3.0, np.sqrt(96))
    within(z[1:] * z[:-1], 0.0, 1.0)
    assert np.all(np.isfinite(z)) and np.unique(z).size > 150_000


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_do_not_depend_on_how_many_are_drawn(dtype):
    many = normals(WORDS, jnp.uint32(3), 0, 11, dtype)
    for count in (1, 2, 5, 10):
        np.testing.assert_array_equal(normals(WORDS, jnp.uint32(3), 0, count, dtype), many[:count])
    pairs = pairs_of_normals(WORDS, jnp.uint32(3), 4, dtype)
    assert np.unique(np.concatenate([*pairs, many[:4]])).size >= 8  # a pair shares no number


def test_a_path_adds_up():
    path = sciml.BrownianPath(jax.random.key(1), 0.0, 2.0, depth=12)
    ts = jnp.concatenate([jnp.zeros(1), jnp.sort(jax.random.uniform(jax.random.key(2), (9,))) * 2, jnp.full(1, 2.0)])
    dtype = path.t0.dtype
    over = jax.jit(jax.vmap(lambda s, t: jnp.stack(path.over(s, t - s, 3, dtype, True))))
    w, area = jnp.moveaxis(over(ts[:-1], ts[1:]), 1, 0)
    (whole_w, whole_area) = over(ts[:1], ts[-1:])[0]
    np.testing.assert_allclose(w.sum(0), whole_w, atol=1e-5)
    lengths = jnp.diff(ts)[:, None]
    before = jnp.concatenate([jnp.zeros((1, 3), dtype), jnp.cumsum(w, axis=0)[:-1]])
    integral = jnp.sum(lengths * (before + area + w / 2), axis=0)
    np.testing.assert_allclose(integral / 2.0 - whole_w / 2, whole_area, atol=1e-5)


@pytest.mark.parametrize("counted", [False, True])
def test_increments_and_areas_have_their_law(counted):
    def of(key):
        if counted:
            path = CountedSteps(jax.random.bits(key, (2,), jnp.uint32), jnp.zeros(()), jnp.full((), 0.3))
            return [path.over(0.3 * n + jnp.zeros(()), jnp.full((), 0.3), 1, jnp.zeros(()).dtype, True) for n in (1, 2)]
        path = sciml.BrownianPath(key, 0.0, 1.0, depth=12)
        return [path.over(jnp.asarray(s), jnp.asarray(0.3), 1, path.t0.dtype, True) for s in (0.1, 0.4)]

    (w1, a1), (w2, a2) = jax.jit(jax.vmap(of))(jax.random.split(jax.random.key(5), 20_000))
    w, area = np.concatenate([w1, w2], -1), np.concatenate([a1, a2], -1)
    for x, variance in ((w, 0.3), (area, 0.3 / 12)):
        within(x, 0.0, np.sqrt(variance))
        within(x**2, variance, np.sqrt(2) * variance)
    columns = np.concatenate([w, area], -1)
    correlations = np.corrcoef(columns.T) - np.eye(4)
    assert np.abs(correlations).max() < 4.5 / np.sqrt(20_000)


def test_a_step_finds_its_number_at_any_time():
    path = CountedSteps(WORDS, jnp.asarray(5.0), jnp.asarray(0.1))
    steps = [path.over(jnp.asarray(5.0 + 0.1 * n), path.dt, 2, path.t0.dtype, False)[0] for n in range(40)]
    assert np.unique(np.concatenate(steps)).size == 80
    shorter = path.over(jnp.asarray(5.0 + 0.1 * 7), path.dt / 4, 2, path.t0.dtype, False)[0]
    np.testing.assert_allclose(shorter, steps[7] / 2, rtol=1e-5)


def test_bad_paths_are_refused():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="`t1` of a `BrownianPath` must come after"):
        sciml.BrownianPath(key, 1.0, 0.0)
    with pytest.raises(ValueError, match="between 1 and 30"):
        sciml.BrownianPath(key, 0.0, 1.0, depth=31)
    with pytest.raises(TypeError, match=r"jax.random.key\(3\)"):
        sciml.BrownianPath(3, 0.0, 1.0)
