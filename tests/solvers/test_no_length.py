"""Members that end where they start: states, status and derivatives by the times, among members that go on."""

import warnings

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints

START, ENDS = 0.5, np.array([0.5, 1.5])
Y0 = 2.0
Y1 = Y0 * np.exp(np.sin(ENDS) - np.sin(START))
BY_T0, BY_T1 = -Y1 * np.cos(START), Y1 * np.cos(ENDS)
FINE = dict(rtol=1e-6, atol=1e-6)
ADJOINTS = ["Checkpointed", "Forward", "Direct", "Backsolve", "Interpolating", "Gauss", "Reversible"]
HOW = {
    "Tsit5": FINE,
    "dt": dict(dt=0.05),
    "Rodas5P": dict(solver=sciml.solvers.Rodas5P(), **FINE),
    "PID": dict(stepsize_controller=diffrax.PIDController(pcoeff=0.3, icoeff=0.3, **FINE)),
}


def run(t0, t1, **how):
    options = how or FINE
    return sciml.solve(lambda t, y, args: y * jnp.cos(t), jnp.full((), Y0), t0=t0, t1=t1, throw=False, **options)


@pytest.mark.parametrize("how", HOW)
def test_states_and_status(how):
    solution = jax.vmap(lambda t1: run(START, t1, **HOW[how]))(ENDS)
    np.testing.assert_allclose(solution.ys[:, -1], Y1, rtol=1e-4)
    np.testing.assert_array_equal(solution.status, 0)
    assert solution.stats.accepted[0] == 0 and solution.stats.accepted[1] > 0
    alone = jax.jit(lambda t1: run(START, t1, **HOW[how]))(START)
    assert int(alone.status) == 0 and float(alone.ys[-1]) == Y0
    saved = jax.vmap(lambda t1: run(START, t1, saveat=jnp.stack([jnp.full_like(t1, START), t1]), **HOW[how]))(ENDS)
    np.testing.assert_allclose(saved.ys, np.stack([[Y0, Y0], Y1], 1), rtol=1e-4)
    np.testing.assert_array_equal(saved.status, 0)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_derivatives_by_the_times(adjoint, saved):
    how = dict(adjoint=getattr(adjoints, adjoint)(), **FINE)
    derivative = jax.jacfwd if adjoint == "Direct" else jax.grad

    def end(times):
        t0, t1 = times
        more = dict(saveat=t1[None]) if saved else {}
        return run(t0, t1, **more, **how).ys[-1]

    by_t0, by_t1 = jax.vmap(derivative(end))((np.full(2, START), ENDS))
    np.testing.assert_allclose(by_t0, BY_T0, rtol=2e-4)
    np.testing.assert_allclose(by_t1, BY_T1, rtol=2e-4)


