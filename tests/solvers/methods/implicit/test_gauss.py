"""The implicit midpoint rule and the methods of Gauss: what they conserve, stiffness, failures, larger systems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from tests.families import GaussLegendre4, GaussLegendre6, ImplicitMidpoint

SOLVERS = [ImplicitMidpoint, GaussLegendre4, GaussLegendre6]
each = pytest.mark.parametrize("solver", SOLVERS)


def product(t, y, args):
    """Of the Hamiltonian (q^2 + 1) (p^2 + 1) / 2, which is no sum of a kinetic and a potential energy."""
    q, p = y
    return jnp.stack([(q**2 + 1) * p, -q * (p**2 + 1)])


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver, dt, most", [(ImplicitMidpoint, 0.1, 1e-2), (GaussLegendre4, 0.2, 3e-4), (GaussLegendre6, 0.25, 1e-5)]
)
def test_the_energy_of_a_thousand_periods_does_not_drift(solver, dt, most):
    """A period takes 4.77."""
    ts = np.arange(101) * round(48.0 / dt) * dt + 0.0
    sol = sciml.solve(product, jnp.array([0.9, 0.4]), t0=0.0, t1=ts[-1], dt=dt, saveat=ts, solver=solver())
    q, p = np.asarray(sol.ys).T
    energy = (q**2 + 1) * (p**2 + 1) / 2
    errors = np.abs(energy / energy[0] - 1)
    assert errors.max() < most and errors[-20:].max() < 3 * errors[:20].max()


@pytest.mark.x64
@each
def test_what_is_quadratic_stays(solver):
    """Energy and angular momentum of a rigid body, to rounding, in steps of a tenth of a turn."""
    moments = jnp.array([1.0, 2.0, 3.0])
    spin = jnp.array([0.3, 1.0, -0.5])
    run = lambda y, **o: sciml.solve(lambda t, y, args: jnp.cross(y, y / moments), y, dt=0.5, solver=solver(), **o)  # noqa: E731
    end = run(spin, t0=0.0, t1=100.0).ys[-1]
    for quantity in (lambda y: jnp.sum(y * y), lambda y: jnp.sum(y * y / moments)):
        np.testing.assert_allclose(quantity(end), quantity(spin), rtol=2e-13)
    back = sciml.solve(lambda t, y, args: jnp.cross(y, y / moments), end, t0=100.0, t1=0.0, dt=-0.5, solver=solver())
    np.testing.assert_allclose(back.ys[-1], spin, atol=1e-11)


@each
def test_stiff_components_do_not_grow(solver, dtype):
    rates = jnp.array([1.0, 1e3, 1e6], dtype)
    sol = sciml.solve(lambda t, y, args: -rates * y, jnp.ones(3, dtype), t0=0.0, t1=1.0, dt=0.1, solver=solver())
    assert sol.ys.dtype == dtype and np.all(np.abs(sol.ys[-1]) <= 1)
    np.testing.assert_allclose(sol.ys[-1, 0], np.exp(-1.0), rtol=1e-3 if solver is ImplicitMidpoint else 1e-5)


@pytest.mark.x64
@each
def test_a_chain_of_many_unknowns_is_solved_as_a_band(solver):
    """A field of cells with neighbours, where the systems are banded, against small steps of another method."""

    def heat(t, u, args):
        wide = jnp.pad(u, 1)
        return args * (wide[2:] - 2 * u + wide[:-2]) + jnp.sin(t) * u * (1 - u)

    u0 = jnp.sin(jnp.linspace(0.0, 3.0, 40))
    run = lambda rate, **options: sciml.solve(heat, u0, t0=0.0, t1=1.0, args=rate, **options).ys[-1]  # noqa: E731
    expected = run(20.0, rtol=1e-10, atol=1e-10)
    error = np.max(np.abs(run(20.0, dt=1 / 16, solver=solver()) - expected))
    assert error < {ImplicitMidpoint: 3e-3, GaussLegendre4: 3e-4, GaussLegendre6: 1e-4}[solver]


def test_an_iteration_that_does_not_converge_is_a_status():
    """Steps so long that the equations of a step have no solution."""

    def run(rate):
        options = dict(t0=0.0, t1=0.9, args=rate, dt=0.3, solver=ImplicitMidpoint(), throw=False)
        return sciml.solve(lambda t, y, k: k * y**2, jnp.ones(1), **options).status

    assert jax.vmap(run)(jnp.array([0.5, 3.0])).tolist() == [sciml.Status.successful, sciml.Status.nonfinite]


@pytest.mark.x64
def test_second_derivatives():
    def end(rate):
        options = dict(t0=0.0, t1=0.6, dt=0.2, args=rate, solver=ImplicitMidpoint())
        return jnp.sum(sciml.solve(lambda t, y, k: k * jnp.cos(y), jnp.array([0.3]), **options).ys ** 2)

    slope, rate, step = jax.jit(jax.grad(end)), jnp.array(0.7), 1e-5
    expected = (slope(rate + step) - slope(rate - step)) / (2 * step)
    np.testing.assert_allclose(jax.hessian(end)(rate), expected, rtol=1e-7)
