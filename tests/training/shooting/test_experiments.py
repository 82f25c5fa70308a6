"""Several experiments of unequal length: shooting, rollouts, collocation, and the bound of latent ODEs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import norm

from sciml import training
from sciml.models.neural import LatentODE, NeuralODE
from sciml.training import multiple_shooting
from sciml.training.shooting._shooting import Shooting

TS = [np.array([0.0, 0.2, 0.5, 0.9, 1.0]), np.array([1.0, 1.4, 1.5]), np.linspace(0.0, 2.0, 8)]
RATES = jnp.array([1.0, 0.5, 2.0])
STARTS = (1.0, 3.0, 2.0)
OPTIONS = dict(dt=0.05)


def decay(t, y, args):
    return -args * y


def exact(rate, start, ts):
    return np.stack([start * np.exp(-float(rate) * (ts - ts[0])), np.exp(-float(rate) * (ts - ts[0]))], axis=1)


def records():
    return [exact(rate, start, ts) for rate, start, ts in zip(RATES, STARTS, TS, strict=True)]


@eqx.filter_jit
def value(problem, model, key=None):
    return problem.loss(model, problem.data, key)


@pytest.mark.x64
def test_shooting_over_experiments_with_conditions_of_their_own():
    ys = records()
    ys[2][3, 0] = np.nan
    problem = multiple_shooting(decay, TS, ys, length=2, penalty=3.0, conditions=RATES, **OPTIONS)
    windows = problem.data
    np.testing.assert_array_equal(windows.experiment, [0, 0, 1, 2, 2, 2, 2])
    np.testing.assert_array_equal(windows.followed, [1, 0, 0, 1, 1, 1, 0])
    np.testing.assert_array_equal(windows.number, np.arange(7))
    total, parts = value(problem, problem.model)
    assert total < 1e-6
    # the end of one experiment does not pull at the start of the next
    off = problem.model.starts.at[2].add(0.1)
    _, moved = value(problem, Shooting(decay, off))
    assert moved["gap"] == parts["gap"] and moved["misfit"] > 1e-4
    _, moved = value(problem, Shooting(decay, problem.model.starts.at[1].add(0.1)))
    assert moved["gap"] > 1e-4
    longer = problem.longer(problem.model)
    np.testing.assert_array_equal(longer.data.experiment, [0, 1, 2, 2])
    np.testing.assert_array_equal(longer.model.starts, problem.model.starts[jnp.array([0, 2, 3, 5])])
    assert value(longer, longer.model)[0] < 1e-6 and longer.data.ts.shape == (4, 5)
    alone = [multiple_shooting(decay, t, y, length=4, args=r, **OPTIONS) for t, y, r in zip(TS, ys, RATES)]
    counts = [int(p.data.seen.sum()) for p in alone]
    assert int(longer.data.seen.sum()) == sum(counts)


@pytest.mark.parametrize(
    "error, match, change",
    [
        (ValueError, "list of 3 records", dict(ys=records()[:2])),
        (ValueError, "row for each of the 3 experiments", dict(conditions=RATES[:2])),
        (TypeError, "not both", dict(args=1.0)),
        (ValueError, "row for each of the 5 times", dict(ys=records()[::-1])),
    ],
)
def test_bad_experiments(error, match, change):
    given = dict(ts=TS, ys=records(), length=2, conditions=RATES) | change
    with pytest.raises(error, match=match):
        multiple_shooting(decay, **given)


@pytest.mark.x64
def test_rollouts():
    options = dict(length=2, conditions=RATES, scale=jnp.array([2.0, 1.0]), **OPTIONS)
    exactly = training.rollouts(decay, TS, records(), **options)
    data, key = exactly.data, jax.random.key(0)
    assert data.windows.ts.shape == (3 + 1 + 6, 3) and data.starts.shape == (10, 2)
    np.testing.assert_array_equal(data.starts, np.concatenate([y[:-2] for y in records()]))
    assert value(exactly, decay, key) < 1e-9
    # starts with noise: the misfit is that of the noise, which decays
    noisy = training.rollouts(decay, TS, records(), noise=0.1, **options)
    found = np.mean([value(noisy, decay, jax.random.key(i)) for i in range(200)])
    ratios = [np.exp(-2 * float(r) * (t[1:3] - t[0])) for r, ts in zip(RATES, TS) for t in np.stack([ts[i : i + 3] for i in range(len(ts) - 2)])]  # fmt: skip  # noqa: E501
    np.testing.assert_allclose(found, 0.01 * np.mean(ratios), rtol=0.1)


@pytest.mark.x64
def test_no_gradient_passes_what_is_pushed_forward():
    ts = jnp.linspace(0.0, 1.0, 6)
    ys = jnp.exp(-ts)[:, None]

    def loss(rate, pushforward):
        model = lambda t, y, args: -rate * y  # noqa: E731
        problem = training.rollouts(model, ts, ys, length=1, pushforward=pushforward, stride=5, dt=0.02)
        return problem.loss(model, problem.data, jax.random.key(0))

    # one window: it starts at 1, is led to exp(-0.2 k r), and judged 0.2 later
    rate, k = 1.3, 2
    warm = np.exp(-0.2 * k * rate)
    end, wanted = warm * np.exp(-0.2 * rate), np.exp(-0.2 * (k + 1))
    got, slope = jax.jit(jax.value_and_grad(lambda r: loss(r, k)))(jnp.array(rate))
    np.testing.assert_allclose(got, (end - wanted) ** 2, rtol=1e-5)
    np.testing.assert_allclose(slope, 2 * (end - wanted) * (-0.2 * end), rtol=1e-5)
    with pytest.raises(ValueError, match="nonnegative number of intervals"):
        loss(1.0, -1)


def test_collocation_starts_what_shooting_ends():
    ts = [np.linspace(0.0, 3.0, 31), np.linspace(0.0, 2.0, 15)]
    spiral = lambda t, r: np.stack([r * np.cos(2 * t), -r * np.sin(2 * t)], axis=1) * np.exp(-0.1 * t)[:, None]  # noqa: E731
    ys = [spiral(ts[0], 1.0), spiral(ts[1], 2.0)]
    model = NeuralODE(2, width=12, depth=1, scale=2.0, unit=4.0, key=jax.random.key(0))
    problem = training.collocate(model, ts, ys)
    assert problem.data.states.shape == (46, 2)
    found = training.train(*problem, optimiser=optax.adam(2e-2), steps=400, progress=False)
    assert found.history.loss[-1] < 0.01 * found.history.loss[0]
    y = jnp.array([0.7, -0.8])
    wanted = jnp.array([-0.1 * 0.7 + 2 * -0.8, -2 * 0.7 - 0.1 * -0.8])
    assert jnp.abs(found.model(0.0, y, None) - wanted).max() < 0.25
    with pytest.raises(ValueError, match="only one experiment"):
        training.collocate(model, ts, ys, at=ts[0])


def constant_latent(key):
    """A latent ODE whose latent state stays, and whose decoder is linear."""
    model = LatentODE(2, 1, memory=3, depth=0, key=key)
    where = lambda m: m.term.net.layers[0]  # noqa: E731
    return eqx.tree_at(where, model, jax.tree.map(jnp.zeros_like, where(model)))


@pytest.mark.x64
def test_the_bound_of_a_latent_ode_against_its_closed_form():
    """With a state that stays and a linear decoder both terms are known, the likelihood after the mean over draws."""
    model, noise = constant_latent(jax.random.key(1)), np.array([0.5, 0.8])
    ts = [np.array([0.0, 0.5, 1.0]), np.array([0.0, 2.0])]
    ys = [np.array([[0.1, 0.4], [np.nan, 0.2], [-0.3, 0.9]]), np.array([[1.0, -1.0], [0.5, 0.0]])]
    data = training.experiments(ts, ys)
    loss = training.LatentLoss(noise, weight=0.7, dt=1.0)
    keys = jax.random.split(jax.random.key(2), 2000)
    totals, parts = jax.jit(jax.vmap(lambda key: loss(model, data, key)))(keys)
    np.testing.assert_allclose(totals, 0.7 * parts["divergence"] - parts["likelihood"], rtol=1e-12)
    (layer,) = model.decoder.layers
    likelihood, divergence = [], []
    for i in range(2):
        posterior = model.encode(data.ts[i], data.ys[i], data.seen[i])
        m, s = float(posterior.mean[0]), float(np.exp(posterior.log_deviation[0]))
        w, b = np.asarray(layer.weight)[:, 0], np.asarray(layer.bias)
        logs = norm.logpdf(ys[i], w * m + b, noise) - (w * s / noise) ** 2 / 2
        likelihood.append(np.nansum(logs))
        divergence.append((s**2 + m**2 - 1) / 2 - np.log(s))
    np.testing.assert_allclose(parts["divergence"], np.mean(divergence), rtol=1e-10)
    error = np.std(np.asarray(parts["likelihood"])) / 2000**0.5
    assert abs(np.mean(parts["likelihood"]) - np.mean(likelihood)) < 4 * error
    with pytest.raises(TypeError, match="sets `saveat` itself"):
        training.LatentLoss(0.1, saveat=ts)
