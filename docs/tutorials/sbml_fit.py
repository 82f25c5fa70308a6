# %% [markdown]
# # Fit an SBML model from many starts
#
# STAT5A and STAT5B are phosphorylated, form dimers, and enter the nucleus. The rates of each dimer were estimated from
# fractions measured over four hours (M. E. Boehm and others, J. Proteome Res. 13:5685, 2014). The model and the data are
# a PEtab problem of the benchmark collection. This tutorial reads it and fits it from a hundred starts in one batch. It
# needs the extra `sbml`, and a clone of the repository, which has the problem's files: `pip install -e '.[plot,sbml]'`.
#
# ![A waterfall plot, the data with the best fit, and the parameters of the best starts](figures/sbml_fit.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/sbml_fit"))
OUT.mkdir(parents=True, exist_ok=True)
STARTS = int(os.environ.get("STARTS", "100"))

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
import sciml.plot

CLONE = pathlib.Path(sciml.__file__).parents[2]
PROBLEM = CLONE / "docs/tutorials/data/boehm/Boehm_JProteomeRes2014.yaml"
PUBLISHED = -138.22200  # the log-likelihood at the published parameters
COLOURS = {"pSTAT5A_rel": "#0072B2", "pSTAT5B_rel": "#D55E00", "rSTAT5A_rel": "#009E73"}


# %% Figure
def draw(problem, found, path: pathlib.Path) -> None:
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
    middle.set(
        xlabel="time [min]", ylabel="share [%]", title="data, and the best fit", ylim=(0, 100)
    )
    middle.legend(frameon=False, fontsize="small")
    sciml.plot.parameters(
        found.xs[: found.reached(10.0)],
        -found.log_posteriors[: found.reached(10.0)],
        names=problem.names,
        lower=problem.lower,
        upper=problem.upper,
        reference=problem.nominal,
        within=2.0,
        ax=right,
        label="parameter, log10",
        title="starts within 2 of the best: blue; published: bars",
    )
    middle.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
jax.config.update("jax_enable_x64", True)

# %%
problem = sciml.petab.read_petab(PROBLEM, rtol=1e-6, atol=1e-8, max_steps=500)
print(
    f"{len(problem.model.states)} states, {len(problem.names)} parameters, {problem.data.size} measurements"
)
value = float(jax.jit(problem.log_likelihood)(problem.nominal))
print(f"log-likelihood at the published parameters: {value:.4f}, published {PUBLISHED:.4f}")

# %%
start = time.perf_counter()
found = problem.fit(starts=STARTS, key=jax.random.key(0), max_steps=120)
print(f"{STARTS} starts in {time.perf_counter() - start:.0f} s, with compiling")
at_rest = int(found.converged.sum())
print(
    f"best log-likelihood {found.log_posterior:.4f}, reached by {found.reached()} of them, {at_rest} at rest"
)
for name, number in found.parameters.items():
    print(f"  {name:<22} {number:.4g}")
draw(problem, found, OUT / "sbml_fit.png")

# %% [markdown]
# ## Key points
#
# - **The problem is a function.** `problem.log_likelihood(x)` takes the estimated parameters on their scales. At the
#   published parameters it has the published value, to four decimals.
# - **Starts are lanes.** `problem.fit(starts=100, key=...)` draws a Latin hypercube between the bounds, ten decades for
#   each parameter, and compiles one program in which all starts run in parallel.
# - **Noise is estimated.** Its three scales are parameters, so this is not a least-squares problem. Each step uses the
#   Gauss-Newton (Fisher) curvature of the whole likelihood, within a trust region and the bounds.
# - **Waterfall plot.** The plateau on the left consists of the starts that found the best optimum, which is the published
#   one: five of a hundred come within 0.1 of it, three of them closely. The longer plateaus are other optima; the next is 7.6
#   lower. A single start would most likely end in one of them.
# - **Identifiability.** The right picture compares the best starts with the published parameters. Rates that the data do
#   not determine differ, for example the import of homodimers, which is at its bound. `problem.profile` gives intervals,
#   as in [an EGFR model](egfr.md).
