"""Weak orders without chance: means by quadrature over the noise of each step, against Kolmogorov's equation.

The mean of the sine of the end, as a function u(t, y) of the state at a time, obeys the backward equation
u_t + f u_y + g^2 u_yy / 2 = 0. That of a method obeys u(t, y) = E u(t + h, step(y)), an integral over the few normal
numbers of one step. All functions are periodic here: their values on some places of a circle say all of them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import SRIW1, DriftImplicitEuler, SemiImplicitEuler, StochasticETD1

from .common import METHODS

PLACES = 2 * np.pi * np.arange(40) / 40
END = 0.5

CASES = [(name, kind, "ito") for name, known in METHODS.items() for kind in known.weak]
OTHERS = [("Euler", "scalar"), ("SPaRK", "diagonal"), ("SRIW1", "diagonal"), ("SPaRK", "mixed")]


class OneStep(sciml.BrownianPath):
    """The noise of a step, by normal numbers that are given."""

    w: jax.Array
    area: jax.Array

    def __init__(self, numbers):
        super().__init__(jax.random.key(0), 0.0, 1.0)
        self.w, self.area = jnp.split(numbers, 2)

    def over(self, t, h, count, dtype, with_area):
        return jnp.sqrt(h) * self.w, jnp.sqrt(h / 12) * self.area

    def with_levy(self, t, h, count, dtype):
        """Of the Levy area its variance is all that matters, so a number for an area that is not taken makes it."""
        turn = jnp.array([[0.0, 0.5], [-0.5, 0.0]]) if count == 2 else jnp.zeros((count, count))
        return jnp.sqrt(h) * self.w, h * self.area[0] * turn

    def for_levy(self, count, dtype):
        return self

    def aligned(self, t, h):
        return h


def normal_rule(count):
    """Points and weights for a mean over the increments and areas of so many Brownian motions."""
    rules = [np.polynomial.hermite_e.hermegauss(n) for n in [5] * count + [3] * count]
    points = np.meshgrid(*(x for x, _ in rules), indexing="ij")
    weights = functools.reduce(np.multiply.outer, [weight / weight.sum() for _, weight in rules])
    return jnp.stack([x.ravel() for x in points], axis=-1), jnp.asarray(weights.ravel())


def swung(kind, interpretation):
    """An angle whose drift changes with time; where the noise is mixed it does not commute, and changes with time."""

    def diffusion(t, y, args):
        one, other = 0.7 + 0.4 * jnp.sin(y), 0.7 + 0.4 * jnp.cos(y)
        if kind == "additive":
            return (0.8 + 0.3 * jnp.cos(3 * t)) * jnp.ones_like(y)
        if kind in ("general", "mixed"):
            turning = 1.0 + 0.3 * jnp.cos(3 * t) if kind == "mixed" else 1.0
            return jnp.stack([0.8 * one, 0.6 * turning * (one if kind == "general" else other)], axis=-1)
        return one

    drift = lambda t, y, args: 0.3 * jnp.sin(y - t)  # noqa: E731
    noise = "general" if kind == "mixed" else kind
    return sciml.Stochastic(drift, diffusion, noise=noise, interpretation=interpretation)


@functools.cache
def exact_means(kind, interpretation):
    """The means at the start, by the backward equation in Fourier modes with a thousandth of a unit as step."""
    model, y, turn = swung(kind, interpretation), PLACES[:, None], 1j * np.fft.fftfreq(len(PLACES), 1 / len(PLACES))
    differentiated = lambda u: jnp.fft.ifft(turn * jnp.fft.fft(u)).real  # noqa: E731
    noise = lambda t, y: model.diffusion(t, y, None).reshape(len(PLACES), -1)  # noqa: E731

    def rate(s, u):
        t = END - s
        g, slope = jax.jvp(functools.partial(noise, t), (y,), (jnp.ones_like(y),))
        correction = 0.5 if interpretation == "stratonovich" else 0.0
        drift = model.drift(t, y, None)[:, 0] + correction * (g * slope).sum(1)
        return drift * differentiated(u) + (g**2).sum(1) / 2 * differentiated(differentiated(u))

    def step(u, s, h=1e-3):
        a = rate(s, u)
        b = rate(s + h / 2, u + h / 2 * a)
        c = rate(s + h / 2, u + h / 2 * b)
        d = rate(s + h, u + h * c)
        return u + h / 6 * (a + 2 * b + 2 * c + d), None

    return np.asarray(jax.jit(lambda: jax.lax.scan(step, jnp.sin(PLACES), 1e-3 * jnp.arange(500.0))[0])())


def means_of(solver, kind, interpretation, counts):
    """The means of a method at the start, with each of several numbers of steps."""
    model, (points, weights) = swung(kind, interpretation), normal_rule(2 if kind in ("general", "mixed") else 1)

    def end(t, h, y, numbers):
        return sciml.solve(
            model, y[None], t0=t, t1=t + h, dt=h, key=OneStep(numbers), solver=solver, throw=False
        ).ys[-1, 0]  # fmt: skip

    @jax.jit
    def back(u, t, h):
        ends = jax.vmap(lambda y: jax.vmap(lambda numbers: end(t, h, y, numbers))(points))(jnp.asarray(PLACES))
        modes, turn = jnp.fft.rfft(u)[:-1] / len(u), jax.lax.complex(jnp.cos(ends), jnp.sin(ends))
        modes = modes.at[1:].multiply(2)
        return jnp.polyval(modes[::-1], turn).real @ weights

    found = []
    for n in counts:
        u = jnp.sin(PLACES)
        for i in reversed(range(n)):
            u = back(u, i * END / n, END / n)
        found.append(np.asarray(u))
    return found


def size(u):
    return np.sqrt(np.mean(u**2))


@pytest.mark.x64
@pytest.mark.parametrize(("name", "kind", "interpretation"), CASES + [(*x, "stratonovich") for x in OTHERS])
def test_weak_order(name, kind, interpretation):
    exact, known = exact_means(kind, interpretation), METHODS[name]
    coarse, fine = (size(u - exact) for u in means_of(known.solver, kind, interpretation, (8, 32)))
    assert abs(np.log2(coarse / fine) / 2 - known.weak[kind]) < 0.15, (coarse, fine)
    if kind != "additive":  # the senses differ, by far more than that
        assert size(exact_means(kind, "ito") - exact_means(kind, "stratonovich")) > 20 * fine


class Decay(sciml.AbstractSplit):
    """A decay with a stiff part, the exact mean of which is known."""

    def stiff(self, y, args):
        return -2.0 * y

    def rest(self, t, y, args):
        return 0.5 * y


class Modes(sciml.AbstractSemilinear):
    """The same, as a mode."""

    def transform(self, y):
        return y

    def inverse(self, modes):
        return modes

    def linear(self, args):
        return jnp.array([-2.0])

    def rest(self, t, modes, args):
        return 0.5 * modes


@pytest.mark.x64
@pytest.mark.parametrize(
    ("solver", "drift", "order"),
    [
        (StochasticETD1(), Modes(), 1),
        (SemiImplicitEuler(), Decay(), 1),
        (DriftImplicitEuler(), Decay(), 1),
        (SRIW1(), lambda t, y, args: -1.5 * y, 2),  # no third derivative of the diffusion: else 3/2
    ],
    ids=["StochasticETD1", "SemiImplicitEuler", "DriftImplicitEuler", "SRIW1"],
)
def test_weak_order_of_growth(solver, drift, order):
    """Of growth the mean of the square is multiplied by the same number with every step."""
    model = sciml.Stochastic(drift, lambda t, y, args: 0.5 * y, noise="scalar")
    points, weights = normal_rule(1)

    @jax.jit
    def factor(h):
        end = lambda z: sciml.solve(model, jnp.ones(1), t0=0.0, t1=h, dt=h, key=OneStep(z), solver=solver).ys[-1, 0]  # noqa: E731
        return jax.vmap(end)(points) ** 2 @ weights

    coarse, fine = (abs(float(factor(1 / n)) ** n - np.exp(-3.0 + 0.25)) for n in (16, 64))
    assert abs(np.log2(coarse / fine) / 2 - order) < 0.15, (coarse, fine)
