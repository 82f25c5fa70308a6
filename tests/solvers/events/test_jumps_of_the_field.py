"""Derivatives through jumps of the field, (before - after) dt*/da, by every adjoint against closed forms."""

import math

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Event, Held, Schedule
from sciml.adjoints import Backsolve, Checkpointed, Direct, Forward, Gauss, Interpolating

ADJOINTS = [Checkpointed(), Forward(), Gauss(), Interpolating(), Backsolve()]
FEW = [Checkpointed(), Forward(), Gauss()]
DISCRETE = [Checkpointed(), Forward(), Direct()]
HOW = {"float64": dict(rtol=1e-8, atol=1e-10), "float32": dict(rtol=1e-5, atol=1e-6)}


def each(adjoints):
    return pytest.mark.parametrize("adjoint", adjoints, ids=lambda x: type(x).__name__)


def jacobian(function, adjoint):
    """A derivative in the mode that the adjoint has."""
    return jax.jit((jax.jacfwd if isinstance(adjoint, Forward | Direct) else jax.jacrev)(function))


def stay(t, y, args):
    return y


def switched(a, adjoint, **how):
    """Decays until a, whichever side the comparison counts a to, and grows after it."""

    def field(t, y, a):
        return y * jnp.stack([jnp.where(t < a, -1.0, 0.5), jnp.where(t <= a, -1.0, 0.5)]).astype(y.dtype)

    options = dict(t0=0.0, t1=2.0, args=a, adjoint=adjoint) | HOW[a.dtype.name] | how
    return sciml.solve(field, jnp.ones(2, a.dtype), **options).ys[-1]


def of_switched(a):
    return jnp.exp(-a + 0.5 * (2 - a)) * jnp.ones(2, a.dtype)


@pytest.mark.x64
@pytest.mark.parametrize("rtol", [1e-3, 1e-6])
def test_a_step_of_few_roundings_to_the_event(rtol):
    """Some of these starts come to the surface by a step that is not longer than the resolution of the time."""
    event = Event(lambda t, y, args: y - 0.5, update=lambda t, y, args: y)

    def end(y0):
        field = lambda t, y, args: jnp.where(y < 0.5, 1 + y, 3 - y)  # noqa: E731
        return sciml.solve(field, y0, t0=0.0, t1=1.0, rtol=rtol, atol=rtol / 100, events=event).ys[-1]

    y0 = jnp.linspace(0.0, 0.45, 40)
    time = np.log(1.5 / (1 + y0))
    right = np.exp(time) * (2.5 / 1.5) * np.exp(time - 1)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(end)))(y0), right, rtol=2 * rtol)


@pytest.mark.x64
@each(ADJOINTS)
@pytest.mark.parametrize("kind", ["event", "schedule"])
def test_both_comparisons_of_the_time(adjoint, kind):
    def end(a):
        event = Event(lambda t, y, a: t - a, stay) if kind == "event" else Schedule(a[None])
        return switched(a, adjoint, events=event)

    a = jnp.array(1.3)
    np.testing.assert_allclose(jacobian(end, adjoint)(a), jax.jacfwd(of_switched)(a), rtol=1e-6)


@each(FEW)
def test_both_comparisons_in_float32(adjoint):
    a = jnp.array(1.3, jnp.float32)
    end = lambda a: switched(a, adjoint, events=Event(lambda t, y, a: t - a, stay))  # noqa: E731
    np.testing.assert_allclose(jacobian(end, adjoint)(a), jax.jacfwd(of_switched)(a), rtol=2e-3)


@pytest.mark.x64
def test_members_and_second_derivatives():
    at = jnp.array([0.4, 1.3])
    one = lambda a, adjoint: switched(a, adjoint, events=Event(lambda t, y, a: t - a, stay)).sum()  # noqa: E731
    exact = lambda a: of_switched(a).sum()  # noqa: E731
    for adjoint in (Checkpointed(), Gauss()):
        by_member = jax.jit(jax.vmap(jax.grad(lambda a, x=adjoint: one(a, x))))(at)
        np.testing.assert_allclose(by_member, jax.vmap(jax.grad(exact))(at), rtol=1e-6)
    of_all = jax.jit(jax.grad(lambda at: jax.vmap(lambda a: one(a, Gauss()))(at).sum()))(at)
    np.testing.assert_allclose(of_all, jax.vmap(jax.grad(exact))(at), rtol=1e-6)
    twice = jax.jit(jax.jacfwd(jax.jacfwd(lambda a: one(a, Forward()))))(at[1])
    np.testing.assert_allclose(twice, jax.jacfwd(jax.jacfwd(exact))(at[1]), rtol=1e-6)


