"""Levy areas: their law, their sums over intervals, and steps of strong order 1 with noise of any kind."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import DriftImplicitMilstein, PlatenWeak2
from sciml.solvers.noise._brownian import CountedSteps, PairedSteps
from sciml.solvers.noise._random_bits import words_of

from .test_brownian import within

KEYS = jax.random.split(jax.random.key(3), 20_000)
RATES = dict(drift=0.05, pull=2.0, level=0.09, spread=0.4, together=-0.6)


def integral():
    """(W1, W2, the integral of W1 dW2), the smallest equation whose noise does not commute."""

    def diffusion(t, y, args):
        one, zero = jnp.ones_like(y[0]), jnp.zeros_like(y[0])
        return jnp.stack([jnp.stack([one, zero]), jnp.stack([zero, one]), jnp.stack([zero, y[0]])])

    return sciml.Stochastic(lambda t, y, args: 0.0 * y, diffusion, noise="general")


def heston():
    """A price and its variance, which move together."""

    def drift(t, y, p):
        return jnp.stack([p["drift"] * y[0], p["pull"] * (p["level"] - y[1])])

    def diffusion(t, y, p):
        root = jnp.sqrt(jnp.maximum(y[1], 1e-8))
        own = [p["spread"] * p["together"] * root, p["spread"] * jnp.sqrt(1 - p["together"] ** 2) * root]
        return jnp.stack([jnp.stack([root * y[0], 0 * root]), jnp.stack(own)])

    return sciml.Stochastic(drift, diffusion, noise="general")


def lorenz():
    """Lorenz' system, stirred in planes that do not commute."""

    def drift(t, y, args):
        return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])

    def diffusion(t, y, args):
        zero = jnp.zeros_like(y[0])
        columns = [jnp.stack([-y[1], y[0], zero]), jnp.stack([zero, -y[2], y[1]]), jnp.stack([y[2], zero, y[0]])]
        return 0.3 * jnp.stack(columns, axis=-1)

    return sciml.Stochastic(drift, diffusion, noise="general")


def follows_levy(levy, w, length):
    """Moments and characteristic function of the areas of three Brownian motions."""
    levy, w = np.asarray(levy, np.float64) / length, np.asarray(w, np.float64) / np.sqrt(length)
    np.testing.assert_array_equal(levy, -np.swapaxes(levy, 1, 2))
    area = levy[:, [0, 0, 1], [1, 2, 2]]
    for power, expected in ((1, 0.0), (2, 1 / 4), (4, 5 / 16), (6, 61 / 64)):
        within(area**power, expected, np.std(area**power, axis=0))
    for u in (1.0, 2.0, 4.0):
        within(np.cos(u * area), 1 / np.cosh(u / 2), np.std(np.cos(u * area), axis=0))
    # given increments it is off by as much, and areas that share a motion vary together
    for values, expected in (
        (area[:, 0] ** 2 * w[:, 0] ** 2, 5 / 12),
        (area[:, 0] * area[:, 1], 0.0),
        (area[:, 0] * area[:, 1] * w[:, 1] * w[:, 2], 1 / 12),
        (area[:, 0] * w[:, 0], 0.0),
    ):
        within(values, expected, np.std(values))


def test_law_of_a_step_and_of_two():
    def one(key):
        dtype = jnp.zeros(()).dtype
        fine = CountedSteps(words_of(key), jnp.zeros(()), jnp.full((), 0.5))
        return fine.with_levy(fine.dt, fine.dt, 3, dtype), PairedSteps(fine).with_levy(fine.t0, 2 * fine.dt, 3, dtype)

    (w, levy), (both_w, both) = jax.jit(jax.vmap(one))(KEYS)
    follows_levy(levy, w, 0.5)
    follows_levy(both, both_w, 1.0)


