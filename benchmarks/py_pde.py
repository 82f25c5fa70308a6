"""Diffusion and phase separation on 256 x 256 cells beside py-pde, at equal error."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml.models import CahnHilliard, Diffusion
from sciml.spatial import Grid, Periodic, Spectral

from ._harness import Candidate, Group, in_float64, jitted

CELLS = 256
HEAT_END = 2e-3
WIDTH, PHASES_END = 1.5, 10.0  # the width in cells


def heat_start() -> tuple[np.ndarray, np.ndarray]:
    """Three waves on the unit square, and what becomes of them."""
    x = (np.arange(CELLS) + 0.5) / CELLS
    u0, end = np.zeros((CELLS, CELLS)), np.zeros((CELLS, CELLS))
    for m, n, size in ((1, 2, 1.0), (3, 1, 0.5), (4, 5, 0.5)):
        wave = size * np.outer(np.cos(2 * np.pi * m * x), np.sin(2 * np.pi * n * x))
        u0, end = u0 + wave, end + math.exp(-4 * np.pi**2 * (m * m + n * n) * HEAT_END) * wave
    return u0, end


def phases_start() -> np.ndarray:
    """A mixture with smooth random waves, none shorter than an eighth of the box."""
    rng = np.random.default_rng(0)
    x = 2 * np.pi * (np.arange(CELLS) + 0.5) / CELLS
    basis = np.concatenate([[np.cos(k * x), np.sin(k * x)] for k in range(1, 9)])
    field = np.einsum("ab,ax,by->xy", rng.normal(size=(16, 16)), basis, basis)
    return field / np.max(np.abs(field))


@functools.cache
def phases_end() -> np.ndarray:
    """In NumPy: Fourier modes, the linear part exactly and the rest by the Runge-Kutta method of order four."""
    k = 2 * np.pi * np.fft.fftfreq(CELLS)[:, None], 2 * np.pi * np.fft.rfftfreq(CELLS)[None]
    square = k[0] ** 2 + k[1] ** 2
    steps = 200
    dt = PHASES_END / steps
    half = np.exp(-(2 * square + WIDTH**2 * square**2) * dt / 2)

    def rest(modes: np.ndarray) -> np.ndarray:
        u = np.fft.irfft2(modes, (CELLS, CELLS))
        return -square * (np.fft.rfft2(u**3) - 3 * modes)

    u = np.fft.rfft2(phases_start())
    for _ in range(steps):
        first = rest(u)
        second = rest(half * (u + dt / 2 * first))
        third = rest(half * u + dt / 2 * second)
        fourth = rest(half * (half * u + dt * third))
        u = half * (half * (u + dt / 6 * first) + dt / 3 * (second + third)) + dt / 6 * fourth
    return np.fft.irfft2(u, (CELLS, CELLS))


def theirs(
    equation: str, extent: float, u0: np.ndarray, t1: float, solver: str, dt: float, **options: Any
) -> Callable[[], Callable[[], Any]]:
    """A `build` for py-pde's numba backend: the stepper is made and compiled once, and called again."""

    def build() -> Callable[[], Any]:
        import pde  # in the extra `bench`
        from pde.solvers.base import SolverBase

        grid = pde.CartesianGrid([(0.0, extent)] * 2, CELLS, periodic=True)
        model = pde.DiffusionPDE(1.0) if equation == "heat" else pde.CahnHilliardPDE(WIDTH**2)
        state = pde.ScalarField(grid, u0)
        stepper = SolverBase.from_name(solver, model, backend="numba", **options).make_stepper(state, dt=dt)
        stepper(state.copy(), 0.0, 2 * dt)  # compiles

        def run() -> np.ndarray:
            end = state.copy()
            stepper(end, 0.0, t1)
            return end.data

        return run

    return build


