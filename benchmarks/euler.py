"""Gas in two dimensions: steps of the Euler equations by finite volumes, in cell updates a second."""

import pathlib
import sys
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import parallel
from sciml.models import Euler
from sciml.spatial import WENO5Z, Grid, Periodic, Sides

from . import _astronomix
from ._c_loop import c_euler
from ._harness import Candidate, Group, Measured, jitted, max_error, report
from ._workers import in_processes

N, STEPS, DT, GAMMA = 512, 10, 2.5e-4, 1.4
DEVICES = 4
"""More than cores: a block of the field and what is computed of it then fit the caches."""

WEIGHTS = (1 / 16, 10 / 16, 5 / 16)
SECOND, FOURTH = (-5 / 48, 39 / 48, -34 / 48, -34 / 48, 39 / 48, -5 / 48), (0.5, -1.5, 1.0, 1.0, -1.5, 0.5)


def _face(cells: list[np.ndarray]) -> np.ndarray:
    """WENO-Z of fifth order, by interpolation."""
    a, b, c, d, e = cells
    values = (3 * a - 10 * b + 15 * c) / 8, (-b + 6 * c + 3 * d) / 8, (3 * c + 6 * d - e) / 8
    smooth = [
        13 / 12 * bend**2 + slope**2 / 4
        for bend, slope in (
            (a - 2 * b + c, a - 4 * b + 3 * c), (b - 2 * c + d, b - d), (c - 2 * d + e, 3 * c - 4 * d + e)
        )
    ]  # fmt: skip
    least = 1e-12 * (a**2 + b**2 + c**2 + d**2 + e**2) + 1e-30
    weights = [w * (1 + (abs(smooth[0] - smooth[2]) / (s + least)) ** 2) for w, s in zip(WEIGHTS, smooth)]
    return sum(w * v for w, v in zip(weights, values)) / sum(weights)


def _conserved(w: np.ndarray) -> np.ndarray:
    return np.stack([w[0], w[0] * w[1], w[0] * w[2], w[3] / (GAMMA - 1) + w[0] * (w[1] ** 2 + w[2] ** 2) / 2])


def _flux(w: np.ndarray) -> np.ndarray:
    """Along the first of both velocities."""
    y = _conserved(w)
    return np.stack([y[1], y[1] * w[1] + w[3], y[1] * w[2], (y[3] + w[3]) * w[1]])


