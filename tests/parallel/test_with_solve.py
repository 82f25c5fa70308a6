"""Ensembles and sweeps of `sciml.solve`."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import parallel

from .common import RHO, collectives, collectives_in, devices, same_bits

quiet = ft.partial(parallel.sweep, progress=False)


def lorenz(t, y, rho):
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - (8 / 3) * y[2]])


def end(rho, y0, t1=20.0):
    tolerance = {"rtol": 1e-4, "atol": 1e-4}
    return sciml.solve(lorenz, y0, t0=0.0, t1=t1, args=rho, max_steps=20_000, throw=False, **tolerance).ys[-1]


def fixed(rho, y0):
    return sciml.solve(lorenz, y0, t0=0.0, t1=20.0, dt=0.01, args=rho, throw=False).ys[-1]


Y0 = np.ones(3, np.float32)


@pytest.mark.parametrize("solve", [end, fixed])
def test_lorenz_has_the_same_bits_on_any_number_of_devices(solve):
    one = np.asarray(parallel.ensemble(solve, RHO, Y0, mesh=devices(1), block=8))
    assert one.shape == (101, 3) and np.isfinite(one).all()
    for count in (2, 3, 8):
        assert same_bits(one, parallel.ensemble(solve, RHO, Y0, mesh=devices(count), block=8)), count
    for count in (1, 2, 3):  # a compilation for each device; eight of them are in test_sweep.py
        assert same_bits(one, quiet(solve, RHO, Y0, mesh=devices(count), block=8).values), count


def short(rho, y0):
    return end(rho, y0, t1=0.5)


def each(rho, y0):
    """The gradient of one member, with respect to its own parameter and to what all share."""
    return jax.grad(lambda rho, y0: jnp.sum(short(rho, y0)), argnums=(0, 1))(rho, y0)


def test_devices_do_not_communicate():
    assert collectives(ft.partial(parallel.ensemble, short), RHO[:64], Y0) == []


def test_gradients_inside_a_member_are_its_own():
    run = jax.jit(ft.partial(parallel.ensemble, each)).lower(RHO[:16], Y0).compile()
    assert collectives_in(run.as_text()) == []
    expected = jax.jit(jax.vmap(each, in_axes=(0, None)))(RHO[:16], Y0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), run(RHO[:16], Y0), expected)


@pytest.mark.parametrize("block", [None, 4])
def test_gradient_of_what_all_members_share(block):
    def gradient(run):
        return jax.jit(jax.grad(lambda y0: jnp.sum(run(RHO[:13], y0) ** 2)))(Y0)

    expected = gradient(jax.vmap(short, in_axes=(0, None)))
    mesh = None if block is None else devices(2)  # two blocks on each, of which a gradient keeps one
    found = gradient(ft.partial(parallel.ensemble, short, block=block, mesh=mesh))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_sweep_tells_which_solutions_failed():
    def blow_up(start):  # y' = y^2 is infinite at t = 1 / start
        return sciml.solve(lambda t, y, args: y**2, start[None], t0=0.0, t1=1.0, max_steps=500, throw=False)

    starts = np.array([0.1, 0.5, 2.0, 0.3], np.float32)
    result = quiet(blow_up, starts)
    assert result.failed.tolist() == [2]
    np.testing.assert_allclose(result.values.ys[[0, 1, 3], -1, 0], 1 / (1 / starts[[0, 1, 3]] - 1), rtol=1e-3)
    assert result.values.ys.shape == (4, 1, 1) and np.isnan(result.member(2).ys).all()
    assert result.member(2).t_reached < 0.6
    kept = quiet(blow_up, starts, output=lambda sol: jnp.nan_to_num(sol.ys[-1]))
    assert kept.failed.tolist() == [2]
    good = quiet(blow_up, np.where(starts == 2, np.float32(0.2), starts))
    assert same_bits(good.values.ys[[0, 1, 3]], result.values.ys[[0, 1, 3]])
    with pytest.raises(sciml.SolveError, match="1 of 4 members failed"):
        quiet(blow_up, starts, on_fail="raise")
