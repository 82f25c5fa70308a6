"""Jump diffusions by schedules: laws of jumps at a constant rate, and at a rate that depends on the state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

from .test_brownian import within

KEYS = jax.random.split(jax.random.key(11), 4000)


def schedule(key, rate, most, values, update):
    times = jnp.cumsum(jax.random.exponential(key, (most,))) / rate
    return sciml.Schedule(times, update, values)


def merton(key, size=0.1, rate=3.0):
    of_path, of_times, of_sizes = jax.random.split(key, 3)
    sizes = size * jax.random.normal(of_sizes, (16,))
    jumps = schedule(of_times, rate, 16, sizes, lambda t, y, args, jump: y * jnp.exp(jump))
    growth = sciml.Stochastic(lambda t, y, args: 0.1 * y, lambda t, y, args: 0.2 * y)
    return sciml.solve(growth, 1.0, t0=0.0, t1=1.0, dt=0.25, key=of_path, events=jumps).ys[-1]


def test_law_at_a_constant_rate():
    """The variance of the logarithm, and its fourth moment, to which jumps of random number contribute."""
    ends = np.log(np.asarray(jax.jit(jax.vmap(merton))(KEYS), np.float64))
    within(ends, 0.1 - 0.2**2 / 2, np.std(ends))
    variance = 0.2**2 + 3 * 0.1**2
    centred = ends - ends.mean()
    within(centred**2, variance, np.std(centred**2))
    within(centred**4, 3 * variance**2 + 3 * 3 * 0.1**4, np.std(centred**4))


@pytest.mark.x64
def test_derivative_by_sizes():
    found = jax.grad(lambda size: merton(KEYS[0], size))(0.1)
    ends = jax.vmap(lambda size: merton(KEYS[0], size))(0.1 + jnp.array([-1e-6, 1e-6]))
    np.testing.assert_allclose(found, (ends[1] - ends[0]) / 2e-6, rtol=1e-6)


def test_mean_at_a_rate_that_depends_on_the_state():
    """Jumps that excite one another, by thinning: the mean obeys a linear equation."""
    a, b, bound = 1.0, 0.5, 8.0

    def end(key):
        of_path, of_times, of_chance = jax.random.split(key, 3)
        chance = jax.random.uniform(of_chance, (40,))
        rate = lambda y: a + b * jnp.maximum(y, 0.0)  # noqa: E731
        update = lambda t, y, args, u: jnp.where(u * bound < rate(y), y + 1.0, y)  # noqa: E731
        jumps = schedule(of_times, bound, 40, chance, update)
        model = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: 0.01 * jnp.ones_like(y), noise="additive")
        return sciml.solve(model, 0.0, t0=0.0, t1=2.0, dt=1 / 64, key=of_path, events=jumps).ys[-1]

    ends = jax.jit(jax.vmap(end))(KEYS[:1000])
    within(ends, a / (1 - b) * (1 - np.exp(-(1 - b) * 2.0)), np.std(ends))
