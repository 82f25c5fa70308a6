"""A fixed-step solve of one system against the same loop written by hand with `lax.scan`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, jitted, max_error
from ._problems import lorenz, lorenz_reference, tsit5_scan


def fisher(t: Any, u: jax.Array, args: Any) -> jax.Array:
    """Diffusion and logistic growth on a periodic grid of unit spacing: the shape of a larger right-hand side."""
    del t, args
    laplacian = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u
    return 0.5 * laplacian + u * (1 - u)


def _fisher_reference(u: np.ndarray, dt: float, steps: int) -> np.ndarray:
    """The classical fourth-order method in float64 by NumPy alone."""

    def slope(u: np.ndarray) -> np.ndarray:
        laplacian = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
        return 0.5 * laplacian + u * (1 - u)

    for _ in range(steps):
        a = slope(u)
        b = slope(u + dt / 2 * a)
        c = slope(u + dt / 2 * b)
        d = slope(u + dt * c)
        u = u + dt / 6 * (a + 2 * b + 2 * c + d)
    return u


def groups() -> list[Group]:
    y0, rho = jnp.asarray([1.0, 0.0, 0.0], jnp.float32), jnp.asarray(21.0, jnp.float32)
    found = []
    for steps in (1_000, 10_000):
        dt = 1 / steps
        error = max_error(lorenz_reference((21.0,), 1.0)[0][0])

        def ours(y0: jax.Array, rho: jax.Array, dt: float = dt) -> jax.Array:
            return sciml.solve(lorenz, y0, t0=0.0, t1=1.0, args=rho, dt=dt).ys[-1]

        def by_hand(y0: jax.Array, rho: jax.Array, dt: float = dt, steps: int = steps) -> jax.Array:
            return tsit5_scan(lambda y: lorenz(None, y, rho), y0, dt, steps)

        rows = [
            Candidate("lax.scan by hand", jitted(by_hand, y0, rho), error=error),
            Candidate("sciml", jitted(ours, y0, rho), "lax.scan by hand", error),
        ]
        found.append(Group(f"One Lorenz system, {steps} fixed Tsit5 steps, float32, end state only", rows))

    x = np.arange(64) * 2 * np.pi / 64
    u0 = jnp.asarray(0.5 + 0.25 * np.sin(x)[:, None] * np.cos(2 * x), jnp.float32)
    error = max_error(_fisher_reference(np.asarray(u0, np.float64), 0.01, 1_000))

    def grid_by_hand(u: jax.Array) -> jax.Array:
        return tsit5_scan(lambda u: fisher(None, u, None), u, 0.01, 1_000)

    def grid_ours(u: jax.Array) -> jax.Array:
        return sciml.solve(fisher, u, t0=0.0, t1=10.0, dt=0.01).ys[-1]

    rows = [
        Candidate("lax.scan by hand", jitted(grid_by_hand, u0), error=error),
        Candidate("sciml", jitted(grid_ours, u0), "lax.scan by hand", error),
    ]
    found.append(Group("Diffusion and growth on 64 x 64 cells, 1000 fixed Tsit5 steps, float32, end state only", rows))
    return found
