"""The order that every method shows, at the end and between the steps."""

import numpy as np
import pytest

import sciml
from sciml import verify
from tests.registry_solvers import METHODS, each_dense_method, each_method

pytestmark = pytest.mark.x64


@each_method
def test_order(method):
    def solve(problem, dt):
        return sciml.solve(problem.model, problem.y0, t0=problem.t0, t1=problem.t1, dt=dt, solver=method.solver()).ys[
            -1
        ]

    measured = verify.observed_order(solve, verify.problem("cosine_growth", rate=method.rate), method.steps)
    assert abs(measured.order - method.order) < 0.2, measured


@each_dense_method
def test_order_of_the_interpolation(method):
    problem = verify.problem("cosine_growth", rate=2.0)

    def error(count):
        h = problem.t1 / count
        ts = (np.arange(count)[:, None] * h + np.array([0.13, 0.37, 0.61, 0.83]) * h).reshape(-1)
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=problem.t1, dt=h, solver=method.solver(), saveat=ts)
        exact = np.exp(2 * np.sin(ts))
        return np.max(np.abs(np.asarray(sol.ys)[:, 0] - exact))

    errors = [error(count) for count in method.steps]
    slope = np.polyfit(np.log(method.steps), np.log(errors), 1)[0]
    assert abs(-slope - method.dense_order) < 0.25, errors  # the largest error over all steps: noisier than the end's


@pytest.mark.parametrize("method", [m for m in METHODS if m.dense_order is None], ids=lambda method: method.name)
def test_steps_end_at_saved_times_where_there_is_no_interpolation(method):
    problem = verify.problem("cosine_growth", rate=2.0)
    ts = np.array([0.0, 0.17, 0.5, 1.31, 2.0])
    sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=2.0, dt=2 / 64, solver=method.solver(), saveat=ts)
    exact = np.exp(2 * np.sin(ts))
    assert np.max(np.abs(np.asarray(sol.ys)[:, 0] - exact)) < 40 * (1 / 32) ** method.order + 1e-12
