"""Van der Pol oscillators, a few of which need a hundred times more steps: the cost of waiting for slow members."""

import functools
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import sciml

from ._harness import Candidate, Group, in_float64, jitted
from ._problems import diffrax_end

N = 2_048
T1 = 20.0
RTOL, ATOL = 1e-6, 1e-8


def van_der_pol(t: Any, y: jax.Array, mu: jax.Array) -> jax.Array:
    """Van der Pol's equation for one member."""
    del t
    return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


def ours(mu: jax.Array, batching: str) -> sciml.Solution:
    y0 = jnp.asarray([2.0, 0.0], mu.dtype)
    return sciml.solve(van_der_pol, y0, t0=0.0, t1=T1, args=mu, rtol=RTOL, atol=ATOL, batching=batching)


def theirs(mu: jax.Array) -> jax.Array:
    y0 = jnp.asarray([2.0, 0.0], mu.dtype)
    return diffrax_end(van_der_pol, y0, 0.0, T1, args=mu, solver=diffrax.Tsit5(), rtol=RTOL, atol=ATOL)


def groups() -> list[Group]:
    mus = np.random.default_rng(0).permutation(np.logspace(-1, 2, N))
    with jax.enable_x64(True):
        many = jnp.asarray(mus)
        efficiency = {
            batching: float(jax.jit(jax.vmap(functools.partial(ours, batching=batching)))(many).stats.lane_efficiency)
            for batching in ("lockstep", "refill")
        }

    few = range(0, N, N // 8)
    ends = [
        solve_ivp(
            lambda t, y, mu=mus[i]: [y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]],
            (0.0, T1),
            [2.0, 0.0],
            method="DOP853",
            rtol=1e-12,
            atol=1e-13,
        ).y[:, -1]
        for i in few
    ]

    def error(out: Any) -> float:
        return float(np.max(np.abs(np.asarray(out).reshape(N, 2)[list(few)] - np.stack(ends))))

    def end(batching: str) -> Any:
        return jax.vmap(lambda mu: ours(mu, batching).ys[-1])

    lockstep = f"lockstep, lane efficiency {efficiency['lockstep']:.2f}"
    rows = [
        Candidate(lockstep, in_float64(jitted(end("lockstep"), many)), error=error),
        Candidate(
            f"refill, lane efficiency {efficiency['refill']:.2f}",
            in_float64(jitted(end("refill"), many)),
            lockstep,
            error,
        ),
        Candidate("diffrax, vmap", in_float64(jitted(jax.vmap(theirs), many)), lockstep, error),
    ]
    setting = f"mu from 0.1 to 100, t in [0, {T1:g}], float64, Tsit5, rtol {RTOL:g}, atol {ATOL:g}, end state"
    return [Group(f"Van der Pol, {N} members, {setting}", rows)]
