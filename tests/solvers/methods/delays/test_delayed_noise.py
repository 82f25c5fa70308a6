"""Delays with noise: plain loops with the same increments, strong orders, members, derivatives, and refusals."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

STEPS, DT = 24, 0.125


def drift(t, y, past, args):
    return -2 * y + args * past[1]


def diffusion(t, y, past, args):
    return 0.5 * y + 0.3 * past[0] + 0.1 * t


MODEL = sciml.Stochastic(sciml.Delayed(drift, [0.25, 1.0], history=lambda t, args: jnp.cos(t)), diffusion)
MOTION = sciml.Stochastic(lambda t, y, args: jnp.zeros_like(y), lambda t, y, args: 1.0, noise="additive")
PATH = sciml.BrownianPath(jax.random.key(1), 0.0, STEPS * DT, depth=9)
EVERY = DT * np.arange(STEPS + 1)


def solved(model, solver, y0=1.5, **options):
    given = dict(t0=0.0, t1=STEPS * DT, dt=DT, args=0.5, key=PATH, solver=solver, saveat=EVERY)
    return sciml.solve(model, y0, **(given | options))


def by_loop(milstein):
    w = np.diff(np.asarray(solved(MOTION, diffrax.Euler(), 0.0).ys))
    kept = 8
    ys = [*np.cos(-DT * np.arange(kept, 0, -1)), 1.5]
    for i, dw in enumerate(w):
        y, past = ys[-1], (ys[-1 - 2], ys[-1 - kept])
        g = diffusion(DT * i, y, past, 0.5)
        ys.append(y + DT * drift(0.0, y, past, 0.5) + g * dw + milstein * 0.25 * g * (dw**2 - DT))
    return np.asarray(ys[kept:])


@pytest.mark.x64
def test_plain_loops():
    # the history jumps at the start, from 1 to 1.5
    for solver, milstein in ((diffrax.Euler(), 0.0), (diffrax.ItoMilstein(), 1.0)):
        np.testing.assert_allclose(solved(MODEL, solver).ys, by_loop(milstein), atol=1e-13)


@pytest.mark.x64
def test_strong_orders():
    """Order 1 by Milstein's method if the diffusion reads no past state, and 1/2 if it does."""

    def end(key, model, dt):
        path = sciml.BrownianPath(key, 0.0, 2.0, depth=8)
        return sciml.solve(model, 1.0, t0=0.0, t1=2.0, dt=dt, key=path, solver=diffrax.ItoMilstein()).ys[-1]

    keys = jax.random.split(jax.random.key(0), 400)
    delayed = sciml.Delayed(lambda t, y, past, args: -past, 1.0, history=1.0)
    orders = []
    for g in (lambda t, y, past, args: y, lambda t, y, past, args: past):
        model = sciml.Stochastic(delayed, g)
        ends = [jax.jit(jax.vmap(lambda key, dt=dt: end(key, model, dt)))(keys) for dt in (1 / 8, 1 / 32, 1 / 256)]
        errors = [jnp.sqrt(jnp.mean((x - ends[-1]) ** 2)) for x in ends[:-1]]
        orders.append(float(jnp.log2(errors[0] / errors[1]) / 2))
    assert 0.85 < orders[0] < 1.2 and 0.4 < orders[1] < 0.7


@pytest.mark.x64
def test_members_and_derivatives():
    def end(args, key):
        return solved(MODEL, None, args=args, key=key, saveat=None).ys[-1]

    key, h = jax.random.key(2), 1e-5
    slope = jax.jit(jax.grad(end))(0.5, key)
    three = jax.jit(jax.vmap(end, (0, None)))(jnp.array([0.5 - h, 0.5, 0.5 + h]), key)
    np.testing.assert_allclose(slope, (three[2] - three[0]) / (2 * h), rtol=1e-7)
    np.testing.assert_allclose(three[1], end(0.5, key), rtol=1e-12)


def test_states_are_trees():
    """Two Brownian motions drive both leaves; the mean obeys the delay equation."""
    delayed = sciml.Delayed(lambda t, y, past, args: {"x": -past["x"]}, 1.0, history={"x": jnp.ones(2)})
    model = sciml.Stochastic(delayed, lambda t, y, past, args: {"x": 0.1 * jnp.ones((2, 2))}, noise="general")
    keys = jax.random.split(jax.random.key(0), 400)
    one = lambda key: sciml.solve(model, {"x": jnp.ones(2)}, t0=0.0, t1=2.0, dt=0.125, key=key).ys["x"][-1]  # noqa: E731
    assert jnp.max(jnp.abs(jax.vmap(one)(keys).mean(0) + 0.5)) < 0.04


def test_refusals():
    def changed(delays=1.0, **options):
        return sciml.Stochastic(sciml.Delayed(lambda t, y, *past: -y, delays, history=1.0, **options), diffusion)

    fixed = dict(dt=DT, saveat=None)
    cases = [
        (ValueError, "must divide the delays", lambda: solved(changed(0.3), diffrax.Euler(), **fixed)),
        (ValueError, "constant delays", lambda: solved(changed(lambda t, y, args: 1.0), diffrax.Euler(), **fixed)),
        (ValueError, "not neutral", lambda: solved(changed(neutral=True), diffrax.Euler(), **fixed)),
        (ValueError, "requires fixed steps", lambda: solved(MODEL, diffrax.SPaRK(), dt=None, rtol=1e-2)),
        (TypeError, "does not support noise with delays", lambda: solved(MODEL, sciml.solvers.SemiImplicitEuler())),
        (TypeError, "diffusion\\(t, y, past, args\\)", lambda: sciml.Stochastic(MODEL.without_noise, lambda t, y: y)),
        (TypeError, "Only `sciml.solve` supports it", lambda: MODEL.drift(0.0, 1.0, None)),
    ]
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()
