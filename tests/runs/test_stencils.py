"""Runs of models that are stencils by a kernel, interpreted, against the same runs by XLA."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import kernels
from sciml.models import Diffusion, FisherKPP, GrayScott, KleinGordon, Wave
from sciml.runs.segments import _stencil_blocks
from sciml.spatial import Dirichlet, Grid, Neumann, Periodic

from ..kernels.running import running

GRID = Grid((12, 21), 0.0, (12.0, 21.0))
MIXED = {"x": Periodic(), "y-": Dirichlet(0.1), "y+": Neumann(0.0)}

pytestmark = pytest.mark.x64


def field(seed=0):
    return jnp.asarray(np.random.default_rng(seed).random(GRID.shape), jnp.float32)


def cases(name):
    if name == "diffusion":
        return Diffusion(GRID, MIXED, 0.7), field(), diffrax.Euler()
    if name == "gray-scott":
        model = GrayScott(GRID, Periodic(), diffusivity_u=0.16, diffusivity_v=0.08)
        return model, jnp.stack([field(), 0.1 * field(1)]), diffrax.Heun()
    if name == "wave":
        return Wave(GRID, MIXED, 0.5), jnp.stack([field(), 0.1 * field(1)]), diffrax.Bosh3()
    return KleinGordon(GRID, MIXED, 0.5), (field(), 0.1 * field(1)), sciml.solvers.VelocityVerlet()


@pytest.fixture
def blocks(monkeypatch):
    """The sizes of the blocks that are traced."""
    found = []
    take = _stencil_blocks.StencilBlocks.take

    def seen(self, *args):
        found.append(self.size)
        return take(self, *args)

    monkeypatch.setattr(_stencil_blocks.StencilBlocks, "take", seen)
    return found


def close(found, expected, tolerance=1e-6):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * float(np.max(np.abs(b))))


@pytest.mark.parametrize("name", ["diffusion", *(n for n in ("gray-scott", "wave", "sine"))])
def test_a_run_by_a_kernel_agrees_with_xla(name, blocks):
    model, y0, solver = cases(name)
    options = dict(t0=0.0, t1=3.1, dt=0.1, solver=solver, save_every=0.8, progress=False)
    expected = sciml.simulate(model, y0, **options)
    assert not blocks
    with running("interpret_tpu"):
        found = sciml.simulate(model, y0, **options)
    assert set(blocks) == {8} and len(found) == 4 and found.finished
    close((found.values, found.y), (expected.values, expected.y))
    assert found.accepted == expected.accepted == 31


def test_saved_times_between_steps_and_segments_that_end_anywhere(blocks):
    model, y0, solver = cases("diffusion")
    options = dict(t0=0.0, t1=5.0, dt=0.1, solver=solver, save_every=1.23, segment_steps=17, progress=False)
    expected = sciml.simulate(model, y0, **options)
    with running("interpret_tpu"):
        found = sciml.simulate(model, y0, **options)
    assert blocks and min(blocks) > 1
    close((found.values, found.y), (expected.values, expected.y))


def test_a_run_that_fails_names_the_same_time():
    y0 = -jnp.ones(GRID.shape, jnp.float32)  # a negative population falls without bound
    model = FisherKPP(GRID, Periodic(), diffusivity=0.1, rate=0.5)
    options = dict(t0=0.0, t1=4.0, dt=0.1, solver=diffrax.Heun(), save_every=4.0, progress=False, throw=False)
    expected = sciml.simulate(model, y0, **options)
    with running("interpret_tpu"):
        found = sciml.simulate(model, y0, **options)
    assert found.status == expected.status == int(sciml.Status.nonfinite)
    np.testing.assert_allclose(found.t_reached, expected.t_reached, rtol=1e-6)


def test_runs_that_no_kernel_takes_are_refused_where_one_is_asked_for():
    model, y0, solver = cases("diffusion")
    options = dict(t0=0.0, t1=1.0, progress=False)
    with kernels.use("pallas", interpret=True):
        with pytest.raises(ValueError, match="are adaptive"):
            sciml.simulate(model, y0, solver=diffrax.Tsit5(), **options)
        with pytest.raises(ValueError, match="members"):
            sciml.simulate(model, y0[None], dt=0.1, solver=solver, in_axes=(None, 0, None), **options)
        with pytest.raises(ValueError, match="two or more whole steps"):
            sciml.simulate(model, y0, dt=0.1, solver=solver, save_every=0.1, **options)
        with kernels.use("auto"):
            sciml.simulate(model, y0, dt=0.1, solver=solver, save_every=0.1, **options)
