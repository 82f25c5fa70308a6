"""Chains by BlackJAX, where it is installed: an epidemic beside its exact posterior on a grid."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inference, inspect, parallel
from sciml.inference._nuts import _Chain

DAYS = jnp.arange(1.0, 41.0)
POPULATION = 2000.0


def expected(model):
    """New cases a day."""
    start = jnp.array([POPULATION - 2.0, 2.0, 0.0])
    options = dict(adjoint=sciml.adjoints.Direct(), throw=False, max_steps=200)
    sol = sciml.solve(model, start, t0=0.0, t1=40.0, saveat=DAYS, rtol=1e-6, atol=1e-6, **options)
    healthy = jnp.concatenate([start[:1], sol.ys[:, 0]])
    return jnp.maximum(healthy[:-1] - healthy[1:], 1e-9)


def epidemic():
    """Forty counts, and the density of both rates."""
    counts = jax.random.poisson(jax.random.key(5), expected(sciml.models.SIR(beta=0.6, gamma=0.25)))
    priors = [
        (lambda m: m.beta, inference.LogNormal(-0.5, 0.5)),
        (lambda m: m.gamma, inference.LogNormal(-1.0, 0.5)),
    ]
    model = sciml.models.SIR(beta=0.5, gamma=0.2)
    return inference.log_density(model, lambda m: inference.PoissonCounts(expected(m)), counts, priors)


@functools.cache
def exactly():
    """The density, Laplace's approximation, and mean, deviation and evidence of both rates on a grid.

    The grid lies along the axes of the covariance and is sixteen standard deviations wide.
    """
    density = epidemic()
    near = density.laplace()
    centre, factor = density.ravel(near.mode), jnp.linalg.cholesky(near.covariance)
    axis = jnp.linspace(-8.0, 8.0, 49)
    grid = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = jax.jit(jax.vmap(lambda w: density(density.unravel(centre + factor @ w))))(grid)
    p = jnp.exp(log_p - jax.scipy.special.logsumexp(log_p))
    assert p[np.abs(np.asarray(grid)).max(axis=1) == 8].max() < 1e-6
    rates = jnp.exp(centre[None] + grid @ factor.T)
    mean = p @ rates
    deviation = jnp.sqrt(p @ (rates - mean[None]) ** 2)
    evidence = jax.scipy.special.logsumexp(log_p) + jnp.sum(jnp.log(jnp.diagonal(factor) * (axis[1] - axis[0])))
    return density, near, mean, deviation, evidence


def test_a_plain_function_needs_a_start():
    """A density that is no `LogDensity` is sampled from where it is told, and its models are positions."""
    pytest.importorskip("blackjax")

    def normal(z):
        return -0.5 * jnp.sum(z["z"] ** 2)

    options = dict(chains=2, draws=100, warmup=50)
    with pytest.raises(TypeError, match="or a function of a position together with `start`"):
        inference.nuts(normal, jax.random.key(0), **options)
    draws = inference.nuts(normal, jax.random.key(0), start={"z": jnp.zeros((2, 3))}, **options)
    assert draws.models["z"].shape == (2, 100, 3) and abs(draws.models["z"].std() - 1) < 0.25
    assert str(draws) == "100 draws of each of 2 chains"


@pytest.mark.x64
def test_weights_make_laplace_the_posterior_of_a_grid():
    density, near, mean, deviation, evidence = exactly()
    drawn = near.weighted(jax.random.key(3), 1000)
    rates = jnp.exp(jax.vmap(density.ravel)(drawn.positions))
    assert drawn.effective > 700
    assert np.all(np.abs(drawn.weights @ rates - mean) < 4 * deviation / np.sqrt(drawn.effective))
    np.testing.assert_allclose(drawn.log_evidence, evidence, atol=0.05)
    np.testing.assert_allclose(near.log_evidence, evidence, atol=0.05)


@pytest.mark.x64
def test_nuts_draws_the_posterior_of_a_grid():
    blackjax = pytest.importorskip("blackjax")
    density, near, mean, deviation, _ = exactly()
    start = near.sample(jax.random.key(1), 4)
    devices = parallel.mesh(devices=jax.devices()[:4])
    draws = inference.nuts(density, jax.random.key(2), draws=600, warmup=300, start=start, mesh=devices)
    assert draws.shape == (4, 600) and not bool(jnp.any(draws.statistics["diverging"]))
    samples = jnp.stack([draws.models.beta, draws.models.gamma], axis=-1)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        effective = np.asarray(blackjax.ess(samples, chain_axis=0, sample_axis=1))
        assert np.all(np.asarray(blackjax.rhat(samples, chain_axis=0, sample_axis=1)) < 1.02)
    assert np.all(effective > 150)
    error = deviation / np.sqrt(effective)
    assert np.all(np.abs(samples.mean((0, 1)) - mean) < 4 * error)
    assert np.all(np.abs(samples.std((0, 1)) / deviation - 1) < 4 / np.sqrt(2 * effective))


@pytest.mark.x64
def test_an_approximation_to_start_from_saves_most_of_the_warm_up():
    """The draws are of the posterior, not of the approximation, and trajectories are short from the beginning."""
    blackjax = pytest.importorskip("blackjax")
    density, near, mean, deviation, _ = exactly()
    draws = inference.nuts(density, jax.random.key(2), draws=600, warmup=60, start=near)
    assert draws.shape == (4, 600) and not bool(jnp.any(draws.statistics["diverging"]))
    samples = jnp.stack([draws.models.beta, draws.models.gamma], axis=-1)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        effective = np.asarray(blackjax.ess(samples, chain_axis=0, sample_axis=1))
    assert np.all(effective > 300) and draws.statistics["n_steps"].mean() < 8
    assert np.all(np.abs(samples.mean((0, 1)) - mean) < 4 * deviation / np.sqrt(effective))
    assert np.all(np.abs(samples.std((0, 1)) / deviation - 1) < 4 / np.sqrt(2 * effective))
    np.testing.assert_allclose(
        draws.statistics["lp"][0, 7], density(jax.tree.map(lambda z: z[0, 7], draws.positions)), rtol=1e-9
    )


def test_an_approximation_whose_factor_is_wrong_is_put_right():
    """Of a normal distribution a tenth as wide and turned: the warm-up adapts what it was given."""
    pytest.importorskip("blackjax")
    priors = [(lambda m: m["z"], inference.Normal(0.0, 1.0))]
    density = inference.log_density({"z": jnp.ones(2)}, lambda m: inference.Normal(m["z"], 1.0), jnp.zeros(2), priors)
    near = density.laplace()
    skewed = dataclasses.replace(near, _factor=jnp.array([[0.1, 0.0], [0.5, 2.0]]))
    draws = inference.nuts(density, jax.random.key(0), draws=400, warmup=200, start=skewed)
    z = draws.models["z"].reshape(-1, 2)
    assert np.all(np.abs(z.mean(0)) < 0.2) and np.all(np.abs(z.std(0) - np.sqrt(0.5)) < 0.1)


def test_what_cannot_be_started_from():
    pytest.importorskip("blackjax")
    priors = [(lambda m: m["z"], inference.Normal(0.0, 1.0))]
    near = inference.log_density({"z": 1.0}, lambda m: inference.Normal(m["z"], 1.0), jnp.zeros(()), priors).laplace()
    with pytest.raises(TypeError, match="only accepts an approximation for a `LogDensity`"):
        inference.nuts(lambda z: -jnp.sum(z**2), jax.random.key(0), start=near)


@pytest.mark.x64
def test_four_chains_on_four_devices_are_those_of_one_each():
    """Of an equation that is solved: no device waits for another, and a chain is the one that runs by itself."""
    pytest.importorskip("blackjax")
    density, devices = epidemic(), jax.devices()[:4]
    chain, keys = _Chain(density, 4, 6, 0.8, 3), jax.random.split(jax.random.key(0), 4)
    scatter = 0.02 * jnp.arange(8.0).reshape(4, 2)
    start = jax.vmap(density.unravel)(density.ravel(density.unconstrain(density.model))[None] + scatter)

    def together(keys, start):
        return parallel.ensemble(chain, (keys, start), mesh=parallel.mesh(devices=devices))[0]

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert not inspect.collectives(together, keys, start)
        found = jax.jit(together)(keys, start)
        alone = jax.jit(lambda member: chain(member))
        for i in range(4):
            own = alone((keys[i], jax.tree.map(lambda z: z[i], start)))[0]
            np.testing.assert_allclose(found.beta[i], own.beta, rtol=1e-6)
            np.testing.assert_allclose(found.gamma[i], own.gamma, rtol=1e-6)
    assert len({float(x) for x in found.beta[:, -1]}) == 4


@pytest.mark.x64
def test_numpyro_takes_the_potential():
    pytest.importorskip("numpyro")
    from numpyro.infer import MCMC, NUTS

    counts = np.array([3, 1, 4, 1, 5])
    density = inference.log_density(
        {"rate": jnp.array(2.0)},
        lambda m: inference.PoissonCounts(m["rate"]),
        counts,
        [(lambda m: m["rate"], inference.Gamma(2.0, 0.5))],
    )
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        mcmc = MCMC(
            NUTS(potential_fn=density.potential), num_warmup=200, num_samples=500, num_chains=2,
            chain_method="vectorized", progress_bar=False,
        )  # fmt: skip
        start = jax.vmap(density.initial)(jax.random.split(jax.random.key(0), 2))
        mcmc.run(jax.random.key(1), init_params=start)
    draws = inference.Draws(density, mcmc.get_samples(group_by_chain=True))
    np.testing.assert_allclose(np.mean(draws.models["rate"]), 16 / 5.5, rtol=0.05)


def test_draws_go_to_arviz():
    pytest.importorskip("xarray")
    model = {"rate": jnp.array(2.0), "levels": jnp.zeros(3), "fixed": jnp.ones(2)}
    priors = [
        (lambda m: m["rate"], inference.Gamma(2.0, 0.5)),
        (lambda m: m["levels"], inference.Normal(0.0, 1.0)),
    ]
    density = inference.log_density(
        model, lambda m: inference.Normal(m["rate"] + m["levels"], 1.0), jnp.array([1.0, 2.0, 3.0]), priors
    )
    keys = jax.random.split(jax.random.key(0), (2, 10))
    draws = inference.Draws(density, jax.vmap(jax.vmap(density.initial))(keys), {"lp": jnp.zeros((2, 10))})
    tree = draws.to_xarray(log_likelihood=True)
    assert dict(tree["posterior"].sizes) == {"chain": 2, "draw": 10, "levels_dim_0": 3}
    assert set(tree["posterior"].data_vars) == {"rate", "levels"} and "lp" in tree["sample_stats"]
    np.testing.assert_allclose(tree["posterior"]["rate"], jnp.exp(draws.positions["rate"]), rtol=1e-6)
    assert tree["log_likelihood"]["data"].dims == ("chain", "draw", "data_dim_0")
    np.testing.assert_allclose(tree["observed_data"]["data"], [1.0, 2.0, 3.0])
    assert draws.merged()["levels"].shape == (20, 3) and draws.merged()["fixed"].shape == (20, 2)
    assert draws.predict(jax.random.key(1)).shape == (2, 10, 3)
    with pytest.raises(ValueError, match=r"leading axes \(chains, draws\), but their shapes begin with"):
        inference.Draws(density, {"rate": jnp.zeros(3)})


def test_a_missing_sampler_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "blackjax", None)
    with pytest.raises(ImportError, match=r"`nuts` requires BlackJAX: `pip install 'sciml-jax\[inference\]'`"):
        inference.nuts(None, jax.random.key(0))
