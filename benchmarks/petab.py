"""The PEtab benchmark collection: likelihoods of both versions compared with published ones, first calls and gradients.

`python -m benchmarks petab` where the environment variable `PETAB_MODELS` names a clone's folder `Benchmark-Models`, of
https://github.com/Benchmarking-Initiative/Benchmark-Models-PEtab; `PETAB_NAMES` picks some, and
`PETAB_GRADIENTS=0` leaves gradients out. Each problem is also upgraded to version 2 by petab, and read again.
"""

import csv
import logging
import math
import os
import pathlib
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml.petab._measured import Predicted, log_probability
from sciml.petab._problem import PEtabProblem

from ._harness import Candidate, Group, Measured, duration, in_float64

# As tight as gradients need that vanish at an optimum: differences of one see how steps change from call to call.
RTOL = 1e-9
# Log-likelihoods at nominal values, as AMICI's tests have them (tests/benchmark_models/benchmark_models.yaml). All
# others are those of the simulations that are beside the problems, also of Crauste, for which SciPy's DOP853 and Radau
# agree with that, at tolerances of 1e-11 and 1e-13, and AMICI's is off by 1.2e-3.
REFERENCES = {
    "Bachmann_MSB2011": 418.405733,
    "Beer_MolBioSystems2014": 58622.914563,
    "Boehm_JProteomeRes2014": -138.221997,
    "Borghans_BiophysChem1997": 83.323719,
    "Brannmark_JBC2010": -141.889114,
    "Bruno_JExpBot2016": 46.688177,
    "Elowitz_Nature2000": 63.202800,
    "Fiedler_BMCSystBiol2016": 58.583902,
    "Fujita_SciSignal2010": 53.083777,
    "Isensee_JCB2018": -3949.375967,
    "Lucarelli_CellSystems2018": -1681.605988,
    "Schwen_PONE2014": -943.999299,
    "Sneyd_PNAS2002": 319.791778,
    "Weber_BMC2015": -296.201792,
    "Zheng_PNAS2012": 278.333533,
}
# Steps of differences, each an eighth of the one before. Some published optima lie next to parameters with which a
# simulation has no end, Crauste's by one part in a million, so that no step suits all problems.
STEPS = 1e-3 * 0.125 ** np.arange(9)

# Of problems whose likelihood takes more seconds nothing is timed again, and no differences are made.
LONG = 0.2
GRADIENTS = os.environ.get("PETAB_GRADIENTS", "1") != "0"
# Without these by default: 500 and 1396 states.
LARGE = ("Chen_MSB2009", "Froehlich_CellSystems2018")


class Facts(NamedTuple):
    """What is known of a problem; times are processor seconds, first calls with all that is traced and compiled."""

    states: int
    parameters: int
    measurements: int
    published: float
    value: float
    upgraded: float | str
    read: float
    first: float
    again: float
    gradient_off: float
    first_gradient: float
    gradient: float


def timed(function: Any, *args: Any) -> tuple[Any, float]:
    """What a function returns, and the processor time that it takes, with all threads."""
    start = time.process_time()
    found = jax.block_until_ready(function(*args))
    return found, time.process_time() - start


def best(function: Any, *args: Any) -> float:
    """The least time of a few calls."""
    return min(timed(function, *args)[1] for _ in range(3))


def difference(likelihood: Callable[[Any], Any], x: Any, direction: np.ndarray) -> float:
    """The slope along a direction by differences of fourth order, by a step with which the next one agrees best."""
    found = []
    for step in STEPS:
        ends = [float(likelihood(x + k * step * jnp.asarray(direction))) for k in (2, 1, -1, -2)]
        found.append((-ends[0] + 8 * ends[1] - 8 * ends[2] + ends[3]) / (12 * step))
    changes = np.abs(np.diff(found))
    return found[int(np.nanargmin(np.where(np.isfinite(changes), changes, np.nan)))]


def published(problem: PEtabProblem, noise: Any, path: pathlib.Path) -> float:
    """The log-likelihood of the simulations that are beside a problem; NaN where they are not those of its data."""
    files = sorted(path.parent.glob("simulat*.tsv"))
    if not files:
        return math.nan
    simulated = {}
    for row in csv.DictReader(files[0].open(), delimiter="\t"):
        condition = row.get("simulationConditionId") or row.get("simulationCondition")
        own = row.get("observableParameters") or ""
        simulated[row["observableId"], condition, float(row["time"]), own] = float(row["simulation"])
    keys = [
        (m.observable, m.condition, m.time, ";".join(map(str, m.parameters)))
        for m in problem._compiled.tables.measurements
    ]
    value = jnp.asarray([simulated.get(key, math.nan) for key in keys])
    return float(jnp.sum(log_probability(problem._compiled.noise, Predicted(value, noise), problem.data)))


