"""First-order conditional estimation: exact where predictions are linear, beside formulas, and published numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from sciml import inference
from sciml.training import Positive

from .test_hierarchical import exact, level, mixed_model

pytestmark = pytest.mark.x64

# Theophylline in the blood of twelve subjects (mg/l): R's data set `Theoph`. Doses are in mg, times in hours.
DOSES = np.array(
    [319.992, 318.56, 319.365, 319.88, 319.956, 320.0, 319.77, 319.365, 267.84, 320.1, 319.8, 320.65]
)  # fmt: skip
TIMES = np.array(
    [
        [0, 0.25, 0.57, 1.12, 2.02, 3.82, 5.1, 7.03, 9.05, 12.12, 24.37],
        [0, 0.27, 0.52, 1, 1.92, 3.5, 5.02, 7.03, 9, 12, 24.3],
        [0, 0.27, 0.58, 1.02, 2.02, 3.62, 5.08, 7.07, 9, 12.15, 24.17],
        [0, 0.35, 0.6, 1.07, 2.13, 3.5, 5.02, 7.02, 9.02, 11.98, 24.65],
        [0, 0.3, 0.52, 1, 2.02, 3.5, 5.02, 7.02, 9.1, 12, 24.35],
        [0, 0.27, 0.58, 1.15, 2.03, 3.57, 5, 7, 9.22, 12.1, 23.85],
        [0, 0.25, 0.5, 1.02, 2.02, 3.48, 5, 6.98, 9, 12.05, 24.22],
        [0, 0.25, 0.52, 0.98, 2.02, 3.53, 5.05, 7.15, 9.07, 12.1, 24.12],
        [0, 0.3, 0.63, 1.05, 2.02, 3.53, 5.02, 7.17, 8.8, 11.6, 24.43],
        [0, 0.37, 0.77, 1.02, 2.05, 3.55, 5.05, 7.08, 9.38, 12.1, 23.7],
        [0, 0.25, 0.5, 0.98, 1.98, 3.6, 5.02, 7.03, 9.03, 12.12, 24.08],
        [0, 0.25, 0.5, 1, 2, 3.52, 5.07, 7.07, 9.03, 12.05, 24.15],
    ]
)
LEVELS = np.array(
    [
        [0.74, 2.84, 6.57, 10.5, 9.66, 8.58, 8.36, 7.47, 6.89, 5.94, 3.28],
        [0, 1.72, 7.91, 8.31, 8.33, 6.85, 6.08, 5.4, 4.55, 3.01, 0.9],
        [0, 4.4, 6.9, 8.2, 7.8, 7.5, 6.2, 5.3, 4.9, 3.7, 1.05],
        [0, 1.89, 4.6, 8.6, 8.38, 7.54, 6.88, 5.78, 5.33, 4.19, 1.15],
        [0, 2.02, 5.63, 11.4, 9.33, 8.74, 7.56, 7.09, 5.9, 4.37, 1.57],
        [0, 1.29, 3.08, 6.44, 6.32, 5.53, 4.94, 4.02, 3.46, 2.78, 0.92],
        [0.15, 0.85, 2.35, 5.02, 6.58, 7.09, 6.66, 5.25, 4.39, 3.53, 1.15],
        [0, 3.05, 3.05, 7.31, 7.56, 6.59, 5.88, 4.73, 4.57, 3, 1.25],
        [0, 7.37, 9.03, 7.14, 6.33, 5.66, 5.67, 4.24, 4.11, 3.16, 1.12],
        [0.24, 2.89, 5.22, 6.41, 7.83, 10.21, 9.18, 8.02, 7.14, 5.68, 2.42],
        [0, 4.86, 7.24, 8, 6.81, 5.87, 5.22, 4.45, 3.62, 2.69, 0.86],
        [0, 1.25, 3.96, 7.82, 9.72, 9.75, 8.57, 6.59, 6.11, 4.57, 1.17],
    ]
)


def theophylline(**options):
    """One compartment with absorption; rate of absorption, clearance and volume vary, and noise is added."""

    def observe(model, effects, subject):
        dose, times = subject
        absorption, clearance, volume = jnp.exp(model["typical"] + effects)
        return inference.Normal(dose / 10 * level(times, clearance, volume, absorption), model["noise"])

    def effects(model):
        return inference.Normal(jnp.zeros(3), model["spread"])

    priors = [
        (lambda m: m["typical"], inference.Improper()),
        (lambda m: (m["spread"], m["noise"]), inference.Improper(Positive())),
    ]
    start = {"typical": jnp.array([0.4, 1.0, 3.4]), "spread": jnp.array([0.5, 0.4, 0.3]), "noise": jnp.array(0.9)}
    return inference.hierarchical(start, observe, LEVELS, priors, effects=effects, subjects=(DOSES, TIMES), **options)


# What nlmixr2 estimates by FOCEi: logarithms of typical constants, their variation in percent, and the noise.
PUBLISHED = {
    "typical": jnp.array([0.4655, 1.012, 3.460]),
    "spread": jnp.sqrt(jnp.log1p(jnp.array([0.7052, 0.2675, 0.1390]) ** 2)),
    "noise": jnp.array(0.6947),
}
PUBLISHED_LOG_LIKELIHOOD = -179.7017


def test_theophylline_has_the_published_likelihood():
    """At the published estimates; the method without interaction is the same where noise is added, Laplace's is not."""
    found = {m: theophylline(method=m).marginal.log_likelihood(PUBLISHED) for m in ("focei", "foce", "laplace")}
    np.testing.assert_allclose(found["focei"], PUBLISHED_LOG_LIKELIHOOD, atol=2e-3)
    np.testing.assert_allclose(found["foce"], found["focei"], rtol=1e-12)
    assert 1e-3 < abs(found["laplace"] - found["focei"]) < 2


