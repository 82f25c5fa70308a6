"""Populations: a linear mixed model beside its exact likelihood, a drug beside quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inference
from sciml.training import Positive


def mixed_model(**options):
    """Lines of six subjects, each with its offset and slope, seen at times of its own; some miss a visit."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 2, (6, 5)), axis=1)
    effects = rng.normal(size=(6, 2)) * [0.8, 0.3]
    y = 1.0 + effects[:, :1] + (0.5 + effects[:, 1:]) * times + 0.2 * rng.normal(size=(6, 5))
    y[1, 4] = y[4, 0] = np.nan

    def observe(model, effects, subject):
        line = model["line"] + effects
        return inference.Normal(line[0] + line[1] * subject, model["noise"])

    model = {"line": jnp.zeros(2), "spread": jnp.array([1.0, 0.5]), "noise": jnp.array(0.3)}
    priors = [
        (lambda m: m["line"], inference.Improper()),
        (lambda m: (m["spread"], m["noise"]), inference.Improper(Positive())),
    ]
    return inference.hierarchical(
        model,
        observe,
        y,
        priors,
        effects=lambda m: inference.Normal(jnp.zeros(2), m["spread"]),
        subjects=times,
        **options,
    ), (times, y)


def exact(model, times, y):
    """The likelihood of a linear mixed model is that of normal vectors."""
    total = 0.0
    for t, own in zip(times, y, strict=True):
        seen = ~np.isnan(own)
        design = jnp.stack([jnp.ones(seen.sum()), jnp.asarray(t[seen])], axis=1)
        covariance = design @ jnp.diag(model["spread"] ** 2) @ design.T + model["noise"] ** 2 * jnp.eye(seen.sum())
        total += jax.scipy.stats.multivariate_normal.logpdf(jnp.asarray(own[seen]), design @ model["line"], covariance)
    return total


@pytest.mark.x64
def test_a_linear_mixed_model_is_exact():
    found, (times, y) = mixed_model()
    density = found.marginal

    def closed(z):
        return exact(density.constrain(density.unravel(z)), times, y)

    z = density.ravel(
        density.unconstrain({"line": jnp.array([0.8, 0.4]), "spread": jnp.array([0.7, 0.4]), "noise": jnp.array(0.25)})
    )

    def ours(z):
        return density.log_likelihood(density.constrain(density.unravel(z)))

    value, slope = jax.jit(jax.value_and_grad(ours))(z)
    expected, exact_slope = jax.jit(jax.value_and_grad(closed))(z)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(slope, exact_slope, rtol=1e-8, atol=1e-9)


@pytest.mark.x64
def test_the_most_likely_mixed_model_and_its_subjects():
    found, (times, y) = mixed_model()
    density = found.marginal

    def closed(z):
        return exact(density.constrain(density.unravel(z)), times, y)

    peak = density.maximum()
    z = density.ravel(peak.position)
    np.testing.assert_allclose(peak.hessian, jax.jit(jax.hessian(closed))(z), rtol=1e-6, atol=1e-6)
    slope = jax.grad(closed)(z)
    assert np.abs(slope).max() < 1e-3
    np.testing.assert_allclose(peak.log_joint, closed(z), rtol=1e-10)

    # standard errors of Hessians, and of sandwiches with the gradients of subjects
    def each(z):
        model = density.constrain(density.unravel(z))
        return jnp.stack([exact(model, times[i : i + 1], y[i : i + 1]) for i in range(6)])

    scores, inverse = jax.jit(jax.jacfwd(each))(z), np.linalg.inv(-peak.hessian)
    np.testing.assert_allclose(peak.covariance(), inverse, rtol=1e-8)
    np.testing.assert_allclose(peak.covariance(robust=True), inverse @ scores.T @ scores @ inverse, rtol=1e-6)
    variances = peak.standard_errors(lambda m: m["spread"] ** 2)
    slope = np.exp(2 * z[-2:]) * 2  # of the variances by logarithms
    np.testing.assert_allclose(variances, slope * np.sqrt(np.diagonal(inverse)[-2:]), rtol=1e-6)

    # the most probable effects are the best linear predictors
    modes, covariances = found.modes(peak.model)
    model, seen = peak.model, ~np.isnan(y[1])
    design = np.stack([np.ones(seen.sum()), times[1][seen]], axis=1)
    inner = np.linalg.inv(
        design.T @ design / float(model["noise"]) ** 2 + np.diag(1 / np.asarray(model["spread"]) ** 2)
    )
    best = inner @ design.T @ (y[1][seen] - design @ np.asarray(model["line"])) / float(model["noise"]) ** 2
    np.testing.assert_allclose(modes[1], best, rtol=1e-7)
    np.testing.assert_allclose(covariances[1], inner, rtol=1e-7)

    # parameters and effects together
    both = {"population": peak.model, "effects": modes}
    joint = found.joint
    assert joint.size == 5 + 12 and joint.names[0] == "effects[0,0]"
    at_modes = joint.log_joint(both) + 0.5 * jnp.sum(jnp.linalg.slogdet(2 * jnp.pi * covariances)[1])
    np.testing.assert_allclose(at_modes, peak.log_joint, rtol=1e-9)
    assert joint.predict(joint.unconstrain(both), jax.random.key(0))[0].shape == (6, 5)


