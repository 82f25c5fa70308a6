"""Reactions of single molecules: their laws against exact ones, and what is refused."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from sciml import Reactions, Status
from sciml.solvers import Gillespie, TauLeaping
from sciml.solvers.methods.jumps import _abstract

from ..common import close
from .test_brownian import within

POPULATION = Reactions([[1], [-1]], lambda x, args: jnp.stack([jnp.full_like(x[0], 10.0), x[0]]))
KEYS = jax.random.split(jax.random.key(0), 2000)


def schloegl(x, args):
    """Two stable states, between which chance moves."""
    n = x[0]
    up, down = 0.03 * n * (n - 1) / 2, 1e-4 * n * (n - 1) * (n - 2) / 6
    return jnp.stack([up, down, jnp.full_like(n, 200.0), 3.5 * n])


def generator(up, down, most):
    """The generator of a birth-death process of up to so many."""
    n = np.arange(most + 1.0)
    births, deaths = up(n)[:-1], down(n)[1:]
    return np.diag(births, -1) + np.diag(deaths, 1) - np.diag(np.append(births, 0.0)) - np.diag(np.append(0.0, deaths))


def test_births_and_deaths():
    """Poisson at every time, with mean 10 (1 - exp(-t))."""
    ts = jnp.array([0.5, 1.0, 6.0])
    solve = jax.jit(jax.vmap(lambda key: sciml.solve(POPULATION, jnp.zeros(1), t0=0.0, t1=6.0, key=key, saveat=ts)))
    sol = solve(KEYS)
    means = 10 * (1 - np.exp(-np.asarray(ts)))
    ys = np.asarray(sol.ys[..., 0], np.float64)
    within(ys, means, np.sqrt(means))
    within((ys - means) ** 2, means, np.sqrt(means + 2 * means**2))
    assert np.all(ys == np.round(ys)) and np.all(sol.status == Status.successful)
    alone = sciml.solve(POPULATION, jnp.zeros(1), t0=0.0, t1=6.0, key=KEYS[3], saveat=ts)
    np.testing.assert_array_equal(alone.ys, sol.ys[3])


@pytest.mark.x64
def test_two_stable_states():
    """Schloegl's model: the law of the count at a time, against the exponential of its generator."""
    model = Reactions([[1], [-1], [1], [-1]], schloegl)
    solve = lambda key: sciml.solve(  # noqa: E731
        model, jnp.full(1, 250.0), t0=0.0, t1=5.0, key=key, max_steps=100_000, throw=False
    )
    sol = jax.jit(jax.vmap(solve))(KEYS)
    assert np.all(sol.status == Status.successful)
    exact = scipy.linalg.expm(
        5.0
        * generator(
            lambda n: 0.03 * n * (n - 1) / 2 + 200,
            lambda n: 1e-4 * n * (n - 1) * (n - 2) / 6 + 3.5 * n,
            1000,
        )
    )[:, 250]
    counts = np.asarray(sol.ys[:, -1, 0])
    n = np.arange(1001)
    for where in (n < 200, (n >= 200) & (n < 400), n >= 400):
        share = exact[where].sum()
        within(np.isin(counts, n[where]), share, np.sqrt(share * (1 - share)))
    assert exact[n < 200].sum() > 0.2 and exact[n >= 400].sum() > 0.2 and exact[300] < 0.3 * exact[100:200].max()


