"""Derivatives through events by the continuous adjoints, against those that repeat the steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import sciml
from sciml import Event, Schedule
from sciml.adjoints import Backsolve, Checkpointed, Gauss, Interpolating
from tests.parallel.common import collectives_in

CONTINUOUS = [Gauss(), Interpolating(), Backsolve()]
IDS = [type(x).__name__ for x in CONTINUOUS]

pytestmark = pytest.mark.x64


def ball(t, y, args):
    return dict(x=y["v"], v=-9.81 * jnp.ones_like(y["v"]))


def bounces(height, restitution, adjoint, **options):
    def bounce(t, y, args):
        return dict(x=y["x"], v=-args * y["v"])

    start = dict(x=height, v=jnp.zeros_like(height))
    event = Event(lambda t, y, args: y["x"], bounce, direction=-1)
    options = dict(t0=0.0, t1=2.0, rtol=1e-9, atol=1e-11) | options
    return sciml.solve(ball, start, events=event, args=restitution, adjoint=adjoint, **options)


@pytest.mark.parametrize("adjoint", CONTINUOUS, ids=IDS)
def test_a_bouncing_ball_against_its_closed_form(adjoint):
    def last(height, restitution):
        return bounces(height, restitution, adjoint).events.times[2]

    def exact(height, restitution):
        return jnp.sqrt(2 * height / 9.81) * (1 + 2 * restitution + 2 * restitution**2)

    found = jax.jit(jax.grad(last, (0, 1)))(1.0, 0.8)
    np.testing.assert_allclose(found, jax.grad(exact, (0, 1))(1.0, 0.8), rtol=1e-7)


def everything(inputs, adjoint, **options):
    """A tank with doses at times of one's own and a valve; the loss depends on all that a solution has."""
    level, rate, dose, times, ts, t1 = inputs
    doses = Schedule(times, lambda t, y, args, value: y + value * jnp.array([1.0, 0.0]), dose)
    valve = Event(lambda t, y, args: y[0] - 1.5 * args, lambda t, y, args: y * jnp.array([0.5, 1.0]) + 0.1 * t, 1)

    def field(t, y, args):
        return jnp.stack([args + 0.2 * jnp.sin(t) - 0.3 * y[0], y[0] - y[1] * args])

    options = dict(rtol=1e-9, atol=1e-11) | options
    sol = sciml.solve(
        field, jnp.stack([level, 0.0 * level]), t0=0.0, t1=t1, args=rate, events=[doses, valve], saveat=ts,
        adjoint=adjoint, max_events=6, **options,
    )  # fmt: skip
    kept = jnp.arange(6, dtype=jnp.int32) < sol.events.count
    along = jnp.where(kept, sol.events.times, 0.0) @ jnp.arange(1.0, 7.0)
    states = jnp.where(kept[:, None], sol.events.states_before * 0.3 + sol.events.states_after, 0.0)
    # weights that differ from time to time
    saved = jnp.sum(jnp.cos(jnp.arange(1.0 * sol.ys.size)).reshape(sol.ys.shape) * sol.ys)
    return saved + along + jnp.sum(states[:, 0] * jnp.arange(6.0)) + jnp.sum(states[:, 1]), sol


def inputs():
    ts = jnp.array([0.0, 0.7, 1.1, 2.5, 4.0])
    return jnp.array(1.0), jnp.array(0.8), jnp.array([1.5, 1.0]), jnp.array([1.0, 2.4]), ts, jnp.array(4.0)


@pytest.mark.parametrize("adjoint", CONTINUOUS, ids=IDS)
def test_gradients_by_all_that_a_solution_depends_on(adjoint):
    def gradient(adjoint):
        (value, sol), found = jax.jit(jax.value_and_grad(lambda x: everything(x, adjoint), has_aux=True))(inputs())
        return value, sol, found

    (value, sol, found), (expected_value, expected_sol, expected) = gradient(adjoint), gradient(Checkpointed())
    assert value == expected_value and sol.events.count == expected_sol.events.count >= 3
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-6)