@pytest.mark.x64
def test_second_derivatives_where_the_state_crosses_a_surface():
    """The last step to the surface is short: no difference of rates within it may stand for their slope."""

    def end(a):
        how = dict(t0=0.0, t1=1.0, args=a, events=Event(lambda t, y, a: y - a, stay), rtol=1e-8, atol=1e-10)
        field = lambda t, y, a: jnp.where(y < a, y, y * y)  # noqa: E731
        return sciml.solve(field, jnp.array(0.5), adjoint=Forward(), **how).ys[-1]

    exact = lambda a: 1 / (1 / a - 1 + jnp.log(2 * a))  # noqa: E731
    twice = lambda function: jax.jacfwd(jax.jacfwd(function))(jnp.array(0.7))  # noqa: E731
    np.testing.assert_allclose(jax.jit(twice, static_argnums=0)(end), twice(exact), rtol=1e-5)


@pytest.mark.x64
@each(ADJOINTS)
def test_surfaces_of_the_state(adjoint):
    """Two components cross a surface each, and their rates jump there."""

    def field(t, y, a):
        return jnp.stack([jnp.where(y[0] < a, y[0], 3 * y[0]), jnp.where(y[1] <= 2 * a, 1.0, 3.0)])

    def end(a):
        crossings = [Event(lambda t, y, a: y[0] - a, stay), Event(lambda t, y, a: y[1] - 2 * a, stay)]
        how = dict(t0=0.0, t1=3.0, args=a, events=crossings, adjoint=adjoint, rtol=1e-10, atol=1e-12)
        return sciml.solve(field, jnp.full(2, 0.5), **how).ys[-1]

    def exact(a):
        return jnp.stack([a * jnp.exp(3 * (3 - jnp.log(a / 0.5))), 2 * a + 3 * (3 - (2 * a - 0.5))])

    a = jnp.array(1.2)
    np.testing.assert_allclose(jacobian(end, adjoint)(a), jax.jacfwd(exact)(a), rtol=1e-6)


@pytest.mark.x64
@each(ADJOINTS)
def test_held_inputs(adjoint):
    def end(a):
        valve = Held(jnp.stack([0 * a, a]), jnp.array([0.0, 4.0]))
        tank = lambda t, y, valve: valve(t) - y  # noqa: E731
        how = dict(t0=0.0, t1=2.0, args=valve, events=valve.jumps(), adjoint=adjoint, rtol=1e-8, atol=1e-10)
        return sciml.solve(tank, jnp.array(1.0), **how).ys[-1]

    np.testing.assert_allclose(jacobian(end, adjoint)(jnp.array(1.5)), -4 * np.exp(-0.5), rtol=1e-7)


@pytest.mark.x64
@each(FEW)
def test_two_at_one_time(adjoint):
    """Each has a derivative by its own time, also where one is a dose and the other a jump of the field."""

    def end(times):
        double = Schedule(times[:1], lambda t, y, args: 2 * y)
        dose = Schedule(times[1:2], lambda t, y, args: y + 1.0)
        field = lambda t, y, times: -jnp.where(t < times[2], y, 3 * y)  # noqa: E731
        events = [double, dose, Event(lambda t, y, times: t - times[2], stay)]
        how = dict(t0=0.0, t1=2.0, args=times, events=events, adjoint=adjoint, rtol=1e-8, atol=1e-10)
        return sciml.solve(field, jnp.array(1.0), **how).ys[-1]

    # in this order of times: y = ((2 e^-t1 e^-(t2-t1)) + 1) e^-(t3-t2) e^-3(2-t3)
    exact = lambda t: (2 * jnp.exp(-t[1]) + 1) * jnp.exp(t[1] - t[2] - 3 * (2 - t[2]))  # noqa: E731
    times = jnp.full(3, 1.5)
    np.testing.assert_allclose(jacobian(end, adjoint)(times), jax.grad(exact)(times), rtol=1e-6, atol=1e-9)


