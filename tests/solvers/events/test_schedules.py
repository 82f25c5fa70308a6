"""What happens at given times: doses against their closed form, jumps of the field, times that are traced."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Schedule, Status
from sciml.adjoints import Checkpointed, Forward

FINE: Any = dict(rtol=1e-10, atol=1e-10)
TIMES = np.arange(0.0, 48.0, 8.0)
DOSES = np.array([100.0, 50.0, 50.0, 60.0, 50.0, 40.0])
RATES = np.array([0.1, 0.3, 0.2])


def matrix(rates):
    out, there, back = rates
    return jnp.stack([jnp.stack([-(out + there), back]), jnp.stack([there, -back])])


def compartments(doses, times, rates, t1=48.0, **options):
    def field(t, y, args):
        return matrix(rates) @ y

    given = Schedule(times, lambda t, y, args, dose: y.at[0].add(dose), doses)
    return sciml.solve(field, jnp.zeros(2), t0=0.0, t1=t1, events=given, **FINE, **options)


def exact(doses, times, rates, t1=48.0):
    after = [jax.scipy.linalg.expm(matrix(rates) * (t1 - times[i]))[:, 0] * doses[i] for i in range(len(TIMES))]
    return sum(after)


@pytest.mark.x64
def test_doses_of_two_compartments():
    sol = compartments(DOSES, TIMES, RATES)
    np.testing.assert_allclose(sol.ys[-1], exact(DOSES, TIMES, RATES), rtol=1e-8)
    np.testing.assert_allclose(sol.events.times[:6], TIMES, atol=1e-12)
    np.testing.assert_allclose(sol.events.states_after[:6, 0] - sol.events.states_before[:6, 0], DOSES, rtol=1e-12)
    assert sol.events.count == 6


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", [Checkpointed(), Forward()], ids=lambda a: type(a).__name__)
def test_gradient_by_doses_times_and_rates(adjoint):
    p = tuple(map(jnp.asarray, (DOSES, TIMES, RATES)))
    found = jax.grad(lambda *p: compartments(*p, adjoint=adjoint).ys[-1, 0], (0, 1, 2))(*p)
    expected = jax.grad(lambda *p: exact(*p)[0], (0, 1, 2))(*p)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


@pytest.mark.x64
def test_saved_around_doses():
    """At the time of a dose itself the state is that after it."""
    ts = np.array([7.9, 8.0, 8.1, 30.0])
    sol = compartments(DOSES, TIMES, RATES, saveat=ts)

    def level(t):
        given = [jax.scipy.linalg.expm(matrix(RATES) * (t - s))[:, 0] * d for s, d in zip(TIMES, DOSES) if s <= t]
        return sum(given)

    np.testing.assert_allclose(sol.ys, np.array([level(t) for t in ts]), rtol=1e-7)

    def loss(times, adjoint):
        return jnp.sum(compartments(DOSES, times, RATES, saveat=ts, adjoint=adjoint).ys ** 2)

    times = jnp.asarray(TIMES) + 0.3
    both = jax.jit(jax.value_and_grad(lambda times: loss(times, Checkpointed())))
    gradient = both(times)[1]
    np.testing.assert_allclose(gradient, jax.jit(jax.grad(lambda times: loss(times, Forward())))(times), rtol=1e-9)
    change = (both(times.at[2].add(1e-4))[0] - both(times.at[2].add(-1e-4))[0]) / 2e-4
    np.testing.assert_allclose(gradient[2], change, rtol=1e-6)


@pytest.mark.x64
def test_a_table_of_doses_for_each_member():
    """A shorter list ends with infinite times."""
    times = jnp.array([[1.0, 2.0], [1.5, jnp.inf], [jnp.inf, jnp.inf]])

    def decay(t, y, args):
        return -y

    def member(times):
        given = Schedule(times, lambda t, y, args: y + 1.0)
        return sciml.solve(decay, jnp.array(1.0), t0=0.0, t1=3.0, events=given, **FINE)

    sol = jax.jit(jax.vmap(member))(times)
    left = jnp.exp(times - 3.0)
    np.testing.assert_allclose(sol.ys[:, 0], np.exp(-3.0) + np.where(np.isinf(times), 0, left).sum(1), rtol=1e-8)
    np.testing.assert_array_equal(sol.events.count, [2, 1, 0])


@pytest.mark.x64
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), sciml.solvers.Rodas5P()], ids=lambda s: type(s).__name__)
def test_a_field_that_jumps(solver):
    """No step sees both sides, whichever it is on at the time itself."""
    for jumps in (lambda t: t >= 0.7, lambda t: t > 0.7):

        def field(t, y, args):
            return jnp.where(jumps(t), -2.0, 1.0).astype(y.dtype)

        def solve(**o):
            return sciml.solve(field, jnp.array(0.0), t0=0.0, t1=2.0, solver=solver, **o)

        sol = solve(events=Schedule([0.7]))
        np.testing.assert_allclose(sol.ys[-1], 0.7 - 2 * 1.3, rtol=1e-12)
        assert sol.stats.rejected == 0 and sol.stats.accepted < solve().stats.accepted
        np.testing.assert_allclose(solve(events=Schedule([0.7]), dt=0.3).ys[-1], 0.7 - 2 * 1.3, rtol=1e-12)


@pytest.mark.x64
def test_backwards_and_what_has_passed():
    given = Schedule([-1.0, -2.0], lambda t, y, args: 2 * y)
    sol = sciml.solve(lambda t, y, args: -y, jnp.array(1.0), t0=0.0, t1=-3.0, events=given, **FINE)
    np.testing.assert_allclose(sol.ys[-1], 4 * np.exp(3.0), rtol=1e-8)
    padded = Schedule([-1.0, np.inf], lambda t, y, args: 2 * y)  # an infinite time never comes, whatever its sign
    sol = sciml.solve(lambda t, y, args: -y, jnp.array(1.0), t0=0.0, t1=-3.0, events=padded, **FINE)
    np.testing.assert_allclose(sol.ys[-1], 2 * np.exp(3.0), rtol=1e-8)
    given = Schedule([-1.0, 0.0, 1.0, 3.0, 4.0], lambda t, y, args: 2 * y)  # one before, two at the ends, one after
    sol = sciml.solve(lambda t, y, args: -y, jnp.array(1.0), t0=0.0, t1=3.0, events=given, **FINE)
    np.testing.assert_allclose(sol.ys[-1], 8 * np.exp(-3.0), rtol=1e-8)
    np.testing.assert_allclose(sol.events.times[:4], [0.0, 1.0, 3.0, np.nan], atol=1e-12)


def test_with_events_beside():
    """A tank is filled every two hours, and emptied where it holds too much."""
    fill = Schedule(np.arange(2.0, 10.0, 2.0), lambda t, y, args: y + 1.0)
    empty = sciml.Event(lambda t, y, args: y - 1.7, lambda t, y, args: 0 * y, direction=1)
    sol = sciml.solve(lambda t, y, args: 0.1 + 0 * y, jnp.array(0.0), t0=0.0, t1=9.0, events=[fill, empty])
    # 1.2 at two hours; 2.4 at four, which jumps over the mark, and so on
    np.testing.assert_array_equal(sol.events.which[:5], [0, 0, 0, 0, -1])
    np.testing.assert_allclose(sol.ys[-1], 4.9, rtol=1e-5)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Schedule([[1.0]]), "must have shape"),
        (lambda: Schedule([]), "at least one"),
        (lambda: Schedule(["noon"]), "must be real numbers"),
        (lambda: Schedule([jnp.nan]), "must not be NaN"),
        (lambda: Schedule([1.0, 2.0], lambda t, y, args, v: y, jnp.ones(3)), "a row for each of its 2 times"),
        (lambda: Schedule([1.0], values=jnp.ones(1)), "which is missing"),
        (lambda: Schedule([1.0], lambda t, y, args: y, jnp.ones(1)), r"with `values` must be callable as .*value\)`"),
        (lambda: Schedule([1.0], lambda t, y, args, v: y), r"without `values` .* signature is \(t, y, args, v\)"),
    ],
)
def test_refusals(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_doses_in_a_list_are_one_for_each_time():
    doses = Schedule([1.0, 2.0], lambda t, y, args, v: y, [3.0, 4])
    np.testing.assert_array_equal(doses.values, [3.0, 4.0])
    rows = Schedule([1.0, 2.0], lambda t, y, args, v: y, [jnp.ones(2), jnp.zeros((2, 3))])
    assert [x.shape for x in rows.values] == [(2,), (2, 3)]


def test_times_out_of_order():
    def solve(times, **o):
        return sciml.solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=3.0, events=Schedule(times), **o)

    with pytest.raises(ValueError, match="must ascend"):
        solve([2.0, 1.0])
    with pytest.raises(ValueError, match="must ascend"):
        solve([1.0, 2.0, 2.0, 1.0])
    sol = jax.jit(solve)(jnp.array([2.0, 1.0]))
    assert sol.status == Status.invalid_argument and np.all(np.isnan(sol.ys))


def twice(doses, rate, adjoint=None, start=0.0, **options):
    """A decay with doses, of which three come at the start, two on the way and two at the end, beside a doubling."""
    times = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 3.0, np.inf, np.inf])
    given = Schedule(times, lambda t, y, args, dose: y * y + dose, doses)
    double = Schedule([1.0, 2.0], lambda t, y, args: 2 * y)
    field = lambda t, y, args: -args * y  # noqa: E731
    options = dict(t0=0.0, t1=3.0, args=rate, events=[given, double], rtol=1e-10, atol=1e-12) | options
    return sciml.solve(field, jnp.asarray(start, doses.dtype), adjoint=adjoint, **options)


def exact_twice(doses, rate, start=0.0):
    y = start
    for number, dose in enumerate(doses[:8]):
        y = y * y + dose
        if number in (4, 5):
            y = 2 * y
        y = y * jnp.exp(-rate) if number in (2, 4, 5) else y
    return y


AGAIN = np.array([0.1, 0.3, 0.5, 0.2, 0.4, 0.1, 0.3, 0.2, 0.0, 0.0])


@pytest.mark.x64
def test_doses_at_one_time_happen_in_their_order():
    sol = twice(jnp.asarray(AGAIN), 0.3)
    np.testing.assert_allclose(sol.ys[-1], exact_twice(AGAIN, 0.3), rtol=1e-8)
    np.testing.assert_allclose(sol.events.times[:10], [0, 0, 0, 1, 1, 1, 2, 2, 3, 3], atol=1e-12)
    np.testing.assert_array_equal(sol.events.which[:11], [0, 0, 0, 0, 0, 1, 0, 1, 0, 0, -1])
    before, after = sol.events.states_before[:10], sol.events.states_after[:10]
    np.testing.assert_array_equal(before[jnp.array([1, 2, 4, 5, 7, 9])], after[jnp.array([0, 1, 3, 4, 6, 8])])
    many = jax.vmap(lambda dose, rate: twice(jnp.asarray(AGAIN) * dose, rate).ys[-1])(
        jnp.ones(3), jnp.array([0.1, 0.3, 0.5])
    )
    np.testing.assert_allclose(many[1], sol.ys[-1], rtol=1e-9)
    fixed = twice(jnp.asarray(AGAIN), 0.3, dt=1 / 64, rtol=None, atol=None)
    np.testing.assert_allclose(fixed.ys[-1], sol.ys[-1], rtol=1e-7)
    saved = twice(jnp.asarray(AGAIN), 0.3, saveat=jnp.array([0.0, 1.0, 3.0]))
    np.testing.assert_allclose(saved.ys, sol.events.states_after[jnp.array([2, 5, 9])], rtol=1e-9)


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", ["Checkpointed", "Forward", "Gauss", "Backsolve"])
def test_gradients_by_doses_at_one_time(adjoint):
    end = lambda doses, rate: twice(doses, rate, getattr(sciml.adjoints, adjoint)())  # noqa: E731
    found = jax.grad(lambda *x: end(*x).ys[-1], (0, 1))(jnp.asarray(AGAIN), 0.3)
    expected = jax.grad(exact_twice, (0, 1))(jnp.asarray(AGAIN), 0.3)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(end(jnp.asarray(AGAIN), 0.3).events.which[:11], [0, 0, 0, 0, 0, 1, 0, 1, 0, 0, -1])


def repeated(times, doses, rate, adjoint, start=0.0):
    given = Schedule(times, lambda t, y, args, dose: y * y + dose, doses)
    options = dict(t0=0.0, t1=3.0, args=rate, events=given, adjoint=adjoint, rtol=1e-10, atol=1e-12)
    return sciml.solve(lambda t, y, args: -args * y, jnp.asarray(start, doses.dtype), **options)


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", ["Checkpointed", "Gauss", "Backsolve"])
def test_traced_times_that_come_twice(adjoint):
    """Doses apply in the order of the rows, as with known times; derivatives by equal times keep that order."""
    adjoint = getattr(sciml.adjoints, adjoint)()
    times, doses = np.array([0.0, 0.0, 1.0, 1.0, 3.0, 3.0]), jnp.asarray(AGAIN[:6])

    def exact(times, doses):
        y = 0.0
        for number, dose in enumerate(doses):
            y = y * jnp.exp(-0.3 * (times[number] - times[max(number - 1, 0)])) if number else y
            y = y * y + dose
        return y * jnp.exp(-0.3 * (3.0 - times[5]))

    end = lambda times, doses: repeated(times, doses, 0.3, adjoint).ys[-1]  # noqa: E731
    value, found = jax.jit(jax.value_and_grad(end, (0, 1)))(jnp.asarray(times), doses)
    np.testing.assert_allclose(value, repeated(times, doses, 0.3, adjoint).ys[-1], rtol=1e-8)
    expected = jax.grad(exact, (0, 1))(jnp.asarray(times), doses)
    np.testing.assert_allclose(found[0][2:], expected[0][2:], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-8)


@pytest.mark.x64
@pytest.mark.parametrize("at", [0.0, 1.0, 3.0], ids=["start", "within", "end"])
def test_two_schedules_at_one_traced_time(at):
    """All rows of the first come before the second, as with known times; so do many rows, which end no solve."""

    def end(times, once, first, **how):
        square, triple = Schedule(times, lambda t, y, args: y * y + 1), Schedule(once, lambda t, y, args: 3 * y)
        events = [square, triple] if first else [triple, square]
        saved = jnp.array([max(at, 1e-9), 3.0])  # at the start itself the state is the one after the first row
        options = dict(t0=0.0, t1=3.0, events=events, saveat=saved, rtol=1e-9, atol=1e-11) | how
        return sciml.solve(lambda t, y, args: -0.3 * y, jnp.array(0.5), **options).ys

    for first in (True, False):
        expected = end(np.full(2, at), np.full(1, at), first)
        found = jax.jit(lambda *x: end(*x, first))(jnp.full(2, at), jnp.full(1, at))  # noqa: B023
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    add = lambda times: Schedule(times, lambda t, y, args: y + 1.0)  # noqa: E731
    solve = lambda events: sciml.solve(lambda t, y, args: -y, jnp.array(0.5), t0=0.0, t1=3.0, events=events)  # noqa: E731
    many = jax.jit(lambda times: solve(add(times)).ys[-1])(jnp.full(12, at))
    np.testing.assert_allclose(many, 0.5 * np.exp(-3) + 12 * np.exp(at - 3), rtol=1e-3)


def test_traced_rows_at_the_end_in_single_precision_and_of_members():
    def end(times):
        given = Schedule(times, lambda t, y, args: 2 * y + 1.0)
        return sciml.solve(lambda t, y, args: -0.3 * y, jnp.ones((), times.dtype), t0=0.0, t1=3.0, events=given).ys[-1]

    times = jnp.array([[1.0, 3.0, 3.0], [3.0, 3.0, jnp.inf]], jnp.float32)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(end))(times),
        [4 * (1 + 2 * np.exp(-0.3)) * np.exp(-0.6) + 3, 4 * np.exp(-0.9) + 3],
        rtol=1e-3,
    )


def test_what_happened_is_printed():
    given = Schedule([0.5, 1.0, 1.0], lambda t, y, args: y + 1.0)
    solve = lambda y: sciml.solve(lambda t, y, args: -y, y, t0=0.0, t1=2.0, events=given, max_events=2)  # noqa: E731
    assert str(solve(jnp.array(1.0)).events) == (
        "3 events, the first 2 of which are kept\n  t=0.5  event 0\n  t=1  event 0"
    )
    assert str(jax.vmap(solve)(jnp.ones(3)).events) == "9 events of 3 members, 3 to 3 each"


def test_where_adjoints_are():
    with pytest.raises(AttributeError, match=r"take `sciml.adjoints.Gauss`"):
        sciml.Gauss  # noqa: B018


def test_a_status_names_the_schedule_that_is_out_of_order():
    times = jax.jit(lambda x: jnp.stack([2.0 + x, 1.0 + x]))

    def end(x):
        return sciml.solve(
            lambda t, y, args: -y, jnp.ones(()), t0=0.0, t1=3.0, throw=False, events=sciml.Schedule(times(x), keep)
        ).status

    status = jax.jit(end)(0.0)
    assert status == sciml.Status.invalid_argument and "`Schedule`" in sciml.Status(int(status)).message


def keep(t, y, args):
    return y


@pytest.mark.x64
def test_an_event_at_a_schedule_at_the_end_fires_with_it():
    """In their order, as in one solve to a later end: a solve that resumes there does not know which came first."""
    later = Schedule([0.5], lambda t, y, args: y + 1)
    doubled = sciml.Event(lambda t, y, args: t - 0.5, lambda t, y, args: 2 * y)
    half = np.exp(-0.5)
    for events, wanted in (((later, doubled), 2 * (half + 1)), ((doubled, later), 2 * half + 1)):
        saveat = diffrax.SaveAt(t1=True, solver_state=True)
        solve = lambda t1, **more: sciml.solve(  # noqa: E731
            lambda t, y, args: -y,
            jnp.array(1.0),
            t0=0.0,
            t1=t1,
            dt=0.125,
            events=events,
            saveat=saveat,
            **more,  # noqa: B023
        )
        first = solve(0.5)
        np.testing.assert_allclose(first.ys[0], wanted, rtol=1e-6)
        second = solve(1.0, resume=first.resume)
        assert second.events.count == 2
        np.testing.assert_allclose(second.ys[0], wanted * half, rtol=1e-6)
