"""The PEtab test suite, versions 1 and 2: `python -m tests.suites.petab FOLDER [CASES]`.

A case is passed if its log-likelihood, the sum of its squared residuals and all simulations agree within the tolerances
that it gives, and the posterior where it has one. Models that are not SBML are refused.
"""

import pathlib
import sys
from collections.abc import Sequence

import jax
import numpy as np
import pandas
import yaml

import sciml
from sciml.petab._problem import PEtabProblem

from .outcomes import Outcome, counts


def run(folder: str | pathlib.Path, cases: Sequence[str] | None = None) -> list[Outcome]:
    """Runs the cases of versions 1 and 2, from the suite's folder; `cases` are ends of paths such as `sbml/0002`."""
    found = sorted(pathlib.Path(folder).glob("**/_*_solution.yaml"))
    if not found:
        raise FileNotFoundError(f"{folder} holds no case of the PEtab test suite.")
    with jax.enable_x64(True):
        return [_outcome(path) for path in found if cases is None or str(path.parent).endswith(tuple(cases))]


def _outcome(path: pathlib.Path) -> Outcome:
    case = "/".join(path.parts[-4:-1])
    try:
        problem = sciml.petab.read_petab(path.with_name(path.name.replace("_solution", "")))
    except ValueError as error:
        return Outcome(case, "refused", str(error))
    try:
        wrong = _differences(problem, yaml.safe_load(path.read_text()), path.parent)
    except Exception as error:
        return Outcome(case, "wrong", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return Outcome(case, "wrong", "; ".join(wrong)) if wrong else Outcome(case, "passed")


def _differences(problem: PEtabProblem, solution: dict, folder: pathlib.Path) -> list[str]:
    x = problem.nominal
    simulated = [pandas.read_csv(folder / name, sep="\t")["simulation"] for name in solution["simulation_files"]]
    pairs = {
        "llh": (problem.log_likelihood(x), solution["llh"]),
        "chi2": (np.sum(np.asarray(problem.residuals(x)) ** 2), solution["chi2"]),
        "simulations": (problem.predict(x)[0], np.concatenate(simulated)),
    }
    if "unnorm_log_posterior" in solution:
        pairs["unnorm_log_posterior"] = (problem.log_posterior(x), solution["unnorm_log_posterior"])
    return [
        f"{name} is {np.asarray(found).tolist()}, but {np.asarray(right).tolist()} is right"
        for name, (found, right) in pairs.items()
        if not np.all(np.abs(np.asarray(found) - np.asarray(right)) <= solution[f"tol_{name}"])
    ]


if __name__ == "__main__":
    outcomes = run(sys.argv[1], cases=sys.argv[2:] or None)
    for outcome in outcomes:
        print(outcome.outcome, outcome.case, outcome.why)
    print(counts(outcomes))
