"""Solutions that must not become negative, or leave a domain: `positive` and `domain`."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Status
from sciml.solvers import BDF, ROCK, Rodas5P, Rosenbrock23

from ..common import close


def predator_prey(t, y, rates):
    prey, predators = y
    return jnp.stack(
        [rates[0] * prey - rates[1] * prey * predators, rates[2] * prey * predators - rates[3] * predators]
    )


def random_systems(count):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.uniform(1e-3, 20, (count, 2))), jnp.asarray(rng.uniform(0.2, 8.0, (count, 4)))


def populations(y0, rates, **options):
    options = dict(rtol=1e-3, atol=1e-3, saveat=np.linspace(0, 20, 101)) | options
    return sciml.solve(predator_prey, y0, t0=0.0, t1=20.0, args=rates, throw=False, **options)


def assert_none_is_negative(count):
    sol = jax.vmap(ft.partial(populations, positive=True))(*random_systems(count))
    assert np.all(np.asarray(sol.status) == 0)
    assert np.all(np.asarray(sol.ys) >= 0)  # false for NaN


@pytest.mark.x64
def test_populations_are_not_negative():
    """Without it they are, at the same tolerances, and a third of the members blow up."""
    sol = jax.vmap(populations)(*random_systems(200))
    assert np.any(np.asarray(sol.ys) < 0) and np.any(np.asarray(sol.status) != 0)
    assert_none_is_negative(200)


@pytest.mark.x64
def test_ten_thousand_populations_are_not_negative():
    assert_none_is_negative(10_000)


def chain(t, y, rate):
    """Two decays one after another, the first fast: it is soon smaller than its error."""
    return jnp.stack([-50 * rate * y[0], 50 * rate * y[0] - y[1]])


@pytest.mark.x64
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), diffrax.Bosh3(), Rodas5P()], ids=lambda s: type(s).__name__)
def test_is_as_accurate_as_without(solver):
    def error(rtol, positive):
        sol = sciml.solve(
            chain, jnp.array([1.0, 0.0]), t0=0.0, t1=5.0, args=1.0, rtol=rtol, atol=rtol, solver=solver,
            positive=positive, saveat=jnp.linspace(0.1, 5.0, 50),
        )  # fmt: skip
        exact = np.stack([np.exp(-50 * sol.ts), 50 / 49 * (np.exp(-sol.ts) - np.exp(-50 * sol.ts))], axis=1)
        return np.abs(sol.ys - exact).max()

    for rtol in (1e-3, 1e-5, 1e-7):
        assert error(rtol, True) < 3 * error(rtol, None) < 50 * rtol


@pytest.mark.x64
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), Rodas5P()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("adjoint", ["Checkpointed", "Direct", "Forward"])
def test_gradients_against_finite_differences(solver, adjoint):
    def loss(rate):
        sol = sciml.solve(
            chain, jnp.array([1.0, 0.0]), t0=0.0, t1=2.0, args=rate, dt=0.02, solver=solver, positive=True,
            saveat=jnp.array([0.05, 1.0, 2.0]), adjoint=getattr(sciml.adjoints, adjoint)(),
        )  # fmt: skip
        return jnp.sum(jnp.sin(3 * sol.ys))

    step = 1e-6
    if adjoint == "Direct":
        both = jax.jit(lambda rate: jax.jvp(loss, (rate,), (jnp.ones_like(rate),)))
    else:
        both = jax.jit(jax.value_and_grad(loss))
    ahead, here, behind = (both(jnp.asarray(1 + move)) for move in (step, 0.0, -step))
    close(here[1], (ahead[0] - behind[0]) / (2 * step), rtol=1e-6)


@pytest.mark.x64
def test_gradients_of_ensembles():
    y0, rates = (x[:4] for x in random_systems(4))
    run = ft.partial(populations, positive=True, saveat=None, rtol=1e-5, atol=1e-5)

    def loss(y0, rates):
        return jnp.sum(jnp.log(1 + run(y0, rates).ys))

    alone = jax.jit(jax.grad(loss, 1))
    each = jnp.stack([alone(y, r) for y, r in zip(y0, rates)])
    close(jax.jit(jax.vmap(jax.grad(loss, 1)))(y0, rates), each, rtol=1e-6)
    close(jax.jit(jax.grad(lambda r: jax.vmap(loss)(y0, r).sum()))(rates), each, rtol=1e-6)


def test_what_is_set_to_zero_has_no_derivative():
    """The only step ends below zero."""

    def end(y0):
        sol = sciml.solve(lambda t, y, args: -3 * y, y0, t0=0.0, t1=0.5, dt=0.5, solver=diffrax.Euler(), positive=True)
        return sol.ys[-1]

    assert end(1.0) == 0 and jax.grad(end)(1.0) == 0


def falling(t, y, args):
    return jax.tree.map(lambda x: jnp.full_like(x, -1.0), y)


@pytest.mark.parametrize(
    "positive, low",
    [
        ({"a": True, "b": False}, {"a": [0, 0], "b": [-0.5, 0.5]}),
        ({"a": np.array([True, False]), "b": False}, {"a": [0, 1.5], "b": [-0.5, 0.5]}),
        ({"a": np.array([False, True]), "b": np.array([True, True])}, {"a": [-0.5, 1.5], "b": [0, 0.5]}),
    ],
)
def test_some_elements_of_some_leaves(positive, low):
    y0 = {"a": jnp.array([0.5, 2.5 if low["a"][1] else 0.5]), "b": jnp.array([0.5, 1.5])}
    sol = sciml.solve(falling, y0, t0=0.0, t1=1.0, dt=0.25, positive=positive)
    for name, expected in low.items():
        np.testing.assert_allclose(sol.ys[name][-1], expected, atol=1e-6)


def test_a_model_that_leads_below_zero():
    sol = sciml.solve(falling, jnp.array([0.5]), t0=0.0, t1=1.0, positive=True, throw=False)
    assert sol.status == Status.outside_domain
    assert abs(sol.t_reached - 0.5) < 1e-2
    with pytest.raises(sciml.SolveError, match="outside_domain.*consumed at zero"):
        sciml.solve(falling, jnp.array([0.5]), t0=0.0, t1=1.0, positive=True)


def logistic(t, y, args):
    return 50 * y * (1 - y)


def below_one(y):
    return jnp.all(y <= 1)


@pytest.mark.x64
def test_a_domain():
    """Roots of one less the state: beyond one the model is not defined, and the solution comes as near as it likes."""

    def model(t, y, args):
        return 20 * jnp.sqrt(1 - y) * y

    options = dict(t0=0.0, t1=0.3, rtol=1e-2, atol=1e-2, throw=False)
    sol = sciml.solve(logistic, jnp.array([0.1]), saveat=np.linspace(0, 0.3, 50), domain=below_one, **options)
    assert sol.status == 0
    sol = jax.vmap(lambda y: sciml.solve(model, y, domain=below_one, **options))(jnp.array([[0.1], [0.2]]))
    assert np.all(np.asarray(sol.status) == 0) and np.all(np.asarray(sol.ys) <= 1)


def test_fixed_steps_that_leave_a_domain_fail():
    sol = sciml.solve(falling, jnp.array([0.5]), t0=0.0, t1=1.0, dt=0.1, domain=lambda y: jnp.all(y > 0), throw=False)
    assert sol.status == Status.nonfinite  # as of every fixed step that fails
    assert 0.35 < sol.t_reached < 0.55


def test_a_start_that_is_not_admissible():
    run = ft.partial(sciml.solve, falling, t0=0.0, t1=0.1, positive=True, throw=False)
    assert run(jnp.array([-0.5])).status == Status.invalid_argument
    statuses = jax.vmap(lambda y: run(y).status)(jnp.array([[0.5], [-0.5]]))
    assert statuses.tolist() == [0, Status.invalid_argument]


def test_float32_stiff():
    y0 = jnp.array([1.0, 0.0, 0.0], jnp.float32)
    sol = sciml.solve(
        sciml.models.Robertson(), y0, t0=0.0, t1=100.0, rtol=1e-3, atol=1e-5, solver=Rodas5P(), positive=True,
        saveat=jnp.linspace(0.0, 100.0, 30, dtype=jnp.float32),
    )  # fmt: skip
    assert np.all(np.asarray(sol.ys) >= 0)
    np.testing.assert_allclose(sol.ys.sum(1), 1.0, atol=1e-3)


def test_bad_arguments():
    run = ft.partial(sciml.solve, falling, jnp.ones(2), t0=0.0, t1=0.1)
    with pytest.raises(ValueError, match=r"`positive` must be True or a PyTree like `y0`"):
        run(positive={"a": True})
    with pytest.raises(ValueError, match=r"array of its shape \(2,\), but holds one of shape \(3,\)"):
        run(positive=np.ones(3, bool))
    with pytest.raises(TypeError, match="`positive` must hold booleans, but holds int"):
        run(positive=np.array([1, 0]))
    with pytest.raises(TypeError, match="domain"):
        run(domain=True)
    with pytest.raises(TypeError, match="`domain` must be hashable"):
        run(domain=Unhashable())
    with pytest.raises(ValueError, match="diffrax runs this one"):
        run(positive=True, solver=diffrax.ImplicitEuler())
    with pytest.raises(TypeError, match="`positive` requires real elements"):
        sciml.solve(lambda t, y, args: y, jnp.ones(2, jnp.complex64), t0=0.0, t1=0.1, positive=True)
    with pytest.raises(ValueError, match="does not account for the changes that `positive`"):
        jax.grad(
            lambda y: sciml.solve(falling, y, t0=0.0, t1=0.1, positive=True, adjoint=sciml.adjoints.Gauss()).ys.sum()
        )(jnp.ones(2))
    with pytest.raises(TypeError, match="Reversible"):
        run(positive=True, dt=0.05, adjoint=sciml.adjoints.Reversible())


def test_nothing_is_asked_for():
    run = ft.partial(sciml.solve, falling, jnp.ones(2), t0=0.0, t1=0.5)
    assert np.array_equal(run(positive=False).ys, run().ys)


class Unhashable:
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __call__(self, y):
        return jnp.all(y > 0)


def tanks(t, y, outflow):
    """One runs dry into another, which leaks; its level is `(sqrt(y0) - outflow t / 2)**2` until then."""
    wet = y[0] > 0
    flow = outflow * jnp.where(wet, jnp.sqrt(jnp.where(wet, y[0], 1.0)), 0.0)
    return jnp.stack([-flow, flow - 0.3 * y[1]])


@pytest.mark.parametrize("solver", [None, diffrax.Bosh3(), diffrax.Dopri8(), Rodas5P(), BDF()], ids=repr)
def test_what_comes_to_rest_at_zero_ends(solver):
    """Steps that end below zero were tried again for ever, next to an infinite slope."""

    double = jnp.result_type(float) == jnp.float64
    tight = 1e-7 if double else 1e-5

    def ends(level):
        options = dict(t0=0.0, t1=3.0, args=1.0, solver=solver, positive=True, throw=False, rtol=tight, atol=tight)
        sol = sciml.solve(tanks, jnp.stack([level, 0.5 * jnp.ones_like(level)]), **options)
        return sol.ys[-1], sol.status

    levels = jnp.array([1.0, 1.7, 0.3])
    ys, status = jax.vmap(ends)(levels)
    assert np.all(np.asarray(status) == 0) and np.all(np.asarray(ys[:, 0]) == 0)
    # the second tank: what flows in has decayed at the end; so has its derivative by the first one's level
    root = np.sqrt(np.asarray(levels, float))[:, None]
    times = 2 * root * np.linspace(0, 1, 4001)
    left = np.exp(-0.3 * (3 - times))
    close(ys[:, 1], 0.5 * np.exp(-0.9) + np.trapezoid((root - times / 2) * left, times), 1e-5 if double else 1e-3)
    slopes = jax.vmap(jax.grad(lambda level: ends(level)[0][1]))(levels)
    close(slopes, np.trapezoid(left, times) / (2 * root[:, 0]), 0.02 if double else 0.2)


@pytest.mark.parametrize("solver", [Rodas5P(), Rosenbrock23()], ids=repr)
def test_a_rate_that_is_switched_off_at_zero_takes_an_event(solver):
    """Steps that average the rates of both sides never come to zero; what fails says what helps."""
    options = dict(t0=0.0, t1=3.0, solver=solver)
    message = r"`max_steps_reached`.*The guide on failures .* a rate that switches off at zero"
    with pytest.raises(sciml.SolveError, match=message):
        sciml.solve(
            lambda t, y, args: jnp.where(y > 0, -1.0, 0.0), jnp.ones(1), positive=True, max_steps=500, **options
        )

    def pumped(t, y, rate):
        return jnp.stack([-rate * y[1], 0 * y[1]])

    empty = sciml.Event(lambda t, y, args: y[0], lambda t, y, args: jnp.zeros_like(y), direction=-1)

    def ends(rate):
        sol = sciml.solve(pumped, jnp.ones(2), args=rate, events=empty, **options)
        return sol.events.times[0], sol.ys[-1, 0]

    rates = jnp.array([1.0, 1.7, 0.2])
    times, left = jax.vmap(ends)(rates)
    close(times[:2], 1 / rates[:2], 1e-5)
    assert np.isnan(times[2]) and left.tolist()[:2] == [0.0, 0.0]
    close(left[2], 0.4, 1e-5)
    close(jax.vmap(jax.grad(lambda rate: ends(rate)[0]))(rates[:2]), -1 / rates[:2] ** 2, 1e-5)


@pytest.mark.parametrize("case", ["positive", "domain"])
def test_bdf_shortens_a_step_that_leaves(case):
    """It says itself how long the next step is, and said the same of a step that was refused, to the last one."""
    drained = case == "positive"
    field, kept = (lambda t, y, args: -jnp.ones_like(y)), dict(positive=True)
    if not drained:
        field, kept = (lambda t, y, args: y * (1 - y)), dict(domain=lambda y: y < 1.0000001)
    options = dict(t0=0.0, t1=3.0 if drained else 30.0, solver=sciml.solvers.BDF(), rtol=1e-3, atol=1e-3, throw=False)
    sol = sciml.solve(field, jnp.array(1.0 if drained else 0.1), max_steps=500, **options, **kept)
    assert Status(int(sol.status)) is (Status.outside_domain if drained else Status.successful)


def test_a_population_that_is_nearly_extinct_grows_again():
    """What is less than the error of a step is not zero: predators that starve for long have descendants."""

    def field(t, y, args):
        return jnp.stack([y[0] * (1 - y[1]), y[1] * (y[0] - 1)])

    run = ft.partial(
        sciml.solve, field, jnp.array([1.0, 14.0]), t0=0.0, t1=20.0, solver=Rodas5P(), rtol=1e-3, atol=1e-3
    )
    sol = run(positive=True, saveat=jnp.linspace(0.0, 20.0, 41))
    assert sol.ys.min() > 0 and sol.ys[:, 0].min() < 1e-3
    assert (sol.ys[20:].max(axis=0) > 10).all()


def test_what_rested_at_zero_rises_again():
    """A pump fills the tank after it has run dry, so that nothing is remembered of its way to zero."""

    def field(t, y, args):
        wet = y > 0
        out = jnp.where(wet, jnp.sqrt(jnp.where(wet, y, 1.0)), 0.0)
        return jnp.where(t > 3.0, jnp.ones_like(y), -out)

    run = ft.partial(sciml.solve, field, jnp.array([1.0, 0.5]), t0=0.0, t1=3.5, solver=BDF(), positive=True)
    sol = run(rtol=1e-4, atol=1e-6, saveat=jnp.array([2.9, 3.5]), max_steps=2000)
    assert np.all(np.asarray(sol.ys[0]) == 0)
    np.testing.assert_allclose(sol.ys[1], 0.5, rtol=1e-3)


def test_a_derivative_that_is_no_number_ends_it():
    """The next step had no length, and was tried again up to `max_steps`."""

    def field(t, y, args):
        return -jnp.sqrt(jnp.maximum(y, 0.0))  # zero times infinity below zero, at it infinity

    run = ft.partial(sciml.solve, field, jnp.array([0.25]), t0=0.0, t1=2.0, solver=ROCK(order=2), rtol=1e-4, atol=1e-6)
    for positive in (True, None):
        sol = run(positive=positive, throw=False)
        assert Status(int(sol.status)) is Status.nonfinite
        assert 0.98 < sol.t_reached < 1.02
    with pytest.raises(sciml.SolveError, match=r"jnp.where\(y > 0, y, 1.0\)"):
        run(positive=True)


@pytest.mark.x64
def test_a_noisy_path_that_leaves_a_domain_says_so():
    """Between neighbouring points of the path there is no shorter step: it is not tried for ever."""
    walk = sciml.Stochastic(
        lambda t, y, args: -jnp.ones_like(y), lambda t, y, args: 0.1 * jnp.ones_like(y), noise="additive"
    )
    options = dict(t0=0.0, t1=1.0, key=jax.random.key(0), rtol=1e-3, atol=1e-3, domain=lambda y: y > 0.5, throw=False)
    sol = sciml.solve(walk, 1.0, **options)
    assert sol.status == Status.outside_domain and sol.stats.rejected < 100
