"""Events of methods that interpolate nothing, of reactions and of equations with delays, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Event, Schedule, Status
from sciml.adjoints import Checkpointed, Forward
from sciml.solvers import ARK, ARS, ETDRK, Gillespie, Krogstad4, TauLeaping

from ..noise.test_brownian import within

KEYS = jax.random.split(jax.random.key(0), 400)


class Split(sciml.AbstractSplit):
    """The first element is 1 / (1 + t), the second one very stiff."""

    rates: jax.Array

    def stiff(self, y, args):
        return -self.rates * y

    def rest(self, t, y, args):
        return y * (1 - y)

    def solve_shifted(self, shift, right, args):
        return right / (1 + shift * self.rates)


class Modes(sciml.AbstractSemilinear):
    """The same."""

    rates: jax.Array

    def transform(self, y):
        return 2.0 * y

    def inverse(self, modes):
        return 0.5 * modes

    def linear(self, args):
        return -self.rates

    def rest(self, t, modes, args):
        return modes * (1 - 0.5 * modes)


RATES = jnp.array([1.0, 1e4])


def levels(model, level, **how):
    """Falls to a level, jumps up by 0.3, and so on."""
    passes = Event(lambda t, y, args: y[0] - args, lambda t, y, args: y.at[0].add(0.3), direction=-1)
    return sciml.solve(model, jnp.ones(2), t0=0.0, t1=4.0, args=level, events=passes, max_events=3, **how)


def times_of(level):
    first = 1 / level - 1
    between = 1 / level - 1 / (level + 0.3)
    return first + between * jnp.arange(3.0)


@pytest.mark.x64
@pytest.mark.parametrize(
    ("model", "how"),
    [
        (Modes(RATES), dict(rtol=1e-9, atol=1e-9, solver=ETDRK(order=4))),
        (Split(RATES), dict(rtol=1e-8, atol=1e-8, solver=ARK(order=3))),
        (Split(RATES), dict(dt=1 / 512, solver=ARS(order=2))),
        (Modes(RATES), dict(dt=1 / 64, solver=Krogstad4())),
        (Modes(RATES), dict(rtol=1e-8, atol=1e-8, solver=ARK(order=3))),
    ],
    ids=["ETDRK4", "ARK324", "ARS222-fixed", "Krogstad4-fixed", "ARK324-modes"],
)
def test_exponential_and_implicit_explicit_methods(model, how):
    """Times in members, and states on both sides."""
    at = jnp.array([0.5, 0.6])
    found = jax.jit(jax.vmap(lambda x: levels(model, x, **how)))(at).events
    np.testing.assert_allclose(found.times, jax.vmap(times_of)(at), atol=1e-5 if "dt" in how else 1e-6)
    np.testing.assert_allclose(found.states_before[..., 0], np.tile(at[:, None], 3), atol=1e-9)
    np.testing.assert_allclose(found.states_after[..., 0], np.tile(at[:, None] + 0.3, 3), atol=1e-9)


@pytest.mark.x64
@pytest.mark.parametrize("case", ["exponential", "implicit-explicit"])
def test_derivatives_by_a_level(case):
    model, solver = (Modes(RATES), ETDRK(order=4)) if case == "exponential" else (Split(RATES), ARK(order=3))
    third = lambda x: levels(model, x, rtol=1e-7, atol=1e-7, solver=solver).events.times[2]  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(third))(0.5), jax.grad(lambda x: times_of(x)[2])(0.5), rtol=1e-4)


def test_states_around_an_event_of_a_field():
    """The mean of a field that decays: the same on both sides in the state's own variables, wherever steps end."""
    grid = sciml.spatial.Grid(16)
    heat = sciml.models.AllenCahn(grid, sciml.spatial.Periodic(), width=0.3)
    halves = Event(lambda t, u, args: jnp.max(u) - 0.5, lambda t, u, args: u - 0.2, direction=1)
    y0 = 0.2 + 0.1 * jnp.cos(2 * jnp.pi * grid.centers[0])
    sol = sciml.solve(heat, y0, t0=0.0, t1=3.0, dt=0.05, solver=ETDRK(order=4), events=halves)
    assert sol.events.count >= 1
    first = sol.events.states_before[0]
    np.testing.assert_allclose(jnp.max(first), 0.5, rtol=1e-4)
    np.testing.assert_allclose(sol.events.states_after[0], first - 0.2, atol=1e-5)


