"""Steady states and their derivatives: against exact ones, in every mode of differentiation."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import sciml


def tanks(t, y, k):
    """Two tanks in a row; at rest their levels are 1/k0 and 1/k1."""
    return jnp.stack([1 - k[0] * y[0], k[0] * y[0] - k[1] * y[1]])


def by_time(k, **options):
    options = {"adjoint": sciml.Implicit(), "t1": 60.0} | options
    sol = sciml.solve(tanks, jnp.zeros(2, k.dtype), t0=0.0, args=k, throw=False, **options)
    return jnp.sum(sol.ys[-1])


def by_root(k, **options):
    return jnp.sum(sciml.steady_state(tanks, jnp.zeros(2, k.dtype), args=k, throw=False, **options).ys[-1])


each_way = pytest.mark.parametrize("total", [by_time, by_root])


def rates(dtype=None):
    return jnp.asarray([0.7, 1.9], dtype or jnp.result_type(float))


def rough(k):
    return 1e-4 if k.dtype == jnp.float64 else 5e-3


@each_way
def test_derivatives_are_those_of_the_implicit_function(total, dtype):
    k = rates(dtype)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(k), -1 / k**2, rtol=rough(k))
    np.testing.assert_allclose(jax.jit(jax.jacfwd(total))(k), -1 / k**2, rtol=rough(k))


@each_way
def test_second_derivatives_by_every_pair_of_modes(total):
    k = rates()
    expected = np.diag(2 / np.asarray(k) ** 3)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(jax.jit(outer(inner(total)))(k), expected, rtol=rough(k), atol=rough(k))


@each_way
def test_members(total):
    ks = rates()[None] * jnp.asarray([1.0, 1.5, 2.0])[:, None]
    np.testing.assert_allclose(jax.vmap(jax.grad(total))(ks), -1 / ks**2, rtol=rough(ks))
    whole = jax.grad(lambda ks: jnp.sum(jax.vmap(total)(ks)))(ks)
    np.testing.assert_allclose(whole, -1 / ks**2, rtol=rough(ks))


@pytest.mark.parametrize("options", [{"dt": 0.25}, {"solver": sciml.solvers.Rosenbrock23()}], ids=["fixed", "implicit"])
def test_whatever_the_way_there(options):
    k = rates()
    np.testing.assert_allclose(jax.grad(ft.partial(by_time, **options))(k), -1 / k**2, rtol=rough(k))


def test_the_start_does_not_matter():
    def total(y0):
        return jnp.sum(sciml.solve(tanks, y0, t0=0.0, t1=60.0, args=rates(), adjoint=sciml.Implicit()).ys)

    np.testing.assert_array_equal(jax.grad(total)(jnp.ones(2)), 0)


def test_what_is_not_at_rest_has_no_derivative():
    ends = jnp.asarray([60.0, 2.0])
    found = jax.vmap(lambda end: jax.grad(lambda k: by_time(k, t1=end))(rates()))(ends)
    np.testing.assert_allclose(found[0], -1 / rates() ** 2, rtol=rough(rates()))
    assert np.isnan(found[1]).all()
    assert np.isfinite(by_time(rates(), t1=2.0))


def test_states_of_any_structure():
    def model(t, y, k):
        return {"a": k[0] - y["a"] ** 2, "b": (y["a"] - k[1] * y["b"][0])[None]}

    def total(k):
        y = sciml.steady_state(model, {"a": jnp.ones(()), "b": jnp.ones(1)}, args=k, throw=False).ys
        return jnp.sum(y["a"]) + jnp.sum(y["b"])

    k = jnp.asarray([4.0, 2.0])  # a = sqrt(k0), b = a / k1
    np.testing.assert_allclose(jax.grad(total)(k), [0.25 * 1.5, -2 / 4], rtol=rough(k))


def test_a_state_of_hundreds():
    size = 300

    def chain(t, y, k):
        return 1 - k * y + 0.1 * (jnp.roll(y, 1) - y)

    def total(k):
        return jnp.mean(sciml.solve(chain, jnp.zeros(size), t0=0.0, t1=60.0, args=k, adjoint=sciml.Implicit()).ys)

    k = jnp.asarray(0.5)
    np.testing.assert_allclose(jax.grad(total)(k), -1 / k**2, rtol=rough(k))


@pytest.mark.x64
def test_on_many_devices():
    mesh = Mesh(np.array(jax.devices()), ("members",))
    ks = rates()[None] * jnp.linspace(1.0, 2.0, 8)[:, None]
    run = jax.shard_map(jax.vmap(by_time), mesh=mesh, in_specs=P("members"), out_specs=P("members"))
    np.testing.assert_allclose(jax.jit(jax.grad(lambda ks: jnp.sum(run(ks))))(ks), -1 / ks**2, rtol=rough(ks))


def test_a_root_that_is_not_found():
    def never(t, y, k):
        return 1 + y**2

    with pytest.raises(sciml.SolveError, match="`steady_state` failed with status `diverged`.*no solution near"):
        sciml.steady_state(never, jnp.ones(1))
    sol = sciml.steady_state(never, jnp.ones(1), throw=False)
    assert sol.status != 0 and np.isnan(sol.ys).all() and np.isnan(sol.t_reached)


def test_other_root_finders():
    found = by_root(rates(), solver=optx.Newton(rtol=1e-5, atol=1e-5))
    np.testing.assert_allclose(found, np.sum(1 / np.asarray(rates())), rtol=1e-4)


def test_bad_input():
    with pytest.raises(ValueError, match="saveat"):
        by_time(rates(), saveat=jnp.asarray([1.0, 2.0]))
    with pytest.raises(TypeError, match="y0"):
        sciml.steady_state(lambda t, y, args: 1j - y, jnp.zeros(1, complex))
    with pytest.raises(TypeError, match="solver"):
        by_root(rates(), solver=sciml.solvers.Rodas5P())


def test_where_a_rate_is_smallest_and_not_zero_is_no_steady_state():
    """There a least-squares solver would stop; `optimistix.root_find` also looks at the rate itself."""
    for solver in (None, optx.Dogleg(rtol=1e-3, atol=1e-3), optx.BFGS(rtol=1e-3, atol=1e-3)):
        none = sciml.steady_state(lambda t, y, args: 1.0 + y**2, jnp.full(1, 0.3), solver=solver, throw=False)
        assert none.status == sciml.Status.diverged and jnp.isnan(none.ys).all()
