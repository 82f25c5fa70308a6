"""What happens when a condition changes its sign: times, states, order, derivatives."""

import functools
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Event, Status
from sciml._jax.programs import equations
from sciml.adjoints import Checkpointed, Direct, Forward

from ..common import close

Y0 = np.array([1.0, 0.0])
FINE: Any = dict(rtol=1e-9, atol=1e-9)
LOW = Event(lambda t, y, args: y[0] - 18.0, lambda t, y, args: y.at[1].set(1.0), direction=-1)
HIGH = Event(lambda t, y, args: y[0] - 22.0, lambda t, y, args: y.at[1].set(0.0), direction=1)
METHODS = [
    diffrax.Bosh3(),
    sciml.solvers.Rodas5P(),
    sciml.solvers.SSPRK43(),
    sciml.solvers.Switching(),
]


def rotation(t, y, args):
    return jnp.stack([-y[1], y[0]])


def decay(t, y, args):
    return -y


def ball(height, restitution, *, t1=8.0, **options):
    bounce = Event(lambda t, y, args: y[0], lambda t, y, args: jnp.stack([0 * y[0], -restitution * y[1]]), direction=-1)
    height = jnp.asarray(height)
    options = dict(solver=diffrax.Bosh3()) | options  # exact for a parabola, and small
    y0, field = jnp.stack([height, 0 * height]), lambda t, y, args: jnp.stack([y[1], -9.81])
    return sciml.solve(field, y0, t0=0.0, t1=t1, events=bounce, **options)


def bounces(height, restitution, count):
    first, number = jnp.sqrt(2 * height / 9.81), jnp.arange(count, dtype=float)
    return first + 2 * first * jnp.cumsum(jnp.where(number > 0, restitution**number, 0.0))


@pytest.mark.x64
def test_twenty_bounces():
    sol = ball(1.0, 0.9, max_events=20)
    np.testing.assert_allclose(sol.events.times, bounces(1.0, 0.9, 20), atol=1e-10)
    np.testing.assert_allclose(sol.events.states_after[:, 1], -0.9 * sol.events.states_before[:, 1], rtol=1e-12)
    assert sol.events.count > 20 and sol.status == Status.successful
    assert np.all(np.asarray(sol.events.which) == 0)


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", [Checkpointed(), Forward(), Direct()], ids=lambda a: type(a).__name__)
def test_gradient_of_the_last_bounce(adjoint):
    derivative = jax.jacfwd if isinstance(adjoint, Direct) else jax.grad
    found = jax.jit(derivative(lambda *p: ball(*p, adjoint=adjoint, max_events=20).events.times[19], (0, 1)))(1.0, 0.9)
    exact = jax.grad(lambda *p: bounces(*p, 20)[19], (0, 1))(1.0, 0.9)
    np.testing.assert_allclose(found, exact, rtol=1e-8)


@pytest.mark.x64
def test_members():
    heights, restitutions = jnp.linspace(0.5, 2.0, 300), jnp.linspace(0.8, 0.95, 300)
    sol = jax.jit(jax.vmap(lambda *p: ball(*p, t1=2.0, max_events=4)))(heights, restitutions)
    exact = jax.vmap(lambda *p: bounces(*p, 4))(heights, restitutions)
    times = np.asarray(sol.events.times)
    np.testing.assert_allclose(np.where(np.isnan(times), exact, times), exact, atol=1e-10)
    np.testing.assert_array_equal(np.isnan(times), np.asarray(exact) > 2.0)
    count = np.array([np.sum(np.asarray(bounces(*p, 30)) <= 2.0) for p in zip(heights, restitutions)])
    np.testing.assert_array_equal(sol.events.count, count)


GATHERED = np.linspace(0.5, 2.0, 1200)[np.random.default_rng(0).permutation(1200)]
"""Heights of so many balls that their events are found and recorded apart from their steps."""


def gathered(heights):
    return jax.vmap(lambda height: ball(height, 0.9, t1=2.0, max_events=3))(heights)


@pytest.mark.x64
def test_gathered_members():
    sol = jax.jit(gathered)(jnp.asarray(GATHERED))
    exact = np.asarray(jax.vmap(lambda height: bounces(height, 0.9, 3))(jnp.asarray(GATHERED)))
    there = exact <= 2.0
    np.testing.assert_array_equal(~np.isnan(sol.events.times), there)
    np.testing.assert_allclose(np.asarray(sol.events.times)[there], exact[there], atol=1e-10)
    np.testing.assert_array_equal(sol.events.which, np.where(there, 0, -1))
    alone = ball(GATHERED[0], 0.9, t1=2.0, max_events=3)
    np.testing.assert_allclose(sol.ys[0], alone.ys, rtol=1e-9)
    assert sol.events.count[0] == alone.events.count


