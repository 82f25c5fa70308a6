"""Backward differentiation formulas: orders, SciPy's steps, members of their own order, gradients, structure, mass."""

import functools as ft

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import sciml
from sciml import verify
from sciml.solvers import BDF
from sciml.solvers.linear import _choose
from sciml.solvers.linear._entries import DenseMatrix
from sciml.solvers.methods._stepper import take_step

pytestmark = pytest.mark.x64

TIMES = np.array([0.31, 0.9, 2.0])


def relaxed(t, y, rate):
    """A fast variable that follows a cosine, and a slow one that follows it."""
    return jnp.stack([-rate * (y[0] - jnp.cos(t)), y[0] - y[1] ** 2])


def saved(rate, rtol=1e-9, **options):
    options = dict(t0=0.0, t1=2.0, saveat=TIMES, rtol=rtol, atol=0.01 * rtol, solver=BDF()) | options
    return sciml.solve(relaxed, jnp.array([0.3, 1.0]), args=rate, **options)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_fixed_steps_have_the_order_that_is_asked_for_at_their_ends_and_between(order):
    problem = verify.problem("cosine_growth", rate=2.0)

    @jax.jit
    def errors(dt):
        ts = jnp.asarray([2.0, 2.0, 2.0]) - dt * jnp.asarray([0.71, 0.37, 0.0])
        ys = sciml.solve(
            problem.model, problem.y0, t0=0.0, t1=2.0, dt=dt, saveat=ts, solver=BDF(order), max_steps=1000
        ).ys
        return jnp.abs(ys[:, 0] - jnp.exp(2 * jnp.sin(ts)))

    counts = (256, 512) if order < 4 else (96, 192)
    coarse, fine = (errors(2.0 / n) for n in counts)
    slopes = np.log2(coarse / fine)
    assert np.all(slopes > order - 0.4) and np.all(slopes < order + 1.5), slopes


def test_steps_and_errors_are_about_those_of_scipy():
    problem = verify.problem("hires")
    field = jax.jit(lambda t, y: problem.model(t, y, None))
    found, steps = [], []
    run = jax.jit(
        lambda rtol: sciml.solve(
            problem.model, problem.y0, t0=problem.t0, t1=problem.t1, rtol=rtol, atol=1e-6 * rtol, solver=BDF()
        )
    )
    for rtol in (1e-4, 1e-7):
        sol = run(rtol)
        other = solve_ivp(
            lambda t, y: np.asarray(field(t, y)),
            (problem.t0, problem.t1),
            np.asarray(problem.y0),
            "BDF",
            rtol=rtol,
            atol=1e-6 * rtol,
        )
        found.append(float(problem.error(sol.ys[-1]) / problem.error(jnp.asarray(other.y[:, -1]))))
        steps.append(float(sol.stats.accepted) / (len(other.t) - 1))
        assert float(sol.stats.rejected) < 0.1 * float(sol.stats.accepted)
    assert max(steps) < 1.2 and min(steps) > 0.8, steps
    assert max(found) < 4, found


RATES = jnp.array([0.5, 40.0, 3e4])


@ft.cache
def alone():
    return jax.jit(saved)


@ft.cache
def gradients():
    return jax.jit(jax.vmap(jax.grad(lambda rate: jnp.sum(saved(rate).ys ** 2))))(RATES)


