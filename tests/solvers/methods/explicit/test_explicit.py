"""Explicit methods of sciml's own: orbits over many periods, strong stability, error estimates, gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import solvers, verify
from sciml.solvers.methods.explicit._runge_kutta import from_diffrax
from tests import families

pytestmark = pytest.mark.x64


class Orbit(sciml.AbstractSecondOrder):
    """One body in the gravity of a fixed centre."""

    def acceleration(self, t, q, args):
        return -q / jnp.sum(q * q) ** 1.5


def energy(q, v):
    return jnp.sum(v * v, -1) / 2 - 1 / jnp.sqrt(jnp.sum(q * q, -1))


def swings(solver, steps, periods):
    """The largest errors of the energy in the first and in the last tenth of some periods."""
    eccentricity, count = 0.3, 100
    start = (jnp.array([1 - eccentricity, 0.0]), jnp.array([0.0, np.sqrt((1 + eccentricity) / (1 - eccentricity))]))
    dt = 2 * np.pi / steps
    ts = np.arange(count + 1) * (periods * steps // count + 7) * dt  # at other phases of every period
    run = eqx.filter_jit(lambda: sciml.solve(Orbit(), start, t0=0.0, t1=ts[-1], dt=dt, saveat=ts, solver=solver()))
    sol = run()
    errors = np.abs(np.asarray(energy(*sol.ys)) - float(energy(*start)))
    return errors[1:11].max(), errors[-10:].max()


@pytest.mark.parametrize("solver, steps", [(families.Yoshida6, 60), (families.Yoshida8, 40)])
def test_energies_do_not_drift(solver, steps):
    early, late = swings(solver, steps, 500)
    assert late < 3 * early < 1e-5


def test_energy_of_ten_thousand_periods():
    early, late = swings(families.Yoshida8, 50, 10_000)
    assert late < 3 * early < 1e-6


@pytest.mark.parametrize("solver, least", [(solvers.Vern7, 1e-8), (solvers.Vern9, 1e-9)])
def test_the_orbit_of_arenstorf_closes(solver, least):
    problem = verify.problem("arenstorf")
    sol = sciml.solve(
        problem.model,
        problem.y0,
        t0=problem.t0,
        t1=problem.t1,
        rtol=1e-13,
        atol=1e-14,
        solver=solver(),
        max_steps=10_000,
    )
    assert sol.status == 0
    assert np.abs(np.asarray(sol.ys[-1] - problem.y0))[:2].max() < least


@pytest.mark.parametrize(
    "solver, order", [(solvers.SSPRK33, 3), (solvers.SSPRK43, 3), (solvers.SSPRK104, 4), (solvers.Vern7, 7)]
)
def test_error_estimates_have_the_order_below(solver, order):
    """The estimate is the difference to a solution of one order less."""
    stepper = from_diffrax(solver())
    problem = verify.problem("cosine_growth", rate=2.0)

    def estimate(h):
        step = stepper.step(lambda t, y: problem.model(t, y, None), 0.3, h, problem.y0, None)
        return float(jnp.max(jnp.abs(step.error)))

    measured = np.log2(estimate(0.1) / estimate(0.05))
    assert abs(measured - order) < 0.3


@pytest.mark.parametrize("solver, cells", [(solvers.SSPRK33, 1.0), (solvers.SSPRK43, 2.0), (solvers.SSPRK104, 6.0)])
def test_strong_stability(solver, cells):
    """The total variation of a step that moves upwind does not grow, for steps as long as promised and no longer."""

    def variation(length):
        field = lambda t, y, args: jnp.roll(y, 1) - y  # noqa: E731
        y0 = jnp.where(jnp.arange(60) < 20, 1.0, 0.0)
        sol = sciml.solve(
            field, y0, t0=0.0, t1=20 * length, dt=length, solver=solver(), saveat=np.arange(1, 21) * length
        )
        return np.abs(np.diff(np.asarray(sol.ys), axis=1, append=np.asarray(sol.ys)[:, :1])).sum(1).max()

    assert variation(cells) < 2 + 1e-12
    assert variation(1.35 * cells) > 2 + 1e-6


@pytest.mark.parametrize(
    "solver", [solvers.Vern7, solvers.SSPRK43, solvers.SSPRK104, families.CarpenterKennedy54, families.Williamson3]
)
def test_gradients_of_ensembles(solver):
    """Against finite differences, `vmap(grad)` and `grad(vmap)`."""

    def loss(rate):
        field = lambda t, y, r: jnp.stack([-r * y[0] * y[1], r * y[0] - jnp.sin(y[1])])  # noqa: E731
        ys = sciml.solve(
            field,
            jnp.array([1.0, 0.5]),
            t0=0.0,
            t1=1.0,
            dt=0.1,
            args=rate,
            solver=solver(),
            saveat=jnp.array([0.37, 1.0]),
        ).ys
        return jnp.sum(ys**2)

    rates, step = jnp.array([0.7, 1.3]), 1e-6
    both = jax.jit(jax.vmap(jax.value_and_grad(loss)))
    expected = (both(rates + step)[0] - both(rates - step)[0]) / (2 * step)
    np.testing.assert_allclose(both(rates)[1], expected, rtol=1e-7)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda r: jax.vmap(loss)(r).sum()))(rates), expected, rtol=1e-7)