@pytest.mark.x64
def test_ten_thousand_balls():
    heights = np.linspace(0.5, 2.0, 10_000)[np.random.default_rng(1).permutation(10_000)]
    sol = jax.jit(jax.vmap(lambda height: ball(height, 0.9, t1=5.0, max_events=8)))(heights)
    exact = np.asarray(jax.vmap(lambda height: bounces(height, 0.9, 8))(jnp.asarray(heights)))
    np.testing.assert_array_equal(~np.isnan(sol.events.times), exact <= 5.0)
    np.testing.assert_allclose(np.asarray(sol.events.times)[exact <= 5.0], exact[exact <= 5.0], atol=1e-10)
    assert np.all(sol.status == Status.successful)


@pytest.mark.x64
def test_gradient_of_gathered_members():
    def total(heights):
        times = gathered(heights).events.times
        return jnp.sum(jnp.where(jnp.isnan(times), 0.0, times))

    slopes = jax.jit(jax.grad(total))(jnp.asarray(GATHERED))
    exact = np.asarray(jax.vmap(lambda height: bounces(height, 0.9, 3))(jnp.asarray(GATHERED)))
    np.testing.assert_allclose(slopes, np.where(exact <= 2.0, exact, 0.0).sum(1) / (2 * GATHERED), rtol=1e-7)


@pytest.mark.x64
@pytest.mark.parametrize("solver", METHODS, ids=lambda s: type(s).__name__)
def test_thermostat(solver):
    """Two events in turn, by the methods of every kind: the period, and its derivative by the power."""

    def period(power, adjoint):
        def field(t, y, args):
            return jnp.stack([power * y[1] - (y[0] - 10.0), 0 * y[1]])

        sol = sciml.solve(
            field,
            jnp.array([20.0, 1.0]),
            t0=0.0,
            t1=2.5,
            events=[LOW, HIGH],
            solver=solver,
            adjoint=adjoint,
            rtol=1e-6,
            atol=1e-6,
        )
        return sol.events.times[2] - sol.events.times[0]

    def exact(power):
        return jnp.log(12 / 8) + jnp.log((power - 8) / (power - 12))

    for adjoint in (Checkpointed(), *[Forward()] * isinstance(solver, diffrax.Bosh3)):
        value, slope = jax.jit(jax.value_and_grad(functools.partial(period, adjoint=adjoint)))(20.0)
        close(value, exact(20.0), 1e-5)
        close(slope, jax.grad(exact)(20.0), 2e-5)


@pytest.mark.x64
@pytest.mark.parametrize("solver, tolerance", [(diffrax.Heun(), 1e-3), (diffrax.Tsit5(), 1e-9)])
def test_fixed_steps(solver, tolerance):
    """Steps go on from the event, with their length."""
    sol = sciml.solve(decay, Y0, t0=0.0, t1=2.0, dt=0.05, solver=solver, events=Event(lambda t, y, args: y[0] - 0.5))
    assert abs(sol.t_reached - np.log(2)) < tolerance
    again = Event(lambda t, y, args: y[0] - 0.5, lambda t, y, args: 2 * y)
    sol = sciml.solve(decay, Y0, t0=0.0, t1=2.0, dt=0.05, solver=solver, events=again)
    np.testing.assert_allclose(sol.events.times[:2], np.log(2) * np.array([1, 2]), atol=tolerance)
    assert abs(sol.ys[-1, 0] - 4 * np.exp(-2.0)) < tolerance


def test_a_method_without_interpolation():
    class Midpoint(sciml.solvers.AbstractStepper):
        order = 2
        evaluations = 2
        has_error = False

        def step(self, field, t, h, y, memory):
            half = y + h / 2 * field(t, y)
            return sciml.solvers.Step(y + h * field(t + h / 2, half))

    event = Event(lambda t, y, args: y[0] - 0.5, lambda t, y, args: y + 1)
    ts = np.array([0.5, 1.0])
    sol = sciml.solve(decay, Y0, t0=0.0, t1=1.0, dt=0.01, solver=Midpoint(), events=event, saveat=ts)
    np.testing.assert_allclose(sol.ys[:, 0], [np.exp(-0.5), 3 * np.exp(-1.0)], rtol=1e-4)


