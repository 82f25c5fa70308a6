"""Measure candidates side by side: compile apart, repeats interleaved, medians with their spread, errors stated."""

import dataclasses
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import numpy as np

SLOW = 5.0  # seconds; a candidate slower than this runs once
BUDGET = 4.0  # seconds; a candidate that has used them is not repeated again
SAMPLE = 0.02  # seconds; a faster one is called as often as it takes to fill this


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One row: `build` compiles (it is timed as such) and returns a function of no arguments that runs and waits."""

    label: str
    build: Callable[[], Callable[[], Any]]
    against: str | None = None  # the row whose time this row's time is divided by
    error: Callable[[Any], float] | None = None


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that are measured interleaved, under one heading that states size, dtype and what is saved."""

    title: str
    candidates: list[Candidate]
    repeats: int = 7
    compiled: bool = True  # False where the build is nothing worth a column
    finish: Callable[[list["Measured"]], str | None] | None = None  # given the rows; may say what it wrote
    table: Callable[["Group", list["Measured"]], str] | None = None  # what is printed of them instead of `table`


@dataclasses.dataclass
class Measured:
    """What one candidate showed."""

    label: str
    against: str | None = None
    compile: float = math.nan
    times: list[float] = dataclasses.field(default_factory=list)
    error: float = math.nan
    failure: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.times) if self.times else math.nan


def jitted(fn: Callable[..., Any], *args: Any) -> Callable[[], Callable[[], Any]]:
    """A `build` for `jax.jit(fn)`: traced, lowered and compiled ahead of its first call."""

    def build() -> Callable[[], Any]:
        compiled = jax.jit(fn).lower(*args).compile()
        return lambda: jax.block_until_ready(compiled(*args))

    return build


def in_float64(build: Callable[[], Callable[[], Any]]) -> Callable[[], Callable[[], Any]]:
    """A `build` that compiles and runs with x64 on."""

    def built() -> Callable[[], Any]:
        with jax.enable_x64(True):
            run = build()

        def again() -> Any:
            with jax.enable_x64(True):
                return run()

        return again

    return built


def max_error(reference: np.ndarray, relative: bool = False) -> Callable[[Any], float]:
    """The largest absolute deviation from `reference`, over its largest entry if `relative`."""
    scale = np.max(np.abs(reference)) if relative else 1.0
    return lambda out: float(np.max(np.abs(np.asarray(out, np.float64) - reference)) / scale)


def _prepare(candidate: Candidate, compiled: bool) -> tuple[Measured, Callable[[], Any] | None, int]:
    """Build and run once; returns the row, the function to time (None if it is done or failed), and calls a sample."""
    row = Measured(candidate.label, candidate.against)
    try:
        start = time.perf_counter()
        run = candidate.build()
        row.compile = time.perf_counter() - start if compiled else math.nan
        start = time.perf_counter()
        out = run()
        first = time.perf_counter() - start
        if candidate.error is not None:
            row.error = candidate.error(out)
    except Exception as failure:  # one broken candidate must not cost the other rows
        row.failure = f"{type(failure).__name__}: {str(failure).splitlines()[0][:80] if str(failure) else ''}"
        return row, None, 0
    if first > SLOW:
        row.times.append(first)
        return row, None, 0
    start = time.perf_counter()
    run()
    return row, run, max(1, math.ceil(SAMPLE / max(time.perf_counter() - start, 1e-7)))


def median_seconds(run: Callable[[Any], Any], argument: Any, repeats: int) -> float:
    """The median time of a call that is compiled already."""
    jax.block_until_ready(run(argument))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run(argument))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(group: Group) -> list[Measured]:
    """Run one group; every repeat goes round all candidates, so that a busy machine disturbs them alike."""
    prepared = [_prepare(candidate, group.compiled) for candidate in group.candidates]
    for _ in range(group.repeats):
        for row, run, calls in prepared:
            if run is not None and calls * sum(row.times) < BUDGET:
                start = time.perf_counter()
                for _ in range(calls):
                    run()
                row.times.append((time.perf_counter() - start) / calls)
    return [row for row, _, _ in prepared]


def duration(seconds: float) -> str:
    """A time as text, in seconds, milliseconds or microseconds."""
    if math.isnan(seconds):
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            break
    value = seconds / scale
    return f"{value:.{max(0, 2 - int(math.log10(max(value, 1))))}f} {unit}"


def _cells(row: Measured, rows: dict[str, Measured]) -> list[str]:
    if row.failure:
        return [row.label, "failed", row.failure, "", "", ""]
    spread = f"{duration(min(row.times))} - {duration(max(row.times))}" if len(row.times) > 1 else "one run"
    base = rows.get(row.against or "")
    ratio = f"{row.median / base.median:.2f} x {base.label}" if base is not None and base.times else ""
    error = "" if math.isnan(row.error) else f"{row.error:.1e}"
    return [row.label, duration(row.median), spread, ratio, duration(row.compile), error]


def table(group: Group, measured: list[Measured]) -> str:
    """The group as a Markdown table that also reads well as plain text."""
    rows = {row.label: row for row in measured}
    head = ["", "median", "min - max", "ratio", "compile", "error"]
    cells = [head, *(_cells(row, rows) for row in measured)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]

    def pad(line: list[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([f"### {group.title}", "", pad(head), rule, *map(pad, cells[1:]), ""])


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            return next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def environment() -> str:
    """What the figures depend on, one line each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = jax.devices()[0]
    lines = [
        f"- processor: {_processor()}, {cores} cores, load {os.getloadavg()[0]:.1f} before the first row",
        f"- JAX device: {device.platform}, {device.device_kind} x {jax.device_count()}",
        f"- Python {platform.python_version()}, jax {jax.__version__}, diffrax {diffrax.__version__}",
        f"- default dtype: {jax.numpy.zeros(()).dtype}",
        "- time: median of interleaved repeats, warm, results awaited; compile: trace, lower and compile, apart",
        "- calls on CPUs run in the thread that makes them: `jax_cpu_enable_async_dispatch=False`",
    ]
    return "\n".join(lines)


def report(text: str) -> None:
    """Print a finished part at once."""
    print(text, flush=True)


def note(text: str) -> None:
    """Progress, kept out of the table."""
    print(text, file=sys.stderr, flush=True)
