"""`jax.checking_leaks()` finds no traced value that outlives its trace, in any solve."""

import gc

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints

RATES = np.array([1.0, 2.0])
ADAPTIVE = dict(rtol=1e-3, atol=1e-3, solver=diffrax.Heun())  # a check of leaks traces everything anew
HOW = {
    "saved": dict(saveat=[0.5, 1.0], **ADAPTIVE),
    "stiff": ADAPTIVE | dict(solver=sciml.solvers.Rosenbrock23()),
}


@pytest.fixture(autouse=True)
def what_is_there_is_not_searched():
    """At each trace JAX searches all that Python holds for what leaks; what was there before cannot refer to it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def end(rate, **how):
    return sciml.solve(lambda t, y, k: -k * y, jnp.ones(2), t0=0.0, t1=1.0, args=rate, throw=False, **how).ys.sum()


def test_a_gradient_of_one_member():
    """The quickest of them."""
    with jax.checking_leaks():
        found = jax.jit(jax.grad(lambda k: end(k, solver=diffrax.Euler(), dt=0.5)))(1.0)
    np.testing.assert_allclose(found, -2 * (1 - 0.5), rtol=1e-5)  # of 2 (1 - k/2)^2


@pytest.mark.parametrize("how", HOW)
def test_solves_and_gradients(how):
    with jax.checking_leaks():
        jax.vmap(lambda k: end(k, **HOW[how]))(RATES)
        jax.vmap(jax.grad(lambda k: end(k, **HOW[how])))(RATES)


@pytest.mark.parametrize("adjoint", ["Forward", "Gauss", "Reversible"])
def test_adjoints(adjoint):
    steps = dict(dt=0.25, solver=diffrax.Heun()) if adjoint == "Reversible" else ADAPTIVE
    with jax.checking_leaks():
        jax.jit(jax.grad(lambda k: end(k, adjoint=getattr(adjoints, adjoint)(), **steps)))(1.0)


def test_sweep():
    with jax.checking_leaks():
        sciml.parallel.sweep(lambda k: end(k, **ADAPTIVE), RATES, progress=False)
