"""What a `diffrax.SaveAt` asks for beside states at given times: every step, functions of states, dense output."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

DENSE = diffrax.SaveAt(dense=True)
TS = np.array([0.0, 0.31, 0.5, 1.7, 2.0])


def field(t, y, args):
    return -args * y * jnp.cos(t)


def solve(rate=1.0, saveat=DENSE, **options):
    dtype = jnp.result_type(float)
    options = {"t0": 0.0, "t1": 2.0, "rtol": 1e-4, "atol": 1e-4, **options}
    if "dt" in options:
        options = {k: v for k, v in options.items() if k not in ("rtol", "atol")}
    return sciml.solve(field, jnp.array([1.0, 0.3], dtype), args=rate, saveat=saveat, **options)


def near(a, b, roundings=64):
    np.testing.assert_allclose(a, b, rtol=roundings * float(jnp.finfo(jnp.asarray(a).dtype).eps), atol=1e-14)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dt": 0.07},
        {"solver": diffrax.Euler(), "dt": 0.25},
        {"solver": sciml.solvers.Rosenbrock23()},
        {"batching": "refill"},
    ],
    ids=str,
)
def test_dense_output_is_what_would_have_been_saved(options):
    near(solve(**options).evaluate(TS), solve(saveat=TS, **options).ys)


def test_a_method_that_does_not_interpolate():
    sol = solve(solver=sciml.solvers.SSPRK43())
    np.testing.assert_allclose(sol.evaluate(TS)[:, 0], np.exp(-np.sin(TS)), rtol=1e-3)


def test_dense_output_backwards_in_time():
    near(solve(t0=2.0, t1=0.0).evaluate(TS[::-1]), solve(t0=2.0, t1=0.0, saveat=TS[::-1]).ys)


def test_shapes_of_times_and_states():
    y0 = {"a": jnp.ones((2, 3)), "b": jnp.ones(())}
    sol = sciml.solve(lambda t, y, args: jax.tree.map(jnp.negative, y), y0, t0=0.0, t1=1.0, saveat=DENSE)
    assert sol.ys["a"].shape == (1, 2, 3) and sol.ts.shape == (1,)
    assert sol.evaluate(0.5)["a"].shape == (2, 3)
    found = sol.evaluate(np.full((4, 1), 0.25))
    assert found["a"].shape == (4, 1, 2, 3) and found["b"].shape == (4, 1)
    np.testing.assert_allclose(found["b"], np.exp(-0.25), rtol=1e-3)


def test_outside_of_the_solve_it_is_nan():
    found = solve().evaluate(jnp.array([-0.5, 1.0, 2.5]))
    assert np.isnan(found[0]).all() and np.isnan(found[2]).all() and np.isfinite(found[1]).all()

    def until_one(t, y, args):
        return jnp.where(t < 1.0, -y, jnp.nan)

    sol = sciml.solve(until_one, jnp.ones(1), t0=0.0, t1=2.0, saveat=DENSE, throw=False)
    found = sol.evaluate(jnp.array([0.5, 1.5]))
    np.testing.assert_allclose(found[0], np.exp(-0.5), rtol=1e-3)
    assert sol.status == sciml.Status.nonfinite and np.isnan(found[1]).all()


def test_a_solve_of_no_length_is_known_at_its_start():
    found = solve(t1=0.0).evaluate(jnp.array([0.0, 0.5]))
    np.testing.assert_array_equal(found[0], jnp.array([1.0, 0.3], found.dtype))
    assert np.isnan(found[1]).all()
    ends = jnp.array([0.0, 1.0])
    starts = jax.vmap(lambda t1: solve(t1=t1, max_steps=16).evaluate(0.0))(ends)
    np.testing.assert_array_equal(starts, jnp.array([[1.0, 0.3]] * 2, starts.dtype))


def test_derivative_is_the_rate():
    sol = solve(1.3)
    near(sol.derivative(TS), field(TS[:, None], sol.evaluate(TS), 1.3))
    slope = jax.grad(lambda t: sol.evaluate(t)[0])(1.1)  # of the interpolation
    np.testing.assert_allclose(slope, sol.derivative(1.1)[0], rtol=3e-3)


def test_gradients_and_members():
    ts = np.array([0.3, 1.7])

    def dense(rate):
        return jnp.sum(solve(rate, max_steps=32).evaluate(ts))

    def saved(rate):
        return jnp.sum(solve(rate, saveat=ts).ys)

    rates = jnp.linspace(0.5, 1.5, 3)
    near(jax.vmap(dense)(rates), jax.vmap(saved)(rates), 256)
    near(jax.vmap(jax.grad(dense))(rates), jax.vmap(jax.grad(saved))(rates), 256)
    sols = jax.vmap(lambda rate: solve(rate, max_steps=32))(rates)
    near(
        jax.vmap(lambda sol: sol.evaluate(1.1))(sols),
        jax.vmap(lambda rate: solve(rate, saveat=[1.1]).ys[0])(rates),
        256,
    )
    with pytest.raises(ValueError, match="jax.vmap"):
        sols.evaluate(1.1)


def bounce(t, y, args):
    return jnp.stack([0 * y[0], -0.8 * y[1]])


@pytest.mark.parametrize("max_events, known", [(16, True), (2, False)])
def test_dense_output_across_events(max_events, known):
    floor = sciml.Event(lambda t, y, args: y[0], bounce, direction=-1)
    ball = lambda t, y, args: jnp.stack([y[1], jnp.full_like(y[0], -9.81)])  # noqa: E731
    options = {"t0": 0.0, "t1": 2.0, "events": floor, "max_events": max_events}
    sol = sciml.solve(ball, jnp.array([1.0, 0.0]), saveat=DENSE, **options)
    ts = np.linspace(0.0, 2.0, 21)
    saved = sciml.solve(ball, jnp.array([1.0, 0.0]), saveat=ts, **options).ys
    first, second = np.asarray(sol.events.times[:2], float)
    kept = (ts < second) | known
    np.testing.assert_allclose(sol.evaluate(ts)[kept], saved[kept], atol=2e-5)
    assert np.isnan(sol.evaluate(ts)[~kept]).all()
    for before, after in [(first - 1e-4, first + 1e-4)]:  # the state jumps between them
        np.testing.assert_allclose(sol.evaluate(after)[1], -0.8 * sol.evaluate(before)[1], atol=4e-3)


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_dense_output_beside_a_jump_of_the_field(backwards):
    """The steps that end and begin at the jump are taken again, each on its own side, whichever side `<` counts."""
    t0, t1, sign = (2.0, 0.0, -1) if backwards else (0.0, 2.0, 1)
    jump = 0.8

    def evaluated(when, ts):
        field = lambda t, y, a: jnp.stack([jnp.where(t < a, 0, 4), jnp.where(t <= a, 0, 4)]).astype(y.dtype) - y  # noqa: E731
        options = dict(args=when, events=sciml.Schedule(when[None]), saveat=DENSE, solver=diffrax.Tsit5())
        sol = sciml.solve(field, jnp.ones(2), t0=t0, t1=t1, rtol=1e-5, atol=1e-6, max_steps=64, **options)
        return sol.evaluate(ts)[:, 0] if ts.ndim else sol.evaluate(ts)[1]

    def exact(when, ts):
        first, then = (4.0, 0.0) if backwards else (0.0, 4.0)
        at_jump = first + (1 - first) * jnp.exp(t0 - when)
        before = first + (1 - first) * jnp.exp(t0 - ts)
        return jnp.where(sign * (ts - when) < 0, before, then + (at_jump - then) * jnp.exp(when - ts))

    ts = jump + sign * jnp.array([-0.05, -1e-3, -1e-5, 0.0, 1e-5, 1e-3, 0.05])
    np.testing.assert_allclose(evaluated(jnp.array(jump), ts), exact(jump, ts), rtol=2e-4)
    slope = jax.jit(jax.grad(evaluated))
    for t in () if backwards else (jump - 0.02, jump + 0.02):
        np.testing.assert_allclose(slope(jnp.array(jump), jnp.array(t)), jax.grad(exact)(jump, t), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("steps", [{"dt": 0.05}, {"rtol": 1e-2, "atol": 1e-2}], ids=str)
def test_a_noisy_path_is_a_line_between_steps(steps):
    model = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: 0.3 + 0 * y)
    options = {"t0": 0.0, "t1": 1.0, "key": jax.random.key(0), **steps}
    sol = sciml.solve(model, jnp.ones(2), saveat=DENSE, **options)
    ts = np.linspace(0.0, 1.0, 14)
    near(sol.evaluate(ts), sciml.solve(model, jnp.ones(2), saveat=ts, **options).ys)
    assert np.isnan(sol.evaluate(1.5)).all()
    with pytest.raises(ValueError, match="no time derivative"):
        sol.derivative(0.5)


def test_every_step_and_every_second():
    sol = solve(saveat=diffrax.SaveAt(steps=True), max_steps=20)
    count = int(sol.stats.accepted)
    assert sol.ts.shape == (20,) and np.isinf(sol.ts[count:]).all() and np.isnan(sol.ys[count:]).all()
    assert np.all(np.diff(sol.ts[:count]) > 0) and sol.ts[count - 1] == 2.0
    np.testing.assert_allclose(sol.ys[:count, 0], np.exp(-np.sin(np.asarray(sol.ts[:count], float))), rtol=1e-3)
    other = solve(saveat=diffrax.SaveAt(t0=True, steps=2, t1=True), max_steps=20)
    assert other.ts[0] == 0.0 and other.ts.shape == (11,)  # as in diffrax: no row for an end that is a second step
    np.testing.assert_array_equal(other.ts[1 : 1 + count // 2], sol.ts[1:count:2])
    assert other.ts[np.isfinite(other.ts)][-1] == 2.0
    twos = solve(saveat=diffrax.SaveAt(steps=2, t1=True), max_steps=20, dt=0.5)
    np.testing.assert_array_equal(twos.ts[:3], [1.0, 2.0, np.inf])  # the end once
    there = jax.vmap(lambda rate: solve(rate, diffrax.SaveAt(steps=True), max_steps=20).ts)(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(there[0, :count], sol.ts[:count], rtol=1e-5)
    assert np.isfinite(there[1]).sum() >= count


def test_several_outputs():
    subs = {
        "sum": diffrax.SubSaveAt(ts=[0.5, 1.5], fn=lambda t, y, args: (t, args * jnp.sum(y))),
        "state": [diffrax.SubSaveAt(t0=True, ts=[1.5]), diffrax.SubSaveAt(t1=True)],
    }
    sol = solve(2.0, saveat=diffrax.SaveAt(subs=subs))
    expected = solve(2.0, saveat=[0.0, 0.5, 1.5, 2.0]).ys
    near(sol.ts["sum"], [0.5, 1.5])
    near(sol.ys["sum"][0], [0.5, 1.5])
    near(sol.ys["sum"][1], 2 * expected[1:3].sum(1))
    near(sol.ys["state"][0], expected[np.array([0, 2])])
    near(sol.ys["state"][1], expected[3:])
    grad = jax.grad(lambda rate: jnp.sum(solve(rate, diffrax.SaveAt(subs=subs)).ys["sum"][1]))(2.0)
    other = jax.grad(lambda rate: jnp.sum(rate * solve(rate, [0.5, 1.5]).ys))(2.0)
    near(grad, other)


def test_what_cannot_be_saved():
    with pytest.raises(ValueError, match="only holds its saved times"):
        solve(saveat=[1.0]).evaluate(0.5)
    with pytest.raises(TypeError, match="holds str"):
        solve(saveat=diffrax.SaveAt(subs=["end"]))
    with pytest.raises(ValueError, match="own loops"):
        solve(solver=diffrax.ImplicitEuler())
    with pytest.raises(TypeError, match="real numbers"):
        solve().evaluate(1j)
    with pytest.raises(ValueError, match="`max_steps`"):
        solve(max_steps=-1)
    decay = sciml.Delayed(lambda t, y, past, args: -past[0], 1.0, lambda t, args: jnp.ones(()))
    with pytest.raises(ValueError, match="`Delayed`"):
        sciml.solve(decay, jnp.ones(()), t0=0.0, t1=2.0, saveat=DENSE)


@pytest.mark.parametrize("most", [5, 30])
def test_steps_have_as_many_rows_as_there_may_be_steps(most):
    def rows(y0):
        saveat = diffrax.SaveAt(t0=True, steps=True)
        return sciml.solve(
            lambda t, y, args: -y, y0, t0=0.0, t1=1.0, rtol=1e-4, atol=1e-6, saveat=saveat, max_steps=most
        ).ts

    assert rows(jnp.ones(2)).shape == jax.eval_shape(rows, jnp.ones(2)).shape == (most + 1,)


@pytest.mark.parametrize("solver", [sciml.solvers.BDF(), sciml.solvers.Switching()])
def test_dense_output_of_methods_whose_steps_depend_on_those_before(solver):
    """Their steps cannot be repeated alone: the polynomials are those of the solve, also between events."""

    def field(t, y, args):
        return jnp.stack([-100 * (y[0] - jnp.cos(t)), args * y[0] - y[1]])

    def solve(rate, saveat):
        event = sciml.Event(lambda t, y, args: y[1] - 0.5, lambda t, y, args: y.at[1].set(0.2))
        return sciml.solve(
            field, jnp.array([0.0, 0.0]), t0=0.0, t1=1.5, args=rate, solver=solver, rtol=1e-4, atol=1e-6, saveat=saveat,
            events=event,
        )  # fmt: skip

    ts = jnp.linspace(0.01, 1.5, 13)
    sol = solve(1.0, DENSE)
    assert sol.events.count == 1
    np.testing.assert_allclose(sol.evaluate(ts), solve(1.0, ts).ys, rtol=1e-4, atol=2e-5)
    slope = jax.grad(lambda rate: solve(rate, DENSE).evaluate(1.4)[1])(jnp.asarray(1.0))
    saved = jax.grad(lambda rate: solve(rate, jnp.array([1.4])).ys[0, 1])(jnp.asarray(1.0))
    np.testing.assert_allclose(slope, saved, rtol=1e-3)


def ends_at_half(a, saveat):
    level = sciml.Event(lambda t, y, args: y - 0.5)
    options = dict(t0=0.0, t1=3.0, args=a, events=level, rtol=1e-8, adjoint=sciml.adjoints.Direct())
    sol = sciml.solve(lambda t, y, a: -a * y, jnp.ones(()), saveat=saveat, **options)
    return jnp.stack([sol.ts, sol.ys])


@pytest.mark.x64
def test_the_row_of_t1_is_the_end_that_an_event_makes():
    saveat = diffrax.SaveAt(ts=[0.1, 2.0], t0=True, t1=True)
    solve = jax.jit(lambda a, moved: jax.jvp(lambda a: ends_at_half(a, saveat), (a,), (moved,)))
    (ts, ys), slopes = solve(1.5, 1.0)
    np.testing.assert_allclose(ts, [0.0, 0.1, 2.0, np.log(2) / 1.5], rtol=1e-6)
    np.testing.assert_allclose(ys, [1.0, np.exp(-0.15), np.nan, 0.5], rtol=1e-6)  # 2.0 is after the end
    np.testing.assert_allclose(slopes[:, -1], [-np.log(2) / 1.5**2, 0.0], atol=1e-6)


@pytest.mark.x64
def test_the_row_of_t1_beside_dense_output_is_the_end_that_an_event_makes():
    found = ends_at_half(1.5, diffrax.SaveAt(t1=True, dense=True))
    np.testing.assert_allclose(found, [[np.log(2) / 1.5], [0.5]], rtol=1e-6)


def test_the_row_of_t1_is_each_members_end():
    at_ends = diffrax.SaveAt(ts=jnp.asarray([0.1]), t1=True, fn=lambda t, y, args: (t, y))

    def solve(a, saveat):
        doubled = sciml.Event(lambda t, y, args: y - 0.8, direction=-1, update=lambda t, y, args: 0.6)
        level = sciml.Event(lambda t, y, args: y - 0.5)
        options = dict(t0=0.0, t1=1.0, args=a, events=[doubled, level], max_events=1)
        sol = sciml.solve(lambda t, y, a: -a * y, jnp.ones(()), saveat=saveat, **options)
        return sol.ts, sol.ys, sol.status

    rates = jnp.asarray([0.3, 3.0])
    times, (said, ys), status = jax.jit(jax.vmap(lambda a: solve(a, at_ends)))(rates)
    assert status.tolist() == [sciml.Status.successful, sciml.Status.event]
    np.testing.assert_array_equal(times, said)
    np.testing.assert_allclose(times[:, -1], [1.0, np.log(1.25 * 1.2) / 3], rtol=1e-5)
    # of events beyond `max_events` the state is not kept
    np.testing.assert_allclose(ys[:, -1], [0.6 * np.exp(-0.3) / 0.8, np.nan], rtol=1e-5)


def test_dense_output_in_a_gradient_by_a_number_of_python():
    def state(rate):
        saveat = diffrax.SaveAt(dense=True)
        sol = sciml.solve(lambda t, y, a: -a * y, jnp.ones(1), t0=0.0, t1=1.0, args=rate, saveat=saveat)
        return sol.evaluate(0.5)[0]

    np.testing.assert_allclose(jax.grad(state)(1.5), -0.5 * np.exp(-0.75), rtol=1e-2)


def test_dense_output_with_flags_of_positive_elements():
    def states(rate):
        options = dict(positive=np.array([True, False]), saveat=diffrax.SaveAt(dense=True), throw=False)
        sol = sciml.solve(lambda t, y, a: -a * y, jnp.ones(2), t0=0.0, t1=1.0, args=rate, **options)
        return sol.evaluate(0.5)

    np.testing.assert_allclose(jax.jit(states)(jnp.asarray(1.5)), np.exp([-0.75, -0.75]), rtol=1e-2)
