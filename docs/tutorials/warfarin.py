# %% [markdown]
# # Warfarin: from a dosing table to a visual predictive check
#
# Thirty-two subjects took one dose of warfarin. Its concentration was measured (pharmacokinetics, PK), and the activity
# of the prothrombin complex, whose production it inhibits (pharmacodynamics, PD). This tutorial reads the NONMEM table,
# compares the likelihood of a mixed-effects model with NONMEM's, estimates it by FOCEI, and checks the result.
# The table is in a clone of the repository: `pip install -e '.[plot]'`.
#
# ![Visual predictive checks of concentration and activity, conditional weighted residuals, and measured against predicted concentrations](figures/warfarin.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/warfarin"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
import sciml.plot
from sciml import inference, pharmacology
from sciml.training import Positive

jax.config.update("jax_enable_x64", True)
CLONE = pathlib.Path(sciml.__file__).parents[2]
TABLE = CLONE / "docs/tutorials/data/warfarin/warfarin.csv"

# %% [markdown]
# ## The table
#
# `read_nonmem` makes arrays with one row for each subject. CMT tells concentrations (2) and activities (3) apart.

# %%
subjects = pharmacology.read_nonmem(TABLE)
count = int(jnp.sum(~jnp.isnan(subjects.dv)))
print(subjects)

# %% [markdown]
# ## The model
#
# The dose passes through two compartments with rate $k_a$ into the blood, where the concentration is
# $C = \frac{D}{V} \frac{k_a^2}{(k_a - k)^2} (e^{-k t} - e^{-k_a t} (1 + (k_a - k) t))$ with $k = CL / V$. The activity $R$
# is an indirect response of kind 1, $\dot R = k_{out} (R_0 (1 - E(C)) - R)$ with $E = E_{max} C / (EC_{50} + C)$.
#
# `IndirectResponse` solves such equations for any doses. This one is linear in $R$, so its solution after a single dose
# is an integral over the past, for which Gaussian quadrature is faster:
# $R = R_0 (1 - k_{out} \int_0^t E(C(s))\, e^{-k_{out} (t - s)}\, ds)$. Nodes $s = t x^2$ are dense where $C$ rises.

# %%
NODES, WEIGHTS = map(jnp.asarray, np.polynomial.legendre.leggauss(24))
NODES, WEIGHTS = 0.5 * (NODES + 1), 0.5 * WEIGHTS


def concentration(p, dose, t):
    k, a = p["cl"] / p["v"], p["ka"]
    shape = jnp.exp(-k * t) - jnp.exp(-a * t) * (1 + (a - k) * t)
    return dose / p["v"] * (a / (a - k)) ** 2 * shape


def activity(p, dose, t):
    effect = pharmacology.Emax(emax=p["emax"], ec50=p["ec50"])

    def at(t):
        inhibited = effect(concentration(p, dose, t * NODES**2))
        forgotten = jnp.exp(-p["kout"] * t * (1 - NODES**2))
        return p["e0"] * (1 - p["kout"] * t * jnp.sum(2 * NODES * WEIGHTS * inhibited * forgotten))

    return jax.vmap(at)(t)


# %% [markdown]
# Five constants vary between subjects. The error of concentrations is combined, and the error of activities additive.

# %%
VARYING = ("cl", "v", "ec50", "kout", "e0")


def observe(model, effects, subject):
    p = {name: jnp.exp(value) for name, value in model["typical"].items()}
    p |= {name: p[name] * jnp.exp(effect) for name, effect in zip(VARYING, effects)}
    dose = subject.doses.amounts[0]
    level, response = concentration(p, dose, subject.times), activity(p, dose, subject.times)
    error = jnp.hypot(model["add"], model["prop"] * level)
    kinetic = subject.cmt == 2
    return inference.Normal(
        jnp.where(kinetic, level, response), jnp.where(kinetic, error, model["pca"])
    )


# %% [markdown]
# ## The likelihood at NONMEM's estimates
#
# The package babelmixr2, by which nlmixr2 calls NONMEM, contains the output of NONMEM 7.4.3 for this model (FOCE with
# INTER): an objective of 1418.923, and these estimates. The rate of absorption kept its starting value, 1/h.

