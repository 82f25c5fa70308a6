"""Arrays of a model that its equation does not read."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml._jax.programs import programs_within


class Decay(eqx.Module):
    rate: jax.Array
    unread: jax.Array

    def __call__(self, t, y, args):
        return jax.jit(lambda rate, unread: -rate * y)(self.rate, self.unread)


def loops(jaxpr):
    """The inputs of all loops of a program."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("scan", "while"):
            yield from eqn.invars
        for inner in programs_within(eqn):
            yield from loops(inner)


def test_they_are_carried_through_no_loop_and_have_a_gradient_of_zero():
    model = Decay(jnp.array(2.0), jnp.ones(123))

    def loss(model, y0):
        return jnp.sum(jax.vmap(lambda y: sciml.solve(model, y, t0=0.0, t1=1.0, dt=0.25).ys)(y0))

    gradient = jax.grad(loss)
    found = jax.jit(gradient)(model, jnp.ones(3))
    np.testing.assert_allclose(found.rate, -3 * np.exp(-2.0), rtol=2e-3)
    assert not np.any(found.unread) and found.unread.shape == (123,)
    program = jax.make_jaxpr(gradient)(model, jnp.ones(3)).jaxpr
    assert not [v for v in loops(program) if 123 in getattr(v.aval, "shape", ())]