@pytest.mark.x64
@each([Checkpointed(), Gauss()])
def test_two_inputs_that_jump_at_one_time(adjoint):
    """One time has the derivatives by both; a shift of 1e-9 gives each, and only rounding moves the state."""

    def end(times):
        field = lambda t, y, a: jnp.where(t < a[0], 0.0, 4.0) - y - jnp.where(t < a[1], 0.0, 2.0) * y  # noqa: E731
        how = dict(t0=0.0, t1=3.0, args=times, adjoint=adjoint, rtol=1e-8, atol=1e-10)
        return sciml.solve(field, jnp.array(1.0), events=Schedule(times), **how).ys[-1]

    def exact(times):
        between = 4 + (jnp.exp(-times[0]) - 4) * jnp.exp(times[0] - times[1])
        return 4 / 3 + (between - 4 / 3) * jnp.exp(-3 * (3 - times[1]))

    found = jax.jit(jax.value_and_grad(end))
    for times in (jnp.array([1.5, 1.5]), jnp.array([1.5, 1.5 + 1e-9])):
        value, by_times = found(times)
        np.testing.assert_allclose(value, exact(times), rtol=1e-7)
        right = jax.grad(exact)(times)
        if times[1] > times[0]:
            np.testing.assert_allclose(by_times, right, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(by_times.sum(), right.sum(), rtol=1e-5)


@pytest.mark.x64
@each(FEW)
@pytest.mark.parametrize("at", ["start", "end"])
def test_at_the_ends_of_a_solve(adjoint, at):
    """One that is due at the start or at the end happens, so its time has the derivatives of one that is within."""

    def end(a):
        dose = Schedule(a[None], lambda t, y, args: y + 1.0)
        field = lambda t, y, a: jnp.where(t < a, -y, -2 * y)  # noqa: E731
        t0, t1 = (1.5, 3.0) if at == "start" else (0.0, 1.5)
        how = dict(t0=t0, t1=t1, args=a, events=dose, adjoint=adjoint, rtol=1e-8, atol=1e-10)
        return sciml.solve(field, jnp.array(1.0), **how).ys[-1]

    before = 1.0 if at == "start" else np.exp(-1.5)
    after = np.exp(-3.0) if at == "start" else 1.0
    expected = (-before + 2 * (before + 1)) * after  # f- moves the state, then f+ is lost
    np.testing.assert_allclose(jacobian(end, adjoint)(jnp.array(1.5)), expected, rtol=1e-6)


@pytest.mark.x64
@each(FEW)
def test_backwards_in_time_and_an_event_that_ends_the_solve(adjoint):
    def back(a):
        field = lambda t, y, a: jnp.where(t <= a, -y, 0 * y)  # noqa: E731
        how = dict(t0=2.0, t1=0.0, args=a, adjoint=adjoint, rtol=1e-8, atol=1e-10)
        return sciml.solve(field, jnp.array(1.0), events=Event(lambda t, y, a: t - a, stay), **how).ys[-1]

    np.testing.assert_allclose(jacobian(back, adjoint)(jnp.array(1.5)), np.exp(1.5), rtol=1e-6)

    def time(a):
        field = lambda t, y, a: jnp.where(y < a, jnp.ones_like(y), 2 * jnp.ones_like(y))  # noqa: E731
        events = [Event(lambda t, y, a: y - a, stay), Event(lambda t, y, a: y - 3.0)]
        how = dict(t0=0.0, t1=4.0, args=a, adjoint=adjoint, rtol=1e-8, atol=1e-10)
        return sciml.solve(field, jnp.array(0.5), events=events, **how).t_reached

    np.testing.assert_allclose(jacobian(time, adjoint)(jnp.array(1.5)), 0.5, rtol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", [Checkpointed(), Forward()], ids=["Checkpointed", "Forward"])
def test_a_mass_matrix(adjoint):
    """The algebraic variable jumps with the field and with a dose, and is consistent on both sides."""

    def field(t, y, a):
        return jnp.stack([-y[1], y[1] - y[0] * jnp.where(t < a, 1.0, 2.0)])

    def end(a):
        dose = Event(lambda t, y, a: t - a, lambda t, y, a: y.at[0].add(1.0))
        solver = sciml.solvers.Rodas5P(mass=np.diag([1.0, 0.0]))
        how = dict(t0=0.0, t1=2.0, args=a, events=dose, adjoint=adjoint, solver=solver, rtol=1e-7, atol=1e-9)
        sol = sciml.solve(field, jnp.ones(2), **how)
        return sol.ys[-1, 0], (sol.events.states_before[0], sol.events.states_after[0])

    derivative = jax.jacfwd if isinstance(adjoint, Forward) else jax.grad
    a = jnp.array(0.7)
    found, (before, after) = jax.jit(derivative(end, has_aux=True))(a)
    np.testing.assert_allclose(found, jnp.exp(a - 4) + 2 * jnp.exp(2 * a - 4), rtol=1e-6)
    np.testing.assert_allclose(before, np.full(2, np.exp(-0.7)), rtol=1e-6)
    np.testing.assert_allclose(after, (np.exp(-0.7) + 1) * np.array([1.0, 2.0]), rtol=1e-6)


@pytest.mark.x64
def test_fixed_steps_without_a_loop_of_unknown_length():
    """`Direct` differentiates a scan in forward mode."""
    events = Event(lambda t, y, a: t - a, stay)
    end = lambda a: switched(a, Direct(), dt=1 / 64, rtol=None, atol=None, events=events)  # noqa: E731
    a = jnp.array(1.3)
    np.testing.assert_allclose(jacobian(end, Direct())(a), jax.jacfwd(of_switched)(a), rtol=2e-2)


def at_saved_times(s, ts, adjoint, kind, **how):
    """Decays twice as fast from s on, where there is a dose; states before, at and after `ts`."""

    def field(t, y, s):
        return -y * jnp.where(t < s, 1.0, 2.0)

    def dose(t, y, args):
        return y + 1.0

    event = Schedule(s[None], dose) if kind == "schedule" else Event(lambda t, y, s: t - s, dose)
    saveat = jnp.stack([0 * ts, ts, 0 * ts + 2])
    options = dict(t0=0.0, t1=2.0, args=s, events=event, saveat=saveat, adjoint=adjoint) | HOW["float64"] | how
    return sciml.solve(field, jnp.array(1.0), **options).ys


BY_BOTH = (  # y(ts) = (e^-s + 1) e^-2(ts-s)
    np.array([0.0, np.exp(-1) + 2, (np.exp(-1) + 2) * np.exp(-2)]),
    np.array([0.0, -2 * (np.exp(-1) + 1), 0.0]),
)
FIXED = dict(dt=1 / 64, rtol=None, atol=None)


@pytest.mark.x64
@pytest.mark.parametrize(
    ("adjoint", "kind"),
    [(x, "schedule") for x in [*ADJOINTS, Direct()]] + [(x, "event") for x in [*FEW, Direct()]],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_a_saved_time_at_a_dose(adjoint, kind):
    """The state saved there is the one after it, with its derivatives by the time of the dose and by its own."""
    by_both = (jax.jacfwd if isinstance(adjoint, Forward | Direct) else jax.jacrev)(
        lambda s, ts: (at_saved_times(s, ts, adjoint, kind),) * 2, argnums=(0, 1), has_aux=True
    )
    found, states = jax.jit(by_both)(jnp.array(1.0), jnp.array(1.0))
    np.testing.assert_allclose(states[1], np.exp(-1) + 1, rtol=1e-7)
    for derivative, exact in zip(found, BY_BOTH):
        np.testing.assert_allclose(derivative, exact, rtol=1e-5, atol=1e-9)


@pytest.mark.x64
@each(DISCRETE)
def test_a_saved_time_at_a_dose_with_fixed_steps(adjoint):
    both = jnp.array([1.0, 1.0])
    found = jacobian(lambda x: at_saved_times(*x, adjoint, "schedule", **FIXED), adjoint)(both)
    np.testing.assert_allclose(found, np.stack(BY_BOTH, -1), rtol=1e-5, atol=1e-9)


@pytest.mark.x64
@each([Checkpointed(), Forward()])
def test_members_with_a_saved_time_at_a_dose_or_beside_it(adjoint):
    one = lambda x: at_saved_times(*x, adjoint, "schedule")  # noqa: E731
    both = jnp.array([[1.0, 1.0], [0.8, 1.0], [1.0, 0.8]])
    found = jax.jit(jax.vmap(jax.jacfwd(one) if isinstance(adjoint, Forward) else jax.jacrev(one)))(both)
    after = (np.exp(-0.8) + 2) * np.exp(-0.4), -2 * (np.exp(-0.8) + 1) * np.exp(-0.4)
    expected = [[BY_BOTH[0][1], BY_BOTH[1][1]], after, [0.0, -np.exp(-0.8)]]
    np.testing.assert_allclose(found[:, 1], expected, rtol=1e-5, atol=1e-9)


@pytest.mark.x64
@each(DISCRETE)
def test_a_saved_time_at_the_start_with_a_dose(adjoint):
    """There the rate after the dose is the one by which the state depends on its own time."""

    def start(x):
        s, ts = x
        how = dict(t0=0.0, t1=1.0, args=s, saveat=jnp.stack([ts, ts + 1]), adjoint=adjoint, **HOW["float64"])
        return sciml.solve(
            lambda t, y, s: -y * jnp.where(t <= s, 1.0, 2.0),
            jnp.array(1.0),
            events=Schedule(s[None], lambda t, y, args: y + 1.0),
            **how,
        ).ys[0]

    np.testing.assert_allclose(jacobian(start, adjoint)(jnp.zeros(2)), [-1 + 4, -4], rtol=1e-5)


@pytest.mark.x64
@each(DISCRETE)
def test_a_saved_time_at_the_end_of_a_fixed_step(adjoint):
    def state(ts):
        how = dict(t0=0.0, t1=2.0, saveat=ts[None], adjoint=adjoint, dt=1 / 16)
        return sciml.solve(lambda t, y, args: -y, jnp.array(1.0), **how).ys[0]

    np.testing.assert_allclose(jacobian(state, adjoint)(jnp.array(1.0)), -np.exp(-1), rtol=1e-4)
    if not isinstance(adjoint, Checkpointed):
        twice = jax.jit(jax.jacfwd(jax.jacfwd(state)))(jnp.array(1.0))
        np.testing.assert_allclose(twice, np.exp(-1), rtol=1e-3)


@pytest.mark.parametrize("adjoint", [sciml.adjoints.Checkpointed(), sciml.adjoints.Gauss()], ids=["discrete", "Gauss"])
@pytest.mark.parametrize("at_once", [False, True], ids=["until", "through"])
def test_an_earlier_event_a_later_jump_and_a_state_saved_at_it(at_once, adjoint):
    """A continuous adjoint solves from each event to the next: the rates at the ends are those of within."""

    def loss(times):
        def field(t, y, a):
            early = t <= times[1] if at_once else t < times[1]
            return jnp.where(early, 1.0, 5.0) * y

        kick = sciml.Schedule(times, lambda t, y, a: jnp.where(t < 0.4, y + 1, y))
        options = dict(t0=0.0, t1=1.0, rtol=1e-6, atol=1e-8, adjoint=adjoint)
        sol = sciml.solve(field, jnp.ones(1), saveat=jnp.asarray([0.5, 1.0]), events=kick, **options)
        return sol.ys[0, 0] + sol.ys[1, 0]

    def exact(times):  # of a state saved at a jump the rate is the one after it
        before = jnp.exp(times[1]) + jnp.exp(times[1] - times[0])
        return before * (jnp.exp(5 * (0.5 - times[1])) + jnp.exp(5 * (1 - times[1])))

    times = jnp.asarray([0.25, 0.5])
    np.testing.assert_allclose(jax.grad(loss)(times), jax.grad(exact)(times), rtol=1e-4)


# --- equations with delays: a jump of the rate comes back one delay later


def fundamental(t, rate, delay):
    """The solution of x' = -rate x(t - delay) that is 0 before it is 1 at 0."""
    return sum((-rate) ** k * (t - k * delay) ** k / math.factorial(k) for k in range(int(t / delay) + 1))


def delayed_valve(when, end, adjoint):
    valve = sciml.Held(jnp.stack([0 * when - 1, when]), jnp.array([0.6, 0.05]))
    model = sciml.Delayed(lambda t, y, past, args: valve(t) - 1.7 * past, 0.3, history=1.0)
    options = dict(solver=diffrax.Bosh3(), rtol=1e-5, atol=1e-7, adjoint=adjoint)
    return sciml.solve(model, 1.0, t0=0.0, t1=end, events=valve.jumps(), **options).ys[-1]


@pytest.mark.x64
@pytest.mark.parametrize(("end", "adjoint"), [(1.1, Checkpointed()), (0.8, Forward())], ids=["twice", "once"])
def test_a_switch_of_an_input_comes_back_after_a_delay(end, adjoint):
    """At 0.37, with ends after its first return at 0.67 and after the second."""
    right = (0.6 - 0.05) * fundamental(end - 0.37, 1.7, 0.3)
    found = jacobian(lambda when: delayed_valve(when, end, adjoint), adjoint)(jnp.asarray(0.37))
    np.testing.assert_allclose(found, right, rtol=1e-4)


@pytest.mark.x64
def test_a_field_that_jumps_where_the_state_crosses_a_level_with_delays():
    """The level is crossed within the first delay, while the rate is -1.1."""

    def end(level):
        model = sciml.Delayed(lambda t, y, past, args: jnp.where(y > level, 0.6, 0.05) - 1.7 * past, 0.3, history=1.0)
        leaves = sciml.Event(lambda t, y, args: y - level, lambda t, y, args: y, direction=-1)
        options = dict(solver=diffrax.Bosh3(), rtol=1e-7, atol=1e-9)
        return sciml.solve(model, 1.0, t0=0.0, t1=0.9, events=leaves, **options).ys[-1]

    right = (0.6 - 0.05) * fundamental(0.9 - 0.3 / 1.1, 1.7, 0.3) * (-1 / 1.1)
    np.testing.assert_allclose(jax.jit(jax.grad(end))(0.7), right, rtol=1e-6)
