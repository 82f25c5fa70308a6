"""Multiple shooting: which window gets what, the loss against exact solutions, and a law learnt from one record."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sciml
from sciml.training import multiple_shooting, train
from sciml.training.shooting._shooting import Shooting

TS = np.array([0.0, 0.3, 0.4, 1.0, 1.1, 1.7, 2.0, 2.6])
OPTIONS = dict(dt=0.1)


def decay(t, y, args):
    return -y


def exact(ts=TS):
    return np.stack([np.exp(-ts), 2 * np.exp(-ts)], axis=1)


@eqx.filter_jit
def value(problem, starts):
    return problem.loss(Shooting(problem.model.dynamics, starts), problem.data, None)


def parts(problem):
    return value(problem, problem.model.starts)[1]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 9])
def test_every_observation_is_in_a_window(length):
    problem = multiple_shooting(decay, TS, exact(), length=length)
    windows = problem.data
    count = -(-7 // length)
    assert windows.ts.shape == (count, length + 1) and windows.seen.shape == (count, length + 1, 2)
    found = [t for row, seen in zip(windows.ts, windows.seen[:, :, 0]) for t in row[seen].tolist()]
    wanted = sorted(TS.tolist() + TS[length:-1:length].tolist())  # where two meet it belongs to both
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(problem.model.starts, exact()[:-1:length], rtol=1e-6)
    np.testing.assert_array_equal(windows.ts[:-1, -1], windows.ts[1:, 0])
    np.testing.assert_allclose(windows.ts[-1, -1], TS[-1], rtol=1e-6)


def test_what_is_missing():
    ys = exact()
    ys[2:5, 0] = np.nan
    ys[6] = np.nan
    problem = multiple_shooting(decay, TS, ys, length=3)
    assert np.isfinite(problem.data.ys).all() and int(problem.data.seen.sum()) == 16 + 4 - 3 - 2 * 2 - 1
    slope = (ys[5, 0] - ys[1, 0]) / (TS[5] - TS[1])  # straight through the gap
    np.testing.assert_allclose(problem.model.starts[1, 0], ys[1, 0] + slope * (TS[3] - TS[1]), rtol=1e-6)


@pytest.mark.x64
def test_the_loss_is_that_of_the_exact_solution():
    problem = multiple_shooting(decay, TS, exact(), length=3, penalty=5.0, scale=jnp.array([0.1, 0.2]), **OPTIONS)
    found = parts(problem)
    assert found["misfit"] < 1e-8 and found["gap"] < 1e-10
    # one start is off: so is its window, by what is left of it, and the end of the window before
    off = problem.model.starts.at[1, 0].add(0.01)
    total, found = value(problem, off)
    ts = TS[3:7]
    misfit = np.sum((0.01 * np.exp(-(ts - ts[0])) / 0.1) ** 2) / (2 * 10)
    gap = (0.01**2 + (0.01 * np.exp(-(ts[-1] - ts[0]))) ** 2) / 4
    np.testing.assert_allclose(found["misfit"], misfit, rtol=1e-4)
    np.testing.assert_allclose(found["gap"], gap, rtol=1e-4)
    np.testing.assert_allclose(total, misfit + 5 * gap, rtol=1e-4)


@pytest.mark.x64
def test_gradient():
    problem = multiple_shooting(lambda t, y, args: args * y, TS, exact(), length=4, args=jnp.array(-1.0), dt=0.2)

    @jax.jit
    def total(rate, starts):
        loss = eqx.tree_at(lambda loss: loss.options["args"], problem.loss, rate)
        return loss(Shooting(problem.model.dynamics, starts), problem.data, None)[0]

    rate, starts, h = jnp.array(-0.8), problem.model.starts + 0.1, 1e-5
    by_rate, by_starts = jax.jit(jax.grad(total, (0, 1)))(rate, starts)
    np.testing.assert_allclose(by_rate, (total(rate + h, starts) - total(rate - h, starts)) / (2 * h), rtol=1e-6)
    bump = jnp.zeros_like(starts).at[1, 0].set(h)
    slope = (total(rate, starts + bump) - total(rate, starts - bump)) / (2 * h)
    np.testing.assert_allclose(by_starts[1, 0], slope, rtol=1e-6)


def test_longer_windows():
    ys = exact()
    ys[2] = np.nan
    for length, factor in ((1, 2), (2, 2), (1, 3), (3, 5)):
        short = multiple_shooting(decay, TS, ys, length=length)
        longer, wanted = short.longer(short.model, factor), multiple_shooting(decay, TS, ys, length=length * factor)
        assert longer.model.starts.shape[0] == len(longer.data.number) == len(wanted.data.number)
        np.testing.assert_array_equal(longer.data.seen, wanted.data.seen[:, : longer.data.seen.shape[1]])
        np.testing.assert_array_equal(longer.data.ts, wanted.data.ts)
        np.testing.assert_array_equal(
            np.where(longer.data.seen, longer.data.ys, 0), np.where(wanted.data.seen, wanted.data.ys, 0)
        )
        np.testing.assert_array_equal(longer.model.starts, short.model.starts[::factor])
    assert longer.loss.penalty == 1.0 and short.longer(short.model, penalty=9.0).loss.penalty == 9.0


def test_part_of_a_state_is_seen():
    starts = jnp.asarray(exact()[:-1:4])
    options = dict(length=4, observe=lambda y: {"sum": jnp.sum(y)}, starts=starts, scale={"sum": 2.0}, **OPTIONS)
    found = parts(multiple_shooting(decay, TS, {"sum": exact().sum(axis=1)}, **options))
    assert found["misfit"] < 1e-7
    found = parts(multiple_shooting(decay, TS, {"sum": exact().sum(axis=1) + 1.0}, **options))
    np.testing.assert_allclose(found["misfit"], 0.25, rtol=1e-4)


@pytest.mark.parametrize(
    "error, match, change",
    [
        (ValueError, "ascend", dict(ts=TS[::-1].copy())),
        (ValueError, "row for each of the 8 times", dict(ys=exact()[:-1])),
        (TypeError, "floating-point", dict(ys=np.ones((8, 2), int))),
        (ValueError, "positive integer", dict(length=0)),
        (ValueError, "missing at all times", dict(ys=np.full((8, 2), np.nan))),
        (ValueError, "Pass `starts`", dict(observe=jnp.log)),
        (ValueError, "state for each of the 3 windows", dict(starts=jnp.ones((2, 2)))),
        (TypeError, "sets `saveat` itself", dict(saveat=TS)),
        (TypeError, "Neither .* has an argument `max_step`. Did you mean `max_steps`", dict(max_step=9)),
        (ValueError, "`penalty` must be finite and not negative, but is -1.0", dict(penalty=-1.0)),
        (ValueError, "`scale`, the unit of the observations, must be positive, but is 0.0", dict(scale=0.0)),
    ],
)
def test_bad_input(error, match, change):
    given = dict(model=decay, ts=TS, ys=exact(), length=3) | change
    with pytest.raises(error, match=match):
        multiple_shooting(**given)


class Hybrid(eqx.Module):
    """Growth and death are known; what one does to the other a network says."""

    net: eqx.nn.MLP

    def __call__(self, t, y, args):
        met = self.net(y)
        return jnp.stack([1.3 * y[0] + met[0], -1.8 * y[1] + met[1]])


def test_a_law_is_learnt_from_one_record_with_gaps():
    """Predator and prey; noise of two percent, uneven times, a sixth of the numbers missing, and a gap."""
    truth = sciml.models.LotkaVolterra(alpha=1.3, beta=0.9, gamma=1.8, delta=0.8)
    rng, y0 = np.random.default_rng(0), jnp.ones(2, jnp.float32)
    ts = np.sort(np.concatenate([[0.0, 8.0], rng.uniform(0.0, 8.0, 58)])).astype(np.float32)
    ys = np.array(sciml.solve(truth, y0, t0=0.0, t1=8.0, saveat=jnp.asarray(ts), rtol=1e-5, atol=1e-5).ys)
    ys *= np.exp(0.02 * rng.normal(size=ys.shape)).astype(np.float32)
    ys[rng.uniform(size=ys.shape) < 0.15] = np.nan
    ys[(ts > 5.0) & (ts < 5.8)] = np.nan
    net = eqx.nn.MLP(2, 2, 16, 2, activation=jnp.tanh, key=jax.random.key(0), dtype=jnp.float32)
    options = dict(length=4, penalty=100.0, scale=0.05, rtol=1e-3, atol=1e-3)
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, 800, 0.05))
    problem = multiple_shooting(Hybrid(net), ts, ys, **options)
    found = train(*problem, optimiser=optimiser, steps=800, progress=False)
    found = train(*problem.longer(found.model), optimiser=optimiser, steps=400, progress=False)
    last = {name: values[-1] for name, values in found.history.metrics.items()}
    assert last["misfit"] < 1.5 and last["gap"] < 0.01  # the noise alone gives about a half
    path = sciml.solve(truth, y0, t0=0.0, t1=8.0, saveat=jnp.linspace(0.0, 8.0, 101, dtype=jnp.float32)).ys
    law = path[:, :1] * path[:, 1:] * jnp.array([[-0.9, 0.8]], jnp.float32)
    errors = jax.vmap(found.model.dynamics.net)(path) - law
    assert jnp.mean(errors**2) < 0.1**2 * jnp.mean(law**2)
