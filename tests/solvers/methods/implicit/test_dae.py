"""Differential-algebraic equations."""

import functools as ft
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import verify

from . import dae_problems as problems
from .dae_problems import pendulum


def decay(t, y, rate, loss):
    """a' = -loss a, a + b = 1, of index one."""
    return {"a": rate["a"] + loss * y["a"], "b": y["a"] + y["b"] - 1}


def decayed(loss, saveat=None, **options):
    start = {"a": jnp.ones(()), "b": jnp.full((), 0.3)}
    given: Any = dict(rtol=1e-4, atol=1e-5) | options
    return sciml.solve(sciml.DAE(decay), start, t0=0.0, t1=1.0, args=loss, saveat=saveat, **given)


@pytest.mark.parametrize("options", [{}, dict(rtol=None, atol=None, dt=0.1)], ids=["adaptive", "fixed"])
def test_index_one(options):
    ts = jnp.linspace(0.0, 1.0, 5)
    sol = decayed(jnp.array(2.0), ts, **options)
    exact = np.exp(-2 * ts)
    np.testing.assert_allclose(sol.ys["a"], exact, atol=1e-4)
    np.testing.assert_allclose(sol.ys["b"], 1 - exact, atol=1e-4)  # of which the start was a guess
    assert sol.solver == "Radau5"


def test_members_and_gradients():
    losses = jnp.array([0.5, 2.0])

    def end(loss):
        return decayed(loss).ys["b"][-1]

    found = jax.vmap(end)(losses)
    np.testing.assert_allclose(found, 1 - np.exp(-losses), atol=1e-4)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(jax.vmap(end)(x)))(losses), np.exp(-losses), atol=1e-3)
    np.testing.assert_allclose(jax.vmap(jax.grad(end))(losses), np.exp(-losses), atol=1e-3)


@pytest.mark.parametrize("name", ["Direct", "Forward"])
def test_adjoints(name):
    adjoint = getattr(sciml.adjoints, name)()
    found = jax.jacfwd(lambda loss: decayed(loss, adjoint=adjoint).ys["b"][-1])(jnp.array(2.0))
    np.testing.assert_allclose(found, np.exp(-2.0), atol=1e-3)


@pytest.mark.x64
def test_a_rate_that_is_not_linear_and_its_branches():
    """y'^2 = y has two solutions through a point."""

    def end(rate):
        model = sciml.DAE(lambda t, y, rate, args: rate**2 - y, rate0=rate)
        return sciml.solve(model, 1.0, t0=0.0, t1=1.0, rtol=1e-8, atol=1e-8).ys[-1]

    np.testing.assert_allclose(jax.vmap(end)(jnp.array([1.0, -1.0])), [2.25, 0.25], rtol=1e-8)


