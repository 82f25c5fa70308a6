"""The last members of an ensemble of networks, which go on over fewer lanes: the same solutions, with less waiting."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import sciml

COUNT = 2048
LAYERS = eqx.nn.MLP(2, 2, 16, 1, activation=jnp.tanh, dtype=jnp.float32, key=jax.random.key(0))


class Network(eqx.Module):
    """A vector field whose weights all members share."""

    layers: eqx.nn.MLP

    def __call__(self, t, y, rate):
        return rate * self.layers(y)


def network():
    floating = jnp.result_type(float)
    return Network(jax.tree.map(lambda x: x.astype(floating) if eqx.is_inexact_array(x) else x, LAYERS))


def starts(count=COUNT):
    return jax.random.normal(jax.random.key(1), (count, 2), jnp.result_type(float))


def rates(slow=COUNT // 8, count=COUNT):
    """Some members, here and there, take many times the steps of the others."""
    heavy = np.ones(count)
    heavy[np.random.default_rng(0).permutation(count)[:slow]] = 20.0
    return jnp.asarray(heavy * np.linspace(1.0, 2.0, count))


def solve(y0, rate, t1=1.0, **options):
    options = dict(rtol=1e-3, atol=1e-3) | options
    return sciml.solve(network(), y0, t0=0.0, t1=t1, args=rate, throw=False, **options)


def steps(solution):
    return np.asarray(solution.stats.accepted + solution.stats.rejected)


def rounding():
    """By how much two programs differ: where a step is smooth its error is rounding, and so is its next size.

    In float32 a few members in a thousand differ by a step, or by more than that.
    """
    return 1e-8 if jax.config.jax_enable_x64 else 2e-3


def agree(found, expected):
    """`expected` is in lockstep: with saved times no member leaves its lane."""
    np.testing.assert_array_equal(found.status, expected.status)
    np.testing.assert_allclose(found.ys[:, -1], expected.ys[:, -1], rtol=rounding(), atol=rounding())
    good = np.asarray(expected.status) == 0
    reached, other = np.asarray(found.t_reached), np.asarray(expected.t_reached)
    np.testing.assert_allclose(reached[good], other[good], rtol=rounding())
    # steps at the limit of stability, which end with `max_steps`, grow what rounding makes of them
    np.testing.assert_allclose(reached[~good], other[~good], rtol=10 * rounding())
    np.testing.assert_array_equal(steps(found), steps(expected))


@pytest.mark.x64
@pytest.mark.parametrize("slow", [0, 1, COUNT // 8, COUNT // 2, COUNT])
def test_the_same_solutions(slow):
    found = jax.jit(jax.vmap(solve))(starts(), rates(slow))
    lockstep = jax.jit(jax.vmap(lambda y0, rate: solve(y0, rate, saveat=[1.0])))(starts(), rates(slow))
    agree(found, lockstep)
    executed = np.asarray(found.stats.executed)
    assert np.all(executed >= steps(found)) and executed.max() == steps(found).max()
    if slow == COUNT // 8:  # the others were done when these moved
        assert np.sum(executed < executed.max()) >= COUNT - COUNT // 4
    assert float(found.stats.lane_efficiency) >= float(lockstep.stats.lane_efficiency)


def test_lanes_wait_less():
    found = jax.jit(jax.vmap(solve))(starts(), rates())
    lockstep = jax.jit(jax.vmap(lambda y0, rate: solve(y0, rate, saveat=[1.0])))(starts(), rates())
    assert float(found.stats.lane_efficiency) > 2 * float(lockstep.stats.lane_efficiency)


def test_one_member_alone():
    ys = jax.jit(jax.vmap(solve))(starts(), rates()).ys
    heavy = int(jnp.argmax(rates()))
    for member in (0, heavy):
        alone = solve(starts()[member], rates()[member]).ys
        np.testing.assert_allclose(ys[member], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.x64
def test_members_that_fail():
    """Some fail before the move, some after it, and none disturbs the others."""
    start = starts().at[5].set(jnp.nan)
    heavy = np.asarray(rates())
    late = int(np.flatnonzero(heavy > 10)[3])
    options = dict(max_steps=30)
    found = jax.jit(jax.vmap(lambda *a: solve(*a, **options)))(start, jnp.asarray(heavy).at[late].set(1e5))
    lockstep = jax.jit(jax.vmap(lambda *a: solve(*a, saveat=[1.0], **options)))(
        start, jnp.asarray(heavy).at[late].set(1e5)
    )
    agree(found, lockstep)
    assert sciml.Status(int(found.status[5])) == sciml.Status.nonfinite
    assert sciml.Status(int(found.status[late])) == sciml.Status.stiff  # it came to its limit of steps for that
    bad = np.isnan(np.asarray(found.ys)).any((1, 2))
    np.testing.assert_array_equal(bad, np.asarray(found.status) != 0)
    np.testing.assert_array_equal(np.flatnonzero(bad), sorted((5, late)))


@pytest.mark.x64
def test_own_end_times_and_backwards():
    ends = jnp.linspace(-0.2, -1.0, COUNT)
    found = jax.jit(jax.vmap(solve))(starts(), rates(), ends)
    lockstep = jax.jit(jax.vmap(lambda y0, rate, t1: solve(y0, rate, t1, saveat=t1[None])))(starts(), rates(), ends)
    agree(found, lockstep)


def test_ensembles_within_ensembles():
    found = jax.jit(jax.vmap(jax.vmap(solve)))(starts().reshape(32, -1, 2), rates().reshape(32, -1))
    flat = jax.jit(jax.vmap(solve))(starts(), rates())
    np.testing.assert_array_equal(found.stats.executed.reshape(-1), flat.stats.executed)
    np.testing.assert_allclose(found.ys.reshape(flat.ys.shape), flat.ys, rtol=rounding(), atol=rounding())


def test_forward_mode_and_gradients():
    def end(scale, adjoint):
        return jnp.sum(jax.vmap(lambda y0, rate: solve(y0, scale * rate, adjoint=adjoint).ys)(starts(), rates()) ** 2)

    one = jnp.ones(())
    _, forward = jax.jit(lambda x: jax.jvp(lambda s: end(s, sciml.adjoints.Direct()), (x,), (x,)))(one)
    reverse = jax.jit(jax.grad(lambda s: end(s, sciml.adjoints.Checkpointed())))(one)
    np.testing.assert_allclose(forward, reverse, rtol=rounding())


@pytest.mark.x64
def test_over_devices():
    mesh = Mesh(np.array(jax.devices()[:2]), ("members",))
    batch = starts(2 * COUNT), rates(count=2 * COUNT)
    fn = jax.vmap(lambda y0, rate: solve(y0, rate).ys)
    sharded = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    np.testing.assert_allclose(sharded(*batch), jax.jit(fn)(*batch), rtol=1e-10, atol=1e-10)
    assert sciml.inspect.collectives(sharded, *batch) == []
