"""`Forward` over lanes, where a step and all of its columns are one program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sciml
from sciml import verify
from sciml.solvers.integrate import _while_loop
from tests.solvers.test_shard_map import mesh as mesh

from ..common import close

FORWARD, CHECKPOINTED = sciml.adjoints.Forward(), sciml.adjoints.Checkpointed()
TIMES = jnp.linspace(0.0, 12.0, 7)
RATES = {"beta": jnp.array([0.5, 0.6, 0.8]), "start": jnp.array([0.01, 0.02, 0.03])}


def epidemic(rates, adjoint=FORWARD, times=TIMES, **options):
    """Shares that are healthy and ill."""
    field = lambda t, y, beta: jnp.stack([-beta * y[0] * y[1], beta * y[0] * y[1] - 0.25 * y[1]])  # noqa: E731
    y0 = jnp.stack([1 - rates["start"], rates["start"]])
    given = dict(rtol=1e-5, atol=1e-7, throw=False, max_steps=200) | options
    return sciml.solve(field, y0, t0=0.0, t1=12.0, saveat=times, args=rates["beta"], adjoint=adjoint, **given)


def loss(rates, *args, **options):
    ys = epidemic(rates, *args, **options).ys
    return jnp.sum(jnp.sin(ys[..., 0]) + ys[..., 1] ** 2)


@pytest.fixture
def chosen(monkeypatch):
    """Whether columns were computed within the steps, call by call."""
    found, choose = [], _while_loop.columns_over_lanes

    def spy(*args):
        solved = choose(*args)
        found.append(solved is not None)
        return solved

    monkeypatch.setattr(_while_loop, "columns_over_lanes", spy)
    return found


@pytest.mark.parametrize("times", [None, TIMES], ids=["end", "saves"])
def test_agrees_with_checkpointed(chosen, times):
    gradient = lambda adjoint: jax.jit(jax.vmap(jax.grad(lambda r: loss(r, adjoint, times))))(RATES)  # noqa: E731
    close(gradient(FORWARD), gradient(CHECKPOINTED), rtol=1e-4, atol=1e-5)
    assert chosen == [True]


@pytest.mark.x64
def test_agrees_to_rounding_where_members_have_times_of_their_own(chosen):
    times = jnp.linspace(0.0, jnp.array([5.0, 8.0, 11.0]), 4, axis=1)
    gradient = lambda adjoint: jax.jit(jax.vmap(jax.value_and_grad(lambda r, t: loss(r, adjoint, t))))(RATES, times)  # noqa: E731
    close(gradient(FORWARD), gradient(CHECKPOINTED), rtol=1e-11, atol=1e-12)
    assert chosen == [True]


@pytest.mark.x64
def test_of_what_members_share(chosen):
    def total(shared):
        options = dict(rtol=1e-10, atol=1e-12)  # differences see how step sizes change
        return jnp.sum(jax.vmap(lambda start: loss({"beta": shared, "start": start}, **options))(RATES["start"]))

    gradient = jax.jit(jax.grad(total))(jnp.array(0.7))
    verify.check_gradient(jax.jit(total), jnp.array(0.7), gradient=gradient, rtol=1e-5, atol=1e-6)
    assert any(chosen)


@pytest.mark.x64
def test_second_derivatives_hold_the_step_sizes(chosen):
    def of_rate(beta, adjoint):
        return loss({"beta": beta, "start": 0.01}, adjoint, None)

    def hessian(adjoint):
        return jax.jit(jax.vmap(jax.hessian(lambda beta: of_rate(beta, adjoint))))(RATES["beta"])

    close(hessian(FORWARD), hessian(CHECKPOINTED), rtol=1e-10, atol=1e-11)
    assert any(chosen)


@pytest.mark.x64
def test_a_failed_member_has_a_nan_gradient_of_its_own():
    fails = lambda rate: jnp.sum(epidemic(rate, max_steps=8).ys)  # noqa: E731
    rates = {"beta": jnp.array([0.01, 9.0]), "start": jnp.array([1e-4, 0.02])}
    statuses = jax.jit(jax.vmap(lambda r: epidemic(r, max_steps=8).status))(rates)
    assert statuses.tolist() == [0, int(sciml.Status.max_steps_reached)]
    found = jax.jit(jax.vmap(jax.grad(fails)))(rates)
    assert np.isnan(found["beta"]).tolist() == [False, True]


@pytest.mark.x64
def test_over_devices(chosen, mesh):  # noqa: F811
    rates = {"beta": jnp.linspace(0.4, 0.8, 8), "start": jnp.full(8, 0.01)}
    fn = jax.vmap(jax.grad(loss))
    sharded = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    assert sciml.inspect.collectives(sharded, rates) == []
    close(sharded(rates), jax.jit(fn)(rates), rtol=1e-9, atol=1e-10)
    assert all(chosen)


def test_a_long_program_is_left_to_forward_mode_of_the_loop(chosen):
    y0 = jnp.linspace(0.0, 1.0, 30)
    end = lambda rate: jnp.sum(  # noqa: E731
        sciml.solve(lambda t, y, args: -jnp.outer(rate, rate) @ y, y0, t0=0.0, t1=0.1, rtol=1e-2, adjoint=FORWARD).ys
    )
    jax.eval_shape(jax.vmap(jax.grad(end)), jnp.ones((2, 30)))
    assert chosen and not any(chosen)
