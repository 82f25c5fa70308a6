"""Heat on 512 x 512 cells: a stabilised method beside Tsit5 at equal error, by evaluations of the vector field."""

import math
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, jitted

CELLS = 512
END = 4e-3


def heat(t: Any, u: jax.Array, args: Any) -> jax.Array:
    """Central differences, zero on the boundary, on cells of width 1/512."""
    del t, args
    wide = jax.lax.pad(u, jnp.zeros((), u.dtype), ((1, 1, 0), (1, 1, 0)))
    around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]
    return CELLS**2 * (around - 4 * u)


def start() -> tuple[jax.Array, np.ndarray]:
    """Three modes of the discrete operator, and what they are at the end."""
    i = np.arange(1, CELLS + 1) / (CELLS + 1)
    u0, end = np.zeros((CELLS, CELLS)), np.zeros((CELLS, CELLS))
    for m, n, size in ((1, 1, 1.0), (3, 5, 0.5), (12, 9, 0.2)):
        mode = size * np.outer(np.sin(np.pi * m * i), np.sin(np.pi * n * i))
        rate = 4 * CELLS**2 * sum(math.sin(math.pi * k / 2 / (CELLS + 1)) ** 2 for k in (m, n))
        u0, end = u0 + mode, end + math.exp(-rate * END) * mode
    return jnp.asarray(u0, jnp.float32), end


def stages(solver: Any, stiffness: float) -> int:
    """The evaluations of one step."""
    return int(solver.stepper(None).family.stages(jnp.asarray(stiffness)))


def groups() -> list[Group]:
    u0, exact = start()
    radius = 8.0 * CELLS**2
    many = math.ceil(END * radius / 3.2)  # the stability limit of Tsit5 on the negative real axis is about 3.3

    def error(out: Any) -> float:
        return float(np.max(np.abs(np.asarray(out, np.float64) - exact)))

    def row(name: str, solver: Any, count: int, evaluations: int) -> Candidate:
        def end(u: jax.Array) -> jax.Array:
            return sciml.solve(heat, u, t0=0.0, t1=END, dt=END / count, solver=solver).ys[-1]

        return Candidate(f"{name}, {count} steps, {evaluations} evaluations", jitted(end, u0), error=error)

    rkc, rkl = (method(spectral_radius=radius) for method in (sciml.solvers.RKC2, sciml.solvers.RKL2))
    rows = [row("RKC2", rkc, count, count * stages(rkc, END / count * radius)) for count in (20, 100)]
    rows += [
        row("RKL2", rkl, 100, 100 * stages(rkl, END / 100 * radius)),
        row("Tsit5", diffrax.Tsit5(), many, 6 * many),
    ]
    return [Group(f"Heat, {CELLS} x {CELLS}, float32, t = {END:g}, end state", rows, repeats=3)]
