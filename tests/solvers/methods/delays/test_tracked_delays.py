"""Delays that depend on the time and the state, neutral and stiff equations, against exact and published solutions."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Delayed, Status
from sciml.adjoints import Checkpointed, Forward

ROOT = np.sqrt(2.0)


def feldstein_neves(shift=ROOT - 1, weight=1.0):
    """Feldstein and Neves (1984): a past state passes the start at t = 2, where the second derivative jumps."""
    return Delayed(lambda t, y, past, args: past / (2 * jnp.sqrt(t)), lambda t, y, args: t - weight * y + shift, 1.0)


def feldstein_neves_exact(t):
    return np.sqrt(t) if t <= 2 else t / 4 + 0.5 + (1 - ROOT / 2) * np.sqrt(t)


NEVES = Delayed(lambda t, y, past, args: y * past / t, lambda t, y, args: t - jnp.log(y), 1.0)
"""Neves (1975): y = t up to e, then exp(t / e)."""

VANISHES = Delayed(
    lambda t, y, past, args: jnp.stack([y[1], -past[1] * y[1] ** 2 * jnp.exp(1 - y[1])]),
    lambda t, y, args: t - jnp.exp(1 - y[1]),
    lambda t, args: jnp.stack([jnp.log(t), 1 / t]),
)
"""Enright and Hayashi (1997), example 3 of MATLAB's `ddesd`: (log t, 1 / t), with a delay that vanishes at t = 1."""


def pantograph_exact(t):
    terms = [1.0]
    for n in range(60):
        terms.append(terms[-1] * (-1 + 0.5**n / 2) * t / (n + 1))
    return sum(terms)


PANTOGRAPH = Delayed(lambda t, y, past, args: -y + past / 2, lambda t, y, args: t / 2, 1.0)

JACKIEWICZ = Delayed(
    lambda t, y, past, rate, args: (
        2 * jnp.cos(2 * t) * past ** (2 * jnp.cos(t)) + jnp.log(rate) - jnp.log(2 * jnp.cos(t)) - jnp.sin(t)
    ),
    lambda t, y, args: t / 2,
    lambda t, args: 1 + 2 * t,
    neutral=True,
)
"""Jackiewicz (1981), neutral, with a delay that vanishes at the start: exp(sin 2t)."""


