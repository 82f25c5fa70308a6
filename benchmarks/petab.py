"""Problems of the PEtab benchmark collection: likelihoods compared with published ones, first calls and gradients.

`python -m benchmarks petab` where the environment variable `PETAB_MODELS` names a clone's folder `Benchmark-Models`, of
https://github.com/Benchmarking-Initiative/Benchmark-Models-PEtab; `PETAB_NAMES` picks some.
"""

import os
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, Measured, duration, in_float64

# As tight as gradients need that vanish at an optimum: differences of one see how steps change from call to call.
RTOL = 1e-9
# Log-likelihoods at nominal values, as AMICI's tests have them (tests/benchmark_models/benchmark_models.yaml); of
# Bertozzi, Crauste and Rahman, those of the simulations that are beside the problems. Of Crauste SciPy's DOP853 and
# Radau agree with that, at tolerances of 1e-11 and 1e-13, and AMICI's is off by 1.2e-3.
REFERENCES = {
    "Bertozzi_PNAS2020": -158.864267,
    "Boehm_JProteomeRes2014": -138.221997,
    "Borghans_BiophysChem1997": 83.323719,
    "Brannmark_JBC2010": -141.889114,
    "Bruno_JExpBot2016": 46.688177,
    "Crauste_CellSystems2017": -190.963978,
    "Elowitz_Nature2000": 63.202800,
    "Fiedler_BMCSystBiol2016": 58.583902,
    "Fujita_SciSignal2010": 53.083777,
    "Rahman_MBS2016": -21.153490,
    "Schwen_PONE2014": -943.999299,
    "Sneyd_PNAS2002": 319.791778,
    "Weber_BMC2015": -296.201792,
    "Zheng_PNAS2012": 278.333533,
}
# Steps of differences, each an eighth of the one before. Some published optima lie next to parameters with which a
# simulation has no end, Crauste's by one part in a million, so that no step suits all problems.
STEPS = 1e-3 * 0.125 ** np.arange(9)


class Facts(NamedTuple):
    """What is known of a problem; times are in seconds, first calls with all that is traced and compiled."""

    states: int
    parameters: int
    value: float
    read: float
    first: float
    again: float
    gradient_off: float
    first_gradient: float
    gradient: float


def timed(function: Any, *args: Any) -> tuple[Any, float]:
    """What a function returns, and how long it takes."""
    start = time.perf_counter()
    found = jax.block_until_ready(function(*args))
    return found, time.perf_counter() - start


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


def examined(path: pathlib.Path) -> Facts:
    """One problem."""
    problem, read = timed(lambda: sciml.petab.read_petab(path, rtol=RTOL, atol=1e-3 * RTOL))
    likelihood = jax.jit(problem.log_likelihood)
    value, first = timed(likelihood, problem.nominal)
    compiled = jax.jit(jax.grad(problem.log_likelihood))
    slope, first_gradient = timed(compiled, problem.nominal)
    direction = np.random.default_rng(0).standard_normal(len(problem.names))
    along = difference(likelihood, problem.nominal, direction)
    size = float(np.linalg.norm(slope) * np.linalg.norm(direction))
    return Facts(
        len(problem.model.states),
        len(problem.names),
        float(value),
        read,
        first,
        best(likelihood, problem.nominal),
        abs(float(slope @ direction) - along) / size,
        first_gradient,
        best(compiled, problem.nominal),
    )


def folder() -> pathlib.Path | None:
    """The clone's folder, or None."""
    given = os.environ.get("PETAB_MODELS")
    return pathlib.Path(given) if given else None


def groups() -> list[Group]:
    """One table of all problems; none where there is no folder of them."""
    models = folder()
    if models is None:
        return []
    found: dict[str, Facts] = {}

    def row(name: str) -> Candidate:
        def build() -> Callable[[], Any]:
            (path,) = (models / name).glob("*.yaml")
            found[name] = examined(path)
            return lambda: None

        return Candidate(name, in_float64(build))

    def table(group: Group, rows: list[Measured]) -> str:
        heads = ["problem", "states", "parameters", "log-likelihood", "off by", "read", "first call", "again"]
        heads += ["gradient off by", "first gradient", "gradient"]
        lines = [f"### {group.title}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for measured in rows:
            if measured.label not in found:
                lines.append(f"| {measured.label} | failed: {measured.failure} |")
                continue
            of = found[measured.label]
            cells = [measured.label, str(of.states), str(of.parameters), f"{of.value:.5f}"]
            cells += [f"{of.value - REFERENCES[measured.label]:+.1e}"]
            cells += [duration(of.read), duration(of.first), duration(of.again), f"{of.gradient_off:.1e}"]
            lines.append(f"| {' | '.join([*cells, duration(of.first_gradient), duration(of.gradient)])} |")
        lines += ["", "- read: the first in a process also imports the readers of PEtab and SBML", ""]
        return "\n".join(lines)

    names = os.environ.get("PETAB_NAMES", "").split() or list(REFERENCES)
    title = f"Problems of the PEtab collection at nominal values, float64, rtol {RTOL:g}"
    return [Group(title, [row(name) for name in names], repeats=0, table=table)]