def test_members_of_an_ensemble_are_what_each_is_alone():
    together = jax.jit(jax.vmap(saved))(RATES)
    assert len(set(together.stats.accepted.tolist())) == 3
    for member, rate in enumerate(RATES):
        own = alone()(rate)
        assert own.stats.accepted == together.stats.accepted[member]
        np.testing.assert_allclose(together.ys[member], own.ys, rtol=1e-12)
    field = lambda t, y: [-40.0 * (y[0] - np.cos(t)), y[0] - y[1] ** 2]  # noqa: E731
    reference = solve_ivp(field, (0, 2), [0.3, 1.0], "Radau", TIMES, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(together.ys[1], reference.y.T, rtol=1e-7)


def test_gradients_of_saved_times_are_those_of_finite_differences():
    steps = 1e-3 * RATES
    ends = [[float(jnp.sum(alone()(r + sign * h, 1e-11).ys ** 2)) for sign in (1, -1)] for r, h in zip(RATES, steps)]
    expected = np.array([(up - down) / (2 * h) for (up, down), h in zip(ends, steps)])
    np.testing.assert_allclose(gradients() * RATES, expected * RATES, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("adjoint", [sciml.adjoints.Direct(), sciml.adjoints.Forward()], ids=["Direct", "Forward"])
def test_forward_mode_is_the_same_gradient(adjoint):
    found = jax.jit(jax.jacfwd(lambda rate: jnp.sum(saved(rate, adjoint=adjoint).ys ** 2)))(RATES[1])
    np.testing.assert_allclose(found, gradients()[1], rtol=1e-8)


def fronts(t, y, rate):
    wide = jnp.pad(y, 1, mode="edge")
    return rate * (wide[2:] - 2 * y + wide[:-2]) + y * (1 - y)


def end_of_fronts(rate, rtol=1e-6, solver=BDF()):
    y0 = jnp.exp(-jnp.linspace(0.0, 20.0, 40))
    return sciml.solve(fronts, y0, t0=0.0, t1=0.3, args=rate, rtol=rtol, atol=0.01 * rtol, solver=solver).ys[-1]


def test_factors_of_a_band_are_kept_and_gradients_are_those_of_finite_differences():
    run = jax.jit(end_of_fronts)
    np.testing.assert_allclose(run(400.0), end_of_fronts(400.0, solver=sciml.solvers.Rodas5P()), atol=3e-6)
    slope = jax.jit(jax.grad(lambda rate: jnp.sum(end_of_fronts(rate, 1e-9) ** 2)))(400.0)
    up, down = (jnp.sum(run(400.0 + h, 1e-11) ** 2) for h in (1.0, -1.0))
    np.testing.assert_allclose(slope, (up - down) / 2, rtol=1e-5)


def test_an_iteration_solves_the_linear_systems():
    gmres = BDF(linear_solver=lx.GMRES(rtol=1e-6, atol=1e-8), preconditioner=sciml.solvers.ILU0())
    np.testing.assert_allclose(end_of_fronts(400.0, solver=gmres), end_of_fronts(400.0, 1e-8), atol=3e-6)


def test_factors_are_made_anew_only_now_and_then():
    """A factorisation, which calls back, in far fewer than half of the steps."""
    calls = []

    class Counting(DenseMatrix):
        def factorise(self, matrix):
            jax.debug.callback(lambda: calls.append(1))
            return super().factorise(matrix)

    rates = jnp.asarray(np.logspace(0, 4, 20))
    model = lambda t, y, args: -rates * (y - jnp.cos(t)) + 0.1 * jnp.mean(y)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_choose, "DenseMatrix", Counting)
        sol = sciml.solve(model, jnp.zeros(20), t0=0.0, t1=2.0, rtol=1e-6, atol=1e-8, solver=BDF())
    jax.effects_barrier()
    assert 0 < len(calls) < 0.4 * float(sol.stats.accepted), (len(calls), sol.stats)


def test_algebraic_equations():
    """Robertson's reaction with the conservation of mass for its third equation, from an inconsistent start."""

    def reaction(t, y, fast):
        a, b, c = y
        return jnp.stack([-0.04 * a + 1e4 * b * c, 0.04 * a - 1e4 * b * c - fast * b**2, a + b + c - 1])

    solver = BDF(mass=np.diag([1.0, 1.0, 0.0]))

    def end(fast, rtol=1e-7):
        y0 = jnp.array([1.0, 0.0, 0.5])
        return sciml.solve(reaction, y0, t0=0.0, t1=40.0, args=fast, rtol=rtol, atol=1e-4 * rtol, solver=solver).ys[-1]

    value, slope = jax.jit(jax.value_and_grad(lambda fast: end(fast)[2]))(3e7)
    # of Hairer and Wanner's table at t = 40
    np.testing.assert_allclose(end(3e7), [0.7158270688, 0.9185534765e-5, 0.2841637457], rtol=1e-5)
    run = jax.jit(lambda fast: end(fast, 1e-10)[2])
    np.testing.assert_allclose(slope, (run(3.003e7) - run(2.997e7)) / 6e4, rtol=1e-4)
    assert abs(value - 0.2841637457) < 1e-5


def test_gradients_through_an_event_that_changes_the_state():
    """After it the order is one again."""

    def end(rate):
        hit = sciml.Event(lambda t, y, args: y[1] - 0.8, update=lambda t, y, args: y.at[1].add(0.1))
        return saved(rate, saveat=None, events=hit).ys[-1, 1]

    run, slope = jax.jit(end), jax.jit(jax.grad(end))(4.0)
    np.testing.assert_allclose(slope, (run(4.01) - run(3.99)) / 0.02, rtol=1e-4)


def robertson(t, y, scale):
    a, b, c = y.reshape(3, -1)
    slow, fast = -0.04 * a + 1e4 * scale * b * c, 3e7 * b * b
    return jnp.concatenate([slow, -slow - fast, fast])


def end_of_cells(cells, scale):
    y0 = jnp.repeat(jnp.array([1.0, 0.0, 0.0]), cells)
    return sciml.solve(robertson, y0, t0=0.0, t1=100.0, args=scale, rtol=1e-6, atol=1e-10, solver=BDF()).ys[-1]


@pytest.mark.parametrize("cells", [2, 5])
def test_cells_that_are_all_the_same_are_one_and_so_are_their_gradients(cells):
    """What is remembered of five unknowns and more is one array, and what is zero in their matrices is left out."""

    def ends(cells):
        of_each = jax.vmap(lambda scale: end_of_cells(cells, scale))
        slopes = jax.vmap(jax.grad(lambda scale: jnp.sum(end_of_cells(cells, scale)[: 2 * cells])))
        return of_each(scales).reshape(2, 3, cells), slopes(scales) / cells

    scales = jnp.array([0.9, 1.1])
    one, slope = jax.jit(ends, static_argnums=0)(1)
    many, slopes = jax.jit(ends, static_argnums=0)(cells)
    np.testing.assert_allclose(many, np.broadcast_to(one, many.shape), rtol=1e-9)
    np.testing.assert_allclose(slopes, slope, rtol=1e-7)
    up, down = (jnp.sum(end_of_cells(1, scale)[:2]) for scale in (0.901, 0.899))
    np.testing.assert_allclose(slope[0], (up - down) / 2e-3, rtol=1e-3)


def test_a_step_of_sixteen_unknowns_is_not_twice_one_of_eight():
    def lines(n):
        def field(t, y, args):
            return args * (jnp.roll(y, 1) - y) - y**3

        y0 = jnp.linspace(1.0, 2.0, n)
        run = jax.jit(lambda y, a: sciml.solve(field, y, t0=0.0, t1=1.0, args=a, solver=BDF()).ys)
        return len(run.lower(y0, 2.0).as_text().splitlines())

    assert lines(16) < 1.5 * lines(8)


def test_bad_orders_are_refused():
    for order in (0, 6):
        with pytest.raises(ValueError, match=f"`max_order` must be an integer from 1 to 5, but is {order}"):
            BDF(order)
    with pytest.raises(TypeError, match="`max_order` must be an integer from 1 to 5, but is 2.0"):
        BDF(2.0)
    with pytest.raises(ValueError, match=r"`BDF\(mass=...\)` must have shape \(2, 2\)"):
        saved(1.0, solver=BDF(mass=np.eye(3)))


def pyrolysis(t, y, args):
    """E5, whose last states are 1e-3 to 1e-18."""
    del t, args
    a, b, c, d = y
    apart, meet, further, back = 7.89e-10 * a, 1.1e7 * a * c, 1.13e9 * b * c, 1.13e3 * d
    return jnp.stack([-apart - meet, apart - further, apart - meet + back - further, meet - back])


def test_steps_whose_iteration_has_not_converged_are_not_taken():
    # here an iteration ends with a step whose error, by the history, would be small enough
    def end(solver, rtol):
        y0 = jnp.asarray([1.76e-3, 0.0, 0.0, 0.0])
        options = dict(t0=0.0, t1=5e3, rtol=rtol, atol=1e-16 * rtol, max_steps=10_000, throw=False)
        return sciml.solve(pyrolysis, y0, solver=solver, **options).ys[-1]

    np.testing.assert_allclose(end(BDF(), 1e-10), end(sciml.solvers.Rodas5P(), 1e-8), rtol=1e-6)


def test_what_has_not_converged_has_no_error_to_be_judged_by():
    class Guess(sciml.solvers.AbstractStepper):
        order = 1
        evaluations = 1
        has_error = True

        def step(self, field, t, h, y, memory):
            return sciml.solvers.Step(y, error=0 * y, measured=(0 * y, y), converged=jnp.asarray(False))

    step = take_step(Guess(), lambda t, y: y, jnp.zeros(()), jnp.ones(()), jnp.ones(2), None)
    assert all(np.all(np.isnan(x)) for x in (step.y1, step.error, step.measured[0]))


def test_a_gradient_repeats_steps_without_a_search_for_old_factors():
    """Its loops over steps, forward and again, search; the one that goes back has Newton's iteration alone."""
    field = lambda t, y, k: jnp.roll(y, 1) * jnp.mean(y) - k * y**2  # noqa: E731
    end = lambda y, k: jnp.sum(sciml.solve(field, y, t0=0.0, t1=1.0, args=k, solver=BDF()).ys[-1])  # noqa: E731
    program = jax.jit(jax.grad(end)).lower(jnp.ones(17), 2.0).as_text()
    assert program.count("stablehlo.while") <= 14
