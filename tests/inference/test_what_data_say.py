"""Profiles, identifiability, criteria, residuals and shares of variance, each beside what is known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import sciml
from sciml import inference
from sciml.training import Bounded, Positive

X64 = jax.config.jax_enable_x64


@pytest.mark.x64
def test_profiles_of_a_line_are_its_standard_errors():
    """With known noise a linear model's profile is a parabola; with unknown noise it is log(1 + t^2 / (n - p))."""
    x = np.linspace(-1.0, 2.0, 12)
    y = 0.7 * x - 0.2 + 0.1 * np.cos(9 * x)
    design = np.stack([np.ones_like(x), x], axis=1)
    model = {"line": jnp.array([0.3, 0.3]), "noise": jnp.array(0.3)}
    priors = [(lambda m: m["line"], inference.Improper()), (lambda m: m["noise"], inference.Improper(Positive()))]

    def observe(m):
        return inference.Normal(m["line"][0] + m["line"][1] * x, m["noise"])

    known = inference.log_density(model, observe, y, priors[:1])
    found = inference.profile_likelihood(known)
    best, rss = np.linalg.lstsq(design, y)[:2]
    errors = 0.3 * np.sqrt(np.diagonal(np.linalg.inv(design.T @ design)))
    exact = best[:, None] + np.sqrt(scipy.stats.chi2.ppf(0.95, 1)) * errors[:, None] * np.array([-1, 1])
    np.testing.assert_allclose(found.best, best, rtol=1e-7)
    np.testing.assert_allclose(found.intervals, exact, rtol=1e-6)

    with pytest.raises(ValueError, match="`where` selects `noise`, which is not sampled"):
        inference.profile_likelihood(known, where=lambda m: m["noise"])
    free = inference.profile_likelihood(inference.log_density(model, observe, y, priors), level=0.9)
    t = np.sqrt(10 * np.expm1(scipy.stats.chi2.ppf(0.9, 1) / 12))
    errors *= np.sqrt(rss[0] / 10) / 0.3
    exact = best[:, None] + t * errors[:, None] * np.array([-1, 1])
    np.testing.assert_allclose(free.intervals[:2], exact, rtol=3e-4)

    def deviance(scale):
        return 12 * (np.log(scale**2) + 1 / scale**2 - 1) - scipy.stats.chi2.ppf(0.9, 1)

    ends = [scipy.optimize.brentq(deviance, *ends) for ends in ((0.3, 1.0), (1.0, 4.0))]
    np.testing.assert_allclose(free.intervals[2], np.sqrt(rss[0] / 12) * np.array(ends), rtol=3e-4)
    assert free.names == ("line[0]", "line[1]", "noise") and not free.open_ended
    assert np.nanmax(free.deviances) < 4 * free.threshold


def test_a_parameter_without_bound_is_open():
    """A reaction that is over before the first sample may be arbitrarily fast."""
    times = jnp.linspace(1.0, 4.0, 8)
    model = {"size": jnp.array(2.0), "rate": jnp.array(5.0)}
    priors = [(lambda m: m, inference.Improper(Positive()))]

    def observe(m):
        return inference.Normal(m["size"] * (1 - jnp.exp(-m["rate"] * times)), 0.05)

    data = 2.0 + 0.03 * jnp.cos(7 * times)
    density = inference.log_density(model, observe, data, priors)
    found = inference.profile_likelihood(density, density.maximum(throw=False), rtol=1e-4)
    assert found.open_ended == ("rate",)
    rate = found.names.index("rate")
    assert np.isinf(found.intervals[rate, 1]) and 1 < found.intervals[rate, 0] < 6
    assert np.all(np.isfinite(found.intervals[1 - rate]))
    assert "do not bound `rate`" in found.summary()


def oral(model, t):
    """A drug that is absorbed and eliminated: both rates may change places if the volume does, too."""
    ka, ke, v = model["absorption"], model["elimination"], model["volume"]
    return 100 * ka / (v * (ka - ke)) * (jnp.exp(-ke * t) - jnp.exp(-ka * t))


@pytest.mark.x64
def test_rates_that_may_change_places_are_named():
    times = jnp.array([0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 24.0])
    true = {"absorption": jnp.array(1.2), "elimination": jnp.array(0.15), "volume": jnp.array(20.0)}

    def residuals(model, data):
        return (oral(model, times) - data) / 0.1

    data = oral(true, times)
    options = {"positive": True, "starts": 2, "key": jax.random.key(0)}
    found = inference.identifiability(true, residuals, data, **options)
    assert found.rank == 3 and not found.undetermined and not found.sloppy
    assert found.alternatives == ("`absorption` 1.2 -> 0.15, `elimination` 0.15 -> 1.2, `volume` 20 -> 2.5",)
    assert "fits as well" in found.summary()
    np.testing.assert_allclose(oral(found.alternative_models[0], times), data, rtol=1e-5)

    # the Fisher information itself, by central differences
    def shifted(name, sign):
        return np.asarray(residuals({**true, name: true[name] * np.exp(sign * 1e-5)}, data))

    jac = np.stack([(shifted(n, 1) - shifted(n, -1)) / 2e-5 for n in true], axis=1)
    scale = np.abs(np.array([1.0, 1.0, 1.0]))
    np.testing.assert_allclose(found.fisher, jac.T @ jac * np.outer(scale, scale), rtol=1e-6, atol=1e-4)

    # dose and volume come as a ratio; a rate that nothing depends on is by itself
    more = {**true, "fraction": jnp.array(0.5), "idle": jnp.array(2.0)}
    both = inference.identifiability(more, lambda m, d: m["fraction"] * residuals(m, 0 * d), data, positive=True)
    assert both.rank == 3
    assert set(both.undetermined) == {"0.71 `fraction` + 0.71 `volume`", "1.00 `idle`"}
    with pytest.raises(ValueError, match="draws random starts and requires `key"):
        inference.identifiability(true, residuals, data, starts=1)