@pytest.mark.x64
def test_an_event_that_ends_the_solve():
    ts = np.linspace(0.0, 2.0, 9)
    half = Event(lambda t, y, args: y[0] - 0.5)
    sol = sciml.solve(decay, Y0, t0=0.0, t1=2.0, events=half, saveat=ts, **FINE)
    assert sol.status == Status.event and abs(sol.t_reached - np.log(2)) < 1e-9
    np.testing.assert_array_equal(np.isnan(sol.ys[:, 0]), ts > np.log(2))
    end = sciml.solve(decay, Y0, t0=0.0, t1=2.0, events=half, **FINE)
    assert abs(end.ts[0] - np.log(2)) < 1e-9 and abs(end.ys[0, 0] - 0.5) < 1e-12
    end.raise_if_failed()


@pytest.mark.x64
@pytest.mark.parametrize("event", ["boolean", "diffrax", "several of diffrax"])
def test_other_conditions(event):
    given = {
        "boolean": Event(lambda t, y, args: y[0] < 0.5),
        "diffrax": diffrax.Event(lambda t, y, args, **rest: y[0] - 0.5, direction=False),
        "several of diffrax": diffrax.Event(
            [lambda t, y, args, **rest: y[0] - 0.3, lambda t, y, *rest, **more: y[0] < 0.5]
        ),
    }[event]
    sol = sciml.solve(decay, Y0, t0=0.0, t1=2.0, events=given, **FINE)
    assert abs(sol.t_reached - np.log(2)) < 1e-8
    assert sol.events.which[0] == int(event == "several of diffrax")


@pytest.mark.x64
@pytest.mark.parametrize("direction, first", [(1, 2.0), (-1, 1.0), (0, 1.0)])
@pytest.mark.parametrize("t1", [7.0, -7.0])
def test_directions(direction, first, t1):
    """A condition that is zero at the start is no event there; a direction is that of time, also backwards."""
    sign = 1 if t1 > 0 else -1
    event = Event(lambda t, y, args: sign * y[1], lambda t, y, args: y, direction)
    sol = sciml.solve(rotation, Y0, t0=0.0, t1=t1, events=event, **FINE)
    assert abs(sol.events.times[0] - sign * first * np.pi) < 1e-7
    assert sol.events.count == (1 if direction == 1 else 1 + (direction == 0))


@pytest.mark.x64
def test_several_at_once():
    """In the order in which they are given where they are at one time, else in that of time, also within a step."""
    twice = Event(lambda t, y, args: y[0], lambda t, y, args: 2 * y)
    then = Event(lambda t, y, args: 2 * y[0], lambda t, y, args: y + 1.0)
    sol = sciml.solve(rotation, Y0, t0=0.0, t1=1.8, events=[twice, then], **FINE)
    np.testing.assert_array_equal(sol.events.which[:3], [0, 1, -1])
    np.testing.assert_allclose(sol.events.times[:2], np.pi / 2, atol=1e-8)
    np.testing.assert_allclose(sol.events.states_after[:2], [[0.0, 2.0], [1.0, 3.0]], atol=1e-6)

    def ramp(t, y, args):
        return jnp.ones_like(y)

    marks = [Event(lambda t, y, args, c=c: y - c, lambda t, y, args: y) for c in (0.30001, 0.3, 0.31)]
    sol = sciml.solve(ramp, jnp.array(0.0), t0=0.0, t1=1.0, dt0=1.0, events=marks)
    np.testing.assert_array_equal(sol.events.which[:4], [1, 0, 2, -1])
    np.testing.assert_allclose(sol.events.times[:3], [0.3, 0.30001, 0.31], atol=1e-13)


@pytest.mark.x64
def test_what_is_touched_and_what_is_just_passed():
    touched = Event(lambda t, y, args: 1.0 - y[0], lambda t, y, args: y)
    assert sciml.solve(rotation, Y0, t0=0.1, t1=10.0, events=touched, **FINE).events.count == 0
    passed = Event(lambda t, y, args: 0.9999 - y[0], lambda t, y, args: y)
    sol = sciml.solve(rotation, Y0, t0=0.0, t1=10.0, events=passed, **FINE)
    angle = np.arccos(0.9999)
    np.testing.assert_allclose(sol.events.times[:3], [angle, 2 * np.pi - angle, 2 * np.pi + angle], atol=1e-6)