def test_law_of_a_path():
    def one(key):
        path = sciml.BrownianPath(key, 0.0, 2.0, depth=3)
        return path.with_levy(path.t0, path.t1, 3, path.t0.dtype)

    w, levy = jax.jit(jax.vmap(one))(KEYS)
    follows_levy(levy, w, 2.0)


def test_areas_add_up():
    """By Chen's relation, at the points of a path and between them; its increments are those without areas."""
    path = sciml.BrownianPath(jax.random.key(1), 0.0, 2.0, depth=7)
    dtype = path.t0.dtype
    stored = path.for_levy(2, dtype)
    over = jax.jit(lambda s, t: stored.with_levy(s, t - s, 2, dtype))
    whole_w, whole = over(0.0, 2.0)
    for middle in (0.5, 0.7301):
        (w0, levy0), (w1, levy1) = over(0.0, middle), over(middle, 2.0)
        np.testing.assert_allclose(w0 + w1, whole_w, atol=1e-5)
        np.testing.assert_allclose(levy0 + levy1 + (np.outer(w0, w1) - np.outer(w1, w0)) / 2, whole, atol=1e-5)
        np.testing.assert_allclose(w0, path.increment(0.0, middle, (2,)), atol=1e-5)


def solve(model, y0, key, **how):
    how = dict(t0=0.0, t1=1.0, solver=PlatenWeak2()) | how
    return sciml.solve(model, jnp.asarray(y0), key=key, **how)


def test_an_integral_by_steps_of_any_length():
    path = sciml.BrownianPath(jax.random.key(5), 0.0, 1.0, depth=7)
    w, levy = path.with_levy(path.t0, path.t1, 2, path.t0.dtype)
    expected = jnp.stack([w[0], w[1], (w[0] * w[1]) / 2 + levy[0, 1]])
    run = jax.jit(lambda dt: solve(integral(), jnp.zeros(3), path, dt=dt).ys[-1])
    for dt in (1.0, 0.25, 0.1):
        np.testing.assert_allclose(run(dt), expected, atol=1e-5)
    sol = solve(integral(), jnp.zeros(3), jax.random.key(5), rtol=1e-2, atol=3e-2)
    w, levy = sciml.BrownianPath(jax.random.key(5), 0.0, 1.0).with_levy(path.t0, path.t1, 2, path.t0.dtype)
    expected = jnp.stack([w[0], w[1], (w[0] * w[1]) / 2 + levy[0, 1]])
    np.testing.assert_allclose(sol.ys[-1], expected, atol=1e-5)
    assert sol.stats.rejected > 0 and sol.stats.accepted < 100


def at_one(key, dt, solver):
    path = sciml.BrownianPath(key, 0.0, 1.0, depth=9)
    return solve(heston(), [1.0, 0.09], path, dt=dt, args=RATES, solver=solver).ys[-1]


@functools.cache
def ends(solver, *steps):
    run = jax.jit(lambda dt, keys: jax.vmap(lambda key: at_one(key, dt, solver))(keys))
    return [np.asarray(run(1 / n, KEYS[:512])) for n in steps]


def errors(solver, *steps):
    (fine,) = ends(PlatenWeak2(), 512)
    return [np.sqrt(np.mean((x - fine) ** 2, axis=0)) for x in ends(solver, *steps)]


@pytest.mark.x64
@pytest.mark.parametrize("solver", [PlatenWeak2(), DriftImplicitMilstein()], ids=lambda x: type(x).__name__)
def test_strong_order_of_heston(solver):
    coarse, fine = errors(solver, 8, 64)
    orders = np.log2(coarse / fine) / 3
    assert np.all(np.abs(orders - 1) < 0.1), orders
    # without the areas the order is one half
    assert errors(diffrax.ItoMilstein(), 64)[0][0] > 4 * fine[0]