def heat() -> Group:
    u0, end = heat_start()
    grid = Grid((CELLS, CELLS))
    model, modes = Diffusion(grid, Periodic()), Spectral(grid, Periodic())
    limit = 1 / (4 * CELLS**2)

    def error(out: Any) -> float:
        return float(np.max(np.abs(np.asarray(out, np.float64) - end)) / np.max(np.abs(end)))

    def stabilised(count: int) -> Callable[[jax.Array], jax.Array]:
        solver = sciml.solvers.RKC2()
        return lambda u: sciml.solve(model, u, t0=0.0, t1=HEAT_END, dt=HEAT_END / count, solver=solver).ys[-1]

    def exactly(u: jax.Array) -> jax.Array:
        decay = jnp.exp(modes.laplacian.astype(u.dtype) * HEAT_END)
        return modes.inverse(modes.times(decay, modes.transform(u)))

    ours = "sciml, RKC2, 25 steps, float64"
    wide = in_float64(lambda: jitted(stabilised(25), jnp.asarray(u0))())
    rows = [
        Candidate(
            "py-pde, Euler, steps at the limit of stability",
            theirs("heat", 1.0, u0, HEAT_END, "euler", 0.95 * limit),
            ours,
            error,
        ),
        Candidate(
            "py-pde, Runge-Kutta, error control",
            theirs("heat", 1.0, u0, HEAT_END, "runge-kutta", limit, adaptive=True),
            ours,
            error,
        ),
        Candidate(ours, wide, error=error),
        Candidate("sciml, RKC2, 25 steps", jitted(stabilised(25), jnp.asarray(u0, jnp.float32)), error=error),
        Candidate("sciml, modes, exactly", jitted(exactly, jnp.asarray(u0, jnp.float32)), error=error),
    ]
    return Group(f"Heat, {CELLS} x {CELLS}, t = {HEAT_END:g}, end state; py-pde in float64", rows, repeats=5)


def phases() -> Group:
    u0, extent = phases_start(), float(CELLS)

    def error(out: Any) -> float:
        """The largest error, of a coarser field after interpolation by its modes."""
        out, end = np.asarray(out, np.float64), phases_end()
        if len(out) != CELLS:
            ratio, kept = CELLS // len(out), np.fft.fft2(out)
            k = np.fft.fftfreq(len(out))
            # the centres of coarser cells lie elsewhere
            shift = np.exp(2j * np.pi * k * (0.5 / ratio - 0.5))
            kept = kept * shift[:, None] * shift[None]
            wide = np.zeros((CELLS, CELLS), complex)
            at = np.round(k * len(out)).astype(int)
            wide[np.ix_(at, at)] = kept
            out = np.fft.ifft2(wide).real * ratio**2
        return float(np.max(np.abs(out - end)))

    def ours(cells: int, solver: Any, count: int) -> Callable[[jax.Array], jax.Array]:
        model = CahnHilliard(Grid((cells, cells), 0.0, extent), Periodic(), width=WIDTH)
        return lambda u: sciml.solve(model, u, t0=0.0, t1=PHASES_END, dt=PHASES_END / count, solver=solver).ys[-1]

    # the discrete Laplacian reaches 8 / h^2, so its square bounds the steps of explicit methods
    limit = 2 / (64 * WIDTH**2)
    first = "sciml, ETDRK4, 10 steps, float64"
    etd2, etd4 = sciml.solvers.ETDRK(order=2), sciml.solvers.ETDRK(order=4)
    coarse = coarser(u0)
    wide = in_float64(lambda: jitted(ours(CELLS, etd4, 10), jnp.asarray(u0))())
    rows = [
        Candidate(
            "py-pde, Euler, steps at the limit of stability",
            theirs("phases", extent, u0, PHASES_END, "euler", 0.95 * limit),
            first,
            error,
        ),
        Candidate(first, wide, error=error),
        Candidate("sciml, ETDRK4, 10 steps", jitted(ours(CELLS, etd4, 10), jnp.asarray(u0, jnp.float32)), error=error),
        Candidate("sciml, ETDRK2, 25 steps", jitted(ours(CELLS, etd2, 25), jnp.asarray(u0, jnp.float32)), error=error),
        Candidate("sciml, ETDRK4, 10 steps, 128 x 128", jitted(ours(CELLS // 2, etd4, 10), coarse), error=error),
    ]
    return Group(f"Cahn-Hilliard, {CELLS} x {CELLS}, t = {PHASES_END:g}, end state; py-pde in float64", rows, repeats=5)


def coarser(u: np.ndarray) -> jax.Array:
    """The same waves at the centres of cells twice as wide."""
    k = np.fft.fftfreq(CELLS)
    shift = np.exp(2j * np.pi * k * 0.5)
    return jnp.asarray(np.fft.ifft2(np.fft.fft2(u) * shift[:, None] * shift[None]).real[::2, ::2], jnp.float32)


def groups() -> list[Group]:
    return [heat(), phases()]
