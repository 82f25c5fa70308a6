"""Levy processes in place of Brownian motion: laws of increments and of solutions, derivatives, what is refused."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sciml
from sciml._interfaces._levy_process import _inverse_gaussian
from sciml.solvers.noise._brownian import CountedSteps
from sciml.solvers.noise._random_bits import words_of

COUNT = 40_000


def stable(u, alpha, beta=0.0, scale=1.0):
    """The logarithm of the characteristic function at time one."""
    skew = beta * np.tan(np.pi * alpha / 2) if beta else 0.0
    return -(np.abs(scale * u) ** alpha) * (1 - 1j * skew * np.sign(u))


def gaussian(u, alpha, beta, scale):
    return scale * (np.sqrt(alpha**2 - beta**2) - np.sqrt(alpha**2 - (beta + 1j * u) ** 2))


PROCESSES = {
    "symmetric": (sciml.AlphaStable(1.5), lambda u: stable(u, 1.5)),
    "skewed": (sciml.AlphaStable(1.5, 0.7, 0.5), lambda u: stable(u, 1.5, 0.7, 0.5)),
    "one-sided": (sciml.AlphaStable(0.8, -1.0), lambda u: stable(u, 0.8, -1.0)),
    "cauchy": (sciml.AlphaStable(1.0), lambda u: stable(u, 1.0)),
    "gaussian": (sciml.AlphaStable(2.0), lambda u: stable(u, 2.0)),
    "inverse": (sciml.NormalInverseGaussian(10.0, -3.0, 0.5), lambda u: gaussian(u, 10.0, -3.0, 0.5)),
    "heavy": (sciml.NormalInverseGaussian(1.5, 0.5), lambda u: gaussian(u, 1.5, 0.5, 1.0)),
}


@jax.jit
def increments(driver, dt):
    path = CountedSteps(words_of(jax.random.key(0)), jnp.zeros(()), dt, driver=driver)
    return path.over(3 * dt, dt, COUNT, dt.dtype, False)[0]


@pytest.mark.parametrize("name", PROCESSES)
def test_law_of_increments(name):
    driver, exponent = PROCESSES[name]
    for dt in (1.0, 0.01):
        found = np.asarray(increments(driver, jnp.asarray(dt)), np.float64)
        assert np.all(np.isfinite(found))
        width = np.diff(np.quantile(found, [0.25, 0.75]))[0]
        for u in np.array([0.5, 1.0, 3.0]) / width:
            mean = np.exp(1j * u * found).mean()
            assert abs(mean - np.exp(dt * exponent(u))) < 4 / np.sqrt(COUNT)


def test_derivative_of_a_quantile():
    """That of the inverse Gaussian distribution, from far below to far above a mean jump, by SciPy's quantiles."""
    z, choice = jnp.array([0.1, 0.9, -1.5, 2.0]), jnp.array([0.2, 0.9, 0.99, 0.6])
    for shape in (1e-3, 0.05, 1.0, 20.0):
        one = jnp.asarray(shape)
        s, slope = jax.jvp(lambda x: _inverse_gaussian(x, z, choice), (one,), (jnp.ones_like(one),))
        place = scipy.stats.invgauss.cdf(np.asarray(s, np.float64), 1 / shape, scale=shape)
        near = [scipy.stats.invgauss.ppf(place, 1 / x, scale=x) for x in (shape * (1 - 1e-4), shape * (1 + 1e-4))]
        np.testing.assert_allclose(slope, (near[1] - near[0]) / (2e-4 * shape), rtol=1e-3, atol=1e-4 * shape**-2)


def solve(driver, key, **how):
    """Decay under jumps, two elements with one process each; Euler's method sums (1 - dt)^k times the increments."""
    model = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: jnp.ones_like(y), driver=driver)
    return sciml.solve(model, jnp.zeros(2), key=key, **(dict(t0=0.0, t1=1.0, dt=1 / 8) | how))


def end(parameters, key):
    return solve(sciml.AlphaStable(*parameters), key).ys[-1]


def test_law_of_a_solution_and_bits_of_members():
    keys = jax.random.split(jax.random.key(1), 4096)
    ends = jax.jit(jax.vmap(end, (None, 0)))((1.5, 0.0, 0.3), keys)
    sum_of_scales = 0.3**1.5 * np.sum((1 / 8) * (7 / 8) ** (1.5 * np.arange(8)))
    found = np.cos(2.0 * np.asarray(ends, np.float64)).mean()
    assert abs(found - np.exp(-(2**1.5) * sum_of_scales)) < 4 / np.sqrt(2 * len(keys))
    few = jax.jit(jax.vmap(end, (None, 0)))((1.5, 0.0, 0.3), keys[:16])
    np.testing.assert_allclose(few, ends[:16], rtol=1e-5)
    for n in (1, 8):
        mesh = sciml.parallel.mesh(devices=jax.devices()[:n])
        spread = sciml.parallel.ensemble(lambda key: end((1.5, 0.0, 0.3), key), keys[:16], block=2, mesh=mesh)
        first = spread if n == 1 else first
        np.testing.assert_array_equal(spread, first)


@pytest.mark.x64
def test_derivatives_with_respect_to_the_process():
    parameters = jnp.array([1.5, 0.2, 0.3])
    loss = jax.jit(lambda p: jnp.sum(end(tuple(p), jax.random.key(2)) * jnp.array([1.0, 2.0])))
    slope = jax.jit(jax.grad(loss))(parameters)
    for number, step in enumerate(1e-6 * np.eye(3)):
        difference = (loss(parameters + step) - loss(parameters - step)) / 2e-6
        np.testing.assert_allclose(slope[number], difference, rtol=1e-6)


@pytest.mark.parametrize("solver", [None, sciml.solvers.TamedEuler(), sciml.solvers.DriftImplicitEuler(newton=False)])
def test_methods(solver):
    sol = solve(sciml.NormalInverseGaussian(2.0), jax.random.key(0), solver=solver)
    assert sol.status == 0 and np.all(np.isfinite(sol.ys))
    assert sol.solver == ("Euler" if solver is None else type(solver).__name__)


def test_refusals():
    key, driver = jax.random.key(0), sciml.AlphaStable(1.5)
    with pytest.raises(ValueError, match="requires fixed steps: pass `dt`"):
        solve(driver, key, dt=None, rtol=1e-2)
    with pytest.raises(ValueError, match="requires a random key"):
        solve(driver, sciml.BrownianPath(key, 0.0, 1.0))
    with pytest.raises(ValueError, match=r"`solver=ItoMilstein\(\)` requires Brownian motion"):
        solve(driver, key, solver=diffrax.ItoMilstein())
    with pytest.raises(ValueError, match="does not support a `sciml.Schedule`"):
        solve(driver, key, events=sciml.Schedule(jnp.array([0.3]), lambda t, y, args: y))
    with pytest.raises(ValueError, match="above 0 and at most 2"):
        sciml.AlphaStable(2.5)
    with pytest.raises(ValueError, match="must be 0 if `alpha` is 1"):
        sciml.AlphaStable(1.0, 0.5)
    with pytest.raises(ValueError, match="between `-alpha` and `alpha`"):
        sciml.NormalInverseGaussian(1.0, 2.0)
    with pytest.raises(TypeError, match="must be a process"):
        sciml.Stochastic(lambda t, y, args: y, lambda t, y, args: y, driver=1.5)
    with pytest.raises(ValueError, match="Brownian motion only"):
        sciml.Stochastic(lambda t, y, args: y, lambda t, y, args: y, driver=driver, interpretation="stratonovich")
