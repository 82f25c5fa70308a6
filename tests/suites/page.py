"""Writes the page on other projects' test suites: `python -m tests.suites --petab FOLDER --scipy FOLDER ...`.

A suite whose folder is not given keeps its row. `--most N` runs at most `N` cases of each test, evenly spread over all.
`--sbml LOG` takes outcomes that `python -m tests.suites.sbml FOLDER --log LOG` wrote; the last one of a case counts.
"""

import argparse
import collections
import concurrent.futures
import datetime
import importlib
import inspect
import multiprocessing
import pathlib
import re
import subprocess

import jax

from .outcomes import Outcome, counts

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "assets" / "suites_table.txt"
SUITES = {
    "sbml": "SBML Test Suite, semantic cases",
    "petab": "PEtab test suite, versions 1 and 2",
    "petab_sciml": "PEtab SciML test suite",
    "scipy": "SciPy's tests of `solve_ivp` and `solve_bvp`",
    "diffrax": "diffrax's tests of `diffeqsolve`",
}
REASONS = 5
"""How many reasons a row names."""


def version_of(folder: str) -> str:
    """The commit of a folder, or the time of its newest file."""
    found = subprocess.run(["git", "-C", folder, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True)
    if found.returncode == 0:
        return found.stdout.strip()
    if pathlib.Path(folder).is_file():
        return f"run on {datetime.date.fromtimestamp(pathlib.Path(folder).stat().st_mtime)}"
    newest = max(path.stat().st_mtime for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return f"files of {datetime.date.fromtimestamp(newest)}"


def kinds_of(outcomes: list[Outcome], outcome: str) -> list[tuple[str, int]]:
    """The reasons of an outcome with their numbers, the most frequent first; names and numbers in them are dropped."""
    found = collections.Counter(
        _cut(re.sub(r"\s+", " ", re.sub(r"\d[\d.e+-]*", "N", x.why.split(". ")[0]))).rstrip(".").replace("|", "/")
        for x in outcomes
        if x.outcome == outcome
    )
    return found.most_common()


def _cut(text: str, most: int = 110) -> str:
    """The beginning of a text, of whole words."""
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0]


def row(name: str, version: str, outcomes: list[Outcome], most: int | None = None) -> list[str]:
    """The lines of a suite: the row of its counts, then its reasons."""
    total = counts(outcomes)
    share = "all" if most is None else f"at most {most} of each test"
    lines = [
        f"{SUITES[name]} ({version}; {share}; JAX {jax.__version__}): "
        + ", ".join(f"{n} {k}" for k, n in total.items())
    ]
    for kind in ("wrong", "refused"):
        reasons = kinds_of(outcomes, kind)
        lines += [f"    {kind} {count}: {reason}" for reason, count in reasons[:REASONS]]
        rest = sum(count for _, count in reasons[REASONS:])
        lines += [f"    {kind} {rest}: other reasons"] if rest else []
    return lines


def kept_rows(text: str) -> dict[str, list[str]]:
    """The rows of a page that was written before, by the names of suites."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        for name, title in SUITES.items():
            if line.startswith(title):
                found[name] = []
                break
        else:
            name = next(reversed(found), "")
        if name and line:
            found[name].append(line)
    return found


def logged(log: pathlib.Path) -> list[Outcome]:
    """The outcomes in a log, of each case the last one."""
    rows = [line.rstrip("\n").split("\t") for line in log.read_text().splitlines()]
    return list({case: Outcome(case, outcome, why) for case, outcome, _, why in rows}.values())


def _run(name: str, folder: str, most: int | None) -> list[Outcome]:
    if pathlib.Path(folder).is_file():
        return logged(pathlib.Path(folder))
    run = importlib.import_module(f"tests.suites.{name}").run
    return run(folder, most=most) if "most" in inspect.signature(run).parameters else run(folder)


def main(arguments: list[str] | None = None, page: pathlib.Path = PAGE) -> None:
    """Runs the suites whose folders are given, and writes their rows."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    for name, title in SUITES.items():
        parser.add_argument(f"--{name}", metavar="FOLDER", help=title)
    parser.add_argument("--most", type=int, help="the most cases of each test")
    given = vars(parser.parse_args(arguments))
    rows = kept_rows(page.read_text()) if page.exists() else {}
    for name in SUITES:
        if given[name]:
            # a process of its own, since each suite sets JAX's options as it wants them
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                outcomes = process.submit(_run, name, given[name], given["most"]).result()
            rows[name] = row(name, version_of(given[name]), outcomes, given["most"])
            page.write_text("\n\n".join("\n".join(rows[n]) for n in SUITES if n in rows) + "\n")
    print(page.read_text(), end="")