def test_theophylline_is_most_likely_at_the_published_estimates():
    """From elsewhere, with the gradient through the most probable effects."""
    density = theophylline(method="focei").marginal
    peak = density.maximum()
    np.testing.assert_allclose(peak.log_joint, PUBLISHED_LOG_LIKELIHOOD, atol=1e-3)
    np.testing.assert_allclose(peak.model["typical"], PUBLISHED["typical"], atol=2e-3)
    np.testing.assert_allclose(peak.model["spread"], PUBLISHED["spread"], rtol=5e-3)
    np.testing.assert_allclose(peak.model["noise"], PUBLISHED["noise"], rtol=1e-3)


def test_stochastic_approximation_of_theophylline():
    """The maximum without an approximation of integrals is close to the published one."""
    study = theophylline(method="focei")
    found = study.saem(jax.random.key(0))
    density = study.marginal
    away = density.ravel(found.position) - density.ravel(density.unconstrain(PUBLISHED))
    assert np.all(np.abs(away) < 0.5 * np.sqrt(np.diagonal(found.covariance())))
    np.testing.assert_allclose(found.log_joint, PUBLISHED_LOG_LIKELIHOOD, atol=1)


@pytest.mark.parametrize("method", ["focei", "foce"])
def test_a_linear_mixed_model_is_exact(method):
    """Value and gradient, with data that are missing."""
    density, (times, y) = mixed_model(method=method)
    model = {"line": jnp.array([0.8, 0.4]), "spread": jnp.array([0.7, 0.4]), "noise": jnp.array(0.25)}
    value, slope = jax.jit(jax.value_and_grad(density.marginal.log_likelihood))(model)
    expected, exact_slope = jax.value_and_grad(exact)(model, times, y)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for name in model:
        np.testing.assert_allclose(slope[name], exact_slope[name], rtol=1e-8, atol=1e-9)


def proportional():
    """Clearances that vary, and noise that is a fifth of what is seen."""
    rng = np.random.default_rng(2)
    times = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    true = np.exp(0.4 * rng.normal(size=3))
    data = np.stack([level(times, 1.2 * c, 8.0, 1.5) * (1 + 0.2 * rng.normal(size=5)) for c in true])
    model = {"clearance": jnp.array(1.0), "spread": jnp.array(0.4), "noise": jnp.array(0.2)}

    def observe(model, effect, subject):
        seen = level(times, model["clearance"] * jnp.exp(effect), 8.0, 1.5)
        return inference.Normal(seen, model["noise"] * seen)

    def build(**options):
        priors = [(lambda m: m, inference.Improper(Positive()))]
        return inference.hierarchical(
            model, observe, data, priors, effects=lambda m: inference.Normal(0.0, m["spread"]), **options
        ).marginal

    return build, model, observe, data


