"""Poisson numbers against their law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from sciml.solvers.methods.jumps._methods import poisson
from sciml.solvers.noise._random_bits import uniforms, words_of

MEANS = (0.1, 1.0, 9.9, 10.1, 14.0, 100.0, 1e4, 1e6)


@jax.jit
def draw(mean, key):
    dtype = jnp.result_type(float)
    uniform = uniforms(words_of(key), jnp.zeros((), jnp.uint32), 200_000, dtype)
    return poisson(jnp.full_like(uniform, mean), uniform)


@pytest.mark.parametrize("mean", MEANS)
def test_law(mean):
    """A chi-square test over classes of equal weight, fixed by the key, and whole numbers."""
    numbers = np.asarray(draw(mean, jax.random.key(round(mean))), np.float64)
    assert np.all(numbers == np.round(numbers)) and np.all(numbers >= 0)
    edges = np.unique(scipy.stats.poisson.ppf(np.linspace(0, 1, 41)[1:-1], mean))
    probabilities = np.diff(scipy.stats.poisson.cdf(edges, mean), prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(edges, numbers), minlength=len(probabilities))
    keep = probabilities * numbers.size > 5
    statistic = np.sum((counts[keep] - numbers.size * probabilities[keep]) ** 2 / (numbers.size * probabilities[keep]))
    assert scipy.stats.chi2.sf(statistic, max(keep.sum() - 1, 1)) > 1e-4
    # and its tails
    np.testing.assert_allclose(numbers.mean(), mean, atol=4.5 * np.sqrt(mean / numbers.size))
    np.testing.assert_allclose(numbers.var() / mean, 1.0, atol=4.5 * np.sqrt((2 + 1 / mean) / numbers.size))


@pytest.mark.x64
@pytest.mark.parametrize("mean", [0.5, 9.5, 10.0, 12.0, 20.0, 50.0, 1e3, 1e5])
def test_distribution_function(mean):
    """The number for a probability is the exact one, or its neighbour where that is within 4e-6."""
    tails = 10.0 ** -np.linspace(7, 1, 2000)
    probability = np.concatenate([tails, np.linspace(0.1, 0.9, 4001), 1 - tails[::-1]])
    found = np.asarray(poisson(jnp.full(probability.size, mean), jnp.asarray(probability)))
    below, above = (
        np.where(n < 0, 0.0, scipy.special.gammaincc(np.maximum(n, 0) + 1, mean)) for n in (found - 1, found)
    )
    assert np.all(below - 4e-6 < probability) and np.all(probability < above + 4e-6)
