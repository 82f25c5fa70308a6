"""Failed members of a batch: their output is NaN, and nobody else notices."""

import functools as ft

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers.integrate._batching import pad_against_aliasing

pytestmark = pytest.mark.x64

LOOPS = {
    "scan": {"dt": 0.02},
    "fixed_saves": {"dt": 0.02, "saveat": [0.5, 1.0]},
    "adaptive": {"rtol": 1e-6, "atol": 1e-8},
    "adaptive_saves": {"rtol": 1e-6, "atol": 1e-8, "saveat": [0.5, 1.0]},
}
each_loop = pytest.mark.parametrize("loop", LOOPS)
GOOD = jnp.array([0.3, 0.6, 0.45, 0.2])
FAILURES = {"nan": jnp.nan, "blow up": 8.0, "infinite": jnp.inf}
each_failure = pytest.mark.parametrize("failure", FAILURES)


def solve(loop, rate, scale=1.0, y0=1.0):
    """y' = rate y^2, which is infinite at t = 1 / (rate y0)."""
    start = jnp.stack([y0 * jnp.ones(()), scale * jnp.ones(())])

    def field(t, y, args):
        return jnp.stack([args * y[0] ** 2 * scale, -y[1] * y[0]])

    return sciml.solve(field, start, t0=0.0, t1=1.0, args=rate, throw=False, solver=diffrax.Bosh3(), **LOOPS[loop])


def spoil(failure):
    return GOOD.at[2].set(FAILURES[failure])


OTHERS = np.array([0, 1, 3])


# compiled once for each loop
@ft.cache
def forward(loop):
    return jax.jit(jax.vmap(lambda rate: solve(loop, rate)))


@ft.cache
def gradients(loop):
    return jax.jit(jax.vmap(jax.grad(lambda rate: jnp.sum(solve(loop, rate).ys))))


@ft.cache
def masked_gradient(loop):
    """By a shared parameter and by each initial state, of a loss that leaves out failed members by their status."""

    def loss(scale, y0, rates, counts):
        sol = jax.vmap(lambda rate, y0: solve(loop, rate, scale, y0))(rates, y0)
        return jnp.sum(jnp.where((counts & (sol.status == 0))[:, None, None], sol.ys, 0.0))

    return jax.jit(jax.grad(loss, argnums=(0, 1)))


@each_loop
@each_failure
def test_others_keep_their_bits(loop, failure):
    good, bad = forward(loop)(GOOD), forward(loop)(spoil(failure))
    assert (np.asarray(bad.status) != 0).tolist() == [False, False, True, False]
    assert np.isnan(bad.ys[2, -1]).all() and float(bad.t_reached[2]) < 1.0
    good, bad = (eqx.tree_at(lambda sol: sol.stats.executed, sol, None) for sol in (good, bad))  # the others wait
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[OTHERS], b[OTHERS]), good, bad)


@each_loop
@each_failure
@pytest.mark.optimised
def test_gradients_of_others_are_kept_and_the_own_is_nan(loop, failure):
    good, bad = np.asarray(gradients(loop)(GOOD)), np.asarray(gradients(loop)(spoil(failure)))
    # the blow-up takes all of its 16384 steps, more than there are slots: some run again and may round differently
    np.testing.assert_allclose(good[OTHERS], bad[OTHERS], rtol=1e-14 if failure == "blow up" else 0)
    assert np.isfinite(good).all() and np.isnan(bad[2])


@each_loop
@each_failure
def test_masked_loss_has_the_gradient_of_the_others_alone(loop, failure):
    scale, y0, everyone = jnp.array(1.1), jnp.ones(4), jnp.ones(4, bool)
    found = masked_gradient(loop)(scale, y0, spoil(failure), everyone)
    expected = masked_gradient(loop)(scale, y0, GOOD, everyone.at[2].set(False))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)
    assert found[0] != 0 and found[1][2] == 0 and np.all(found[1][OTHERS] != 0)


@each_loop
def test_masked_gradient_of_a_failed_initial_state_is_zero(loop):
    y0 = jnp.array([1.0, 40.0, 0.5, 0.7])
    _, gradient = masked_gradient(loop)(jnp.array(1.1), y0, GOOD, jnp.ones(4, bool))
    assert np.isfinite(gradient).all() and gradient[1] == 0.0 and gradient[0] != 0.0


@pytest.mark.parametrize("loop", ["scan", "adaptive", "adaptive_saves"])
def test_a_single_failed_solve_has_a_nan_gradient(loop):
    gradient = jax.jit(jax.grad(lambda rate: jnp.sum(solve(loop, rate).ys)))(jnp.array(8.0))
    assert np.isnan(gradient)


def test_max_steps_of_one_member():
    rates = jnp.array([1.0, 1e4, 2.0])

    def end(rate):
        return sciml.solve(
            lambda t, y, args: -rate * y, jnp.ones(1), t0=0.0, t1=1.0, rtol=1e-6, max_steps=50, throw=False
        )

    sol = jax.vmap(end)(rates)
    # stability limits its steps
    assert sol.status.tolist() == [0, int(sciml.Status.stiff), 0]
    assert int(sol.stats.accepted[1] + sol.stats.rejected[1]) == 50 and 0 < sol.t_reached[1] < 1
    gradient = jax.vmap(jax.grad(lambda rate: jnp.sum(end(rate).ys)))(rates)
    assert np.isnan(gradient).tolist() == [False, True, False]


@pytest.mark.parametrize("loop", [x if x in ("scan", "adaptive") else x for x in LOOPS])
@pytest.mark.parametrize("last", [1.0, 8.0], ids=["good", "failed"])
def test_gradients_where_lanes_are_added(loop, last):
    """Over 256 numbers of eight bytes; the lanes that are added repeat the last member and count for nothing."""
    assert pad_against_aliasing(256, 8) > 256
    rates, scale = jnp.linspace(0.1, 0.5, 256).at[-1].multiply(last), jnp.array(1.1)

    def of(rates):
        return masked_gradient(loop)(scale, jnp.ones(rates.size), rates, jnp.ones(rates.size, bool))

    found, first, other = of(rates), of(rates[:-1]), of(rates[-1:])
    np.testing.assert_allclose(found[0], first[0] + other[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], np.concatenate([first[1], other[1]]), rtol=1e-12)
    assert (other[0] == 0) == (last == 8)


@pytest.mark.parametrize(
    "adjoint",
    [sciml.adjoints.Checkpointed(), sciml.adjoints.Reversible(), sciml.adjoints.Direct()],
    ids=lambda a: type(a).__name__,
)
def test_a_failure_under_grad_alone(adjoint):
    """Where the status is known, the error is that of a solve without a gradient."""

    def end(rate):
        return sciml.solve(lambda t, y, a: a * y**2, 1.0, t0=0.0, t1=2.0, dt=0.1, args=rate, adjoint=adjoint).ys[-1]

    with pytest.raises(sciml.SolveError, match="nonfinite"):
        jax.grad(end)(jnp.array(1.0))
