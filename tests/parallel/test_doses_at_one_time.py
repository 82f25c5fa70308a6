"""Doses of one `Schedule` that come at one time happen in the order of their rows, however members are spread."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import sciml

TIMES, DOSES, END = (0.5, 1.0, 1.0, 2.0), (2.0, 1.0, 0.5, 3.0), 3.0
RATES = np.linspace(0.2, 1.0, 8)
OPTIONS = dict(t0=0.0, t1=END, rtol=1e-9, atol=1e-9)

pytestmark = pytest.mark.x64


def doses():
    # squares and sums do not commute: in another order the end would be another
    return sciml.Schedule(TIMES, lambda t, y, args, dose: y * y + dose, jnp.array(DOSES))


def field(t, y, rate):
    return -rate * y


def end(rate, **options):
    return sciml.solve(field, jnp.ones(()), args=rate, events=doses(), **OPTIONS, **options).ys[-1]


def exact(rate):
    y, t = 1.0, 0.0
    for time, dose in zip(TIMES, DOSES):
        y, t = (y * np.exp(-rate * (time - t))) ** 2 + dose, time
    return y * np.exp(-rate * (END - t))


def sharded(kind):
    mesh = jax.make_mesh((4,), ("members",), axis_types=(kind,), devices=jax.devices()[:4])
    return jax.device_put(jnp.asarray(RATES), NamedSharding(mesh, PartitionSpec("members")))


KINDS = pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])


@KINDS
def test_over_the_devices_of_a_named_sharding(kind):
    ends = jax.jit(jax.vmap(end))(sharded(kind))
    assert len(ends.sharding.device_set) == 4
    np.testing.assert_allclose(ends, exact(RATES), rtol=1e-8)


@KINDS
def test_gradients_over_the_devices_of_a_named_sharding(kind):
    slopes = jax.jit(jax.grad(lambda rates: jnp.sum(jax.vmap(end)(rates))))(sharded(kind))
    step = 1e-5
    np.testing.assert_allclose(slopes, (exact(RATES + step) - exact(RATES - step)) / (2 * step), rtol=1e-7)


@pytest.mark.parametrize("batching", ["lockstep", "refill"])
def test_through_a_sweep(batching):
    def one(rate, *, batching="lockstep"):
        return end(rate, batching=batching)

    found = sciml.parallel.sweep(
        one,
        jnp.asarray(RATES),
        mesh=sciml.parallel.mesh(devices=jax.devices()[:4]),
        block=5,
        batching=batching,
        progress=False,
    )
    np.testing.assert_allclose(found.values, exact(RATES), rtol=1e-8)


@pytest.mark.parametrize("segment_steps", [None, 3])
def test_through_simulate(segment_steps):
    """Where a segment ends between two doses at one time, the second is neither lost nor given twice."""
    run = sciml.simulate(
        field, jnp.ones(8), args=jnp.asarray(RATES), in_axes=(None, 0, 0), events=doses(), save_every=0.5,
        segment_steps=segment_steps, progress=False, **OPTIONS,
    )  # fmt: skip
    np.testing.assert_allclose(run.values[-1], exact(RATES), rtol=1e-8)