EVENTS = {
    "goes on": sciml.Event(lambda t, y, args: y - 5.0, lambda t, y, args: y + 1.0),
    "ends": sciml.Event(lambda t, y, args: y - 5.0),
    "given": sciml.Schedule(jnp.array([2.0]), lambda t, y, args: y + 1.0),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("adjoint", [name for name in ADJOINTS if name != "Reversible"])
def test_derivatives_by_the_times_beside_events(adjoint, event):
    how = dict(adjoint=getattr(adjoints, adjoint)(), events=EVENTS[event], **FINE)
    derivative = jax.jacfwd if adjoint == "Direct" else jax.grad
    by_t0, by_t1 = jax.vmap(derivative(lambda times: run(*times, **how).ys[-1]))((np.full(2, START), ENDS))
    np.testing.assert_allclose(by_t0, BY_T0, rtol=2e-4)
    np.testing.assert_allclose(by_t1, BY_T1, rtol=2e-4)


MASS = np.diag([1.0, 0.0])
WITH_MASS = {
    "Rodas5P": dict(solver=sciml.solvers.Rodas5P(mass=MASS)),
    "BDF": dict(solver=sciml.solvers.BDF(mass=MASS)),
    "events": dict(solver=sciml.solvers.Rodas5P(mass=MASS), events=EVENTS["given"]),
    "Forward": dict(solver=sciml.solvers.Rodas5P(mass=MASS), adjoint=adjoints.Forward()),
}


@pytest.mark.parametrize("how", WITH_MASS)
def test_derivatives_of_algebraic_variables_by_the_times(how):
    def end(t0, t1):
        start, model = jnp.array([0.5, 0.0]), lambda t, y, args: jnp.stack([-y[0], y[1] - y[0] ** 2 - jnp.sin(t)])
        return sciml.solve(model, start, t0=t0, t1=t1, throw=False, **FINE, **WITH_MASS[how]).ys[-1, 1]

    slopes = jax.vmap(jax.grad(end, (0, 1)))(np.full(2, START), ENDS)
    passed = 0.5 * np.exp(2 * (START - ENDS))
    np.testing.assert_allclose(slopes, [passed, np.cos(ENDS) - passed], rtol=2e-3, atol=1e-5)


def test_derivative_around_the_members():
    total = jax.grad(lambda ends: jnp.sum(jax.vmap(lambda t1: run(START, t1).ys[-1])(ends)))(jnp.asarray(ENDS))
    np.testing.assert_allclose(total, BY_T1, rtol=2e-4)


def test_a_rate_that_is_infinite_there_does_no_harm_to_others():
    def end(t0, t1):
        return sciml.solve(lambda t, y, args: 1 / t, jnp.ones(()), t0=t0, t1=t1, throw=False, **FINE).ys[-1]

    slopes = jax.vmap(jax.grad(end, 1))(np.array([0.0, 1.0]), np.array([0.0, 2.0]))
    np.testing.assert_allclose(slopes[1], 0.5, rtol=1e-4)


def test_fixed_steps_of_a_traced_end():
    slope = jax.vmap(jax.grad(lambda t1: run(START, t1, dt=0.05).ys[-1]))(ENDS)
    np.testing.assert_allclose(slope, BY_T1, rtol=1e-3)


@pytest.mark.parametrize("how", [*HOW, "backwards", "saved", "diffrax"])
def test_known_times(how):
    others = {"backwards": dict(dt=-0.05), "saved": dict(saveat=[START, START]), "diffrax": dict(solver=diffrax.Heun())}
    options = dict(HOW, **others)[how]
    solution = run(START, START, **options)
    np.testing.assert_array_equal(solution.ys, np.full(2 if how == "saved" else 1, Y0))
    assert int(solution.status) == 0 and int(solution.stats.accepted) == 0


def test_known_times_far_from_zero_need_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(run(1e8, 1e8).ys[-1]) == Y0


def test_gradient_by_the_state_of_known_times():
    def end(y):
        return sciml.solve(lambda t, y, args: -y, y, t0=START, t1=START, **FINE).ys[-1]

    assert float(jax.grad(end)(jnp.full((), Y0))) == 1.0


def test_simulate():
    assert sciml.simulate(lambda t, y, args: -y, Y0, t0=START, t1=START, saveat=[START], progress=False).values == [Y0]


@pytest.mark.parametrize("end", [START, 2.0])
def test_stable_steps(end):
    model = sciml.models.Diffusion(sciml.spatial.Grid((4,), 0.0, 1.0), sciml.spatial.Periodic(), 0.1)
    y = jnp.arange(4.0)
    ends = np.array([START, end])
    solve = lambda t1: sciml.solve(model, y, t0=START, t1=t1, solver=diffrax.Heun(), throw=False)  # noqa: E731
    found = jax.vmap(solve)(ends)
    np.testing.assert_array_equal(found.status, 0)
    np.testing.assert_array_equal(found.ys[0, 0], y)
    if end == START:
        np.testing.assert_array_equal(solve(START).ys[0], y)