@pytest.mark.x64
def test_a_condition_faster_than_the_steps():
    event = Event(lambda t, y, args: jnp.sin(np.pi * t), lambda t, y, args: y)
    sol = sciml.solve(lambda t, y, args: jnp.ones_like(y), jnp.array(0.0), t0=0.0, t1=5.5, events=event, max_events=6)
    np.testing.assert_allclose(sol.events.times[:5], np.arange(1, 6), atol=1e-12)
    assert sol.events.count == 5


@pytest.mark.x64
def test_events_that_crowd():
    sol = ball(0.5, 0.5, throw=False)
    assert sol.status == Status.crowded_events
    assert abs(sol.t_reached - bounces(0.5, 0.5, 200)[-1]) < 1e-6
    with pytest.raises(sciml.SolveError, match="comes to rest"):
        ball(0.5, 0.5)


@pytest.mark.x64
@pytest.mark.parametrize("how", ["end", "saved", "record"])
def test_gradients_against_differences(how):
    """Of the end state, of states saved around bounces, also at the end itself, and of what is recorded."""
    ts = None if how == "end" else np.array([0.3, 1.0, 1.5, 2.2])

    def loss(height, restitution, adjoint=None):
        sol = ball(height, restitution, t1=2.2, saveat=ts, adjoint=adjoint)
        if how == "record":
            return jnp.sum(jnp.cos(3 * sol.ys[:, 0])) + 2 * sol.events.times[1] + jnp.sum(sol.events.states_before[2])
        return jnp.sum(jnp.cos(3 * sol.ys[:, 0]))

    p, e = (1.0, 0.9), 1e-6
    both = jax.jit(jax.value_and_grad(functools.partial(loss, adjoint=Checkpointed()), (0, 1)))
    expected = [(both(p[0] + e, p[1])[0] - both(p[0] - e, p[1])[0]) / (2 * e)]
    expected += [(both(p[0], p[1] + e)[0] - both(p[0], p[1] - e)[0]) / (2 * e)]
    np.testing.assert_allclose(both(*p)[1], expected, rtol=1e-5)
    if how == "saved":
        found = jax.jit(jax.grad(functools.partial(loss, adjoint=Forward()), (0, 1)))(*p)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    if how == "record":
        found = jax.jit(jax.jacfwd(functools.partial(loss, adjoint=Direct()), (0, 1)))(*p)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.x64
def test_gradients_of_members():
    ts = np.array([0.3, 1.0, 1.5, 2.2])

    def loss(*p):
        return jnp.sum(jnp.cos(3 * ball(*p, t1=2.2, saveat=ts).ys[:, 0]))

    p = jnp.linspace(0.9, 1.2, 5), jnp.linspace(0.85, 0.95, 5)
    alone = jax.jit(jax.grad(loss, (0, 1)))
    each = np.array([alone(*q) for q in zip(*p)]).T
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(loss, (0, 1))))(*p), each, rtol=1e-9)
    found = jax.jit(jax.grad(lambda *p: jnp.sum(jax.vmap(loss)(*p)), (0, 1)))(*p)
    np.testing.assert_allclose(found, each, rtol=1e-9)


@pytest.mark.x64
def test_second_derivatives():
    """Of the end after an event at y = c, where y becomes c + 1; of saved states they are refused in reverse mode."""

    def end(c, adjoint, saveat=None):
        event = Event(lambda t, y, args: y - c, lambda t, y, args: y + 1.0)
        sol = sciml.solve(
            decay, jnp.array(1.0), t0=0.0, t1=1.5, events=event, adjoint=adjoint, saveat=saveat, max_events=1, **FINE
        )
        return sol.ys[-1]

    def exact(c):
        return (c + 1) / c * jnp.exp(-1.5)

    expected = jax.hessian(exact)(0.5)
    close(jax.jit(lambda c: jax.hessian(end)(c, Checkpointed()))(0.5), expected, 1e-6)
    close(jax.jit(lambda c: jax.jacfwd(jax.jacfwd(end))(c, Direct()))(0.5), expected, 1e-6)
    close(jax.jit(lambda c: jax.hessian(end)(c, Forward(), np.array([1.5])))(0.5), expected, 1e-6)
    with pytest.raises(TypeError, match="With `events`, a gradient of saved states"):
        jax.hessian(end)(0.5, Checkpointed(), np.array([1.5]))