@pytest.mark.x64
def test_a_mass_matrix_of_time_and_state():
    """(1 + t + y) y' = -y: its inverse function is known."""
    model = sciml.DAE(lambda t, y, rate, args: (1 + t + y) * rate + y)
    sol = sciml.solve(model, 1.0, t0=0.0, t1=2.0, rtol=1e-9, atol=1e-10)
    other = sciml.solve(lambda t, y, args: -y / (1 + t + y), 1.0, t0=0.0, t1=2.0, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(sol.ys, other.ys, rtol=1e-8)


@pytest.mark.x64
def test_orders_of_components_of_index_one_to_three():
    model, exact = sciml.DAE(problems.jay, index=problems.JAY_INDEX), problems.jay_solution(1.0)

    @jax.jit
    def errors(dt):
        sol = sciml.solve(model, problems.jay_solution(0.0), t0=0.0, t1=1.0, args=1.0, dt=dt, max_steps=64)
        return jax.tree.map(lambda x, y: jnp.max(jnp.abs(x[-1] - y)), sol.ys, exact)

    coarse, fine = errors(1 / 16), errors(1 / 32)
    orders = {name: np.log2(coarse[name] / fine[name]) for name in coarse}
    assert orders["y"] > 4.8 and orders["z"] > 2.9 and orders["u"] > 1.9


@pytest.mark.x64
def test_jay_to_tolerances():
    model = sciml.DAE(problems.jay, index=problems.JAY_INDEX)
    start = problems.jay_solution(0.0)
    every = diffrax.SaveAt(steps=True)
    sol = sciml.solve(model, start, t0=0.0, t1=1.0, args=1.0, rtol=1e-9, atol=1e-9, saveat=every)
    last = int(sol.stats.accepted) - 1
    exact = problems.jay_solution(sol.ts[last])
    for name, most in dict(y=1e-10, z=1e-6, u=1e-4).items():
        np.testing.assert_allclose(sol.ys[name][last], exact[name], rtol=0, atol=most)
    # a short last step would divide the rounding of y by the square of its length: the last two are even
    first, second = np.diff(sol.ts[last - 2 : last + 1])
    assert sol.ts[last] == 1
    np.testing.assert_allclose(first, second)


@pytest.mark.x64
def test_the_transistor_amplifier():
    def end(voltage):
        start = problems.amplifier_start(voltage)
        return sciml.solve(sciml.DAE(problems.amplifier), start, t0=0.0, t1=0.2, args=voltage, rtol=1e-7, atol=1e-7).ys[
            -1
        ]

    np.testing.assert_allclose(end(6.0), problems.AMPLIFIER_END, rtol=1e-7)


@pytest.mark.x64
def test_the_slider_crank():
    model = sciml.DAE(problems.slider_crank, index=problems.SLIDER_CRANK_INDEX)
    sol = sciml.solve(
        model, problems.slider_crank_start(), t0=0.0, t1=0.1, args=150.0, rtol=1e-6, atol=1e-6, saveat=[0.0, 0.1]
    )
    for name, found in problems.SLIDER_CRANK_FOUND.items():  # the published positions are rounded
        np.testing.assert_allclose(sol.ys[name][0], found, atol=0.1)
    rigid = slice(0, 3)  # the rod hardly bends
    np.testing.assert_allclose(sol.ys["x"][-1][rigid], problems.SLIDER_CRANK_END["x"][rigid], rtol=1e-7)
    np.testing.assert_allclose(sol.ys["v"][-1][rigid], problems.SLIDER_CRANK_END["v"][rigid], rtol=5e-5)
    np.testing.assert_allclose(sol.ys["multipliers"][-1], problems.SLIDER_CRANK_END["multipliers"], rtol=1e-3)


@pytest.mark.x64
def test_fekete():
    model = sciml.DAE(problems.fekete, index=problems.FEKETE_INDEX)
    sol = sciml.solve(model, problems.fekete_start(), t0=0.0, t1=1000.0, args=0.5, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sol.ys["p"][-1][:10], problems.FEKETE_END, atol=1e-5)
    np.testing.assert_allclose(sol.ys["force"][-1], -4.75, rtol=1e-5)


PENDULUM = sciml.DAE(pendulum, index=(1, 2, 3))


def at_rest(length=1.0):
    return jnp.array([length, 0.0]), jnp.zeros(2), jnp.zeros(())


def swing(start, model=PENDULUM, **options):
    return sciml.solve(model, start, t0=0.0, t1=0.5, args=1.0, **options)


@pytest.mark.parametrize(
    "model, start, match",
    [
        (sciml.DAE(pendulum), at_rest(), r"do not determine `y0\[2\]` at the start"),
        (PENDULUM, at_rest(1.1), r"`y0\[0\]\[0\]` violates .* nearest consistent value is 1\."),
        (PENDULUM, (at_rest()[0], jnp.array([0.1, 0.0]), jnp.zeros(())), r"`y0\[1\]\[0\]` violates .* \(a hidden"),
    ],
    ids=["not determined", "a constraint", "a hidden constraint"],
)
def test_starts_that_are_not_consistent(model, start, match):
    with pytest.raises(sciml.SolveError, match=match):
        swing(start, model)


def test_arguments_that_are_refused():
    with pytest.raises(ValueError, match="`index` must consist of the integers 1, 2 and 3, but has 4"):
        sciml.DAE(pendulum, index=(1, 2, 4))
    with pytest.raises(ValueError, match=r"`index` must be known.*`np.array\(\[1, 2\]\)`"):
        jax.jit(lambda t: sciml.DAE(pendulum, index=jnp.array([1, 2])).residual(t, jnp.ones(2), jnp.ones(2), None))(0.0)
    with pytest.raises(ValueError, match="`index` must be 1 or a PyTree of integers like `y0`"):
        swing(at_rest(), sciml.DAE(pendulum, index=(1, 2)))
    with pytest.raises(TypeError, match="`equations` must be callable as"):
        sciml.DAE(lambda t, y: y)
    with pytest.raises(TypeError, match=r"`solver=Rodas5P\(\)` does not support a `sciml.DAE`"):
        swing(at_rest(), solver=sciml.solvers.Rodas5P())
    with pytest.raises(ValueError, match=r"`adjoint=Gauss\(\)` does not support a `sciml.DAE`"):
        swing(at_rest(), adjoint=sciml.adjoints.Gauss())
    with pytest.raises(ValueError, match="`project` does not support a `sciml.DAE`"):
        swing(at_rest(), project=lambda y: y[2])
    with pytest.raises(TypeError, match="only `sciml.solve` supports it|Type-check"):
        sciml.steady_state(PENDULUM, at_rest())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="Dense output does not support a `DAE`"):
        swing(at_rest(), saveat=diffrax.SaveAt(dense=True))
    with pytest.raises(ValueError, match="`residual` must return"):
        swing(at_rest(), sciml.DAE(lambda t, y, rate, args: y[0]))


