"""Multilevel Monte Carlo: exact means within their errors, the work for an error, and the same bits on any devices."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sciml
from sciml import Status
from sciml.parallel import multilevel
from sciml.solvers import PlatenWeak2

KEY = jax.random.key(0)
RATE, VOLATILITY = 0.05, 0.2
STOCK = sciml.Stochastic(lambda t, y, args: RATE * y, lambda t, y, args: args * y)


def price(path, dt, volatility, solver=diffrax.ItoMilstein()):
    """An option to buy at today's price in a year, as of today."""
    end = sciml.solve(STOCK, 1.0, t0=0.0, t1=1.0, dt=dt, args=volatility, key=path, solver=solver).ys[-1]
    return jnp.exp(-RATE) * jnp.maximum(end - 1.0, 0.0)


def with_vega(path, dt, volatility):
    return jax.value_and_grad(lambda v: price(path, dt, v))(volatility)


def exact():
    """The price by Black and Scholes, and its derivative by the volatility."""
    up = RATE / VOLATILITY + VOLATILITY / 2
    value = scipy.stats.norm.cdf(up) - np.exp(-RATE) * scipy.stats.norm.cdf(up - VOLATILITY)
    return value, scipy.stats.norm.pdf(up)


@pytest.mark.x64
def test_price_and_derivative():
    found = multilevel(with_vega, VOLATILITY, key=KEY, error=(5e-3, 3e-2), t1=1.0, block=128)
    assert found.status == Status.successful and len(found.samples) >= 3
    for value, error, expected, least in zip(found.mean, found.standard_error, exact(), (5e-3, 3e-2)):
        assert error < least and abs(value - expected) < 3 * least
    # corrections vary less and less, so that there are fewer and fewer of them
    assert np.all(np.diff(found.variances[0][1:]) < 0) and found.samples[0] > 4 * found.samples[-1]


@pytest.mark.x64
def test_same_bits_on_any_devices():
    runs = [
        multilevel(
            price,
            VOLATILITY,
            key=KEY,
            error=5e-3,
            t1=1.0,
            block=64,
            mesh=sciml.parallel.mesh(devices=jax.devices()[:n]),
        )
        for n in (1, 3, 8)
    ]
    for other in runs[1:]:
        assert other.mean == runs[0].mean and other.standard_error == runs[0].standard_error
        np.testing.assert_array_equal(other.samples, runs[0].samples)


@pytest.mark.x64
def test_work_for_an_error():
    """A tenth of the error takes a hundred times the work with strong order 1, and more with order 1/2."""
    works = {}
    for solver in (diffrax.ItoMilstein(), diffrax.Euler()):
        fn = lambda path, dt: price(path, dt, 0.5, solver)  # noqa: B023, E731
        found = [multilevel(fn, key=KEY, error=error, t1=1.0, block=128) for error in (2e-2, 2e-3)]
        assert all(x.status == Status.successful for x in found)
        works[type(solver).__name__] = found[1].n_steps / found[0].n_steps
    assert 30 < works["ItoMilstein"] < 130, works


@pytest.mark.x64
def test_noise_that_does_not_commute():
    """The mean of Heston's variance is known; with Levy areas pairs of paths differ by their steps, not their roots."""

    def end(path, dt, solver):
        def diffusion(t, y, args):
            root = jnp.sqrt(jnp.maximum(y[1], 1e-8))
            return jnp.stack([jnp.stack([root * y[0], 0 * root]), 0.3 * root * jnp.array([-0.6, 0.8])])

        drift = lambda t, y, args: jnp.stack([0.05 * y[0], 2.0 * (0.09 - y[1])])  # noqa: E731
        model = sciml.Stochastic(drift, diffusion, noise="general")
        return sciml.solve(model, jnp.array([1.0, 0.04]), t0=0.0, t1=1.0, dt=dt, key=path, solver=solver).ys[-1]

    how = dict(key=KEY, error=1e-2, t1=1.0, steps=2)
    found = multilevel(lambda path, dt: end(path, dt, PlatenWeak2()), **how)
    expected = np.exp(0.05), 0.09 - 0.05 * np.exp(-2.0)
    assert found.status == Status.successful
    np.testing.assert_allclose(found.mean, expected, atol=0.03)
    without = multilevel(lambda path, dt: end(path, dt, diffrax.ItoMilstein()), **how)
    assert found.variances[2, 0] < without.variances[2, 0] / 2


def test_refusals():
    with pytest.raises(ValueError, match="`error` must be positive"):
        multilevel(price, 0.2, key=KEY, error=0.0, t1=1.0, block=8)
    with pytest.raises(ValueError, match="`steps`"):
        multilevel(price, 0.2, key=KEY, error=0.1, t1=1.0, steps=0)
    with pytest.raises(ValueError, match="`t1` must come after"):
        multilevel(price, 0.2, key=KEY, error=0.1, t1=0.0)
    with pytest.raises(ValueError, match="known at equal steps"):
        multilevel(
            lambda path, dt: sciml.solve(STOCK, 1.0, t0=0.0, t1=1.0, key=path, args=0.2).ys[-1],
            key=KEY, error=0.1, t1=1.0, block=8,
        )  # fmt: skip
    options = dict(key=KEY, error=0.1, t1=1.0, block=8)
    with pytest.raises(
        ValueError, match="the result of `fn` must depend on `dt`, .*all levels would take the same steps"
    ):
        multilevel(lambda path, dt, volatility: price(path, 0.25, volatility), 0.2, **options)
    with pytest.raises(ValueError, match="the result of `fn` must depend on `path`, .*a sample is not random"):
        multilevel(lambda path, dt: price(KEY, dt, 0.2), **options)


def test_what_is_not_finite_or_not_reached():
    blows = multilevel(lambda path, dt: price(path, dt, jnp.nan), key=KEY, error=0.1, t1=1.0, block=8)
    assert blows.status == Status.nonfinite
    short = multilevel(lambda path, dt: price(path, dt, 0.2) + dt, key=KEY, error=0.02, t1=1.0, block=8, levels=2)
    assert short.status == Status.max_steps_reached and short.bias > 0.02
