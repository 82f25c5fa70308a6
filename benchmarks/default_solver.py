"""Which implicit method is the faster one for a stiff system, by its size and structure? It is what `solve` goes by.

A recurrent network whose time constants lie six decades apart has a dense Jacobian; fronts spread in a cube; the others
are those of `stiff_groups`. Errors stand beside times: at one tolerance those of `BDF` are larger. Tolerances are the
defaults of `solve`, and so is the method of the last row: outside of `jax.jit`, with what comes before the choice.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml.spatial import Dirichlet, Grid, Neumann, Robin, pulse

from ._harness import Candidate, Group, Measured, in_float64, jitted, table
from .stiff_groups import (
    brusselator,
    brusselator_on_a_grid,
    robertson_groups,
    start as start_on_a_line,
    start_on_a_grid,
)

DENSE = (16, 32, 64, 128, 256, 512)
DECADES = 6.0
FACTORS_KEPT_FROM = 128


def recurrent(t: Any, y: jax.Array, weights: jax.Array) -> jax.Array:
    """Neurons that follow one another at rates from one to a million."""
    del t
    rates = jnp.logspace(0, DECADES, y.size, dtype=y.dtype)
    return rates * (jnp.tanh(weights @ y) - y)


def weights_of(size: int) -> np.ndarray:
    """Random weights, the same at each call."""
    return np.random.default_rng(0).normal(size=(size, size)) / np.sqrt(size)


def fronts(t: Any, y: jax.Array, args: Any) -> jax.Array:
    """Two phases in a cube between walls that nothing passes."""
    del t, args
    side = round(y.size ** (1 / 3))
    u = y.reshape(side, side, side)
    wide = jnp.pad(u, 1, mode="edge")
    inner = slice(1, -1)
    around = -6 * u
    for axis in range(3):
        for beside in (slice(2, None), slice(None, -2)):
            around = around + wide[tuple(beside if i == axis else inner for i in range(3))]
    return (side**2 / 2 * around + 10 * (u - u**3)).reshape(-1)


def start_in_a_cube(side: int) -> np.ndarray:
    wave = np.cos(np.pi * (np.arange(side) + 0.5) / side)
    return (wave[:, None, None] * wave[None, :, None] * wave[None, None, :]).reshape(-1)


def heat(points: int) -> sciml.models.Diffusion:
    """Heat in a plate between unequal walls, whose implicit systems only multigrid solves."""
    grid = Grid((points, points))
    walls = {"x-": Dirichlet(1.0), "x+": Robin(a=1.0, b=0.5, c=0.0), "y": Neumann(0.0)}
    return sciml.models.Diffusion(grid, walls, 1.0 + pulse(grid))


def _group(
    title: str,
    model: Callable,
    y0: np.ndarray,
    end: float,
    args: np.ndarray | None = None,
    methods: tuple[Any, Any] = (sciml.solvers.Rodas5P(), sciml.solvers.BDF()),
) -> Group:
    first, second = (type(method).__name__ for method in methods)
    with jax.enable_x64(True):
        start = jnp.asarray(y0)
        args = None if args is None else jnp.asarray(args)

    def run(y: jax.Array, args: Any, solver: Any, **tolerances: float) -> jax.Array:
        return sciml.solve(model, y, t0=0.0, t1=end, args=args, solver=solver, **tolerances).ys[-1]

    @functools.cache
    def exact() -> np.ndarray:  # when the first row asks: groups that are left out are made, too
        with jax.enable_x64(True):
            # of a large dense system the factors are kept: those of every step would take minutes
            method = methods[y0.size >= FACTORS_KEPT_FROM and args is not None]
            tight = jax.jit(lambda y, args: run(y, args, method, rtol=1e-10, atol=1e-13))
            return np.asarray(tight(start, args))

    def error(out: Any) -> float:
        return float(np.max(np.abs(np.asarray(out) - exact()) / (np.abs(exact()) + 1e-3)))

    def row(solver: Any) -> Callable[[], Callable[[], Any]]:
        return in_float64(jitted(lambda y, args: run(y, args, solver), start, args))

    took: list[Any] = []

    def unnamed() -> Callable[[], Any]:
        took.append(sciml.solve(model, start, t0=0.0, t1=end, args=args).solver)
        return lambda: jax.block_until_ready(run(start, args, None))

    def named(group: Group, measured: list[Measured]) -> str:
        measured[-1].label += "".join(f": {solver}" for solver in took)
        return table(group, measured)

    def gradient(solver: Any) -> Callable[[], Callable[[], Any]]:
        slope = jax.grad(lambda y, args: jnp.sum(run(y, args, solver) ** 2))
        return in_float64(jitted(slope, start, args))

    rows = [
        Candidate(first, row(methods[0]), error=error),
        Candidate(second, row(methods[1]), first, error),
        Candidate(f"{first}, gradient", gradient(methods[0]), first),
        Candidate(f"{second}, gradient", gradient(methods[1]), f"{first}, gradient"),
        Candidate("none named", in_float64(unnamed), first, error),
    ]
    return Group(title, rows, table=named)


def groups() -> Iterator[Group]:
    """Makes each group when its turn has come."""
    for n in DENSE:
        yield _group(f"a recurrent network, dense, {n} unknowns", recurrent, np.ones(n), 10.0, weights_of(n))
    start = np.concatenate([np.ones(100), np.zeros(200)])
    yield _group("Robertson in 100 groups, blocks, 300 unknowns", robertson_groups, start, 1e4)
    yield _group("Brusselator on a line, a band, 400 unknowns", brusselator, start_on_a_line(200), 10.0)
    yield _group("Brusselator on 24 x 24 points, by an iteration", brusselator_on_a_grid, start_on_a_grid(24), 1.0)
    yield _group("Fronts among 12 x 12 x 12 points, by an iteration", fronts, start_in_a_cube(12), 1.0)
    methods = sciml.solvers.ROCK(order=4), sciml.solvers.ARK(order=3)
    with jax.enable_x64(True):
        plate = heat(32), np.asarray(pulse(Grid((32, 32))))
    yield _group("Heat in a plate of 32 x 32 cells, by multigrid", *plate, 0.1, methods=methods)
