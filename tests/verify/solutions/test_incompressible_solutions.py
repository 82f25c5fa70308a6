"""Exact solutions of flow that cannot be compressed solve its equations, by automatic derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import verify


def residual(flow, viscosity, point):
    """Both equations of motion and the divergence at a point `(t, x, y)` of a function that returns `u, v, p`."""
    values, slopes = flow(point), jax.jacfwd(flow)(point)
    curved = jax.jacfwd(jax.jacfwd(flow))(point)
    motion = [
        slopes[i, 0]
        + values[0] * slopes[i, 1]
        + values[1] * slopes[i, 2]
        + slopes[2, 1 + i]
        - viscosity * (curved[i, 1, 1] + curved[i, 2, 2])
        for i in range(2)
    ]
    return jnp.stack([*motion, slopes[0, 1] + slopes[1, 2]])


FLOWS = {
    "taylor_green": (lambda q: verify.reference("taylor_green_flow", q[1], q[2], q[0], viscosity=0.3, waves=2), 0.3),
    "kovasznay": (lambda q: verify.reference("kovasznay", q[1], q[2], 20.0), 1 / 20),
    "couette": (
        lambda q: (verify.reference("couette", q[2], q[0], viscosity=0.3, height=2.0), 0 * q[0], 0 * q[0]),
        0.3,
    ),
    "poiseuille": (
        lambda q: (verify.reference("poiseuille", q[2], slope=2.0, viscosity=0.3), 0 * q[0], -2 * q[1]),
        0.3,
    ),
}


@pytest.mark.x64
@pytest.mark.parametrize("name", FLOWS)
def test_flows_of_the_plane_solve_the_equations(name):
    flow, viscosity = FLOWS[name]
    points = jnp.asarray(np.random.default_rng(0).uniform(0.1, 0.9, size=(5, 3)))
    found = jax.jit(jax.vmap(lambda q: residual(lambda q: jnp.stack(flow(q)), viscosity, q)))(points)
    assert jnp.max(jnp.abs(found)) < 1e-11


@pytest.mark.x64
def test_the_flow_of_beltrami_is_its_own_vorticity():
    points = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)))
    slopes = jax.jit(jax.vmap(jax.jacfwd(lambda q: verify.reference("beltrami_flow", *q, 0.7))))(points)
    curl = jnp.stack([slopes[:, j, i] - slopes[:, i, j] for i, j in ((1, 2), (2, 0), (0, 1))])
    np.testing.assert_allclose(curl, verify.reference("beltrami_flow", *points.T, 0.7), rtol=1e-12)


def test_the_onset_of_convection():
    """Between free walls the formula, between rigid ones the published number; growth is zero there."""
    assert abs(verify.reference("rayleigh_benard_onset", "free")[0] - 657.511) < 1e-3
    number, wave = verify.reference("rayleigh_benard_onset")
    assert abs(number - 1707.762) < 1e-3 and abs(wave - 3.117) < 1e-3
    for prandtl in (0.1, 7.0):
        assert abs(verify.reference("rayleigh_benard_growth", number, wave, prandtl)) < 1e-8
        assert verify.reference("rayleigh_benard_growth", number + 50, wave, prandtl) > 0.01
    free, k = verify.reference("rayleigh_benard_onset", "free")
    assert abs(verify.reference("rayleigh_benard_growth", free, k, walls="free")) < 1e-10
    with pytest.raises(ValueError, match="rigid"):
        verify.reference("rayleigh_benard_growth", 1e3, walls="soft")
