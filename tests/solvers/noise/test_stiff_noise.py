"""Methods for stiff equations with noise: laws of modes far beyond explicit steps, strong orders, what is refused."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import DriftImplicitEuler, DriftImplicitMilstein, SemiImplicitEuler, StochasticETD1
from sciml.spatial import ColouredNoise, Grid, MaternSpectrum, Periodic, WhiteNoise

from ..common import close
from .common import paths

GRID = Grid(16)
HEAT = sciml.models.Diffusion(GRID, Periodic(), 0.5)
MATERN = MaternSpectrum(0.2)
NUMBERS = np.arange(1, 8)  # of the modes that are complex
RATES = 0.5 * (2 * 16 * np.sin(np.pi * NUMBERS / 16)) ** 2
DT = 0.5


def stationary(theta):
    """The variance of modes after two steps from zero, in units of the noise's, by the recursion of the method."""
    z = RATES * DT
    if theta is None:  # exact
        return (1 - np.exp(-2 * RATES * 2 * DT)) / (2 * RATES)
    kept, added = ((1 - (1 - theta) * z) / (1 + theta * z)) ** 2, DT / (1 + theta * z) ** 2
    return added * (1 + kept)


@pytest.mark.parametrize(
    ("solver", "theta", "noise"),
    [
        (StochasticETD1(), None, ColouredNoise(GRID, MATERN)),
        (SemiImplicitEuler(0.5), 0.5, WhiteNoise(GRID)),
        (StochasticETD1(), None, WhiteNoise(GRID)),
        (SemiImplicitEuler(), 1.0, ColouredNoise(GRID, MATERN)),
        (DriftImplicitEuler(), 1.0, WhiteNoise(GRID)),
    ],
    ids=["exponential-coloured", "trapezoidal-white", "exponential-white", "implicit-coloured", "newton-white"],
)
def test_variance_of_each_mode(solver, theta, noise):
    """The stochastic heat equation, with steps of up to 128 times what an explicit method can take."""
    assert DT * RATES[-1] > 200
    model = sciml.Stochastic(HEAT, lambda t, u, args: 0.3, noise=noise)
    solve = lambda key: sciml.solve(model, jnp.zeros(16), t0=0.0, t1=2 * DT, dt=DT, key=key, solver=solver)  # noqa: E731
    sol = jax.jit(jax.vmap(solve))(jax.random.split(jax.random.key(0), 600))
    assert np.all(sol.status == 0)
    modes = np.fft.fft(np.asarray(sol.ys[:, -1], np.float64), axis=-1, norm="forward")[:, NUMBERS]
    white = isinstance(noise, WhiteNoise)
    strength = 1.0 if white else np.asarray(MATERN.density(jnp.asarray(2 * np.pi * NUMBERS), 1))
    ratio = np.mean(np.abs(modes) ** 2, axis=0) / (0.3**2 * strength * stationary(theta))
    assert np.all(np.abs(ratio - 1) < 4.5 / np.sqrt(600)), ratio  # a square has an exponential law
    # and modes are independent
    related = np.abs(np.corrcoef(modes.T) - np.eye(len(NUMBERS)))
    assert related.max() < 4.5 / np.sqrt(600)


class Modes(sciml.AbstractSemilinear):
    """Two modes, one of which turns, and a rest that mixes them."""

    def transform(self, y):
        return jax.lax.complex(y[0], y[1])[None]

    def inverse(self, modes):
        return jnp.stack([modes[0].real, modes[0].imag])

    def linear(self, args):
        return jnp.array([-0.5 + 2.0j])

    def rest(self, t, modes, args):
        return jax.lax.complex(jnp.sin(modes.real) + 0.2 * jnp.cos(t), 0.0 * modes.real)


class Split(sciml.AbstractSplit):
    """The same, with the linear part as a matrix."""

    def stiff(self, y, args):
        return jnp.stack([-0.5 * y[0] - 2.0 * y[1], 2.0 * y[0] - 0.5 * y[1]])

    def rest(self, t, y, args):
        return jnp.stack([jnp.sin(y[0]) + 0.2 * jnp.cos(t), 0.0 * y[1]])


def noisy(drift, kind, interpretation="ito"):
    if kind == "additive":
        return sciml.Stochastic(drift, lambda t, y, args: 0.5 * jnp.ones_like(y), noise="additive")
    return sciml.Stochastic(drift, lambda t, y, args: 0.5 * y, noise="scalar", interpretation=interpretation)


