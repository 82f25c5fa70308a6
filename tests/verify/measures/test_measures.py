"""The measures see what they should: orders, wrong gradients, drift."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import verify
from sciml.models import LotkaVolterra
from sciml.verify.measures._finite_difference import finite_difference_gradient
from sciml.verify.problems._exact import (
    cosine_growth,
    exponential_decay,
    harmonic_oscillator,
    linear_system,
    logistic,
    pytree_state,
)


def fixed_steps(step):
    """`solve_fn` of an explicit one-step method."""

    @eqx.filter_jit
    def run(problem, dt, count):
        def body(n, y):
            t = jnp.asarray(problem.t0, dt.dtype) + n.astype(dt.dtype) * dt
            return step(lambda t, y: problem.model(t, y, None), t, y, dt)

        return jax.lax.fori_loop(0, count, body, problem.y0)

    def solve(problem, dt):
        count = round((problem.t1 - problem.t0) / dt)
        return run(problem, jnp.asarray(dt), jnp.asarray(count))

    return solve


def add(y, h, *slopes):
    return jax.tree.map(lambda y, *ks: y + h * sum(ks[1:], ks[0]), y, *slopes)


def euler(f, t, y, h):
    return add(y, h, f(t, y))


def midpoint(f, t, y, h):
    return add(y, h, f(t + h / 2, add(y, h / 2, f(t, y))))


def rk4(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, add(y, h / 2, k1))
    k3 = f(t + h / 2, add(y, h / 2, k2))
    k4 = f(t + h, add(y, h, k3))
    return add(y, h / 6, k1, k2, k2, k3, k3, k4)


def late(f, t, y, h):
    """Wrong: the second stage forgets that time has moved."""
    return add(y, h, f(t, add(y, h / 2, f(t, y))))


SMOOTH = [
    exponential_decay,
    linear_system,
    harmonic_oscillator,
    logistic,
    lambda: verify.problem("kepler", eccentricity=0.1, t1=2.0),
    cosine_growth,
    pytree_state,
    lambda: verify.problem("lorenz63", rho=7),
]


@pytest.mark.x64
@pytest.mark.parametrize("make", SMOOTH)
def test_order_of_known_methods(make):
    problem = make()
    assert abs(verify.observed_order(fixed_steps(midpoint), problem, steps=(64, 128, 256)).order - 2) < 0.2
    assert abs(verify.observed_order(fixed_steps(rk4), problem, steps=(64, 128, 256)).order - 4) < 0.2


@pytest.mark.x64
def test_order_of_euler_and_of_a_wrong_method():
    problem = verify.problem("cosine_growth")
    assert abs(verify.observed_order(fixed_steps(euler), problem, steps=(256, 512, 1024)).order - 1) < 0.1
    assert abs(verify.observed_order(fixed_steps(midpoint), problem).order - 2) < 0.2
    assert verify.observed_order(fixed_steps(late), problem).order < 1.2


def test_order_reports_what_it_measured():
    measured = verify.observed_order(fixed_steps(euler), verify.problem("logistic"), steps=[10, 20])
    np.testing.assert_allclose(measured.dts, [0.3, 0.15])
    assert measured.errors.shape == (2,) and 0 < measured.errors[1] < measured.errors[0]
    slope = np.log(measured.errors[0] / measured.errors[1]) / np.log(2)
    np.testing.assert_allclose(measured.order, slope, rtol=1e-6)


def test_order_backwards_in_time():
    problem = verify.problem("cosine_growth")
    problem = eqx.tree_at(lambda p: p.t1, problem, -2.0)
    measured = verify.observed_order(fixed_steps(euler), problem, steps=(64, 128))
    assert abs(measured.order - 1) < 0.2


def test_no_order_from_rounding_or_failure():
    exact = verify.problem("polynomial", degree=1)
    with pytest.raises(ValueError, match="fewer steps"):
        verify.observed_order(fixed_steps(midpoint), exact, steps=(4, 8))
    with pytest.raises(ValueError, match="the errors"):
        verify.observed_order(lambda p, dt: p.y0 * jnp.nan, exact, steps=(4, 8))
    with pytest.raises(ValueError, match="the errors"):
        verify.observed_order(lambda p, dt: p.y0 * jnp.inf, exact, steps=(4, 8))
    for steps in [(4,), (4, 4), (0, 4)]:
        with pytest.raises(ValueError, match="two or more different counts"):
            verify.observed_order(fixed_steps(euler), exact, steps=steps)


def cube(x):
    return jnp.sum(x["a"] ** 3) + x["b"][0] * x["a"][0]


@pytest.mark.x64
def test_finite_difference_gradient():
    x = {"a": jnp.asarray([1.0, -2.0, 3e-4]), "b": (jnp.asarray(5.0), "name", 7)}
    gradient = finite_difference_gradient(cube, x)
    np.testing.assert_allclose(gradient["a"], [3 + 5, 12, 3 * 9e-8], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(gradient["b"][0], 1.0, rtol=1e-9)
    assert gradient["b"][1] is None and gradient["b"][2] is None
    coarse = finite_difference_gradient(cube, x, step=1e-2)
    assert 1e-5 < abs(coarse["a"][0] - 8) < 1e-3


@pytest.mark.x64
def test_check_gradient_of_a_model():
    model, y = LotkaVolterra(), jnp.asarray([30.0, 6.0])

    def fn(model):
        return jnp.dot(jnp.asarray([1.0, 3.0]), model(0.0, y, None))

    assert verify.check_gradient(fn, model) <= 1.0
    forward = jax.jacfwd(fn)(model)
    assert verify.check_gradient(fn, model, gradient=forward) <= 1.0
    wrong = eqx.tree_at(lambda g: g.gamma, forward, forward.gamma * 1.00001)
    with pytest.raises(AssertionError, match=r"x\.gamma: got"):
        verify.check_gradient(fn, model, gradient=wrong)
    assert verify.check_gradient(fn, model, gradient=wrong, rtol=1e-4) <= 1.0


@pytest.mark.x64
def test_check_gradient_says_where():
    x = {"a": jnp.asarray([1.0, 2.0]), "b": (jnp.asarray(1.0),)}
    good = jax.grad(cube)(x)
    for bad in (good["a"].at[1].add(1e-3), good["a"].at[1].set(jnp.nan)):
        with pytest.raises(AssertionError, match=r"x\['a'\]\[1\]"):
            verify.check_gradient(cube, x, gradient={**good, "a": bad})
    with pytest.raises(AssertionError, match="has shape"):
        verify.check_gradient(cube, x, gradient={**good, "a": good["a"][:1]})


def test_finite_differences_refuse_float32():
    with pytest.raises(ValueError, match=r"need float64, but `x\['a'\]` is float32"):
        finite_difference_gradient(cube, {"a": jnp.ones(2, jnp.float32), "b": (1.0,)})


def test_finite_differences_need_an_array():
    with pytest.raises(ValueError, match="nothing to differentiate"):
        verify.check_gradient(lambda x: x**2, 3.0)


def test_conserved():
    t = jnp.linspace(0.0, 1.0, 5)
    ys = {"x": jnp.stack([jnp.cos(t), jnp.sin(t)], axis=1), "drift": 2.0 + 0.1 * t}

    def radius(y):
        return jnp.sum(y["x"] ** 2)

    assert verify.conserved(radius, ys) < 1e-6
    assert verify.conserved(lambda y: jnp.stack([radius(y), 0.0 * radius(y)]), ys) < 1e-6
    np.testing.assert_allclose(verify.conserved(lambda y: y["drift"], ys), 0.05, rtol=1e-5)
    np.testing.assert_allclose(verify.conserved(lambda y: y["drift"] - 2.0, ys, scale=4.0), 0.025, rtol=1e-5)
    assert jnp.isnan(verify.conserved(radius, {**ys, "x": ys["x"].at[3].set(jnp.nan)}))


def test_order_in_space():
    measured = verify.order_in_space(lambda n: 3.0 / n**2, (8, 16, 32))
    assert abs(measured.order - 2.0) < 1e-12 and list(measured.dts) == [1 / 8, 1 / 16, 1 / 32]
    with pytest.raises(ValueError, match="two or more different"):
        verify.order_in_space(lambda n: 1.0, (8,))
    with pytest.raises(ValueError, match="must be positive and finite"):
        verify.order_in_space(lambda n: 0.0)


def test_errors_that_do_not_fall_are_no_order():
    with pytest.warns(UserWarning, match="hardly decrease"):
        assert abs(verify.order_in_space(lambda n: 0.3 + 1e-3 / n, (8, 16)).order) < 0.1


def test_what_stays_zero_is_conserved():
    assert verify.conserved(jnp.sum, jnp.zeros((3, 4))) == 0
    assert verify.conserved(jnp.sum, jnp.arange(3.0)[:, None]) == jnp.inf
