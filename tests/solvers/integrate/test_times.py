"""Time: landing on the end, backwards, far from zero, and over many steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from tests.registry_solvers import each_method

LOOPS = {"scan": {"dt": 0.07}, "fixed": {"dt": 0.07, "saveat": [0.5, 1.0]}, "adaptive": {"rtol": 1e-4, "atol": 1e-6}}
each_loop = pytest.mark.parametrize("loop", LOOPS)


def clock(t, y, args):
    """A state that integrates the derivative of the time's square: any missed or repeated time shows."""
    return jnp.full_like(y, 2 * t)


@each_loop
def test_end_is_hit_exactly(loop):
    sol = sciml.solve(clock, jnp.zeros(1), t0=0.0, t1=1.0, **LOOPS[loop])
    assert sol.ts[-1] == 1.0 and sol.t_reached == 1.0
    np.testing.assert_allclose(sol.ys[-1], 1.0, rtol=1e-6)


@each_method
def test_last_step_is_shorter_where_dt_does_not_divide_the_span(method):
    """y' = 1 is exact for every method, so the end state is the sum of the steps' lengths.

    Up to rounding, which Rodas5P's stages amplify by the size of their coefficients.
    """
    rounding = 100 * float(jnp.finfo(jnp.result_type(float)).eps)
    for dt in (0.3, 0.07, 0.9, 5.0):
        sol = sciml.solve(
            lambda t, y, args: jnp.ones_like(y), jnp.zeros(1), t0=0.0, t1=1.0, dt=dt, solver=method.solver()
        )
        np.testing.assert_allclose(sol.ys, 1.0, rtol=rounding)
        assert int(sol.stats.accepted) == int(np.ceil(1.0 / dt))


@pytest.mark.parametrize("dt, count", [(0.1, 10), (0.01, 100), (1 / 3, 3), (1 / 49, 49)])
def test_rounding_adds_no_step(dt, count, dtype):
    for options in ({}, {"saveat": [1.0]}):
        sol = sciml.solve(clock, jnp.zeros(1, dtype), t0=0.0, t1=1.0, dt=dt, **options)
        assert int(sol.stats.accepted) == count


@pytest.mark.parametrize("loop", ["scan", "fixed", "adaptive"])
def test_backwards_in_time(loop):
    options = {"scan": {"dt": -0.07}, "fixed": {"dt": -0.07, "saveat": [1.0, 0.6, 0.0]}, "adaptive": {"rtol": 1e-5}}[
        loop
    ]

    def field(t, y, args):
        return y * jnp.cos(t)

    sol = sciml.solve(field, jnp.exp(jnp.sin(jnp.ones(1))), t0=1.0, t1=0.0, **options)
    assert sol.ts[-1] == 0.0 and sol.t_reached == 0.0 and int(sol.status) == 0
    np.testing.assert_allclose(sol.ys[-1], 1.0, rtol=1e-5)
    if loop == "fixed":
        np.testing.assert_allclose(sol.ys[:, 0], np.exp(np.sin([1.0, 0.6, 0.0])), rtol=1e-5)


@each_loop
def test_there_and_back(loop):
    options = dict(LOOPS[loop])
    options.pop("saveat", None)
    y0 = jnp.array([0.5])

    def field(t, y, args):
        return jnp.sin(y) + t

    there = sciml.solve(field, y0, t0=0.0, t1=1.0, **options)
    if "dt" in options:
        options["dt"] = -options["dt"]
    back = sciml.solve(field, there.ys[-1], t0=1.0, t1=0.0, **options)
    np.testing.assert_allclose(back.ys[-1], y0, rtol=3e-4)


@pytest.mark.parametrize("saves", [False, True])
def test_many_small_steps_do_not_drift_in_float32(saves):
    """Adding 1e-5 to a float32 time two hundred thousand times would end at 2.03 or so."""
    count = 200_000

    def field(t, y, args):  # counts the steps, and looks at the time of each
        return jnp.stack([jnp.ones_like(t), t])

    options = {"saveat": jnp.array([1.0, 2.0], jnp.float32)} if saves else {}
    from diffrax import Euler

    sol = sciml.solve(
        field, jnp.zeros(2, jnp.float32), t0=0.0, t1=2.0, dt=2.0 / count, solver=Euler(), max_steps=count + 1, **options
    )
    assert int(sol.stats.accepted) == count
    assert sol.ts[-1] == 2.0 and sol.t_reached == 2.0


@pytest.mark.parametrize("saves", [False, True])
def test_times_of_many_small_steps_are_right_in_float32(saves):
    """The state jumps to the time of each step's start, so at the end it is the last step's."""
    from diffrax import Euler

    count = 100_000
    dt = np.float32(2.0 / count)

    def field(t, y, args):
        return (t - y) / dt

    options = {"saveat": jnp.array([2.0], jnp.float32)} if saves else {}
    sol = sciml.solve(
        field, jnp.zeros((), jnp.float32), t0=0.0, t1=2.0, dt=dt, solver=Euler(), max_steps=count + 1, **options
    )
    np.testing.assert_allclose(sol.ys[-1], 2.0 - 2.0 / count, rtol=3e-7)


@each_loop
def test_far_from_time_zero_in_float32(loop):
    """At t = 1e4 float32 resolves 1e-3; steps are counted from t0, so their sizes keep their precision."""
    options = dict(LOOPS[loop])
    if "saveat" in options:
        options["saveat"] = jnp.array([1e4 + 0.5, 1e4 + 1.0], jnp.float32)
    y0 = jnp.ones(1, jnp.float32)
    sol = sciml.solve(lambda t, y, args: -y, y0, t0=1e4, t1=1e4 + 1, **options)
    assert int(sol.status) == 0 and sol.ts[-1] == np.float32(1e4 + 1)
    np.testing.assert_allclose(sol.ys[-1], np.exp(-1.0), rtol=1e-4)


def test_traced_times_agree_with_known_ones():
    def end(t0, t1, **options):
        return sciml.solve(clock, jnp.zeros(1), t0=t0, t1=t1, **options).ys[-1]

    for options in ({"dt": 0.07}, {"rtol": 1e-5, "atol": 1e-6}):
        traced = jax.jit(lambda t0, t1: end(t0, t1, **options))(0.2, 1.3)  # noqa: B023
        np.testing.assert_allclose(traced, end(0.2, 1.3, **options), rtol=1e-5)
    back = jax.jit(lambda t0, t1: end(t0, t1, dt=-0.07))(1.3, 0.2)
    np.testing.assert_allclose(back, 0.2**2 - 1.3**2, rtol=1e-5)


def test_a_new_end_time_or_tolerance_needs_no_new_compilation():
    count = 0

    def field(t, y, args):
        nonlocal count
        count += 1
        return -y

    for t1, rtol in ((1.0, 1e-4), (2.0, 1e-4), (1.5, 1e-3)):
        sciml.solve(field, jnp.ones(1), t0=0.0, t1=t1, rtol=rtol)
        if t1 == 1.0:
            first = count
    assert count == first
