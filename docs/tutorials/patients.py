# %% [markdown]
# # Population pharmacokinetics: twelve patients
#
# Twelve patients take tablets for two to four weeks, with doses by weight, and each misses some days. Seven blood samples
# per patient determine the clearance of the drug. This tutorial fits all patients and the typical patient together (a
# population PK model), with uncertainties.
#
# ![Samples of twelve patients with the fitted curves, and the estimates compared with the truth](figures/patients.png)
#
# The patients are simulated with published values and variability of miltefosine (see `sciml.models.TwoCompartment`), so
# you can compare the estimates with the truth. For closed-form compartment models, NONMEM tables and mixed-effects estimation
# see [pharmacology](../guides/pharmacology.md).

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/patients"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml.models import TwoCompartment

BLUE, VERMILION = "#0072B2", "#D55E00"
PATIENTS, DAYS, END = 12, 28, 48.0
NOISE = 0.15  # noise of the logarithms of samples
SPREAD = (
    0.232,
    0.183,
)  # variability of the logarithms of clearance and volume (Dorlo and others, 2008)

# %% [markdown]
# The data: tables of doses in days and mg, padded with infinite times, and samples in mg/l.


# %%
class Trial(NamedTuple):
    times: jax.Array
    amounts: jax.Array
    sampled: jax.Array
    levels: jax.Array


# %% [markdown]
# The unknowns of the fit: clearance in l/day and volume in l, of the typical patient and of each patient.


# %%
class Population(NamedTuple):
    clearance: jax.Array
    volume: jax.Array
    clearances: jax.Array
    volumes: jax.Array


# %% [markdown]
# Dosing tables as in practice: each patient has a dose by weight, stops after two to four weeks, and forgets some
# days.


# %%
def tables(key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    weights, weeks, forgets = jax.random.split(key, 3)
    dose = 50 * np.round(
        1.8 * np.asarray(jax.random.uniform(weights, (PATIENTS,), minval=55, maxval=115)) / 50
    )
    last = np.asarray(jax.random.randint(weeks, (PATIENTS,), 14, DAYS + 1))
    taken = np.asarray(jax.random.uniform(forgets, (PATIENTS, DAYS))) > 0.1
    taken[:, 0] = True
    rows = [np.flatnonzero(taken[i] & (np.arange(DAYS) < last[i])) for i in range(PATIENTS)]
    longest = max(map(len, rows))
    times = np.stack(
        [np.append(row.astype(float), np.full(longest - len(row), np.inf)) for row in rows]
    )
    return times, np.where(np.isfinite(times), dose[:, None], 0.0)


# %% [markdown]
# The concentration in the blood of one patient at the sampling times.


# %%
def predict(
    clearance: jax.Array, volume: jax.Array, times: jax.Array, amounts: jax.Array, at: jax.Array
) -> jax.Array:
    drug = TwoCompartment(clearance=clearance, volume=volume)
    options = dict(
        rtol=1e-5, atol=1e-5, adjoint=sciml.adjoints.Direct(), max_steps=2000, max_events=1
    )
    sol = sciml.solve(
        drug, jnp.zeros(4), t0=0.0, t1=END, events=drug.oral(times, amounts), saveat=at, **options
    )
    return drug.concentration(sol.ys)


# %% [markdown]
# All patients run as one `vmap`, each with a dosing table and sampling times.


# %%
def everyone(
    population: Population, times: jax.Array, amounts: jax.Array, at: jax.Array
) -> jax.Array:
    return jax.vmap(predict)(population.clearances, population.volumes, times, amounts, at)


# %% [markdown]
# The residuals: deviations of the samples, and of the patients from the typical one, in units of their expected size.


# %%
def residuals(population: Population, trial: Trial) -> tuple[jax.Array, ...]:
    levels = everyone(population, trial.times, trial.amounts, trial.sampled)
    return (
        (jnp.log(levels) - jnp.log(trial.levels)) / NOISE,
        (jnp.log(population.clearances) - jnp.log(population.clearance)) / SPREAD[0],
        (jnp.log(population.volumes) - jnp.log(population.volume)) / SPREAD[1],
    )


# %% [markdown]
# Simulate the data of twelve patients.


# %%
def run_trial(key: jax.Array) -> tuple[Population, Trial]:
    keys = jax.random.split(key, 5)
    times, amounts = map(jnp.asarray, tables(keys[0]))
    typical = TwoCompartment()
    clearances, volumes = (
        middle * jnp.exp(spread * jax.random.normal(k, (PATIENTS,)))
        for middle, spread, k in zip((typical.clearance, typical.volume), SPREAD, keys[1:3])
    )
    truth = Population(typical.clearance, typical.volume, clearances, volumes)
    visits = jnp.array([0.6, 3.3, 9.4, 15.3, 21.2, 30.0, 43.0])
    late = 0.3 * jax.random.uniform(keys[3], (PATIENTS, visits.size))
    sampled = jnp.broadcast_to(visits, late.shape) + late
    exact = jax.jit(everyone)(truth, times, amounts, sampled)
    return truth, Trial(
        times, amounts, sampled, exact * jnp.exp(NOISE * jax.random.normal(keys[4], exact.shape))
    )


# %% [markdown]
# Count the parameters inside their intervals, which should be 95 of 100.


# %%
def within(truth: Population, fit: sciml.training.Fit) -> np.ndarray:
    apart = jax.tree.map(
        lambda a, b, s: jnp.abs(a - b) < 1.96 * s, truth, fit.model, fit.standard_errors
    )
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(apart)])