@pytest.mark.x64
@pytest.mark.parametrize("saveat", [None, np.linspace(0.0, 2.0, 5)], ids=["end", "saved"])
def test_refill(saveat):
    p = jnp.linspace(0.5, 2.0, 40), jnp.full(40, 0.9)
    lockstep, refill = (
        jax.vmap(lambda *p: ball(*p, t1=2.0, saveat=saveat, batching=schedule))(*p)
        for schedule in ("lockstep", "refill")
    )
    for a, b in zip(jax.tree.leaves((lockstep.ys, lockstep.events)), jax.tree.leaves((refill.ys, refill.events))):
        np.testing.assert_allclose(a, b, rtol=1e-12, equal_nan=True)


def slopes_of_two_saved(height, restitution):
    loss = lambda *p: jnp.sum(ball(*p, t1=1.0, saveat=np.array([0.3, 1.0]), max_events=2).ys)  # noqa: E731
    return jax.grad(loss, (0, 1))(height, restitution)


EIGHT = np.linspace(0.5, 2.0, 8), np.linspace(0.8, 0.9, 8)


@functools.cache
def eight_on_one_device():
    return jax.jit(jax.vmap(slopes_of_two_saved))(*EIGHT)


@pytest.mark.x64
@pytest.mark.parametrize("kind", [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit])
def test_sharded_members(kind):
    mesh = jax.make_mesh((2,), ("m",), axis_types=(kind,), devices=jax.devices()[:2])
    placed = jax.device_put(EIGHT, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("m")))
    found = jax.jit(jax.vmap(slopes_of_two_saved))(*placed)
    np.testing.assert_allclose(found, eight_on_one_device(), rtol=1e-9, atol=1e-9)


def test_in_sweeps_an_event_is_no_failure():
    fall = Event(lambda t, y, args: y - 0.5)

    def solve(rate):
        return sciml.solve(lambda t, y, args: -rate * y, jnp.ones(()), t0=0.0, t1=9.0, events=fall)

    result = sciml.parallel.sweep(solve, jnp.array([0.01, 1.0, 2.0]), progress=False)
    assert result.failed.size == 0
    np.testing.assert_array_equal(result.values.status, [Status.successful, Status.event, Status.event])


def test_a_tree_with_complex_numbers():
    def field(t, y, args):
        return {"z": 1j * y["z"], "turns": 0 * y["turns"]}

    y0 = {"z": jnp.array(1.0 + 0j), "turns": jnp.array(0.0)}
    event = Event(lambda t, y, args: y["z"].imag, lambda t, y, args: {**y, "turns": y["turns"] + 1}, direction=1)
    sol = sciml.solve(field, y0, t0=0.0, t1=13.0, events=event)
    assert sol.ys["turns"][-1] == 2
    np.testing.assert_allclose(sol.events.times[:2], 2 * np.pi * np.array([1, 2]), rtol=1e-3)


def test_no_interval():
    sol = sciml.solve(decay, Y0, t0=1.0, t1=1.0, events=Event(lambda t, y, args: y[0]))
    assert sol.status == Status.successful and sol.events.count == 0


def one(t, y, args):
    return y[0]


@pytest.mark.parametrize(
    "options, error, words",
    [
        (dict(events=Event(lambda t, y, args: y)), ValueError, "must return one number"),
        (dict(events=Event(lambda t, y, args: 1)), TypeError, "real number or a boolean"),
        (dict(events=Event(one, one)), ValueError, "update of event 0 must return a state like `y0`"),
        (dict(events="noon"), TypeError, "must be a `sciml.Event`"),
        (dict(events=[]), ValueError, "is empty"),
        (dict(events=Event(one), max_events=0), ValueError, "must be a positive integer"),
        (dict(max_events=2), ValueError, "there are no `events`"),
        (dict(events=Event(one), adjoint=sciml.adjoints.Reversible()), ValueError, "does not support `events`"),
        (dict(events=Event(one), solver=diffrax.ImplicitEuler()), ValueError, "diffrax runs this one"),
    ],
)
def test_refusals(options, error, words):
    with pytest.raises(error, match=words):
        sciml.solve(rotation, Y0, t0=0.0, t1=1.0, **options)


def test_events_are_sought_by_xla():
    with sciml.kernels.use("pallas"), pytest.raises(ValueError, match="kernels do not support events"):
        sciml.solve(rotation, Y0, t0=0.0, t1=1.0, events=Event(one))


def test_refusals_of_events():
    for make in (
        lambda: Event(3.0),
        lambda: Event(one, 3.0),
        lambda: Event(one, direction=2),
        lambda: Event(one, direction=False),
    ):  # pyright: ignore[reportArgumentType]
        with pytest.raises((TypeError, ValueError)):
            make()
    with pytest.raises(TypeError, match=r"`condition` of an `Event` must be .* its signature is \(t, y\)"):
        Event(lambda t, y: y)
    with pytest.raises(TypeError, match="`update` of an `Event` must be callable"):
        Event(one, lambda t, y, args, dose: y)


