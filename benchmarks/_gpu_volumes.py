"""Gas in two dimensions by a kernel beside XLA: the third part of `python -m benchmarks.gpu`."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import kernels
from sciml.models import Euler
from sciml.spatial import WENO5Z, Grid, Muscl, Outflow, Periodic

from ._harness import median_seconds

SIZES = (512, 2048)
CHECKED = 5e-4  # of the largest change; roundings of a state in float32 are up to a third of it
CASES: dict[str, dict[str, Any]] = {
    "Muscl, HLLC": {"reconstruction": Muscl(), "limiter": None},
    "Muscl, HLLC, positivity limiter": {"reconstruction": Muscl()},
    "WENO5Z, HLLC": {"reconstruction": WENO5Z(), "limiter": None},
    "WENO5Z, HLLC, positivity limiter": {"reconstruction": WENO5Z()},
}


def _start(law: Euler, grid: Grid) -> jax.Array:
    x, y = (2 * np.pi * np.asarray(c) for c in grid.centers)
    rows = 1 + 0.3 * np.sin(x + y), np.sin(y) + 0 * x, np.cos(x) + 0 * y, 2 + 0.5 * np.cos(x - y)
    return law.conserved(jnp.asarray(np.stack(rows), jnp.float32))


def _error(options: dict[str, Any], interpret: bool) -> float:
    """The largest deviation from XLA of the change in a step over the largest change, on cells that no tile divides."""
    grid = Grid((203, 301))
    law = Euler(grid, {"x": Periodic(), "y": Outflow()}, **options)
    y = _start(law, grid)

    def change(impl: str) -> np.ndarray:
        with kernels.use(impl, interpret=interpret and impl == "pallas"):
            return np.asarray(sciml.solve(law, y, t0=0.0, t1=4e-4, dt=4e-4).ys[-1] - y)

    found, expected = change("pallas"), change("xla")
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


def check(interpret: bool, report: Callable[[str], None]) -> set[str]:
    """Prints how one step compares with XLA's, and returns the cases that are right."""
    report("| Euler in 2-D, change in a step | error |\n|---|---|")
    right = set()
    for name, options in CASES.items():
        try:
            error = _error(options, interpret)
            right |= {name} if error <= CHECKED else set()
            row = f"{error:.1e}{'' if error <= CHECKED else ', wrong'}"
        except Exception as failure:
            row = f"{type(failure).__name__}: {str(failure).splitlines()[0][:80]}"
        report(f"| {name} | {row} |")
    return right


def rates(
    right: set[str],
    sizes: list[int],
    repeats: int,
    interpret: bool,
    late: Callable[[], bool],
    report: Callable[[str], None],
) -> None:
    """Prints how fast whole steps of `SSPRK33` are, by XLA and by the kernel."""
    report("The rate is in 10^9 cells a second, each by a whole step of three evaluations.\n")
    report("| Euler in 2-D | cells | backend | rate | to XLA | compile |\n|---|---|---|---|---|---|")
    for name, options in CASES.items():
        for n in sizes:
            grid = Grid((n, n))
            law = Euler(grid, Periodic(), **options)
            y, dt, by_xla = _start(law, grid), 0.05 / n, None
            steps = max(4, min(400, int(2e8 / n**2)))
            for impl in ("xla", *(["pallas"] if name in right else [])):
                label = "XLA" if impl == "xla" else "kernel"
                if late():
                    report(f"| {name} | {n}^2 | {label} | out of time | | |")
                    continue

                def run(y: jax.Array, impl: str = impl) -> jax.Array:
                    with kernels.use(impl, interpret=interpret and impl == "pallas"):
                        solved = sciml.solve(law, y, t0=0.0, t1=steps * dt, dt=dt, throw=False)  # noqa: B023
                    return solved.ys[-1]

                start = time.perf_counter()
                compiled = jax.jit(run).lower(y).compile()
                took = time.perf_counter() - start
                seconds = median_seconds(compiled, y, repeats)
                by_xla = seconds if impl == "xla" else by_xla
                ratio = "" if by_xla is None else f"{by_xla / seconds:.2f}"
                rate = n * n * steps / seconds / 1e9
                report(f"| {name} | {n}^2 | {label} | {rate:.3f} | {ratio} | {took:.1f} s |")
