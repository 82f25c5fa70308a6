"""The checks of arguments: what they return, over drawn arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sciml import _checks as checks

DTYPE = np.dtype(np.float32)
Y0 = np.ones(2, np.float32)
finite = st.floats(-1e6, 1e6, width=32)
few = settings(max_examples=40, deadline=None)


def test_state_becomes_strongly_typed_arrays():
    state = checks.check_state({"a": 1.0, "b": (np.ones(2, np.float32), jnp.ones(1))})
    assert all(isinstance(x, jax.Array) and not x.weak_type for x in jax.tree.leaves(state))
    assert state["b"][0].dtype == np.float32


@pytest.mark.parametrize(
    "dtypes, expected",
    [
        (["float32"], "float32"),
        (["complex64"], "float32"),
        (["float32", "complex64"], "float32"),
        pytest.param(["float32", "float64"], "float64", marks=pytest.mark.x64),
        pytest.param(["float32", "complex128"], "float64", marks=pytest.mark.x64),
        pytest.param(["float64", "complex64"], "float64", marks=pytest.mark.x64),
    ],
)
def test_time_has_the_widest_real_dtype(dtypes, expected):
    assert checks.time_dtype([jnp.ones(1, d) for d in dtypes]) == np.dtype(expected)


@few
@given(finite)
def test_time_is_returned_as_a_scalar(t):
    for value in (t, np.float32(t), jnp.float32(t), np.asarray(t)):
        time = checks.check_time(value, "t0", DTYPE)
        assert time.shape == () and time.dtype == DTYPE and float(time) == np.float32(t)


@few
@given(finite.filter(bool), st.sampled_from([None, True, False]))
def test_step_is_returned_with_its_sign_or_refused(dt, forwards):
    if forwards is None or (dt > 0) == forwards:
        assert float(checks.check_step(dt, forwards, DTYPE)) == np.float32(dt)
    else:
        with pytest.raises(ValueError, match=f"`dt` must be {'positive' if forwards else 'negative'}, because"):
            checks.check_step(dt, forwards, DTYPE)


@few
@given(st.floats(allow_nan=True, allow_infinity=True, width=32))
def test_tolerance_is_returned_or_refused(value):
    resolvable = 2 * np.finfo(np.float32).eps
    if np.isfinite(value) and value >= resolvable:
        assert float(checks.check_tolerance(value, "rtol", jnp.asarray(Y0), DTYPE)) == np.float32(value)
    else:
        with pytest.raises(ValueError, match="`rtol`"):
            checks.check_tolerance(value, "rtol", jnp.asarray(Y0), DTYPE)


def test_absolute_tolerance_may_be_zero():
    found = float(checks.check_tolerance(0.0, "atol", jnp.asarray(Y0), DTYPE))
    assert 0 < found < 1e-18  # so that what is zero and has no error is not 0 / 0


@few
@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=5), st.sampled_from([(-2.0, 2.0), (2.0, -2.0)]))
def test_saved_times_are_returned_or_refused(ts, span):
    t0, t1 = span
    order = np.diff(ts) * np.sign(t1 - t0) >= 0
    if np.all(order) and max(map(abs, ts)) <= 2:
        for given_ts in (ts, np.array(ts), jnp.array(ts, DTYPE)):
            np.testing.assert_array_equal(checks.check_saved_times(given_ts, t0, t1, DTYPE), np.array(ts, DTYPE))
    else:
        with pytest.raises(ValueError, match="`saveat` must be (sorted|within)"):
            checks.check_saved_times(ts, t0, t1, DTYPE)


def test_rounding_at_the_ends_is_allowed():
    """A time computed in float32 may miss the end by a bit of rounding."""
    end = np.nextafter(np.float32(0.7), np.float32(1))
    assert checks.check_saved_times([float(end)], 0.0, 0.7, DTYPE).shape == (1,)


def test_traced_arguments_are_not_looked_at():
    @jax.jit
    def run(t, dt, ts, rtol):
        checks.check_time(t, "t1", DTYPE)
        checks.check_step(dt, True, DTYPE)
        checks.check_tolerance(rtol, "rtol", jnp.asarray(Y0), DTYPE)
        return checks.check_saved_times(ts, t, t, DTYPE)

    run(np.float32(np.nan), np.float32(-1), np.array([3, 1], np.float32), np.float32(-1))


@pytest.mark.parametrize("value", [5, np.int32(5), np.int64(5)])
def test_max_steps_becomes_an_int(value):
    assert type(checks.check_max_steps(value)) is int


def test_random_keys():
    for key in (jax.random.key(0), jax.random.PRNGKey(0), np.asarray(jax.random.PRNGKey(0))):
        assert isinstance(checks.check_key(key, "sobol"), jax.Array)
    with pytest.raises(TypeError, match=r"`sobol`: `key` must be .* is 3: did you mean `jax.random.key\(3\)`"):
        checks.check_key(3, "sobol")
    with pytest.raises(TypeError, match="`sobol`: `key` must be a random key"):
        checks.check_key(jnp.ones(2), "sobol")
