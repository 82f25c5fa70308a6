"""Rates so fast or so slow that their squares over a tolerance leave the range of float32: the first step is right."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Status

SOLVERS = [
    diffrax.Tsit5(),
    sciml.solvers.Rodas5P(),
    sciml.solvers.Rosenbrock23(),
    sciml.solvers.BDF(),
    sciml.solvers.Radau5(),
    diffrax.Kvaerno5(),
]
each_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)


def solve(model, y0, t1, **how):
    how = dict(rtol=1e-4, atol=1e-6, throw=False) | how
    return jax.jit(lambda y: sciml.solve(model, y, t0=0.0, t1=t1, **how))(jnp.asarray(y0, jnp.float32))


@each_solver
@pytest.mark.parametrize("rate", [1e16, 1e30, 1e-30])
def test_decay(solver, rate):
    solution = solve(lambda t, y, args: -rate * y, 1.0, 1 / rate, solver=solver)
    assert int(solution.status) == 0 and int(solution.stats.accepted) < 100
    np.testing.assert_allclose(solution.ys[-1], np.exp(-1), rtol=2e-3)


@each_solver
def test_a_rate_that_does_not_change(solver):
    """The case that took steps of length zero, and accepted them."""
    solution = solve(lambda t, y, args: jnp.full_like(y, 2e13), 0.0, 5e-14, solver=solver)
    assert int(solution.status) == 0 and int(solution.stats.accepted) < 30
    np.testing.assert_allclose(solution.ys[-1], 1.0, rtol=1e-4)


def test_backward_differences_take_as_many_steps_at_every_rate():
    """Their first step is of order one, whose error goes with the square of its length."""
    method = sciml.solvers.BDF()
    steps = {
        int(solve(lambda t, y, args, k=k: -k * y, 1.0, 1 / k, solver=method).stats.accepted) for k in (1.0, 1e3, 1e14)
    }
    assert max(steps) - min(steps) <= 2


def test_an_optical_oscillator():
    w = 2.4e15
    solution = solve(lambda t, y, args: jnp.stack([w * y[1], -w * y[0]]), [1.0, 0.0], 1e-15)
    np.testing.assert_allclose(solution.ys[-1], [np.cos(2.4), -np.sin(2.4)], atol=1e-3)


@each_solver
def test_a_velocity_much_larger_than_the_position(solver):
    w = 2.4e15
    solution = solve(lambda t, y, args: jnp.stack([y[1], -(w**2) * y[0]]), [1.0, 0.0], 2 * np.pi / w, solver=solver)
    assert int(solution.status) == 0
    np.testing.assert_allclose(np.asarray(solution.ys[-1]) / [1.0, w], [1.0, 0.0], atol=5e-3)


def test_members_of_very_different_rates():
    rates = jnp.asarray([1.0, 1e16, 1e30], jnp.float32)

    def one(rate):
        span = 1 / rate
        return sciml.solve(
            lambda t, y, k: -k * y, jnp.ones((), jnp.float32), t0=0.0, t1=span, args=rate, rtol=1e-4, atol=1e-6
        ).ys[-1]

    np.testing.assert_allclose(jax.vmap(one)(rates), np.exp(-1), rtol=5e-4)


def test_a_first_step_of_no_length_is_a_status():
    """Of a rate whose change cannot be told in any step."""
    solution = solve(lambda t, y, args: jnp.full_like(y, 3e38), 0.0, 1.0, atol=1e-30)
    assert int(solution.status) in (Status.step_too_small, Status.nonfinite) and int(solution.stats.accepted) < 100
