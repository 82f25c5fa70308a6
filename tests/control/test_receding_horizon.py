"""Model predictive control: a linear plant, constraints, warm starts, members and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import Status, control

from .common import integrator


def run(x0, weight, steps=12):
    problem = control.ControlProblem(
        integrator,
        running=lambda t, y, u, weight: y[0] ** 2 + weight * u**2,
        u_bounds=(-1.0, 1.0),
        y_bounds=(jnp.array([-jnp.inf, -0.4]), jnp.array([jnp.inf, 0.4])),
    )
    y0 = jnp.stack([x0, jnp.zeros_like(x0)])
    return control.receding_horizon(
        problem, y0, 0.0, steps=steps, horizon=4.0, args=weight, segments=8, degree=2, throw=False
    )


many = jax.jit(jax.vmap(run, in_axes=(0, None)))


@pytest.mark.x64
def test_a_loop_of_plans():
    starts, weight, h = jnp.array([1.0, 0.3, -0.5, 1.0 + 1e-4, 1.0 - 1e-4]), jnp.asarray(0.1), 1e-4
    loops = many(starts, weight)
    assert np.all(loops.status == Status.successful)
    assert loops.ys.shape == (5, 13, 2) and loops.us.shape == (5, 12)
    np.testing.assert_allclose(loops.ts[0], 0.5 * np.arange(13), atol=1e-12)
    # the plant follows the controls, which are constant between the times
    moves = 0.5 * loops.ys[:, :-1, 1] + 0.125 * loops.us
    np.testing.assert_allclose(loops.ys[:, 1:, 0] - loops.ys[:, :-1, 0], moves, atol=1e-5)
    assert jnp.all(jnp.abs(loops.ys[:, :, 1]) <= 0.4 + 1e-5) and jnp.all(jnp.abs(loops.us) <= 1 + 1e-5)
    assert jnp.max(jnp.abs(loops.ys[:, -1])) < 0.05
    counts = np.asarray(loops.n_steps)
    assert np.all(counts[:, 1:].mean(axis=1) < counts[:, 0])
    # the derivative of the end passes through all plans
    slope = jax.jit(jax.grad(lambda x0: run(x0, weight).ys[-1, 0]))(starts[0])
    differences = (loops.ys[3, -1, 0] - loops.ys[4, -1, 0]) / (2 * h)
    assert abs(slope - differences) < 1e-3


def test_bad_input():
    cost = dict(running=lambda t, y, u, args: u**2)
    problem, zero = control.ControlProblem(integrator, **cost), jnp.zeros(2)
    with pytest.raises(ValueError, match="`horizon` must be positive"):
        control.receding_horizon(problem, zero, 0.0, steps=2, horizon=-1.0)
    with pytest.raises(ValueError, match="must have a fixed duration"):
        free = control.ControlProblem(integrator, **cost, t1_bounds=(1.0, 2.0))
        control.receding_horizon(free, zero, 0.0, steps=2, horizon=1.0)
