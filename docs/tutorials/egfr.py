# %% [markdown]
# # An EGFR model from download to profile
#
# The epidermal growth factor (EGF) binds its receptor (EGFR), which phosphorylates Akt, and Akt phosphorylates S6. A model
# of these steps was fitted to western blots of cells under six doses of EGF (K. A. Fujita and others, Sci. Signal.
# 3:ra56, 2010). This tutorial downloads it from the PEtab benchmark collection, compares its likelihood with the published
# one, fits it from several starts, and follows the likelihood along two parameters: one that the data determine, and one
# that they do not. It needs the extra `sbml`: `pip install 'sciml-jax[plot,sbml]'`.
#
# ![A waterfall plot, and the profiles of two parameters](figures/egfr.png)
#
# ![Measurements and predictions of pEGFR, pAkt and pS6 under six doses](figures/egfr_fit.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/egfr"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import urllib.request

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
import sciml.plot

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## Download
#
# The address is that of one commit, so that all numbers stay. `COLLECTION` may also be the address of a folder that you
# have: `pathlib.Path("Benchmark-Models").resolve().as_uri()`.

# %%
COMMIT = "4d2085084b289f6215a95475b1ee639fd7d42283"
GITHUB = "https://raw.githubusercontent.com/Benchmarking-Initiative/Benchmark-Models-PEtab"
COLLECTION = os.environ.get("COLLECTION", f"{GITHUB}/{COMMIT}/Benchmark-Models")
NAME = "Fujita_SciSignal2010"
FILES = (
    f"{NAME}.yaml",
    f"model_{NAME}.xml",
    f"parameters_{NAME}.tsv",
    f"observables_{NAME}.tsv",
    f"experimentalCondition_{NAME}.tsv",
    f"measurementData_step_{NAME}.tsv",
    f"visualizationSpecification_{NAME}.tsv",
)

folder = OUT / NAME
folder.mkdir(exist_ok=True)
for file in FILES:
    urllib.request.urlretrieve(f"{COLLECTION}/{NAME}/{file}", folder / file)

# %% [markdown]
# ## The likelihood at the published parameters
#
# `read_petab` returns a problem whose functions take the estimated parameters on their scales, here decimal logarithms.
# AMICI's tests have the published log-likelihood. A tolerance of 1e-4 is enough for fits, and changes it by 0.003.

# %%
PUBLISHED = 53.083777

problem = sciml.petab.read_petab(folder / f"{NAME}.yaml", rtol=1e-4, atol=1e-7, max_steps=500)
print(f"{len(problem.model.states)} states: {', '.join(problem.model.states)}")
print(f"{len(problem.names)} parameters, {problem.data.size} measurements")
value = float(problem.log_likelihood(problem.nominal))
print(f"log-likelihood at the published parameters: {value:.4f}, published {PUBLISHED:.4f}")

# %% [markdown]
# ## Fits from several starts
#
# The table of parameters allows sixteen decades for each. `fit(starts=8, key=...)` draws from all of this box, in which
# eight starts are too few to find the optimum. The starts here are within a factor of ten of the published parameters:
# they tell how the fit behaves near the known optimum, and not whether there is another one elsewhere. All of them run
# in one program, and each step uses the Gauss-Newton curvature within a trust region.

# %%
STARTS = int(os.environ.get("STARTS", "8"))
near = jax.random.uniform(jax.random.key(0), (STARTS, len(problem.names)), minval=-1, maxval=1)

found = problem.fit(starts=problem.nominal + near, max_steps=30)
print("log-likelihoods:", ", ".join(f"{x:.2f}" for x in found.log_posteriors))

# %% [markdown]
# ## Fits of the observables
#
# Each observable is a scaled sum of states, and the table gives the noise of each measurement.

# %%
names = np.array(problem.observables)
residuals = np.asarray(problem.residuals(jnp.asarray(found.x)))
for name in dict.fromkeys(problem.observables):
    own = residuals[names == name]
    print(f"{name}: {own.size} measurements, misfit {np.sqrt(np.mean(own**2)):.2f} of their noise")

# %% [markdown]
# ## Profiles
#
# A profile holds one parameter at a value and fits all others again. `PEtabProblem.profile` does so by the same steps as
# `fit`, each point from the one before.

# %%
PROFILED = ("reaction_9_k1", "init_EGFR")

profile = problem.profile(PROFILED, found=found, n=8, max_steps=20, tolerance=1e-2)
print(profile.summary())


# %% Figure
def draw(path: pathlib.Path) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    found.plot(ax=axes[0], title="where the starts ended")
    curves = zip(axes[1:], profile.names, profile.values, profile.deviances)
    for ax, name, at, height in curves:
        ax.plot(at, height, "o-", color="#0072B2", markersize=4)
        ax.axhline(profile.threshold, color="grey", linewidth=0.8, linestyle="--")
        ax.set(xlabel=f"log10 {name}", ylabel="deviance", ylim=(-0.2, 2 * profile.threshold))
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    panels = problem.plot(found.x, labels=("time [s]", "signal"))
    panels[0].figure.savefig(path.with_name("egfr_fit.png"), dpi=120)


draw(OUT / "egfr.png")

# %% [markdown]
# ## Key points
#
# - **A problem of the collection is a folder of tables.** `read_petab` reads the YAML file, with the model in SBML.
# - **Same likelihood as published**, to the tolerance of the simulations.
# - **Waterfall.** Six of eight starts end within 0.35 of the best, which is 0.05 above the published parameters. Their
#   steps still gain a little along directions that the data hardly determine. Two end far below, in other optima or on
#   the way.
# - **Misfit.** The model is two to three times the noise of the table off, at the published parameters as well. Intervals
#   that follow from this noise are too narrow.
# - **Identifiability.** The interval of `reaction_9_k1` is a factor of two wide. `init_EGFR` has no upper end below its
#   bound: beyond some value only its product with the scaling factor of pEGFR matters.
# - **Price of a profile.** Each point is a fit that starts near its end. `tolerance=1e-2` and `max_steps=20` are coarse:
#   a tolerance of 1e-3 changes the ends of the first interval by 0.01.
