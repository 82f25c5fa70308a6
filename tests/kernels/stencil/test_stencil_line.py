"""The kernels of stencils along one axis: interpreted against the reference, and lowered for GPU and TPU."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.kernels import select
from sciml.kernels.stencil import StencilUpdate
from sciml.models import FisherKPP
from sciml.spatial import Dirichlet, Grid, Neumann

from ..running import evolve, solve
from .stencil_cases import KINDS, field
from .test_stencil_kernels import TARGETS, case, check

pytestmark = pytest.mark.x64


@pytest.mark.parametrize(
    "name, steps, k, radius, kind, shape",
    [
        ("heat", 3, 2, 1, "walls", (300,)),
        ("acoustic", 5, 2, 2, "walls", (300,)),
        *(("heat", 2 * k + 1, k, 1, "periodic", (1500,)) for k in (1, 4, 8)),
        *(("heat", 5, 4, 1, kind, (9,)) for kind in KINDS),
        ("wave", 3, 16, 4, "mixed", (2048,)),
        ("heat", 8, 8, 1, "periodic", (16384,)),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_interpreted_kernels_agree_with_the_reference(target, name, steps, k, radius, kind, shape):
    check(name, f"interpret_{target}", steps, k, radius=radius, kind=kind, shape=shape)


def test_the_gpu_kernel_takes_float64():
    check("acoustic", "interpret_gpu", 3, 2, 1e-14, kind="walls", dtype=jnp.float64, shape=(300,))


@pytest.mark.parametrize("kernel, platform, call", [("gpu", "cuda", "mosaic_gpu"), ("tpu", "tpu", "tpu_custom_call")])
@pytest.mark.parametrize("name, kind", [("heat", "periodic"), ("acoustic", "walls")])
def test_kernels_lower_without_their_machine(kernel, platform, call, name, kind):
    update, state, params, rest = case(name, kind=kind, shape=(5000,))

    def run(state):
        return evolve(update, state, 8, params, coefficients=rest, impl=f"mosaic_{kernel}", steps_per_pass=4)

    assert call in jax.jit(run).trace(state).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("target", TARGETS)
def test_models_and_their_gradients(target):
    """The kernel runs the stages of a method; derivatives are XLA's."""
    walls = {"x-": Dirichlet(0.3), "x+": Neumann(0.2)}
    start = field((40,), jnp.float32)

    def total(rate, impl):
        model = FisherKPP(Grid((40,), 0.0, (40.0,)), walls, 0.4, rate)
        how = dict(t0=0.0, t1=1.0, dt=0.1, solver=diffrax.Midpoint(), impl=impl)
        return jnp.sum(solve(model, start, **how).ys ** 2)

    found, expected = (
        jax.value_and_grad(lambda r, impl=impl: total(r, impl))(jnp.float32(0.5))
        for impl in (f"interpret_{target}", "xla")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_reaches_too_far_is_refused():
    update, u = StencilUpdate(lambda nb, p: nb("u", 1)), jnp.ones(100, jnp.float32)
    for target in TARGETS:
        with pytest.raises(ValueError, match="reach further than 64 cells"):
            select(update, u, impl=f"mosaic_{target}", steps_per_pass=65)
