"""Gradients of ensembles by what all members share and is too large for each to have a cotangent of its own."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

NET = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, dtype=jnp.float32, key=jax.random.key(0))
WEIGHTS, REST = eqx.partition(NET, eqx.is_inexact_array)
COUNT = 6
FIXED = dict(dt=0.1, solver=diffrax.Heun())  # few evaluations a step: small programs compile soon
ADAPTIVE = dict(rtol=1e-6, atol=1e-6, solver=diffrax.Bosh3())
KINDS = {
    "fixed": FIXED,
    "shorter last step": FIXED | dict(dt=0.15),
    "two levels": FIXED | dict(adjoint=sciml.adjoints.Checkpointed(levels=2)),
    "adaptive": ADAPTIVE,
    "saved times": ADAPTIVE | dict(saveat=np.array([0.3, 0.7, 1.0])),
    "reversible": FIXED | dict(adjoint=sciml.adjoints.Reversible()),
    "Rosenbrock": dict(dt=0.25, solver=sciml.solvers.Rosenbrock23()),
}
MARKED = {kind: kind if kind == "fixed" else pytest.param(kind, marks=pytest.mark.x64) for kind in KINDS}
each_kind = pytest.mark.parametrize("kind", MARKED.values())


def inputs():
    keys = jax.random.split(jax.random.key(1), 2)
    floating = jnp.result_type(float)
    weights = jax.tree.map(lambda w: w.astype(floating), WEIGHTS)
    return weights, jax.random.normal(keys[0], (COUNT, 2), floating), jnp.linspace(0.5, 1.5, COUNT)


def member(kind, weights, y, rate, **options):
    net = eqx.combine(weights, REST)
    options = KINDS[kind] | options
    return sciml.solve(lambda t, y, rate: rate * net(y), y, t0=0.0, t1=1.0, args=rate, **options)


def loss(kind):
    return lambda *args: jnp.sum(jnp.sin(member(kind, *args).ys) ** 2)


def total(kind):
    return lambda w, ys, rates: jnp.sum(jax.vmap(loss(kind), in_axes=(None, 0, 0))(w, ys, rates))


def agree(found, expected, rtol=None):
    if rtol is None:
        rtol = 1e-9 if jax.config.jax_enable_x64 else 1e-4
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * jnp.max(jnp.abs(b))), found, expected
    )


@each_kind
def test_shared_cotangents_equal_the_members_own_gradients(kind):
    weights, ys, rates = inputs()
    which = (0, 1, 2)
    each = jax.jit(jax.vmap(jax.grad(loss(kind), which), in_axes=(None, 0, 0)))(weights, ys, rates)
    found = jax.jit(jax.grad(total(kind), which))(weights, ys, rates)
    agree(found, (jax.tree.map(lambda x: jnp.sum(x, 0), each[0]), *each[1:]))
    if kind not in ("fixed", "saved times"):
        return
    # two groups of members have a gradient each
    two = jax.jit(jax.vmap(jax.grad(total(kind), which), in_axes=(None, 0, 0)))
    halves = two(weights, ys.reshape(2, 3, 2), rates.reshape(2, 3))
    agree(jax.tree.map(lambda x: jnp.sum(x, 0), halves[0]), found[0])
    agree(halves[1].reshape(ys.shape), found[1])


def test_second_derivatives():
    weights, ys, rates = inputs()
    along = jax.tree.map(jnp.ones_like, weights)
    slope = jax.jit(jax.grad(total("fixed")))
    found = jax.jit(lambda w: jax.jvp(lambda w: slope(w, ys, rates), (w,), (along,))[1])(weights)
    step = 1e-5
    ahead, behind = (slope(jax.tree.map(lambda w, s=s: w + s * step, weights), ys, rates) for s in (1, -1))
    agree(found, jax.tree.map(lambda a, b: (a - b) / (2 * step), ahead, behind), rtol=1e-6)


@pytest.mark.parametrize("kind", [MARKED["fixed"], MARKED["adaptive"]])
def test_a_failed_member_leaves_the_rest(kind):
    """Its steps are NaN, and zero times NaN must not reach what it shares with the others."""
    weights, ys, rates = inputs()

    def masked(weights, ys, rates, counts):
        sol = jax.vmap(lambda y, rate: member(kind, weights, y, rate, throw=False))(ys, rates)
        good = ((sol.status == 0) & counts)[:, None]
        return jnp.sum(jnp.where(good, jnp.sin(jnp.where(good, sol.ys[:, -1], 0.0)) ** 2, 0.0))

    gradient = jax.jit(jax.grad(masked, (0, 1, 2)))
    every = np.ones(COUNT, bool)
    found = gradient(weights, ys, rates.at[2].set(jnp.nan), every)
    # where it does not fail, and does not count
    expected = gradient(weights, ys, rates, np.arange(COUNT) != 2)
    agree(found, expected)
    assert np.all(found[1][2] == 0) and found[2][2] == 0
    everyone = gradient(weights, ys, rates, every)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(everyone))
    assert np.all(everyone[1][2] != 0) and everyone[2][2] != 0


def test_memory_does_not_grow_with_members_times_weights():
    """The gradient by the weights of a wide network takes no memory for a copy of them for each member."""
    wide = eqx.nn.MLP(2, 2, 96, 2, activation=jnp.tanh, dtype=jnp.float32, key=jax.random.key(0))
    weights, rest = eqx.partition(wide, eqx.is_inexact_array)
    ys = jnp.ones((256, 2), jnp.float32)

    def summed(weights):
        net = eqx.combine(weights, rest)
        run = lambda y: sciml.solve(lambda t, y, args: net(y), y, t0=0.0, t1=1.0, dt=0.25).ys  # noqa: E731
        return jnp.sum(jax.vmap(run)(ys))

    found = jax.jit(jax.grad(summed)).lower(weights).compile().memory_analysis().temp_size_in_bytes
    copies = sum(w.size * w.dtype.itemsize for w in jax.tree.leaves(weights)) * len(ys)
    assert found < copies
