"""Runs the semantic cases of the SBML Test Suite: `python -m tests.suites.sbml FOLDER`.

A case is a folder `NNNNN` with `NNNNN-sbml-l3v2.xml` (or another level), `NNNNN-settings.txt`, `NNNNN-results.csv` and
`NNNNN-model.m`, which says whether the case is a time course. Only time courses are run. A case has passed if
every value agrees with the results within the tolerances of its settings, `|value - result| <= absolute + relative
|result|`. It was refused if `read_sbml` raised a `ValueError` that says what is not supported. All else is wrong.

Cases run in worker processes of bounded memory and time: a case that takes longer, or ends its worker, is wrong.
"""

import argparse
import contextlib
import csv
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from .outcomes import Outcome, counts

MEMORY = 8 * 2**30
"""Bytes of data that a worker may have."""

CASES_PER_WORKER = 40
"""A new worker starts after so many cases: the programs that JAX keeps are gone with the old one."""

LIMIT = 240.0
"""Seconds that a case may take, with its compilation."""

RTOL, ATOL = 1e-8, 1e-6
"""The relative tolerance of a solve, and the absolute one as a fraction of that of the case."""


class Settings(NamedTuple):
    """The settings of a case: where it ends, the number of rows, variables and the tolerances of its results."""

    duration: float
    steps: int
    variables: tuple[str, ...]
    absolute: float
    relative: float
    amounts: frozenset[str]
    concentrations: frozenset[str]


def run(
    folder: pathlib.Path,
    cases: Sequence[str] | None = None,
    *,
    level: str = "l3v2",
    limit: float = LIMIT,
    log: Any = None,
) -> list[Outcome]:
    """Returns the outcomes of cases, by default of all time courses in a folder.

    Args:
        folder: The folder of the cases.
        cases: Their names, such as `00001`.
        level: The file to take, such as `l2v4`; of cases without it the highest one.
        limit: Seconds for each case.
        log: A file that each outcome is written to as it comes, or None.
    """
    folder = pathlib.Path(folder)
    names = time_courses(folder) if cases is None else list(cases)
    found: list[Outcome] = []
    worker = _Worker(folder, level)
    try:
        for number, name in enumerate(names):
            if number and number % CASES_PER_WORKER == 0:
                worker.stop()
            start = time.monotonic()
            found.append(worker.outcome(name, limit))
            if log is not None:
                one = found[-1]
                print(f"{one.case}\t{one.outcome}\t{time.monotonic() - start:.1f}\t{one.why}", file=log, flush=True)
    finally:
        worker.stop()
    return found


def time_courses(folder: pathlib.Path, tag: str = "") -> list[str]:
    """Returns the names of the time courses in a folder, or of those with a tag such as `EventWithDelay`."""
    found = []
    for path in sorted(folder.glob("*/*-model.m")):
        text = path.read_text(errors="replace")
        if re.search(r"testType:\s*TimeCourse", text) and re.search(rf"Tags:.*{tag}", text):
            found.append(path.parent.name)
    return found


def read_settings(path: pathlib.Path) -> Settings:
    """Returns the settings of a case."""
    found = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    found = {key.strip(): value.strip() for key, value in found.items()}

    def names(key: str) -> list[str]:
        return [x.strip() for x in found.get(key, "").split(",") if x.strip()]

    return Settings(
        float(found["duration"]), int(found["steps"]), tuple(names("variables")), float(found["absolute"]),
        float(found["relative"]), frozenset(names("amount")), frozenset(names("concentration")),
    )  # fmt: skip


def sbml_file(folder: pathlib.Path, level: str) -> pathlib.Path:
    """Returns the file of a case at a level, or at the highest one that there is."""
    wanted = folder / f"{folder.name}-sbml-{level}.xml"
    return wanted if wanted.is_file() else sorted(folder.glob("*-sbml-l*v*.xml"))[-1]


