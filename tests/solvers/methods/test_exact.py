"""Against exact solutions, diffrax and scipy."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import sciml
from sciml import verify
from sciml.verify._lookup import EXACT_PROBLEMS
from tests.registry_models import CASES
from tests.registry_solvers import each_adaptive_method, each_adaptive_method_of_diffrax, each_method_of_diffrax

from ..common import close, inputs

BY_DIFFRAX = diffrax.Kvaerno5(root_finder=diffrax.VeryChord(rtol=1e-9, atol=1e-9))
"""With an iteration of its own for its stages, which sciml's own loops have not got."""

NOT_STIFF = [pytest.param(case, id=case.name) for case in CASES if not case.stiff]


@pytest.mark.x64
@pytest.mark.parametrize("make", EXACT_PROBLEMS, ids=lambda make: make.__name__)
def test_exact_solutions(make):
    problem = make()
    ts = np.linspace(problem.t0, problem.t1, 6)
    sol = sciml.solve(problem.model, problem.y0, t0=problem.t0, t1=problem.t1, rtol=1e-9, atol=1e-11, saveat=ts)
    end = jax.tree.map(lambda x: x[-1], sol.ys)
    assert float(problem.error(end)) < 2e-7
    for i, t in enumerate(ts):
        close(jax.tree.map(lambda x: x[i], sol.ys), problem.solution(t), rtol=1e-6, atol=1e-6)


@pytest.mark.x64
@each_adaptive_method
def test_tolerance_is_met(method):
    problem = verify.problem("cosine_growth")
    for rtol in (1e-3, 1e-6):
        sol = sciml.solve(
            problem.model, problem.y0, t0=problem.t0, t1=problem.t1, rtol=rtol, atol=rtol, solver=method.solver()
        )
        # its estimate is of the solution that it goes on with, so that the errors of all steps add up
        most = int(sol.stats.accepted) if method.solver is sciml.solvers.Rosenbrock23 else 10
        assert float(problem.error(sol.ys[-1])) < most * rtol


@pytest.mark.x64
@each_method_of_diffrax
def test_fixed_steps_agree_with_diffrax_to_rounding(method):
    p = inputs()
    ts = np.array([0.1, 0.13, 0.5, 2.0])
    reference = diffrax.diffeqsolve(
        diffrax.ODETerm(p.model), method.solver(), 0.1, 2.0, 0.05, p.y0, p.args, saveat=diffrax.SaveAt(ts=ts)
    )
    options = {"t0": 0.1, "t1": 2.0, "dt": 0.05, "args": p.args, "solver": method.solver()}
    if method.dense_order is not None:
        np.testing.assert_allclose(
            sciml.solve(p.model, p.y0, saveat=ts, **options).ys, reference.ys, rtol=1e-12, atol=1e-13
        )
    np.testing.assert_allclose(sciml.solve(p.model, p.y0, **options).ys, reference.ys[-1:], rtol=1e-12, atol=1e-13)


@pytest.mark.x64
@each_adaptive_method_of_diffrax
def test_error_control_agrees_with_diffrax(method):
    """To the tolerance, and at no higher cost; diffrax never shrinks a step after an accepted one."""
    p = inputs()
    controller = diffrax.PIDController(rtol=1e-5, atol=1e-7)
    reference = diffrax.diffeqsolve(
        diffrax.ODETerm(p.model), method.solver(), 0.1, 2.0, 0.01, p.y0, p.args, stepsize_controller=controller
    )
    sol = sciml.solve(
        p.model, p.y0, t0=0.1, t1=2.0, dt0=0.01, args=p.args, solver=method.solver(), stepsize_controller=controller
    )
    np.testing.assert_allclose(sol.ys, reference.ys, rtol=5e-5)
    assert int(sol.stats.accepted + sol.stats.rejected) <= 1.05 * int(reference.stats["num_steps"]) + 1


