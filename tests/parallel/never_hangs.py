"""A sweep over several CPU devices in a process of its own: `UNKNOWNS MEMBERS BLOCK [ensemble]`."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import sciml

UNKNOWNS, MEMBERS, BLOCK = map(int, sys.argv[1:4])
ENSEMBLE = "ensemble" in sys.argv[4:]
A = jnp.asarray(np.random.default_rng(0).normal(size=(UNKNOWNS, UNKNOWNS)) / UNKNOWNS)


def run(k):
    """Returns the end of a stiff system whose linear systems LAPACK solves where there are more than some unknowns."""
    solution = sciml.solve(
        lambda t, y, k: A @ y - k * y**2,
        jnp.ones(UNKNOWNS),
        t0=0.0,
        t1=1.0,
        args=k,
        solver=sciml.solvers.Rosenbrock23(),
        rtol=1e-3,
        atol=1e-5,
        throw=False,
    )
    return solution.ys[-1]


members = np.linspace(1.0, 100.0, MEMBERS)
if ENSEMBLE:
    values = sciml.parallel.ensemble(run, members, mesh=sciml.parallel.mesh(), block=BLOCK or None)
else:
    values = sciml.parallel.sweep(run, members, block=BLOCK or None, progress=False).values
error = np.max(np.abs(np.asarray(values) - np.asarray(jax.vmap(run)(members))))
assert error < 1e-6, error
print("done")