# %% Figure
def draw(truth: Population, trial: Trial, fit: sciml.training.Fit, path: pathlib.Path) -> None:
    figure = plt.figure(figsize=(13, 6.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2.6, 1))
    axes = left.subplots(3, 4, sharex=True, sharey=True)
    at = jnp.broadcast_to(jnp.linspace(0.0, END, 193), (PATIENTS, 193))
    members = fit.sample(jax.random.key(9), 100)
    curves = jax.jit(jax.vmap(lambda p: everyone(p, trial.times, trial.amounts, at)))(members)
    low, middle, high = np.quantile(np.asarray(curves), [0.05, 0.5, 0.95], axis=0)
    for i, ax in enumerate(axes.flat):
        ax.fill_between(
            at[i], low[i], high[i], color=BLUE, alpha=0.3, linewidth=0, label="90% of the fit"
        )
        ax.plot(at[i], middle[i], color=BLUE, linewidth=0.8)
        ax.plot(
            trial.sampled[i], trial.levels[i], "o", color="black", markersize=3.5, label="samples"
        )
        doses = trial.times[i][jnp.isfinite(trial.times[i])]
        ax.plot(
            doses, jnp.full(doses.shape, -1.5), "|", color=VERMILION, markersize=5, label="tablets"
        )
        ax.text(
            0.97,
            0.95,
            f"{i + 1}: {trial.amounts[i, 0]:.0f} mg",
            transform=ax.transAxes,
            ha="right",
            va="top",
        )
        ax.set(xlim=(-1, END), ylim=(-3.5, 1.1 * float(trial.levels.max())))
    for ax in axes[-1]:
        ax.set_xlabel("time [days]")
    axes[1, 0].set_ylabel("in the blood [mg/l]")
    left.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False
    )
    for ax, name, unit in zip(right.subplots(2, 1), ("clearance", "volume"), ("l/day", "l")):
        many = f"{name}s"
        true, found, error = (
            np.asarray(getattr(x, many)) for x in (truth, fit.model, fit.standard_errors)
        )
        ax.errorbar(
            true,
            found,
            1.96 * error,
            fmt="o",
            color=BLUE,
            markersize=4,
            linewidth=1,
            label="patients",
        )
        typical = (float(getattr(x, name)) for x in (truth, fit.model, fit.standard_errors))
        one, other, off = typical
        ax.errorbar(one, other, 1.96 * off, fmt="s", color=VERMILION, markersize=6, label="typical")
        ends = np.array([0.9 * true.min(), 1.1 * true.max()])
        ax.plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
        ax.set(xlabel=f"true {name} [{unit}]", ylabel=f"estimate [{unit}]")
        ax.legend(frameon=False, fontsize=8, loc="upper left")
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
truth, trial = run_trial(jax.random.key(4))
doses = np.isfinite(np.asarray(trial.times)).sum(axis=1)
print(
    f"{PATIENTS} patients with {doses.min()} to {doses.max()} doses, and {trial.levels.size} samples"
)

# %%
start = Population(
    jnp.array(5.0), jnp.array(30.0), jnp.full(PATIENTS, 5.0), jnp.full(PATIENTS, 30.0)
)
fit = sciml.fit(start, residuals, trial, positive=True, sigma=1.0, rtol=1e-3, atol=1e-3)
print(f"{fit.message} {fit.n_steps} steps")
for name in ("clearance", "volume"):
    found, error = float(getattr(fit.model, name)), float(getattr(fit.standard_errors, name))
    print(f"typical {name}: {found:.2f} +- {error:.2f}, true {float(getattr(truth, name)):.2f}")
inside = within(truth, fit)
print(f"{inside.sum()} of {inside.size} numbers lie within their 95% intervals")
misfit = residuals(fit.model, trial)[0]
print(f"samples are {float(jnp.sqrt(jnp.mean(misfit**2))):.2f} of their noise off")
draw(truth, trial, fit, OUT / "patients.png")

# %% [markdown]
# ## Key points
#
# - **Dose tables.** `drug.oral(times, amounts)` is a `sciml.Schedule` whose times can be traced. Shorter tables are
#   padded with infinite times, and `jax.vmap` solves all patients in one batch.
# - **Population model.** There are three kinds of residuals. Samples deviate by measurement noise, and patients deviate
#   from the typical patient by the variability. The second and third kind regularise patients with uninformative samples.
#   With normal noise of known size the fit is the maximum a posteriori estimate.
# - **Forward mode.** 26 numbers are fitted to 84 samples: with `adjoint=sciml.adjoints.Direct()` the Jacobian is one pass
#   with one lane per parameter.
# - **Verification.** 95% of the true values should lie within their intervals; the tutorial counts them. The residuals are
#   slightly smaller than the noise, because many parameters were fitted.
# - **Bands from the fit.** `fit.sample` draws populations from the estimated uncertainty; the bands are their curves.
