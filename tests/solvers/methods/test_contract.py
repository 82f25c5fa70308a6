"""All that a method promises, of those that solve systems within their steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import solvers, verify
from tests import families


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver",
    [
        families.ImplicitMidpoint,
        families.GaussLegendre4,
        families.GaussLegendre6,
        solvers.Radau5,
        solvers.ESDIRK,
        solvers.BDF,
        families.EXPRB32,
        families.EXPRB43,
    ],
)
def test_the_contract_of_a_method(solver):
    dense_order = 4 if solver in (solvers.Radau5, solvers.ESDIRK) else None
    steps = (128, 192, 256) if solver is solvers.BDF else None
    verify.check_stepper(solver(), steps=steps, dense_order=dense_order, slack=0.4)


class Held(eqx.Module):
    """x' = rate (z - x) x, and z - x is held to be the cosine, of index one."""

    rate: jax.Array

    def __call__(self, t, y, args):
        x, z = y
        cosine = jnp.cos(jnp.asarray(t, y.dtype))
        return jnp.stack([self.rate * (z - x) * x, jnp.sinh(z - x - cosine)])


def held():
    def exact(problem, t):
        x = problem.y0[0] * jnp.exp(problem.model.rate * jnp.sin(t))
        return jnp.stack([x, x + jnp.cos(t)])

    return verify.Problem(Held(jnp.array(1.5)), jnp.array([1.0, 2.0]), 0.0, 1.7, exact=exact)


@pytest.mark.x64
@pytest.mark.parametrize("solver, dense_order", [(solvers.Rodas5P, 4), (solvers.ESDIRK, 3)])
def test_the_contract_of_a_method_with_an_algebraic_equation(solver, dense_order):
    verify.check_stepper(solver(mass=np.diag([1.0, 0.0])), problem=held(), dense_order=dense_order, slack=0.4)
