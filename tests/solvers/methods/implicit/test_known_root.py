"""Derivatives of a root that an iteration has found, also of gradients through loops over it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.solvers.methods.implicit._known_root import known_root


def root(p, z0, exact):
    """The root of z**3 + p z = z0, by Newton's method."""

    def residual(z):
        return z**3 + p * z - z0

    at, start = jax.lax.stop_gradient((p, z0))
    z = jax.lax.fori_loop(0, 20, lambda _, z: z - (z**3 + at * z - start) / (3 * z**2 + at), jnp.zeros_like(z0))

    def slope(z):
        return 3 * z**2 + (p if exact else 1.1 * p)

    def divide(slope, b):
        return b / slope

    return known_root(residual, z, divide, divide, slope, exact)


def end(p, exact):
    steps = jax.lax.scan(lambda z, _: (root(p, z, exact), None), jnp.array([1.0, 0.5]), length=3)[0]
    return jnp.sum(steps**2)


@pytest.mark.parametrize("exact", [True, False], ids=["exact factors", "factors nearby"])
@pytest.mark.x64
def test_second_and_third_derivatives_of_a_loop_over_roots(exact):
    """JAX 0.10 loses a part of them where the rule of the root says no more than `jax.lax.custom_root`."""

    def loss(p):
        return end(p, exact)

    slope, p, h = jax.jit(jax.grad(loss)), jnp.asarray(1.3), 1e-4
    np.testing.assert_allclose(slope(p), (loss(p + h) - loss(p - h)) / (2 * h), rtol=1e-6)
    wanted = (slope(p + h) - slope(p - h)) / (2 * h)
    for second in (jax.jacfwd(slope), jax.grad(slope), jax.jacfwd(jax.jacfwd(loss))):
        np.testing.assert_allclose(jax.jit(second)(p), wanted, rtol=1e-6)
    curvature = jax.jit(jax.jacfwd(slope))
    wanted = (curvature(p + h) - curvature(p - h)) / (2 * h)
    for third in (jax.jacfwd(curvature), jax.jacfwd(jax.jacfwd(jax.jacfwd(loss)))):
        np.testing.assert_allclose(jax.jit(third)(p), wanted, rtol=1e-6)
