"""Times far from zero, which float32 rounds: steps are exact where times are numbers, and else it is said."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Status, adjoints

ONE = jnp.ones((), jnp.float32)
STEPS = {
    "adaptive": dict(rtol=1e-5, atol=1e-6),
    "fixed": dict(dt=0.001),
    "Rodas5P": dict(rtol=1e-5, atol=1e-6, solver=sciml.solvers.Rodas5P()),
}
INTERVALS = {"a day": (86400.0, 86400.1), "three years": (1e8, 1e8 + 0.1), "backwards": (1e8 + 0.1, 1e8)}


def decay(t, y, args):
    return -20 * y


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("interval", INTERVALS)
def test_concrete_times(interval, steps):
    t0, t1 = INTERVALS[interval]
    sign = 1.0 if t1 > t0 else -1.0
    how = {k: sign * v if k == "dt" else v for k, v in STEPS[steps].items()}
    middle = t0 + sign * 0.05
    model = lambda t, y, args: sign * decay(t, y, args)  # noqa: E731
    expected = np.exp([-1.0, -2.0])
    solve = lambda y, **more: sciml.solve(model, y, t0=t0, t1=t1, **how, **more).ys  # noqa: E731
    np.testing.assert_allclose(solve(ONE)[-1], expected[1], rtol=1e-4)
    np.testing.assert_allclose(solve(ONE, saveat=[middle, t1]), expected, rtol=1e-4)
    members = jax.vmap(jax.grad(lambda y: jnp.sum(solve(y, saveat=np.array([middle, t1])))))(jnp.ones(3, jnp.float32))
    np.testing.assert_allclose(members, np.full(3, expected.sum()), rtol=1e-4)


@pytest.mark.parametrize("adjoint", ["Forward", "Backsolve", "Gauss"])
def test_adjoints(adjoint):
    how = dict(adjoint=getattr(adjoints, adjoint)(), **STEPS["adaptive"])
    slope = jax.grad(lambda y: sciml.solve(decay, y, t0=86400.0, t1=86400.1, **how).ys[-1])(ONE)
    np.testing.assert_allclose(slope, np.exp(-2), rtol=1e-4)


def test_simulate():
    times = dict(t0=86400.0, t1=86400.1, progress=False)
    adaptive = sciml.simulate(decay, ONE, saveat=[86400.05, 86400.1], rtol=1e-5, atol=1e-6, **times)
    fixed = sciml.simulate(decay, ONE, save_every=0.05, dt=0.001, **times)
    np.testing.assert_allclose(adaptive.values, np.exp([-1, -2]), rtol=1e-4)
    np.testing.assert_allclose(fixed.values, np.exp([0, -1, -2]), rtol=1e-4)


def test_traced_times_that_their_dtype_cannot_tell_apart_are_a_status():
    @jax.jit
    def run(t0, t1):
        return sciml.solve(decay, ONE, t0=t0, t1=t1, throw=False)

    near, far = run(0.0, 0.1), run(86400.0, 86400.1)
    assert int(near.status) == 0 and np.isfinite(near.ys).all()
    assert int(far.status) == Status.invalid_argument and np.isnan(far.ys).all()
    whole = run(86400.0, 86401.0)  # a second is told apart well enough
    assert int(whole.status) == 0


def test_a_model_that_reads_the_time_is_warned_of():
    def model(t, y, args):
        return jnp.cos(t - 1e5) * y

    with pytest.warns(UserWarning, match="The model depends on time, and the resolution of float32"):
        sciml.solve(model, ONE, t0=1e5, t1=1e5 + 1)
    sciml.solve(jax.jit(decay), ONE, t0=1e5, t1=1e5 + 1)  # this one does not


def test_diffrax_is_warned_of():
    with pytest.warns(UserWarning, match="diffrax runs this solve and subtracts times in float32"):
        sciml.solve(decay, ONE, t0=1e5, t1=1e5 + 1, solver=diffrax.ImplicitEuler(), rtol=1e-3, atol=1e-3, throw=False)
