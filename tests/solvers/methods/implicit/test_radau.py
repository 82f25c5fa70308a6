"""The method of Radau: references, stiffness, saved times, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import sciml
from sciml import verify
from sciml.solvers import Radau5
from sciml.verify.problems._references import hires, oregonator, robertson, van_der_pol

pytestmark = pytest.mark.x64


@pytest.mark.parametrize(
    "make, atol",
    [(robertson, 1e-20), (hires, 1e-11), (oregonator, 1e-11), (van_der_pol, 1e-11)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_published_values(make, atol):
    problem = make()
    sol = sciml.solve(
        problem.model, problem.y0, t0=problem.t0, t1=problem.t1, rtol=1e-6, atol=100 * atol, solver=Radau5()
    )
    assert problem.error(sol.ys[-1], componentwise=True) < 1e-6


def test_its_order_does_not_fall_where_an_equation_is_very_stiff():
    problem, step = verify.problem("prothero_robinson", rate=1e6), 0.25
    run = lambda dt: sciml.solve(problem.model, problem.y0, t0=0.0, t1=1.0, dt=dt, solver=Radau5()).ys[-1]  # noqa: E731
    assert problem.error(run(step)) < 1e-8
    ends = sciml.solve(lambda t, y, args: -1e10 * y, jnp.ones(2), t0=0.0, t1=1.0, dt=1.0, solver=Radau5())
    assert np.max(np.abs(ends.ys)) < 1e-8


def test_saved_times_and_gradients_of_an_ensemble():
    def saved(rate, **options):
        field = lambda t, y, r: jnp.stack([y[1], 30.0 * r * ((1 - y[0] ** 2) * y[1]) - y[0]])  # noqa: E731
        options = dict(t0=0.0, t1=2.0, args=rate, rtol=1e-8, atol=1e-10, solver=Radau5(), saveat=ts) | options
        return sciml.solve(field, jnp.array([2.0, 0.0]), **options).ys

    ts = jnp.array([0.3, 1.1, 2.0])
    expected = solve_ivp(
        lambda t, y: [y[1], 30.0 * ((1 - y[0] ** 2) * y[1]) - y[0]],
        (0, 2),
        [2.0, 0.0],
        "Radau",
        ts,
        rtol=1e-10,
        atol=1e-12,
    ).y.T
    np.testing.assert_allclose(saved(1.0), expected, rtol=1e-6)
    rates, step = jnp.array([0.7, 1.3]), 1e-4
    run = jax.jit(lambda r: jnp.sum(saved(r, rtol=1e-10, atol=1e-11) ** 2))
    slopes = jax.jit(jax.vmap(jax.grad(lambda r: jnp.sum(saved(r) ** 2))))(rates)
    np.testing.assert_allclose(slopes, [(run(r + step) - run(r - step)) / (2 * step) for r in rates], rtol=1e-5)
