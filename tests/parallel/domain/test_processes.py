"""Two real processes over gloo: one field, the same numbers as in one process."""

import numpy as np
import pytest

from sciml import parallel

from .. import processes

WAVE = """
from sciml.spatial import Boundaries, Dirichlet, Grid

mesh = parallel.mesh(member=1, x=2, y=2)
conditions = Boundaries(Grid((16, 8)), Dirichlet(0.2))
domain = parallel.Domain(("x", "y"), boundary=conditions, mesh=mesh)

def laplacian(p):
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * p[1:-1, 1:-1]

def wave(state, courant):
    def step(_, state):
        before, now = state
        return now, 2 * now - before + courant * laplacian(domain.pad(now, 1))

    state = jax.lax.fori_loop(0, 30, step, state)
    return state, domain.sum(state[1] ** 4)

u = np.random.default_rng(0).normal(size=(16, 8))
start = domain.split((u, u))
state, energy = jax.jit(lambda s, c: domain.run(wave, s, c))(start, 0.3)
slope = jax.jit(jax.grad(lambda s, c: domain.run(wave, s, c)[1], argnums=(0, 1)))(start, 0.3)
whole = domain.gather(state)
say(
    processes=jax.process_count(),
    devices=jax.device_count(),
    state=[x.tobytes().hex() for x in whole],
    energy=float(energy),
    by_start=np.asarray(domain.gather(slope[0])[0]).tolist(),
    by_speed=float(slope[1]),
)
"""

SOLVE = """
import sciml

domain = parallel.Domain(("x", None), mesh=parallel.mesh(member=1, x=2))

def field(t, u, rate):
    p = domain.pad(u, 1)
    return rate * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u) + u - u**3

def run(u, rate):
    sol = sciml.solve(field, u, t0=0.0, t1=1.0, args=rate, rtol=1e-4, atol=1e-4, norm=domain.rms, throw=False)
    return sol.ys[-1], sol.stats.accepted, sol.status

u = np.random.default_rng(0).normal(size=(8, 8))
end, accepted, status = jax.jit(lambda u: domain.run(run, u, 0.3))(domain.split(u))
spectrum = jax.jit(lambda u: domain.run(lambda u: domain.ifftn(domain.fftn(u)).real, u))(domain.split(u))
say(
    end=domain.gather(end).tolist(),
    accepted=int(accepted),
    status=int(status),
    back=float(np.abs(domain.gather(spectrum) - u).max()),
)
"""


@pytest.mark.x64
def test_two_processes_equal_one():
    ((alone,),) = processes.run(WAVE, count=1, devices=4)
    first, second = (said[0] for said in processes.run(WAVE, count=2, devices=2))
    assert (alone["processes"], first["processes"], first["devices"]) == (1, 2, 4)
    assert first["state"] == second["state"] == alone["state"]  # to the last bit
    for said in (first, second):
        np.testing.assert_allclose(said["energy"], alone["energy"], rtol=1e-12)
        np.testing.assert_allclose(said["by_start"], alone["by_start"], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(said["by_speed"], alone["by_speed"], rtol=1e-6)


@pytest.mark.x64
def test_error_control_and_transforms_over_two_processes():
    ((alone,),) = processes.run(SOLVE, count=1, devices=2)
    for (said,) in processes.run(SOLVE, count=2, devices=1):
        assert said["status"] == 0 and said["accepted"] == alone["accepted"] and said["back"] < 1e-12
        np.testing.assert_allclose(said["end"], alone["end"], rtol=1e-12, atol=1e-13)


def test_nothing_to_join():
    parallel.initialize(num_processes=1)


def test_it_is_too_late_after_a_device_was_used():
    np.asarray(parallel.mesh().devices)
    with pytest.raises(RuntimeError, match="`initialize` must be called before JAX uses a device"):
        parallel.initialize("127.0.0.1:1", 2, 0)
