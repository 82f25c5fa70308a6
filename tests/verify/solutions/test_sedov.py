"""The flow behind an explosion: the equations themselves, jumps at the shock, published radii, bad input."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import verify


@pytest.mark.x64
@pytest.mark.parametrize("ndim, energy, radius", [(1, 2 * 0.0673185, 0.5), (2, 0.311357, 0.75), (3, 0.851072, 1.0)])
def test_an_explosion(ndim, energy, radius):
    """The radii of Kamm and Timmes for gamma = 1.4; between centre and shock the equations of motion."""
    flow = jax.jit(ft.partial(verify.reference, "sedov", energy=energy, ndim=ndim))
    ahead, behind = flow(radius * jnp.array([1 + 2e-4, 1 - 2e-4]), 1.0).T
    speed = 2 / (ndim + 2) * radius
    np.testing.assert_array_equal(ahead, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(behind, [6.0, speed / 1.2, speed**2 / 1.2], rtol=1e-2)

    r, t = jnp.array([0.1, 0.4, 0.7, 0.95]) * radius, jnp.ones(4)
    w, along = jax.jvp(lambda r: flow(r, t), (r,), (jnp.ones(4),))
    _, rate = jax.jvp(lambda t: flow(r, t), (t,), (jnp.ones(4),))
    (density, velocity, pressure), scale = w, jnp.max(jnp.abs(along), axis=1)
    spread = density * along[1] + velocity * along[0] + (ndim - 1) * density * velocity / r
    np.testing.assert_allclose(rate[0] + spread, 0.0, atol=1e-10 * scale[0])
    push = rate[1] + velocity * along[1] + along[2] / density
    np.testing.assert_allclose(push, 0.0, atol=1e-8 * scale[1])
    heat = (rate[2] + velocity * along[2]) - 1.4 * pressure / density * (rate[0] + velocity * along[0])
    np.testing.assert_allclose(heat, 0.0, atol=1e-10 * scale[2])


def test_explosions_of_other_gases():
    """Derivatives against differences; the centre is finite; what is no explosion is refused."""
    at = jnp.array([0.0, 0.3, 0.6])

    def pressure(energy, gamma):
        w = verify.reference("sedov", at, 1.0, energy, gamma=gamma)
        return w[2, 1], w

    gradient = jax.jit(jax.value_and_grad(pressure, (0, 1), has_aux=True))
    (value, w), slopes = gradient(1.0, 5 / 3)
    step = 1e-2
    ends = [gradient(1.0, 5 / 3 + sign * step)[0][0] for sign in (1, -1)]
    assert abs(slopes[1] - (ends[0] - ends[1]) / (2 * step)) < 1e-2 * abs(slopes[1]) + 1e-4
    assert jnp.all(jnp.isfinite(w)) and abs(slopes[0] - 0.6 * value) < 0.4 * value
    with pytest.raises(ValueError, match="ndim"):
        verify.reference("sedov", at, 1.0, ndim=4)
    for gamma in (1.0, 2.0, 7.5):
        with pytest.raises(ValueError, match="gamma"):
            verify.reference("sedov", at, 1.0, gamma=gamma)
