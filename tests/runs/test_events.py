"""Events on the way of a long run: those of `solve`, wherever segments end, for members and after a crash."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

pytestmark = pytest.mark.x64


def ball(t, y, args):
    return jnp.stack([y[1], jnp.full_like(y[0], -9.81)])


def bounce(t, y, args):
    return jnp.stack([jnp.zeros_like(y[0]), -args * y[1]])


FLOOR = sciml.Event(lambda t, y, args: y[0], bounce, direction=-1)
OPTIONS = dict(t0=0.0, t1=2.0, rtol=1e-6, atol=1e-8, args=jnp.array(0.8), progress=False)
TS = np.linspace(0.0, 2.0, 21)


def simulate(y0, **options):
    return sciml.simulate(ball, y0, **{**OPTIONS, "saveat": TS, "events": FLOOR, "segment_steps": 7, **options})


def test_the_events_are_those_of_solve(tmp_path):
    y0 = jnp.array([1.0, 0.0])
    run = simulate(y0, store=tmp_path / "run")
    options = {k: v for k, v in OPTIONS.items() if k != "progress"}
    sol = sciml.solve(ball, y0, saveat=TS, events=FLOOR, **options)
    np.testing.assert_allclose(run.values, sol.ys, atol=1e-12)
    assert run.events.count == sol.events.count == 3
    np.testing.assert_allclose(run.events.times[:3], sol.events.times[:3], rtol=1e-12)
    again = simulate(y0, store=tmp_path / "run")  # nothing is left to do
    np.testing.assert_array_equal(again.events.times, run.events.times)


def test_members_end_at_their_own_events():
    heights = jnp.array([[0.5, 0.0], [1.0, 0.0], [30.0, 0.0]])
    landing = sciml.Event(lambda t, y, args: y[0], direction=-1)
    run = simulate(heights, in_axes=(None, 0, None), events=landing)
    fall = np.sqrt(2 * np.array([0.5, 1.0]) / 9.81)
    np.testing.assert_allclose(run.t_reached, [*fall, 2.0], rtol=1e-7)
    assert run.status.tolist() == [int(sciml.Status.event)] * 2 + [0]
    np.testing.assert_allclose(run.events.times[:2, 0], fall, rtol=1e-7)
    assert "2 ended by an event" in run.reason and "1 reached t1" in run.reason
    assert np.isnan(run.values[-1, 0]).all() and np.isfinite(run.values[-1, 2]).all()


def test_doses_with_members_that_have_a_model_each():
    doses = sciml.Schedule(jnp.array([0.0, 1.0]), lambda t, y, args, dose: y + dose, jnp.array([2.0, 1.0]))
    model = sciml.models.Linear(-jnp.array([[[0.5]], [[1.0]]]))
    run = sciml.simulate(
        model, jnp.zeros(1), t0=0.0, t1=2.0, in_axes=(0, None, None), events=doses, progress=False, rtol=1e-6, atol=1e-8
    )
    rates = np.array([0.5, 1.0])
    np.testing.assert_allclose(run.y[:, 0], 2 * np.exp(-2 * rates) + np.exp(-rates), rtol=1e-5)


def test_a_noisy_path_with_events_is_that_of_solve():
    model = sciml.Stochastic(lambda t, y, args: 1 - y, lambda t, y, args: 0.5 + 0 * y)
    level = sciml.Event(lambda t, y, args: y[0] - 0.8, lambda t, y, args: jnp.zeros_like(y), direction=1)
    options = dict(t0=0.0, t1=2.0, dt=0.05, key=jax.random.key(1), events=level)
    run = sciml.simulate(model, jnp.zeros(1), progress=False, segment_steps=9, **options)
    sol = sciml.solve(model, jnp.zeros(1), **options)
    assert sol.events.count >= 1 and run.events.count == sol.events.count
    np.testing.assert_allclose(run.y, sol.ys[-1], rtol=1e-12)


def test_what_has_no_events():
    with pytest.raises(ValueError, match="there are no `events`"):
        simulate(jnp.ones(2), events=None, max_events=3)
    with pytest.raises(TypeError, match="requires a model with a diagonal linear part"):
        simulate(jnp.ones(2), solver=sciml.solvers.ETDRK(order=4))
