"""Optimal control: published solutions, constraints, derivatives, failures and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import SolveError, Status, control, verify

from .common import DESCENT, HEIGHT, brachistochrone, bryson_denham, goddard, integrator


@pytest.mark.x64
def test_brachistochrone():
    plan = control.optimise(brachistochrone(), jnp.zeros(3), 1.0, t1=1.0, segments=10, degree=4)
    assert abs(plan.ts[-1] - DESCENT) < 1e-8
    # the angle of a cycloid is proportional to time, and energy is conserved between the points, too
    t = jnp.linspace(0.0, plan.ts[-1], 17)
    ys, angles = plan.evaluate(t)
    np.testing.assert_allclose(angles, angles[-1] * t / t[-1], atol=1e-6)
    np.testing.assert_allclose(ys[:, 2] ** 2, 2 * 9.81 * ys[:, 1], atol=1e-6)
    assert jnp.isnan(plan.evaluate(2.0)[1])


@pytest.mark.x64
def test_bryson_denham():
    plan = control.optimise(bryson_denham(), jnp.array([0.0, 1.0]), 0.0, t1=1.0, args=1 / 9, segments=30)
    assert abs(plan.cost - verify.reference("bryson_denham_cost", 1 / 9)) < 1e-6
    assert jnp.max(plan.ys[:, 0]) < 1 / 9 + 1e-8
    # the constraint is active from 1/3 to 2/3, which it enters and leaves by impulses of its multiplier
    times = plan.ts[1:]
    assert jnp.all(plan.multipliers[(times < 0.3) | (times > 0.7)] < 1e-3)
    np.testing.assert_allclose(plan.us[plan.ts < 0.3], -6 * (1 - 3 * plan.ts[plan.ts < 0.3]), atol=1e-4)


@pytest.mark.x64
def test_goddards_rocket():
    start = jnp.array([1.0, 0.0, 1.0])
    plan = control.optimise(goddard(), start, 1.0, t1=0.2, segments=50, control_degree=0)
    assert abs(-plan.cost - HEIGHT) < 1e-6
    assert plan.us.shape == plan.ts.shape
    assert jnp.all(plan.us[1:4] == plan.us[1])  # held in each segment


def moved(given):
    """A cart that moves by `distance` at the least effort or in the least time, for several tests of one program."""
    speed_of_light = given["fastest"]
    problem = control.ControlProblem(
        lambda t, y, u, args: {"x": y["v"], "v": u["force"] / args["mass"]},
        running=lambda t, y, u, args: 0.1 * u["force"] ** 2,
        terminal=lambda t1, y1, args: t1,
        end=lambda t1, y1, args: {"x": y1["x"] - args["distance"], "v": y1["v"]},
        u_bounds=(-given["strongest"], given["strongest"]),
        y_bounds=({"x": -jnp.inf, "v": -speed_of_light}, {"x": jnp.inf, "v": speed_of_light}),
        t1_bounds=(0.1, given["latest"]),
    )
    y0 = {"x": given["x0"], "v": jnp.zeros_like(given["x0"])}
    args = {"distance": given["distance"], "mass": given["mass"]}
    u0 = {"force": jnp.zeros_like(given["x0"])}
    return control.optimise(problem, y0, u0, t1=2.0, args=args, segments=8, throw=False)


def given(**changes):
    usual = dict(x0=0.0, distance=1.0, mass=1.0, fastest=10.0, strongest=2.0, latest=10.0)
    return {name: jnp.asarray(value) for name, value in (usual | changes).items()}


def stacked(*dicts):
    return jax.tree.map(lambda *xs: jnp.stack(xs), *dicts)


many = jax.jit(jax.vmap(moved))
slope = jax.jit(jax.grad(lambda x: (lambda plan: plan.ts[-1] + plan.us["force"][3])(moved(x))))


@pytest.mark.x64
def test_members_have_their_own_iterations():
    cases = (given(), given(strongest=1.0), given(fastest=0.5), given(latest=0.5))
    plans = many(stacked(*cases))
    assert plans.status.tolist() == [0, 0, 0, int(Status.infeasible)]
    assert len(set(plans.n_steps.tolist())) > 1
    assert jnp.all(jnp.abs(plans.us["force"][1]) <= 1.0 + 1e-8)
    assert jnp.all(jnp.abs(plans.ys["v"][2]) <= 0.5 + 1e-8)
    np.testing.assert_allclose(plans.ys["x"][:3, -1], 1.0, atol=1e-8)
    one = moved(given(strongest=1.0))
    np.testing.assert_allclose(plans.ys["x"][1], one.ys["x"], atol=1e-7)


@pytest.mark.x64
def test_derivatives_agree_with_differences():
    base, h = given(x0=0.1, strongest=2.5), 1e-4
    found = slope(base)
    for name in base:
        plans = many(stacked(*(base | {name: base[name] + sign * h} for sign in (-1, 1, -2, 2))))
        value = plans.ts[:, -1] + plans.us["force"][:, 3]
        by_differences = (8 * (value[1] - value[0]) - (value[3] - value[2])) / (12 * h)
        assert abs(found[name] - by_differences) < 1e-5, name
    both = stacked(base, given(mass=1.2))
    each = jax.jit(jax.vmap(jax.grad(lambda x: moved(x).cost)))(both)
    total = jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(moved)(x).cost)))(both)
    for name in base:
        np.testing.assert_allclose(each[name], total[name], atol=1e-9)
    # the costate is the derivative of the cost with respect to the state
    np.testing.assert_allclose(moved(base).costates["x"][0], each["x0"][0], atol=1e-7)


def test_free_initial_state_and_limits_at_the_end():
    """A ball is thrown as slowly as possible; a parameter is a component of the state."""
    problem = control.ControlProblem(
        lambda t, y, u, args: jnp.stack([y[1], -1.0 + 0.0 * u, jnp.zeros_like(u)]),
        running=lambda t, y, u, args: u**2,
        terminal=lambda t1, y1, args: (y1[2] - 1.0) ** 2,
        end=lambda t1, y1, args: y1[1] - y1[2] + 2.0,
        end_limits=lambda t1, y1, args: jnp.stack([0.5 - y1[0]]),
        free=jnp.array([False, True, True]),
    )
    plan = control.optimise(problem, jnp.array([0.0, 1.0, 0.0]), 0.1, t1=1.0, segments=2)
    # v1 = v0 - 1 = p - 2 and x1 = v0 - 1/2 >= 1/2 hold if v0 = p - 1 >= 1
    np.testing.assert_allclose(plan.ys[0], [0.0, 1.0, 2.0], atol=1e-3)
    assert plan.ys[-1, 0] >= 0.5 - 1e-3


@pytest.mark.x64
def test_a_plan_is_a_guess():
    problem, start = bryson_denham(), jnp.array([0.0, 1.0])
    options = dict(t1=1.0, segments=9)
    plan = control.optimise(problem, start, 0.0, args=0.15, **options)
    warm = control.optimise(problem, start, 0.0, args=0.149, guess=plan, **options)
    cold = control.optimise(problem, start, 0.0, args=0.149, **options)
    assert warm.n_steps < cold.n_steps
    np.testing.assert_allclose(warm.ys, cold.ys, atol=1e-6)
    assert plan.shifted().ts is plan.ts
    with pytest.raises(ValueError, match="`guess` must have 5 segments of degree 3"):
        control.optimise(problem, start, 0.0, args=0.149, guess=plan, t1=1.0, segments=5)


def test_failures():
    problem = bryson_denham()
    start = jnp.array([0.0, 1.0])
    with pytest.raises(SolveError, match=r"`max_steps_reached`. The optimisation used up"):
        control.optimise(problem, start, 0.0, t1=1.0, args=0.2, segments=3, max_steps=2)


def test_starts_that_are_not_finite():
    problem = control.ControlProblem(integrator, running=lambda t, y, u, args: u**2)
    nan, zero, options = jnp.array([1.0, jnp.nan]), jnp.zeros(2), dict(t1=1.0, segments=2)
    for method in ("collocation", "shooting", "ilqr"):
        with pytest.raises(ValueError, match=r"`y0\[1\]` is nan, but a start needs finite numbers"):
            control.optimise(problem, nan, 0.0, method=method, throw=False, **options)
        with pytest.raises(ValueError, match="`u0` is inf, but"):
            control.optimise(problem, zero, jnp.inf, method=method, **options)
    with pytest.raises(ValueError, match="`u0` is nan, but"):
        control.receding_horizon(problem, zero, jnp.nan, steps=2, horizon=1.0)
    guess = lambda t: (nan, t)  # noqa: E731
    plan = control.optimise(problem, zero, 0.0, guess=guess, throw=False, **options)
    assert plan.status == Status.diverged
    with pytest.raises(ValueError, match=r"`guess\(0.5\)\[0\]\[1\]` is nan, but"):
        control.optimise(problem, zero, 0.0, guess=guess, **options)
    with pytest.raises(ValueError, match=r"`guess.warm.unknowns.* is nan, but"):
        control.optimise(problem, zero, 0.0, guess=plan, **options)


def test_bad_input():
    cost = dict(running=lambda t, y, u, args: u**2)
    problem = control.ControlProblem(integrator, **cost)
    zero = jnp.zeros(2)
    cases = [
        (TypeError, "`running` must be callable", lambda: control.ControlProblem(integrator, running=lambda t, y: 0.0)),
        (ValueError, "must have a cost", lambda: control.ControlProblem(integrator)),
        (TypeError, "`u_bounds` must be a pair", lambda: control.ControlProblem(integrator, **cost, u_bounds=1.0)),
        (ValueError, "`t1` must be after `t0`", lambda: control.optimise(problem, zero, 0.0, t0=1.0, t1=0.0)),
        (ValueError, "from 0 to 2", lambda: control.optimise(problem, zero, 0.0, t1=1.0, control_degree=3)),
        (ValueError, "ascend from 0 to 1", lambda: control.optimise(problem, zero, 0.0, t1=1.0, segments=[0.0, 2.0])),
        (TypeError, "`u0` must be real", lambda: control.optimise(problem, zero, jnp.array(1j), t1=1.0)),
        (ValueError, "`rtol` must be positive", lambda: control.optimise(problem, zero, 0.0, t1=1.0, rtol=0.0)),
    ]
    for bounds in ((1.0, -1.0), (jnp.zeros(3), 1.0)):
        wrong = control.ControlProblem(integrator, **cost, y_bounds=bounds)
        cases.append((ValueError, "`y_bounds` must", lambda wrong=wrong: control.optimise(wrong, zero, 0.0, t1=1.0)))
    outside = {"`y0` must be inside `y_bounds`": dict(y_bounds=(0.5, 1.0)), "`t1` must be": dict(t1_bounds=(2.0, 3.0))}
    for message, bounds in outside.items():
        wrong = control.ControlProblem(integrator, **cost, **bounds)
        cases.append((ValueError, message, lambda wrong=wrong: control.optimise(wrong, zero, 0.0, t1=1.0)))
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(ValueError, match="must return the shapes"):
        control.optimise(control.ControlProblem(lambda t, y, u, args: y[:1], **cost), zero, 0.0, t1=1.0)
