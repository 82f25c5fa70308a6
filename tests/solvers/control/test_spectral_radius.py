"""Stabilised methods that estimate the spectral radius themselves."""

import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import solvers

METHODS = (solvers.RKC2(), solvers.ROCK(order=2), solvers.ROCK(order=4), solvers.RKL2())


@pytest.mark.parametrize("solver", METHODS, ids=lambda s: type(s).__name__)
def test_a_derivative_of_zero_at_the_start(solver):
    """The second product of the power iteration divided zero by zero, and the solve ended before its first step."""

    def field(t, y, args):
        return {"logistic": 1 - y["logistic"] ** 2, "fall": -jnp.ones_like(y["fall"])}

    y0 = {"logistic": jnp.zeros(2), "fall": jnp.ones(2)}
    sol = sciml.solve(field, y0, t0=0.0, t1=0.5, solver=solver, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sol.ys["logistic"][-1], np.tanh(0.5), rtol=1e-3)
    np.testing.assert_allclose(sol.ys["fall"][-1], 0.5, rtol=1e-5)


def test_a_derivative_of_zero_has_the_radius_zero():
    radius = solvers.control._stability.estimated_radius
    assert radius(jnp.ones_like, jnp.arange(3.0)) == 0.0
    found = radius(lambda y: -jnp.array([1.0, 50.0, 3.0]) * y, jnp.arange(3.0))
    np.testing.assert_allclose(found, 60.0, rtol=1e-4)
