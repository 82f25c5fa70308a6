"""Problems of the PEtab benchmark collection: likelihoods beside published ones, first calls and gradients.

`python -m benchmarks.petab --from DIR [name ...]` with a clone's folder `Benchmark-Models`, of
https://github.com/Benchmarking-Initiative/Benchmark-Models-PEtab.
"""

import argparse
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml

# Log-likelihoods at nominal values, as AMICI's tests have them (tests/benchmark_models/benchmark_models.yaml); of
# Rahman and Bertozzi, those of the simulations that are beside the problems.
REFERENCES = {
    "Bertozzi_PNAS2020": -158.864267,
    "Boehm_JProteomeRes2014": -138.221997,
    "Borghans_BiophysChem1997": 83.323719,
    "Brannmark_JBC2010": -141.889114,
    "Bruno_JExpBot2016": 46.688177,
    "Crauste_CellSystems2017": -190.965219,
    "Elowitz_Nature2000": 63.202800,
    "Fiedler_BMCSystBiol2016": 58.583902,
    "Fujita_SciSignal2010": 53.083777,
    "Rahman_MBS2016": -21.153490,
    "Schwen_PONE2014": -943.999299,
    "Sneyd_PNAS2002": 319.791778,
    "Weber_BMC2015": -296.201792,
    "Zheng_PNAS2012": 278.333533,
}
# Steps of differences are so short that the log-likelihood changes by no more than this: some published optima lie
# next to parameters with which a simulation has no end.
STEP, MOST_CHANGE = 1e-4, 1e-2


def timed(function: Any, *args: Any) -> tuple[Any, float]:
    """What a function returns, and how long it takes."""
    start = time.perf_counter()
    found = jax.block_until_ready(function(*args))
    return found, time.perf_counter() - start


def row(path: pathlib.Path, gradient: bool, rtol: float) -> str:
    """One line of the table."""
    problem = sciml.petab.read_petab(path, rtol=rtol, atol=1e-3 * rtol)
    likelihood = jax.jit(problem.log_likelihood)
    value, first = timed(likelihood, problem.nominal)
    _, again = timed(likelihood, problem.nominal)
    reference = REFERENCES[path.parent.name]
    cells = [path.parent.name, str(len(problem.model.states)), str(len(problem.names)), f"{float(value):.5f}"]
    cells += [f"{float(value) - reference:+.1e}", f"{first:.1f} s", f"{1e3 * again:.2f} ms"]
    if gradient:
        compiled = jax.jit(jax.grad(problem.log_likelihood))
        slope, first = timed(compiled, problem.nominal)
        _, again = timed(compiled, problem.nominal)
        direction = np.random.default_rng(0).standard_normal(len(problem.names))
        along = float(slope @ direction)
        step = STEP / max(1.0, abs(along) * STEP / MOST_CHANGE)
        ends = [float(likelihood(problem.nominal + k * step * jnp.asarray(direction))) for k in (2, 1, -1, -2)]
        difference = (-ends[0] + 8 * ends[1] - 8 * ends[2] + ends[3]) / (12 * step)
        size = float(np.linalg.norm(slope) * np.linalg.norm(direction))
        cells += [f"{abs(along - difference) / size:.1e}", f"{first:.1f} s", f"{1e3 * again:.2f} ms"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.petab", description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folder", type=pathlib.Path, required=True, help="the folder Benchmark-Models")
    parser.add_argument("--rtol", type=float, default=1e-7, help="relative tolerance of simulations (1e-7)")
    parser.add_argument("--no-gradient", action="store_true", help="likelihoods alone")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(REFERENCES)} (all)")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    heads = ["problem", "states", "parameters", "log-likelihood", "off by", "first call", "again"]
    heads += [] if given.no_gradient else ["gradient off by", "first gradient", "gradient"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in given.names or REFERENCES:
        (path,) = (given.folder / name).glob("*.yaml")
        print(row(path, not given.no_gradient, given.rtol), flush=True)


if __name__ == "__main__":
    main()
