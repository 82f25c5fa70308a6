"""Multigrid beside conjugate gradients and transforms, and what a cycle does to the residual on every grid."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np

from sciml.spatial import Boundaries, Dirichlet, EllipticOperator, FastTransform, Grid, Multigrid, Neumann, Periodic

from ._harness import Candidate, Group, in_float64, jitted, note

RTOL = 1e-6


def jumping(shape: tuple[int, ...]) -> np.ndarray:
    """Four decades across the faces of a box that no coarse cell fits."""
    places = np.stack([i / n for i, n in zip(np.indices(shape), shape)])
    return np.where(np.all(np.abs(places - 0.45) < 0.17, axis=0), 1e4, 1.0)


def problem(shape: tuple[int, ...], conditions: Any, jumps: bool) -> tuple[EllipticOperator, jax.Array]:
    f = np.random.default_rng(0).normal(size=shape)
    k = jnp.asarray(jumping(shape)) if jumps else 1.0
    return EllipticOperator(Boundaries(Grid(shape), conditions), k), jnp.asarray(f - f.mean())


def solve(solver: lx.AbstractLinearSolver, operator: EllipticOperator, f: jax.Array) -> tuple[jax.Array, ...]:
    solution = lx.linear_solve(operator, f, solver, throw=False)
    residual = jnp.linalg.norm(jnp.ravel(operator.mv(solution.value) - f)) / jnp.linalg.norm(jnp.ravel(f))
    return solution.value, residual, jnp.asarray(solution.stats.get("num_steps", 1))


def residual(out: tuple[jax.Array, ...]) -> float:
    return float(out[1])


def side_by_side(size: int, jumps: bool) -> Group:
    l2 = lambda x: jnp.sqrt(jnp.mean(jnp.square(x)))  # noqa: E731
    solvers: dict[str, Callable[[], lx.AbstractLinearSolver]] = {
        "Multigrid": lambda: Multigrid(rtol=RTOL),
    }
    if jumps:
        solvers["Multigrid, Resistors"] = lambda: Multigrid(coarsening="resistors", rtol=RTOL)
    else:  # conjugate gradients alone take several times as long where k jumps
        solvers["FastTransform"] = FastTransform
        solvers["lineax.CG"] = lambda: lx.CG(rtol=RTOL, atol=RTOL, norm=l2, max_steps=20 * size)

    def candidate(name: str, make: Any) -> Candidate:
        def build() -> Any:
            operator, f = problem((size, size), Dirichlet(0.0), jumps)
            return jitted(functools.partial(solve, make()), operator, f)()

        return Candidate(name, in_float64(build), "Multigrid", residual)

    kind = "k jumps by 1e4" if jumps else "k = 1"
    title = f"One solve on {size} x {size} cells, Dirichlet, {kind}, float64; error is the residual"
    return Group(title, [candidate(name, make) for name, make in solvers.items()], repeats=3)


def factors() -> Group:
    """The rows are grids; what a cycle does is printed after them."""
    shapes = [(32, 32), (1024, 1024), (32, 32, 32), (128, 128, 128)]
    cases = {
        "periodic": (Periodic(), False, Multigrid()),
        "Dirichlet": (Dirichlet(0.0), False, Multigrid()),
        "Neumann": (Neumann(0.0), False, Multigrid()),
        "jumping": (Dirichlet(0.0), True, Multigrid()),
        "jumping, Resistors": (Dirichlet(0.0), True, Multigrid(coarsening="resistors")),
    }
    found: dict[str, str] = {}

    def candidate(shape: tuple[int, ...], name: str) -> Candidate:
        label = f"{' x '.join(map(str, shape))}, {name}"

        def build() -> Any:
            conditions, jumps, solver = cases[name]
            operator, f = problem(shape, conditions, jumps)
            return jitted(functools.partial(solve, solver), operator, f)()

        def keep(out: tuple[jax.Array, ...]) -> float:
            cycles = int(out[2])
            found[label] = f"- {label}: {float(out[1]) ** (1 / cycles):.3f} a cycle, {cycles} cycles"
            note(found[label])
            return residual(out)

        return Candidate(label, in_float64(build), error=keep)

    rows = [candidate(shape, name) for shape in shapes for name in cases]
    title = "What a cycle with two sweeps before and after does to the residual, random right-hand side, float64"
    return Group(title, rows, repeats=1, finish=lambda _: "\n".join(found.values()))


def groups() -> list[Group]:
    return [side_by_side(1024, False), side_by_side(1024, True), factors()]
