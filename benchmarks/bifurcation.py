"""A thousand branches of steady states under `jax.vmap`, compared with a Python loop over branches.

The loop calls one compiled program for each branch, or is written in NumPy as one would by hand: pseudo-arclength
continuation with a fixed step and eigenvalues at each point. Both follow a hundredth of the branches.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sciml import bifurcation

from ._harness import Candidate, Group, Measured, jitted, report

N, PART = 1_000, 10
POINTS = 64
BOUNDS = (0.0, 0.3)
STEP = 0.03


def gene(t: Any, y: Any, args: Any) -> Any:
    """A gene that promotes its own expression, and its messenger."""
    signal, feedback = args
    return jnp.stack([signal + feedback * y[1] ** 2 / (1 + y[1] ** 2) - y[0], y[0] - y[1]])


def ours(feedback: jax.Array) -> Any:
    branch = bifurcation.continuation(
        gene,
        jnp.zeros(2, feedback.dtype),
        args=(jnp.zeros_like(feedback), feedback),
        where=lambda args: args[0],
        bounds=BOUNDS,
        points=POINTS,
        throw=False,
    )
    return branch.special.parameter[:2], branch.parameter


def by_numpy(feedback: float) -> list[float]:
    """Returns the values of the signal at which the tangent turns."""

    def equations(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, z, signal = u
        rate = feedback * z**2 / (1 + z**2)
        slope = 2 * feedback * z / (1 + z**2) ** 2
        return np.array([signal + rate - x, x - z]), np.array([[-1.0, slope, 1.0], [1.0, -1.0, 0.0]])

    u, tangent, folds = np.zeros(3), np.array([0.0, 0.0, 1.0]), []
    scale = np.array([1.0, 1.0, BOUNDS[1] - BOUNDS[0]])
    for _ in range(4 * POINTS):
        guess = u + STEP * tangent * scale
        for _ in range(10):
            value, jacobian = equations(guess)
            matrix = np.vstack([jacobian, tangent / scale])
            move = np.linalg.solve(matrix, np.append(-value, 0.0))
            guess = guess + move
            if np.abs(move).max() < 1e-8:
                break
        ahead = np.linalg.solve(matrix, np.array([0.0, 0.0, 1.0])) / scale
        ahead = ahead / np.linalg.norm(ahead)
        np.linalg.eigvals(jacobian[:, :2])
        if ahead[2] * tangent[2] < 0:
            part = tangent[2] / (tangent[2] - ahead[2])
            folds.append(u[2] + part * (guess[2] - u[2]))
        u, tangent = guess, ahead
        if not BOUNDS[0] <= u[2] <= BOUNDS[1]:
            break
    return folds


def _ratios(rows: list[Measured]) -> None:
    whole = rows[0].median / N
    for row in rows[1:]:
        report(f"{row.label}: {row.median / PART / whole:.0f} times as long for each branch")


def groups() -> list[Group]:
    feedback = jnp.linspace(1.82, 1.95, N)
    some = np.asarray(feedback[:: N // PART])

    def one_by_one() -> Any:
        run = jax.jit(ours)
        jax.block_until_ready(run(feedback[0]))
        return lambda: [jax.block_until_ready(run(jnp.asarray(x))) for x in some]

    def by_hand() -> Any:
        return lambda: [by_numpy(float(x)) for x in some]

    rows = [
        Candidate(f"vmap(continuation), {N} branches", jitted(jax.vmap(ours), feedback)),
        Candidate(f"a loop over a compiled continuation, {PART} branches", one_by_one),
        Candidate(f"a loop in NumPy, {PART} branches", by_hand),
    ]
    title = f"{N} branches of a gene switch with two folds each, stability at every point, {feedback.dtype}"
    return [Group(title, rows, finish=_ratios)]