@pytest.mark.x64
@pytest.mark.parametrize("case", NOT_STIFF)
def test_models_agree_with_scipy(case):
    model = case.make()
    ts = np.linspace(0.0, case.t1, 5)
    sol = sciml.solve(model, case.y0(), t0=0.0, t1=case.t1, rtol=1e-9, atol=1e-9, saveat=ts)
    field = jax.jit(lambda t, y: model(t, y, None))
    reference = solve_ivp(field, (0.0, case.t1), case.state, "DOP853", ts, rtol=1e-11, atol=1e-11)
    scale = np.max(np.abs(reference.y))
    np.testing.assert_allclose(np.asarray(sol.ys).T / scale, reference.y / scale, atol=2e-6)


@pytest.mark.x64
def test_fixed_and_adaptive_steps_agree():
    p = inputs()
    options = {"t0": 0.1, "t1": 2.0, "args": p.args, "saveat": p.ts}
    fixed = sciml.solve(p.model, p.y0, dt=0.002, **options)
    adaptive = sciml.solve(p.model, p.y0, rtol=1e-10, atol=1e-10, **options)
    np.testing.assert_allclose(fixed.ys, adaptive.ys, rtol=1e-8)


@pytest.mark.parametrize(
    "solver, options, atol",
    [
        (BY_DIFFRAX, {"rtol": 1e-4, "atol": 1e-6}, 1e-3),
        # with fixed steps diffrax wants the tolerances of its Newton iteration
        (diffrax.ImplicitEuler(root_finder=diffrax.VeryChord(rtol=1e-5, atol=1e-5)), {"dt": 0.01}, 5e-3),
    ],
    ids=["Kvaerno5", "ImplicitEuler"],
)
def test_other_solvers_run_through_diffrax(solver, options, atol):
    def field(t, y, args):
        return -50.0 * (y - jnp.cos(t))

    ts = jnp.linspace(0.0, 1.0, 4)
    sol = sciml.solve(field, jnp.array([1.0]), t0=0.0, t1=1.0, solver=solver, saveat=ts, **options)
    exact = (2500 * np.cos(ts) + 50 * np.sin(ts) + np.exp(-50 * np.asarray(ts))) / 2501
    assert sol.ys.shape == (4, 1) and int(sol.status) == 0 and sol.ys.dtype == jnp.result_type(float)
    np.testing.assert_allclose(sol.ys[:, 0], exact, atol=atol)


@pytest.mark.x64
def test_other_solvers_are_differentiated_and_batched():
    def end(rate):
        sol = sciml.solve(
            lambda t, y, args: -args * y, jnp.ones(()), t0=0.0, t1=1.0, args=rate, rtol=1e-8, atol=1e-8,
            solver=BY_DIFFRAX,
        )  # fmt: skip
        return sol.ys[-1]

    rates = jnp.array([0.5, 2.0])
    np.testing.assert_allclose(jax.vmap(end)(rates), jnp.exp(-rates), rtol=1e-7)
    np.testing.assert_allclose(jax.vmap(jax.grad(end))(rates), -jnp.exp(-rates), rtol=1e-6)


def test_symplectic_solvers_run_through_diffrax():
    """They take a pair of terms; a callable model is one term, and the message must not come from deep inside."""
    with pytest.raises((TypeError, ValueError)):
        sciml.solve(
            lambda t, y, args: y, (jnp.ones(1), jnp.ones(1)), t0=0.0, t1=1.0, dt=0.1,
            solver=diffrax.SemiImplicitEuler(),
        )  # fmt: skip


def test_a_solve_through_diffrax_says_so_once(caplog):
    class Foreign(diffrax.ImplicitEuler):
        pass

    with caplog.at_level("INFO", "sciml.solvers"):
        for y0 in (1.0, 2.0):
            sciml.solve(lambda t, y, args: -y, y0, t0=0.0, t1=0.2, rtol=1e-4, atol=1e-4, solver=Foreign())
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("Foreign runs in diffrax's loop instead of sciml's own, since it has no tableau")
    assert "the adjoints" in message.lower() and "`batching`" in message