def of_version_2(path: pathlib.Path) -> float | str:
    """The log-likelihood of a problem that petab upgraded, or the reason why there is none."""
    from petab.v2.petab1to2 import petab1to2

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scales of parameters are gone
        try:
            petab1to2(path, folder, validate=False)
        except Exception as error:
            return f"petab: {' '.join(str(error).split())[:60]}"
        problem = sciml.petab.read_petab(pathlib.Path(folder) / path.name, rtol=RTOL, atol=1e-3 * RTOL)
    return float(jax.jit(problem.log_likelihood)(problem.nominal))


def examined(path: pathlib.Path) -> Facts:
    """One problem."""
    problem, read = timed(lambda: sciml.petab.read_petab(path, rtol=RTOL, atol=1e-3 * RTOL))

    def value_and_noise(x: Any) -> tuple[Any, Any]:
        found = problem._predicted(x)
        return jnp.sum(log_probability(problem._compiled.noise, found, problem.data)), found.noise

    x, compiled = problem.nominal, jax.jit(value_and_noise)
    (value, noise), first = timed(compiled, x)
    _, again = timed(compiled, x)
    short = again < LONG
    gradient = jax.jit(jax.grad(problem.log_likelihood))
    off = first_gradient = later_gradient = math.nan
    if GRADIENTS:
        slope, first_gradient = timed(gradient, x)
        later_gradient = best(gradient, x) if short else timed(gradient, x)[1]
        if short:
            direction = np.random.default_rng(0).standard_normal(len(problem.names))
            along = difference(lambda x: compiled(x)[0], x, direction)
            off = abs(float(slope @ direction) - along) / float(np.linalg.norm(slope) * np.linalg.norm(direction))
    return Facts(
        len(problem.model.states),
        len(problem.names),
        len(problem.data),
        REFERENCES.get(path.parent.name) or published(problem, noise, path),
        float(value),
        of_version_2(path),
        read,
        first,
        best(compiled, x) if short else again,
        off,
        first_gradient,
        later_gradient,
    )


def folder() -> pathlib.Path | None:
    """The clone's folder, or None."""
    given = os.environ.get("PETAB_MODELS")
    return pathlib.Path(given) if given else None


def problem_of(folder: pathlib.Path) -> pathlib.Path:
    """The file of a problem: the one with the name of its folder, if there are several."""
    own = folder / f"{folder.name}.yaml"
    return own if own.is_file() else next(iter(sorted(folder.glob("*.yaml"))))


def groups() -> list[Group]:
    """One table of all problems; none where there is no folder of them."""
    models = folder()
    if models is None:
        return []
    found: dict[str, Facts] = {}

    def row(name: str) -> Candidate:
        def build() -> Callable[[], Any]:
            found[name] = examined(problem_of(models / name))
            return lambda: None

        return Candidate(name, in_float64(build))

    def table(group: Group, rows: list[Measured]) -> str:
        heads = ["problem", "states", "parameters", "data", "published", "log-likelihood", "off by", "version 2 off by"]
        heads += ["read", "first call", "again", "gradient off by", "first gradient", "gradient"]
        lines = [f"### {group.title}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for measured in rows:
            if measured.label not in found:
                lines.append(f"| {measured.label} | failed: {measured.failure} |")
                continue
            of = found[measured.label]
            cells = [measured.label, str(of.states), str(of.parameters), str(of.measurements)]
            cells += [number(of.published, ".5f"), f"{of.value:.5f}", number(of.value - of.published, "+.1e")]
            cells += [of.upgraded if isinstance(of.upgraded, str) else f"{of.upgraded - of.value:+.1e}"]
            cells += [duration(of.read), duration(of.first), duration(of.again), number(of.gradient_off, ".1e")]
            cells += [seconds(of.first_gradient), seconds(of.gradient)]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", "- times: processor seconds of all threads, as others may use the machine", ""]
        lines += ["- read: the first in a process also imports the readers of PEtab and SBML", ""]
        lines += ["- version 2: the problem that petab upgraded, compared with version 1", ""]
        return "\n".join(lines)

    names = os.environ.get("PETAB_NAMES", "").split() or sorted(p.name for p in models.iterdir() if p.is_dir())
    names = [name for name in names if name not in LARGE]
    logging.getLogger("petab").setLevel(logging.ERROR)  # it warns of parameters that problems do not use
    title = f"Problems of the PEtab collection at nominal values, float64, rtol {RTOL:g}"
    return [Group(title, [row(name) for name in names], repeats=0, table=table)]


def seconds(x: float) -> str:
    """A duration in a cell; none is a dash."""
    return "-" if math.isnan(x) else duration(x)


def number(x: float, form: str) -> str:
    """A number in a cell; none is a dash."""
    return "-" if math.isnan(x) else f"{x:{form}}"
