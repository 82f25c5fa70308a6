"""Two stiff problems of N. Guglielmi and E. Hairer's code RADAR5 (Computing 67, 2001)."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline

import sciml

pytestmark = pytest.mark.x64


def robertson(y, past):
    """Robertson's reactions, one of which has a delay."""
    first, second, third = 0.04 * y[0], 1e4 * past * y[2], 3e7 * y[1] ** 2
    return [second - first, first - second - third, third]


def robertson_by_intervals(delay, intervals):
    """SciPy's Radau from one multiple of the delay to the next."""
    y, past = np.array([1.0, 0.0, 0.0]), lambda t: 0.0
    for k in range(intervals):
        sol = solve_ivp(
            lambda t, y, past=past: robertson(y, past(t - delay)),
            (k * delay, (k + 1) * delay),
            y,
            method="Radau",
            rtol=1e-9,
            atol=1e-13,
            dense_output=True,
        )
        y, past = sol.y[:, -1], lambda t, sol=sol.sol: sol(t)[1]
    return y


@pytest.mark.parametrize("solver", [sciml.solvers.Rodas5P(), sciml.solvers.Radau5()])
def test_reactions_with_a_delay(solver):
    start = jnp.array([1.0, 0.0, 0.0])
    model = sciml.Delayed(
        lambda t, y, past, args: jnp.stack(robertson(y, past[1])), lambda t, y, args: 1e-2, start, kept=256
    )
    sol = sciml.solve(model, start, t0=0.0, t1=0.5, rtol=1e-7, atol=1e-13, solver=solver)
    np.testing.assert_allclose(sol.ys[-1], robertson_by_intervals(1e-2, 50), rtol=2e-7)
    assert abs(np.sum(sol.ys[-1]) - 1) < 1e-12


def test_an_immune_response_with_thresholds():
    """Waltman (1978): antigen, its receptors and antibodies, which are made when two integrals pass thresholds.

    The delays end in the variables 4 and 5: integrals of the rate of binding, of which each reaches its threshold first
    at a time that is given.
    """
    antigen, binding, blocking = 0.75e-4, 5e4, 1e5
    times = 32.0, 119.0
    start = jnp.array([antigen, 1e-15, 0, 0, 0, 0])

    def field(t, y, past, args):
        first, second = past
        on, late = (jnp.where(t >= time, 1.0, 0.0) for time in times)
        bound, blocked = binding * y[0] * y[1], blocking * y[0] * y[3]
        return jnp.stack(
            [
                -bound - blocked,
                -bound + 1.8 * binding * first[0] * first[1] * on,
                bound,
                -blocked - 0.002 * y[3] + 20 * binding * second[0] * second[1] * late,
                on * (y[0] * y[1] + y[2]) / (first[0] * first[1] + first[2]),
                late * (1e-12 + y[1] + y[2]) / (1e-12 + second[1] + second[2]),
            ]
        )

    ts = np.linspace(0.0, 300.0, 3001)
    sol = sciml.solve(
        sciml.Delayed(field, lambda t, y, args: jnp.stack([t - y[4], t - y[5]]), start, kept=2048),
        start,
        t0=0.0,
        t1=300.0,
        rtol=1e-6,
        atol=1e-6 * np.array([1e-5, 1e-15, 1e-9, 1e-9, 1.0, 1.0]),
        solver=sciml.solvers.Radau5(),
        saveat=ts,
        events=[sciml.Schedule(jnp.array(times), lambda t, y, args, dose: y, jnp.zeros(2))],  # steps end there
        max_steps=10_000,
    )
    y = np.asarray(sol.ys)
    # all antigen is bound; for each receptor that was bound 1.8 were made
    np.testing.assert_allclose(y[-1, :3], [0.0, 0.8 * antigen, antigen], rtol=1e-6, atol=1e-12)
    integral = CubicSpline(ts, 1e-12 + y[:, 1] + y[:, 2]).antiderivative()
    threshold = integral(times[1])
    for n in (1500, 2000, 3000):
        assert abs(integral(ts[n]) - integral(y[n, 5]) - threshold) < 1e-7 * threshold
