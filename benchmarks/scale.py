"""The predictions of the chapters of "How to scale your simulation", compared with measurements: runs `docs/scale`."""

import functools
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

from ._harness import Candidate, Group, Measured, report

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs" / "scale"
CHAPTERS = (
    "machine",
    "modules",
    "tracing",
    "reverse",
    "lanes",
    "stencils",
    "adjoint_costs",
    "many_devices",
    "precision",
)
PREDICTED = re.compile(r"^(.+): predicted ([\d.e+-]+ \w+), measured ([\d.e+-]+ \w+), factor ([\d.]+)$", re.MULTILINE)
"""What `timing.beside` prints."""


_printed: dict[str, str] = {}


def _script(chapter: str) -> Callable[[], str]:
    def run() -> str:
        command = [sys.executable, str(FOLDER / f"{chapter}.py")]
        _printed[chapter] = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        return _printed[chapter]

    return run


def _compare(measured: list[Measured]) -> str | None:
    """Prints all predictions; those of a script that failed are missing, and its row above says why."""
    rows, near = ["| chapter | | predicted | measured | factor |", "|---|---|---|---|---|"], 0
    for row in measured:
        for what, predicted, found, factor in PREDICTED.findall(_printed.get(row.label, "")):
            rows.append(f"| {row.label} | {what} | {predicted} | {found} | {factor} |")
            near += float(factor) <= 2
    report("\n".join(rows))
    report(f"\n{near} of {len(rows) - 2} within a factor of two\n")
    return None


def groups() -> list[Group]:
    """Returns the chapters, and what is said of them in the end."""
    candidates = [Candidate(chapter, functools.partial(_script, chapter)) for chapter in CHAPTERS]
    return [Group("Chapters of How to scale your simulation, each a process", candidates, 1, False, _compare)]
