"""`jax.checking_leaks()` finds no traced value that outlives its trace, in any solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints

RATES = np.array([1.0, 2.0])
ADAPTIVE = dict(rtol=1e-3, atol=1e-3)
HOW = {
    "fixed": dict(dt=0.25),
    "adaptive": ADAPTIVE,
    "saved": dict(saveat=[0.5, 1.0], **ADAPTIVE),
    "stiff": dict(solver=sciml.solvers.Rosenbrock23(), **ADAPTIVE),
}


def end(rate, **how):
    return sciml.solve(lambda t, y, k: -k * y, jnp.ones(2), t0=0.0, t1=1.0, args=rate, throw=False, **how).ys.sum()


@pytest.mark.parametrize("how", HOW)
def test_solves_and_gradients(how):
    with jax.checking_leaks():
        jax.vmap(lambda k: end(k, **HOW[how]))(RATES)
        jax.vmap(jax.grad(lambda k: end(k, **HOW[how])))(RATES)


@pytest.mark.parametrize("adjoint", ["Direct", "Forward", "Backsolve", "Gauss", "Reversible"])
def test_adjoints(adjoint):
    steps = dict(dt=0.25) if adjoint in ("Direct", "Reversible") else ADAPTIVE
    with jax.checking_leaks():
        jax.grad(lambda k: end(k, adjoint=getattr(adjoints, adjoint)(), **steps))(1.0)


def test_sweep():
    with jax.checking_leaks():
        sciml.parallel.sweep(lambda k: end(k, **ADAPTIVE), RATES, progress=False)