@pytest.mark.x64
@pytest.mark.parametrize(
    ("model", "y0", "interval", "expected"),
    [
        (feldstein_neves(), 1.0, (1.0, 5.0), feldstein_neves_exact(5.0)),
        (NEVES, 1.0, (1.0, 5.0), np.exp(5 / np.e)),
        (VANISHES, np.array([np.log(0.1), 10.0]), (0.1, 5.0), [np.log(5), 0.2]),
        (PANTOGRAPH, 1.0, (0.0, 4.0), pantograph_exact(4.0)),
        (JACKIEWICZ, 1.0, (0.0, 1.0), np.exp(np.sin(2))),
    ],
    ids=["feldstein-neves", "neves", "enright-hayashi", "pantograph", "jackiewicz"],
)
def test_published_problems(model, y0, interval, expected):
    t0, t1 = interval
    sol = sciml.solve(model, y0, t0=t0, t1=t1, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(sol.ys[-1], expected, atol=1e-7, rtol=1e-7)


@pytest.mark.x64
def test_order():
    """Steps of given lengths, which end at breaking points; those longer than the second delay read themselves."""

    def field(t, y, past, args):
        return jnp.stack([y[0] * past[0][0] / t, -y[1] + past[1][1] / 2])

    both = Delayed(field, lambda t, y, args: jnp.stack([t - jnp.log(y[0]), (t - 1) / 2]), np.ones(2))

    def errors(dtmax):
        control = diffrax.PIDController(rtol=1.0, atol=1.0, dtmax=dtmax)
        end = sciml.solve(both, jnp.ones(2), t0=1.0, t1=5.0, dt0=dtmax, stepsize_controller=control).ys[-1]
        return end - np.array([np.exp(5 / np.e), pantograph_exact(4.0)])

    assert np.all(np.log2(np.abs(errors(0.25) / errors(0.125))) > 3.7)


@pytest.mark.x64
def test_derivatives_by_the_parameters_of_a_delay_where_the_state_jumps():
    """From 1.2 with a past of 1: the rate jumps where a past state passes the start, at a time that parameters move."""

    def end(p, tolerance=1e-9, **options):
        model = feldstein_neves(p[0], p[1])
        return sciml.solve(model, p[2], t0=1.0, t1=5.0, rtol=tolerance, atol=tolerance, **options).ys[-1]

    at, steps = jnp.array([ROOT - 1, 1.0, 1.2]), 1e-5 * jnp.eye(3)
    exact = jax.jit(jax.vmap(lambda p: end(p, 1e-12)))(jnp.concatenate([at[None] + steps, at[None] - steps]))
    expected = (exact[:3] - exact[3:]) / 2e-5
    forward = jax.jit(jax.jacfwd(lambda p: end(p, adjoint=Forward())))(at)
    np.testing.assert_allclose(forward, expected, atol=1e-6)
    reverse = jax.jit(jax.grad(lambda p: end(p, adjoint=Checkpointed())))(at)
    np.testing.assert_allclose(reverse, expected, atol=1e-6)


@pytest.mark.x64
def test_derivatives_of_members():
    def end(shift):
        return sciml.solve(feldstein_neves(shift), 1.2, t0=1.0, t1=3.0, rtol=1e-6, atol=1e-6).ys[-1]

    members = jnp.array([ROOT - 1, ROOT - 0.9])
    each = jax.jit(jax.vmap(jax.grad(end)))(members)
    whole = jax.jit(jax.grad(lambda shifts: jnp.sum(jax.vmap(end)(shifts))))(members)
    np.testing.assert_allclose(each, whole, rtol=1e-10)


@pytest.mark.x64
def test_derivatives_through_steps_that_read_themselves():
    def end(p):
        model = Delayed(lambda t, y, past, args: -y + past * p[0], lambda t, y, args: p[1] * t + 0.01 * y**2, 1.0)
        return sciml.solve(model, 1.0, t0=0.0, t1=2.0, rtol=1e-9, atol=1e-9).ys[-1]

    at, steps = jnp.array([0.5, 0.3]), 1e-4 * jnp.eye(2)
    many = jax.jit(jax.vmap(end))(jnp.concatenate([at[None] + steps, at[None] - steps]))
    np.testing.assert_allclose(jax.jit(jax.grad(end))(at), (many[:2] - many[2:]) / 2e-4, atol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize("options", [dict(dt=0.125), dict(rtol=1e-10, atol=1e-10)], ids=["fixed", "adaptive"])
def test_a_neutral_equation_never_becomes_smooth(options):
    """y' = y'(t - tau) + 1 from a constant history: a line of the slope n + 1 between n tau and (n + 1) tau."""

    def end(delay):
        model = Delayed(lambda t, y, past, rate, args: rate + 1, delay, history=0.0, neutral=True)
        return sciml.solve(model, 0.0, t0=0.0, t1=3.5, saveat=jnp.array([1.0, 2.0, 3.5]), **options).ys

    np.testing.assert_allclose(end(1.0), [1.0, 3.0, 8.0], atol=1e-9)
    if "dt" not in options:  # -(1 + 2 + 3), for each kink moves away
        np.testing.assert_allclose(jax.jit(jax.grad(lambda x: end(x)[-1]))(1.0), -6.0, atol=1e-8)


@pytest.mark.x64
def test_the_rates_of_a_neutral_equation_are_of_the_order_of_the_method():
    """y' = y + y(t - 1) - y'(t - 1) / 4 after y = -t, of Jackiewicz (1982)."""
    model = Delayed(lambda t, y, past, rate, args: y + past - rate / 4, 1.0, lambda t, args: -t, 80, neutral=True)
    end = jax.jit(lambda dt: sciml.solve(model, 0.0, t0=0.0, t1=1.5, dt=dt).ys[-1])
    errors = np.abs(np.asarray([end(1 / n) - end(1 / 64) for n in (4, 8)]))
    assert np.log2(errors[0] / errors[1]) > 3.7


STIFF = 1e6


def prothero_robinson(delays):
    """Prothero and Robinson's problem with a past state: sin t."""
    rate = lambda t, y, past, args: -STIFF * (y - jnp.sin(t)) + jnp.cos(t) + past - jnp.sin(t - 1)  # noqa: E731
    return Delayed(rate, delays, lambda t, args: jnp.sin(t))


@pytest.mark.x64
@pytest.mark.parametrize("solver", [sciml.solvers.Rodas5P(), sciml.solvers.Radau5(), diffrax.Kvaerno5()])
def test_stiff(solver):
    sol = sciml.solve(prothero_robinson(1.0), 0.0, t0=0.0, t1=10.0, rtol=1e-7, atol=1e-7, solver=solver)
    np.testing.assert_allclose(sol.ys[-1], np.sin(10.0), atol=1e-6)
    assert sol.stats.accepted < 300


def test_float32_and_members():
    y0 = jnp.ones((), jnp.float32)
    solve = lambda shift: sciml.solve(feldstein_neves(shift), y0, t0=1.0, t1=5.0, rtol=1e-5, atol=1e-5).ys[-1]  # noqa: E731
    found = jax.jit(jax.vmap(solve))(jnp.array([ROOT - 1, ROOT - 0.9], jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found[0], feldstein_neves_exact(5.0), rtol=2e-4)


def test_what_ends_a_solve():
    ahead = Delayed(lambda t, y, past, args: -past, lambda t, y, args: 1.0 - t, 1.0)
    sol = sciml.solve(ahead, 1.0, t0=0.0, t1=3.0, rtol=1e-4, atol=1e-4, throw=False)
    assert sol.status == Status.negative_delay and 0.9 < sol.t_reached < 2.0
    far = Delayed(lambda t, y, past, args: -y + 0 * past, lambda t, y, args: 5.0, 1.0, kept=4)
    sol = sciml.solve(far, 1.0, t0=0.0, t1=20.0, rtol=1e-6, atol=1e-8, throw=False)
    assert sol.status == Status.history_too_short


def test_a_negative_delay_at_the_start():
    options = dict(t0=2.0, t1=2.5, rtol=1e-3, atol=1e-3, solver=diffrax.Heun(), throw=False)

    def solve(shift):
        model = Delayed(lambda t, y, past, args: -past[0], lambda t, y, args: jnp.stack([y, (t - 2) * y + args]), 1.0)
        return sciml.solve(model, 1.0, **options, args=shift).status

    with pytest.raises(
        ValueError, match=r"`delays\(t, y, args\)` must not be .*start, t = 2, it returns \[ 1.  -0.5\]"
    ):
        solve(-0.5)
    with pytest.raises(ValueError, match=r"must not be negative.*\[ 1. nan\]"):
        solve(jnp.nan)
    assert solve(-1e-15) == Status.successful  # by rounding
    assert jax.jit(solve)(-0.5) == Status.negative_delay


def test_a_negative_delay_at_the_start_of_a_run():
    model = Delayed(lambda t, y, past, args: -past, lambda t, y, args: args - 1.0, 1.0)
    with pytest.raises(ValueError, match="must not be negative"):
        sciml.simulate(model, jnp.ones(()), t0=0.0, t1=1.0, args=0.5, rtol=1e-3, atol=1e-3, save_every=0.5)


def test_refusals():
    solve = lambda model, **more: sciml.solve(model, 1.0, **(dict(t0=1.0, t1=2.0, rtol=1e-3) | more))  # noqa: E731
    with pytest.raises(ValueError, match="require error control"):
        solve(NEVES, dt=0.1, rtol=None)
    neutral = Delayed(lambda t, y, past, rate, args: rate, 1.0, 1.0, neutral=True)
    with pytest.raises(ValueError, match="must divide the delays of a neutral equation"):
        solve(neutral, dt=0.15, rtol=None)
    with pytest.raises(TypeError, match=r"solver=.*does not support delays"):
        solve(NEVES, solver=sciml.solvers.BDF())
    with pytest.raises(TypeError, match=r"`delays` must be callable as `delays\(t, y, args\)`"):
        Delayed(lambda t, y, past, args: past, lambda t: t, 1.0)
    with pytest.raises(TypeError, match=r"`field\(t, y, delayed, rates, args\)`"):
        Delayed(lambda t, y, past, args: past, 1.0, 1.0, neutral=True)
    with pytest.raises(ValueError, match=r"`delays\(t, y, args\)` must return a number"):
        solve(Delayed(lambda t, y, past, args: past, lambda t, y, args: (t, t), 1.0))


@pytest.mark.x64
def test_derivatives_of_saved_states_before_a_breaking_point_that_moves():
    """Cubic dense output reads the end of a step, whose state has the derivatives that it has after the jump there."""

    def saved(rate):
        lag = lambda t, y, args: 0.26 * (1 + 0.3 * t + 0.2 * y)  # noqa: E731
        model = Delayed(lambda t, y, past, rate: -rate * past, lag, 1.0)
        how = dict(t0=0.0, t1=1.0, args=rate, rtol=1e-7, atol=1e-7, solver=diffrax.Bosh3())
        return sciml.solve(model, jnp.array(0.95), saveat=jnp.array([0.05, 0.25]), **how).ys

    # the past is the history up to there: y = 0.95 - rate t
    np.testing.assert_allclose(jax.jacrev(saved)(jnp.array(1.5)), [-0.05, -0.25], rtol=1e-12)
