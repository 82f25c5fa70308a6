"""`jax-tap` shows the values of sciml's loops while they run, and `first_nan` says where to look."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect

tap = pytest.importorskip("jaxtap")


def falls(t, y, args):
    return -jnp.sqrt(y)


def end(y0):
    return sciml.solve(falls, y0, t0=0.0, t1=4.0, dt=0.1, solver=diffrax.Euler(), throw=False).ys[-1]


def test_live_values_at_the_step_that_is_named():
    y0 = jnp.array([1.0], jnp.float32)
    found = inspect.first_nan(end, y0)
    jax.clear_caches()  # a program that is compiled already is not watched
    with tap.record() as record:
        watched = end(y0)
    jax.effects_barrier()
    after = [float(event.value[1]) for event in record.events if event.path == "scan[0]/scan[0]"]  # each step
    assert np.isclose(after[found.step - 1], float(found.operands), rtol=1e-3)
    assert np.isfinite(after[: found.step]).all() and np.isnan(after[found.step :]).all()
    jax.clear_caches()  # and what was traced while it watched has its taps
    np.testing.assert_array_equal(watched, end(y0))
