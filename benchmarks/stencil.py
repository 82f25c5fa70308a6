"""A loop over a grid: Gray-Scott by explicit Euler, beside the same with `jnp.roll` and in C."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sciml.kernels.stencil import StencilUpdate, evolve
from sciml.models import GrayScott
from sciml.spatial import Grid, Periodic

from ._c_loop import c_gray_scott
from ._harness import Candidate, Group, jitted, max_error

N, STEPS, DT = 512, 100, 1.0


def _euler(field: Any, y: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda y, _: (y + DT * field(y), None), y, length=STEPS)[0]


def _evolved(y: jax.Array, numbers: tuple[float, ...]) -> jax.Array:
    """The same steps, by `kernels.stencil`."""

    def fn(nb: Any, p: tuple) -> tuple:
        def laplacian(name: str) -> jax.Array:
            return nb(name, 1, 0) + nb(name, -1, 0) + nb(name, 0, 1) + nb(name, 0, -1) - 4 * nb(name)

        rate_u, rate_v, feed, kill = p
        u, v = nb("u"), nb("v")
        reaction = u * v * v
        return (
            u + rate_u * laplacian("u") - reaction + feed * (1 - u),
            v + rate_v * laplacian("v") + reaction - (feed + kill) * v,
        )

    return jnp.stack(evolve(StencilUpdate(fn, fields=("u", "v")), (y[0], y[1]), STEPS, numbers))


def _reference(y: np.ndarray, numbers: tuple[float, ...]) -> np.ndarray:
    """NumPy, float64."""
    rate_u, rate_v, feed, kill = numbers
    for _ in range(STEPS):
        around = sum(np.roll(y, shift, axis) for shift in (1, -1) for axis in (-1, -2)) - 4 * y
        u, v = y
        reaction = u * v * v
        y = np.stack(
            [
                u + rate_u * around[0] - reaction + feed * (1 - u),
                v + rate_v * around[1] + reaction - (feed + kill) * v,
            ]
        )
    return y


def groups() -> list[Group]:
    grid = Grid((N, N), 0.0, 5.0)
    model = GrayScott(grid, Periodic())
    rng = np.random.default_rng(0)
    start = np.stack([1 - 0.5 * rng.random(grid.shape), 0.25 * rng.random(grid.shape)])
    y0 = jnp.asarray(start, jnp.float32)
    h = grid.spacing[0]
    numbers = (2e-5 / h**2, 1e-5 / h**2, 0.03, 0.062)
    error = max_error(_reference(np.asarray(y0, np.float64), numbers))

    def rolled(y: jax.Array) -> jax.Array:
        rate_u, rate_v, feed, kill = numbers

        def laplacian(u: jax.Array) -> jax.Array:
            return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u

        u, v = y
        reaction = u * v * v
        fed = rate_u * laplacian(u) - reaction + feed * (1 - u)
        return jnp.stack([fed, rate_v * laplacian(v) + reaction - (feed + kill) * v])

    rows = [
        Candidate("jnp.roll", jitted(lambda y: _euler(rolled, y), y0), error=error),
        Candidate("sciml", jitted(lambda y: _euler(lambda y: model(0.0, y, None), y), y0), "jnp.roll", error),
        Candidate("sciml, evolve", jitted(lambda y: _evolved(y, numbers), y0), "jnp.roll", error),
        *c_gray_scott(start, steps=STEPS, numbers=numbers, against="sciml", error=error),
    ]
    return [Group(f"Gray-Scott on {N} x {N} cells, {STEPS} steps of explicit Euler, float32, end state only", rows)]
