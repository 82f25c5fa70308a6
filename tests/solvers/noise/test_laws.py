"""Laws of solutions against exact ones: each share of a law and each moment within four standard errors."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sciml
from sciml import models, verify
from sciml.solvers import BAOAB

from .test_brownian import within

KEYS = jax.random.split(jax.random.key(5), 4000)


def at(ts, model, y0, *, dt, keys=KEYS, **options):
    """The states of many solves at some times."""
    solve = lambda key: sciml.solve(model, y0, t0=0.0, t1=ts[-1], dt=dt, key=key, saveat=jnp.asarray(ts), **options).ys  # noqa: E731
    return jax.tree.map(lambda x: np.asarray(x, np.float64), jax.jit(jax.vmap(solve))(keys))


def follows(values, law, parts=12):
    """As many of the values as there should be lie in each of some parts that are equally likely."""
    edges = law.ppf(np.arange(1, parts) / parts)
    found = np.digitize(values, edges)[:, None] == np.arange(parts)
    within(found, 1 / parts, np.sqrt((1 - 1 / parts) / parts))


def test_ornstein_uhlenbeck():
    """Its law at each time is normal, and that in the long run known."""
    model = models.OrnsteinUhlenbeck(1.5, 0.5, 0.8)
    ys = at((0.5, 6.0), model, 2.0, dt=1 / 32)
    mean, variance = (
        np.asarray(x) for x in verify.reference("ornstein_uhlenbeck_moments", model, 2.0, jnp.array([0.5, 6.0]))
    )
    for values, m, v in zip(ys.T, mean, variance, strict=True):
        follows(values, scipy.stats.norm(m, np.sqrt(v)))
    np.testing.assert_allclose([mean[1], variance[1]], [0.5, 0.8**2 / 3], rtol=1e-3)


@pytest.mark.parametrize("interpretation", ["ito", "stratonovich"])
@pytest.mark.parametrize("solver", [diffrax.SPaRK(), diffrax.Euler()], ids=["SPaRK", "Euler"])
def test_growth(solver, interpretation):
    """Its logarithm is normal; by the other sense its mean would be off by far more than chance."""
    drift, volatility = 0.3, 0.6
    model = sciml.Stochastic(
        lambda t, y, args: drift * y, lambda t, y, args: volatility * y, interpretation=interpretation
    )
    ys = at((1.0,), model, 2.0, dt=1 / 128, solver=solver)[:, 0]
    rates = {"ito": drift, "stratonovich": drift + volatility**2 / 2}
    mean = 2 * np.exp(rates[interpretation])
    deviation = mean * np.sqrt(np.exp(volatility**2) - 1)
    within(ys, mean, deviation)
    within((ys - mean) ** 2, deviation**2, np.std((ys - mean) ** 2))
    follows(np.log(ys / 2), scipy.stats.norm(rates[interpretation] - volatility**2 / 2, volatility))
    (other,) = (2 * np.exp(rate) for sense, rate in rates.items() if sense != interpretation)
    assert abs(ys.mean() - other) > 8 * deviation / np.sqrt(len(ys))


def test_a_root_as_volatility():
    """The process of Cox, Ingersoll and Ross: its moments, and the gamma law of the long run."""
    rate, level, volatility = 1.5, 1.2, 0.5
    model = sciml.Stochastic(lambda t, y, args: rate * (level - y), lambda t, y, args: volatility * jnp.sqrt(y))
    ys = at((0.5, 6.0), model, 2.0, dt=1 / 32)
    kept = np.exp(-rate * 0.5)
    mean = 2.0 * kept + level * (1 - kept)
    variance = volatility**2 / rate * (2.0 * kept * (1 - kept) + level * (1 - kept) ** 2 / 2)
    within(ys[:, 0], mean, np.sqrt(variance))
    square = (ys[:, 0] - mean) ** 2
    within(square, variance, square.std())
    scale = volatility**2 / (2 * rate)
    follows(ys[:, 1], scipy.stats.gamma(level / scale, scale=scale))


def test_two_wells_of_a_bath():
    """Positions by exp(-U / T), velocities by Maxwell's law, which do not depend on one another."""
    wells = sciml.Langevin(lambda t, x, args: 2.0 * (x - x**3), friction=1.0, temperature=0.8)
    x, v = (y[:, 0, 0] for y in at((16.0,), wells, (jnp.zeros(1), jnp.zeros(1)), dt=0.05, solver=BAOAB()))
    grid = np.linspace(-4, 4, 8001)
    law = np.exp(-2.0 * (grid**4 / 4 - grid**2 / 2) / 0.8)
    follows(x, scipy.stats.rv_histogram((law[:-1] + law[1:], grid), density=False))
    follows(v, scipy.stats.norm(0.0, np.sqrt(0.8)))
    within(np.abs(x) * v**2, np.sum(np.abs(grid) * law) / law.sum() * 0.8, np.std(np.abs(x) * v**2))


def counts_follow(counts, law, together=1):
    """Counts come as often as they should, so many neighbours together, where chance is as good as normal."""
    share = law[: law.size // together * together].reshape(-1, together).sum(1)
    often = np.flatnonzero(share * len(counts) > 15)
    assert share[often].sum() > 0.85
    within(counts[:, None] // together == often, share[often], np.sqrt(share[often] * (1 - share[often])))


def test_births_and_deaths_in_the_long_run():
    model = models.BirthDeath(birth=5.0, death=0.8)
    counts = at((10.0,), model, jnp.full(1, 20.0), dt=None)[:, 0, 0]
    law = np.asarray(verify.reference("one_step_law", model, 60), np.float64)
    np.testing.assert_allclose(law, scipy.stats.poisson(5.0 / 0.8).pmf(np.arange(61)), atol=1e-6)
    counts_follow(counts, law)


def test_two_stable_states_in_the_long_run():
    """Schloegl's reactions with so few molecules that each path has gone from one state to the other and back."""
    model = models.Schloegl(forward=2.4e-6, backward=6.4e-3, inflow=1.25e-4)
    counts = at((40.0,), model, jnp.full(1, 31.0), dt=None, keys=KEYS[:1000], max_steps=100_000)[:, 0, 0]
    law = np.asarray(verify.reference("one_step_law", model, 200), np.float64)
    n = np.arange(201)
    assert law[n < 20].max() > 10 * law[30:45].min() and law[n > 50].max() > 1.3 * law[30:45].min()  # two peaks
    counts_follow(counts, law, together=10)
    for where in (n < 25, (n >= 25) & (n < 50), n >= 50):
        within(np.isin(counts, n[where]), law[where].sum(), np.sqrt(law[where].sum() * (1 - law[where].sum())))
