"""Fisher information and optimal designs beside those that are known in closed form."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from sciml import inference

from .test_populations import Mixed

pytestmark = pytest.mark.x64

DOSE, RATE, VOLUME = 100.0, 0.4, 20.0


def decay(model, effects, times):
    return inference.Normal(jnp.exp(-model["rate"] * times), 0.1)


def one_compartment(model, effects, times):
    return inference.Normal(DOSE / model["volume"] * jnp.exp(-model["rate"] * times), 0.3)


def log_det_of(observe, model):
    return lambda times: inference.fisher_information(model, observe, subject=times).log_det


def test_information_and_its_gradient_by_times():
    log_det = log_det_of(decay, {"rate": jnp.array(RATE)})
    times = jnp.array([1.0])
    value, slope = jax.value_and_grad(log_det)(times)
    np.testing.assert_allclose(value, np.log(np.exp(-2 * RATE) / 0.01), rtol=1e-12)
    np.testing.assert_allclose(slope, 2 / times - 2 * RATE, rtol=1e-12)
    two = log_det_of(one_compartment, {"rate": jnp.array(RATE), "volume": jnp.array(VOLUME)})
    times = jnp.array([0.7, 3.1])  # the determinant is that of a matrix of two rows
    exact = lambda t: 2 * jnp.log(jnp.abs(t[1] - t[0])) - 2 * RATE * jnp.sum(t)  # noqa: E731
    np.testing.assert_allclose(jax.grad(two)(times), jax.grad(exact)(times), rtol=1e-10)


def test_optimal_times_are_the_analytic_ones():
    """One time at 1 / rate; of two parameters the first time is on its bound, and the second 1 / rate later."""
    best = inference.optimal_design(
        log_det_of(decay, {"rate": jnp.array(RATE)}), jnp.array([0.3]), lower=0.0, upper=9.0
    )
    np.testing.assert_allclose(best.design, [1 / RATE], atol=1e-4)
    np.testing.assert_allclose(best.value, np.log(np.exp(-2) / RATE**2 / 0.01), rtol=1e-10)
    log_det = log_det_of(one_compartment, {"rate": jnp.array(RATE), "volume": jnp.array(VOLUME)})
    options = dict(lower=0.25, upper=24.0, starts=3, key=jax.random.key(0))
    best = inference.optimal_design(log_det, jnp.array([1.0, 9.0]), **options)
    np.testing.assert_allclose(jnp.sort(best.design), [0.25, 0.25 + 1 / RATE], atol=1e-4)


def test_exchanges_choose_among_candidates():
    """Beside all pairs of candidates; the best pair of two parameters is one rate apart."""
    log_det = log_det_of(one_compartment, {"rate": jnp.array(RATE), "volume": jnp.array(VOLUME)})
    candidates = jnp.array([0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0])
    best = inference.optimal_design(
        lambda d: log_det(jnp.stack([d["early"], d["late"]])), {"early": 3.1, "late": 3.0}, candidates=candidates
    )
    pairs = list(itertools.combinations(candidates, 2))
    values = jax.vmap(log_det)(jnp.array(pairs))
    np.testing.assert_allclose(best.value, values.max(), rtol=1e-12)
    np.testing.assert_allclose(sorted([best.design["early"], best.design["late"]]), pairs[int(values.argmax())])
    assert "exchanges" in best.message


def test_information_about_some_parameters():
    """It is the inverse of their part of the covariance; there is none if the data do not determine the others."""
    model = {"rate": jnp.array(RATE), "volume": jnp.array(VOLUME)}
    found = inference.fisher_information(model, one_compartment, subject=jnp.array([0.5, 2.0, 6.0]))
    rate = found.about("rate")
    np.testing.assert_allclose(rate.matrix, [[1 / found.covariance[0, 0]]], rtol=1e-10)
    np.testing.assert_allclose(found.about("volume", "rate").covariance, found.covariance[::-1, ::-1], rtol=1e-10)
    assert found.about("volume", "rate").names == ("volume", "rate")
    assert (
        inference.fisher_information(model, one_compartment, subject=jnp.array([0.5])).about("rate").log_det == -jnp.inf
    )
    with pytest.raises(ValueError, match="'rat' is not a parameter of this information. It has rate, volume"):
        found.about("rat")


def test_information_of_counts_and_of_all_parameters_of_noise():
    model = {"mean": jnp.array([2.0, 5.0]), "noise": jnp.array(0.5)}

    def observe(model, effects, subject):
        return [inference.PoissonCounts(model["mean"]), inference.Normal(jnp.zeros(3), model["noise"])]

    found = inference.fisher_information(model, observe)
    assert found.names == ("mean[0]", "mean[1]", "noise")
    np.testing.assert_allclose(found.matrix, np.diag([1 / 2, 1 / 5, 3 * 2 / 0.25]), atol=1e-12)
    both = 2 * found + found
    np.testing.assert_allclose(both.standard_errors["noise"], np.sqrt(0.25 / 18), rtol=1e-12)
    assert inference.fisher_information(model, observe, lambda m: m["mean"]).names == ("mean[0]", "mean[1]")


def test_a_linear_population_is_exact():
    """Beside the second derivatives of the divergence between normal distributions at other parameters."""
    mixed = Mixed(1)
    times = jnp.asarray(mixed.times[0])
    found = inference.fisher_information(mixed.model, mixed.observe, effects=mixed.effects, subject=times)
    flat, unravel = ravel_pytree(mixed.model)
    mean, covariance = mixed.moments(mixed.model, times)

    def divergence(theta):
        away, other = mixed.moments(unravel(theta), times)
        away = away - mean
        inverse = jnp.linalg.inv(other)
        return 0.5 * (jnp.trace(inverse @ covariance) + away @ inverse @ away + jnp.linalg.slogdet(other)[1])

    np.testing.assert_allclose(found.matrix, jax.jit(jax.hessian(divergence))(flat), rtol=1e-8, atol=1e-9)
    assert found.names[0] == "between"
    np.testing.assert_allclose(found.log_det, np.linalg.slogdet(found.matrix)[1], rtol=1e-8)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(found.matrix), rtol=1e-6)


def test_bad_input_is_named():
    times = jnp.array([1.0, 2.0])
    censored = lambda m, b, t: inference.Censored(decay(m, b, t), jnp.zeros(2, bool), 0.0)  # noqa: E731
    with pytest.raises(TypeError, match="which `Censored` does not provide"):
        inference.fisher_information({"rate": jnp.array(1.0)}, censored, subject=times)
    log_det = log_det_of(one_compartment, {"rate": jnp.array(RATE), "volume": jnp.array(VOLUME)})
    with pytest.raises(ValueError, match="is not finite at the start, because these data do not determine"):
        inference.optimal_design(log_det, jnp.array([1.0]), lower=0.0, upper=9.0)
    with pytest.raises(ValueError, match="`lower` must be below `upper`"):
        inference.optimal_design(log_det, times, lower=9.0, upper=0.0)
    with pytest.raises(ValueError, match="requires `key`"):
        inference.optimal_design(log_det, times, lower=0.0, upper=9.0, starts=2)
    with pytest.raises(ValueError, match="either `candidates` or the bounds"):
        inference.optimal_design(log_det, times, lower=0.0, candidates=times)
    with pytest.raises(ValueError, match="requires the bounds `lower` and `upper`, or `candidates`"):
        inference.optimal_design(log_det, times, lower=0.0)
    with pytest.raises(ValueError, match="`candidates` must be finite numbers of shape"):
        inference.optimal_design(log_det, times, candidates=jnp.nan * times)
    with pytest.raises(ValueError, match="is not finite at the start"):
        inference.optimal_design(log_det, jnp.array([1.0]), candidates=times)
    with pytest.raises(ValueError, match="requires finite bounds"):
        inference.optimal_design(log_det, times, lower=0.0, upper=np.inf, starts=2, key=jax.random.key(0))