@pytest.mark.x64
def test_leaps():
    """Pairs that vanish: nearer to the exact mean the less propensities may change, in fewer steps than reactions."""
    pairs = Reactions([[-2]], lambda x, args: 4e-3 * x * (x - 1) / 2)
    start, n = 1000, np.arange(0.0, 1001.0, 2)
    deaths = 4e-3 * n * (n - 1) / 2
    mean = n @ scipy.linalg.expm(np.diag(deaths[1:], 1) - np.diag(deaths))[:, -1]
    off = {}
    for epsilon in (0.6, 0.05):
        solve = lambda key, epsilon=epsilon: sciml.solve(  # noqa: E731
            pairs, jnp.full(1, float(start)), t0=0.0, t1=1.0, key=key, solver=TauLeaping(epsilon), throw=False
        )
        sol = jax.jit(jax.vmap(solve))(KEYS[:1000])
        counts = np.asarray(sol.ys[:, -1, 0])
        assert np.all(sol.status == Status.successful) and np.all((counts >= 0) & (counts == np.round(counts)))
        off[epsilon] = abs(counts.mean() - mean), counts.std() / np.sqrt(1000)
        if epsilon == 0.6:
            assert np.mean(np.asarray(sol.stats.accepted)) < 0.1 * (start - mean) / 2
    assert off[0.6][0] > 5 * off[0.6][1]  # there was something to see
    assert off[0.05][0] < off[0.6][0] / 4 + 4 * off[0.05][1]


def test_leaps_never_go_below_zero():
    decay = Reactions([[-1]], lambda x, args: 50.0 * x)
    solve = lambda key: sciml.solve(  # noqa: E731
        decay, jnp.full(1, 300.0), t0=0.0, t1=1.0, key=key, solver=TauLeaping(0.9), throw=False
    )
    sol = jax.jit(jax.vmap(solve))(KEYS[:200])
    assert np.all(sol.status == Status.successful) and np.all(sol.ys == 0)


def test_limits_for_large_counts():
    """The rate equations are the mean of a linear process, and the Langevin equation has its variance, too."""
    large = Reactions([[1], [-1]], lambda x, args: jnp.stack([jnp.full_like(x[0], args), x[0]]))
    close(
        sciml.solve(large.rate_equations, jnp.zeros(1), t0=0.0, t1=1.0, args=100.0).ys[-1, 0],
        100 * (1 - np.exp(-1.0)),
        rtol=1e-3,
    )
    solve = lambda key: sciml.solve(  # noqa: E731
        large.langevin(), jnp.full(1, 100.0), t0=0.0, t1=4.0, dt=1 / 16, args=100.0, key=key
    )
    ys = np.asarray(jax.jit(jax.vmap(solve))(KEYS).ys[:, -1, 0], np.float64)
    within(ys, 100.0, 10.0)
    within((ys - 100.0) ** 2, 100.0, np.sqrt(2) * 100 * 1.05)


def test_members_share_a_queue():
    solve = lambda key, **more: sciml.solve(POPULATION, jnp.zeros(1), t0=0.0, t1=3.0, key=key, **more).ys  # noqa: E731
    plain = jax.jit(jax.vmap(solve))(KEYS[:64])
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda k: solve(k, batching="refill")))(KEYS[:64]), plain)
    blocks = [sciml.parallel.ensemble(solve, KEYS[:64], block=b) for b in (8, 32)]
    np.testing.assert_array_equal(blocks[0], blocks[1])
    for axis in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((2,), ("m",), (axis,), devices=jax.devices()[:2])
        sharded = jax.jit(jax.vmap(solve))(jax.device_put(KEYS[:64], NamedSharding(mesh, P("m"))))
        np.testing.assert_array_equal(sharded, plain)


def test_a_solve_of_no_length():
    for solver in (Gillespie(), TauLeaping()):
        sol = sciml.solve(POPULATION, jnp.full(1, 3.0), t0=1.0, t1=1.0, key=KEYS[0], solver=solver)
        assert sol.ys[-1, 0] == 3.0 and sol.status == Status.successful


