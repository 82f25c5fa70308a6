"""The problems that several benchmarks share, Tsit5 written by hand, and reference values in float64."""

import functools
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

SIGMA, BETA = 10.0, 8 / 3


def lorenz(t: Any, y: jax.Array, rho: Any) -> jax.Array:
    """Lorenz 63 for one member, the vector field every library here is given."""
    del t
    return jnp.stack([SIGMA * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - BETA * y[2]])


def diffrax_end(
    field: Callable[..., Any],
    y0: jax.Array,
    t0: Any,
    t1: Any,
    *,
    args: Any = None,
    solver: Any,
    rtol: float,
    atol: float,
    dt0: float | None = None,
    adjoint: Any = None,
    max_steps: int = 100_000,
) -> jax.Array:
    """The end state by `diffrax.diffeqsolve` with error control, NaN where it did not get there."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        solver,
        t0,
        t1,
        dt0,
        y0,
        args=args,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        adjoint=diffrax.ForwardMode() if adjoint is None else adjoint,
        max_steps=max_steps,
        throw=False,
    )
    assert solution.ys is not None
    return jnp.where(solution.result == diffrax.RESULTS.successful, solution.ys[-1], jnp.nan)


# Tsitouras (2011), doi:10.1016/j.camwa.2011.06.002; the last row is the step itself.
TSIT5 = [
    [0.161],
    [-0.008480655492356989, 0.335480655492357],
    [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
    [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
    [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383],
    [0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774],
]


def tsit5_scan(f: Callable[[Any], Any], y0: Any, dt: float, steps: int) -> Any:
    """`steps` fixed steps of an autonomous `f` as anyone would write them with `lax.scan`; `y0` is a PyTree."""

    def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        y, k1 = carry
        slopes = [k1]
        stage = y
        for row in TSIT5:
            stage = jax.tree.map(
                lambda u, *k, row=row: u + dt * sum(a * s for a, s in zip(row, k, strict=True)), y, *slopes
            )
            slopes.append(f(stage))
        return (stage, slopes[-1]), None  # the last slope is the next step's first

    (y, _), _ = jax.lax.scan(step, (y0, f(y0)), length=steps)
    return y


@functools.cache
def lorenz_reference(rho: tuple[float, ...], t1: float, dt: float = 1e-3) -> tuple[np.ndarray, np.ndarray]:
    """End states (N, 3) and their derivatives by rho (N, 3) from (1, 0, 0), in float64 by NumPy alone.

    The classical fourth-order method on the equations and their sensitivities; its own error is below 1e-8 here.
    """
    r = np.asarray(rho, np.float64)
    y = np.zeros((6, r.size))
    y[0] = 1.0

    def slope(y: np.ndarray) -> np.ndarray:
        x, u, z, dx, du, dz = y
        return np.stack(
            [
                SIGMA * (u - x),
                x * (r - z) - u,
                x * u - BETA * z,
                SIGMA * (du - dx),
                dx * (r - z) + x * (1 - dz) - du,
                dx * u + x * du - BETA * dz,
            ]
        )

    for _ in range(round(t1 / dt)):
        a = slope(y)
        b = slope(y + dt / 2 * a)
        c = slope(y + dt / 2 * b)
        d = slope(y + dt * c)
        y = y + dt / 6 * (a + 2 * b + 2 * c + d)
    return y[:3].T, y[3:].T
