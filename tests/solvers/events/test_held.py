"""Inputs that are sampled and held: their values, the steps that end at their jumps, and derivatives by both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

TS, VALUES = np.array([0.0, 1.0, 3.0]), np.array([2.0, 0.0, 5.0])


def tank(t, level, valve):
    return valve(t) - level


def end(ts, values, **options):
    valve = sciml.Held(ts, values)
    options = {"t0": 0.0, "t1": 4.0, "args": valve, "events": valve.jumps(), "rtol": 1e-5, "atol": 1e-6, **options}
    return sciml.solve(tank, jnp.array(1.0), **options).ys[-1]


def exact(ts, values):
    edges = jnp.append(ts, 4.0)
    weights = jnp.exp(edges[1:] - 4) - jnp.exp(edges[:-1] - 4)
    return jnp.exp(-4.0) + jnp.sum(values * weights)


def test_values_before_at_and_after_samples():
    valve = sciml.Held(TS, {"a": VALUES, "b": np.ones((3, 2))})
    for t, value in [(-1.0, 2.0), (0.0, 2.0), (0.99, 2.0), (1.0, 0.0), (3.5, 5.0)]:
        assert valve(t)["a"] == value and valve(jnp.asarray(t))["a"] == value
    assert valve(0.5)["b"].shape == (2,)
    many = sciml.Held(np.arange(100.0), np.arange(100.0))
    assert many(41.5) == 41.0 and many(200.0) == 99.0


def test_steps_end_at_the_jumps():
    np.testing.assert_allclose(end(TS, VALUES), exact(TS, VALUES), rtol=1e-4)


def test_derivatives_by_values_and_times_of_members():
    ts = jnp.stack([jnp.asarray(TS), jnp.array([0.0, 1.3, 3.4])])
    by_time, by_value = jax.vmap(jax.grad(end, argnums=(0, 1)), (0, None))(ts, jnp.asarray(VALUES))
    for member in range(2):
        expected = jax.grad(exact, argnums=(0, 1))(ts[member], jnp.asarray(VALUES))
        np.testing.assert_allclose(by_time[member, 1:], expected[0][1:], rtol=1e-3)
        np.testing.assert_allclose(by_value[member], expected[1], rtol=1e-3)


def test_what_is_no_input():
    with pytest.raises(ValueError, match="ascend"):
        sciml.Held([0.0, 2.0, 1.0], VALUES)
    with pytest.raises(ValueError, match=r"`values\['a'\]`.*shape \(2,\)"):
        sciml.Held(TS, {"a": np.ones(2)})
    with pytest.raises(ValueError, match="at least one"):
        sciml.Held([], [])
    with pytest.raises(TypeError, match="real numbers"):
        sciml.Held(np.array([1j]), [1.0])
