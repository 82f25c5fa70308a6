"""Multiple shooting and iLQR: agreement with collocation, members, derivatives, and refusals."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import Status, control, solvers

from .common import DESCENT, brachistochrone, bryson_denham

VAN_DER_POL = 2.1142138583  # by collocation of degree 5 with constant controls


@pytest.mark.x64
def test_shooting_agrees_with_collocation():
    """With the same controls, which are constant in each segment, both are the same problem."""
    same = dict(t1=1.0, segments=10)
    plan = control.optimise(brachistochrone(), jnp.zeros(3), 1.0, method="shooting", **same)
    other = control.optimise(brachistochrone(), jnp.zeros(3), 1.0, degree=4, control_degree=0, **same)
    assert abs(plan.ts[-1] - other.ts[-1]) < 1e-8 and 0 < plan.ts[-1] - DESCENT < 1e-3
    np.testing.assert_allclose(plan.us, other.us[np.append(0, np.arange(1, 41, 4))], atol=1e-5)
    np.testing.assert_allclose(plan.ys, other.ys[::4], atol=1e-6)
    np.testing.assert_allclose(plan.costates, other.costates[::4], atol=1e-5)


@pytest.mark.x64
def test_shooting_with_a_path_constraint():
    def cost(wall):
        options = dict(
            t1=1.0, args=wall, segments=30, method="shooting", solver=diffrax.Midpoint(), n_steps=1, throw=False
        )
        return control.optimise(bryson_denham(), jnp.array([0.0, 1.0]), 0.0, **options).cost

    value, slope = jax.jit(jax.value_and_grad(cost))(1 / 9)
    assert abs(value - 4) < 0.03 and abs(slope + 36) < 0.5


@pytest.mark.x64
@pytest.mark.parametrize(
    "options", [dict(n_steps=None), dict(n_steps=2, solver=solvers.Rodas5P())], ids=["adaptive", "Rodas5P"]
)
def test_segments_by_error_control_and_by_implicit_methods(options):
    problem = control.ControlProblem(
        lambda t, y, u, args: jnp.stack([y[1], (1 - y[0] ** 2) * y[1] - y[0] + u]),
        running=lambda t, y, u, args: y[0] ** 2 + y[1] ** 2 + u**2,
        u_bounds=(-0.75, 1.0),
    )
    same = dict(t1=2.0, segments=5, rtol=1e-6)
    plan = control.optimise(problem, jnp.array([1.0, 0.0]), 0.0, method="shooting", **same, **options)
    assert abs(plan.cost - VAN_DER_POL) < 1e-5


def swing(weight):
    problem = control.ControlProblem(
        lambda t, y, u, weight: jnp.stack([y[1], u - jnp.sin(y[0])]),
        running=lambda t, y, u, weight: y[0] ** 2 + weight * u**2,
        terminal=lambda t1, y1, weight: 5 * y1[1] ** 2,
    )
    options = dict(t1=3.0, args=weight, method="ilqr", segments=15, solver=diffrax.Midpoint(), n_steps=2)
    return control.optimise(problem, jnp.stack([2.0 + 0 * weight, 0 * weight]), 0.0, throw=False, **options)


@pytest.mark.x64
def test_ilqr_of_members_and_its_derivative():
    weights = jnp.array([0.1 - 1e-4, 0.1, 0.1 + 1e-4, 2.0])
    plans = jax.jit(jax.vmap(swing))(weights)
    assert np.all(plans.status == Status.successful) and np.all(plans.error < 1e-8) and np.all(plans.n_steps < 20)
    slopes = jax.jit(jax.grad(lambda weight: swing(weight).us[4]))(0.1)
    assert abs(slopes - (plans.us[2, 4] - plans.us[0, 4]) / 2e-4) < 1e-5
    # the derivative of the cost is the explicit one, and the last costate is the slope of the terminal cost
    by_weight = (plans.cost[2] - plans.cost[0]) / 2e-4
    np.testing.assert_allclose(by_weight, jnp.sum(0.2 * plans.us[1, 1:] ** 2), rtol=1e-5)
    np.testing.assert_allclose(plans.costates[:, -1, 1], 10 * plans.ys[:, -1, 1], atol=1e-6)


def test_bad_input():
    problem, zero = bryson_denham(), jnp.zeros(2)
    cases = [
        ("supports only a model and a cost, but the problem has `path`", dict(method="ilqr")),
        ("`method` must be one of", dict(method="ddp")),
        ("`control_degree` must be 0", dict(method="shooting", control_degree=1)),
        ("collocation has no solver", dict(solver=0)),
    ]
    for message, options in cases:
        with pytest.raises(ValueError, match=message):
            control.optimise(problem, zero, 0.0, t1=1.0, **options)