def end(model, solver, dt, path):
    return sciml.solve(model, jnp.array([1.0, 0.5]), t0=0.0, t1=1.0, dt=dt, key=path, solver=solver).ys[-1]


def ends(model, solver, steps):
    """The ends of solves in so many steps on a hundred paths, all by one program."""
    run = jax.jit(lambda dt, among: jax.vmap(functools.partial(end, model, solver, dt))(among))
    return [np.asarray(run(1 / n, paths(100))) for n in steps]


@functools.cache
def reference(kind):
    return ends(noisy(Split(), kind), diffrax.ShARK() if kind == "additive" else sciml.solvers.SRIW1(), [2**9])[0]


METHODS = {
    "exponential": (Modes(), StochasticETD1()),
    "semi-implicit": (Split(), SemiImplicitEuler()),
    "implicit": (Split(), DriftImplicitEuler()),
    "milstein": (Split(), DriftImplicitMilstein()),
    "milstein, linearly": (Split(), DriftImplicitMilstein(newton=False)),
    "trapezoidal": (Split(), SemiImplicitEuler(0.5)),
    "semi-implicit modes": (Modes(), SemiImplicitEuler()),
}


@pytest.mark.x64
@pytest.mark.parametrize(("kind", "order"), [("additive", 1.0), ("scalar", 0.5)])
@pytest.mark.parametrize("name", METHODS)
def test_strong_order(name, kind, order):
    drift, solver = METHODS[name]
    errors = [np.sqrt(np.mean((x - reference(kind)) ** 2)) for x in ends(noisy(drift, kind), solver, (8, 64))]
    found = np.log2(errors[0] / errors[1]) / 3
    assert found > order + 0.5 * (name.startswith("milstein") and kind == "scalar") - 0.15, (found, errors)


SERVO = sciml.Stochastic(
    lambda t, y, rate: jnp.stack([1e3 * (rate * jnp.cos(t) - y[0]), y[0] - y[1]]),
    lambda t, y, rate: 0.1 * jnp.stack([jnp.ones_like(rate), y[1]]),
)
"""What follows at once, and what follows that, under noise; an explicit method takes five hundred steps and more."""


def follow(rate, path, **how):
    return sciml.solve(SERVO, jnp.ones(2), t0=0.0, t1=1.0, args=rate, key=path, **how)


@pytest.mark.x64
def test_steps_by_the_error():
    """Nearer to fine steps on the same path with a tighter tolerance, and far fewer of them."""
    among = paths(64, depth=13)
    fine = jax.jit(jax.vmap(lambda path: follow(1.0, path, dt=2.0**-12, solver=sciml.solvers.SRIW1()).ys[-1]))(among)
    run = jax.jit(
        lambda tol: jax.vmap(lambda p: follow(1.0, p, rtol=tol, atol=tol, solver=DriftImplicitMilstein()))(among)
    )
    loose, tight = run(1e-2), run(1e-3)
    off = [np.sqrt(np.mean((sol.ys[:, -1] - fine) ** 2, axis=0)) for sol in (loose, tight)]
    assert np.all(loose.status == 0) and np.all(tight.status == 0)
    assert np.all(off[1] <= off[0]) and off[1][1] < 0.5 * off[0][1]
    assert np.all(off[1] < 1e-2)
    assert np.mean(loose.stats.accepted) < 30 and np.mean(tight.stats.accepted) < 200


@pytest.mark.x64
def test_linearly_implicit_steps():
    """They are as near to fine steps as those by Newton's iteration, in about as many steps, where the drift bends."""
    drift = lambda t, y, args: jnp.stack([1e3 * (jnp.cos(t) - y[0] * y[1]), 1.0 - y[1] ** 3])  # noqa: E731
    model = sciml.Stochastic(drift, lambda t, y, args: 0.1 * y)

    def run(path, newton, **how):
        solver = DriftImplicitMilstein(newton=newton)
        return sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, key=path, solver=solver, **how)

    among = paths(16, depth=11)
    fine = jax.jit(jax.vmap(lambda path: run(path, False, dt=2.0**-11).ys[-1]))(among)
    sols = [jax.jit(jax.vmap(lambda p, n=n: run(p, n, rtol=1e-2, atol=1e-2)))(among) for n in (True, False)]
    off = [np.sqrt(np.mean((sol.ys[:, -1] - fine) ** 2)) for sol in sols]
    assert off[1] < 1.2 * off[0] and off[1] < 1e-2, off
    assert np.mean(sols[1].stats.accepted) < 1.2 * np.mean(sols[0].stats.accepted) < 60


