"""`Forward`: columns alongside the solve, in both modes, and what they cost."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sciml
from sciml import verify
from tests.solvers.test_shard_map import mesh as mesh

from ..common import cheap, close, inputs, loss, members

FORWARD, CHECKPOINTED = sciml.adjoints.Forward(), sciml.adjoints.Checkpointed()

each_kind = pytest.mark.parametrize("kind", ["scan", "adaptive_saves"])


@pytest.mark.x64
@each_kind
def test_agrees_with_checkpointed_to_rounding(kind):
    """Both hold the step sizes."""
    gradient = lambda adjoint: jax.jit(jax.grad(ft.partial(loss, kind, adjoint, **cheap(kind))))(inputs())  # noqa: E731
    close(gradient(FORWARD), gradient(CHECKPOINTED), rtol=1e-11, atol=1e-12)


@pytest.mark.x64
@each_kind
def test_both_modes_are_one_matrix(kind):
    fn = ft.partial(loss, kind, FORWARD, **cheap(kind))
    close(jax.jit(jax.jacfwd(fn))(inputs()), jax.jit(jax.jacrev(fn))(inputs()), rtol=1e-12, atol=1e-13)


@pytest.mark.x64
def test_members_over_lanes():
    kind = "adaptive_saves"
    fn = ft.partial(loss, kind, FORWARD, **cheap(kind))
    batch = members()
    inside = jax.jit(jax.vmap(jax.grad(fn)))(batch)
    expected = jax.jit(jax.vmap(jax.grad(ft.partial(loss, kind, CHECKPOINTED, **cheap(kind)))))(batch)
    close(inside, expected, rtol=1e-10, atol=1e-11)
    close(jax.jit(jax.vmap(jax.jacfwd(fn)))(batch), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.x64
@pytest.mark.parametrize("solver", [sciml.solvers.Rosenbrock23(), sciml.solvers.Radau5()])
def test_stiff_solves(solver):
    """Also by a method whose stages are the root of an equation, which has a rule of derivatives of its own."""

    def fn(rate, adjoint):
        field = lambda t, y, args: jnp.stack([-rate * (y[0] - jnp.cos(t)), y[0] - y[1] ** 2])  # noqa: E731
        options = {"rtol": 1e-5, "atol": 1e-6, "solver": solver, "adjoint": adjoint}
        return jnp.sum(sciml.solve(field, jnp.ones(2), t0=0.0, t1=1.0, **options).ys ** 2)

    found, expected = (jax.jit(jax.grad(fn), static_argnums=1)(jnp.array(1e3), a) for a in (FORWARD, CHECKPOINTED))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.x64
def test_a_complex_state():
    def fn(p):
        y0 = {"wave": jax.lax.complex(p["re"], p["im"]), "angle": p["angle"]}
        field = lambda t, y, rate: {"wave": jax.lax.complex(0.0, rate) * y["wave"], "angle": -jnp.sin(y["angle"])}  # noqa: E731
        sol = sciml.solve(field, y0, t0=0.0, t1=1.0, dt=0.1, args=p["rate"], adjoint=FORWARD)
        return jnp.sum(jnp.real(sol.ys["wave"]) * jnp.sin(sol.ys["angle"])) + jnp.sum(jnp.abs(sol.ys["wave"]) ** 3)

    p = {"angle": jnp.array([0.3]), "re": jnp.array([1.0, 0.4]), "im": jnp.array([0.2, 0.5]), "rate": jnp.array(2.0)}
    gradient = jax.jit(jax.grad(fn))(p)
    verify.check_gradient(jax.jit(fn), p, gradient=gradient, rtol=1e-7, atol=1e-8)
    close(jax.jit(jax.jacfwd(fn))(p), gradient, rtol=1e-12, atol=1e-13)


def solve(rate, y0=1.0):
    """y' = rate y^2, which is infinite at t = 1 / (rate y0)."""
    options = {"rtol": 1e-4, "atol": 1e-4, "saveat": jnp.array([0.5, 1.0]), "max_steps": 64, "solver": diffrax.Bosh3()}
    field = lambda t, y, args: rate * y**2  # noqa: E731
    return sciml.solve(field, y0 * jnp.ones(1), t0=0.0, t1=1.0, adjoint=FORWARD, throw=False, **options)


def test_a_failed_member_has_a_nan_gradient_of_its_own():
    rates = jnp.array([0.3, 8.0, 0.5])
    found = jax.jit(jax.vmap(jax.grad(lambda rate: jnp.sum(solve(rate).ys))))(rates)
    assert np.isnan(found).tolist() == [False, True, False]
    alone = jax.jit(jax.vmap(jax.grad(lambda rate: jnp.sum(solve(rate).ys))))(rates[::2])
    np.testing.assert_allclose(found[::2], alone, rtol=1e-5)


def test_a_masked_loss_has_the_gradient_of_the_rest():
    def fn(factor, rates):
        sol = jax.vmap(lambda rate: solve(factor * rate))(rates)
        return jnp.sum(jnp.where((sol.status == 0)[:, None, None], sol.ys, 0.0))

    found = jax.jit(jax.grad(fn))(jnp.array(1.0), jnp.array([0.3, 8.0, 0.5]))
    expected = jax.jit(jax.grad(fn))(jnp.array(1.0), jnp.array([0.3, 0.5]))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_only_what_is_differentiated_has_columns():
    """A state of 2000 numbers, and one parameter."""

    def fn(rate, y0):
        return jnp.sum(sciml.solve(lambda t, y, args: -rate * y, y0, t0=0.0, t1=1.0, dt=0.1, adjoint=FORWARD).ys)

    rate, y0 = jnp.array(1.0), jnp.ones(2000)
    np.testing.assert_allclose(jax.jit(jax.grad(fn))(rate, y0), -2000 * np.exp(-1.0), rtol=1e-5)
    with pytest.raises(ValueError, match=r"here 2001, more than `limit`=1000.*sciml.adjoints.Checkpointed"):
        jax.grad(fn, argnums=(0, 1))(rate, y0)


def test_diffrax_cannot_run_it():
    with pytest.raises(TypeError, match=r"Forward\(\).*requires one of sciml's own loops"):
        sciml.solve(lambda t, y, args: -y, jnp.ones(1), t0=0.0, t1=1.0, solver=diffrax.ImplicitEuler(), adjoint=FORWARD)


@pytest.mark.x64
def test_inside_shard_map(mesh):  # noqa: F811
    kind = "adaptive_saves"
    fn = jax.vmap(jax.grad(ft.partial(loss, kind, FORWARD, **cheap(kind))))
    batch = members(8)
    sharded = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    assert sciml.inspect.collectives(sharded, batch) == []
    close(sharded(batch), jax.jit(fn)(batch), rtol=1e-7, atol=1e-8)
