"""Every method that needs structure of its model, with a small model that has it; adding a method is adding a line.

A model takes one parameter, by which solutions are differentiated. The reference is `diffrax.Tsit5` on the model called
as a plain vector field, so that the functions a method reads and the vector field are compared, too.
"""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import solvers
from tests import families


class Reaction(sciml.AbstractSemilinear):
    """Two coupled modes on a grid of three points, and a forcing; the transform is a real matrix."""

    rate: jax.Array

    def transform(self, y):
        return jnp.asarray(_MATRIX, y.dtype) @ y

    def inverse(self, modes):
        return jnp.asarray(np.linalg.inv(_MATRIX), modes.dtype) @ modes

    def linear(self, args):
        return -self.rate * jnp.array([0.5, 2.0, 7.0], self.rate.dtype)

    def rest(self, t, modes, args):
        force = jnp.cos(jnp.asarray(t, modes.dtype) * jnp.arange(1, 4).astype(modes.dtype))
        return force + 0.5 * jnp.roll(modes, 1) * modes - 0.3 * modes**3


class Rotation(sciml.AbstractSemilinear):
    """Complex modes with an imaginary linear part, of a real state."""

    rate: jax.Array

    def transform(self, y):
        return jnp.fft.rfft(y)

    def inverse(self, modes):
        return jnp.fft.irfft(modes, n=5)

    def linear(self, args):
        k = jnp.arange(3).astype(self.rate.dtype)
        return jax.lax.complex(-0.1 * k**2, self.rate * k**3 / 4)

    def rest(self, t, modes, args):
        y = self.inverse(modes)
        return self.transform(jnp.sin(y) * jnp.cos(jnp.asarray(t, y.dtype)))


class Chain(sciml.AbstractSplit):
    """A stiff linear part that is solved with by its matrix."""

    rate: jax.Array

    def stiff(self, y, args):
        return -self.rate * jnp.asarray(_MATRIX * [1.0, 3.0, 9.0], y.dtype) @ y

    def rest(self, t, y, args):
        force = jnp.cos(jnp.asarray(t, y.dtype) * jnp.arange(1, 4).astype(y.dtype))
        return force + 0.5 * jnp.roll(y, 1) * y - 0.3 * y**3


class Pair(sciml.AbstractSecondOrder):
    """Two coupled pendulums, driven; the position is a PyTree."""

    rate: jax.Array

    def acceleration(self, t, q, args):
        a, b = q["a"], q["b"]
        pull = 0.4 * (a - b)
        return {"a": -self.rate * jnp.sin(a) - pull, "b": pull - jnp.sin(b) + 0.3 * jnp.cos(jnp.asarray(t, b.dtype))}


class Halves(sciml.AbstractPartitioned):
    """Two fields that drive each other; one is forced, the other decays, which its move takes implicitly."""

    rate: jax.Array

    def first_drive(self, t, y, args):
        return jnp.roll(y["b"], 1) - y["b"] + 0.3 * jnp.cos(jnp.asarray(t, y["b"].dtype))

    def second_drive(self, t, y, args):
        return self.rate * jnp.sin(y["a"]) + jnp.asarray(t, y["a"].dtype) * y["a"]

    def move_first(self, h, y, drive, args):
        return y | {"a": y["a"] + jnp.asarray(h, drive.dtype) * drive}

    def move_second(self, h, y, drive, args):
        h, loss = jnp.asarray(h, drive.dtype), 0.5 * self.rate
        return y | {"b": y["b"] + h * (drive - loss * y["b"]) / (1 + h / 2 * loss)}


class Diffusion(sciml.AbstractModel):
    """A diffusion that depends on the state, with a source, on four cells; it says its spectral radius."""

    rate: jax.Array

    def __call__(self, t, y, args):
        wide = jnp.concatenate([y[:1], y, y[-1:]])
        flux = self.rate * (1 + 0.2 * (wide[1:] + wide[:-1])) * (wide[1:] - wide[:-1])
        return 16 * (flux[1:] - flux[:-1]) + jnp.sin(jnp.asarray(t, y.dtype)) * y

    def spectral_radius(self, t, y, args):
        return 64 * self.rate * (1 + 0.4 * jnp.max(jnp.abs(y))) + 1


