"""Primitives of our own: where they stand, and that they do what they are for, on each JAX they were seen on.

They do what `custom_jvp`, `custom_vjp` and `custom_vmap` cannot: refuse one mode of differentiation and not the other,
let `jax.vmap` choose what is differentiated, and have a transpose that is not that of what they compute.
"""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jax._ad_modes import forward_only, not_transposed, reverse_only
from sciml._jax._differentiable import differentiable
from sciml._jax._members_apart import members_apart
from sciml.solvers.adjoints._forward import without_unreached

SRC = pathlib.Path(sciml.__file__).parent

SEEN = {
    "_jax/_ad_modes.py": ("0.10.2", "0.12.0.1"),
    "_jax/_differentiable.py": ("0.10.2", "0.12.0.1"),
    "_jax/_members_apart.py": ("0.10.2", "0.12.0.1"),
    "solvers/adjoints/_forward.py": ("0.10.2", "0.12.0.1"),
}
"""The files with primitives, and on which JAX these tests have passed."""


def test_they_stand_in_one_room():
    found = {str(p.relative_to(SRC)) for p in SRC.rglob("*.py") if re.search(r"\bPrimitive\(", p.read_text())}
    found |= {str(p.relative_to(SRC)) for p in SRC.rglob("*.py") if "= primitive_over_lanes(" in p.read_text()}
    assert found == set(SEEN), "say here on which JAX a new one was seen, and test it below"


def test_modes_that_are_refused():
    def square(mark):
        return lambda x: mark(x, "not in this mode") ** 2

    assert jax.jvp(square(forward_only), (3.0,), (1.0,))[1] == 6.0
    assert jax.grad(square(reverse_only))(3.0) == 6.0
    assert jax.jvp(square(not_transposed), (3.0,), (1.0,))[1] == 6.0
    for mark in (forward_only, not_transposed):
        with pytest.raises(TypeError, match="not in this mode"):
            jax.grad(square(mark))(3.0)
    with pytest.raises(TypeError, match="not in this mode"):
        jax.jvp(square(reverse_only), (3.0,), (1.0,))
    assert jax.jit(jax.vmap(jax.grad(square(reverse_only))))(jnp.arange(2.0)).tolist() == [0.0, 2.0]


def test_members_are_one_call_whatever_transforms_it():
    seen = []

    def make(count, flags):
        seen.append((count, flags))
        return lambda w, x: w * jnp.sin(x)

    product, xs, two = differentiable(make), jnp.arange(3.0), jnp.array(2.0)
    np.testing.assert_allclose(jax.jit(jax.vmap(product, (None, 0)))(two, xs), 2 * np.sin(xs), rtol=1e-6)
    assert seen[-1] == (3, (False, True))
    total = jax.grad(lambda w: jnp.sum(jax.vmap(product, (None, 0))(w, xs)))(two)
    np.testing.assert_allclose(total, np.sin(xs).sum(), rtol=1e-6)
    own = jax.vmap(jax.grad(product, argnums=1), (None, 0))(two, xs)
    np.testing.assert_allclose(own, 2 * np.cos(xs), rtol=1e-6)
    _, rate = jax.jvp(lambda x: jax.vmap(product, (None, 0))(two, x), (xs,), (jnp.ones(3),))
    np.testing.assert_allclose(rate, 2 * np.cos(xs), rtol=1e-6)


def test_a_member_on_its_own_has_every_derivative():
    """Of a program that JAX refuses to batch on explicit axes, by both modes and both ways round."""
    xs = jnp.outer(jnp.linspace(0.5, 2.0, 4), jnp.arange(1.0, 4.0))
    mesh = jax.make_mesh((2,), ("m",), devices=jax.devices()[:2])
    placed = jax.device_put(xs, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("m")))

    def entry(w, x):
        return jnp.sin(w * x)[jnp.argmax(x > 1.0)], jnp.argmax(x > 1.0)

    def programs(fn):
        one = lambda w, x: fn(w, x)[0]  # noqa: E731
        two = jnp.array(2.0)
        over = jax.vmap(one, (None, 0))
        yield lambda xs: jax.vmap(fn, (None, 0))(two, xs)
        yield lambda xs: jax.vmap(jax.grad(one, argnums=(0, 1)), (None, 0))(two, xs)
        yield lambda xs: jax.grad(lambda w: jnp.sum(over(w, xs)))(two)
        yield lambda xs: jax.vmap(jax.jacfwd(one), (None, 0))(two, xs)
        yield lambda xs: jax.jvp(lambda w: over(w, xs), (two,), (two,))[1]
        yield lambda xs: jax.vmap(jax.grad(lambda w, x: jax.grad(one)(w, x)), (None, 0))(two, xs)

    for apart, plain in zip(programs(members_apart(entry)), programs(entry), strict=True):
        for a, b in zip(jax.tree.leaves(jax.jit(apart)(placed)), jax.tree.leaves(jax.jit(plain)(xs)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_what_was_not_reached_is_nan_for_those_who_use_it():
    unreached = jnp.array([False, True])

    def of(weights):
        return lambda x: jnp.sum(weights * without_unreached(2 * x, unreached))

    assert np.isnan(without_unreached(jnp.ones(2), unreached)).tolist() == [False, True]
    assert jax.linear_transpose(of(jnp.array([3.0, 0.0])), jnp.ones(2))(1.0)[0].tolist() == [6.0, 0.0]
    used = jax.vmap(lambda w: jax.linear_transpose(of(w), jnp.ones(2))(1.0)[0])(jnp.eye(2))
    assert used[0].tolist() == [2.0, 0.0] and np.isnan(used[1]).tolist() == [False, True]
