"""The page of print-outs in the documentation, a section for each benchmark that was run with `--page`."""

import importlib
import io
import pathlib
import re
import sys

from . import _summary
from ._registry import BENCHMARKS

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

This page contains the output of `make bench-page BENCH="scan insight"` and the like. Each section gives its machine,
the load of the machine, and the versions. Rows of one table were measured side by side, so compare ratios within a
table; sections may be from different days. `benchmarks/README.md` describes the method, and `python -m benchmarks
NAME` prints the other benchmarks.
"""
CONTEST = PAGE.with_name("contest.md")
CONTEST_HEAD = """# Stiff-solver benchmark

This benchmark compares stiff ODE solvers on seventeen problems, four of them also as ensembles of a hundred members:
sciml, diffrax, CVODE (SUNDIALS), diffsol, and SciPy's LSODA and Radau. Two problems are generated reaction networks
of 66 and 258 species (`benchmarks/_phosphorylation.py`), and two are BioNetGen models of 356 and 1122 species
(`benchmarks/data`). `make bench-page BENCH=contest` runs it and writes this page; add a problem as a line in
`benchmarks/_contest_problems.py`. Everything is float64, and only the end state is saved.

A cell contains the median time of a run and, in brackets, its error: the largest relative error of all components.
Compare times at equal error, as in the plots, not within a column. References come from two codes at tolerances of
1e-11 and 1e-12 that agree to 2e-9 or better, except for the last component of E5 (8e-20), where they agree to 7e-8;
see `python -m benchmarks._contest_references`.

Notes:

- **compile**: sciml and diffrax compile the whole solve, once for all tolerances. For the others it is the time until
  the first call, including machine code for the equations.
- **Overhead**: CVODE and SciPy call machine code from Python in each evaluation, which costs several microseconds;
  diffsol is written in Rust.
- **Ensembles**: sciml and diffrax solve the 100 members in one batch; the others loop.
- **Settings** are the defaults, except for CVODE's band and Krylov solvers on grids, diffrax's first step on stiff
  problems, and a limit of 100,000 steps.
- **Time limit**: solvers that exceed 2 s are not run at tighter tolerances (marked in the cell).

![Error at the end against time, one member](figures/contest.svg)

![Error at the end against time, a hundred members](figures/contest_members.svg)

"""
_SECTION = re.compile(r"^## `(\w+)`\n", re.MULTILINE)


class Tee(io.StringIO):
    """Keeps what is printed, and prints it."""

    def __init__(self) -> None:
        super().__init__()
        self._out = sys.stdout

    def write(self, text: str) -> int:
        self._out.write(text)
        return super().write(text)

    def flush(self) -> None:
        self._out.flush()


def question(name: str) -> str:
    """The first line of the benchmark's file."""
    return (importlib.import_module(f"benchmarks.{name}").__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def with_section(page: str, name: str, text: str) -> str:
    """The page with what a benchmark printed, in place of what it printed before; sections are in the registry's order.

    Args:
        page: The page as it is; empty where there is none.
        name: The benchmark's.
        text: What it printed.
    """
    parts = _SECTION.split(page)
    sections = dict(zip(parts[1::2], parts[2::2]))
    sections[name] = f"{question(name)}\n\n{text}"
    body = "".join(f"\n## `{known}`\n\n{sections[known].strip()}\n" for known in BENCHMARKS if known in sections)
    return HEAD + _summary.summary(body) + body


def add(name: str, text: str) -> None:
    """Writes what a benchmark printed into the page; the contest has one of its own."""
    if name == "contest":
        CONTEST.write_text(CONTEST_HEAD + text.strip() + "\n")
        return
    page = with_section(PAGE.read_text() if PAGE.exists() else "", name, text)
    PAGE.write_text(page)
    _summary.write(page)
