"""Fences between stages: what they guard, that they change nothing, and that no stencil is computed again."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import sciml
from sciml import inspect
from sciml.solvers.terms._barrier import stage_barrier
from sciml.solvers.terms._field import reads_neighbours


def diffusion(t, u, args):
    return args * (jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u) + u * (1 - u)


def local(t, u, args):
    return args * u * (1 - u) * jnp.cos(t).astype(u.dtype)


@pytest.mark.parametrize(
    "field, size, expected", [(diffusion, 4096, True), (diffusion, 64, False), (local, 4096, False)]
)
def test_what_is_fenced(field, size, expected):
    assert reads_neighbours(jax.make_jaxpr(field)(0.0, jnp.ones(size), 0.2).jaxpr) == expected


def end(u, rate, **options):
    field = ft.partial(diffusion)  # a new object each time, so that nothing is taken from a cache
    return sciml.solve(field, u, t0=0.0, t1=1.0, args=rate, throw=False, **options).ys[-1]


ADAPTIVE = pytest.param({"rtol": 1e-4, "atol": 1e-4}, id="adaptive")


@pytest.mark.parametrize("options", [pytest.param({"dt": 0.1}, id="fixed"), ADAPTIVE])
def test_fences_change_nothing(options, monkeypatch):
    u = jnp.sin(jnp.linspace(0.0, 9.0, 2048))

    def gradient():
        loss = lambda u, rate: jnp.sum(end(u, rate, solver=diffrax.Heun(), **options) ** 2)  # noqa: E731
        vmapped = jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)))
        return jax.jit(vmapped)(jnp.stack([u, 0.5 * u]), jnp.array([0.2, 0.3]))

    with_barriers = gradient()
    monkeypatch.setattr("sciml.solvers.terms._field.reads_neighbours", lambda jaxpr: False)
    plain = gradient()
    eps = float(jnp.finfo(u.dtype).eps)
    jax.tree.map(ft.partial(np.testing.assert_allclose, rtol=1e3 * eps, atol=1e3 * eps), with_barriers, plain)


def test_derivatives_through_a_fence():
    x = jnp.arange(3.0)

    def fn(x):
        return jnp.sum(stage_barrier({"x": jnp.sin(x)}, x[0])["x"] ** 2)

    expected = jax.hessian(lambda x: jnp.sum(jnp.sin(x) ** 2))(x)
    np.testing.assert_allclose(jax.hessian(fn)(x), expected, rtol=1e-6, atol=1e-6)
    assert np.isnan(stage_barrier(x, jnp.array(jnp.nan))).all()


def test_a_stencil_is_not_repeated_in_every_stage():
    """XLA counts what it fuses as often as it computes it."""
    u = jax.ShapeDtypeStruct((4096,), jnp.float32)

    def solve(solver):
        return inspect.cost(ft.partial(end, rate=0.2, dt=0.1, solver=solver), u).flops

    # six evaluations a step and the sums between them; without fences more than 20 times as many
    assert solve(diffrax.Tsit5()) < 12 * solve(diffrax.Euler())


@pytest.mark.parametrize("options", [pytest.param({"dt": 0.5}, id="fixed"), ADAPTIVE])
def test_fences_on_several_devices(options):
    """States that differ by device and shared ones, shared times."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("members",))
    states = jnp.sin(jnp.linspace(0.0, 9.0, 4096)).reshape(2, 2048)
    fn = ft.partial(end, solver=diffrax.Heun(), **options)

    def loss(rates, states, run):
        return jnp.sum(run(lambda u, rate: jax.vmap(fn)(u, jnp.broadcast_to(rate, u.shape[:1])))(states, rates) ** 2)

    def on_devices(fn):
        return jax.shard_map(fn, mesh=mesh, in_specs=(P("members"), P()), out_specs=P("members"))

    found = jax.jit(jax.grad(ft.partial(loss, run=on_devices), argnums=(0, 1)))(jnp.array([0.2]), states)
    expected = jax.jit(jax.grad(ft.partial(loss, run=lambda fn: fn), argnums=(0, 1)))(jnp.array([0.2]), states)
    jax.tree.map(ft.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), found, expected)