@pytest.mark.x64
def test_a_rounded_start_moves_to_the_constraint():
    """Its derivatives are those of the projection."""

    def corrected(q):
        start = q, jnp.zeros(2), jnp.zeros(())
        return swing(start, dt=0.5, saveat=[0.0]).ys[0][0]

    q = jnp.array([0.6, -0.8])
    np.testing.assert_allclose(jnp.sum(corrected(q + 1e-6) ** 2), 1, rtol=1e-12)
    np.testing.assert_allclose(jax.jacrev(corrected)(q), np.eye(2) - np.outer(q, q), atol=1e-10)


@pytest.mark.x64
def test_a_pendulum_of_index_three_forwards_and_backwards():
    run = ft.partial(sciml.solve, PENDULUM, args=1.0, rtol=1e-8, atol=1e-8)
    sol = run(at_rest(), t0=0.0, t1=0.5)
    q, v, _ = end = jax.tree.map(lambda x: x[-1], sol.ys)
    np.testing.assert_allclose(q @ q, 1, atol=1e-12)
    np.testing.assert_allclose(v @ v / 2 + 9.81 * q[1], 0, atol=1e-6)
    back = run(end, t0=0.5, t1=0.0)
    np.testing.assert_allclose(back.ys[0][-1], [1.0, 0.0], atol=1e-6)


def reduced_pendulum(t, y, args):
    """The constraint, differentiated twice, gives the tension: index one."""
    q, v = y
    gravity = jnp.array([0.0, -9.81])
    return v, gravity - (q @ gravity + v @ v) / (q @ q) * q