@pytest.mark.x64
def test_stochastic_approximation_of_the_most_likely_mixed_model():
    """Newton's step of the exact likelihood is short compared with standard errors, and so is their error."""
    study, (times, y) = mixed_model()
    found = study.saem(jax.random.key(0))
    density = study.marginal

    def closed(z):
        return exact(density.constrain(density.unravel(z)), times, y)

    z = density.ravel(found.position)
    slope, hessian = jax.jit(lambda z: (jax.grad(closed)(z), jax.hessian(closed)(z)))(z)
    covariance = np.linalg.inv(-hessian)
    errors = np.sqrt(np.diagonal(covariance))
    assert np.all(np.abs(covariance @ slope) < 0.5 * errors)
    np.testing.assert_allclose(np.sqrt(np.diagonal(found.covariance())), errors, rtol=0.2)
    np.testing.assert_allclose(found.log_joint, closed(z), atol=0.2)


@pytest.mark.x64
def test_data_sets_are_lanes():
    """Sets of data side by side, one of which misses a datum, beside the exact likelihood of each."""
    _, (times, y) = mixed_model()
    sets = np.stack([y, y[::-1] + 0.1])[:, :3]
    model = {"spread": jnp.array([1.0, 0.5]), "noise": jnp.array(0.3)}

    def observe(model, effects, subject):
        return inference.Normal(effects[0] + effects[1] * subject, model["noise"])

    def likelihood(y):
        population = inference.hierarchical(
            model,
            observe,
            y,
            [(lambda m: m, inference.Improper(Positive()))],
            effects=lambda m: inference.Normal(jnp.zeros(2), m["spread"]),
            subjects=times[:3],
        )
        return population.marginal.log_likelihood(model)

    found = jax.jit(jax.vmap(likelihood))(sets)
    whole = model | {"line": jnp.zeros(2)}
    np.testing.assert_allclose(found, [exact(whole, times[:3], y) for y in sets], rtol=1e-10)


def level(t, clearance, volume, absorption):
    rate = clearance / volume
    return 10.0 * absorption / (volume * (absorption - rate)) * (jnp.exp(-rate * t) - jnp.exp(-absorption * t))


@pytest.mark.x64
def test_one_compartment_beside_quadrature():
    """Clearances vary from subject to subject: the marginal likelihood beside a sum over a fine grid of effects."""
    rng = np.random.default_rng(1)
    times = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    true = np.exp(0.3 * rng.normal(size=4))
    data = np.stack([level(times, 1.2 * c, 8.0, 1.5) * np.exp(0.2 * rng.normal(size=5)) for c in true])

    def observe(model, effect, subject):
        return inference.LogNormal(jnp.log(level(times, model["clearance"] * jnp.exp(effect), 8.0, 1.5)), 0.2)

    model = {"clearance": jnp.array(1.0), "spread": jnp.array(0.4)}
    priors = [(lambda m: m, inference.Improper(Positive()))]

    def build(nodes):
        options = {"effects": lambda m: inference.Normal(0.0, m["spread"]), "nodes": nodes}
        return inference.hierarchical(model, observe, data, priors, **options).marginal.log_likelihood(model)

    b = jnp.linspace(-3.0, 3.0, 2001)
    weight = jnp.exp(inference.Normal(0.0, 0.4).log_prob(b)) * (b[1] - b[0])
    each = jax.vmap(lambda b: jnp.sum(observe(model, b, None).log_prob(jnp.asarray(data)), axis=1))(b)
    best = jnp.sum(jax.scipy.special.logsumexp(each + jnp.log(weight)[:, None], axis=0))
    assert 1e-6 < abs(build(1) - best) < 0.1
    np.testing.assert_allclose(build(41), best, rtol=1e-8)


