"""Methods of several steps: two of Adams and Bashforth, whose memory is part of what is integrated."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import solvers, verify
from tests.gradients import check_gradient

from ...common import close, forward_gradient, inputs, loss, members, run, same_bits

pytestmark = pytest.mark.x64


class AdamsBashforth2(solvers.AbstractStepper):
    """The method of two steps of equal length; the first step is one of Euler's."""

    order = 2
    evaluations = 1
    has_error = False
    traits = solvers.Traits(fsal=True, history=True)

    def init(self, field, t, y):
        return field(t, y)

    def step(self, field, t, h, y, memory):
        slope = field(t, y)
        y1 = jax.tree.map(lambda y, f, before: y + h * (1.5 * f - 0.5 * before), y, slope, memory)
        return solvers.Step(y1, memory=slope)


class Past(solvers.AbstractStepper):
    """The method of two steps of any lengths, with the difference to the trapezoidal rule as its error.

    It remembers the slope before and the length of the step from there, of which zero means that there was none.
    """

    order = 2
    evaluations = 2
    has_error = True
    # the error is the difference of two methods of order two
    traits = solvers.Traits(fsal=True, history=True, dense=True, error_order=3)

    def init(self, field, t, y):
        return field(t, y), jnp.zeros_like(t)

    def step(self, field, t, h, y, memory):
        before, length = memory
        first = length == 0
        ratio = jnp.where(first, 0.0, h / jnp.where(first, 1.0, length))
        slope = field(t, y)
        predicted = jax.tree.map(lambda y, f, g: y + h * ((1 + ratio / 2) * f - ratio / 2 * g), y, slope, before)
        end = field(t + h, predicted)
        corrected = jax.tree.map(lambda y, f, g: y + h / 2 * (f + g), y, slope, end)
        error = jax.tree.map(jnp.subtract, corrected, predicted)
        y1 = jax.tree.map(lambda p, c: jnp.where(first, c, p), predicted, corrected)
        return solvers.Step(y1, error, slope, (slope, h))

    def interpolate(self, theta, h, y0, y1, dense):
        return jax.tree.map(lambda a, b, f: a + theta * h * f + theta**2 * (b - a - h * f), y0, y1, dense)

    def empty_dense(self, y):
        return jax.tree.map(jnp.zeros_like, y)


FIXED, ADAPTIVE = AdamsBashforth2(), Past()
EACH = pytest.mark.parametrize("solver", [FIXED, ADAPTIVE], ids=["equal steps", "any steps"])
KINDS = {"scan": FIXED, "fixed": ADAPTIVE, "fixed_saves": ADAPTIVE, "adaptive": ADAPTIVE, "adaptive_saves": ADAPTIVE}
LOOSE = {"rtol": 1e-4, "atol": 1e-4}


def options(kind):
    """A solver, and tolerances that a method of order two meets in some hundred steps."""
    return {"solver": KINDS[kind]} | (LOOSE if kind.startswith("adaptive") else {})


@EACH
def test_order(solver):
    def solve(problem, dt):
        return sciml.solve(problem.model, problem.y0, t0=0.0, t1=2.0, dt=dt, solver=solver).ys[-1]

    measured = verify.observed_order(solve, verify.problem("cosine_growth", rate=2.0), (64, 128, 256))
    assert abs(measured.order - 2) < 0.2, measured


def test_error_control_takes_steps_of_the_order():
    """Ten times the steps where the tolerance is a thousandth, since the error of a step is of order three."""
    problem = verify.problem("cosine_growth", rate=2.0)
    sols = [
        sciml.solve(problem.model, problem.y0, t0=0.0, t1=2.0, rtol=tol, atol=tol, solver=ADAPTIVE)
        for tol in (1e-4, 1e-7)
    ]
    errors = [float(problem.error(sol.ys[-1])) for sol in sols]
    steps = [int(sol.stats.accepted) for sol in sols]
    assert errors[0] < 1e-2 and errors[1] < 1e-4
    assert 7 < steps[1] / steps[0] < 13, steps
    assert [int(sol.stats.evaluations) for sol in sols] == [3 + 2 * int(sum(sol.stats[:2])) for sol in sols]


@ft.cache
def by_checkpointed(kind):
    return jax.jit(jax.grad(ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **options(kind))))(inputs())