@pytest.mark.x64
@pytest.mark.parametrize(
    "index, options, steps",
    [
        (3, dict(rtol=1e-7, atol=1e-7), 9083),  # Radau5, of index three
        (1, dict(rtol=1e-10, atol=1e-10, solver=diffrax.Dopri8()), 1901),  # with the constraint and its derivative held
    ],
    ids=["Radau5", "Dopri8-project"],
)
def test_a_pendulum_over_100_s(index, options, steps):
    """Constraint and energy at every step; the error of the energy is relative to 9.81 J/kg, by tolerances alone."""
    model: Any = PENDULUM if index == 3 else reduced_pendulum
    start = at_rest()[: 3 if index == 3 else 2]
    if index == 1:
        options = options | dict(project=lambda y: jnp.stack([y[0] @ y[0], y[0] @ y[1]]))
    every = diffrax.SaveAt(steps=True)
    sol = sciml.solve(model, start, t0=0.0, t1=100.0, args=1.0, saveat=every, max_steps=12_000, **options)
    count = int(sol.stats.accepted)
    q, v = (np.asarray(x[:count]) for x in sol.ys[:2])
    assert sol.ts[count - 1] == 100 and abs(count / steps - 1) < 0.05
    np.testing.assert_allclose(np.sum(q**2, axis=1), 1, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.sum(v**2, axis=1) / 2 / 9.81 + q[:, 1], 0, atol=1e-6)
    np.testing.assert_allclose(q[-1], [0.181513, -0.983388], atol=4e-5)  # both ways


@pytest.mark.x64
def test_gradient_of_the_pendulum():
    """Also through the start, which the length moves; of fixed steps, whose differences have no noise."""

    @jax.jit
    def end(length):
        sol = sciml.solve(PENDULUM, at_rest(), t0=0.0, t1=0.5, args=length, dt=0.02)
        return sol.ys[0][-1, 1]

    h = 2e-5  # starts farther off are not consistent
    differences = (8 * (end(1 + h) - end(1 - h)) - (end(1 + 2 * h) - end(1 - 2 * h))) / (12 * h)
    np.testing.assert_allclose(jax.grad(end)(1.0), differences, rtol=1e-6)


@pytest.mark.x64
def test_an_event_at_an_algebraic_variable():
    """a' = -k a, b = a^2: at b = 1/4 a half is added to a, and b jumps to one."""
    model = sciml.DAE(lambda t, y, rate, k: {"a": rate["a"] + k * y["a"], "b": y["b"] - y["a"] ** 2})
    event = sciml.Event(lambda t, y, k: y["b"] - 0.25, update=lambda t, y, k: {"a": y["a"] + 0.5, "b": y["b"]})

    def end(k):
        start = {"a": jnp.ones(()), "b": jnp.ones(())}
        options: Any = dict(rtol=1e-9, atol=1e-10, events=event, adjoint=sciml.adjoints.Direct())
        sol = sciml.solve(model, start, t0=0.0, t1=1.0, args=k, **options)
        return sol.ys | {"after": sol.events.states_after["b"]}

    found, moved = jax.jvp(end, (1.0,), (1.0,))
    np.testing.assert_allclose(found["after"][0], 1, rtol=1e-8)  # the record has consistent states
    np.testing.assert_allclose(found["a"][-1], 2 * np.exp(-1), rtol=1e-8)
    np.testing.assert_allclose(found["b"], found["a"] ** 2, rtol=1e-12)
    np.testing.assert_allclose(moved["a"][-1], -2 * np.exp(-1), rtol=1e-7)


@pytest.mark.x64
@pytest.mark.parametrize("name", ["amplifier", "slider_crank", "jay", "fekete"])
def test_gradients_of_published_problems(name):
    """Of a few fixed steps, whose differences have no noise."""
    index = {"slider_crank": problems.SLIDER_CRANK_INDEX, "jay": problems.JAY_INDEX, "fekete": problems.FEKETE_INDEX}
    start, by, dt, h = {
        "amplifier": (problems.amplifier_start, 6.0, 2e-4, 1e-3),
        "slider_crank": (problems.slider_crank_start, 150.0, 1e-4, 1e-2),
        "jay": (lambda: problems.jay_solution(0.0), 1.0, 0.05, 1e-5),
        "fekete": (problems.fekete_start, 0.5, 0.1, 1e-3),
    }[name]
    model = sciml.DAE(getattr(problems, name), index=index.get(name, 1))

    @jax.jit
    def end(x):
        sol = sciml.solve(model, start(), t0=0.0, t1=5 * dt, args=x, dt=dt)
        # linear: accelerations of the slider crank change by 6e5 for each unit of the velocity that drives it
        ends = [x[-1].reshape(-1) for x in jax.tree.leaves(sol.ys)]
        return sum(jnp.dot(jnp.arange(1.0, x.size + 1), x) for x in ends)

    differences = (8 * (end(by + h) - end(by - h)) - (end(by + 2 * h) - end(by - 2 * h))) / (12 * h)
    np.testing.assert_allclose(jax.grad(end)(by), differences, rtol=1e-6)