@pytest.mark.x64
def test_subjects_may_be_solved():
    """An equation that a solver integrates gives what its closed form gives, and so do derivatives."""
    data = jnp.array([[3.0, 1.4], [2.4, 1.0], [3.3, 1.9]])
    times = jnp.array([1.0, 3.0])
    model = {"rate": jnp.array(0.3), "spread": jnp.array(0.3)}

    def solved(rate):
        sol = sciml.solve(
            lambda t, y, args: -rate * y, jnp.array(4.0), t0=0.0, t1=3.0, saveat=times,
            rtol=1e-8, atol=1e-8, adjoint=sciml.adjoints.Direct(), throw=False, max_steps=100,
        )  # fmt: skip
        return sol.ys

    def density(curve):
        def observe(model, effect, subject):
            return inference.Normal(curve(model["rate"] * jnp.exp(effect)), 0.2)

        return inference.hierarchical(
            model,
            observe,
            data,
            [(lambda m: m, inference.Improper(Positive()))],
            effects=lambda m: inference.Normal(0.0, m["spread"]),
        ).marginal

    by_hand, by_solver = density(lambda rate: 4.0 * jnp.exp(-rate * times)), density(solved)
    z = by_hand.unconstrain(model)
    exactly, found = (jax.jit(jax.value_and_grad(d))(z) for d in (by_hand, by_solver))
    np.testing.assert_allclose(found[0], exactly[0], rtol=1e-6)
    np.testing.assert_allclose(found[1]["rate"], exactly[1]["rate"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1]["spread"], exactly[1]["spread"], rtol=1e-4, atol=1e-5)


@pytest.mark.x64
@pytest.mark.parametrize("method", ["laplace", "focei"])
def test_a_far_step_has_no_density_and_others_go_on(method):
    """Models side by side: two are so far out that predictions, or the curvature by the effects, say nothing."""
    times = jnp.array([1.0, 3.0])
    data = jnp.array([[3.0, 1.4], [2.4, 1.0], [3.3, 1.9]])

    def observe(model, effects, subject):
        return inference.LogNormal(jnp.log(4.0 * jnp.exp(-model["rate"] * jnp.exp(effects[0]) * times)), 0.2)

    density = inference.hierarchical(
        {"rate": jnp.array(0.3), "spread": jnp.array(0.3)},
        observe,
        data,
        [(lambda m: m, inference.Improper(Positive()))],
        effects=lambda m: inference.Normal(jnp.zeros(2), m["spread"]),  # the second changes nothing
        method=method,
    ).marginal
    far = {"rate": jnp.array([0.3, 1e6, 0.3]), "spread": jnp.array([0.3, 0.3, 1e200])}
    zs = jax.vmap(lambda m: density.ravel(density.unconstrain(m)))(far)

    def value(z):
        return density(density.unravel(z))

    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(value)))(zs)
    alone, slope = jax.jit(jax.value_and_grad(value))(zs[0])
    np.testing.assert_allclose(values[0], alone, rtol=1e-12)
    np.testing.assert_allclose(slopes[0], slope, rtol=1e-9)
    assert np.isfinite(alone) and np.all(values[1:] == -np.inf)
    # a search that steps there turns back
    start = {"rate": jnp.array(0.01), "spread": jnp.array(0.02)}
    peak = density.maximum(start)
    near = density.maximum({"rate": jnp.array(0.3), "spread": jnp.array(0.2)})
    np.testing.assert_allclose(peak.log_joint, near.log_joint, atol=1e-6)


def test_bad_input_is_named():
    model = {"spread": jnp.array(1.0)}
    priors = [(lambda m: m["spread"], inference.HalfNormal(1.0))]

    def build(data=jnp.zeros((3, 2)), effects=lambda m: inference.Normal(0.0, m["spread"]), **options):
        def observe(m, b, s):
            return inference.Normal(b, 1.0)

        return inference.hierarchical(model, observe, data, priors, effects=effects, **options)

    with pytest.raises(
        ValueError, match=r"one leading axis of subjects on every leaf, but their shapes are \[\(3, 2\), \(4,\)\]"
    ):
        build(subjects=jnp.zeros(4))
    with pytest.raises(TypeError, match="`effects` must be a function"):
        build(effects=3)
    with pytest.raises(TypeError, match="`effects` must return a distribution"):
        build(effects=lambda m: m["spread"])
    with pytest.raises(TypeError, match=r"`observe` must be callable as `observe\(model, effects, subject\)`"):
        inference.hierarchical(model, lambda m, b: b, jnp.zeros((3, 2)), priors, effects=lambda m: m["spread"])
    with pytest.raises(ValueError, match="bounds of the effects would move"):
        build(effects=lambda m: inference.Uniform(0.0, 1.0))
    with pytest.raises(ValueError, match=r"`hierarchical\(nodes=...\)` must be a positive"):
        build(nodes=0)