def test_events_that_only_graze_say_so():
    depth = 1e-7 if jax.config.read("jax_enable_x64") else 1e-4
    both = [
        sciml.Event(lambda t, y, args: y[0] - (1 - depth), lambda t, y, args: y, direction=1),
        sciml.Event(lambda t, y, args: y[0] - 0.5, lambda t, y, args: y, direction=1),
    ]
    sol = sciml.solve(
        lambda t, y, args: jnp.stack([y[1], -y[0]]), jnp.array([0.0, 1.0]), t0=0.0, t1=2.0, dt=0.02, events=both
    )
    assert sol.events.which[:3].tolist() == [1, 0, -1]
    assert sol.events.grazing[:3].tolist() == [False, True, False]


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver, adjoint",
    [
        (sciml.solvers.Rodas5P(), Checkpointed()),
        (sciml.solvers.Rodas5P(), Forward()),
        (diffrax.Dopri8(), Forward()),
        (sciml.solvers.BDF(), Forward()),
    ],
    ids=["Rodas5P, reverse", "Rodas5P, forward", "Dopri8", "BDF"],
)
def test_the_rate_before_an_event_where_the_field_jumps(solver, adjoint):
    # stages at the end of a step that ends at zero see the other side
    def field(t, y, rate):
        return jnp.where(y > 0, -rate, 0 * rate)

    event = Event(lambda t, y, args: y[0], lambda t, y, args: y + 1.0, direction=-1)

    def after(rate):
        times = jnp.array([0.2, 0.9])
        options: Any = dict(events=event, solver=solver, adjoint=adjoint, saveat=times, rtol=1e-6, atol=1e-8)
        sol = sciml.solve(field, jnp.array([0.7]), t0=0.0, t1=0.9, args=rate, **options)
        return jnp.stack([sol.events.times[0], *sol.ys[:, 0]])

    how = jax.jacfwd if isinstance(adjoint, Forward) else jax.jacrev
    rate = jnp.array(2.0**0.5)
    np.testing.assert_allclose(how(after)(rate), jnp.stack([-0.7 / rate**2, -0.2, -0.9]), rtol=1e-3)


# --- many events


def levels(number):
    """Events at levels that a decay passes one after another, with directions that differ, and a boolean or two."""

    def add(k):
        return lambda t, y, args: y.at[1].add(k + 1.0)

    def level(k):
        return 0.95 - 0.8 * k / number

    real = [Event(lambda t, y, args, k=k: y[0] - level(k), add(k), direction=-(k % 2)) for k in range(number)]
    late = [Event(lambda t, y, args, k=k: y[0] < 0.92 - 0.2 * k, add(100.0 * k)) for k in range(2)]
    return [*real, *late]


def past_levels(rate, number):
    options: Any = dict(events=levels(number), max_events=number + 2, rtol=1e-8, atol=1e-9)
    sol = sciml.solve(
        lambda t, y, args: jnp.stack([-args * y[0], y[1]]), jnp.array([1.0, 0.0]), t0=0.0, t1=1.8, args=rate, **options
    )
    return sol.ys[-1, 1], sol.events.count


@pytest.mark.x64
def test_many_events_and_the_derivative_by_all_of_them():
    """Each adds to a growth that goes on from its time, so that every time counts."""
    (found, count), slope = jax.jit(jax.value_and_grad(lambda rate: past_levels(rate, 6), has_aux=True))(1.1)
    places = [(0.95 - 0.8 * k / 6, k + 1.0) for k in range(6)] + [(0.92, 1.0), (0.72, 101.0)]
    times = np.array([-np.log(x) / 1.1 for x, _ in places])
    growth = np.array([amount for _, amount in places]) * np.exp(1.8 - times)
    assert count == 8
    np.testing.assert_allclose(found, growth.sum(), rtol=1e-6)
    # booleans have no derivative by their time, which stays where it is
    np.testing.assert_allclose(slope, np.sum(growth[:6] * times[:6] / 1.1), rtol=1e-5)


def test_a_program_grows_no_faster_than_its_number_of_events():
    def size(number):
        return sum(1 for _ in equations(jax.make_jaxpr(lambda rate: past_levels(rate, number)[0])(1.1).jaxpr))

    few, more, most = map(size, (4, 12, 20))
    assert most - more < 1.1 * (more - few)