@pytest.mark.parametrize("interaction", [True, False], ids=["focei", "foce"])
def test_the_formula_of_first_order_estimation(interaction):
    """Beside Wang's formula, with the most probable effects found by SciPy and derivatives by differences."""
    build, model, observe, data = proportional()
    density = build(method="focei" if interaction else "foce")
    total = 0.0
    for y in data:

        def moments(b):
            given = observe(model, b, None)
            typical = given if interaction else observe(model, 0.0, None)
            return np.asarray(given.location), np.asarray(typical.scale) ** 2

        def misfit(b, y=y):
            f, v = moments(b)
            return 0.5 * np.sum((y - f) ** 2 / v + np.log(2 * np.pi * v)) + 0.5 * (b / 0.4) ** 2

        best = scipy.optimize.minimize_scalar(misfit, bracket=(-0.5, 0.5), tol=1e-10).x
        (f0, v0), (f1, v1), (_, v) = moments(best - 1e-4), moments(best + 1e-4), moments(best)
        df, dv = (f1 - f0) / 2e-4, (v1 - v0) / 2e-4
        curvature = np.sum(df**2 / v + 0.5 * dv**2 / v**2) + 1 / 0.4**2
        total += -misfit(best) - np.log(0.4) - 0.5 * np.log(curvature)
    found, slope = jax.jit(jax.value_and_grad(density.log_likelihood))(model)
    np.testing.assert_allclose(found, total, atol=1e-6)
    for name, step in (("clearance", 1e-5), ("noise", 1e-5)):
        ends = [density.log_likelihood(model | {name: model[name] + k * step}) for k in (1, -1)]
        np.testing.assert_allclose(slope[name], (ends[0] - ends[1]) / (2 * step), rtol=1e-5)


def test_methods_are_as_near_to_the_integral_as_they_should_be():
    """Beside a sum over a fine grid of effects: Laplace's is the nearest, and with more nodes all come to the sum."""
    build, model, observe, data = proportional()
    b = jnp.linspace(-3.0, 3.0, 2001)
    weight = jnp.exp(inference.Normal(0.0, 0.4).log_prob(b)) * (b[1] - b[0])
    each = jax.vmap(lambda b: jnp.sum(observe(model, b, None).log_prob(jnp.asarray(data)), axis=1))(b)
    best = jnp.sum(jax.scipy.special.logsumexp(each + jnp.log(weight)[:, None], axis=0))
    off = {m: abs(build(method=m).log_likelihood(model) - best) for m in ("laplace", "focei", "foce")}
    assert 0.05 < off["laplace"] < off["foce"] < off["focei"] < 0.3
    np.testing.assert_allclose(build(method="focei", nodes=41).log_likelihood(model), best, rtol=1e-8)


def test_counts_have_information():
    """The mode and the curvature of Poisson counts are known where the effect is a logarithm."""
    counts = np.array([[3.0, 5.0], [0.0, 1.0]])
    model = {"spread": jnp.array(0.5)}
    found = inference.hierarchical(
        model,
        lambda m, b, s: inference.PoissonCounts(2.0 * jnp.exp(b)),
        counts,
        [(lambda m: m, inference.Improper(Positive()))],
        effects=lambda m: inference.Normal(0.0, m["spread"]),
        method="focei",
    )
    effects, covariances = found.modes(model)
    np.testing.assert_allclose(counts.sum(axis=1) - 4 * np.exp(effects) - effects / 0.25, 0, atol=1e-8)
    np.testing.assert_allclose(covariances[:, 0, 0], 1 / (4 * np.exp(effects) + 4), rtol=1e-8)


def test_bad_input_is_named():
    def build(distribution, **options):
        model = {"spread": jnp.array(1.0)}
        priors = [(lambda m: m["spread"], inference.HalfNormal(1.0))]
        options = {"effects": lambda m: inference.Normal(0.0, m["spread"])} | options
        return inference.hierarchical(model, lambda m, b, s: distribution(b), jnp.ones((3, 2)), priors, **options)

    with pytest.raises(ValueError, match=r"`method` must be one of 'laplace', 'focei', 'foce', but is 'fo'"):
        build(lambda b: inference.Normal(b, 1.0), method="fo")
    with pytest.raises(ValueError, match="more `nodes` do not correct"):
        build(lambda b: inference.Normal(b, 1.0), method="foce", nodes=3)
    with pytest.raises(TypeError, match="Fisher information of the data's distribution, which `StudentT` does not"):
        build(lambda b: inference.StudentT(4.0, b, 1.0), method="focei")
    with pytest.raises(TypeError, match="`location` and `scale`, not `PoissonCounts`"):
        build(lambda b: inference.PoissonCounts(jnp.exp(b)), method="foce")
