"""Ipopt: published solutions, agreement with the own method, warm starts, derivatives, failures and refusals."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import Status, control

from .common import DESCENT, HEIGHT, brachistochrone, bryson_denham, goddard


@pytest.fixture
def ipopt():
    return pytest.importorskip("cyipopt")


def cart(wall, method="ipopt", segments=30, **options):
    start, same = jnp.array([0.0, 1.0]), dict(t1=1.0, args=wall, method=method, segments=segments, throw=False)
    return control.optimise(bryson_denham(), start, 0.0, **same, **options)


@pytest.mark.x64
def test_bryson_denham(ipopt):
    plan, own = cart(1 / 9), cart(1 / 9, "collocation")
    assert plan.status == Status.successful and abs(plan.cost - 4) < 1e-6 and plan.error < 1e-7
    for name, tolerance in {"ys": 1e-5, "us": 1e-3, "costates": 1e-2}.items():
        np.testing.assert_allclose(getattr(plan, name), getattr(own, name), atol=tolerance)
    warm = cart(1 / 9, guess=plan)
    assert 2 * warm.n_steps < plan.n_steps and abs(warm.cost - plan.cost) < 1e-8
    assert cart(1 / 9, "collocation", guess=plan).n_steps < own.n_steps
    # derivatives are of the same conditions
    slopes = [
        jax.grad(lambda wall, method=method: cart(wall, method).cost)(0.11) for method in ("ipopt", "collocation")
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-6)
    assert cart(1 / 9, ipopt_options={"max_iter": 2}).status == Status.max_steps_reached
    assert cart(1 / 9, ipopt_options={"hessian_approximation": "limited-memory"}).status == Status.successful


@pytest.mark.x64
def test_goddards_rocket(ipopt):
    start = jnp.array([1.0, 0.0, 1.0])
    plan = control.optimise(goddard(), start, 1.0, t1=0.2, segments=50, control_degree=0, method="ipopt")
    assert abs(-plan.cost - HEIGHT) < 1e-6


@pytest.mark.x64
def test_controls_of_a_lower_degree(ipopt):
    options = dict(t1=1.0, segments=6, degree=4, control_degree=1, method="ipopt")
    plan = control.optimise(brachistochrone(), jnp.zeros(3), 1.0, **options)
    assert abs(plan.ts[-1] - DESCENT) < 1e-8


@pytest.mark.x64
def test_many_segments(ipopt):
    plan = cart(1 / 9, segments=3000)
    assert plan.status == Status.successful and abs(plan.cost - 4) < 1e-6


def test_limits_at_the_end_and_failures(ipopt):
    cost = dict(running=lambda t, y, u, args: u**2, u_bounds=(-1.0, 1.0))
    model = lambda t, y, u, limit: u  # noqa: E731
    problem = control.ControlProblem(model, **cost, end_limits=lambda t1, y1, limit: limit - y1)
    options = dict(t1=1.0, segments=3, method="ipopt", throw=False)
    ends = {0.5: Status.successful, 2.0: Status.infeasible, jnp.nan: Status.nonfinite}
    for limit, status in ends.items():
        plan = control.optimise(problem, jnp.zeros(()), 0.1, args=limit, **options)
        assert plan.status == status, limit
        if status == Status.successful:
            np.testing.assert_allclose(plan.us, 0.5, atol=1e-3)


def test_refusals(ipopt):
    for call in (jax.jit(cart), lambda wall: jax.vmap(cart)(wall[None])):
        with pytest.raises(TypeError, match="supports no traced values"):
            call(jnp.array(0.1))
    with pytest.raises(TypeError, match="option"):
        cart(0.1, ipopt_options={"no_such": 1})


def test_without_cyipopt(monkeypatch):
    monkeypatch.setitem(sys.modules, "cyipopt", None)
    with pytest.raises(ImportError, match=r"sciml-jax\[ipopt\]"):
        cart(0.1)
    with pytest.raises(ValueError, match="`ipopt_options` belong to"):
        cart(0.1, "collocation", ipopt_options={"tol": 1.0})
