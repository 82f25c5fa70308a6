"""Gradients of one or two small members on CPUs keep few steps, in arrays for which XLA asks no threads."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import sciml
from tests.conftest import X64

from ..common import close


def lorenz(t, y, rho):
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def largest_outside_of_loops(gradient, *args):
    """The bytes of the largest array that the main computation of a compiled program has."""
    text = jax.jit(gradient).lower(*args).compile().as_text()
    found = re.findall(r"f(32|64)\[([\d,]*)\]", text[text.index("\nENTRY") :])
    return max(int(bits) // 8 * math.prod(int(n) for n in shape.split(",") if n) for bits, shape in found)


def gradient_by(**options):
    def end(y, rho):
        sol = sciml.solve(lorenz, y, t0=0.0, t1=0.5, args=rho, rtol=1e-4, atol=1e-4, **options)
        return jnp.sum(sol.ys[-1] ** 2)

    return jax.grad(lambda y, rho: jnp.sum(jax.vmap(end, (0, None))(y, rho)))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of CPUs")
@pytest.mark.parametrize("members", [1, 2])
def test_arrays_outside_of_loops_are_small(members):
    dtype = jnp.zeros(()).dtype
    y0, rho = jnp.ones((members, 3)) * jnp.arange(1, members + 1, dtype=dtype)[:, None], jnp.asarray(28.0)
    # of two in double precision 32 steps would fit, which are too few
    assert (largest_outside_of_loops(gradient_by(), y0, rho) <= 512) == (members * dtype.itemsize <= 8)
    asked = sciml.adjoints.Checkpointed(segments=512)  # who asks for more has them
    assert largest_outside_of_loops(gradient_by(adjoint=asked), y0, rho) >= 2048


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("t1", [0.5, 10.0])
def test_more_steps_than_are_kept(t1, saved):
    """The loop is run once more for the steps that there was no space for."""

    def end(y, adjoint):
        options = dict(rtol=1e-5, atol=1e-5, max_steps=1024, adjoint=adjoint)
        options |= dict(saveat=jnp.linspace(0.0, t1, 4)) if saved else {}
        sol = sciml.solve(lambda t, y, k: 20 * jnp.stack([y[1], -y[0] - 0.01 * y[1]]), y, t0=0.0, t1=t1, **options)
        return jnp.sum(sol.ys**2), sol.stats.accepted

    y0 = jnp.asarray([[1.0, 0.5]])
    found, exact = (
        jax.vmap(jax.value_and_grad(lambda y: end(y, adjoint), has_aux=True))(y0)  # noqa: B023
        for adjoint in (sciml.adjoints.Checkpointed(), sciml.adjoints.Checkpointed(segments=1024))
    )
    assert (found[0][1] > 128).all() == (t1 > 1)
    close(found[1], exact[1], 1e-9 if X64 else 1e-4, 1e-4)


@pytest.mark.parametrize("members", [2, 4])
def test_members_over_two_devices(members):
    """A device has one or two of them, and the program of one device keeps what the whole program says that it does."""
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:2]), "m"), P("m"))
    y0 = jnp.ones((members, 3)) * jnp.arange(1.0, members + 1)[:, None]
    gradient = jax.jit(gradient_by())
    found = gradient(jax.device_put(y0, sharding), jnp.asarray(28.0))
    assert found.sharding.is_equivalent_to(sharding, found.ndim)
    close(found, gradient(y0, jnp.asarray(28.0)), 1e-9 if X64 else 1e-3, 1e-3 if not X64 else 1e-9)
