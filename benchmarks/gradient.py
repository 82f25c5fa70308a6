"""The cost of a gradient compared with the solve that it differentiates, for one system."""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import sciml

from ._harness import Candidate, Group, jitted, max_error
from ._problems import BETA, SIGMA, lorenz, tsit5_scan

TOL = 1e-6


def _reference(rho: float, t1: float) -> tuple[np.ndarray, float]:
    """End state, and the derivative of its sum by rho, by SciPy at 1e-12 on the sensitivity equations."""

    def slope(t: float, y: np.ndarray) -> list[float]:
        del t
        x, u, z, dx, du, dz = y
        return [
            SIGMA * (u - x),
            x * (rho - z) - u,
            x * u - BETA * z,
            SIGMA * (du - dx),
            dx * (rho - z) + x * (1 - dz) - du,
            dx * u + x * du - BETA * dz,
        ]

    end = solve_ivp(slope, (0.0, t1), [1.0, 0, 0, 0, 0, 0], method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    return end[:3], end[3:].sum()


def _rows(name: str, solve: Callable[[jax.Array], jax.Array], rho: jax.Array, t1: float) -> list[Candidate]:
    end, slope = _reference(float(rho), t1)
    return [
        Candidate(name, jitted(solve, rho), error=max_error(end, relative=True)),
        Candidate(
            f"{name}, gradient",
            jitted(jax.grad(lambda r: jnp.sum(solve(r))), rho),
            name,
            max_error(np.asarray(slope), relative=True),
        ),
    ]


def groups() -> list[Group]:
    y0 = jnp.asarray([1.0, 0.0, 0.0], jnp.float32)

    def ours(t1: float, **steps: Any) -> Callable[[jax.Array], jax.Array]:
        return lambda rho: sciml.solve(lorenz, y0, t0=0.0, t1=t1, args=rho, **steps).ys[-1]

    def theirs(t1: float, controller: Any) -> Callable[[jax.Array], jax.Array]:
        def solve(rho: jax.Array) -> jax.Array:
            term = diffrax.ODETerm(lorenz)
            solution = diffrax.diffeqsolve(
                term, diffrax.Tsit5(), 0.0, t1, 1e-3, y0, args=rho, stepsize_controller=controller
            )
            assert solution.ys is not None
            return solution.ys[-1]

        return solve

    def by_hand(rho: jax.Array) -> jax.Array:
        return tsit5_scan(lambda y: lorenz(None, y, rho), y0, 1e-3, 1_000)

    rho = jnp.asarray(28.0, jnp.float32)
    adaptive = _rows("sciml", ours(10.0, rtol=TOL, atol=TOL), rho, 10.0)
    adaptive += _rows("diffrax", theirs(10.0, diffrax.PIDController(rtol=TOL, atol=TOL)), rho, 10.0)
    fixed = _rows("sciml", ours(1.0, dt=1e-3), rho, 1.0)
    fixed += _rows("diffrax", theirs(1.0, diffrax.ConstantStepSize()), rho, 1.0)
    fixed += _rows("lax.scan by hand", by_hand, rho, 1.0)
    return [
        Group(
            f"One Lorenz system, rho = 28, t in [0, 10], adaptive, rtol = atol = {TOL:g}, float32: d(sum)/d(rho)",
            adaptive,
        ),
        Group("One Lorenz system, rho = 28, t in [0, 1], 1000 fixed Tsit5 steps, float32: d(sum)/d(rho)", fixed),
    ]
