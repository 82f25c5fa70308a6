"""Populations: correlated effects and occasions, standard errors and shrinkage, beside exact linear mixed models."""

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

from sciml import inference
from sciml.training import Positive

pytestmark = pytest.mark.x64

OCCASIONS = np.array([0, 0, 0, 1, 1, 1])
"""The occasion of each visit; one subject misses the second occasion."""


def test_standard_errors_of_counts():
    """Their sandwich has the variance of the data in place of the mean."""
    counts = jnp.array([3.0, 1.0, 4.0, 8.0, 2.0])
    model = {"mean": jnp.array(2.0), "unused": jnp.array(1.0)}
    positive = inference.Improper(Positive())
    priors = [(lambda m: [m["mean"], m["unused"]], positive)]
    density = inference.log_density(model, lambda m: inference.PoissonCounts(m["mean"]), counts, priors)
    found = density.maximum()
    mean = float(counts.mean())
    errors, robust = found.standard_errors(), found.standard_errors(robust=True)
    np.testing.assert_allclose(errors["mean"], np.sqrt(mean / 5), rtol=1e-6)
    np.testing.assert_allclose(robust["mean"], np.sqrt(counts.var() / 5), rtol=1e-6)
    assert np.isinf(errors["unused"]) and np.isinf(robust["unused"])
    low, high = found.intervals()
    np.testing.assert_allclose([low["mean"], high["mean"]], mean * np.exp([-1.959964, 1.959964] / np.sqrt(5 * mean)))
    assert low["unused"] == 0 and np.isinf(high["unused"]) and "36.2%" not in str(found)
    np.testing.assert_allclose(found.standard_errors(lambda m: m["mean"] ** 2), 2 * mean * errors["mean"], rtol=1e-6)
    with pytest.raises(ValueError, match="must be between 0 and 1, but is 95"):
        found.intervals(95)


class Mixed:
    """Lines with correlated offsets and slopes, whose offsets also vary between the two occasions of a subject."""

    model = {
        "line": jnp.array([1.1, 0.4]),
        "spread": jnp.array([0.7, 0.4]),
        "lower": jnp.array([0.6]),
        "between": jnp.array(0.3),
        "noise": jnp.array(0.25),
    }

    def __init__(self, subjects, seed=0):
        rng = np.random.default_rng(seed)
        self.times = np.sort(rng.uniform(0, 2, (subjects, 6)), axis=1)
        both = rng.multivariate_normal(np.zeros(2), [[0.64, 0.144], [0.144, 0.09]], subjects)
        offset = 1.0 + both[:, :1] + 0.4 * rng.normal(size=(subjects, 2))[:, OCCASIONS]
        self.y = offset + (0.5 + both[:, 1:]) * self.times + 0.2 * rng.normal(size=(subjects, 6))
        self.y[0, 3:] = np.nan

    @staticmethod
    def observe(model, effects, times):
        offset = model["line"][0] + effects["subject"][0] + effects["occasion"][OCCASIONS]
        return inference.Normal(offset + (model["line"][1] + effects["subject"][1]) * times, model["noise"])

    @staticmethod
    def effects(model):
        return {
            "subject": inference.MultivariateNormal(jnp.zeros(2), model["spread"], model["lower"]),
            "occasion": inference.Normal(jnp.zeros(2), model["between"]),
        }

    def density(self, **options):
        priors = [
            (lambda m: (m["line"], m["lower"]), inference.Improper()),
            (lambda m: (m["spread"], m["between"], m["noise"]), inference.Improper(Positive())),
        ]
        given = dict(effects=self.effects, subjects=self.times) | options
        return inference.hierarchical(self.model, self.observe, self.y, priors, **given)

    def moments(self, model, times):
        design = jnp.stack([jnp.ones(6), times], axis=1)
        omega = inference.MultivariateNormal(jnp.zeros(2), model["spread"], model["lower"]).covariance
        same = jnp.asarray(OCCASIONS[:, None] == OCCASIONS, float)
        own = same * model["between"] ** 2 + model["noise"] ** 2 * jnp.eye(6)
        return design @ model["line"], design @ omega @ design.T + own

    def exact(self, model):
        """The logarithm of the likelihood of each subject."""
        found = []
        for times, own in zip(self.times, self.y, strict=True):
            seen = np.flatnonzero(~np.isnan(own))
            mean, covariance = self.moments(model, jnp.asarray(times))
            normal = jax.scipy.stats.multivariate_normal
            found.append(normal.logpdf(jnp.asarray(own[seen]), mean[seen], covariance[np.ix_(seen, seen)]))
        return jnp.stack(found)