def test_criteria_are_the_formulae():
    found = inference.information_criteria(-20.0, 3, 30)
    np.testing.assert_allclose(found, (46, 46 + 24 / 26, 3 * np.log(30) + 40))
    assert inference.information_criteria(-20.0, 3, 4).aicc == np.inf
    with pytest.raises(ValueError, match="`log_likelihood` must be finite"):
        inference.information_criteria(np.nan, 3, 30)


def test_residuals_that_are_noise_and_others():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=120)
    fine = inference.residual_diagnostics(noise)
    assert min(fine.runs_p, fine.ljung_box_p, fine.normal_p) > 0.05 and "depend" not in fine.summary()
    np.testing.assert_allclose(fine.normal_p, scipy.stats.shapiro(noise).pvalue)
    lagged = np.corrcoef(noise[1:], noise[:-1])[0, 1]
    np.testing.assert_allclose(fine.autocorrelation[0], lagged, atol=0.02)
    slow = inference.residual_diagnostics(np.convolve(noise, np.ones(6)), np.arange(125.0))
    assert slow.runs_p < 1e-4 and slow.ljung_box_p < 1e-4 and "they are correlated" in slow.summary()
    outliers = inference.residual_diagnostics(np.where(np.arange(120) % 30 == 0, 8.0, noise))
    assert outliers.normal_p < 1e-4 and "outliers" in outliers.summary()
    np.testing.assert_allclose(inference.residual_diagnostics(noise[::-1], np.arange(120)[::-1]).residuals, noise)
    assert inference.residual_diagnostics(np.where(np.arange(120) == 5, np.nan, noise)).residuals.size == 119
    with pytest.raises(ValueError, match="at least eight different finite values, but has 3 finite values"):
        inference.residual_diagnostics(noise[:3])


@pytest.mark.x64
def test_ishigami():
    """Shares of Ishigami's function, which are known, to a hundredth; a result of several numbers."""

    def ishigami(m):
        a, b, c = m["x"]
        return jnp.stack([jnp.sin(a) + 7 * jnp.sin(b) ** 2 + 0.1 * c**4 * jnp.sin(a), a + b + m["fixed"]])

    model = {"x": jnp.zeros(3), "fixed": jnp.array(1.0)}
    ranges = [(lambda m: m["x"], -np.pi, np.pi)]
    found = inference.sobol_indices(ishigami, model, ranges, n=2**14, key=jax.random.key(1), block=8192)
    v = 49 / 8 + 0.1 * np.pi**4 / 5 + 0.01 * np.pi**8 / 18 + 0.5
    one, both = 0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2 / v, 0.01 * np.pi**8 * (1 / 18 - 1 / 50) / v
    assert found.names == ("x[0]", "x[1]", "x[2]") and found.n_members == 5 * 2**14 and found.n_failed == 0
    np.testing.assert_allclose(found.first[0], [one, 49 / 8 / v, 0], atol=0.005)
    np.testing.assert_allclose(found.total[0], [one + both, 49 / 8 / v, both], atol=0.005)
    np.testing.assert_allclose(found.variance[0], v, rtol=0.01)
    np.testing.assert_allclose(found.first[1], [0.5, 0.5, 0], atol=0.005)
    with pytest.raises(ValueError, match="must be a power of two, but is 100"):
        inference.sobol_indices(ishigami, model, ranges, n=100, key=jax.random.key(1))
    with pytest.raises(ValueError, match="`bounds` picks `x` twice"):
        inference.sobol_indices(ishigami, model, ranges * 2, key=jax.random.key(1))