def outcome(folder: pathlib.Path, level: str) -> Outcome:
    """Returns the outcome of the case in a folder."""
    import jax

    jax.config.update("jax_enable_x64", True)
    name = folder.name
    try:
        why = _compared(folder, level)
    except ValueError as error:
        if "not supported" in str(error) or "unsupported" in str(error):
            return Outcome(name, "refused", _line(error))
        return Outcome(name, "wrong", f"ValueError: {_line(error)}")
    except Exception as error:
        return Outcome(name, "wrong", f"{type(error).__name__}: {_line(error)}")
    return Outcome(name, "wrong" if why else "passed", why)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _compared(folder: pathlib.Path, level: str) -> str:
    """Solves a case; returns where it differs from its results, empty if nowhere."""
    import numpy as np

    path = sbml_file(folder, level)
    settings = read_settings(folder / f"{folder.name}-settings.txt")
    with open(folder / f"{folder.name}-results.csv", newline="") as file:
        rows = [[x.strip() for x in row] for row in csv.reader(file) if row]
    header, wanted = rows[0], np.array([[float(x) for x in row] for row in rows[1:]])
    found = simulated(path, settings, wanted[:, 0])
    for column, name in enumerate(header[1:], 1):
        values, right = np.asarray(found[name]), wanted[:, column]
        same = (values == right) | (np.isnan(values) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            same |= np.abs(values - right) <= settings.absolute + settings.relative * np.abs(right)
        if not same.all():
            row = int(np.argmin(same))
            where = f"{name} at t={wanted[row, 0]:g} is {values[row]:.8g}, right is {right[row]:.8g}"
            return f"{where} ({(~same).sum()} of {len(same)} rows)"
    return ""


def simulated(path: pathlib.Path, settings: Settings, times: Any) -> dict[str, Any]:
    """Returns the variables of a case at its times.

    Raises:
        RuntimeError: If the solve fails.
    """
    import diffrax
    import jax
    import jax.numpy as jnp
    import sbmlode

    import sciml
    from sciml import AbstractDelayed

    model = sciml.models.read_sbml(path)
    atol = min(1e-9, ATOL * settings.absolute)
    options: dict[str, Any] = dict(solver=sciml.solvers.Rodas5P(), rtol=RTOL, atol=atol, max_steps=200_000)

    @jax.jit
    def solved():
        sol = sciml.solve(
            model, model.y0, t0=0.0, t1=float(times[-1]), saveat=jnp.asarray(times), events=model.events() or None,
            throw=False, **options,
        )  # fmt: skip
        return sol.status, jax.vmap(model.values)(sol.ts, sol.ys), sol.ys

    if isinstance(model, AbstractDelayed):
        # the past is interpolated to fourth order, which the error estimate of a step does not contain
        dtmax = 0.05 * float(jnp.min(model.delays))
        controller = diffrax.PIDController(rtol=RTOL, atol=atol, dtmax=dtmax)
        at, delayed = jnp.asarray(times), dict(stepsize_controller=controller, max_steps=200_000)

        @jax.jit
        def past_too():
            sol = sciml.solve(
                model, model.y0, t0=0.0, t1=float(times[-1]), saveat=model.times_for(at),
                events=model.events() or None, throw=False, **delayed,
            )  # fmt: skip
            return sol.status, model.values_at(at, sol), sol.ys

        solved = past_too
    if not model.states:
        values = jax.vmap(lambda t: model.values(t, model.y0))(jnp.asarray(times))
    else:
        status, values, _ = solved()
        if (status := sciml.Status(int(status))) != sciml.Status.successful:
            raise RuntimeError(f"the solve ended with the status {status.name}.")
    system = sbmlode.OdeSystem.from_sbml(path)
    found = {}
    for name in settings.variables:
        found[name] = column(model, values, name)
        if name in settings.amounts | settings.concentrations:
            species = system.quantity(name)
            if species.compartment and species.amount != (name in settings.amounts):
                size = column(model, values, species.compartment)
                found[name] = found[name] / size if species.amount else found[name] * size
    return found


def column(model: Any, values: Any, name: str) -> Any:
    """Returns one of a model's values at all times."""
    return values[:, model.place(name)]


class _Worker:
    """A process that runs cases, started when it is first needed."""

    def __init__(self, folder: pathlib.Path, level: str):
        self.command = [sys.executable, "-m", "tests.suites.sbml", "--worker", "--level", level, str(folder)]
        self.process: subprocess.Popen | None = None

    def outcome(self, name: str, limit: float) -> Outcome:
        """Returns the outcome of a case; wrong if it takes too long or ends the process."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(f"{name}\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], limit)
            line = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            ready, line = True, ""
        if line:
            return Outcome(**json.loads(line))
        self.stop()
        return Outcome(name, "wrong", "the worker process ended" if ready else f"no result within {limit:.0f} s")

    def stop(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            # Leaving the block closes the files. Text that the process never read is then written once more.
            with contextlib.suppress(BrokenPipeError), self.process:
                pass
        self.process = None


def _work(folder: pathlib.Path, level: str) -> None:
    """Runs the cases whose names come in, and writes their outcomes."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no outcome
    for line in sys.stdin:
        one = outcome(folder / line.strip(), level)
        print(json.dumps(dict(case=one.case, outcome=one.outcome, why=one.why)), file=out, flush=True)


def main() -> None:
    """Runs what the command line says, and prints what did not pass, with the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites.sbml", description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--tag", default="", help="run the cases with this tag, such as EventWithDelay")
    parser.add_argument("--level", default="l3v2", help="the level of the files, such as l2v4")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each case")
    parser.add_argument("--log", type=argparse.FileType("w"), default=sys.stdout, help="a file for the outcomes")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return _work(given.folder, given.level)
    cases = given.cases or time_courses(given.folder, given.tag)
    print(counts(run(given.folder, cases, level=given.level, limit=given.limit, log=given.log)))


if __name__ == "__main__":
    main()