@pytest.mark.x64
def test_stiff_steps_by_the_error():
    """What follows at once, and what turns under noise that does not commute: far longer steps than explicit ones."""

    def diffusion(t, y, args):
        zero = jnp.zeros_like(y[0])
        columns = [jnp.stack([0.1 + zero, -0.4 * y[2], 0.4 * y[1]]), jnp.stack([zero, 0.3 * y[1], zero])]
        return jnp.stack(columns, axis=-1)

    drift = lambda t, y, args: jnp.stack([1e3 * (jnp.cos(t) - y[0]), y[0] - y[1], -y[2]])  # noqa: E731
    model = sciml.Stochastic(drift, diffusion, noise="general")
    path = sciml.BrownianPath(jax.random.key(4), 0.0, 1.0, depth=13)
    fine = solve(model, jnp.ones(3), path, dt=2.0**-12).ys[-1]
    run = jax.jit(lambda tol: solve(model, jnp.ones(3), path, rtol=tol, atol=tol, solver=DriftImplicitMilstein()))
    loose, tight = run(1e-2), run(1e-3)
    off = [np.max(np.abs(sol.ys[-1] - fine)) for sol in (loose, tight)]
    assert off[1] < off[0] and off[1] < 2e-2, off
    assert loose.stats.accepted < 60 and tight.stats.accepted < 400


@pytest.mark.x64
def test_steps_by_the_error_on_one_path():
    """With areas adaptive steps converge to the solution on the path, also where noise does not commute."""
    path = sciml.BrownianPath(jax.random.key(2), 0.0, 1.0, depth=13)
    start = [1.0, 1.0, 20.0]
    fine = solve(lorenz(), start, path, dt=2.0**-13).ys[-1]
    run = jax.jit(lambda tol: solve(lorenz(), start, path, rtol=tol, atol=tol))
    loose, tight = run(3e-2), run(1e-3)
    off = [np.max(np.abs(sol.ys[-1] - fine)) for sol in (loose, tight)]
    assert off[1] < 0.1 and off[1] < off[0] / 4, off
    assert tight.stats.accepted > 4 * loose.stats.accepted and tight.stats.rejected > 0


@pytest.mark.x64
@pytest.mark.parametrize("steps", ["fixed", "adaptive"])
def test_gradients(steps):
    how = dict(dt=1 / 16) if steps == "fixed" else dict(rtol=3e-2, atol=3e-2)

    def loss(spread, key):
        key = key if steps == "fixed" else sciml.BrownianPath(key, 0.0, 1.0, depth=6)
        return jnp.sum(solve(heston(), [1.0, 0.09], key, args=RATES | dict(spread=spread), **how).ys[-1] ** 2)

    keys = KEYS[jnp.array([0, 1, 1, 1])]
    spread = 0.4 + jnp.array([0.0, 0.0, 1e-5, -1e-5])
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(loss)))(spread, keys)
    np.testing.assert_allclose(slopes[1], (values[2] - values[3]) / 2e-5, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(loss)(0.4, keys[0]), slopes[0], rtol=1e-9)


def test_diagonal_noise_of_other_elements():
    """Rotations that each element drives in the other do not commute, and are those of general noise."""
    diagonal = sciml.Stochastic(lambda t, y, args: 0.0 * y, lambda t, y, args: 0.4 * y[::-1])
    general = sciml.Stochastic(
        lambda t, y, args: 0.0 * y, lambda t, y, args: 0.4 * y[::-1, None] * jnp.eye(2, dtype=y.dtype), noise="general"
    )
    found, expected = (solve(model, jnp.ones(2, jnp.float32), KEYS[0], dt=0.1).ys for model in (diagonal, general))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_paths_of_too_many_and_too_few_points():
    with pytest.raises(ValueError, match="depth=10"):
        solve(integral(), jnp.zeros(3), sciml.BrownianPath(KEYS[0], 0.0, 1.0, depth=6), dt=1e-3)
    with pytest.raises(ValueError, match="depth=12"):
        solve(integral(), jnp.zeros(3), sciml.BrownianPath(KEYS[0], 0.0, 1.0, depth=17), dt=0.1)
