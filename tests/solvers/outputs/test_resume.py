"""Solves that go on where others ended: two halves have the bits of one whole."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from sciml import Status
from sciml.solvers import BDF, ETDRK, RKC2, Rodas5P
from sciml.spatial import Grid, Periodic

KEY = jax.random.key(0)
BALL = sciml.models.BouncingBall(restitution=0.95)
NOISY = sciml.Stochastic(lambda t, y, args: -y + jnp.sin(3 * t), lambda t, y, args: 0.3 * y)
GRID = Grid(8)
WAVES = sciml.models.AllenCahn(GRID, Periodic(), width=0.3)
CASES: dict[str, tuple[Any, Any, dict]] = {
    "adaptive": (sciml.models.LotkaVolterra(), jnp.array([34.0, 5.9]), dict(rtol=1e-5)),
    "fixed": (sciml.models.LotkaVolterra(), jnp.array([34.0, 5.9]), dict(dt=1 / 16)),
    "stiff": (sciml.models.VanDerPol(mu=20.0), jnp.array([2.0, 0.0]), dict(solver=Rodas5P())),
    "controller": (
        sciml.models.VanDerPol(mu=5.0),
        jnp.array([2.0, 0.0]),
        dict(stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-5, pcoeff=0.3, icoeff=0.4, dcoeff=0.1)),
    ),
    "exponential": (WAVES, jnp.cos(2 * jnp.pi * GRID.centers[0]), dict(solver=ETDRK(order=4), dt=1 / 8)),
    "noise": (NOISY, jnp.ones(2), dict(key=KEY, dt=1 / 16)),
    "rough": (NOISY, jnp.ones(2), dict(key=sciml.BrownianPath(KEY, 0.0, 4.0), rtol=1e-2, atol=1e-3, dt0=0.01)),
    "events": (BALL, jnp.array([1.0, 0.0]), dict(events=BALL.bounce())),
    "delays": (sciml.Delayed(lambda t, y, past, args: -2 * past, 1.0, history=1.0), jnp.ones(()), dict(rtol=1e-4)),
    "reactions": (
        sciml.Reactions([[1], [-1]], lambda x, args: jnp.stack([10 + 0 * x[0], x[0]])),
        jnp.zeros(1),
        dict(key=KEY),
    ),
}


def solve(case, t1, ts, hands_out=False, **more):
    model, y0, options = CASES[case]
    saveat = diffrax.SaveAt(ts=ts, solver_state=True) if hands_out else np.asarray(ts)
    return sciml.solve(model, y0, t0=0.0, t1=t1, saveat=saveat, **options, **more)


@pytest.mark.optimised
@pytest.mark.parametrize("case", CASES)
def test_two_halves_are_the_whole(case):
    first = solve(case, 1.5, [0.25, 1.5], hands_out=True)
    second = solve(case, 4.0, [2.0, 3.25, 4.0], hands_out=case == "fixed", resume=first.resume)
    whole = solve(case, 4.0, [0.25, 1.5, 2.0, 3.25, 4.0] if case == "exponential" else [0.25, 2.0, 3.25, 4.0])
    if case == "exponential":  # whose steps end where states are saved
        np.testing.assert_array_equal(first.ys, whole.ys[:2])
    else:
        np.testing.assert_array_equal(first.ys[0], whole.ys[0])
    np.testing.assert_array_equal(second.ys, whole.ys[-3:])
    assert second.status == Status.successful and second.stats.accepted < whole.stats.accepted
    if case == "events":
        assert whole.events.count > first.events.count > 0
        for a, b in zip(jax.tree.leaves(second.events), jax.tree.leaves(whole.events)):
            np.testing.assert_array_equal(a, b)
    if case == "fixed":  # and once more
        third = solve(case, 6.0, [5.0, 6.0], resume=second.resume)
        np.testing.assert_array_equal(third.ys, solve(case, 6.0, [4.0, 5.0, 6.0]).ys[1:])


@pytest.mark.optimised
def test_members_go_on():
    """Each with steps of its own; those that came to their limit go on, too."""
    model, y0, _ = CASES["adaptive"]
    starts = y0[None] * jnp.array([1.0, 0.5, 0.2])[:, None]
    how = dict(t0=0.0, rtol=1e-4, throw=False)
    state = diffrax.SaveAt(solver_state=True)
    run = lambda y, resume=None, **more: sciml.solve(model, y, resume=resume, **how, **more)  # noqa: E731
    whole = jax.jit(jax.vmap(lambda y: run(y, t1=9.0, saveat=np.array([9.0]))))(starts)
    for first in (dict(t1=4.0), dict(t1=9.0, max_steps=8)):
        half = jax.jit(jax.vmap(lambda y, first=first: run(y, saveat=state, **first)))(starts)
        end = jax.jit(jax.vmap(lambda y, r: run(y, r, t1=9.0)))(starts, half.resume)
        np.testing.assert_array_equal(end.ys, whole.ys)
        assert np.all(end.status == 0) and np.all(end.stats.accepted < whole.stats.accepted)
    assert np.all(half.status == Status.max_steps_reached)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_members_on_devices_go_on(kind):
    """With the numbers of one device, and spread as before."""
    half = lambda y: sciml.solve(NOISY, y, t0=0.0, t1=1.0, dt=0.25, key=KEY, saveat=diffrax.SaveAt(solver_state=True))  # noqa: E731
    end = lambda y, r: sciml.solve(NOISY, y, t0=0.0, t1=2.0, dt=0.25, key=KEY, resume=r).ys  # noqa: E731
    starts = jnp.linspace(0.5, 1.0, 8).reshape(4, 2)
    mesh = jax.make_mesh((2,), ("m",), (kind,), devices=jax.devices()[:2])
    spread = jax.device_put(starts, NamedSharding(mesh, P("m")))
    found = jax.jit(jax.vmap(end))(spread, jax.jit(jax.vmap(half))(spread).resume)
    assert found.sharding.spec[0] == "m"
    plain = jax.jit(jax.vmap(end))(starts, jax.jit(jax.vmap(half))(starts).resume)
    np.testing.assert_allclose(found, plain, rtol=1e-12 if jax.config.jax_enable_x64 else 1e-5)


def eaten(t, y, rate):
    return jnp.stack([rate * y[0] - 0.1 * y[0] * y[1], -y[1] + 0.05 * y[0] * y[1]])


def falling(t, y, gravity):
    return jnp.stack([y[1], -9.81 * gravity])


BOUNCE = sciml.Event(lambda t, y, args: y[0], lambda t, y, args: jnp.stack([y[0], -0.9 * y[1]]), direction=-1)
FISH, DROPPED = jnp.array([20.0, 5.0]), jnp.array([1.0, 0.0])
DIFFERENTIATED: dict[str, tuple[Any, Any, dict]] = {
    "fixed": (eaten, FISH, dict(dt=1 / 16)),
    "adaptive": (eaten, FISH, dict(rtol=1e-7)),
    "several steps": (eaten, FISH, dict(rtol=1e-5, atol=1e-7, solver=BDF())),
    "stiff": (eaten, FISH, dict(rtol=1e-5, atol=1e-7, solver=Rodas5P())),
    "ends at saved times": (
        lambda t, y, rate: -rate * y * jnp.sin(t),
        FISH,
        dict(rtol=1e-4, atol=1e-5, solver=RKC2(max_stages=20)),
    ),
    "events": (falling, DROPPED, dict(rtol=1e-7, atol=1e-9, events=BOUNCE, max_events=6)),
    "delays": (
        sciml.Delayed(lambda t, y, past, rate: -rate * past * y, 0.7, history=jnp.ones(2)),
        jnp.ones(2),
        dict(dt=1 / 16),
    ),
    "noise": (
        sciml.Stochastic(lambda t, y, rate: -rate * y, lambda t, y, rate: 0.1 * y),
        FISH,
        dict(dt=1 / 16, key=KEY),
    ),
}


def in_parts(case, parts, saved=False, **more):
    """A number that depends on all of a solve of so many parts, by parameter, start and times."""
    model, y0, options = DIFFERENTIATED[case]
    # every part saves at times of its own
    ends = np.linspace(0.0, 3.0, parts + 1)[1:-1] + 0.05
    times = np.array([0.4, 0.8, 2.7, 3.0])

    def total(rate, scale, t0, t1):
        how = dict(t0=t0, args=rate, throw=False, **options, **more)
        resume, found, first = None, 0.0, 0.0
        for end in (*ends, None):
            ts = times[(times > first) & (times <= (3.0 if end is None else end))]
            saveat = ts if saved else None
            if end is not None:
                saveat = diffrax.SaveAt(ts=ts if saved else None, t1=not saved, solver_state=True)
            sol = sciml.solve(model, scale * y0, t1=t1 if end is None else end, saveat=saveat, resume=resume, **how)
            if saved or end is None:
                found = found + jnp.sum(sol.ys**2)
            resume, first = sol.resume, end
        if sol.events is not None:
            found = found + jnp.sum(jnp.nan_to_num(sol.events.times) * jnp.arange(1.0, 7.0))
        return found

    return total


ADJOINTS = {
    "Checkpointed": sciml.adjoints.Checkpointed(),
    "few records": sciml.adjoints.Checkpointed(segments=16),
    "Forward": sciml.adjoints.Forward(),
    "Direct": sciml.adjoints.Direct(),
}


@pytest.mark.x64
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("adjoint", ADJOINTS)
@pytest.mark.parametrize("case", DIFFERENTIATED)
def test_the_gradient_of_parts_is_that_of_the_whole(case, adjoint, saved):
    """By what went into the first part: parameter, start, and times where none are saved."""
    by = (0, 1) if saved or case in ("delays", "noise") else (0, 1, 2, 3)
    mode = jax.jacfwd if adjoint == "Direct" else jax.grad
    parts, whole = (
        jax.jit(mode(in_parts(case, n, saved, adjoint=ADJOINTS[adjoint]), by))(1.1, 1.0, 0.0, 3.0) for n in (2, 1)
    )
    assert all(x != 0 for x in whole[:2])
    np.testing.assert_allclose(parts, whole, rtol=1e-10)


@pytest.mark.x64
def test_gradients_of_three_parts_of_members_and_second_ones():
    """Under `vmap(grad)` and `grad(vmap)`, against differences, and forward over reverse."""
    one, whole = in_parts("fixed", 3), in_parts("fixed", 1)
    rates = jnp.linspace(0.9, 1.2, 4)
    found = jax.jit(jax.vmap(jax.grad(one), (0, None, None, None)))(rates, 1.0, 0.0, 3.0)
    np.testing.assert_allclose(
        found, jax.vmap(jax.grad(whole), (0, None, None, None))(rates, 1.0, 0.0, 3.0), rtol=1e-10
    )
    summed = jax.grad(lambda k: jnp.sum(jax.vmap(lambda k: one(k, 1.0, 0.0, 3.0))(k)))
    np.testing.assert_allclose(summed(rates), found, rtol=1e-10)
    differences = [(one(k + 1e-5, 1.0, 0.0, 3.0) - one(k - 1e-5, 1.0, 0.0, 3.0)) / 2e-5 for k in rates]
    np.testing.assert_allclose(found, differences, rtol=1e-6)
    second = [jax.jacfwd(jax.grad(fn))(1.1, 1.0, 0.0, 3.0) for fn in (one, whole)]
    np.testing.assert_allclose(*second, rtol=1e-9)


@pytest.mark.x64
def test_a_limit_of_steps_and_a_solve_that_had_ended_have_gradients_too():
    """What is handed out is then the state at the end."""
    one = in_parts("adaptive", 1)

    def by_limit(rate, scale):
        how = dict(t0=0.0, args=rate, rtol=1e-7, throw=False)
        first = sciml.solve(eaten, scale * FISH, t1=3.0, max_steps=7, saveat=diffrax.SaveAt(solver_state=True), **how)
        again = sciml.solve(eaten, FISH, t1=0.0 * scale + 3.0, resume=first.resume, **how)
        return jnp.sum(again.ys**2)

    found = jax.jit(jax.grad(by_limit, (0, 1)))(1.1, 1.0)
    np.testing.assert_allclose(found, jax.grad(one, (0, 1))(1.1, 1.0, 0.0, 3.0), rtol=1e-10)


def test_refusals():
    resume = solve("adaptive", 6.0, [6.0], hands_out=True).resume
    with pytest.raises(ValueError, match=r"from a different solve \(by Tsit5"):
        solve("stiff", 2.0, [2.0], resume=resume)
    with pytest.raises(ValueError, match="from a different solve"):
        solve("controller", 2.0, [2.0], resume=resume)
    with pytest.raises(TypeError, match="must be the `Solution.resume`"):
        solve("adaptive", 2.0, [2.0], resume=3.0)
    with pytest.raises(ValueError, match="diffrax runs this solve"):
        sciml.solve(*CASES["adaptive"][:2], t0=0.0, t1=1.0, solver=diffrax.ImplicitEuler(), resume=resume)
    with pytest.raises(ValueError, match="does not support `resume`"):
        solve("adaptive", 2.0, [2.0], resume=resume, adjoint=sciml.adjoints.Gauss())
    event = sciml.Event(lambda t, y, args: y[0] - 20.0, lambda t, y, args: y)
    with pytest.raises(ValueError, match=r"`adjoint=Gauss\(\)` does not support `resume`"):
        solve("adaptive", 2.0, [2.0], resume=resume, adjoint=sciml.adjoints.Gauss(), events=event)
    with pytest.raises(ValueError, match="second solve for `steps`, `fn`, `subs` and `dense`"):
        sciml.solve(*CASES["adaptive"][:2], t0=0.0, t1=1.0, saveat=diffrax.SaveAt(steps=True, solver_state=True))
    with pytest.raises(ValueError, match="pass a `sciml.BrownianPath`"):
        sciml.solve(*CASES["rough"][:2], t0=0.0, t1=1.0, key=KEY, rtol=1e-2, saveat=diffrax.SaveAt(solver_state=True))
    early = solve("adaptive", 0.1, [0.1], resume=resume, throw=False)
    assert early.status == Status.invalid_argument and np.all(np.isnan(early.ys))
    passed = solve("adaptive", 8.0, [0.1, 8.0], resume=resume, throw=False)
    assert passed.status == Status.invalid_argument and np.isnan(passed.ys[0, 0]) and np.isfinite(passed.ys[1, 0])
