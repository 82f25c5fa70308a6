"""Fit an SBML model from many starts: phosphorylation, dimerisation and nuclear import of STAT5.

Run it with `python docs/tutorials/sbml_fit.py`: it takes about two minutes and writes a figure into the folder
`--out`. It needs `pip install 'sciml-jax[sbml]'`. The problem, with its data, is Boehm_JProteomeRes2014 of the PEtab
benchmark collection (M. E. Boehm and others, J. Proteome Res. 13:5685, 2014), whose licence is in `data/boehm`.
"""

import argparse
import pathlib
import time

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

PROBLEM = pathlib.Path(__file__).parent / "data" / "boehm" / "Boehm_JProteomeRes2014.yaml"
PUBLISHED = -138.22200  # the log-likelihood at the published parameters
COLOURS = {"pSTAT5A_rel": "#0072B2", "pSTAT5B_rel": "#D55E00", "rSTAT5A_rel": "#009E73"}


def draw(problem: sciml.petab.PEtabProblem, found, path: pathlib.Path) -> None:
    """The waterfall, the data with the model, and the parameters of the best starts."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    found.plot(ax=left, title="where the starts ended")
    value, noise = map(np.asarray, jax.jit(problem.predict)(jnp.asarray(found.x)))
    for name, colour in COLOURS.items():
        rows = np.array(problem.observables) == name
        order = np.argsort(problem.times[rows])
        at, mean, spread = (x[rows][order] for x in (problem.times, value, noise))
        middle.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        middle.plot(at, mean, color=colour, label=name)
        middle.plot(at, np.asarray(problem.data)[rows][order], "o", color=colour, markersize=3.5)
    middle.set(xlabel="time [min]", ylabel="share [%]", title="data, and the best fit", ylim=(0, 100))
    middle.legend(frameon=False, fontsize="small")
    best = found.xs[: found.reached(2.0)]
    for x in best:
        right.plot(x, np.arange(len(x)), "o", color="#0072B2", markersize=4, alpha=0.3)
    right.plot(np.asarray(problem.nominal), np.arange(len(problem.names)), "|", color="black", markersize=14)
    right.set_yticks(np.arange(len(problem.names)), problem.names, fontsize="x-small")
    right.set(xlabel="parameter, log10", title=f"the best {len(best)}; published: bars", xlim=(-5.2, 5.2))
    for ax in (middle, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    """Reads, compares, fits, draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/sbml_fit"))
    parser.add_argument("--starts", type=int, default=100)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_enable_x64", True)

    problem = sciml.petab.read_petab(PROBLEM, rtol=1e-6, atol=1e-8, max_steps=500)
    print(f"{len(problem.model.states)} states, {len(problem.names)} parameters, {problem.data.size} measurements")
    value = float(jax.jit(problem.log_likelihood)(problem.nominal))
    print(f"log-likelihood at the published parameters: {value:.4f}, published {PUBLISHED:.4f}")

    start = time.perf_counter()
    found = problem.fit(starts=given.starts, key=jax.random.key(0), max_steps=120)
    print(f"{given.starts} starts in {time.perf_counter() - start:.0f} s, with compiling")
    at_rest = int(found.converged.sum())
    print(f"best log-likelihood {found.log_posterior:.4f}, reached by {found.reached()} of them, {at_rest} at rest")
    for name, number in found.parameters.items():
        print(f"  {name:<22} {number:.4g}")
    draw(problem, found, given.out / "sbml_fit.png")


if __name__ == "__main__":
    main()
