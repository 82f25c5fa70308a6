"""Models with events and doses against their exact solutions, derivatives included."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models, verify
from tests.conftest import X64

RTOL, LOOSE = (1e-6, 1e-5) if X64 else (2e-4, 2e-3)
TIGHT = dict(rtol=1e-8, atol=1e-10) if X64 else dict(rtol=1e-5, atol=1e-6)


def same_leaves(got, want, rtol):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    size = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(want))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * size)


# --- a ball

THROWN = jnp.array([1.0, 0.5])


def solved(ball, y0=THROWN, t1=2.5, **options):
    return sciml.solve(ball, y0, t0=0.0, t1=t1, events=ball.bounce(), **(TIGHT | options))


def test_flights_and_bounces():
    """Members that bounce more or less, one of them without a loss, at and between the times of bounces."""
    ts = jnp.linspace(0.0, 2.5, 26)
    balls = jax.vmap(lambda e: models.BouncingBall(restitution=e))(jnp.array([0.3, 0.75, 1.0]))
    sol = jax.jit(jax.vmap(lambda ball: solved(ball, saveat=ts, max_events=4)))(balls)
    exact = jax.vmap(lambda ball: verify.reference("bouncing_ball", ball, THROWN, ts))(balls)
    np.testing.assert_allclose(sol.ys[1:], exact[1:], atol=20 * RTOL, rtol=0)
    times = jax.vmap(lambda ball: verify.reference("bounce_times", ball, THROWN, 4))(balls)
    np.testing.assert_allclose(sol.events.times, np.where(times < 2.5, times, np.nan), rtol=RTOL)
    assert np.nanmax(np.abs(sol.events.states_before[..., 0])) < 20 * RTOL
    # the first one comes to rest on the way, where no solver can follow it
    assert sciml.Status(int(sol.status[0])) == sciml.Status.crowded_events and np.all(sol.status[1:] == 0)
    assert np.all(exact[0, -5:] == 0) and np.all(np.isnan(sol.ys[0, -1]))


def test_derivatives_of_bounces():
    def third(ball, y0):
        return solved(ball, y0, t1=2.0, max_events=3).events.times[2]

    ball = models.BouncingBall()
    got = jax.jit(jax.grad(third, argnums=(0, 1)))(ball, THROWN)
    want = jax.grad(lambda ball, y0: verify.reference("bounce_times", ball, y0, 3)[2], argnums=(0, 1))(ball, THROWN)
    same_leaves(got, want, LOOSE)
    assert abs(want[0].restitution) > 0.5


def test_the_closed_form_lands_where_it_says():
    for e in (0.5, 0.9, 1.0):
        ball = models.BouncingBall(gravity=10.0, restitution=e)
        times = verify.reference("bounce_times", ball, THROWN, 5)
        for side in (1 - 3 * RTOL, 1 + 3 * RTOL):
            np.testing.assert_allclose(
                verify.reference("bouncing_ball", ball, THROWN, side * times)[:, 0], 0, atol=200 * RTOL
            )
        speeds = verify.reference("bouncing_ball", ball, THROWN, (1 + 3 * RTOL) * times)[:, 1]
        np.testing.assert_allclose(speeds, 20.25**0.5 * e ** np.arange(1.0, 6.0), rtol=1e3 * RTOL)


def test_a_ball_at_rest_ends_the_solve():
    """At the top of the first flight that is low enough, where the closed form has it; derivatives go through."""

    def end(ball, limit=0.01):
        events, options = [ball.bounce(), ball.at_rest(limit)], dict(adjoint=sciml.adjoints.Direct(), throw=False)
        return sciml.solve(ball, jnp.array([1.0, 0.0]), t0=0.0, t1=20.0, events=events, **options, **TIGHT)

    ball = models.BouncingBall(restitution=0.5)
    sol = jax.jit(end)(ball)  # flights are as high as 1/4, 1/16, 1/64, 1/256
    assert int(sol.status) == sciml.Status.event and list(sol.events.which[:6]) == [0, 0, 0, 0, 1, -1]

    def top(ball):
        return verify.reference("bounce_times", ball, jnp.array([1.0, 0.0]), 5)[3:].mean()

    np.testing.assert_allclose(sol.t_reached, top(ball), rtol=RTOL)
    np.testing.assert_allclose(sol.ys[-1], [1 / 256, 0.0], atol=20 * RTOL)
    got = jax.jit(jax.jacfwd(lambda ball: end(ball).t_reached))(ball)
    same_leaves(got, jax.grad(top)(ball), LOOSE)
    np.testing.assert_allclose(ball.energy(sol.ys[-1]), 9.81 / 256, rtol=100 * RTOL)


# --- a neuron


def test_the_period_of_a_neuron_and_its_derivatives():
    neuron = models.IntegrateAndFire(rest=-64.0, current=2.2)

    def period(neuron):
        options = dict(events=neuron.spike(), adjoint=sciml.adjoints.Direct(), max_events=3)
        times = sciml.solve(neuron, jnp.array([-60.0]), t0=0.0, t1=40.0, **options, **TIGHT).events.times
        return times[2] - times[1], times[2] - times[1]

    got, found = jax.jit(jax.jacfwd(period, has_aux=True))(neuron)
    exact, want = jax.value_and_grad(lambda cell: verify.reference("firing_period", cell))(neuron)
    np.testing.assert_allclose(found, exact, rtol=RTOL)
    same_leaves(got, want, LOOSE)
    assert all(leaf != 0 for leaf in jax.tree.leaves(want))


def test_currents_below_the_threshold_fire_nothing():
    def count(current):
        neuron = models.IntegrateAndFire(current=current)
        return sciml.solve(neuron, jnp.array([-65.0]), t0=0.0, t1=100.0, events=neuron.spike()).events.count

    currents = jnp.array([1.4, 1.6, 2.0, 4.0])
    periods = jax.vmap(lambda i: verify.reference("firing_period", models.IntegrateAndFire(current=i)))(currents)
    np.testing.assert_array_equal(jax.jit(jax.vmap(count))(currents), np.floor(100.0 / np.asarray(periods)))
    assert periods[0] == np.inf


# --- a drug

DRUG = models.TwoCompartment(clearance=5.0, volume=20.0, exchange=8.0, peripheral_volume=40.0, absorption=1.2)
TS = jnp.linspace(0.0, 12.0, 13)


def superposed(drug, doses):
    """The amounts of doses of one kind each, `(time, (swallowed, injected, infused))`, added up."""

    def after(time, dose):
        problem = verify.problem("two_compartment", *dose, model=drug)
        each = jax.vmap(problem.solution)(jnp.maximum(TS - time, 0))
        return jnp.where((TS >= time)[:, None], each, 0)

    return sum(after(*dose) for dose in doses)


EXACT = [
    (0.0, (100.0, 0.0, 0.0)),
    (4.0, (60.0, 0.0, 0.0)),
    (1.5, (0.0, 30.0, 0.0)),
    # 40 in two hours from 2 on, and 30 in two hours from 3 on
    (2.0, (0.0, 0.0, 20.0)),
    (3.0, (0.0, 0.0, 15.0)),
    (4.0, (0.0, 0.0, -20.0)),
    (5.0, (0.0, 0.0, -15.0)),
]


def dosed(drug, **options):
    doses = [
        drug.oral(jnp.array([0.0, 4.0, jnp.inf]), jnp.array([100.0, 60.0, 0.0])),
        drug.boluses(jnp.array([1.5]), jnp.array([30.0])),
        drug.infusions(jnp.array([3.0, 2.0, jnp.inf]), jnp.array([30.0, 40.0, 0.0]), 2.0),
    ]
    return sciml.solve(drug, jnp.zeros(4), t0=0.0, t1=12.0, events=doses, saveat=TS, **TIGHT, **options).ys


def test_doses_of_every_kind_add_up():
    exact = jax.jit(superposed, static_argnums=1)(DRUG, tuple(EXACT))
    np.testing.assert_allclose(jax.jit(dosed)(DRUG), exact, atol=100 * RTOL, rtol=0)
    np.testing.assert_allclose(DRUG.concentration(exact), exact[:, 1] / 20.0, rtol=RTOL)


@pytest.mark.x64
def test_derivatives_along_a_direction_of_all_parameters_of_a_drug():
    along = jax.tree.map(lambda x, s: s * x, DRUG, models.TwoCompartment(1.0, -0.5, 0.7, 0.3, -0.8))
    direct = lambda drug: dosed(drug, adjoint=sciml.adjoints.Direct())  # noqa: E731
    got = jax.jit(lambda drug, v: jax.jvp(direct, (drug,), (v,))[1])(DRUG, along)
    want = jax.jvp(lambda drug: superposed(drug, tuple(EXACT)), (DRUG,), (along,))[1]
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max(), rtol=0)


def test_closed_form_where_rates_coincide():
    """Absorption as fast as what follows it, no exchange, and nothing that is cleared."""
    alike = models.TwoCompartment(clearance=2.0, volume=1.0, exchange=0.0, peripheral_volume=1.0, absorption=2.0)
    end = verify.problem("two_compartment", 10.0, 0.0, 0.0, model=alike).solution(0.5)
    np.testing.assert_allclose(end[1], 10 * 2.0 * 0.5 * np.exp(-1.0), rtol=RTOL)
    kept = eqx.tree_at(lambda m: m.clearance, DRUG, jnp.zeros(()))
    end = verify.problem("two_compartment", 10.0, 5.0, 2.0, model=kept).solution(3.0)
    np.testing.assert_allclose(end[:3].sum(), 10 + 5 + 3 * 2.0, rtol=RTOL)


def test_infusions_in_any_order_that_overlap_and_follow_at_once():
    starts, amounts = jnp.array([2.0, 0.0, jnp.inf, 1.0]), jnp.array([6.0, 2.0, 0.0, 4.0])
    schedule = models.TwoCompartment.infusions(starts, amounts, jnp.array([1.0, 1.0, 1.0, 2.0]))
    np.testing.assert_allclose(schedule.times, [0.0, 1.0, 2.0, 3.0] + [np.inf] * 4)
    np.testing.assert_allclose(schedule.values[:4], [2.0, 0.0, 6.0, -8.0])
    assert np.all(schedule.values[4:] == 0)
    end = models.TwoCompartment(clearance=0.0)

    def given(starts):
        events = end.infusions(starts, amounts, 1.0)
        return sciml.solve(end, jnp.zeros(4), t0=0.0, t1=4.0, events=events).ys[-1]

    each = jax.jit(jax.vmap(given))(jnp.stack([starts, jnp.array([3.5, 0.5, 0.5, 1.0])]))  # the first ends too late
    np.testing.assert_allclose(each[:, 1:3].sum(axis=1), [12.0, 9.0], rtol=LOOSE)
    np.testing.assert_allclose(each[:, 3], [0.0, 6.0], atol=1e-4)


# --- infusions at the edges of a solve


def infused(starts, amounts, durations, t0=0.0, t1=4.0, y0=None, start=None, **options):
    drug = models.TwoCompartment(clearance=2.0, volume=10.0, exchange=0.0)
    drips = drug.infusions(starts, amounts, durations, start)
    y0 = jnp.zeros(4) if y0 is None else y0
    return sciml.solve(drug, y0, t0=t0, t1=t1, events=drips, **(TIGHT | options))


def amount(start, end, rate, t=4.0):
    """What is there of an infusion at a rate from a start to an end, cleared at 0.2."""
    return rate / 0.2 * (np.exp(-0.2 * (t - end)) - np.exp(-0.2 * (t - start)))


def test_infusions_across_the_start_and_the_end():
    begun = dict(starts=jnp.array([-1.0]), amounts=jnp.array([60.0]), durations=3.0)
    with pytest.raises(sciml.SolveError, match="infusion"):
        infused(**begun)
    found = infused(**begun, start=0.0).ys[-1]
    np.testing.assert_allclose(found[1], amount(0.0, 2.0, 20.0), rtol=LOOSE)
    np.testing.assert_allclose(found[3], 0.0, atol=LOOSE)
    # a rate that the state has goes on, and one that has ended is over
    on = infused(**begun, y0=jnp.array([0.0, 0.0, 0.0, 20.0])).ys[-1]
    np.testing.assert_allclose(on, found, rtol=LOOSE, atol=LOOSE)
    assert infused(jnp.array([-5.0, -4.5]), jnp.array([1.0, 0.3]), 1.0).ys[-1, 1] == 0
    # one at the start, one that overlaps and goes on at the end, and one after it
    ends = infused(jnp.array([3.0, 0.0, 9.0]), jnp.array([60.0, 20.0, 7.0]), jnp.array([3.0, 4.0, 1.0]))
    np.testing.assert_allclose(ends.ys[-1, 1], amount(0.0, 4.0, 5.0) + amount(3.0, 4.0, 20.0), rtol=LOOSE)


@pytest.mark.x64
def test_derivatives_by_infusions():
    """Members whose infusions began before the start, and within; the traced duration of one is refused."""

    def end(start, amount, duration):
        sol = infused(start[None], amount[None], duration[None], start=0.0, throw=False)
        return sol.ys[-1, 1], sol.status

    given = jnp.array([-1.0, 1.0, 1.0]), jnp.array([60.0, 60.0, 60.0]), jnp.array([3.0, 2.0, -1.0])
    (values, status), found = jax.jit(jax.vmap(lambda *x: (end(*x), jax.grad(lambda *x: end(*x)[0], (0, 1, 2))(*x))))(
        *given
    )
    assert status.tolist() == [0, 0, int(sciml.Status.invalid_argument)] and np.isnan(values[2])
    exact = lambda s, a, d: amount(max(s, 0.0), s + d, a / d)  # noqa: E731
    for member in range(2):
        x = np.array([v[member] for v in given])
        np.testing.assert_allclose(values[member], exact(*x), rtol=1e-6)
        steps = 1e-6 * np.eye(3)
        wanted = [(exact(*(x + e)) - exact(*(x - e))) / 2e-6 for e in steps]
        np.testing.assert_allclose([v[member] for v in found], wanted, rtol=1e-5)


@pytest.mark.parametrize("duration", [0.0, -1.0])
def test_a_duration_is_above_zero(duration):
    with pytest.raises(ValueError, match="`durations` of infusions must be positive"):
        models.TwoCompartment().infusions([0.0], [1.0], duration)


@pytest.mark.parametrize("kind", ["oral", "boluses", "infusions"])
def test_an_amount_is_not_negative(kind):
    """Known ones raise, except where the time is infinite; traced ones end with a status."""
    drug = models.TwoCompartment()
    make = getattr(drug, kind) if kind != "infusions" else lambda times, amounts: drug.infusions(times, amounts, 1.0)
    for wrong in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="`amounts` of doses must be finite and not negative"):
            make([0.0, 0.5], [1.0, wrong])
    make([0.5, np.inf], [1, -1])
    traced = jax.jit(lambda x: make(jnp.array([0.5, 2.0]), x).values)
    assert np.isfinite(traced(jnp.ones(2))).all() and np.isnan(traced(jnp.array([1.0, -1.0]))).any()


def test_a_traced_amount_that_is_negative_has_a_status():
    drug = models.TwoCompartment()

    @jax.jit
    @jax.vmap
    def status(amount):
        doses = drug.oral([0.5], amount[None])
        return sciml.solve(drug, jnp.zeros(4), t0=0.0, t1=1.0, dt=0.25, events=doses, throw=False).status

    assert status(jnp.array([1.0, -1.0, jnp.inf])).tolist() == [0, *[int(sciml.Status.nonfinite)] * 2]


# --- several infusions of schedules of their own


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", [sciml.adjoints.Checkpointed(), sciml.adjoints.Gauss()], ids=["discrete", "Gauss"])
@pytest.mark.parametrize(
    "starts, lasting",
    [([0.5, 1.0], [2.0, 2.0]), ([0.5, 1.5], [1.0, 1.0]), ([-1.0, 1.0], [3.0, 1.0])],
    ids=["overlap", "touch", "across the start"],
)
def test_two_schedules_of_infusions_add_up(starts, lasting, adjoint):
    drug, rate = models.TwoCompartment(clearance=2.0, volume=10.0, exchange=0.0), 0.2

    def exact(starts, amounts, lasting):
        begin, end = (4 - jnp.maximum(starts, 0), jnp.maximum(4 - starts - lasting, 0))
        return jnp.sum(amounts / lasting / rate * (jnp.exp(-rate * end) - jnp.exp(-rate * begin)))

    def amount(*given):
        events = [drug.infusions(*(x[i : i + 1] for x in given), start=0.0) for i in range(2)]
        sol = sciml.solve(drug, jnp.zeros(4), t0=0.0, t1=4.0, events=events, rtol=1e-7, atol=1e-9, adjoint=adjoint)
        return sol.ys[-1, 1]

    given = tuple(map(jnp.asarray, (starts, [50.0, 20.0], lasting)))
    (found, slopes), (right, wanted) = (jax.value_and_grad(f, argnums=(0, 1, 2))(*given) for f in (amount, exact))
    np.testing.assert_allclose(found, right, rtol=1e-6)
    for a, b in zip(slopes, wanted):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