def test_members_have_events_of_their_own():
    def one(scale):
        level, *rest = inputs()
        return everything((level * scale, *rest), Gauss())[0]

    scales = jnp.array([0.1, 1.0, 2.0, 5.0])
    apart = [jax.jit(jax.grad(one))(s) for s in scales]
    within = jax.jit(jax.vmap(jax.grad(one)))(scales)
    around = jax.jit(jax.grad(lambda s: jax.vmap(one)(s).sum()))(scales)
    np.testing.assert_allclose(within, apart, rtol=1e-6)
    np.testing.assert_allclose(around, apart, rtol=1e-6)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_members_on_devices_of_their_own(kind):
    def one(height):
        sol = bounces(height, jnp.array(0.8), Gauss(), t1=1.5, max_events=4)
        return sol.ys["v"][-1] + sol.events.times[0]

    heights, devices = np.linspace(0.5, 2.0, 8), jax.devices()[:4]
    mesh = jax.make_mesh((4,), ("m",), devices=devices) if kind == "explicit" else Mesh(np.array(devices), ("m",))
    gradient = jax.jit(jax.grad(lambda h: jnp.sum(jax.vmap(one)(h))))
    sharded = jax.device_put(heights, NamedSharding(mesh, P("m")))
    compiled = gradient.lower(sharded).compile()
    found = compiled(sharded)
    np.testing.assert_allclose(found, gradient(heights), rtol=1e-9)
    assert found.sharding.spec[0] == "m"
    assert not collectives_in(compiled.as_text())


@pytest.mark.parametrize("saveat", [None, jnp.array([0.2, 1.5])], ids=["end", "saved"])
def test_a_solve_that_an_event_ends(saveat):
    def loss(height, adjoint):
        floor = Event(lambda t, y, args: y["x"])
        start = dict(x=height, v=jnp.zeros_like(height))
        sol = sciml.solve(ball, start, t0=0.0, t1=2.0, rtol=1e-9, events=floor, adjoint=adjoint, saveat=saveat)
        return sol.t_reached + sol.ts[-1] ** 2 + sol.ys["v"][0] + jnp.nan_to_num(sol.ys["v"][-1]), sol.status

    found, expected = (
        jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)(1.0, x) for x in (Gauss(), Checkpointed())
    )
    assert found[1] == sciml.Status.event
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-7)


def test_backwards_in_time_with_fixed_steps_and_a_boolean():
    def loss(start, adjoint):
        low = Event(lambda t, y, args: y < 1.6, lambda t, y, args: y + 1.0)
        doses = Schedule(jnp.array([1.5, 1.0]), lambda t, y, args: 1.5 * y)
        sol = sciml.solve(
            lambda t, y, args: 0.5 * y, start, t0=2.0, t1=0.0, dt=-1e-2, saveat=jnp.array([1.7, 0.4]),
            events=[low, doses], adjoint=adjoint,
        )  # fmt: skip
        return jnp.sum(sol.ys) + sol.events.states_after[0], sol.events.count

    (found, count), (expected, _) = (jax.grad(loss, has_aux=True)(jnp.array(1.8), x) for x in (Gauss(), Checkpointed()))
    assert count >= 3
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_more_events_than_are_kept_have_no_derivative():
    gradient = jax.grad(lambda h: bounces(h, 0.8, Gauss(), max_events=2).ys["v"][-1])(1.0)
    assert np.isnan(gradient)


def test_in_float32_with_a_stiff_method():
    how = dict(rtol=1e-4, atol=1e-6, solver=sciml.solvers.Rodas5P())

    def loss(height, adjoint):
        return bounces(height, jnp.float32(0.8), adjoint, **how).events.times[1]

    found = jax.jit(jax.grad(lambda h: loss(h, Gauss())))(jnp.float32(1.0))
    np.testing.assert_allclose(found, (1 + 1.6) * 0.5 * (2 / 9.81) ** 0.5, rtol=1e-3)
