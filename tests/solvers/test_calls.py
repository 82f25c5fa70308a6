"""Calls from Python that come again: decided once, and never for another call."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import _calls
from sciml.solvers._calls import Static

Y0 = jnp.array([1.0, 2.0])


def decay(t, y, rate):
    return -rate * y


class Decay(eqx.Module):
    rate: jax.Array | float

    def __call__(self, t, y, args):
        return -self.rate * y


@pytest.fixture(autouse=True)
def forgotten():
    _calls._CALLS.clear()


def solve(model=decay, y0=Y0, **options):
    return sciml.solve(model, y0, **dict(t0=0.0, t1=1.0, rtol=1e-4, atol=1e-6, args=jnp.asarray(1.0)) | options)


def times(options):
    """What is new in a call that is not the one before."""
    before = len(_calls._CALLS)
    sol = solve(**options)
    return len(_calls._CALLS) - before, sol


@pytest.mark.parametrize(
    "again",
    [
        dict(y0=2 * Y0),
        dict(args=jnp.asarray(0.3)),
        dict(args=0.3),
        dict(solver=diffrax.Dopri5()),
        dict(t1=2.0),
        dict(rtol=1e-3),
        dict(saveat=np.array([0.25, 1.0])),
        dict(adjoint=sciml.adjoints.Direct()),
        dict(model=Decay(jnp.asarray(0.7))),
        dict(model=Decay(0.7)),
    ],
    ids=str,
)
def test_a_call_is_what_it_would_be_alone(again):
    alone = solve(**again)
    _calls._CALLS.clear()
    solve()
    first, second = solve(**again), solve(**again)
    for sol in (first, second):
        jax.tree.map(np.testing.assert_array_equal, (sol.ts, sol.ys, sol.stats), (alone.ts, alone.ys, alone.stats))
        assert sol.solver == alone.solver


def test_arrays_count_by_shape_and_all_else_by_value():
    assert times({})[0] == 1
    for same in ({"y0": 3 * Y0}, {"args": jnp.asarray(5.0)}, {"solver": None}):
        assert times(same)[0] == 0
    alone = {"args": None, "model": lambda t, y, args: -y}
    for other in ({"y0": jnp.ones(3)}, {"t1": 3.0}, {"model": lambda t, y, rate: -2 * rate * y}, alone):
        assert times(other)[0] == 1
    assert times({"model": lambda t, y, rate: -rate * y})[0] == 0  # a function of the same code
    assert times({"saveat": np.array([0.5])})[0] == 0  # whose numbers may change


def test_saved_times_are_those_of_the_call():
    early, late = jnp.array([0.1, 0.2]), jnp.array([0.8, 0.9])
    for ts in (early, late, early):
        sol = solve(saveat=ts)
        np.testing.assert_array_equal(sol.ts, ts)
        np.testing.assert_allclose(sol.ys[:, 0], np.exp(-np.asarray(ts)), rtol=1e-3)


def test_stable_steps_are_looked_at_in_every_call():
    grid = sciml.spatial.Grid(16)
    u = jnp.sin(2 * jnp.pi * jnp.arange(16.0) / 16)

    def run(diffusivity):
        model = sciml.models.Diffusion(grid, sciml.spatial.Periodic(), diffusivity=diffusivity)
        return sciml.solve(model, u, t0=0.0, t1=0.01, dt=0.001, solver=diffrax.Euler())

    assert run(jnp.asarray(0.1)).status == 0
    with pytest.raises(ValueError, match="too long for .* to be stable"):
        run(jnp.asarray(10.0))


def test_traced_calls_remember_nothing():
    jax.jit(lambda y0: solve(y0=y0).ys)(Y0)
    assert not _calls._CALLS
    eager = solve().ys
    np.testing.assert_allclose(jax.jit(lambda: solve().ys)(), eager, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(lambda y0: solve(y0=y0).ys)(jnp.stack([Y0, 2 * Y0]))[0], eager, rtol=1e-5)


def test_failures_raise_in_a_warm_call():
    for _ in range(2):
        with pytest.raises(sciml.SolveError, match="max_steps_reached"):
            solve(max_steps=2)


def test_numbers_of_other_types_are_other_programs():
    keys = [Static(jax.tree.structure(0), (x,)) for x in (1, 1.0, True)]
    assert len({*keys}) == 3 and keys[0] == Static(jax.tree.structure(0), (1,))


def test_a_random_key_among_what_the_model_takes():
    """Which has no weak type, as arrays of numbers have."""

    def pushed(t, y, key):
        return -y + jax.random.uniform(key, y.shape, y.dtype)

    first, second = (solve(pushed, args=jax.random.key(0)).ys for _ in range(2))
    other = solve(pushed, args=jax.random.key(1)).ys
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
