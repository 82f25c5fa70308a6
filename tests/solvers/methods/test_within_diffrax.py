"""Derivatives of sciml's methods within `diffrax.diffeqsolve`."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.solvers import RKC2, Rodas5P, Rosenbrock23

CONTROL = diffrax.PIDController(rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("solver", [Rodas5P(), Rosenbrock23()], ids=lambda solver: type(solver).__name__)
def test_members_that_end_sooner(solver):
    """diffrax goes on with steps of no length for them, which must not become NaN."""

    def loss(rate):
        term = diffrax.ODETerm(lambda t, y, k: -k * y)
        found = diffrax.diffeqsolve(term, solver, 0.0, 1.0, None, jnp.ones(2), rate, stepsize_controller=CONTROL)
        return jnp.sum(found.ys)

    slopes = jax.vmap(jax.grad(loss))(np.array([3.0, 30.0]))
    np.testing.assert_allclose(slopes, -2 * np.exp([-3.0, -30.0]), rtol=1e-2, atol=1e-6)


def test_an_adjoint_equation_is_no_model_with_structure():
    def loss(y):
        how = dict(adjoint=diffrax.BacksolveAdjoint(), stepsize_controller=CONTROL)
        term = diffrax.ODETerm(lambda t, y, k: jax.tree.map(lambda v: -2.0 * v, y))
        return jnp.sum(diffrax.diffeqsolve(term, RKC2(), 0.0, 1.0, None, y, **how).ys)

    with pytest.raises(TypeError, match=r"requires `diffrax.ODETerm\(model\)`, but the term is AdjointTerm"):
        jax.grad(loss)(jnp.ones(1))
