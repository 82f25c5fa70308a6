"""Equations with delays against exact solutions, a loop in NumPy and differences, in members, and what is refused."""

import math

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P

import sciml
from sciml import Delayed, Status
from sciml.adjoints import Checkpointed, Direct, Forward
from sciml.solvers.methods.delays._method_of_steps import _sums

from ...common import close

STEPS = Delayed(lambda t, y, past, args: -past, 1.0, history=1.0)
SINE = Delayed(lambda t, y, past, args: -np.pi / 2 * past, 1.0, history=lambda t, args: jnp.sin(np.pi / 2 * t))


def logistic(delay, kept=64):
    return Delayed(lambda t, y, past, args: -args * past * y, delay, history=lambda t, args: 1 + 0.1 * t, kept=kept)


@pytest.mark.x64
@pytest.mark.parametrize("options", [dict(dt=0.125), dict(rtol=1e-8, atol=1e-8)], ids=["fixed", "adaptive"])
def test_polynomials_from_one_delay_to_the_next(options):
    ts = jnp.array([0.5, 1.0, 2.0, 2.5, 3.0])
    sol = sciml.solve(STEPS, 1.0, t0=0.0, t1=3.0, saveat=ts, **options)
    expected = [0.5, 0.0, -0.5, -0.5 + 0.5**2 / 2 - 0.5**3 / 6, -1 / 6]
    np.testing.assert_allclose(sol.ys, expected, atol=1e-13)


@pytest.mark.x64
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), diffrax.Dopri8()])
def test_the_past_is_as_accurate_as_the_tolerances(solver):
    """Steps of these methods are exact for polynomials, but the past that later steps read is cubic: 4e-3 off."""
    model = Delayed(lambda t, y, past, args: past, 1.0, history=1.0)
    sol = sciml.solve(model, 1.0, t0=0.0, t1=6.0, solver=solver, rtol=1e-8, atol=1e-8)
    expected = sum((7.0 - k) ** k / math.factorial(k) for k in range(8))
    np.testing.assert_allclose(sol.ys[-1], expected, rtol=1e-8)


@pytest.mark.x64
@pytest.mark.parametrize(("solver", "order"), [(diffrax.Bosh3(), 3), (diffrax.Tsit5(), 4), (diffrax.Heun(), 2)])
def test_order(solver, order):
    def error(n):
        sol = sciml.solve(SINE, 0.0, t0=0.0, t1=5.0, dt=1 / n, solver=solver)
        return abs(sol.ys[-1] - 1.0)

    assert np.log2(error(8) / error(16)) > order - 0.15
    sol = sciml.solve(SINE, 0.0, t0=0.0, t1=5.0, rtol=1e-8, atol=1e-8, saveat=jnp.array([1.3, 5.0]))
    np.testing.assert_allclose(sol.ys, np.sin(np.pi / 2 * np.array([1.3, 5.0])), atol=3e-5)


@pytest.mark.x64
@pytest.mark.parametrize(
    ("adjoint", "options"),
    [
        (Checkpointed(), dict(rtol=1e-8, atol=1e-8)),
        (Forward(), dict(dt=0.125)),
        (Forward(), dict(rtol=1e-8, atol=1e-8)),
    ],
    ids=["reverse-adaptive", "forward-fixed", "forward-adaptive"],
)
def test_derivatives_by_delays_where_the_state_jumps_at_the_start(adjoint, options):
    """Polynomials from 3 with a past of 1, by the delays, the time at the end and the past."""

    def end(delays, past):
        model = Delayed(lambda t, y, each, args: -each[0] - 2 * each[1], delays, history=past)
        return sciml.solve(model, 3.0, t0=0.5, t1=2.0, adjoint=adjoint, **options).ys[-1]

    def exact(delays, past):
        """With the first delay over once and the second, too, before the first is over twice."""
        a, b = delays
        late, later = 1.5 - a, 1.5 - b
        # before a the state falls at three times the past; then both pasts are known for as long as it takes
        of_first = past * a + 3.0 * late - 3 * past * late**2 / 2
        of_second = past * b + 3.0 * later - 3 * past * later**2 / 2
        return 3.0 - of_first - 2 * of_second

    delays, past = jnp.array([1.0, 1.25]), jnp.array(1.0)
    np.testing.assert_allclose(end(delays, past), exact(delays, past), atol=1e-9)
    differentiate = jax.grad if isinstance(adjoint, Checkpointed) else jax.jacfwd
    got, want = (jax.jit(differentiate(f, argnums=(0, 1)))(delays, past) for f in (end, exact))
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-8)
    if "dt" in options:
        members = jax.vmap(differentiate(end), in_axes=(None, 0))(delays, jnp.array([1.0, 2.0]))
        np.testing.assert_allclose(members[1], differentiate(exact)(delays, 2.0), atol=1e-8)