def _hllc(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    roots = np.sqrt(left[0]), np.sqrt(right[0])
    mean = [(roots[0] * a + roots[1] * b) / sum(roots) for a, b in zip(left, right)]
    heat = [GAMMA / (GAMMA - 1) * w[3] / w[0] + (w[1] ** 2 + w[2] ** 2) / 2 for w in (left, right)]
    enthalpy = (roots[0] * heat[0] + roots[1] * heat[1]) / sum(roots)
    sound = np.sqrt((GAMMA - 1) * (enthalpy - (mean[1] ** 2 + mean[2] ** 2) / 2))
    low = np.minimum(left[1] - np.sqrt(GAMMA * left[3] / left[0]), mean[1] - sound)
    high = np.maximum(right[1] + np.sqrt(GAMMA * right[3] / right[0]), mean[1] + sound)
    a, b = left[0] * (low - left[1]), right[0] * (high - right[1])
    contact = (right[3] - left[3] + a * left[1] - b * right[1]) / (a - b)
    sides = []
    for w, speed in ((left, low), (right, high)):
        y = _conserved(w)
        dense = w[0] * (speed - w[1]) / (speed - contact)
        energy = y[3] / w[0] + (contact - w[1]) * (contact + w[3] / (w[0] * (speed - w[1])))
        star = np.stack([dense, dense * contact, dense * w[2], dense * energy])
        outwards = np.minimum(speed, 0) if w is left else np.maximum(speed, 0)
        sides.append(_flux(w) + outwards * (star - y))
    return np.where(contact >= 0, *sides)


def _rates(y: np.ndarray) -> np.ndarray:
    velocity = y[1:3] / y[0]
    w = np.stack([y[0], *velocity, (GAMMA - 1) * (y[3] - y[0] * (velocity**2).sum(0) / 2)])
    total = np.zeros_like(y)
    for axis, order in ((1, [0, 1, 2, 3]), (2, [0, 2, 1, 3])):
        v = w[order]
        cells = [np.roll(v, 2 - k, axis) for k in range(6)]
        flux = _hllc(_face(cells[:5]), _face(cells[:0:-1]))
        for cell, second, fourth in zip(cells, SECOND, FOURTH):
            flux = flux + (-second / 24 + 7 * fourth / 5760) * _flux(cell)
        total -= ((flux - np.roll(flux, 1, axis)) * N)[order]
    return total


def _reference(y: np.ndarray) -> np.ndarray:
    """NumPy, float64: the method of Shu and Osher."""
    for _ in range(STEPS):
        first = y + DT * _rates(y)
        second = 0.75 * y + 0.25 * (first + DT * _rates(first))
        y = y / 3 + 2 / 3 * (second + DT * _rates(second))
    return y


def _updates(measured: list[Measured]) -> None:
    of_three = [row for row in measured if not row.failure and row.label not in _astronomix.LABELS]
    rates = [f"{row.label}: {N * N * STEPS / row.median / 1e6:.1f}" for row in of_three]
    report(f"Millions of cells a second, each by a whole step of three evaluations: {'; '.join(rates)}.\n")
    found = {row.label: row.median for row in measured if not row.failure}
    if theirs := [label for label in _astronomix.LABELS if label in found]:
        ratios = []
        for label in theirs:
            ours = "Muscl" if "MUSCL" in label else "WENO5Z"
            each = found[label] / _astronomix.LABELS[label][2], found[ours] / 3
            ratios.append(f"{label.split(',')[1].strip()}, {each[0] / each[1]:.1f} times the time of {ours} here")
        report(f"An evaluation of the fluxes by astronomix: {'; '.join(ratios)}.\n")
    else:
        report("astronomix is not installed (`pip install astronomix`): its rows are missing.\n")


def _primitive() -> np.ndarray:
    x, y = (2 * np.pi * np.asarray(c, np.float64) for c in Grid((N, N)).centers)
    rows = 1 + 0.3 * np.sin(x + y), np.sin(y) + 0 * x, np.cos(x) + 0 * y, 2 + 0.5 * np.cos(x - y)
    return np.stack(rows)


def _start() -> np.ndarray:
    return _conserved(_primitive()).astype(np.float32)


def _steps(boundary: Any, **options: Any) -> Any:
    law = Euler(Grid((N, N)), boundary, GAMMA, **options)
    return lambda y: sciml.solve(law, y, t0=0.0, t1=STEPS * DT, dt=DT, throw=False).ys[-1]


def _worker(devices: int, path: str) -> None:
    """Steps of a field that is split over devices; saves the end state once."""
    jax.config.update("jax_num_cpu_devices", devices)
    grid, mesh = Grid((N, N)), parallel.mesh(member=1, x=devices)
    domain = parallel.Domain(("x", None), boundary=Sides(grid, Periodic()), mesh=mesh)
    u = domain.split(jnp.asarray(_start()))
    steps = _steps(domain, reconstruction=WENO5Z(), limiter=None)
    run = jax.jit(lambda u: domain.run(steps, u)).lower(u).compile()
    np.save(path, run(u))
    print("ready", flush=True)
    for _ in sys.stdin:
        jax.block_until_ready(run(u))
        print("done", flush=True)


def groups() -> list[Group]:
    y0 = jnp.asarray(_start())
    error = max_error(_reference(np.asarray(y0, np.float64)))
    split = pathlib.Path(tempfile.mkdtemp()) / "end.npy"

    def run(**options: Any) -> Any:
        return jitted(_steps(Periodic(), **options), y0)

    candidates = [
        Candidate("WENO5Z", run(reconstruction=WENO5Z(), limiter=None), error=error),
        Candidate(
            f"WENO5Z, split over {DEVICES} CPU devices",
            in_processes("benchmarks.euler", DEVICES, split, result=lambda: np.load(split)),
            "WENO5Z",
            error,
        ),
        Candidate("WENO5Z, positivity limiter", run(reconstruction=WENO5Z()), "WENO5Z", error),
        Candidate("Muscl", run(limiter=None), "WENO5Z"),
        *c_euler(np.asarray(y0), steps=STEPS, dt=DT, against="WENO5Z", error=error),
        *_astronomix.rows(
            _primitive().astype(np.float32), STEPS, DT, GAMMA, lambda w: error(_conserved(np.asarray(w))), "WENO5Z"
        ),
    ]
    title = f"Euler equations on {N} x {N} cells, {STEPS} steps of SSPRK33 with HLLC, float32, end state only"
    return [Group(title, candidates, finish=_updates)]


if __name__ == "__main__":
    _worker(int(sys.argv[1]), sys.argv[2])
