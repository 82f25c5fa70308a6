"""Error control: controllers, tolerances, and what a solution reports of its steps."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

from ..common import inputs

pytestmark = pytest.mark.x64


def solve(p=None, **options):
    p = inputs() if p is None else p
    return sciml.solve(p.model, p.y0, **{"t0": 0.1, "t1": 4.0, "args": p.args, **options})


@pytest.fixture(scope="module")
def exact():
    return np.asarray(solve(dt=1e-3, solver=diffrax.Dopri8()).ys)


@pytest.mark.parametrize(
    "options",
    [
        {"pcoeff": 0.0, "icoeff": 1.0, "dcoeff": 0.0},
        {"pcoeff": 0.4, "icoeff": 0.3, "dcoeff": 0.0},
        {"pcoeff": 0.1, "icoeff": 0.3, "dcoeff": 0.1},
        {"safety": 0.5, "factormin": 0.5, "factormax": 1.5},
        {"dtmax": 0.05},
        {"dtmin": 1e-6, "force_dtmin": False},
        {"dtmin": 1e-6},  # forced steps run through diffrax
        {"error_order": 3.0},
    ],
    ids=str,
)
def test_controllers_meet_the_tolerance(options, exact):
    sol = solve(controller=diffrax.PIDController(rtol=1e-6, atol=1e-8, **options))
    np.testing.assert_allclose(sol.ys, exact, rtol=1e-5)
    if "dtmax" in options:
        assert int(sol.stats.accepted) >= (4.0 - 0.1) / 0.05
    if "factormax" in options:  # the safety factor is the fifth root of 1/32 and more: smaller steps than usual
        assert int(sol.stats.accepted) > int(solve(rtol=1e-6, atol=1e-8).stats.accepted)


def test_other_norms(exact):
    controller = diffrax.PIDController(rtol=1e-6, atol=1e-8, norm=lambda y: jnp.max(jnp.abs(y)))
    np.testing.assert_allclose(solve(controller=controller).ys, exact, rtol=1e-5)


def test_constant_step_size_is_fixed_steps():
    fixed, through = solve(dt=0.1), solve(dt=0.1, controller=diffrax.ConstantStepSize())
    np.testing.assert_array_equal(fixed.ys, through.ys)


def test_error_falls_with_the_tolerance(exact):
    errors = [np.max(np.abs(solve(rtol=tol, atol=tol).ys - exact)) for tol in (1e-4, 1e-6, 1e-8)]
    assert errors[0] > 5 * errors[1] > 25 * errors[2] and errors[0] < 1e-3


@pytest.mark.parametrize(
    "atol",
    [np.array([1e-9, 1e3]), [np.array([1e-9, 1e3])], [1e-9]],
    ids=["array", "pytree of arrays", "pytree of a scalar"],
)
def test_tolerances_per_component(atol):
    """A component with a loose tolerance costs no steps, however fast it moves."""

    def field(t, y, args):
        return jnp.stack([-y[0], 50 * jnp.cos(50 * t)])

    def count(atol):
        y0 = jnp.array([1.0, 0.0]) if not isinstance(atol, list) else [jnp.array([1.0, 0.0])]
        f = field if not isinstance(atol, list) else lambda t, y, args: [field(t, y[0], args)]
        sol = sciml.solve(f, y0, t0=0.0, t1=1.0, rtol=1e-7, atol=atol)
        np.testing.assert_allclose(jax.tree.leaves(sol.ys)[0][-1, 0], np.exp(-1.0), rtol=1e-6)
        return int(sol.stats.accepted)

    loose = not (isinstance(atol, list) and np.ndim(atol[0]) == 0)
    assert (count(atol) < 0.5 * count(1e-9)) == loose


def test_tolerances_may_be_traced_and_batched(exact):
    tolerances = jnp.array([1e-3, 1e-5, 1e-7])
    sol = jax.jit(jax.vmap(lambda tol: solve(rtol=tol, atol=tol)))(tolerances)
    errors = np.max(np.abs(np.asarray(sol.ys) - exact), axis=(1, 2))
    assert errors[0] > errors[1] > errors[2]
    single = [int(solve(rtol=float(tol), atol=float(tol)).stats.accepted) for tol in tolerances]
    assert sol.stats.accepted.tolist() == single


def test_first_step_may_be_given():
    given, chosen = solve(rtol=1e-6, dt=1e-5), solve(rtol=1e-6)
    np.testing.assert_allclose(given.ys, chosen.ys, rtol=1e-5)
    assert int(given.stats.accepted) > int(chosen.stats.accepted)
    large = solve(rtol=1e-6, dt=100.0)
    np.testing.assert_allclose(large.ys, chosen.ys, rtol=1e-5)
    assert int(large.stats.rejected) >= 1


def test_stats_count_evaluations():
    """The counts are those of a field that counts; first same as last saves one evaluation a step."""
    fixed = solve(dt=0.1).stats
    assert (int(fixed.accepted), int(fixed.rejected), int(fixed.evaluations)) == (39, 0, 39 * 6 + 1)
    heun = solve(dt=0.1, solver=diffrax.Heun()).stats
    assert int(heun.evaluations) == 39 * 2
    adaptive = solve(rtol=1e-6).stats
    attempts = int(adaptive.accepted + adaptive.rejected)
    assert int(adaptive.evaluations) == attempts * 6 + 3


def test_members_keep_their_own_steps():
    """A hard member must not change what an easy one does."""
    rates = jnp.array([0.1, 1.0, 30.0])

    def run(rate):
        return sciml.solve(lambda t, y, args: -rate * y, jnp.ones(1), t0=0.0, t1=1.0, rtol=1e-6, atol=1e-9)

    batch = jax.vmap(run)(rates)
    assert len(set(batch.stats.accepted.tolist())) == 3
    for i, rate in enumerate(rates):
        one = run(rate)
        assert int(one.stats.accepted) == int(batch.stats.accepted[i])
        assert int(one.stats.rejected) == int(batch.stats.rejected[i])
        np.testing.assert_allclose(one.ys, batch.ys[i], rtol=1e-12, atol=1e-15)