DECAY = sciml.Reactions([[-1]], lambda x, args: x)
FEW = Event(lambda t, x, args: x[0] - 3.0)


def test_a_path_of_single_reactions_ends_at_a_jump():
    """When ten have become three, in each member: on its own path, and with the law of a sum of waiting times."""
    solve = lambda key, **how: sciml.solve(DECAY, jnp.full(1, 10.0), t0=0.0, t1=40.0, key=key, **how)  # noqa: E731
    sol = jax.jit(jax.vmap(lambda key: solve(key, events=FEW)))(KEYS)
    assert np.all(sol.status == Status.event) and np.all(sol.events.states_before == 3)
    rates = np.arange(4.0, 11.0)
    within(np.asarray(sol.t_reached, np.float64), np.sum(1 / rates), np.sqrt(np.sum(1 / rates**2)))
    at = np.asarray(sol.t_reached)[:8]
    ts = np.stack([at * (1 - 1e-5), at * (1 + 1e-5)], axis=1)
    around = jax.jit(jax.vmap(lambda key, ts: solve(key, saveat=ts).ys[:, 0]))(KEYS[:8], jnp.asarray(ts))
    np.testing.assert_array_equal(around, np.tile([4.0, 3.0], (8, 1)))


def test_reactions_go_on_after_an_event():
    """Restocked at three, dosed at given times, and looked at when a clock says so: numbers are drawn anew."""
    restock = Event(lambda t, x, args: x[0] - 3.0, lambda t, x, args: x + 7.0, direction=-1)
    clock = Event(lambda t, x, args: t - 0.37, lambda t, x, args: x)
    solve = lambda key: sciml.solve(  # noqa: E731
        DECAY, jnp.full(1, 10.0), t0=0.0, t1=6.0, key=key, events=[restock, clock], max_events=8
    )
    sol = jax.jit(jax.vmap(solve))(KEYS)
    which, times = np.asarray(sol.events.which), np.asarray(sol.events.times, np.float64)
    np.testing.assert_allclose(times[which == 1], 0.37, rtol=1e-5)
    assert np.all(np.sum(which == 1, axis=1) == 1)
    of_restock = [t[w == 0] for t, w in zip(times, which)]
    between = np.concatenate([np.diff(t)[:3] for t in of_restock if len(t) >= 4])
    rates = np.arange(4.0, 11.0)
    within(between, np.sum(1 / rates), np.sqrt(np.sum(1 / rates**2)) * 1.1)
    assert len(np.unique(between)) == between.size
    after, before = np.asarray(sol.events.states_after), np.asarray(sol.events.states_before)
    assert np.all(after[which == 0] == 10) and np.all(before[which == 0] == 3) and np.all(sol.ys >= 3)
    doses = Schedule(jnp.array([0.5, 1.0]), lambda t, x, args, n: x + n, jnp.array([20.0, 5.0]))
    dosed = lambda key: sciml.solve(DECAY, jnp.full(1, 10.0), t0=0.0, t1=1.0, key=key, events=doses).ys[-1, 0]  # noqa: E731
    counts = np.asarray(jax.jit(jax.vmap(dosed))(KEYS), np.float64)
    mean = 10 * np.exp(-1.0) + 20 * np.exp(-0.5) + 5
    within(counts, mean, np.sqrt(10 * np.exp(-1.0) * (1 - np.exp(-1.0)) + 20 * np.exp(-0.5) * (1 - np.exp(-0.5))))


def test_leaps_are_looked_at_where_they_end():
    level = Event(lambda t, x, args: x[0] - 2e4)
    solve = lambda key: sciml.solve(  # noqa: E731
        DECAY, jnp.full(1, 1e5), t0=0.0, t1=4.0, key=key, events=level, solver=TauLeaping()
    )
    sol = jax.jit(jax.vmap(solve))(KEYS[:50])
    assert np.all(sol.status == Status.event) and np.all(sol.events.states_before <= 2e4)
    assert np.all(sol.events.states_before > 1.9e4)
    np.testing.assert_allclose(sol.t_reached, np.log(5.0), atol=0.05)
    for solver in (Gillespie(), TauLeaping()):  # a boolean becomes true at the last one
        gone = Event(lambda t, x, args: x[0] < 0.5)
        end = sciml.solve(DECAY, jnp.full(1, 5.0), t0=0.0, t1=99.0, key=KEYS[0], events=gone, solver=solver)
        assert end.status == Status.event and end.ys[-1, 0] == 0