@pytest.mark.x64
def test_derivatives_where_steps_are_chosen_by_the_error():
    """Through the same steps in both modes; near those of fine steps on the path, which are of explicit ones."""

    def end(rate, adjoint=None, **how):
        how = how or dict(rtol=1e-3, atol=1e-3, solver=DriftImplicitMilstein())
        path = sciml.BrownianPath(jax.random.key(4), 0.0, 1.0, depth=13)
        return jnp.sum(follow(rate, path, adjoint=adjoint, **how).ys[-1] * jnp.array([1.0, 2.0]))

    found = jax.jit(jax.grad(end))(1.0)
    forward = jax.jit(jax.jacfwd(lambda rate: end(rate, sciml.adjoints.Direct())))(1.0)
    np.testing.assert_allclose(found, forward, rtol=1e-9)
    np.testing.assert_allclose(found, jax.jit(jax.grad(lambda r: end(r, sciml.adjoints.Forward())))(1.0), rtol=1e-9)
    fine = jax.jit(jax.grad(lambda rate: end(rate, dt=2.0**-12, solver=sciml.solvers.SRIW1())))(1.0)
    np.testing.assert_allclose(found, fine, rtol=3e-2)  # some tens of steps of order one


@pytest.mark.x64
@pytest.mark.parametrize("name", ["exponential", "semi-implicit"])
def test_both_senses(name):
    """A model in the sense of Stratonovich is one in that of Ito with another drift."""
    drift, solver = METHODS[name]

    class Moved(type(drift)):
        def rest(self, t, y, args):
            return type(drift).rest(self, t, y, args) + 0.125 * y

    path = sciml.BrownianPath(jax.random.key(2), 0.0, 1.0)
    found = end(noisy(drift, "scalar", "stratonovich"), solver, 1 / 8, path)
    close(found, end(noisy(Moved(), "scalar"), solver, 1 / 8, path), rtol=1e-12)
    assert np.abs(found - end(noisy(drift, "scalar"), solver, 1 / 8, path)).max() > 1e-2


@pytest.mark.x64
@pytest.mark.parametrize("name", ["exponential", "implicit", "milstein", "milstein, linearly", "semi-implicit"])
def test_gradients(name):
    drift, solver = METHODS[name]

    def loss(size, key):
        model = sciml.Stochastic(drift, lambda t, y, args: args * y, noise="scalar")
        options = dict(t0=0.0, t1=1.0, dt=0.25, args=size, key=key, solver=solver)
        return jnp.sum(sciml.solve(model, jnp.array([1.0, 0.5]), **options).ys ** 2)

    keys = jax.random.split(jax.random.key(0), 3)
    each = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(0.5, keys)
    values = jax.jit(jax.vmap(loss, (0, None)))(jnp.array([0.5 - 1e-5, 0.5 + 1e-5]), keys[1])
    np.testing.assert_allclose(each[1], (values[1] - values[0]) / 2e-5, rtol=1e-6)


def test_methods_by_the_drift():
    def solver_of(drift, **how):
        options = dict(t0=0.0, t1=0.5, key=jax.random.key(0))
        return sciml.solve(noisy(drift, "additive"), jnp.array([1.0, 0.5]), **options, **how).solver

    assert solver_of(Modes(), dt=0.25) == "StochasticETD1"
    assert solver_of(Split(), dt=0.25) == "SemiImplicitEuler"


def test_refusals():
    plain = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: y)
    solve = lambda model, solver, **how: sciml.solve(  # noqa: E731
        model, jnp.ones(2), t0=0.0, t1=1.0, key=jax.random.key(0), solver=solver, **(how or dict(dt=0.5))
    )
    with pytest.raises(TypeError, match=r"`solver=StochasticETD1\(\)` requires a model with a diagonal linear part"):
        solve(plain, StochasticETD1())
    with pytest.raises(TypeError, match=r"`solver=SemiImplicitEuler\(\)` requires a model with a stiff linear part"):
        solve(plain, SemiImplicitEuler())
    with pytest.raises(ValueError, match="does not estimate errors"):
        solve(plain, DriftImplicitEuler(), rtol=1e-2)
    with pytest.raises(ValueError, match=r"from 0\.5 to 1"):
        SemiImplicitEuler(0.3)
    with pytest.raises(TypeError):
        sciml.solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=1.0, dt=0.5, solver=DriftImplicitEuler())
