"""Within `jax.shard_map` the first number that is not finite is found with its device."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from sciml import adjoints, inspect


def mesh(kind=AxisType.Auto, **sizes):
    sizes = sizes or {"x": 4}
    devices = jax.devices()[: int(np.prod(list(sizes.values())))]
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(kind,) * len(sizes), devices=devices)


def over_x(fn, **options):
    return jax.shard_map(fn, mesh=mesh(), in_specs=P("x"), out_specs=P("x"), **options)


def with_neighbours(u):
    """Six steps of what falls, with something from the left; from below zero, NaN."""

    def step(u, _):
        left = jax.lax.ppermute(u[-1:], "x", [(i, (i + 1) % 4) for i in range(4)])
        u = u - np.float32(0.9) * jnp.sqrt(u) + np.float32(0.01) * left
        return u, jax.lax.psum(u.sum(), "x")

    return jax.lax.scan(step, u, length=6)[0]


ROW = jnp.array([9, 9, 9, 9, 9, 0.3, 9, 9], jnp.float32)


@pytest.mark.parametrize("checked", [True, False])
def test_a_scan_that_asks_neighbours(checked):
    """NaN spreads to all devices; it is made on the third, in its second step."""
    found = inspect.first_nan(over_x(with_neighbours, check_vma=checked), ROW)
    assert (found.device, found.step, found.operation, found.member) == ({"x": 2}, 1, "sqrt", None)
    assert "jnp.sqrt(u)" in found.where and "step 1, device x = 2" in str(found)
    assert np.isclose(float(found.operands), 0.3 - 0.9 * 0.3**0.5 + 0.01 * 9, rtol=1e-4)


def test_loops_of_different_lengths_with_keys():
    """Each device has a loop of its own; those that end early see nothing that is not finite."""

    def draws(key, u):
        last = 3 * jax.lax.axis_index("x")

        def step(carry):
            key, u, number = carry
            key, use = jax.random.split(key)
            return key, jnp.sqrt(u - 2 - jax.random.uniform(use, u.shape, u.dtype)), number + 1

        begin = (jax.lax.pcast(key, "x", to="varying"), u, 0 * last)
        return jax.lax.while_loop(lambda carry: carry[2] < last, step, begin)[1]

    fn = jax.shard_map(draws, mesh=mesh(), in_specs=(P(), P("x")), out_specs=P("x"))
    u = jnp.array([1, 1e12, 40, 1e12], jnp.float32)  # the first takes no step
    bad = ~np.isfinite(np.asarray(fn(jax.random.key(0), u)))
    np.testing.assert_array_equal(bad, [False, False, True, True])
    found = inspect.first_nan(fn, jax.random.key(0), u)
    assert (found.device, found.step, found.operation) == ({"x": 2}, 2, "sqrt") and -2 < float(found.operands) < 0


def test_devices_that_choose_differently():
    def branch(u):
        return jax.lax.cond(jax.lax.axis_index("x") > 1, lambda u: jnp.sqrt(u - 5), lambda u: u, u)

    found = inspect.first_nan(over_x(branch), ROW)
    assert (found.device, found.entry) == ({"x": 2}, (5,)) and "jnp.sqrt(u - 5)" in found.where


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_two_axes(kind):
    both = mesh(kind, x=2, y=2)

    def centred(u):
        return jnp.log(u - jax.lax.pmean(u, "y") + np.float32(2.5))

    u = jax.device_put(jnp.array([[1, 2, 3, 4], [1, 2, 2, 9]], jnp.float32), NamedSharding(both, P("x", "y")))
    found = inspect.first_nan(jax.shard_map(centred, mesh=both, in_specs=P("x", "y"), out_specs=P("x", "y")), u)
    assert (found.device, found.entry, found.operands) == ({"x": 1, "y": 0}, (1, 1), "-1")


def corner(t, y, args):
    """Minus one but for rounding; the derivative of the square root is infinite at a half, times zero."""
    return args + 1e-30 * jnp.sqrt((y - 0.5) ** 2)


def at_end(y0, args):
    how = dict(t0=0.0, t1=1.0, dt=0.125, args=args, solver=diffrax.Euler(), adjoint=adjoints.Checkpointed(levels=2))
    return sciml.solve(corner, y0, **how).ys[-1]


def test_a_gradient_of_a_solve_on_each_device():
    """From 1 with slope -1 the state is a half at the start of step 4, exactly."""

    def loss(y0, args):
        def total(y0, args):
            return jax.lax.psum(jnp.sum(at_end(y0, args)), "x")

        return jax.shard_map(total, mesh=mesh(), in_specs=(P("x"), P()), out_specs=P())(y0, args)

    found = inspect.first_nan(loss, jnp.array([0.9, 0.8, 1.0, 0.7], jnp.float32), jnp.float32(-1))
    assert (found.backward, found.step, found.device) == (True, 4, {"x": 2})
    assert found.leaf == "the gradient with respect to argument 0" and "jnp.sqrt((y - 0.5) ** 2)" in found.where


def test_members_on_devices():
    y0 = jnp.array([9, 9, 9, 8, 1, 9, 9, 9], jnp.float32)

    def falls(t, y, args):
        return -jnp.sqrt(y)

    def end(y0):
        return sciml.solve(falls, y0, t0=0.0, t1=4.0, dt=0.5, solver=diffrax.Euler(), throw=False).ys[-1]

    found = inspect.first_nan(over_x(jax.vmap(end)), y0)
    assert (found.member, found.entry, found.operation, found.device) == (4, (4,), "sqrt", None)


def test_finite_is_nothing():
    assert inspect.first_nan(lambda u: jnp.sum(over_x(with_neighbours)(u)), jnp.full(8, 1e4, jnp.float32)) is None
