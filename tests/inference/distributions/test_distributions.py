"""Distributions beside those of SciPy, and their densities as densities of free variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sciml import inference, training

X64 = jax.config.jax_enable_x64

CASES = {
    "normal": (inference.Normal(0.3, 1.7), scipy.stats.norm(0.3, 1.7)),
    "log-normal": (inference.LogNormal(-0.4, 0.6), scipy.stats.lognorm(0.6, scale=np.exp(-0.4))),
    "half-normal": (inference.HalfNormal(0.8), scipy.stats.halfnorm(scale=0.8)),
    "student": (inference.StudentT(5.0, -1.0, 0.5), scipy.stats.t(5.0, -1.0, 0.5)),
    "uniform": (inference.Uniform(-1.0, 2.5), scipy.stats.uniform(-1.0, 3.5)),
    "gamma": (inference.Gamma(2.5, 1.5), scipy.stats.gamma(2.5, scale=1 / 1.5)),
    "beta": (inference.Beta(2.0, 3.5), scipy.stats.beta(2.0, 3.5)),
}
COUNTS = {
    "poisson": (inference.PoissonCounts(3.7), scipy.stats.poisson(3.7)),
    "negative binomial": (inference.NegativeBinomial(3.7, 2.2), scipy.stats.nbinom(2.2, 2.2 / (2.2 + 3.7))),
}


@pytest.mark.parametrize("ours, theirs", CASES.values(), ids=CASES)
def test_density_draws_and_moments_are_those_of_scipy(ours, theirs):
    x = theirs.ppf(np.linspace(0.02, 0.98, 9))
    tolerance = 1e-12 if X64 else 2e-5
    np.testing.assert_allclose(ours.log_prob(jnp.asarray(x)), theirs.logpdf(x), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(ours.moments(), theirs.stats("mv"), rtol=1e-6)
    drawn = np.asarray(ours.draw(jax.random.key(1), (2000,)))
    assert scipy.stats.kstest(drawn, theirs.cdf).pvalue > 1e-3


@pytest.mark.parametrize("ours, theirs", COUNTS.values(), ids=COUNTS)
def test_counts_are_those_of_scipy(ours, theirs):
    n = np.arange(12.0)
    np.testing.assert_allclose(ours.log_prob(jnp.asarray(n)), theirs.logpmf(n), rtol=1e-11 if X64 else 2e-5)
    np.testing.assert_allclose(ours.moments(), theirs.stats("mv"), rtol=1e-6)
    drawn = np.asarray(ours.draw(jax.random.key(2), (4000,)))
    there = np.bincount(drawn.astype(int), minlength=12)[:12] / 4000
    assert np.abs(there - theirs.pmf(n)).max() < 0.03
    with pytest.raises(TypeError, match="a distribution of counts, which have no derivative"):
        _ = ours.transform


@pytest.mark.parametrize("prior", [case[0] for case in CASES.values()], ids=CASES)
def test_density_of_the_free_variable_integrates_to_one(prior):
    """The Jacobian is right where the prior alone, as a density of $z$, has the integral one."""
    here = {"x": jnp.asarray(0.4)}
    density = inference.log_density(
        here, lambda m: inference.Custom(lambda data: 0 * m["x"]), jnp.zeros(()), [(lambda m: m["x"], prior)]
    )
    z = jnp.linspace(-30.0, 30.0, 6001)
    values = jnp.exp(jax.vmap(lambda z: density({"x": z}))(z))
    assert abs(float(jnp.sum(values) * (z[1] - z[0])) - 1) < (1e-6 if X64 else 1e-3)
    back = density.constrain(density.unconstrain(here))
    np.testing.assert_allclose(back["x"], 0.4, rtol=1e-5)


def test_normal_vectors_are_those_of_scipy():
    scale, lower, rng = jnp.array([0.5, 2.0, 1.0]), jnp.array([0.4, -1.2, 0.3]), np.random.default_rng(0)
    ours = inference.MultivariateNormal(jnp.array([0.1, -0.2, 0.3]), scale, lower)
    theirs = scipy.stats.multivariate_normal(np.asarray(ours.location), np.asarray(ours.covariance))
    np.testing.assert_allclose(np.diagonal(ours.covariance), scale**2, rtol=1e-6)
    x = rng.normal(size=(4, 3))
    tolerance = 1e-12 if X64 else 2e-5
    np.testing.assert_allclose(ours.log_prob(jnp.asarray(x)), theirs.logpdf(x), rtol=tolerance, atol=tolerance)
    again = inference.MultivariateNormal.from_covariance(ours.location, ours.covariance)
    np.testing.assert_allclose(again.lower, lower, rtol=1e-5)
    np.testing.assert_allclose(again.scale, scale, rtol=1e-5)
    drawn = ours.draw(jax.random.key(0), (4000, 3))
    np.testing.assert_allclose(np.cov(drawn.T), ours.covariance, atol=0.15)
    rows = inference.MultivariateNormal(jnp.zeros((2, 3)), scale, lower)  # such as occasions
    assert rows.values_shape == rows.draw(jax.random.key(0)).shape == (2, 3)
    np.testing.assert_allclose(rows.log_prob(jnp.asarray(x[:2])), theirs.logpdf(x[:2] + theirs.mean), rtol=1e-5)
    with pytest.raises(
        ValueError, match=r"`lower` of shape \(q \(q - 1\) / 2,\), but shapes are \(3,\), \(3,\), \(2,\)"
    ):
        inference.MultivariateNormal(jnp.zeros(3), scale, lower[:2])
    with pytest.raises(ValueError, match="has one density for several data, of which none can be missing"):
        inference.log_density(
            {"m": jnp.zeros(3)},
            lambda m: inference.MultivariateNormal(m["m"], scale, lower),
            jnp.array([0.1, jnp.nan, 0.2]),
            [(lambda m: m["m"], inference.Improper())],
        )


def test_bounds_keep_their_slope_far_out():
    transform = training.Bounded(-1.0, 3.0)
    z = jnp.array([-60.0, -2.0, 0.0, 60.0])
    exact = [np.log(4) - 60, np.log(4) - 2 * np.log(np.cosh(1)) - 2 * np.log(2), np.log(4) - np.log(4), np.log(4) - 60]
    np.testing.assert_allclose(transform.log_slope(z), exact, rtol=1e-5, atol=1e-5)


def test_shapes_broadcast_and_are_checked():
    rows = inference.Normal(jnp.arange(3.0), jnp.full(3, 2.0))
    assert rows.log_prob(jnp.zeros((4, 3))).shape == (4, 3)
    assert rows.draw(jax.random.key(0), (4, 3)).shape == (4, 3)
    with pytest.raises(ValueError, match=r"broadcast to the shape of its values, \(4,\), but one has shape \(3,\)"):
        rows.log_prob(jnp.zeros(4))
    with pytest.raises(ValueError, match="an `Improper` prior cannot be sampled"):
        inference.Improper().draw(jax.random.key(0))
    with pytest.raises(TypeError, match=r"`Custom\(fn=...\)` must be a function"):
        inference.Custom(3.0)


CHECKED = {
    "normal scale": lambda x: inference.Normal(0.0, x),
    "log-normal scale": lambda x: inference.LogNormal(0.0, x),
    "half-normal scale": lambda x: inference.HalfNormal(x),
    "student scale": lambda x: inference.StudentT(4.0, 0.0, x),
    "student degrees": lambda x: inference.StudentT(x, 0.0, 1.0),
    "gamma shape": lambda x: inference.Gamma(x, 1.0),
    "gamma rate": lambda x: inference.Gamma(1.0, x),
    "beta a": lambda x: inference.Beta(x, 1.0),
    "beta b": lambda x: inference.Beta(1.0, x),
    "uniform lower": lambda x: inference.Uniform(0.0, x),
    "poisson mean": lambda x: inference.PoissonCounts(x),
    "binomial mean": lambda x: inference.NegativeBinomial(x, 1.0),
    "binomial concentration": lambda x: inference.NegativeBinomial(1.0, x),
}


@pytest.mark.parametrize("case", CHECKED)
def test_parameters_that_are_known_are_checked(case):
    make, name = CHECKED[case], case.split()[1]
    for wrong in (-1.0, np.nan, np.inf, jnp.array([2.0, -1.0])):
        with pytest.raises(ValueError, match=f"`{name}` of `.*`.* must be .* but"):
            make(wrong)
    if name != "mean":
        with pytest.raises(ValueError, match=f"`{name}` of"):
            make(0.0)
    make(jnp.zeros(0))  # for no member

    def density(x):
        made = make(x)
        return jnp.sum(make(2.0).log_prob(jnp.array(0.5))) + jnp.sum(made.log_prob(jnp.array(0.5)))

    # what is traced is as it is, what is known beside it still checked
    assert np.isfinite(jax.jit(jax.grad(density))(2.0))
    jax.jit(jax.vmap(density))(jnp.array([2.0, -1.0]))
    jax.tree.map(lambda x: -x, make(1.5))


def test_a_uniform_prior_of_bounds_that_are_traced():
    @jax.jit
    def there_and_back(upper):
        transform = inference.Uniform(0.0, upper).transform
        return transform.forward(transform.inverse(jnp.array(0.5)))

    np.testing.assert_allclose(there_and_back(2.0), 0.5, rtol=1e-6)


@pytest.mark.parametrize("distribution", [inference.PoissonCounts(2.0), inference.NegativeBinomial(2.0, 3.0)])
def test_what_is_no_count_is_impossible(distribution):
    found = distribution.log_prob(jnp.array([0.0, 4.0, -1.0, -1.5, 0.5, jnp.nan]))
    np.testing.assert_array_equal(np.isfinite(found), [True, True, False, False, False, False])
    assert np.all(np.isneginf(found[2:5])) and np.isnan(found[5])
    rate = jax.grad(lambda d: jnp.sum(jnp.exp(d.log_prob(jnp.array([1.0, -1.5])))))(distribution).mean
    assert np.isfinite(rate) and rate != 0