@pytest.mark.parametrize("kind", ["scan", "fixed", "fixed_saves"])
def test_gradients_agree_with_finite_differences(kind):
    fn = jax.jit(ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **options(kind)))
    verify.check_gradient(fn, inputs(), gradient=by_checkpointed(kind), rtol=1e-7, atol=1e-7)


def test_gradients_where_steps_end_at_saved_times():
    """By all but the times: derivatives by saved times leave out that the steps between them change."""
    p = inputs()

    def fn(some):
        moved = eqx.tree_at(lambda p: (p.model, p.y0, p.args, p.factor), p, some)
        return loss("fixed_saves", sciml.adjoints.Checkpointed(), moved, solver=FIXED)

    some = (p.model, p.y0, p.args, p.factor)
    check_gradient(fn, some, rtol=1e-7, atol=1e-7)


def test_a_gradient_under_error_control_is_that_of_the_solution():
    """By the growth rate and by the initial state, y exp(k sin t)."""

    def end(rate, y0):
        model = verify.problem("cosine_growth", rate=rate).model
        return sciml.solve(model, y0, t0=0.0, t1=2.0, rtol=1e-8, atol=1e-8, solver=ADAPTIVE).ys[-1]

    rate, y0 = jnp.array(2.0), jnp.array(1.0)
    found = jax.jit(jax.grad(end, argnums=(0, 1)))(rate, y0)
    exact = np.exp(2 * np.sin(2.0)) * np.array([np.sin(2.0), 1.0])
    np.testing.assert_allclose(found, exact, rtol=1e-4)