def test_numbers_start_again_where_they_could_not_be_counted(monkeypatch):
    """Paths go on, with the law that they have, and no draw is that of an earlier round."""
    flip = Reactions([[1, -1], [-1, 1]], lambda x, args: 40.0 * x[::-1])
    ts = jnp.linspace(0.0, 8.0, 201)

    def first(key):
        sol = sciml.solve(flip, jnp.array([1.0, 0.0]), t0=0.0, t1=8.0, key=key, saveat=ts)
        return sol.ys[:, 0], sol.stats.accepted

    plain, _ = jax.vmap(first)(KEYS[:50])
    monkeypatch.setattr(_abstract, "_MOST_DRAWS", 64.0)
    jax.clear_caches()
    found, steps = jax.vmap(first)(KEYS[:50])
    assert steps.min() > 3 * 64 and np.all((found == 0) | (found == 1))
    np.testing.assert_array_equal(found[:, :20], plain[:, :20])  # fewer than 64 draws so far
    within(np.asarray(found[:, 100:]).reshape(-1), 0.5, 1.0)  # neighbours in time are related
    again = [found[:, i : i + 40] for i in (40, 80, 120, 160)]
    assert all(np.mean(np.all(a == b, axis=1)) < 0.1 for a in again for b in again if a is not b)


def test_refusals():
    solve = lambda **more: sciml.solve(  # noqa: E731
        POPULATION, **(dict(y0=jnp.zeros(1), t0=0.0, t1=1.0, key=KEYS[0]) | more)
    )
    with pytest.raises(ValueError, match="requires `key`"):
        solve(key=None)
    with pytest.raises(ValueError, match="leave out `dt`"):
        solve(dt=0.1)
    with pytest.raises(TypeError, match=r"`propensities\(x, args\)`, but its signature is \(x\)"):
        sciml.Reactions([[1]], lambda x: x)
    with pytest.raises(TypeError, match="does not support stochastic reactions"):
        solve(solver=sciml.solvers.SRIW1())
    with pytest.raises(TypeError, match="must be a random key"):
        solve(key=sciml.BrownianPath(KEYS[0], 0.0, 1.0))
    with pytest.raises(ValueError, match=r"shape \(1,\), one for each column of the stoichiometry"):
        solve(y0=jnp.zeros(2))
    with pytest.raises(ValueError, match=r"of shape \(2,\), one for each row"):
        sciml.solve(Reactions([[1], [-1]], lambda x, args: x), jnp.zeros(1), t0=0.0, t1=1.0, key=KEYS[0])
    with pytest.raises(ValueError, match="forwards in time"):
        solve(t1=-1.0)
    with pytest.raises(TypeError, match="jump process has no useful derivative"):
        jax.grad(lambda rate: jnp.sum(solve(args=rate).ys))(1.0)
    with pytest.raises(ValueError, match="shape `\\(reactions, species\\)`"):
        Reactions([1, -1], lambda x, args: x)
    with pytest.raises(ValueError, match="has no effect"):
        Reactions([[0], [1]], lambda x, args: x)
    with pytest.raises(ValueError, match="between 0 and 1"):
        TauLeaping(1.5)
    negative = Reactions([[1]], lambda x, args: 1.5 - x)
    sol = sciml.solve(negative, jnp.zeros(1), t0=0.0, t1=100.0, key=KEYS[0], solver=Gillespie(), throw=False)
    assert sol.status == Status.negative_propensity
    start = sciml.solve(negative, jnp.full(1, 5.0), t0=0.0, t1=1.0, key=KEYS[0], throw=False)
    assert start.status == Status.negative_propensity


def test_a_start_at_rest():
    decay = Reactions([[-1]], lambda x, args: x)
    for solver in (Gillespie(), TauLeaping()):
        sol = sciml.solve(decay, jnp.zeros(1), t0=0.0, t1=1.0, key=KEYS[0], solver=solver)
        assert sol.status == Status.successful and sol.ys[-1, 0] == 0 and sol.stats.accepted == 1


def test_every_reaction_is_saved():
    options = dict(t0=0.0, t1=1.0, key=KEYS[0])
    sol = sciml.solve(POPULATION, jnp.zeros(1), saveat=diffrax.SaveAt(steps=True), max_steps=128, **options)
    count = int(sol.stats.accepted)
    changes = np.diff(np.asarray(sol.ys[:count, 0]), prepend=0.0)
    assert count > 5 and set(changes[:-1].tolist()) <= {1.0, -1.0}  # the last step ends at the end
    assert sol.ys[count - 1, 0] == sciml.solve(POPULATION, jnp.zeros(1), **options).ys[-1, 0]
