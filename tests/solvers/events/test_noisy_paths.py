"""Events on noisy paths with fixed steps: what is left of a step after one, the derivatives, and what a step costs."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers.noise._brownian import CountedSteps

KEY = jax.random.key(3)
NOISY = sciml.Stochastic(
    lambda t, y, args: args[0] - y, lambda t, y, args: args[1] * jnp.ones_like(y), noise="additive"
)
ARGS = jnp.array([1.0, 0.5, 0.6])


def solve(args, update, key=KEY, t1=2.0137, **options):
    level = sciml.Event(lambda t, y, args: y - args[2], update, direction=1)
    how = dict(t0=0.0, t1=t1, dt=0.02, solver=diffrax.Euler(), throw=False, args=args)
    return sciml.solve(NOISY, jnp.zeros(()), key=key, **(how | dict(events=level) | options))


def keep(t, y, args):
    return y


def reset(t, y, args):
    return 0 * y


def test_what_is_left_of_a_step_has_the_rest_of_its_increment():
    t0, dt, t1 = (jnp.asarray(x) for x in (5.0, 0.125, 6.0625))
    path = CountedSteps(jnp.array([1, 2], jnp.uint32), t0, dt, t1)
    plain = CountedSteps(path.words, t0, dt)
    over = lambda path, t, h: path.over(jnp.asarray(t, t0.dtype), jnp.asarray(h, t0.dtype), 3, t0.dtype, True)  # noqa: E731
    for start, length in ((5.25, 0.125), (6.0, 0.0625)):  # a whole step, and the shorter one at the end
        (w, area), (other, other_area) = over(path, start, length), over(plain, start, length)
        np.testing.assert_allclose(w, other, rtol=1e-6)
        np.testing.assert_allclose(area, other_area, rtol=1e-6)
        rest, flat = over(path, start + length / 4, 0.75 * length)
        np.testing.assert_allclose(rest, 0.75 * w, rtol=1e-5)
        assert np.all(flat == 0)
    assert path.rest(jnp.asarray(5.25, t0.dtype), dt) == dt
    np.testing.assert_allclose(path.rest(jnp.asarray(5.25 + 0.03125, t0.dtype), dt), 0.09375, rtol=1e-5)


def test_an_event_that_does_not_happen_leaves_the_path_as_it_is():
    never = jnp.array([1.0, 0.5, 9.0])
    ts = jnp.array([0.31, 1.0, 2.0137])
    tolerance = 1e-12 if jax.config.jax_enable_x64 else 2e-5
    np.testing.assert_allclose(
        solve(never, reset, saveat=ts).ys, solve(never, reset, saveat=ts, events=None).ys, rtol=tolerance
    )


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", [sciml.adjoints.Checkpointed(), sciml.adjoints.Forward()], ids=["rev", "fwd"])
def test_derivatives_are_those_of_the_path(adjoint):
    end = lambda args: solve(args, reset, adjoint=adjoint).ys[-1]  # noqa: E731
    found = (jax.jacfwd if isinstance(adjoint, sciml.adjoints.Forward) else jax.grad)(end)(ARGS)
    assert solve(ARGS, reset).events.count == 3
    ends = jax.jit(jax.vmap(end))(ARGS[None] + 1e-6 * jnp.concatenate([jnp.eye(3), -jnp.eye(3)]))
    np.testing.assert_allclose(found, (ends[:3] - ends[3:]) / 2e-6, rtol=1e-5)


def test_first_passages_have_their_law():
    """A path with a drift first reaches a level at its distance over the drift, in the mean, and an overshoot later."""
    drift, level, dt = 1.0, 1.0, 1 / 64
    walk = sciml.Stochastic(lambda t, y, args: drift + 0 * y, lambda t, y, args: 1.0 + 0 * y)
    first = sciml.Event(lambda t, y, args: y - level)

    def time(key):
        return sciml.solve(walk, 0.0, t0=0.0, t1=16.0, dt=dt, key=key, events=first, throw=False).t_reached

    times = np.asarray(jax.jit(jax.vmap(time))(jax.random.split(KEY, 4000)), np.float64)
    later = 0.5826 * np.sqrt(dt) / drift  # by which steps see a level too late
    assert abs(times.mean() - level / drift - later) < 4 * np.sqrt(level / drift**3 / 4000) + 0.2 * later


def test_a_neuron_fires_at_the_rate_of_its_drift():
    """What is left of a step keeps the overshoot, so that the mean rate is that of the drift, whatever the step is."""
    walk = sciml.Stochastic(lambda t, y, args: 1.0 + 0 * y, lambda t, y, args: 0.7 + 0 * y)
    fire = sciml.Event(lambda t, y, args: y - 1.0, lambda t, y, args: y - 1.0, direction=1)

    def count(key):
        sol = sciml.solve(walk, 0.0, t0=0.0, t1=8.0, dt=1 / 16, key=key, events=fire, max_events=1, throw=False)
        return sol.events.count.astype(sol.ys.dtype) + sol.ys[-1]

    fired = np.asarray(jax.jit(jax.vmap(count))(jax.random.split(KEY, 2000)), np.float64)
    np.testing.assert_allclose(fired.mean(), 8.0, atol=4 * 0.7 * np.sqrt(8 / 2000))


def test_a_step_draws_once():
    """Between events the noise of a step is drawn by its number: no tree of halves is walked, on any lane."""
    keys = jax.random.split(KEY, 1024)
    program = jax.jit(jax.vmap(lambda key: solve(ARGS, None, key).t_reached)).lower(keys).as_text()
    drawn = program.count("chlo.erf_inv")
    assert 0 < drawn <= 3  # by either step of an iteration, and by those that are gathered
    walked = jax.jit(jax.vmap(lambda key: solve(ARGS, None, sciml.BrownianPath(key, 0.0, 3.0)).t_reached))
    assert walked.lower(keys).as_text().count("chlo.erf_inv") > drawn
