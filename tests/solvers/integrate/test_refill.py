"""`batching="refill"`: the same solutions, with less waiting."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

from ..common import close

MEMBERS = 150
LOOSE = {"rtol": 1e-3, "atol": 1e-3, "solver": diffrax.Bosh3()}


def rates(count=MEMBERS):
    """A few members take many times the steps of the others, in no order."""
    heavy = np.where(np.arange(count) % 10 == 3, 40.0, 1.0)
    return jnp.asarray(heavy * np.linspace(1.0, 2.0, count))


def decay(t, y, rate):
    return {"x": -rate * (y["x"] - jnp.cos(jnp.asarray(t, y["x"].dtype)))}


def run(rate, batching, y0=1.0, t0=0.0, t1=3.0, **options):
    y0 = {"x": jnp.stack([jnp.asarray(y0, jnp.result_type(float))] * 2)}
    options = LOOSE | options
    return sciml.solve(decay, y0, t0=t0, t1=t1, args=rate, batching=batching, throw=False, **options)


def both(solve, *inputs, **options):
    """Solutions in lockstep and with refilled lanes."""
    found = [
        jax.jit(jax.vmap(lambda *x, s=s: solve(*x, batching=s, **options)))(*inputs) for s in ("lockstep", "refill")
    ]
    return found


def same(lockstep, refill):
    rounding = 100 * float(jnp.finfo(jnp.result_type(float)).eps)
    np.testing.assert_array_equal(refill.status, lockstep.status)
    np.testing.assert_array_equal(refill.stats.accepted, lockstep.stats.accepted)
    np.testing.assert_array_equal(refill.stats.rejected, lockstep.stats.rejected)
    close((refill.ys, refill.ts, refill.t_reached), (lockstep.ys, lockstep.ts, lockstep.t_reached), rounding, rounding)


def test_end_states():
    lockstep, refill = both(run, rates())
    same(lockstep, refill)
    assert refill.ys["x"].shape == (MEMBERS, 1, 2)


def test_lanes_wait_less():
    lockstep, refill = both(run, rates(600))
    own = refill.stats.accepted + refill.stats.rejected
    assert np.all(refill.stats.executed >= own)
    assert float(refill.stats.lane_efficiency) > 2 * float(lockstep.stats.lane_efficiency)
    # every iteration of the loop executes a step on every lane, and every one of these is some member's
    assert int(jnp.sum(refill.stats.executed)) % 64 == 0


@pytest.mark.optimised
def test_saved_times():
    """More than one within a step, at both ends, and none for a while."""
    ts = [0.0, 0.01, 0.02, 1.5, 1.5, 2.99, 3.0]
    lockstep, refill = both(run, rates(), saveat=ts)
    same(lockstep, refill)
    assert refill.ys["x"].shape == (MEMBERS, 7, 2)
    np.testing.assert_allclose(refill.ys["x"][:, 0], 1.0)


@pytest.mark.optimised
def test_members_that_differ_in_every_input():
    numbers = jnp.linspace(0.0, 1.0, MEMBERS)

    def solve(rate, number, batching):
        ts = number + jnp.asarray([0.5, 1.0, 1.0 + number])
        return run(rate, batching, y0=number, t0=number, t1=3 * number + 1.5, saveat=ts)

    same(*both(solve, rates(), numbers))


def test_backwards_in_time():
    same(*both(run, -rates() / 20, t0=1.0, t1=0.0, saveat=[1.0, 0.4, 0.0]))


def test_fixed_steps():
    same(*both(run, rates() / 20, dt=0.125, rtol=None, atol=None, saveat=[0.2, 3.0]))
    lengths = jnp.linspace(0.5, 3.0, MEMBERS)
    same(
        *both(
            lambda rate, t1, batching: run(rate, batching, t1=t1, dt=0.125, rtol=None, atol=None), rates() / 20, lengths
        )
    )


@pytest.mark.parametrize("saveat", [None, [0.5, 3.0]])
def test_a_failed_member_changes_no_other(saveat):
    bad = rates().at[7].set(jnp.nan).at[70].set(-1e6)
    lockstep, refill = both(run, bad, saveat=saveat, max_steps=400)
    same(lockstep, refill)
    assert int(refill.status[7]) == sciml.Status.nonfinite and int(refill.status[70]) != 0
    assert int(jnp.sum(refill.status != 0)) == 2
    good = jnp.isfinite(refill.ys["x"]).all((1, 2))
    np.testing.assert_array_equal(good, refill.status == 0)


def test_one_member_and_few():
    one = run(jnp.asarray(3.0), "refill")
    close(one.ys, run(jnp.asarray(3.0), "lockstep").ys)
    same(*both(run, rates(5)))


def test_nested_vmap():
    grid = rates(144).reshape(12, 12)
    flat = jax.jit(jax.vmap(lambda r: run(r, "refill")))(grid.reshape(-1))
    nested = jax.jit(jax.vmap(jax.vmap(lambda r: run(r, "refill"))))(grid)
    close(nested.ys["x"].reshape(144, 1, 2), flat.ys["x"])


def test_gradient_is_that_of_lockstep():
    def total(rate, batching):
        return jnp.sum(jax.vmap(lambda r: run(r, batching))(rate).ys["x"])

    close(*(jax.jit(jax.grad(lambda r, s=s: total(r, s)))(rates()) for s in ("lockstep", "refill")))


def test_under_shard_map():
    mesh = jax.make_mesh((2,), ("members",), devices=jax.devices()[:2], axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("members")
    solve = jax.vmap(lambda r: run(r, "refill", saveat=[1.0, 3.0]).ys)
    split = jax.jit(jax.shard_map(solve, mesh=mesh, in_specs=spec, out_specs=spec))(rates(300))
    close(split, jax.jit(solve)(rates(300)), 1e-5, 1e-6)


def test_unknown_schedule():
    with pytest.raises(ValueError, match='`batching` must be "lockstep" or "refill", but is \'sorted\''):
        run(1.0, "sorted")