def robertson(t, y, args):
    """Robertson's reaction with the conservation of mass for its third equation."""
    rate = sciml.models.Robertson()(t, y, args)
    return jnp.stack([rate[0], rate[1], jnp.sum(y) - 1])


ROBERTSON = sciml.DAE(lambda t, y, rate, args: jnp.stack([rate[0], rate[1], jnp.zeros_like(t)]) - robertson(t, y, args))
OF_MASS = np.diag([1.0, 1.0, 0.0])

each_robertson = pytest.mark.parametrize(
    "model, solver",
    [
        (ROBERTSON, None),
        (robertson, sciml.solvers.Rodas5P(mass=OF_MASS)),
        (robertson, sciml.solvers.BDF(mass=OF_MASS)),
    ],
    ids=["Radau5", "Rodas5P", "BDF"],
)


def reacted(model, solver, **options):
    """From an inconsistent start."""
    y0 = jnp.array([1.0, 0.0, 0.3], jnp.float32)
    return sciml.solve(model, y0, t0=0.0, args=None, solver=solver, **options)


@each_robertson
def test_robertson_in_float32(model, solver):
    sol = reacted(model, solver, t1=40.0, rtol=1e-3, atol=1e-6)
    # of Hairer and Wanner's table at t = 40
    np.testing.assert_allclose(sol.ys[-1], [0.7158270688, 0.9185534765e-5, 0.2841637457], rtol=1e-3)
    assert sol.ys.dtype == jnp.float32
    np.testing.assert_allclose(jnp.sum(sol.ys[-1]), 1, atol=2e-7)


@pytest.mark.x64
@each_robertson
def test_robertson_over_eleven_orders_of_time(model, solver):
    """With the conservation of mass in place of a rate, to the published end values."""
    problem = verify.problem("robertson")
    y0 = jnp.array([1.0, 0.0, 0.3])
    sol = sciml.solve(model, y0, t0=0.0, t1=problem.t1, args=None, rtol=1e-7, atol=1e-18, solver=solver)
    assert problem.error(sol, componentwise=True) < 1e-4
    np.testing.assert_allclose(jnp.sum(sol.ys[-1]), 1, atol=1e-15)


def test_what_float32_cannot_resolve_is_a_failure():
    """The third component is the difference of numbers near one, and cannot be known to 1e-8."""
    with pytest.raises(sciml.SolveError, match="`diverged`.*loosen the tolerances, compute in float64"):
        reacted(robertson, sciml.solvers.BDF(mass=OF_MASS), t1=40.0, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(
    "model, solver, remedy",
    [
        (ROBERTSON, None, "Set `atol` far below"),
        (robertson, sciml.solvers.Rodas5P(mass=OF_MASS), "Set `positive=True`, set `atol` far below"),
    ],
    ids=["Radau5", "Rodas5P"],
)
def test_amounts_that_ran_away_below_zero(model, solver, remedy):
    with pytest.warns(RuntimeWarning, match=f"negative element -.*e.07.*{remedy}"):
        sol = reacted(model, solver, t1=1e11, rtol=1e-3, atol=1e-6)
    assert sol.status == 0
    sol = reacted(model, solver, t1=1e11, rtol=1e-3, atol=1e-14)
    # float32 over eleven orders of time: two compilers differ by a tenth
    np.testing.assert_allclose(sol.ys[-1], verify.problem("robertson", dtype=jnp.float32).end(), rtol=0.2)
