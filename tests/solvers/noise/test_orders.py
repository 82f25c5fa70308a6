"""Strong orders of the methods for equations with noise, on paths on which the solution is known."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

from .common import METHODS, by_diffrax, exact_growth, growth, paths, swept

CASES = [(name, kind) for name, known in METHODS.items() for kind in known.strong]
COUNT = 256


@functools.cache
def reference(kind, interpretation):
    """The exact solution on each path; that of a fine solve where there is none in closed form."""
    if kind != "additive":
        exact = lambda path: exact_growth(kind, path, 1.0, jnp.ones(2), interpretation)  # noqa: E731
    else:
        exact = functools.partial(end, swept(), diffrax.ShARK(), 2.0**-11)
    return np.asarray(jax.jit(jax.vmap(exact))(paths(COUNT)))


def end(model, solver, dt, path):
    return sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, dt=dt, key=path, solver=solver, throw=False).ys[-1]


def ends(model, solver, steps, among):
    """The ends of solves in so many steps, all by one program."""
    run = jax.jit(lambda dt, among: jax.vmap(functools.partial(end, model, solver, dt))(among))
    return [np.asarray(run(1 / n, among)) for n in steps]


def errors(name, kind, steps, interpretation="ito"):
    model = swept() if kind == "additive" else growth(kind, interpretation)
    found = ends(model, METHODS[name].solver, steps, paths(COUNT))
    return [np.sqrt(np.mean((x - reference(kind, interpretation)) ** 2)) for x in found]


LATER = {"TamedEuler": (512, 4096), "SlowRK": (64, 512)}
"""Of methods whose errors of the next order are large; the taming of the drift is an error of order one."""


@pytest.mark.x64
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_strong_order(name, kind):
    steps = (16, 128) if kind == "additive" else LATER.get(name, (32, 256))
    found = errors(name, kind, steps)
    order = np.log2(found[0] / found[1]) / 3
    # the errors are those of a sample of paths
    assert abs(order - METHODS[name].strong[kind]) < 0.15, (order, found)


@pytest.mark.x64
@pytest.mark.parametrize("name", ["Euler", "EulerHeun", "SRIW1", "SPaRK"])
def test_both_senses(name):
    """Whatever the sense in which a method solves, it solves the model in the model's."""
    coarse, fine = errors(name, "diagonal", (16, 256), "stratonovich")
    assert fine < 0.05 and fine < 0.4 * coarse
    # and the senses differ by more than that
    other = np.sqrt(np.mean((reference("diagonal", "ito") - reference("diagonal", "stratonovich")) ** 2))
    assert other > 4 * fine


@pytest.mark.x64
@pytest.mark.parametrize(
    "name", ["Euler", "EulerHeun", "ItoMilstein", "Heun", "SPaRK", "GeneralShARK", "SlowRK", "SRA1", "ShARK", "SEA"]
)
def test_steps_are_those_of_diffrax(name):
    known, path = METHODS[name], sciml.BrownianPath(jax.random.key(7), 0.0, 1.0, depth=10)
    additive = "general" not in known.strong

    def drift(t, y, args):
        return jnp.stack([y[1], -jnp.sin(y[0]) - 0.5 * t * y[1]])

    def diffusion(t, y, args):
        size = jnp.ones_like(y) if additive else 0.5 * jnp.stack([y[0], y[1]])
        return jnp.stack([0.3 * size, 0.2 * (1 + t) * size], axis=-1)

    solver = known.solver
    sense = "ito" if isinstance(solver, diffrax.AbstractItoSolver) else "stratonovich"
    model = sciml.Stochastic(drift, diffusion, noise="general", interpretation=sense)
    y0 = jnp.array([1.0, 0.5])
    found = sciml.solve(model, y0, t0=0.0, t1=1.0, dt=1 / 8, key=path, solver=solver).ys[-1]
    np.testing.assert_allclose(found, by_diffrax(solver, drift, diffusion, path, y0, 1 / 8), rtol=1e-10)


@pytest.mark.x64
def test_noise_that_does_not_commute():
    """Two Brownian motions that turn and stretch: strong order one half, and the sense matters."""

    def diffusion(t, y, args):
        return jnp.stack([jnp.stack([y[0], jnp.zeros_like(y[0])]), jnp.stack([-y[1], y[0]])], axis=-1) * 0.6

    model = sciml.Stochastic(lambda t, y, args: -y, diffusion, noise="general")
    by = lambda name, *steps: ends(model, METHODS[name].solver, steps, paths(128))  # noqa: E731
    coarse, fine = by("EulerHeun", 64, 1024)
    near = np.sqrt(np.mean((by("Euler", 1024)[0] - fine) ** 2))
    assert near < 0.05  # both converge to the same, one by way of the other sense
    for other in (coarse, *by("SPaRK", 64)):
        assert near / 4 < np.sqrt(np.mean((other - fine) ** 2)) < 0.15