@pytest.mark.parametrize("method", ["laplace", "foce"])
def test_correlated_effects_and_occasions_are_exact(method):
    mixed = Mixed(5)
    density = mixed.density(method=method)
    value, slope = jax.jit(jax.value_and_grad(density.marginal.log_likelihood))(mixed.model)
    expected, exact_slope = jax.jit(jax.value_and_grad(lambda m: jnp.sum(mixed.exact(m))))(mixed.model)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for name in mixed.model:
        np.testing.assert_allclose(slope[name], exact_slope[name], rtol=1e-8, atol=1e-9)
    modes, covariances = density.modes(mixed.model)
    assert modes["occasion"].shape == (5, 2) and covariances.shape == (5, 4, 4)
    np.testing.assert_allclose(modes["occasion"][0, 1], 0, atol=1e-9)  # nothing was seen of it


def test_residuals_of_a_linear_model():
    """CWRES and NPDE are decorrelated by the exact covariance, and shrinkage is that of the best linear predictors."""
    mixed = Mixed(5)
    found = mixed.density(method="foce").diagnostics(mixed.model)
    for i, own in enumerate(mixed.y):
        seen = ~np.isnan(own)
        mean, covariance = mixed.moments(mixed.model, jnp.asarray(mixed.times[i]))
        np.testing.assert_allclose(found.pred[i], mean, rtol=1e-9)
        values, vectors = np.linalg.eigh(covariance[np.ix_(seen, seen)])
        exact = vectors @ np.diag(values**-0.5) @ vectors.T @ (own - mean)[seen]
        np.testing.assert_allclose(found.cwres[i][seen], exact, rtol=1e-7)
        assert np.isnan(found.cwres[i][~seen]).all()
    np.testing.assert_allclose(found.iwres, (mixed.y - found.ipred) / mixed.model["noise"], rtol=1e-9)
    own = 1 - np.std(found.effects["subject"], axis=0, ddof=1) / mixed.model["spread"]
    np.testing.assert_allclose(found.eta_shrinkage["subject"], own, rtol=1e-9)
    assert found.eta_shrinkage["occasion"].shape == (2,)
    np.testing.assert_allclose(found.epsilon_shrinkage, 1 - np.nanstd(found.iwres, ddof=1), rtol=1e-9)


def test_importance_sampling_of_a_linear_model():
    mixed = Mixed(5)
    value, error = mixed.density(method="foce").log_likelihood(mixed.model, jax.random.key(0), 4000)
    assert abs(value - jnp.sum(mixed.exact(mixed.model))) < 3 * error < 0.1


def test_normalised_errors():
    rng = np.random.default_rng(3)
    factor = np.array([[0.5, 0, 0], [0.3, 0.4, 0], [0.2, -0.1, 0.6]])
    drawn = 2 + rng.normal(size=(20001, 2, 3)) @ factor.T
    dv = drawn[0].copy()
    dv[0, 1] = np.nan
    found = inference.npde(dv, drawn[1:])
    assert np.isnan(found[0, 1])
    np.testing.assert_allclose(found[1], np.linalg.solve(factor, dv[1] - 2), atol=0.06)
    kept = np.linalg.cholesky((factor @ factor.T)[np.ix_([0, 2], [0, 2])])
    np.testing.assert_allclose(found[0, [0, 2]], np.linalg.solve(kept, dv[0, [0, 2]] - 2), atol=0.06)
    assert np.isfinite(inference.npde(dv + 100, drawn[1:])[1]).all()
    with pytest.raises(ValueError, match=r"shapes are \(2, 3\) and \(2, 3\)"):
        inference.npde(dv, drawn[0])
    with pytest.raises(ValueError, match="more replicates than the 3 records, but got 3"):
        inference.npde(dv, drawn[:3])


