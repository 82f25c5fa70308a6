"""Gradients that keep the last steps only, and compute those before them again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

ALL = 2048
"""More steps than any solve here takes."""


def van_der_pol(t, y, args):
    mu, forcing = args
    return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0] + forcing * jnp.sin(t)])


def gradient(segments, saveat=None):
    """Returns the gradient by initial state, parameters and end time, and the numbers of attempted steps."""

    def loss(y0, args, t1):
        adjoint = sciml.Checkpointed(segments=segments)
        options = {} if saveat is None else {"saveat": saveat * t1}
        sol = sciml.solve(
            van_der_pol, y0, args=args, t0=0.0, t1=t1, rtol=rtol(), atol=1e-2 * rtol(), adjoint=adjoint, **options
        )
        return jnp.sum(sol.ys**2), sol.stats.accepted + sol.stats.rejected

    return jax.grad(loss, argnums=(0, 1, 2), has_aux=True)


def rtol():
    return 1e-7 if jax.config.jax_enable_x64 else 1e-4


def inputs(members):
    mu = jnp.linspace(1.0, 3.0, members)
    return jnp.stack([jnp.full(members, 2.0), mu - 1], axis=-1), (mu, mu / 4), jnp.linspace(20.0, 60.0, members)


def agree(found, expected):
    """Steps that are computed again may be other ones by rounding, and so their derivatives with the steps held."""
    tol = 1e-7 if jax.config.jax_enable_x64 else 1e-3
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * float(jnp.max(jnp.abs(b))))


@pytest.mark.parametrize("segments", [16, 64, 256])
def test_one_member(segments):
    """From a few steps in a hundred that are kept, with states further apart than these, to half of them or more."""
    y0, args, t1 = jax.tree.map(lambda x: x[-1], inputs(3))
    expected, steps = jax.jit(gradient(ALL))(y0, args, t1)
    assert segments < steps < ALL
    found, _ = jax.jit(gradient(segments))(y0, args, t1)
    agree(found, expected)


@pytest.mark.parametrize("segments", [16, 256])
def test_members_of_unequal_lengths(segments):
    members = inputs(5)
    expected, steps = jax.jit(jax.vmap(gradient(ALL)))(*members)
    assert segments < max(steps) < ALL and max(steps) > 2 * min(steps)
    found, _ = jax.jit(jax.vmap(gradient(segments)))(*members)
    agree(found, expected)


@pytest.mark.parametrize("members", [1, 5])
def test_saved_times(members):
    """Some lie in different segments, and two in one step."""
    saveat = jnp.array([0.0, 0.31, 0.3101, 0.7, 1.0])
    expected, _ = jax.jit(jax.vmap(gradient(ALL, saveat)))(*inputs(members))
    found, _ = jax.jit(jax.vmap(gradient(16, saveat)))(*inputs(members))
    agree(found, expected)


@pytest.mark.parametrize("members", [None, 40])
def test_many_saved_times_in_single_precision(members):
    """In float32 the estimate of an error is known to a few digits, so that other steps are chosen the second time."""

    def gradient(segments):
        def loss(args):
            def field(t, y, args):
                return jnp.stack([y[1], -args[0] * y[0] - args[1] * y[1] + args[2] * jnp.sin(3 * t)])

            adjoint, y0 = sciml.Checkpointed(segments=segments), jnp.array([1.0, 0.3], jnp.float32)
            saveat = jnp.linspace(0.0, 30.0, 161)
            sol = sciml.solve(field, y0, t0=0.0, t1=30.0, args=args, rtol=1e-4, saveat=saveat, adjoint=adjoint)
            return jnp.mean(jnp.sin(sol.ys)), sol.stats.accepted + sol.stats.rejected

        return jax.grad(loss, has_aux=True)

    rng = np.random.default_rng(0)
    args = np.float32(rng.uniform([0.5, 0.02, 0.0], [3.0, 0.3, 1.0], (members or 1, 3)))
    run = (lambda fn: jax.jit(jax.vmap(fn))(args)) if members else (lambda fn: jax.jit(fn)(args[0]))
    expected, steps = run(gradient(512))
    assert 32 < np.min(steps) and np.max(steps) < 512
    found, _ = run(gradient(16))
    np.testing.assert_allclose(found, expected, atol=2e-4 * np.max(np.abs(expected)))
