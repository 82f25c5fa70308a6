"""States that fixed steps write at times known beforehand; with times known at run time, a loop stops at each."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints
from sciml.solvers import BDF, Rodas5P
from sciml.solvers.integrate._interpolation import interpolation_of
from sciml.solvers.integrate._saved_rows import SavedRows
from sciml.solvers.methods.explicit._runge_kutta import from_diffrax

from ...gradients import check_gradient

NET, REST = eqx.partition(eqx.nn.MLP(2, 2, 8, 1, jnp.tanh, key=jax.random.key(0)), eqx.is_inexact_array)
STARTS = jax.random.normal(jax.random.key(1), (5, 2)) * jnp.linspace(0.1, 1.0, 5)[:, None]
TIMES = {
    "some": np.array([0.05, 0.31, 0.32, 0.32, 0.9, 1.55]),
    "start and end": np.array([0.0, 0.0, 0.4, 2.0, 2.0]),
    "each step": np.linspace(0.0, 2.0, 21),
    "two in each": np.linspace(0.0, 2.0, 40),
    "too many": np.linspace(0.0, 0.1, 30),
}
METHODS = {"Tsit5": diffrax.Tsit5(), "Dopri8": diffrax.Dopri8(), "Rodas5P": Rodas5P(), "BDF": BDF()}


def field(t, y, net):
    return eqx.combine(net, REST)(y) - 0.3 * y * jnp.cos(t).astype(y.dtype)


def run(y, net, ts, *, t0=0.0, t1=2.0, dt=0.1, **options):
    return sciml.solve(field, y, t0=t0, t1=t1, dt=dt, args=net, saveat=ts, **options).ys


def loss(y, net, ts, **options):
    ys = jax.vmap(lambda y: run(y, net, ts, **options))(y)
    return jnp.sum(jnp.cos(jnp.arange(ys.size, dtype=ys.dtype).reshape(ys.shape)) * ys)


def close(a, b, roundings=200):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        eps = float(jnp.finfo(x.dtype).eps)
        np.testing.assert_allclose(x, y, rtol=roundings * eps, atol=roundings * eps * float(jnp.max(jnp.abs(y))))


def known_and_traced(fn, ts):
    """Returns what a function of the saved times returns where they are known when traced, and where not."""
    return jax.jit(lambda: fn(ts))(), jax.jit(fn)(jnp.asarray(ts, jnp.result_type(float)))


def loops_of_unknown_length(fn, *args):
    return str(jax.make_jaxpr(fn)(*args)).count("while[")


def gradients(ts, **options):
    return jax.value_and_grad(lambda x: loss(*x, ts, **options))((STARTS, NET))


@pytest.mark.parametrize("dt", [0.1, 0.13], ids=["whole", "with a shorter step"])
@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_the_same_states_as_by_stopping_at_each(times, dt):
    one_and_many = lambda ts: [run(STARTS[0], NET, ts, dt=dt), jax.vmap(lambda y: run(y, NET, ts, dt=dt))(STARTS)]  # noqa: E731
    close(*known_and_traced(one_and_many, times))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_same_gradients_as_by_stopping_at_each(method):
    ts = TIMES["some"]
    close(*known_and_traced(lambda ts: gradients(ts, solver=method, dt=0.13), ts), 2000)


def test_gradients_of_start_end_and_each_step():
    for name in ("start and end", "two in each"):
        close(*known_and_traced(gradients, TIMES[name]), 2000)
    one = lambda ts: jax.grad(lambda y: jnp.sum(jnp.sin(run(y, NET, ts)) ** 2))(STARTS[0])  # noqa: E731
    close(*known_and_traced(one, TIMES["start and end"]))


@pytest.mark.x64
def test_gradient_against_differences():
    ts = TIMES["two in each"]
    check_gradient(lambda y: loss(y[None], NET, ts), STARTS[1])


def test_backwards_in_time():
    ts = np.array([2.0, 1.55, 0.31, 0.05, 0.0])
    close(*known_and_traced(lambda ts: gradients(ts, t0=2.0, t1=0.0, dt=-0.13), ts), 2000)


def test_one_loop_over_the_steps_and_none_over_times():
    one = lambda y: jnp.sum(run(y, NET, TIMES["two in each"]))  # noqa: E731
    assert loops_of_unknown_length(one, STARTS[0]) == loops_of_unknown_length(jax.grad(one), STARTS[0]) == 0
    many = lambda y: loss(y, NET, TIMES["some"])  # noqa: E731
    assert loops_of_unknown_length(many, STARTS) == loops_of_unknown_length(jax.grad(many), STARTS) == 0
    crowded = lambda y: jnp.sum(run(y, NET, TIMES["too many"]))  # noqa: E731
    assert loops_of_unknown_length(crowded, STARTS[0]) > 0


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_levels_of_the_gradient(levels):
    adjoint = adjoints.Checkpointed(levels=levels)
    close(gradients(TIMES["some"], dt=0.03, adjoint=adjoint), gradients(TIMES["some"], dt=0.03))


def test_other_adjoints():
    ts = TIMES["some"]
    weights = jnp.cos(jnp.arange(len(ts) * 2.0).reshape(-1, 2))

    def end(rate, adjoint):
        decay = lambda t, y, rate: -rate * y * jnp.cos(t).astype(y.dtype)  # noqa: E731
        y0 = jnp.ones(2, rate.dtype)
        sol = sciml.solve(decay, y0, t0=0.0, t1=2.0, dt=0.13, args=rate, saveat=ts, adjoint=adjoint)
        return jnp.sum(weights.astype(rate.dtype) * sol.ys)

    rate = jnp.asarray([0.7, 1.3])
    expected = jax.grad(end)(rate, adjoints.Checkpointed())
    close(jax.grad(end)(rate, adjoints.Direct()), expected, 2000)  # JAX goes back through the loop itself
    close(jax.jacfwd(end)(rate, adjoints.Direct()), expected, 2000)
    close(jax.grad(end)(rate, adjoints.Forward()), expected, 2000)
    hessians = [jax.hessian(end)(rate, a) for a in (adjoints.Checkpointed(), adjoints.Direct(), adjoints.Forward())]
    close(hessians[0], hessians[1], 2000)
    close(hessians[2], hessians[1], 2000)


def explodes(t, y, scale):
    return scale * y**2


def test_a_member_that_fails_keeps_what_came_before():
    ts = np.array([0.0, 0.5, 0.95, 1.5, 2.0])
    y0 = jnp.asarray([[0.1], [1.0], [0.2]])  # the second is infinite at t = 1

    def solved(y, scale):
        return sciml.solve(explodes, y, t0=0.0, t1=2.0, dt=0.05, args=scale, saveat=ts, throw=False)

    sol = jax.vmap(solved, (0, None))(y0, jnp.ones(()))
    traced = jax.jit(jax.vmap(lambda y: sciml.solve(
        explodes, y, t0=0.0, t1=2.0, dt=0.05, args=jnp.ones(()), saveat=jnp.asarray(ts) + 0 * y[0], throw=False
    )))(y0)  # fmt: skip
    np.testing.assert_array_equal(sol.status, traced.status)
    np.testing.assert_array_equal(sol.status != 0, [False, True, False])
    np.testing.assert_array_equal(jnp.isnan(sol.ys), jnp.isnan(traced.ys))
    np.testing.assert_allclose(sol.t_reached, traced.t_reached, rtol=1e-5)
    np.testing.assert_array_equal(sol.stats.accepted, traced.stats.accepted)
    np.testing.assert_array_equal(sol.stats.rejected, traced.stats.rejected)
    assert jnp.all(jnp.isfinite(sol.ys[1, :3])) and jnp.all(jnp.isnan(sol.ys[1, 4:]))

    def reached(y, scale):  # what was not reached is left out
        return jnp.sum(jax.vmap(solved, (0, None))(y, scale).ys[:, :2])

    y_bar, scale_bar = jax.grad(reached, (0, 1))(y0, jnp.ones(()))
    whole = lambda y, scale: jnp.sum(y + y / (1 - scale * 0.5 * y))  # noqa: E731
    expected = jax.grad(whole, (0, 1))(y0, jnp.ones(()))
    np.testing.assert_allclose(y_bar, expected[0], rtol=1e-4)
    np.testing.assert_allclose(scale_bar, expected[1], rtol=1e-4)
    assert jnp.isnan(jax.grad(lambda y: jnp.sum(jax.vmap(solved, (0, None))(y, 1.0).ys))(y0)[1, 0])


def test_a_member_that_fails_beside_others_that_share_a_network():
    def burns(t, y, net):
        return jnp.stack([y[0] ** 2, eqx.combine(net, REST)(y)[0]])

    ts = np.array([0.5, 0.95, 2.0])

    def reached(net, y):
        ys = jax.vmap(lambda y: sciml.solve(burns, y, t0=0.0, t1=2.0, dt=0.05, args=net, saveat=ts, throw=False).ys)(y)
        return jnp.sum(ys[:, :2])

    starts = jnp.asarray([[0.1, 0.3], [1.0, 0.3], [0.2, 0.1]])
    found = jax.grad(reached)(NET, starts)
    apart = [jax.grad(reached)(NET, y[None]) for y in starts]
    close(found, jax.tree.map(lambda *x: sum(x), *apart), 2000)


def test_states_of_any_structure():
    ts = TIMES["some"]
    y0 = {"a": jnp.asarray(1.0), "b": (jnp.ones(3), jnp.asarray(0.5 + 0.2j))}

    def turn(t, y, args):
        a, (b, c) = y["a"], y["b"]
        return {"a": -a * b[0], "b": (b * jnp.cos(t).astype(b.dtype), 1j * c)}

    def total(y, ts):
        ys = sciml.solve(turn, y, t0=0.0, t1=2.0, dt=0.1, saveat=ts).ys
        return sum(jnp.sum(jnp.abs(x) ** 2) for x in jax.tree.leaves(ys))

    close(*known_and_traced(lambda ts: jax.value_and_grad(total)(y0, ts), ts), 2000)
    many = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), y0)
    close(*known_and_traced(lambda ts: jax.vmap(jax.grad(total), (0, None))(many, ts), ts), 2000)


def rows_of(times, span=1.0, step=0.25, steps=4, dtype=np.float32):
    polynomial = interpolation_of(from_diffrax(diffrax.Tsit5()))
    assert polynomial is not None
    return SavedRows.of(np.asarray(times), span, step, steps, polynomial, dtype)


@pytest.mark.x64
def test_which_step_writes_which_row():
    rows = rows_of([0.0, 0.1, 0.25, 0.25 + 1e-8, 0.3, 0.9, 1.0])
    np.testing.assert_array_equal(rows.step, [-1, 0, 0, 0, 1, 3, 3])
    np.testing.assert_array_equal(rows.first, [1, 4, 5, 5])
    np.testing.assert_array_equal(rows.weights[1], [[0, 1, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]])  # ends of steps
    np.testing.assert_array_equal(rows.weights[0], [[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]])
    assert rows_of(np.linspace(0.0, 0.2, 12)) is None  # more than are written out
    assert rows_of([0.5], step=1e-5, steps=10**5) is None  # times in float32 have too few digits
    assert rows_of([0.5], step=1e-5, steps=10**5, dtype=np.float64) is None  # more weights than constants should be
    assert rows_of([0.5], step=1e-4, steps=10**4, dtype=np.float64) is not None


def test_the_last_step_may_be_shorter():
    rows = rows_of([0.95, 1.0], step=0.3, steps=4)
    np.testing.assert_array_equal(rows.step, [3, 3])
    (weights,) = rows_of([0.95], step=0.3, steps=4).weights[2:3]
    expected = interpolation_of(from_diffrax(diffrax.Tsit5())).weights(np.array([0.5]), np.array([0.1]))
    np.testing.assert_allclose(weights[3, 0], expected[0, 2], rtol=1e-5)