FALL = sciml.Delayed(lambda t, y, past, args: -past, 1.0, history=1.0)


def jump(level, t1, **how):
    """The state falls, jumps up by one at a level, and its jump comes back."""
    passes = Event(lambda t, y, args: y - args, lambda t, y, args: y + 1.0, direction=-1)
    return sciml.solve(FALL, 1.0, t0=0.0, t1=t1, args=level, events=passes, **how)


def after_jump(level):
    """The state at 1.5 by integration from one jump of the rate to the next."""
    at = 1 - level
    parabola = lambda start, a, b: start * (b - a) - (b**2 - a**2) / 2  # noqa: E731
    return 1.0 - parabola(2.0, 1.0, 1.0 + at) - parabola(3.0, 1.0 + at, 1.5)


@pytest.mark.x64
@pytest.mark.parametrize("how", [dict(rtol=1e-8, atol=1e-8), dict(dt=0.125)], ids=["adaptive", "fixed"])
def test_a_jump_comes_back_after_the_delay(how):
    """Values, where the jump lies off any grid of steps, per member."""
    at = jnp.array([0.55, 0.52])
    values = jax.jit(jax.vmap(lambda level: jump(level, 1.5, **how).ys[-1]))(at)
    np.testing.assert_allclose(values, jax.vmap(after_jump)(at), atol=1e-9)


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", [Checkpointed(), Forward()], ids=lambda a: type(a).__name__)
def test_derivative_by_the_time_of_a_jump(adjoint):
    end = lambda level: jump(level, 1.5, rtol=1e-7, atol=1e-7, adjoint=adjoint).ys[-1]  # noqa: E731
    differentiate = jax.grad if isinstance(adjoint, Checkpointed) else jax.jacfwd
    np.testing.assert_allclose(jax.jit(differentiate(end))(0.55), -1.0, atol=1e-6)


@pytest.mark.x64
def test_more_events_than_are_remembered():
    doses = Schedule(jnp.linspace(0.01, 0.5, 20), lambda t, y, args: y + 0.1)
    sol = sciml.solve(FALL, 1.0, t0=0.0, t1=0.9, dt=0.125, events=doses, throw=False)
    assert sol.status == Status.nonfinite and np.isnan(sol.ys[-1])


@pytest.mark.x64
def test_doses_come_back_after_the_delay():
    doses = Schedule(jnp.array([0.5]), lambda t, y, args: y + 1.0)
    sol = sciml.solve(
        FALL, 1.0, t0=0.0, t1=2.0, rtol=1e-9, atol=1e-9, events=doses, saveat=jnp.array([0.5, 1.0, 1.5, 2.0])
    )
    np.testing.assert_allclose(sol.ys, [1.5, 1.0, 0.625, 0.0], atol=1e-9)
    end = jax.jit(
        lambda at: sciml.solve(
            FALL,
            1.0,
            t0=0.0,
            t1=2.0,
            rtol=1e-8,
            atol=1e-8,
            adjoint=Checkpointed(),
            events=Schedule(jnp.stack([at]), lambda t, y, args: y + 1.0),
        ).ys[-1]  # fmt: skip
    )
    by_time = jax.grad(end)(0.5)
    np.testing.assert_allclose(by_time, 1.0, atol=1e-6)  # later by so much, the past is lower for so long less


def test_refusals():
    with pytest.raises(ValueError, match="must return one number"):
        sciml.solve(FALL, 1.0, t0=0.0, t1=1.0, dt=0.25, events=Event(lambda t, y, args: jnp.stack([y, y])))
    with pytest.raises(ValueError, match="must return a state like `y0`"):
        sciml.solve(
            DECAY, jnp.full(1, 9.0), t0=0.0, t1=1.0, key=KEYS[0],
            events=Event(lambda t, x, args: x[0] - 3.0, lambda t, x, args: x[0]),
        )  # fmt: skip
    with pytest.raises(TypeError, match="lacks the structure that the solver requires"):
        levels(Modes(RATES), 0.5, dt=0.01, solver=ETDRK(order=4), adjoint=sciml.adjoints.Gauss())
