"""`Reversible` where a loop finds the end: the accepted steps' lengths are recorded, and no states."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sciml
from tests.gradients import check_gradient
from tests.solvers.test_shard_map import mesh as mesh

from ...common import cheap, close, loss, members

REVERSIBLE = sciml.adjoints.Reversible()


def swing(t, y, args):
    return jnp.stack([y[1], -args * jnp.sin(y[0])])


@pytest.mark.x64
def test_the_record_grows_with_the_limit_on_steps_and_not_with_the_state():
    """By three numbers a step."""

    def temporary(max_steps, size):
        def fn(y0):
            options = {"rtol": 1e-3, "max_steps": max_steps, "adjoint": REVERSIBLE, "solver": diffrax.Bosh3()}
            return jnp.sum(sciml.solve(swing, y0, t0=0.0, t1=1.0, args=2.0, throw=False, **options).ys)

        return sciml.inspect.memory(jax.grad(fn), jnp.ones((2, size))).temporaries

    bytes_of_number = jnp.zeros(()).dtype.itemsize
    growth = temporary(5_000, 1_000) - temporary(1_000, 1_000)
    assert 0.9 < growth / (4_000 * 3 * bytes_of_number) < 2.2  # XLA may keep a copy
    assert temporary(5_000, 1_000) < 5_000 * 6 * bytes_of_number + 60 * 2_000 * bytes_of_number


@pytest.mark.x64
def test_tolerances_for_each_leaf():
    def fn(p):
        field = lambda t, y, args: {"a": -y["b"], "b": args * y["a"]}  # noqa: E731
        tolerances = {"a": jnp.array(1e-9), "b": jnp.array(1e-8)}
        options = {"rtol": tolerances, "atol": tolerances, "adjoint": REVERSIBLE, "saveat": jnp.array([0.5, 1.0])}
        ys = sciml.solve(field, {"a": p["a"], "b": p["b"]}, t0=0.0, t1=1.0, args=p["rate"], **options).ys
        return jnp.sum(ys["a"] ** 2) + jnp.sum(ys["b"])

    p = {"a": jnp.array([1.0, 0.4]), "b": jnp.array([0.3, -0.2]), "rate": jnp.array(1.7)}
    check_gradient(fn, p, step=1e-4, rtol=1e-5, atol=1e-5)


def test_a_failed_member_has_the_gradient_of_what_it_reached():
    """y' = y^2 leaves for infinity at 1 / y0."""

    def fn(y0, weights):
        field = lambda t, y, args: y**2  # noqa: E731
        saves = jnp.array([0.5, 0.7, 1.9])
        options = {"rtol": 1e-5, "atol": 1e-5, "max_steps": 200, "adjoint": REVERSIBLE, "solver": diffrax.Bosh3()}
        sol = sciml.solve(field, y0, t0=0.0, t1=2.0, saveat=saves, throw=False, **options)
        return jnp.sum(jnp.where(weights != 0, weights * sol.ys, 0.0)), sol

    y0, early, late = jnp.array([1.0, 0.2]), jnp.array([1.0, 1.0, 0.0]), jnp.array([1.0, 1.0, 1.0])
    gradient = jax.jit(jax.vmap(jax.grad(fn, has_aux=True), in_axes=(0, None)))
    found, sol = gradient(y0, early)
    assert int(sol.status[0]) != 0 and int(sol.status[1]) == 0
    exact = sum(1 / (1 - y0 * t) ** 2 for t in (0.5, 0.7))
    np.testing.assert_allclose(found, exact, rtol=1e-3)
    found, _ = gradient(y0, late)
    assert np.isnan(found[0]) and np.isfinite(found[1])


@pytest.mark.x64
def test_what_is_damped_away_is_nan_and_measured():
    options = {"t0": 0.0, "t1": 5.0, "rtol": 1e-5, "atol": 1e-5, "solver": diffrax.Bosh3()}

    def fn(y0, args):
        field = lambda t, y, args: -args * y  # noqa: E731
        return jnp.sum(sciml.solve(field, y0, args=args, adjoint=REVERSIBLE, **options, throw=False).ys)

    rates = jnp.array([0.3, 30.0])
    found = jax.jit(jax.vmap(jax.grad(fn), in_axes=(None, 0)))(jnp.ones(2), rates)
    np.testing.assert_allclose(found[0], jnp.exp(-1.5), rtol=1e-3)
    assert np.isnan(found[1]).all()
    errors = [sciml.solvers.reversal_error(lambda t, y, r: -r * y, jnp.ones(2), args=r, **options) for r in rates]
    assert errors[0] < 1e-3 and not errors[1] < 1e-2


@pytest.mark.x64
def test_inside_shard_map(mesh):  # noqa: F811
    fn = jax.vmap(jax.grad(ft.partial(loss, "adaptive_saves", REVERSIBLE, **cheap("adaptive_saves"))))
    batch = members(8)
    sharded = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    assert sciml.inspect.collectives(sharded, batch) == []
    close(sharded(batch), jax.jit(fn)(batch), rtol=1e-8, atol=1e-9)


@pytest.mark.x64
def test_second_derivatives():
    """Forward over reverse, to the tolerance."""

    def product(adjoint):
        fn = ft.partial(loss, "adaptive_saves", adjoint, rtol=1e-8, atol=1e-8, solver=diffrax.Bosh3())
        p = jax.tree.map(lambda x: x[0], members(1))
        v = jax.tree.map(jnp.ones_like, p)
        return jax.jit(lambda p: jax.jvp(jax.grad(fn), (p,), (v,))[1])(p)

    close(product(REVERSIBLE), product(sciml.adjoints.Checkpointed()), rtol=1e-4, atol=1e-3)


def test_the_schedule_does_not_matter():
    def ys(batching):
        options = {"t0": 0.0, "t1": 2.0, "rtol": 1e-4, "adjoint": REVERSIBLE, "batching": batching}
        return jax.jit(jax.vmap(lambda y0: sciml.solve(swing, y0, args=2.0, **options).ys))(jnp.ones((5, 2)))

    np.testing.assert_array_equal(ys("refill"), ys("lockstep"))
