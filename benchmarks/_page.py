"""The page of print-outs in the documentation, a section for each benchmark that was run with `--page`."""

import importlib
import io
import pathlib
import re
import sys

from ._registry import BENCHMARKS

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

What `make bench-page BENCH="scan insight"` printed, each with its machine, the load that this was under, and
versions. Ratios of one table were measured side by side; sections may be of different days. `benchmarks/README.md`
says what is compared and how, and `python -m benchmarks NAME` prints what is not here.
"""
CONTEST = PAGE.with_name("contest.md")
CONTEST_HEAD = """# The contest

Thirteen problems, and four of them with a hundred members, by sciml and by others: CVODE, diffsol, SciPy's LSODA and
Radau, diffrax.
`make bench-page BENCH=contest` runs all of it and writes this page; adding a problem is adding a line to
`benchmarks/_contest_problems.py`. Everything is float64, and the end state is saved.

A cell is the median time of a run, and in brackets the error that it reached: the largest of all components, relative
to the component. Compare times at equal error, as the pictures do, not in a column. References are by two codes at
1e-11 and 1e-12 that agree to 2e-9 or better, but to 7e-8 for the last component of E5, which is 8e-20;
`python -m benchmarks._contest_references` makes them and says so.

How to read it: sciml and diffrax compile the whole solve, once for all tolerances, which `compile` says; of others it
is the time until the first call, that of the equations' machine code included. CVODE and SciPy call machine code from
Python at each evaluation, which costs some microseconds; diffsol is Rust throughout. Of a hundred members sciml and
diffrax take all at once, the others one after another. Codes run with their defaults but for CVODE's band and Krylov
solvers on grids, diffrax's first step on stiff problems, and a limit of 100 000 steps. A code that took more than two
seconds is not asked for tighter tolerances, and a cell says so.

![Error at the end against time, one member](figures/contest.svg)

![The same for a hundred members](figures/contest_members.svg)

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
    return HEAD + "".join(f"\n## `{known}`\n\n{sections[known].strip()}\n" for known in BENCHMARKS if known in sections)


def add(name: str, text: str) -> None:
    """Writes what a benchmark printed into the page; the contest has one of its own."""
    if name == "contest":
        CONTEST.write_text(CONTEST_HEAD + text.strip() + "\n")
        return
    PAGE.write_text(with_section(PAGE.read_text() if PAGE.exists() else "", name, text))