def test_intervals_hold_the_truth():
    """Intervals of 95% in 400 sets of data with occasions, and their width beside the one that the design predicts."""
    truth = {"mean": jnp.array(1.0), "noise": jnp.array(0.3), "spread": jnp.array([0.6, 0.4])}

    def observe(model, effects, subject):
        own = effects["subject"] + effects["occasion"][:, None] + jnp.zeros((2, 3))
        return inference.Normal(model["mean"] + own, model["noise"])

    def effects(model):
        return {
            "subject": inference.Normal(0.0, model["spread"][0]),
            "occasion": inference.Normal(jnp.zeros(2), model["spread"][1]),
        }

    priors = [
        (lambda m: m["mean"], inference.Improper()),
        (lambda m: [m["noise"], m["spread"]], inference.Improper(Positive())),
    ]
    rng = np.random.default_rng(0)
    drawn = [width * rng.normal(size=shape) for width, shape in ((0.6, (400, 50, 1, 1)), (0.4, (400, 50, 2, 1)))]
    data = 1 + sum(drawn) + 0.3 * rng.normal(size=(400, 50, 2, 3))

    def fitted(data):
        density = inference.hierarchical(truth, observe, data, priors, effects=effects, method="foce").marginal

        def misfit(z, args=None):
            return -density.log_likelihood(density.constrain(density.unravel(z))) / 50

        start = density.ravel(density.unconstrain(truth))
        z = optimistix.minimise(misfit, optimistix.BFGS(1e-7, 1e-7), start, max_steps=60, throw=False).value
        errors = jnp.sqrt(jnp.diagonal(jnp.linalg.inv(50 * jax.jacfwd(jax.grad(misfit))(z))))
        return z - start, errors, density.slope(z) * errors

    away, errors, own_units = jax.jit(jax.vmap(fitted))(data)
    counts = np.sum(np.abs(away) < 1.959964 * errors, axis=0)
    assert np.all((counts >= 360) & (counts <= 392)), counts  # 90 to 98 of 100
    predicted = (50 * inference.fisher_information(truth, observe, effects=effects)).standard_errors
    np.testing.assert_allclose(np.mean(own_units, axis=0), list(predicted.values()), rtol=0.1)
    # the standard deviation of 400 numbers is known to 3.5%, and this holds with four of these
    np.testing.assert_allclose(np.std(away, axis=0), np.mean(errors, axis=0), rtol=0.14)


def test_intervals_hold_the_truth_with_occasions_and_censoring():
    """Intervals of 95% in 200 sets of data: clearance varies between occasions, and low levels are only known to be."""
    sets, subjects, limit, times = 200, 40, 0.5, jnp.array([0.5, 2.0, 5.0, 9.0, 14.0])
    truth = {
        "between": jnp.array(0.2),
        "noise": jnp.array(0.15),
        "spread": jnp.array([0.3, 0.2]),
        "typical": jnp.log(jnp.array([4.0, 25.0])),
    }

    def levels(model, effects):
        clearance, volume = model["typical"] + effects["subject"]
        rates = jnp.exp(clearance + effects["occasion"] - volume)
        return jnp.log(100.0) - volume - rates[:, None] * times[None]

    def observe(model, effects, censored):
        return inference.Censored(inference.LogNormal(levels(model, effects), model["noise"]), censored, limit)

    def effects(model):
        return {
            "subject": inference.Normal(jnp.zeros(2), model["spread"]),
            "occasion": inference.Normal(jnp.zeros(2), model["between"]),
        }

    def fitted(key):
        keys = jax.random.split(key, 3)
        drawn = {
            "subject": truth["spread"][None] * jax.random.normal(keys[0], (subjects, 2)),
            "occasion": truth["between"] * jax.random.normal(keys[1], (subjects, 2)),
        }
        noise = truth["noise"] * jax.random.normal(keys[2], (subjects, 2, times.size))
        data = jnp.exp(jax.vmap(lambda effects: levels(truth, effects))(drawn) + noise)
        below = data < limit
        priors = [
            (lambda m: m["typical"], inference.Improper()),
            (lambda m: [m["between"], m["noise"], m["spread"]], inference.Improper(Positive())),
        ]
        density = inference.hierarchical(
            truth, observe, jnp.where(below, limit, data), priors, effects=effects, subjects=below
        ).marginal

        def misfit(z, args=None):
            return -density.log_likelihood(density.constrain(density.unravel(z))) / subjects

        start = density.ravel(density.unconstrain(truth))
        z = optimistix.minimise(misfit, optimistix.BFGS(1e-6, 1e-6), start, max_steps=60, throw=False).value
        errors = jnp.sqrt(jnp.diagonal(jnp.linalg.inv(subjects * jax.jacfwd(jax.grad(misfit))(z))))
        return z - start, errors, jnp.mean(below)

    away, errors, share = jax.jit(jax.vmap(fitted))(jax.random.split(jax.random.key(0), sets))
    assert 0.15 < np.mean(share) < 0.4
    counts = np.sum(np.abs(away) < 1.959964 * errors, axis=0) / sets
    assert np.all((counts >= 0.9) & (counts <= 0.98)), counts
    np.testing.assert_allclose(np.std(away, axis=0), np.mean(errors, axis=0), rtol=0.25)