@pytest.mark.x64
def test_mackey_glass():
    """Beside a loop in NumPy with steps that end where past states are, and their middles by the cubic between them."""
    n, delay, dt = 680, 17.0, 17.0 / 680

    def field(x, past):
        return 0.2 * past / (1 + past**10) - 0.1 * x

    xs, rates = [1.2] * (n + 1), [(0.0, 0.0)] * n  # the history is constant
    for _ in range(round(100 / dt)):
        (a, b), now, (first, last) = xs[-n - 1 : -n + 1], xs[-1], rates[-n]
        middle = (a + b) / 2 + dt / 8 * (first - last)
        k1 = field(now, a)
        k2 = field(now + dt / 2 * k1, middle)
        k3 = field(now + dt / 2 * k2, middle)
        k4 = field(now + dt * k3, b)
        xs.append(now + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
        rates.append((k1, field(xs[-1], b)))
    t1 = dt * round(100 / dt)
    model = Delayed(lambda t, y, past, args: field(y, past), delay, history=1.2, kept=200)
    for options in (dict(dt=0.5), dict(rtol=1e-8, atol=1e-8)):
        np.testing.assert_allclose(sciml.solve(model, 1.2, t0=0.0, t1=t1, **options).ys[-1], xs[-1], atol=2e-5)


@pytest.mark.x64
def test_two_delays_and_a_tree():
    def field(t, y, past, args):
        once, twice = past
        return {"x": -once["x"] + 0 * y["x"], "v": twice["x"] * jnp.ones(2)}

    model = Delayed(field, [0.5, 1.0], history=lambda t, args: {"x": args, "v": jnp.zeros(2)})
    sol = sciml.solve(model, {"x": jnp.array(1.0), "v": jnp.zeros(2)}, t0=0.0, t1=1.0, dt=0.125, args=jnp.array(1.0))
    np.testing.assert_allclose(sol.ys["x"][-1], 1 - 1 + 0.5**2 / 2, atol=1e-12)
    np.testing.assert_allclose(sol.ys["v"][-1], 1.0, atol=1e-12)


@pytest.mark.x64
def test_gradients_by_delay_and_parameter():
    fine = dict(rtol=1e-11, atol=1e-11, max_steps=10_000)
    run = lambda x, **o: sciml.solve(  # noqa: E731
        logistic(x[0], kept=400), 1.0, t0=0.0, t1=4.0, args=x[1], **o
    ).ys[-1]
    at, exact = jnp.ones(2), jax.jit(lambda x: run(x, **fine))
    expected = [(exact(at + e) - exact(at - e)) / 2e-4 for e in 1e-4 * jnp.eye(2)]
    for adjoint in (Checkpointed(), Forward()):
        found = jax.jit(jax.grad(lambda x, a=adjoint: run(x, dt=1 / 16, adjoint=a)))(at)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = jax.jit(jax.jacfwd(lambda x: run(x, rtol=1e-8, atol=1e-8, adjoint=Direct())))(at)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.x64
def test_members():
    delays = jnp.array([0.8, 1.0, 1.3, 1.7])

    def solve(delay):
        options = dict(t0=0.0, t1=4.0, args=1.0, rtol=1e-6, atol=1e-6, saveat=jnp.array([1.0, 4.0]))
        return sciml.solve(logistic(delay), 1.0, **options).ys

    together = jax.jit(jax.vmap(solve))(delays)
    close(together[2], solve(delays[2]), rtol=1e-10)
    mesh = jax.make_mesh((4,), ("m",), devices=jax.devices()[:4])
    sharded = jax.jit(jax.vmap(solve))(jax.device_put(delays, NamedSharding(mesh, P("m"))))
    close(sharded, together, rtol=1e-10)
    loss = lambda delay: jnp.sum(solve(delay))  # noqa: E731
    each = jax.jit(jax.vmap(jax.grad(loss)))(delays)
    whole = jax.jit(jax.grad(lambda d: jnp.sum(jax.vmap(loss)(d))))(delays)
    np.testing.assert_allclose(each, whole, rtol=1e-8)


@pytest.mark.x64
def test_a_start_that_jumps():
    """Until one delay has passed the past is the history, to the end of a step that ends there."""
    model = Delayed(lambda t, y, past, args: -past, 1.0, history=1.0)
    for options in (dict(dt=1.0), dict(dt=0.25), dict(rtol=1e-8, atol=1e-8)):
        sol = sciml.solve(model, 2.0, t0=0.0, t1=2.0, saveat=jnp.array([1.0, 2.0]), **options)
        np.testing.assert_allclose(sol.ys, [1.0, -0.5], atol=1e-12)


def test_a_solve_of_no_length():
    def end(y0):
        return sciml.solve(STEPS, y0, t0=1.0, t1=1.0, dt=0.25).ys[-1]

    assert end(2.0) == 2.0 and jax.grad(end)(2.0) == 1.0


def test_float32():
    sol = sciml.solve(STEPS, jnp.ones((), jnp.float32), t0=0.0, t1=2.0, dt=0.25)
    assert sol.ys.dtype == jnp.float32
    np.testing.assert_allclose(sol.ys[-1], -0.5, atol=1e-5)


def test_what_is_too_far_back_is_a_status():
    model = Delayed(lambda t, y, past, args: -y + 0 * past, 5.0, history=1.0, kept=4)
    sol = sciml.solve(model, 1.0, t0=0.0, t1=20.0, rtol=1e-6, atol=1e-8, throw=False)
    assert sol.status == Status.history_too_short and sol.t_reached < 20.0
    long = jax.jit(lambda dt: sciml.solve(STEPS, 1.0, t0=0.0, t1=4.0, dt=dt, throw=False).status)
    assert long(2.0) == Status.history_too_short and long(0.5) == Status.successful


def test_refusals():
    solve = lambda model=STEPS, y0=1.0, **more: sciml.solve(model, y0, **(dict(t0=0.0, t1=1.0, dt=0.1) | more))  # noqa: E731
    with pytest.raises(ValueError, match="longer than the shortest delay"):
        solve(dt=1.5)
    with pytest.raises(TypeError, match=r"solver=.*does not support delays"):
        solve(solver=sciml.solvers.BDF())
    with pytest.raises(TypeError, match=r"Rodas5P\(mass=\.\.\.\)` does not support delays"):
        solve(solver=sciml.solvers.Rodas5P(mass=[[2.0]]))
    with pytest.raises(ValueError, match=r"adjoint=.*does not support delays"):
        solve(adjoint=sciml.adjoints.Gauss())
    with pytest.raises(ValueError, match="forwards in time"):
        solve(t1=-1.0, dt=-0.1)
    with pytest.raises(ValueError, match="`history` must be a state like `y0`"):
        solve(y0=jnp.ones(2))
    with pytest.raises(ValueError, match="`delays` must be positive"):
        Delayed(lambda t, y, past, args: y, -1.0, history=1.0)
    with pytest.raises(TypeError, match=r"`field\(t, y, delayed, args\)`, but its signature is \(t, y, args\)"):
        Delayed(lambda t, y, args: y, 1.0, history=1.0)
    with pytest.raises(ValueError, match="`kept`"):
        Delayed(lambda t, y, past, args: y, 1.0, history=1.0, kept=1)
    with pytest.raises(TypeError, match="`field` must be a function"):
        Delayed(1.0, 1.0, history=1.0)


@pytest.mark.x64
def test_every_step_and_a_function_of_the_state_are_saved_with_the_past():
    saveat = {"steps": diffrax.SubSaveAt(steps=True), "twice": diffrax.SubSaveAt(t1=True, fn=lambda t, y, args: 2 * y)}
    options = dict(t0=0.0, t1=3.0, rtol=1e-6, atol=1e-8, max_steps=64)
    sol = sciml.solve(STEPS, 1.0, saveat=diffrax.SaveAt(subs=saveat), **options)
    count = int(sol.stats.accepted)
    ts = np.asarray(sol.ts["steps"][:count])
    np.testing.assert_allclose(sol.ys["steps"][:count], sciml.solve(STEPS, 1.0, saveat=ts, **options).ys, rtol=1e-9)
    np.testing.assert_allclose(sol.ys["twice"], 2 * sol.ys["steps"][count - 1 : count], rtol=1e-9)


@pytest.mark.x64
def test_what_diffrax_would_run_without_the_past_is_refused():
    control = diffrax.ClipStepSizeController(diffrax.PIDController(rtol=1e-4, atol=1e-6))
    with pytest.raises(ValueError, match="A solve with delays only runs in sciml's own loops"):
        sciml.solve(STEPS, 1.0, t0=0.0, t1=3.0, stepsize_controller=control)


def test_delays_that_are_not_numbers():
    field = lambda t, y, past, args: -past  # noqa: E731
    with pytest.raises(TypeError, match="one function `delays.t, y, args.` that returns all delays"):
        Delayed(field, [1.0, lambda t, y, args: 1.0], history=1.0)
    with pytest.raises(TypeError, match="`delays` must be a number or an array of shape .*, but is 'long'"):
        Delayed(field, "long", history=1.0)


# --- a history that jumps

TIMES = jnp.array([0.5, 1.0, 1.5, 2.0])


def after_a_jump(jump, delay=1.0, y0=1.0, **options):
    before = lambda t, args: jnp.where(t < jump, 2.0, 1.0)  # noqa: E731
    model = sciml.Delayed(lambda t, y, past, args: -past, delay, before, jumps=jump)
    return sciml.solve(model, y0, t0=0.0, t1=2.0, saveat=TIMES, **options).ys


@pytest.mark.parametrize("options", [dict(dt=0.125), dict(dt=0.13), dict(rtol=1e-4)], ids=["fixed", "uneven", "error"])
def test_steps_end_where_a_jump_of_the_history_comes_back(options):
    np.testing.assert_allclose(after_a_jump(-0.5, **options), [0.0, -0.5, -0.75, -0.625], atol=2e-6)
    np.testing.assert_allclose(after_a_jump(-0.53, **options), [0.03, -0.47, -0.72045, -0.61045], atol=2e-6)


@pytest.mark.x64
def test_derivatives_by_a_jump_of_the_history_and_the_delay():
    """Members have a jump and a delay of their own."""
    end = lambda jump, delay: after_a_jump(jump, delay, rtol=1e-8, atol=1e-9)[-1]  # noqa: E731
    jumps, delays = jnp.array([-0.53, -0.2]), jnp.array([1.03, 1.15])
    found = jax.jit(jax.vmap(jax.grad(end, (0, 1))))(jumps, delays)
    both = jax.jit(jax.vmap(end))
    for by, (j, d) in zip(found, ((1e-5, 0.0), (0.0, 1e-5))):
        difference = (both(jumps + j, delays + d) - both(jumps - j, delays - d)) / 2e-5
        np.testing.assert_allclose(by, difference, rtol=1e-6)


def test_sums_of_delays():
    """Jumps come back after sums of different delays, too, of as few delays as the number of sums allows."""
    assert {tuple(x) for x in _sums(2)} >= {(1, 1), (2, 1), (1, 2), (6, 0), (0, 6)}
    assert len(_sums(1)) == 6 and (1, 1, 0) in {tuple(x) for x in _sums(3)}
    assert len(_sums(40)) == 6 * 40  # of many delays each alone


def test_jumps_that_are_none():
    with pytest.raises(ValueError, match="`jumps`"):
        sciml.Delayed(lambda t, y, past, args: -past, 1.0, 1.0, jumps=jnp.zeros((2, 2)))
