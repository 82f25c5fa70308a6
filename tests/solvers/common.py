"""Vector fields and shorthands for the tests of the solvers."""

import functools as ft

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import sciml


class Swing(sciml.AbstractModel):
    """A driven pendulum; depends on time, state, parameters and args."""

    stiffness: jax.Array
    damping: jax.Array

    def __init__(self, stiffness=1.3, damping=0.2):
        self.stiffness = jnp.asarray(stiffness, jnp.result_type(float))
        self.damping = jnp.asarray(damping, jnp.result_type(float))

    def __call__(self, t, y, args):
        force = args["force"] * jnp.cos(jnp.asarray(t, y.dtype))
        return jnp.stack([y[1], force - self.stiffness * jnp.sin(y[0]) - self.damping * y[1]])


class Inputs(eqx.Module):
    """Everything that a solution may be differentiated by."""

    model: Swing
    y0: jax.Array
    args: dict
    factor: jax.Array  # reaches the vector field by closure
    t0: jax.Array
    t1: jax.Array
    ts: jax.Array


def inputs() -> Inputs:
    return Inputs(
        Swing(),
        jnp.array([0.7, -0.3]),
        {"force": jnp.array(0.4)},
        jnp.array(1.1),
        jnp.array(0.1),
        jnp.array(2.05),
        jnp.array([0.4, 0.45, 1.1, 1.9]),
    )


def members(count: int = 3) -> Inputs:
    """Inputs with a leading axis of members that all differ in all of them."""
    return jax.tree.map(lambda x: jnp.stack([x * (1 + 0.04 * i) for i in range(count)]), inputs())


def run(kind: str, adjoint, p: Inputs, **options) -> sciml.Solution:
    """Solves by one of the loops of the registry of adjoints."""

    def field(t, y, args):
        return p.factor * p.model(t, y, args)

    options = {"args": p.args, "adjoint": adjoint, "throw": False, **options}
    if kind == "scan":  # the number of steps must be known when traced
        return sciml.solve(field, p.y0, t0=0.1, t1=2.05, dt=0.05, **options)
    if kind.endswith("saves"):
        options["saveat"] = p.ts
    if kind.startswith("fixed"):
        return sciml.solve(field, p.y0, t0=p.t0, t1=p.t1, dt=0.0617, **options)  # no saved time where a step ends
    # so tight that differences between neighbouring choices of steps stay below those of finite differences
    options = {"rtol": 1e-10, "atol": 1e-10, **options}
    return sciml.solve(field, p.y0, t0=p.t0, t1=p.t1, **options)


def loss(kind: str, adjoint, p: Inputs, **options):
    ys = run(kind, adjoint, p, **options).ys
    weights = jnp.arange(1, ys.size + 1).astype(ys.dtype).reshape(ys.shape)
    return jnp.sum(jnp.sin(ys * weights))


def cheap(kind: str) -> dict:
    """Options for tests that compare a loop with itself: few stages compile fast, and nothing needs to be accurate."""
    options = {"solver": diffrax.Bosh3()}
    return options | {"rtol": 1e-5, "atol": 1e-5} if kind.startswith("adaptive") else options


def close(a, b, rtol=1e-10, atol=1e-12) -> None:
    """Asserts that two PyTrees agree."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(ft.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), a, b)


def forward_gradient(fn, x):
    """The gradient by forward mode, one element after the other, by a program smaller than `jax.jacfwd`."""
    slope = jax.jit(lambda x, v: jax.jvp(fn, (x,), (v,))[1])
    flat, unravel = ravel_pytree(x)
    return unravel(jnp.stack([slope(x, unravel(e)) for e in jnp.eye(flat.size, dtype=flat.dtype)]))


def same_bits(a, b) -> None:
    """Asserts that two PyTrees hold the same numbers, NaN included."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)