# %%
PUBLISHED = 1418.9229
logit = 9.97533
published = {
    "typical": {
        "ka": 0.0,
        "cl": -1.99439,
        "v": 2.04923,
        "emax": -np.log1p(np.exp(-logit)),
        "ec50": 0.130631,
        "kout": -2.96220,
        "e0": 4.57136,
    },
    "omega": np.sqrt([0.0732551, 0.0542082, 0.173761, 0.00741445, 0.00269443]),
    "prop": 0.161402,
    "add": 0.571414,
    "pca": 3.58903,
}
published = jax.tree.map(jnp.asarray, published)

positive = inference.Improper(Positive())
free = ("ka", "cl", "v", "ec50", "kout", "e0")
priors = [
    (lambda m: [m["typical"][name] for name in free], inference.Improper()),
    (lambda m: [m["omega"], m["prop"], m["add"], m["pca"]], positive),
]
study = inference.hierarchical(
    published,
    observe,
    subjects.dv,
    priors,
    effects=lambda m: inference.Normal(jnp.zeros(len(VARYING)), m["omega"]),
    subjects=subjects,
    method="focei",
)


def objective(log_likelihood):  # NONMEM leaves out the constant
    return float(-2 * log_likelihood - count * np.log(2 * np.pi))


ours = objective(jax.jit(study.marginal.log_likelihood)(published))
print(f"objective at the published estimates: {ours:.4f}, published {PUBLISHED:.4f}")

# %% [markdown]
# ## Estimation
#
# All parameters are free except $E_{max}$, which is almost one. The absorption rate moves now, so that the objective falls.

# %%
found = study.marginal.maximum(rtol=1e-5)
print(f"objective {objective(found.log_joint):.3f} after {found.n_steps} steps")
print(found)

# %% [markdown]
# ## Diagnostics
#
# A visual predictive check compares quantiles of the data with those of simulated trials.

# %%
fitted = study.diagnostics(found.model)
keys = jax.random.split(jax.random.key(1), 300)
(simulated,) = jax.jit(jax.vmap(lambda key: study.marginal.predict(found.position, key)))(keys)
kinetic = subjects.cmt == 2
inside = []
for name, own in (("concentration", kinetic), ("activity", ~kinetic)):
    low, high = jnp.quantile(simulated, jnp.array([0.05, 0.95]), axis=0)
    rows = own & ~jnp.isnan(subjects.dv)
    inside.append(jnp.mean((low < subjects.dv) & (subjects.dv < high), where=rows))
    print(f"{name}: {float(inside[-1]):.0%} of the data are within 90% of the simulations")


# %% Figure
def draw(path: pathlib.Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.4), layout="constrained")
    edges = (-1, 2.5, 7, 16, 30, 42, 60, 84, 108, 132, 150)
    labels = ("concentration [mg/l]", "activity [%]")
    for ax, own, label in zip(axes[0], (kinetic, ~kinetic), labels):
        dv = jnp.where(own, subjects.dv, jnp.nan)
        names = ("time [h]", label)
        sciml.plot.predictive_check(subjects.times, dv, simulated, bins=edges, ax=ax, labels=names)
    sciml.plot.weighted_residuals(
        subjects.times, fitted.cwres, ax=axes[1, 0], labels=("time [h]", "CWRES")
    )
    dv = jnp.where(kinetic, subjects.dv, jnp.nan)
    names = ("predicted concentration [mg/l]", "measured concentration [mg/l]")
    sciml.plot.goodness_of_fit(dv, fitted.pred, ipred=fitted.ipred, ax=axes[1, 1], labels=names)
    figure.savefig(path, dpi=120)


draw(OUT / "warfarin.png")

# %% [markdown]
# ## Key points
#
# - **Same objective as NONMEM.** At the published estimates the objectives of both programs differ by less than 0.001.
#   nlmixr2 defines its objective likewise.
# - **Any function is a model.** `observe` returns the distribution of one subject's measurements. Formulas, quadratures
#   and solves by `solve_doses` may be combined, and derivatives are exact.
# - **Two endpoints** are one vector of measurements with their own predictions and errors, selected by CMT.
# - **Diagnostics.** Quantiles of the data follow the simulated ones after the first day. Before, the variation of the
#   data is larger, and so are the residuals: absorption also varies between subjects. Effects on `ka` would describe it.
# - **$EC_{50}$ is a logarithm here**, as all typical values: its standard error of 0.08 is 8%.
