"""A method that is explicit where the equation is not stiff, and implicit where it is."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import Rodas5P, Switching

from ...common import close

# models, their initial states and end times: stiff all along, from time to time, and not
CASES = {
    "Robertson": (sciml.models.Robertson(), [1.0, 0.0, 0.0], 1e4),
    "HIRES": (sciml.models.HIRES(), [1.0, 0, 0, 0, 0, 0, 0, 0.0057], 321.8122),
    "Van der Pol, stiff": (sciml.models.VanDerPol(mu=1e3), [2.0, 0.0], 1000.0),
    "Van der Pol": (sciml.models.VanDerPol(mu=0.1), [2.0, 0.0], 20.0),
    "Lorenz": (sciml.models.Lorenz63(), [1.0, 0.0, 0.0], 5.0),
}
NOT_STIFF = ("Van der Pol", "Lorenz")
each = pytest.mark.parametrize("case", CASES)


def solve(case, solver, dtype=float, **options):
    model, y0, t1 = CASES[case]
    return sciml.solve(model, jnp.asarray(y0, dtype), solver=solver, **dict(t0=0.0, t1=t1) | options)


@pytest.mark.x64
@each
def test_agrees_with_one_method_in_as_many_steps(case):
    best = diffrax.Tsit5() if case in NOT_STIFF else Rodas5P()
    exact = solve(case, best, rtol=1e-10, atol=1e-13).ys[-1]
    sol, other = solve(case, Switching()), solve(case, best)
    assert int(sol.stats.accepted) < 2.5 * int(other.stats.accepted) + 30
    np.testing.assert_allclose(sol.ys[-1], exact, rtol=1e-3, atol=1e-9)
    if case in NOT_STIFF:  # it never left the explicit method
        assert np.array_equal(sol.stats.accepted, other.stats.accepted)


@pytest.mark.x64
def test_tight_tolerances():
    """There the last stages differ by what is slow, too."""
    tight = dict(rtol=1e-8, atol=1e-12)
    sol, other = (solve("Robertson", solver, t1=40.0, **tight) for solver in (Switching(), Rodas5P()))
    assert int(sol.stats.accepted) < 1.2 * int(other.stats.accepted) + 30
    sol, other = (solve("Lorenz", solver, **tight) for solver in (Switching(), diffrax.Tsit5()))
    assert np.array_equal(sol.stats.accepted, other.stats.accepted)


@each
def test_float32(case):
    sol = solve(case, Switching(), np.float32, rtol=1e-4, atol=1e-8)
    assert sol.status == 0 and np.all(np.isfinite(sol.ys))


@pytest.mark.x64
@pytest.mark.parametrize("case", ["Robertson", "Van der Pol, stiff"])
def test_saved_times(case):
    """Between the steps of both methods."""
    t1 = CASES[case][2]
    ts = t1 * np.linspace(0, 1, 30) ** 3
    got, exact = solve(case, Switching(), saveat=ts), solve(case, Rodas5P(), rtol=1e-10, atol=1e-13, saveat=ts)
    np.testing.assert_allclose(got.ys, exact.ys, rtol=1e-2, atol=1e-6)  # the phase of a relaxation is sensitive


def oscillator(mu, solver, **options):
    model = sciml.models.VanDerPol(mu=mu)
    return sciml.solve(model, jnp.array([2.0, 0.0]), t0=0.0, t1=5.0, solver=solver, rtol=1e-7, atol=1e-9, **options)


@pytest.mark.x64
def test_gradients_of_members_with_methods_of_their_own():
    mus = jnp.array([0.5, 300.0, 2000.0])

    def end(mu, solver):
        return oscillator(mu, solver).ys[-1, 0]

    run = ft.partial(end, solver=Switching())
    alone = jax.jit(run)
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(run)))(mus)
    close(values, jnp.stack([alone(mu) for mu in mus]), rtol=1e-9)
    each = jax.jit(jax.vmap(jax.grad(lambda mu: end(mu, Rodas5P()))))(mus)
    close(slopes, each, rtol=1e-4)
    close(jax.jit(jax.grad(lambda mus: jax.vmap(run)(mus).sum()))(mus), each, rtol=1e-4)
    step = 1e-3
    close(each[1], (alone(300.0 + step) - alone(300.0 - step)) / (2 * step), rtol=1e-3)


@pytest.mark.x64
def test_large_systems_take_the_structure_of_their_jacobian():
    rates = jnp.logspace(0, 5, 30)
    sol = sciml.solve(lambda t, y, k: -k * y, jnp.ones(30), t0=0.0, t1=2.0, args=rates, solver=Switching())
    assert sol.stats.accepted < 600  # Tsit5 is held to 60,000 by stability
    np.testing.assert_allclose(sol.ys[-1], np.exp(-2 * rates), atol=1e-6)


@pytest.mark.x64
def test_a_complex_state():
    rate = jnp.array([-1e4 + 10j, -1.0 + 5j])
    sol = sciml.solve(lambda t, y, k: k * y, jnp.ones(2, complex), t0=0.0, t1=1.0, args=rate, solver=Switching())
    np.testing.assert_allclose(sol.ys[-1], np.exp(np.asarray(rate)), atol=1e-6)
    assert sol.stats.accepted < 500


def test_a_field_of_zero():
    sol = sciml.solve(lambda t, y, args: 0 * y, jnp.ones(2), t0=0.0, t1=1.0, solver=Switching())
    assert np.array_equal(sol.ys[-1], [1, 1])


def test_a_gradient_within_a_domain_repeats_the_method_of_each_step():
    """Of a solution that never comes near the edge of the domain, which is therefore the same without it."""

    def end(rate, **given):
        field = lambda t, y, rate: -rate * (y - 1 - jnp.cos(t))  # noqa: E731
        options = dict(t0=0.0, t1=1.0, args=rate, rtol=1e-4, atol=1e-6, solver=Switching()) | given
        return jnp.sum(sciml.solve(field, jnp.array([2.0]), **options).ys)

    within, without = (jax.jit(jax.grad(lambda r, g=g: end(r, **g)))(300.0) for g in (dict(positive=True), {}))
    np.testing.assert_allclose(within, without, rtol=1e-8)
