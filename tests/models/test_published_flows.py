"""Flows with published figures: the tasks of Mosaic, cavities and cylinders."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from benchmarks import mosaic
from sciml.models import NavierStokes3D, ThreeHalves


@pytest.mark.x64
def test_vortices_of_taylor_and_green_on_sixteen_points():
    """Within 1e-5 of what sixteen points can hold, for the least and the largest viscosity."""

    def ends(points):
        def end(viscosity):
            model = NavierStokes3D(mosaic.box(points), viscosity, dealiasing=ThreeHalves())
            return sciml.solve(model, mosaic.vortices(points), t0=0.0, t1=0.5, dt=0.1).ys[-1]

        return np.asarray(jax.jit(jax.vmap(end))(jnp.array(mosaic.VISCOSITIES)[::2]))

    for found, fine in zip(ends(16), ends(24), strict=True):
        wanted = mosaic.kept(fine, 16)
        assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < 1e-5


@pytest.mark.x64
def test_gradient_of_a_drag_by_what_enters():
    """Slow: a channel with a cylinder, 32 values at its inlet, against central differences."""
    cosine, drag = mosaic.cosine_with_differences(steps=40)
    assert cosine > 0.9999 and 0.02 < drag < 0.06
