"""What gradients record of the steps of few members and of many.

Where JAX batches a program that it has traced for fewer members, they record as much as it was traced for.
"""

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


def gradient_by(**options):
    def end(y, rho):
        sol = sciml.solve(lorenz, y, t0=0.0, t1=0.5, args=rho, rtol=1e-4, atol=1e-4, **options)
        return jnp.sum(sol.ys[-1] ** 2)

    return jax.grad(lambda y, rho: jnp.sum(jax.vmap(end, (0, None))(y, rho)))


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
        for adjoint in (sciml.adjoints.Checkpointed(segments=128), sciml.adjoints.Checkpointed(segments=1024))
    )
    assert (found[0][1] > 128).all() == (t1 > 1)
    close(found[1], exact[1], 1e-9 if X64 else 1e-4, 1e-4)


@pytest.mark.parametrize("members", [2, 4])
def test_members_over_two_devices(members):
    """A device has one or two of them, and the program of one device keeps what the whole program says."""
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:2]), "m"), P("m"))
    y0 = jnp.ones((members, 3)) * jnp.arange(1.0, members + 1)[:, None]
    gradient = jax.jit(gradient_by())
    found = gradient(jax.device_put(y0, sharding), jnp.asarray(28.0))
    assert found.sharding.is_equivalent_to(sharding, found.ndim)
    close(found, gradient(y0, jnp.asarray(28.0)), 1e-9 if X64 else 1e-3, 1e-3 if not X64 else 1e-9)


def end_of(y, rho):
    return jnp.sum(sciml.solve(lorenz, y, t0=0.0, t1=0.2, args=rho, rtol=1e-4, atol=1e-4).ys[-1] ** 2)


def descent(y, rho):
    return jax.lax.fori_loop(0, 2, lambda _, y: y - 1e-4 * jax.grad(end_of)(y, rho), y)


@pytest.mark.parametrize("members", [1, 2])
def test_a_program_that_is_batched_keeps_its_shapes(members):
    """What a `jit` or a loop hands from a solve to its gradient has the type that it had for one member."""
    y0, rho = jnp.ones((members, 3)) * jnp.arange(1.0, members + 1)[:, None], jnp.asarray(28.0)
    found = jax.vmap(jax.jit(jax.grad(end_of)), (0, None))(y0, rho)
    close(found[-1], jax.grad(end_of)(y0[-1], rho), 1e-9 if X64 else 1e-3, 1e-9 if X64 else 1e-3)
    close(jax.vmap(descent, (0, None))(y0, rho)[-1], descent(y0[-1], rho), 1e-5, 1e-5)


def test_a_program_of_one_or_two_members_that_is_batched():
    y0, rho = jnp.ones((3, 2, 3)) * jnp.arange(1.0, 7.0).reshape(3, 2, 1), jnp.asarray(28.0)
    gradient = jax.jit(gradient_by())
    close(jax.vmap(gradient, (0, None))(y0, rho)[2], gradient(y0[2], rho), 1e-9 if X64 else 1e-3, 1e-3)
    each = jax.jit(jax.vmap(jax.grad(end_of), (0, None)))
    close(jax.vmap(each, (0, None))(y0, rho)[2], each(y0[2], rho), 1e-9 if X64 else 1e-3, 1e-3)


def test_gradients_in_a_loop_over_two_devices():
    """As chains of `nuts` are, of which a device has one or two."""
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    mesh = sciml.parallel.mesh(devices=jax.devices()[:2])
    y0, rho = jnp.ones((4, 3)) * jnp.arange(1.0, 5.0)[:, None], jnp.asarray(28.0)
    found = sciml.parallel.ensemble(descent, y0, rho, mesh=mesh)
    close(found[-1], descent(y0[-1], rho), 1e-5, 1e-5)


@pytest.mark.parametrize("options", [{"rtol": 1e-3, "atol": 1e-3}, {"dt": 0.02}], ids=["adaptive", "fixed"])
@pytest.mark.parametrize("how", ["jit", "loop"])
def test_many_members_of_a_program_that_is_batched(how, options):
    """Side by side so many members have a shorter record each than one alone."""
    jax.clear_caches()  # programs that JAX has batched elsewhere, with shorter records, are taken again
    memory = 2**16 if "dt" in options else None
    adjoint = sciml.adjoints.Checkpointed(memory=memory)

    def end(y):
        return jnp.sum(sciml.solve(lambda t, y, args: -(y**2), y, t0=0.0, t1=0.2, adjoint=adjoint, **options).ys ** 2)

    gradient = jax.grad(end)
    if how == "loop":
        run = lambda y: jax.lax.fori_loop(0, 1, lambda _, y: gradient(y), y)  # noqa: E731
    else:
        run = jax.jit(gradient)
    y0 = jnp.linspace(0.5, 1.0, 6000).reshape(3000, 2)
    some = np.array([0, -1])
    close(jax.vmap(run)(y0)[some], jax.vmap(gradient)(y0[some]), 1e-4, 1e-4)
