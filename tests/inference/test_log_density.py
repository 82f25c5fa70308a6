"""Posteriors whose density, maximum, spread and evidence are known in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from sciml import inference, training

X64 = jax.config.jax_enable_x64
COUNTS = np.array([3, 1, 4, 1, 5])


def poisson_gamma(data=COUNTS):
    return inference.log_density(
        {"rate": jnp.array(2.0)},
        lambda m: inference.PoissonCounts(m["rate"]),
        data,
        [(lambda m: m["rate"], inference.Gamma(2.0, 0.5))],
    )


@pytest.mark.x64
def test_poisson_gamma_is_conjugate():
    """The posterior is a gamma distribution, to rounding; and so is its evidence, by importance weights."""
    density = poisson_gamma()
    exact = scipy.stats.gamma(2 + COUNTS.sum(), scale=1 / (0.5 + COUNTS.size))
    shape, rate = 2 + COUNTS.sum(), 0.5 + COUNTS.size
    evidence = (
        2 * np.log(0.5) - scipy.special.gammaln(2) + scipy.special.gammaln(shape) - shape * np.log(rate)
    ) - scipy.special.gammaln(COUNTS + 1).sum()
    z = np.linspace(-2.0, 3.0, 11)
    found = jax.vmap(lambda z: density({"rate": z}))(jnp.asarray(z))
    np.testing.assert_allclose(found - evidence, exact.logpdf(np.exp(z)) + z, rtol=1e-12, atol=1e-12)

    peak = density.maximum()
    np.testing.assert_allclose(peak.model["rate"], (shape - 1) / rate, rtol=1e-8)
    near = density.laplace()
    np.testing.assert_allclose(near.model["rate"], shape / rate, rtol=1e-8)  # that of the free variable
    np.testing.assert_allclose(near.covariance, [[1 / shape]], rtol=1e-8)
    np.testing.assert_allclose(near.standard_errors["rate"], np.sqrt(shape) / rate, rtol=1e-8)

    draws = near.weighted(jax.random.key(0), 4000)
    rates = np.asarray(jax.vmap(density.constrain)(draws.positions)["rate"])
    assert draws.effective > 3000
    np.testing.assert_allclose(draws.log_evidence, evidence, atol=5e-3)
    np.testing.assert_allclose(np.sum(draws.weights * rates), exact.mean(), rtol=0.01)
    again = density.constrain(draws.resample(jax.random.key(1), 4000))["rate"]
    np.testing.assert_allclose(np.std(again), exact.std(), rtol=0.05)


@pytest.mark.x64
def test_a_linear_model_is_normal_with_its_evidence():
    """Mean, covariance and evidence of a line with a normal prior are those of the closed form, to rounding."""
    x = np.linspace(-1.0, 2.0, 12)
    design = np.stack([np.ones_like(x), x], axis=1)
    y = 0.7 * x - 0.2 + 0.1 * np.cos(9 * x)
    sigma, tau = 0.3, np.array([2.0, 0.5])

    def observe(model):
        return inference.Normal(model["offset"] + model["slope"] * x, sigma)

    priors = [
        (lambda m: m["offset"], inference.Normal(0.0, tau[0])),
        (lambda m: m["slope"], inference.Normal(0.0, tau[1])),
    ]
    density = inference.log_density({"offset": jnp.array(0.0), "slope": jnp.array(0.0)}, observe, y, priors)
    found = density.laplace()
    covariance = np.linalg.inv(design.T @ design / sigma**2 + np.diag(1 / tau**2))
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9)
    np.testing.assert_allclose(density.ravel(found.mode), covariance @ design.T @ y / sigma**2, rtol=1e-7)
    marginal = scipy.stats.multivariate_normal(cov=sigma**2 * np.eye(12) + design @ np.diag(tau**2) @ design.T)
    np.testing.assert_allclose(found.log_evidence, marginal.logpdf(y), rtol=1e-11)
    drawn = jax.vmap(density.ravel)(found.sample(jax.random.key(3), 4000))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, rtol=0.1, atol=1e-4)
    z = found.sample(jax.random.key(4), 1)
    z = jax.tree.map(lambda x: x[0], z)
    np.testing.assert_allclose(found.log_prob(z), density(z) - marginal.logpdf(y), rtol=1e-7)


class Levels(eqx.Module):
    typical: jax.Array
    spread: jax.Array
    levels: jax.Array
    label: str = eqx.field(static=True, default="levels")


def test_priors_may_depend_on_the_model_and_draws_follow():
    """Levels vary about a typical one by a spread that is itself drawn: together they vary as both do."""
    model = Levels(jnp.array(0.0), jnp.array(1.0), jnp.zeros(4))
    priors = [
        (lambda m: m.typical, inference.Normal(5.0, 2.0)),
        (lambda m: m.spread, inference.LogNormal(0.0, 0.1)),
        (lambda m: m.levels, lambda m: inference.Normal(m.typical, m.spread)),
    ]
    data = jnp.array([[1.0, jnp.nan], [2.0, 2.5], [0.0, 1.0], [1.0, 1.0]])
    density = inference.log_density(model, lambda m: inference.Normal(m.levels[:, None], 1.0), data, priors)
    assert density.names == ("typical", "spread", "levels[0]", "levels[1]", "levels[2]", "levels[3]")
    assert density.n_observations == 7 and density.size == 6
    positions = jax.vmap(density.initial)(jax.random.split(jax.random.key(0), 2000))
    models = jax.vmap(density.constrain)(positions)
    np.testing.assert_allclose(jnp.mean(models.levels), 5.0, atol=0.2)
    np.testing.assert_allclose(jnp.std(models.levels - models.typical[:, None]), 1.0, atol=0.05)

    # what is missing counts as nothing, and its derivative too
    position = density.unconstrain(model)
    one = scipy.stats.norm.logpdf
    prior = one(0.0, 5, 2) + scipy.stats.lognorm.logpdf(1.0, 0.1) + 4 * one(0.0)
    expected = np.nansum(one(np.asarray(data))) + prior
    np.testing.assert_allclose(density(position), expected, rtol=1e-12 if X64 else 1e-5)
    slope = jax.grad(density)(position)
    np.testing.assert_allclose(slope.levels, [1.0, 4.5, 1.0, 2.0], rtol=1e-5)
    assert density.predict(position, jax.random.key(1)).shape == (4, 2)
    np.testing.assert_allclose(density.residuals(model), data, rtol=1e-6)


def test_one_program_for_derivatives_lanes_and_compilation():
    density = poisson_gamma()
    z = {"rate": jnp.linspace(0.5, 1.5, 3)}
    slopes = jax.jit(jax.vmap(jax.grad(density)))(z)
    step = 1e-4 if X64 else 1e-2
    shifted = [jax.vmap(density)({"rate": z["rate"] + sign * step}) for sign in (1, -1)]
    np.testing.assert_allclose(slopes["rate"], (shifted[0] - shifted[1]) / (2 * step), rtol=1e-5 if X64 else 2e-2)
    np.testing.assert_allclose(density.potential({"rate": z["rate"][0]}), -density({"rate": z["rate"][0]}))
    single = inference.log_density(  # parameters in float32 stay so
        {"rate": jnp.array(2.0, jnp.float32)},
        lambda m: inference.PoissonCounts(m["rate"]),
        COUNTS,
        [(lambda m: m["rate"], inference.Gamma(2.0, 0.5))],
    )
    assert single.unconstrain(single.model)["rate"].dtype == jnp.float32
    assert jax.grad(single)(single.unconstrain(single.model))["rate"].dtype == jnp.float32


def test_densities_are_functions_for_jit():
    """They have a hash, whatever the model."""
    density = poisson_gamma()
    position = {"rate": jnp.array(0.3)}
    np.testing.assert_allclose(jax.jit(density)(position), density(position), rtol=1e-6)
    value, slope = jax.jit(jax.value_and_grad(density))(position)
    np.testing.assert_allclose(slope["rate"], jax.grad(density)(position)["rate"], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(density.potential)(position), -value, rtol=1e-6)
    assert density == density and density != poisson_gamma()


def test_what_data_do_not_determine_is_named():
    model = {"a": jnp.array(1.0), "b": jnp.array(1.0), "c": jnp.array(0.0)}
    priors = [
        (lambda m: (m["a"], m["b"]), inference.Improper(training.Positive())),
        (lambda m: m["c"], inference.Normal(0.0, 1.0)),
    ]
    x = jnp.arange(5.0)
    density = inference.log_density(model, lambda m: inference.Normal(m["a"] * m["b"] * x + m["c"], 0.1), 2 * x, priors)
    with pytest.warns(UserWarning, match=r"do not determine 0\.71 `[ab]` - 0\.71 `[ab]` \(in free"):
        found = density.laplace()
    assert np.isinf(found.log_evidence) and np.isinf(found.covariance[0, 0]) and np.isfinite(found.covariance[2, 2])
    with pytest.raises(ValueError, match="requires a finite covariance, but data and priors do not determine 0.71"):
        found.sample(jax.random.key(0), 3)


def test_a_model_that_fails_has_no_density():
    def observe(model):
        end = 1 / jnp.where(model["k"] < 1, 1 - model["k"], jnp.nan)  # of dy/dt = k y^2, which blows up at 1 / k
        return inference.Normal(end, 0.1)

    density = inference.log_density(
        {"k": jnp.array(0.5)}, observe, jnp.array(1.6), [(lambda m: m["k"], inference.LogNormal(0.0, 1.0))]
    )
    assert density({"k": jnp.log(2.0)}) == -jnp.inf
    found = density.laplace()
    np.testing.assert_allclose(found.model["k"], 1 - 1 / 1.6, rtol=0.2)
    with pytest.raises(ValueError, match="laplace: the density is zero or not finite at the start"):
        density.laplace({"k": jnp.array(2.0)})


def test_bad_input_is_named():
    model = {"a": jnp.array(1.0), "n": 3}
    fine = [(lambda m: m["a"], inference.Normal(0.0, 1.0))]

    def observe(m):
        return inference.Normal(m["a"], 1.0)

    def build(observe=observe, data=jnp.zeros(2), priors=fine, model=model):
        return inference.log_density(model, observe, data, priors)

    build()
    with pytest.raises(TypeError, match="`observe` must be a function"):
        build(observe=3)
    with pytest.raises(ValueError, match="`priors` must be a list of tuples"):
        build(priors=[])
    with pytest.raises(TypeError, match=r"must be a tuple `\(selector, prior\)`"):
        build(priors=[inference.Normal(0.0, 1.0)])
    with pytest.raises(ValueError, match="`a` has two priors, entries 0 and 1"):
        build(priors=[*fine, *fine])
    with pytest.raises(TypeError, match="must be a distribution of `sciml.inference`, got <scipy"):
        build(priors=[(lambda m: m["a"], scipy.stats.norm(0, 1))])
    with pytest.raises(TypeError, match="which have no derivative"):
        build(priors=[(lambda m: m["a"], inference.PoissonCounts(1.0))])
    with pytest.raises(ValueError, match="initial value of `a` must be strictly between its bounds"):
        build(priors=[(lambda m: m["a"], inference.Uniform(2.0, 3.0))])
    with pytest.raises(ValueError, match="has bounds, which would move with the model"):
        build(priors=[(lambda m: m["a"], lambda m: inference.Uniform(0.0, 2 * m["a"]))])
    with pytest.raises(TypeError, match="`observe` must return a distribution"):
        build(observe=lambda m: m["a"])
    with pytest.raises(ValueError, match="for each array of `data`"):
        build(observe=lambda m: {"x": observe(m)})
    with pytest.raises(ValueError, match="must broadcast to the shape of its values"):
        build(observe=lambda m: inference.Normal(m["a"] + jnp.zeros(3), 1.0))
    with pytest.raises(TypeError, match="`data` must be arrays"):
        build(data={"x": "y"})
    with pytest.raises(ValueError, match="draws random starts and requires `key"):
        build().maximum(starts=3)
    with pytest.raises(
        TypeError, match=r"`observe` must be callable as `observe\(model\)`, but its signature is \(m, x\)"
    ):
        build(observe=lambda m, x: observe(m))
    with pytest.raises(TypeError, match=r"`data` is a list of numbers.*Write the data as one array, `jnp.array"):
        build(data=[1.0, 2.0])
    with pytest.raises(TypeError, match="`priors` selects `a`, which is an array of dtype int32; only floating-point"):
        build(model=model | {"a": jnp.array(1, jnp.int32)})
    with pytest.raises(
        ValueError, match=r"entry 0 of `priors`, of `a`, is not a density: Normal\(location=0.0, scale=-1.0\)"
    ):
        build(priors=[(lambda m: m["a"], changed(inference.Normal(0.0, 1.0), "scale", -1.0))])
    with pytest.raises(ValueError, match="is not a density: Gamma"):
        build(priors=[(lambda m: m["a"], changed(inference.Gamma(2.0, 1.0), "shape", -2.0))])


def changed(distribution, name, value):
    """A distribution with a parameter that it would refuse when it is made."""
    return eqx.tree_at(lambda d: getattr(d, name), distribution, jnp.asarray(value))


def test_what_is_no_position_is_told():
    """A position of another structure is refused by all that take one, and a vector of all numbers is one."""
    priors = [(lambda m: (m["a"], m["b"]), inference.Normal(0.0, 1.0))]
    model = {"a": jnp.array(1.0), "b": jnp.zeros(2), "c": jnp.array(3.0)}
    density = inference.log_density(model, lambda m: inference.Normal(m["a"], 1.0), jnp.zeros(2), priors)
    z = jnp.array([0.5, 1.0, 2.0])
    np.testing.assert_array_equal(density(z), density(density.unravel(z)))
    wanted = r"free variables of the sampled parameters, with shapes `a` \(\), `b` \(2,\), but this one"
    for wrong in ({"a": jnp.array(0.0)}, model, jnp.zeros(4), {"a": jnp.zeros(3), "b": jnp.zeros(2)}):
        for call in (density, density.constrain, density.ravel):
            with pytest.raises(ValueError, match=wanted):
                call(wrong)
    five = density.constrain({"a": jnp.zeros(5), "b": jnp.zeros((5, 2)), "c": None})
    assert five["a"].shape == (5,) and five["b"].shape == (5, 2)
    with pytest.raises(ValueError, match=r"`unravel` requires a vector of shape \(3,\).*got shape \(4,\)"):
        density.unravel(jnp.zeros(4))
    with pytest.raises(TypeError, match="`initial`: `key` must be a random key|'key'.\nActual value: 0"):
        density.initial(0)


def test_what_is_printed():
    density = poisson_gamma()
    assert str(density) == "the density of 1 parameters, `rate`, given 5 data"
    table = str(density.laplace()).splitlines()
    assert table[1].split()[0] == "rate" and abs(float(table[1].split()[1]) - 16 / 5.5) < 1e-3
    draws = inference.Draws(density, {"rate": jnp.log(jnp.arange(1.0, 9.0)).reshape(2, 4)})
    first, _, row = str(draws).splitlines()
    assert first == "4 draws of each of 2 chains"
    np.testing.assert_allclose([float(x) for x in row.split()[1:]], [4.5, 2.29129, 1.35, 7.65], rtol=1e-5)


def test_several_starts_find_the_higher_of_two_maxima():
    priors = [(lambda m: m, inference.Normal(1.0, 1.0))]
    density = inference.log_density(jnp.array(-1.0), lambda m: inference.Normal(m**2, 0.5), jnp.array(4.0), priors)
    one = density.maximum()
    many = density.maximum(starts=6, key=jax.random.key(0))
    assert one.model < 0 < many.model and many.log_joint > one.log_joint
    slope = 2 * many.model * (4 - many.model**2) / 0.25 - (many.model - 1)
    np.testing.assert_allclose(slope, 0.0, atol=1e-5 if X64 else 2e-2)
