"""The PEtab SciML test suite: `python -m tests.suites.petab_sciml FOLDER [CASES]`.

A case of a network is passed if its outputs agree to 1e-3 for all inputs and parameters, to 1e-2 where they are the
mean of many random ones. A case of a problem is passed
if its log-likelihood or posterior, its gradients and all simulations agree within the tolerances that it gives, and one
of initial values if all parameters of networks do. Without h5py, which reads the arrays, all cases are refused.
"""

import pathlib
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import yaml
from jaxtyping import Array

from sciml.petab import read_petab
from sciml.petab._network import read_arrays, read_network

from .outcomes import Outcome, counts


def run(folder: str | pathlib.Path, cases: Sequence[str] | None = None) -> list[Outcome]:
    """Runs the cases, from the suite's folder; `cases` are ends of paths such as `sciml_problem_import/001`."""
    found = sorted(pathlib.Path(folder).glob("**/test_cases/*/*/solutions.yaml"))
    if not found:
        raise FileNotFoundError(f"{folder} holds no case of the PEtab SciML test suite.")
    with jax.enable_x64(True):
        return [_outcome(path) for path in found if cases is None or str(path.parent).endswith(tuple(cases))]


def _outcome(path: pathlib.Path) -> Outcome:
    kind = path.parts[-3]
    case = f"{kind}/{path.parts[-2]}"
    try:
        differences = {"ml_model_import": _of_network, "initialization": _of_start}.get(kind, _of_problem)
        wrong = differences(path.parent, yaml.safe_load(path.read_text()))
    except (ImportError, ValueError) as error:
        return Outcome(case, "refused", str(error))
    except Exception as error:
        return Outcome(case, "wrong", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return Outcome(case, "wrong", "; ".join(wrong)) if wrong else Outcome(case, "passed")


def _of_network(folder: pathlib.Path, solution: dict) -> list[str]:
    names = ["net_input_arg0", "net_input_arg1"] if "net_input_arg0" in solution else ["net_input"]
    wrong, tolerance = [], 1e-2 if "dropout" in solution else 1e-3
    for number, output in enumerate(solution["net_output"]):
        arrays = solution["net_ps"][number] if "net_ps" in solution else None
        net = read_network(folder / solution["net_file"], arrays=None if arrays is None else folder / arrays)
        inputs = [_only(read_arrays(folder / solution[name][number])["inputs"]) for name in names]
        right, found = _only(read_arrays(folder / output)["outputs"]), net(*map(jnp.asarray, inputs))
        if found.shape != right.shape or not np.allclose(found, right, rtol=tolerance, atol=tolerance):
            wrong.append(f"output {number + 1} is {np.ravel(found)[:3]}, but {np.ravel(right)[:3]} is right")
    return wrong


def _only(group: dict) -> np.ndarray:
    (one,) = (array for arrays in group.values() for array in arrays.values())
    return one


def _of_start(folder: pathlib.Path, solution: dict) -> list[str]:
    problem = read_petab(folder / "petab" / "problem.yaml")
    networks = problem.networks(problem.nominal)
    return [
        f"the start of `{name}.{layer}.{array}` is not right"
        for name, file in solution["parameter_files"].items()
        for layer, arrays in read_arrays(folder / file)["parameters"][name].items()
        for array, right in arrays.items()
        if not np.allclose(networks[name].parameters[layer][array], right, atol=solution["tol"])
    ]


def _of_problem(folder: pathlib.Path, solution: dict) -> list[str]:
    # gradients of some thousands are compared to 0.1, also those through the kinks of `relu`
    problem = read_petab(folder / "petab" / "problem.yaml", rtol=1e-12, atol=1e-14, max_steps=100_000)
    x, kind = problem.nominal, "llh" if "llh" in solution else "log_posterior"
    function = problem.log_likelihood if kind == "llh" else problem.log_posterior

    @jax.jit
    def both(x: Array) -> tuple:
        return *jax.value_and_grad(function)(x), problem.predict(x)[0]

    value, gradient, predicted = both(x)
    simulated = [pandas.read_csv(folder / name, sep="\t")["simulation"] for name in solution["simulation_files"]]
    pairs = {
        kind: (value, solution[kind], solution[f"tol_{kind}"]),
        "simulations": (predicted, np.concatenate(simulated), solution["tol_simulations"]),
    }
    slopes = dict(zip(problem.names, np.asarray(gradient)))
    for name, file in solution["grad_files"].items():
        if name == "mech":
            rows = pandas.read_csv(folder / file, sep="\t")
            for parameter, right in zip(rows["parameterId"], rows["value"]):
                pairs[f"the derivative by {parameter}"] = (slopes[parameter], right, solution["tol_grad"])
            continue
        found = problem.networks(gradient)[name].parameters
        for layer, arrays in read_arrays(folder / file)["parameters"][name].items():
            for array, right in arrays.items():
                if np.size(right):  # it is empty for what is not estimated
                    pairs[f"the derivative by {name}.{layer}.{array}"] = (
                        found[layer][array],
                        right,
                        solution["tol_grad"],
                    )
    return [
        f"{name} is {np.asarray(found).tolist()}, but {np.asarray(right).tolist()} is right"
        for name, (found, right, tolerance) in pairs.items()
        if not np.all(np.abs(np.asarray(found) - np.asarray(right)) <= tolerance)
    ]


if __name__ == "__main__":
    outcomes = run(sys.argv[1], cases=sys.argv[2:] or None)
    for outcome in outcomes:
        print(outcome.outcome, outcome.case, outcome.why)
    print(counts(outcomes))