_MATRIX = np.array([[1.0, 0.2, 0.0], [0.0, 1.0, -0.3], [0.1, 0.0, 1.0]])


class Case(NamedTuple):
    """A solver, what it is tried on, its order, and whether it has an error estimate.

    One of each family of methods, which differ in their coefficients alone, leads: what is slow and the same code for
    all is tried on this one in more of the ways that a solve is run, and on the others in the way that has most in it.
    """

    solver: Callable[[], Any]
    model: Callable[[jax.Array], Any]
    state: Callable[[Any], Any]
    order: int
    adaptive: bool
    steps: tuple[int, ...] = (16, 32, 64)
    leads: bool = False
    structure: bool = True

    @property
    def name(self) -> str:
        method = self.solver.func if isinstance(self.solver, ft.partial) else self.solver
        return f"{method.__name__}-{self.model.__name__}"


def _three(dtype):
    return jnp.array([1.0, 0.5, -0.4], dtype)


def _five(dtype):
    return jnp.array([1.0, 0.5, -0.4, 0.2, 0.9], dtype)


def _swinging(dtype):
    q = {"a": jnp.array([0.7, 0.1], dtype), "b": jnp.array([-0.4, 0.2], dtype)}
    return q, {"a": jnp.array([0.0, 0.3], dtype), "b": jnp.array([0.5, -0.2], dtype)}


def _both(dtype):
    return {"a": jnp.array([0.7, 0.1, -0.3], dtype), "b": jnp.array([-0.4, 0.2, 0.5], dtype)}


def _four(dtype):
    return jnp.cos(jnp.arange(4).astype(dtype) * 0.8) + 0.2


ROCK2 = ft.partial(families.ROCK2, max_stages=20)
ROCK4 = ft.partial(families.ROCK4, max_stages=25)

CASES = (
    Case(families.ETD1, Reaction, _three, 1, False, (64, 128, 256)),
    Case(families.ETDRK2, Reaction, _three, 2, True),
    Case(families.ETDRK3, Reaction, _three, 3, True),
    Case(families.ETDRK4, Reaction, _three, 4, True),
    Case(solvers.Krogstad4, Reaction, _three, 4, True),
    Case(families.ETDRK4, Rotation, _five, 4, True, leads=True),
    Case(solvers.CrankNicolson, Chain, _three, 2, False, (32, 64, 128)),
    Case(families.ARS222, Chain, _three, 2, False, (32, 64, 128)),
    Case(families.ARS443, Chain, _three, 3, False, (32, 64, 128)),
    Case(families.ARK324, Chain, _three, 3, True, (32, 64, 128), leads=True),
    Case(families.ARK436, Chain, _three, 4, True, (32, 64, 128)),
    Case(families.ARK324, Rotation, _five, 3, True, (32, 64, 128)),
    Case(solvers.VelocityVerlet, Pair, _swinging, 2, False, leads=True),
    Case(families.Yoshida4, Pair, _swinging, 4, False),
    Case(families.Yoshida6, Pair, _swinging, 6, False, (6, 8, 12)),
    Case(families.Yoshida8, Pair, _swinging, 8, False, (3, 4, 6)),
    Case(solvers.Leapfrog, Halves, _both, 2, False, leads=True),
    Case(families.Nystrom4, Pair, _swinging, 4, True),
    Case(families.Nystrom6, Pair, _swinging, 6, True, (8, 12, 16), leads=True),
    Case(families.Nystrom8, Pair, _swinging, 8, True, (1, 2, 3)),
    # A gradient takes as many iterations for each step as there may be stages.
    Case(
        ft.partial(solvers.RKC2, max_stages=20), Diffusion, _four, 2, True, (64, 128, 256), leads=True, structure=False
    ),
    Case(ft.partial(solvers.RKL2, max_stages=20), Diffusion, _four, 2, True, (64, 128, 256), structure=False),
    Case(
        ROCK2,
        Diffusion,
        _four,
        2,
        True,
        (64, 128, 256),
        leads=True,
        structure=False,
    ),
    Case(ROCK4, Diffusion, _four, 4, True, (16, 32, 64), structure=False),
)


def _each(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


each_case = _each(CASES)
each_adaptive_case = _each([c for c in CASES if c.adaptive])
each_with_structure = _each([c for c in CASES if c.structure])
"""Every method that refuses models without the structure it needs."""