@pytest.mark.parametrize("kind", list(KINDS))
def test_forward_mode_is_the_same_gradient(kind):
    """The adjoints take the same steps, of which error control differentiates no lengths."""
    for adjoint in (sciml.adjoints.Direct(), sciml.adjoints.Forward()):
        found = forward_gradient(ft.partial(loss, kind, adjoint, **options(kind)), inputs())
        close(found, by_checkpointed(kind), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("adjoint", [sciml.adjoints.Checkpointed(memory=1), sciml.adjoints.Checkpointed(segments=5)])
@pytest.mark.parametrize("kind", ["scan", "adaptive_saves"])
def test_steps_beyond_the_record_are_taken_again(kind, adjoint):
    found = run(kind, adjoint, inputs(), **options(kind))
    assert int(sum(found.stats[:2])) > 16  # the fewest that are recorded
    found = jax.jit(jax.grad(ft.partial(loss, kind, adjoint, **options(kind))))(inputs())
    close(found, by_checkpointed(kind), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", ["scan", "adaptive_saves"])
def test_gradients_commute_with_vmap(kind):
    fn = ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **options(kind))
    batch = members()
    inside = jax.jit(jax.vmap(jax.grad(fn)))(batch)
    around = jax.jit(jax.grad(lambda p: jnp.sum(jax.vmap(fn)(p))))(batch)
    close(inside, around, rtol=1e-10, atol=1e-12)
    alone = jax.jit(jax.grad(fn))
    each = [alone(jax.tree.map(lambda x: x[i], batch)) for i in range(3)]  # noqa: B023
    close(inside, jax.tree.map(lambda *xs: jnp.stack(xs), *each), rtol=1e-8, atol=1e-10)


def test_refill_takes_the_same_steps():
    def end(p, schedule):
        return run("adaptive_saves", sciml.adjoints.Checkpointed(), p, batching=schedule, **options("adaptive_saves"))

    lockstep, refill = (jax.jit(jax.vmap(ft.partial(end, schedule=s)))(members(7)) for s in ("lockstep", "refill"))
    close(refill.ys, lockstep.ys, rtol=1e-12)
    np.testing.assert_array_equal(refill.stats.accepted, lockstep.stats.accepted)


def test_saved_times_leave_the_steps_alone_where_the_method_interpolates():
    problem = verify.problem("cosine_growth", rate=2.0)
    solve = ft.partial(sciml.solve, problem.model, problem.y0, t0=0.0, t1=2.0, rtol=1e-6, atol=1e-6, solver=ADAPTIVE)
    ts = np.linspace(0.0, 2.0, 21)
    saved = solve(saveat=ts)
    assert int(saved.stats.accepted) == int(solve().stats.accepted)
    np.testing.assert_allclose(saved.ys[:, 0], np.exp(2 * np.sin(ts)), rtol=1e-3)


@pytest.mark.parametrize("given", [{"dt": 0.01, "solver": FIXED}, {"solver": ADAPTIVE} | LOOSE], ids=["fixed", "error"])
def test_segments_of_a_run_are_one_solve(given, tmp_path):
    """The memory goes from one segment to the next, and to the disk."""
    p = inputs()
    how = dict(t0=0.0, t1=2.0, save_every=0.25, progress=False, args=p.args, **given)
    whole = sciml.simulate(p.model, p.y0, segment_steps=10_000, **how)
    parts = sciml.simulate(p.model, p.y0, segment_steps=7, store=tmp_path / "run", **how)
    same_bits(parts.ys, whole.ys)
    ts = np.linspace(0.0, 2.0, 9)
    solved = sciml.solve(p.model, p.y0, t0=0.0, t1=2.0, args=p.args, saveat=ts, **given)
    close(jnp.asarray(whole.ys), solved.ys, rtol=1e-12)


class Killed(Exception):
    pass


def test_a_run_that_was_killed_goes_on_with_its_memory(tmp_path):
    p, calls = inputs(), []
    how = dict(t0=0.0, t1=2.0, save_every=0.25, args=p.args, segment_steps=7, checkpoint_every=0.0)
    how |= dict(solver=ADAPTIVE, **LOOSE)
    whole = sciml.simulate(p.model, p.y0, progress=lambda progress: calls.append(progress.done), **how)

    def kill(progress):
        if progress.done > 1.0:
            raise Killed

    with pytest.raises(Killed):
        sciml.simulate(p.model, p.y0, store=tmp_path / "run", progress=kill, **how)
    again = []
    resumed = sciml.simulate(p.model, p.y0, store=tmp_path / "run", progress=lambda p: again.append(p.done), **how)
    assert 0 < len(again) < len(calls)
    same_bits(resumed.values, whole.values)


def test_a_state_of_several_arrays():
    def field(t, y, args):
        return {"a": -y["b"], "b": y["a"] * jnp.cos(t)}

    y0 = {"a": jnp.ones(2), "b": jnp.zeros(2)}
    for given in ({"dt": 0.01}, {"rtol": {"a": 1e-5, "b": 1e-4}, "atol": 1e-6}):
        sol = sciml.solve(field, y0, t0=0.0, t1=1.0, solver=ADAPTIVE, **given)
        reference = sciml.solve(field, y0, t0=0.0, t1=1.0)
        close(sol.ys, reference.ys, rtol=1e-3)


# --- what is refused


def test_a_memory_of_integers_is_refused():
    class Counting(AdamsBashforth2):
        def init(self, field, t, y):
            return field(t, y), jnp.zeros((), jnp.int32)

    with pytest.raises(TypeError, match="must be floating-point.*Counting contains int32"):
        sciml.solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=1.0, dt=0.1, solver=Counting())


@pytest.mark.parametrize("record, name", [("limits", "longest"), ("hooks", "step_for_vjp")])
def test_members_for_methods_without_a_history_are_refused(record, name):
    own = getattr(AdamsBashforth2, record)._replace(**{name: lambda *args: None})
    method = type("Both", (AdamsBashforth2,), {record: own})
    with pytest.raises(TypeError, match=rf"Both has `Traits\(history=True\)` and its own `{name}`"):
        sciml.solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=1.0, dt=0.1, solver=method())


@pytest.mark.parametrize(
    "adjoint", [sciml.adjoints.Gauss(), sciml.adjoints.Interpolating(), sciml.adjoints.Backsolve()]
)
def test_continuous_adjoints_are_refused(adjoint):
    with pytest.raises(TypeError, match=r"multistep method such as .*Checkpointed\(\)"):
        run("scan", adjoint, inputs(), solver=FIXED)


def test_reversible_is_refused():
    with pytest.raises(TypeError, match=r"requires an explicit Runge-Kutta method.*Checkpointed\(\)"):
        run("scan", sciml.adjoints.Reversible(), inputs(), solver=FIXED)
