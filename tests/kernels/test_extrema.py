"""Derivatives of extrema within a field, which compilers that compute elements again may lose."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

RATES = jnp.array([0.7, 0.7, 0.6])


def decay(t, y, rate):
    return -rate * y * (1 + jnp.max(jnp.abs(y)))


def exchange(t, y, rate):
    across = jnp.roll(y, 1) + jnp.roll(y, -1) - 2 * y
    return rate * across - y * jnp.max(jnp.abs(y)) + 0.1 * jnp.max(across)


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("field", "adjoint", "solver"),
    [
        (decay, sciml.adjoints.Forward(), diffrax.Tsit5()),
        (decay, sciml.adjoints.Forward(), diffrax.Heun()),
        (exchange, sciml.adjoints.Checkpointed(), diffrax.Tsit5()),
    ],
    ids=["forward", "two stages", "reverse"],
)
def test_gradients_go_to_the_elements_that_are_extreme(field, adjoint, solver):
    y0 = jnp.linspace(0.1, 1.3, 40)

    def loss(rate):
        sol = sciml.solve(field, y0, t0=0.0, t1=1.0, dt=0.05, args=rate, solver=solver, adjoint=adjoint)
        return jnp.sum(sol.ys**2)

    both = jax.jit(jax.vmap(jax.value_and_grad(loss)))  # one program for differences, too
    found = both(RATES)[1]
    np.testing.assert_allclose(found, (both(RATES + 1e-5)[0] - both(RATES - 1e-5)[0]) / 2e-5, rtol=1e-7)


def test_what_is_extreme_more_than_once_shares_the_derivative():
    def loss(y0):
        sol = sciml.solve(decay, y0, t0=0.0, t1=0.1, dt=0.1, args=1.0, solver=diffrax.Euler())
        return jnp.sum(sol.ys)

    starts = jnp.array([[1.0, 2.0, -2.0, 0.5], [1.0, 1.0, 1.0, 1.0]])
    own = jax.vmap(jax.grad(lambda y: jnp.sum(y - 0.1 * y * (1 + jnp.max(jnp.abs(y))))))(starts)
    np.testing.assert_allclose(jax.vmap(jax.grad(loss))(starts), own, rtol=1e-14)