def test_elementary_effects_of_a_function_whose_effects_are_known():
    """Linear in one parameter, a product of two, a square that cancels, one that does nothing; one of it may fail."""

    def of(m):
        a, b, c, d, e = m["x"]
        linear = 3 * a + b * c + (d - 0.5) ** 2 + 0 * e
        return jnp.stack([linear, jnp.where(a < 0.2, jnp.nan, -linear)])

    n, levels = 400, 4
    model, ranges = {"x": jnp.zeros(5)}, [(lambda m: m["x"], 0.0, 1.0)]
    found = inference.morris_effects(lambda m: of(m)[0], model, ranges, n=n, levels=levels, key=jax.random.key(2))
    assert found.names == ("x[0]", "x[1]", "x[2]", "x[3]", "x[4]") and found.n_members == 6 * n and found.n_failed == 0
    # the other factor is at 1/8, 3/8, 5/8, 7/8; the square goes from 1/8 to 5/8 or from 3/8 to 7/8, or back
    spread = np.sqrt((1 - 1 / levels**2) / 12)
    np.testing.assert_allclose(found.mean, [3, 0.5, 0.5, 0, 0], atol=4 * spread / np.sqrt(n))
    np.testing.assert_allclose(found.mean_absolute, [3, 0.5, 0.5, 0.25, 0], atol=4 * spread / np.sqrt(n))
    np.testing.assert_allclose(found.deviation, [0, spread, spread, 0.25, 0], atol=0.02)
    np.testing.assert_allclose(found.error, [0, spread / n**0.5, spread / n**0.5, 0, 0], atol=2e-3)

    both = inference.morris_effects(of, model, ranges, n=n, levels=levels, key=jax.random.key(2))
    assert both.mean.shape == (2, 5) and n < both.n_failed < 2 * n  # the lowest of four levels, of one of two results
    np.testing.assert_allclose(both.mean[0], -both.mean[1], atol=1e-5)
    np.testing.assert_allclose(both.mean[0, :3], [3, 0.5, 0.5], atol=5 * spread / np.sqrt(n))
    wide = [(lambda m: m["x"], scipy.stats.norm(1.0, 2.0))]
    normal = inference.morris_effects(lambda m: m["x"][0], model, wide, n=4, levels=2, key=jax.random.key(3))
    np.testing.assert_allclose(normal.mean[0], 2 * 2 * 2 * scipy.stats.norm.ppf(0.75), rtol=1e-5)
    for bad, words in ((dict(n=1), "must be at least 2"), (dict(levels=5), "must be even, but is 5")):
        with pytest.raises(ValueError, match=words):
            inference.morris_effects(of, model, ranges, key=jax.random.key(1), **bad)
    with pytest.raises(ValueError, match="effect of `x.0.` is finite in only 0 of 8 walks"):
        inference.morris_effects(lambda m: jnp.nan * m["x"][0], model, ranges, n=8, key=jax.random.key(1))


def line(slope, lowest):
    ts = np.linspace(0, 4, 9)
    data = jnp.asarray(1 + 0.7 * ts + 0.3 * np.random.default_rng(3).normal(size=9))
    model, ts = {"a": jnp.array(1.0), "b": jnp.array(slope)}, jnp.asarray(ts)
    priors = [
        (lambda m: m["a"], inference.Uniform(-10.0, 10.0)),
        (lambda m: m["b"], inference.Uniform(lowest, 10.0)),
    ]
    return inference.log_density(model, lambda m: inference.Normal(m["a"] + m["b"] * ts, 0.3), data, priors)


@pytest.mark.x64
def test_profiles_leave_a_bound_that_the_maximum_lies_on():
    """The exact intervals are those of a quadratic form over a half plane."""
    found = inference.profile_likelihood(line(0.8, 0.65))
    np.testing.assert_allclose(found.intervals[0], [0.6604, 1.1475], atol=5e-4)
    np.testing.assert_allclose(found.intervals[1], [0.65, 0.765687], atol=1e-4)
    assert found.open_ended == ("b",)


@pytest.mark.x64
def test_a_maximum_is_found_from_a_start_on_a_bound():
    found = line(0.1 + 1e-15, 0.1).maximum().model
    np.testing.assert_allclose([found["a"], found["b"]], [1.03522008, 0.60822672], rtol=1e-4)


@pytest.mark.x64
def test_a_maximum_names_the_parameters_on_a_bound():
    """The slope without a bound is 0.608."""
    found = line(0.8, 0.65).maximum()
    np.testing.assert_allclose(found.model["b"], 0.65, rtol=1e-3)
    assert "`b` ended on a bound" in found.message and "`a`" not in found.message
    assert "Note" not in line(0.5, 0.1).maximum().message


@pytest.mark.x64
def test_a_failed_search_names_the_parameters_that_still_move():
    """A slope without an upper end, beside a mean that has one, and an amplitude whose only bound is reached."""

    def density(end):
        def likelihood(m):
            return inference.Normal(jnp.stack([m["mean"], m["low"], end(m["slope"])]), 1.0)

        model = {"mean": jnp.array(0.5), "low": jnp.array(3.0), "slope": jnp.array(1.0)}
        priors = [
            (lambda m: m["mean"], inference.Improper()),
            (lambda m: m["low"], inference.Improper(Bounded(2.0, None))),
            (lambda m: m["slope"], inference.Improper()),
        ]
        return inference.log_density(model, likelihood, jnp.array([1.0, 0.0, 9.0]), priors)

    start = {"mean": jnp.array(0.5), "low": jnp.array(2.0 + 1e-9), "slope": jnp.array(1.0)}
    with pytest.raises(sciml.SolveError, match="increases along `slope` after .* steps, and `low` ended on a bound"):
        density(jnp.arcsinh).maximum(start, max_steps=3)
    found = density(lambda x: x).maximum()
    assert "`low` ended on a bound" in found.message and "`slope`" not in found.message
