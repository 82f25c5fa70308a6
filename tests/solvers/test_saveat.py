"""What is saved: the end, an array of times, or what a `diffrax.SaveAt` says."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

Y0 = np.array([1.0, 0.3], np.float32)
STEPS = {"fixed": {"dt": 0.05}, "adaptive": {"rtol": 1e-5, "atol": 1e-6}}
each_steps = pytest.mark.parametrize("steps", STEPS)


def field(t, y, args):
    return -y * jnp.cos(t)


def exact(ts):
    return np.exp(-np.sin(np.asarray(ts)))[:, None] * Y0


def solve(steps, saveat=None, **options):
    return sciml.solve(field, Y0, **{"t0": 0.0, "t1": 2.0, "saveat": saveat, **STEPS[steps], **options})


@each_steps
@pytest.mark.parametrize(
    "saveat, ts",
    [
        (None, [2.0]),
        ([0.7], [0.7]),
        ([2.0], [2.0]),
        ([0.0], [0.0]),
        ([0.0, 2.0], [0.0, 2.0]),
        (np.array([0.5, 0.5, 0.5]), [0.5, 0.5, 0.5]),
        (jnp.array([0.5, 1.5]), [0.5, 1.5]),
        ((0.1, 0.101, 0.102, 0.103, 0.104, 1.0), [0.1, 0.101, 0.102, 0.103, 0.104, 1.0]),
        (diffrax.SaveAt(t1=True), [2.0]),
        (diffrax.SaveAt(t0=True, t1=True), [0.0, 2.0]),
        (diffrax.SaveAt(ts=[0.3, 0.9]), [0.3, 0.9]),
        (diffrax.SaveAt(t0=True, ts=[0.3, 0.9], t1=True), [0.0, 0.3, 0.9, 2.0]),
    ],
    ids=str,
)
def test_saved_times(steps, saveat, ts):
    sol = solve(steps, saveat)
    np.testing.assert_allclose(sol.ts, ts, rtol=1e-6)
    assert sol.ys.shape == (len(ts), 2)
    np.testing.assert_allclose(sol.ys, exact(ts), rtol=1e-4)
    if ts[0] == 0.0:
        np.testing.assert_array_equal(sol.ys[0], Y0)


@each_steps
def test_saving_does_not_change_the_steps(steps):
    plain, saved = solve(steps), solve(steps, np.linspace(0, 2, 23))
    assert int(plain.stats.accepted) == int(saved.stats.accepted)
    np.testing.assert_allclose(plain.ys[-1], saved.ys[-1], rtol=1e-6)


@each_steps
def test_all_steps_are_saved_through_diffrax(steps):
    sol = solve(steps, diffrax.SaveAt(steps=True), max_steps=100)
    count = int(sol.stats.accepted)
    assert sol.ys.shape == (100, 2) and np.isinf(sol.ts[count:]).all()
    np.testing.assert_allclose(sol.ys[:count], exact(sol.ts[:count]), rtol=1e-4)


def test_a_function_of_the_state_is_saved_through_diffrax():
    sol = solve("adaptive", diffrax.SaveAt(ts=[0.5, 2.0], fn=lambda t, y, args: jnp.sum(y)))
    np.testing.assert_allclose(sol.ys, exact([0.5, 2.0]).sum(1), rtol=1e-4)


@each_steps
def test_saved_times_under_jit(steps):
    ts = np.array([0.3, 1.1], np.float32)
    known = jax.jit(lambda y0: sciml.solve(field, y0, t0=0.0, t1=2.0, saveat=ts, **STEPS[steps]).ys)(Y0)
    traced = jax.jit(lambda ts: solve(steps, ts).ys)(ts)
    through = jax.jit(lambda ts: solve(steps, diffrax.SaveAt(t0=True, ts=ts)).ys)(ts)
    np.testing.assert_allclose(known, exact(ts), rtol=1e-4)
    np.testing.assert_allclose(known, traced, rtol=1e-6)
    np.testing.assert_allclose(through, np.concatenate([Y0[None], traced]), rtol=1e-6)


@each_steps
def test_what_was_not_reached_is_nan_and_what_was_is_good(steps):
    def until_one(t, y, args):
        return jnp.where(t < 1.0, -y, jnp.nan)

    options = {"t0": 0.0, "t1": 2.0, "throw": False, "saveat": [0.5, 0.9, 1.5, 2.0], **STEPS[steps]}
    sol = sciml.solve(until_one, Y0, **options)
    assert sol.status == sciml.Status.nonfinite and 0.9 <= float(sol.t_reached) <= 1.0
    np.testing.assert_allclose(sol.ys[:2], np.exp([[-0.5], [-0.9]]) * Y0, rtol=1e-3)
    assert np.isnan(sol.ys[2:]).all()


@each_steps
@pytest.mark.parametrize(
    "adjoint", [sciml.adjoints.Checkpointed(), sciml.adjoints.Forward(), sciml.adjoints.Reversible()], ids=str
)
def test_saving_adds_no_step_to_the_program(steps, adjoint):
    """The loop to the saved times is the loop to the end, so that compiling does not take twice as long."""

    name = "dt" if steps == "fixed" else "dt0"

    def evaluations(saveat):
        def loss(y0):
            size = {name: jnp.asarray(0.05)}  # traced, so that the number of steps is not known
            return jnp.sum(solve(steps, saveat, adjoint=adjoint, max_steps=100, **size).ys)

        return jax.jit(jax.value_and_grad(loss)).lower(Y0).as_text().count("stablehlo.cosine")

    saved, alone = evaluations([0.3, 0.9]), evaluations(None)
    assert saved <= alone + 2, (saved, alone)
