"""Loops in C, compiled on the fly where there is a compiler."""

import ctypes
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from ._harness import Candidate

FLAGS = ["-O3", "-march=native", "-std=c11", "-shared", "-fPIC"]
ROWS = {"C, -O3 -march=native, one core": [], "C, -O3 -march=native -fopenmp, all cores": ["-fopenmp"]}
SOURCE = pathlib.Path(__file__).with_name("_lorenz.c")


def _library(compiler: str, flags: list[str], source: pathlib.Path = SOURCE) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "loop.so"
        subprocess.run(
            [compiler, *FLAGS, *flags, str(source), "-o", str(target), "-lm"], check=True, capture_output=True
        )
        return ctypes.CDLL(str(target))  # stays mapped after the folder is gone


def c_lorenz(
    rho: np.ndarray, *, fixed: bool, steps: int, tol: float, against: str, error: Callable[[Any], float]
) -> list[Candidate]:
    """Rows for the C loop on one core and on all; none without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return []
    rho = np.ascontiguousarray(rho, np.float32)
    pointer, number = ctypes.c_void_p, ctypes.c_float

    def build(flags: list[str]) -> Callable[[], Any]:
        library = _library(compiler, flags)
        out = np.empty((rho.size, 3), np.float32)

        def run() -> np.ndarray:
            where = pointer(rho.ctypes.data), pointer(out.ctypes.data), rho.size
            if fixed:
                library.fixed(*where, steps, number(1 / steps))
            else:
                library.adaptive(*where, number(tol), number(1 / steps))
            return out

        return run

    return [Candidate(label, lambda flags=flags: build(flags), against, error) for label, flags in ROWS.items()]


def c_gray_scott(
    start: np.ndarray, *, steps: int, numbers: tuple[float, ...], against: str, error: Callable[[Any], float]
) -> list[Candidate]:
    """Rows for Gray-Scott by explicit Euler on one core and on all; none without a compiler.

    `numbers` are the diffusion numbers of both, the feed and the kill rate, for one step.
    """
    return _of_field("gray_scott", start, steps, numbers, against, error)


def c_euler(
    start: np.ndarray, *, steps: int, dt: float, against: str, error: Callable[[Any], float]
) -> list[Candidate]:
    """Rows for the Euler equations by WENO-Z and HLLC on one core and on all; none without a compiler."""
    return _of_field("euler", start, steps, (dt,), against, error)


def _of_field(
    name: str, start: np.ndarray, steps: int, numbers: tuple[float, ...], against: str, error: Callable[[Any], float]
) -> list[Candidate]:
    """Rows for a function in C `name(start, end, cells along an axis, steps, *numbers)`, in a file of its name."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return []
    start = np.ascontiguousarray(start, np.float32)

    def build(flags: list[str]) -> Callable[[], Any]:
        library = _library(compiler, ["-ffast-math", "-fopenmp-simd", *flags], SOURCE.with_name(f"_{name}.c"))
        function, out = getattr(library, name), np.empty_like(start)

        def run() -> np.ndarray:
            where = ctypes.c_void_p(start.ctypes.data), ctypes.c_void_p(out.ctypes.data), start.shape[-1], steps
            function(*where, *map(ctypes.c_float, numbers))
            return out

        return run

    return [Candidate(label, lambda flags=flags: build(flags), against, error) for label, flags in ROWS.items()]
