# %% [markdown]
# # Lynx and hare: fit a model to data, from start to finish
#
# The Hudson's Bay Company recorded how many pelts of snowshoe hare and Canadian lynx it bought each year. This tutorial
# estimates the parameters of the Lotka-Volterra (predator-prey) equations from the record of 1900 to 1920,
#
# $$
# \dot x = \alpha x - \beta x y, \qquad \dot y = \delta x y - \gamma y,
# $$
#
# where $x$ are hares and $y$ are lynx. You will learn to
#
# - fit the parameters and the initial state of a model to noisy data ([parameter estimation](../guides/fitting.md));
# - check the result with a second optimiser and with published values;
# - draw an ensemble from the estimated uncertainty and solve its ten thousand members in one batch
#   ([ensembles](../guides/ensembles.md));
# - sweep two parameters over a grid of forty thousand points ([parameter sweeps](../guides/sweeps_and_scale.md)).
#
# In a fresh clone, `make demo` creates an environment and runs all of it in less than a minute.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/lynx_hare"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import sciml

jax.config.update("jax_enable_x64", True)  # the solves below use tolerances of 1e-8

# %% [markdown]
# ## The data
#
# Thousands of pelts per year, as tabulated by Carpenter (2018) from the records in C. G. Hewitt, *The Conservation of the
# Wild Life of Canada* (1921).

# %%
years = np.arange(1900, 1921)
hares = """30.0 47.2 70.2 77.4 36.3 20.6 18.1 21.4 22.0 25.4 27.1
           40.3 57.0 76.6 52.3 19.5 11.2 7.6 14.6 16.2 24.7"""
lynx = """4.0 6.1 9.8 35.2 59.4 41.7 19.0 13.0 8.3 9.1 7.4
          8.0 12.3 19.5 45.7 51.1 29.7 15.8 9.7 10.1 8.6"""
pelts = np.stack([np.array(text.split(), float) for text in (hares, lynx)], axis=1)
print(f"{pelts.size} observations, {years[0]} to {years[-1]}")

# %% [markdown]
# ## The model and its solution
#
# Six numbers are unknown: four rates, which `sciml.models.LotkaVolterra` contains, and both initial values. Any PyTree
# can be fitted, so put them into a named tuple. `predict` solves the model at times in years since 1900.


# %%
class Parameters(NamedTuple):
    rates: sciml.models.LotkaVolterra
    y0: jax.Array


def predict(parameters: Parameters, times: jax.Array, adjoint=None) -> sciml.Solution:
    options = dict(rtol=1e-8, atol=1e-8, adjoint=adjoint, throw=False)
    return sciml.solve(parameters.rates, parameters.y0, t0=0.0, t1=20.0, saveat=times, **options)


# %% [markdown]
# With `throw=False` a member of an ensemble that fails returns NaN and a status, and the others continue.
#
# ## The fit
#
# A fit needs residuals and a first guess. The noise is log-normal: the logarithms of prediction and record differ by
# normal random numbers of equal variance.


# %%
def residuals(parameters: Parameters, pelts: jax.Array) -> jax.Array:
    found = predict(parameters, years - 1900.0, adjoint=sciml.adjoints.Direct())
    return jnp.log(found.ys) - jnp.log(pelts)


# %% [markdown]
# `adjoint=Direct()` allows forward mode, which is faster for six parameters and 42 residuals. The default adjoint also
# works, in reverse mode.
#
# The first guess comes from looking at the record. It shows about two cycles in twenty years. Small cycles have the
# period $2 \pi / \sqrt{\alpha \gamma}$, and the means over a cycle are $\gamma / \delta$ hares and $\alpha / \beta$ lynx.

# %%
rate = 2 * np.pi / 10
mean_hares, mean_lynx = pelts.mean(axis=0)
guess = Parameters(
    sciml.models.LotkaVolterra(
        alpha=rate, beta=rate / mean_lynx, gamma=rate, delta=rate / mean_hares
    ),
    jnp.asarray(pelts[0]),
)

# %% [markdown]
# `sciml.fit` adjusts all leaves of the guess. `positive=True` fits their logarithms, so no rate becomes negative. The
# default optimiser is Levenberg-Marquardt.

# %%
fit = sciml.fit(guess, residuals, pelts, positive=True)
print(fit.summary())

# %% [markdown]
# ## Two checks
#
# An optimiser can stop at the wrong place. Adam has nothing in common with Levenberg-Marquardt except the residuals, so
# agreement is a good sign. Carpenter fitted the same model in Stan and published the posterior means.

# %%
adam = sciml.fit(guess, residuals, pelts, positive=True, solver=optax.adam(0.05), covariance=False)
PUBLISHED = dict(alpha=0.545, beta=0.028, gamma=0.803, delta=0.024, u0=33.96, v0=5.93)
print(f"{'':8}{'published':>11}{'least squares':>16}{'Adam':>25}")
for (name, published), *values in zip(PUBLISHED.items(), fit.parameters, adam.parameters):
    columns = [f"{value:>16.5g} ({value / published - 1:+6.1%})" for value in map(float, values)]
    print(f"{name:8}{published:>11.5g}", *columns, sep="")

# %% [markdown]
# The rates agree with the published means within 5%. These have weak priors behind them, and the fit has none.
#
# ## The uncertainty, as an ensemble
#
# `fit.sample` draws parameters from the estimated uncertainty. `jax.vmap` of `predict` solves all of them in one batch,
# each with its own step sizes.

# %%
MEMBERS = 10_000
times = jnp.linspace(0.0, 20.0, 201)
members = fit.sample(jax.random.key(0), MEMBERS)
run = jax.jit(jax.vmap(lambda parameters: predict(parameters, times)))
for which in ("with compilation", "again"):
    begin = time.perf_counter()
    ensemble = jax.block_until_ready(run(members))
    print(f"{MEMBERS:,} members, {which}: {time.perf_counter() - begin:.2f} s")
print(f"{np.count_nonzero(ensemble.status)} failed")

# %% [markdown]
# The dark band below contains 90% of the curves. The light band contains 90% of the observations that the model expects:
# curves with log-normal noise.

# %% Figure
HARE, LYNX = "#0072B2", "#D55E00"  # blue and vermilion, which colour-blind readers tell apart
best = np.asarray(predict(fit.model, times).ys)
curves = np.asarray(ensemble.ys)
noise = np.random.default_rng(0).normal(0.0, float(fit.sigma), curves.shape)
bands = {"90% of observations": (curves * np.exp(noise), 0.15), "90% of curves": (curves, 0.4)}
figure, panels = plt.subplots(2, 1, figsize=(8, 6.4), sharex=True, layout="constrained")
for i, (ax, name, colour) in enumerate(zip(panels, ("hare", "lynx"), (HARE, LYNX))):
    for label, (values, alpha) in bands.items():
        low, high = np.nanquantile(values[..., i], [0.05, 0.95], axis=0)
        ax.fill_between(
            1900 + times, low, high, color=colour, alpha=alpha, linewidth=0, label=label
        )
    ax.plot(1900 + times, best[:, i], color=colour, linewidth=2, label="fitted curve")
    ax.plot(years, pelts[:, i], "o", color="black", markersize=5, label=f"{name} pelts")
    ax.set_ylabel(f"{name} (thousand pelts)")
    ax.set_ylim(bottom=0)
    ax.set_axisbelow(True)
    ax.grid(True, color="0.88", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.415, 1.0), frameon=False)  # between the peaks
panels[1].set(xlabel="year", xticks=range(1900, 1921, 2), xlim=(1899.7, 1920.3))
figure.savefig(OUT / "lynx_hare_fit.png", dpi=120)

# %% [markdown]
# ![The data, the fitted curve and its bands](figures/lynx_hare_fit.png)
#
# ## A sweep over two rates
#
# How well do the data determine $\beta$ and $\delta$? Compute the misfit on a grid of 200 x 200 values, with the other
# parameters fixed at the fit. `sciml.parallel.sweep` runs on all devices in blocks of fixed size, and returns a status for
# every member.


# %%
def misfit(point: dict[str, jax.Array], best: Parameters) -> jax.Array:
    alpha, gamma = best.rates.alpha, best.rates.gamma
    rates = sciml.models.LotkaVolterra(alpha, point["beta"], gamma, point["delta"])
    return 0.5 * jnp.sum(residuals(Parameters(rates, best.y0), jnp.asarray(pelts)) ** 2)


grid = sciml.parallel.parameter_grid(
    beta=float(fit.model.rates.beta) * np.linspace(0.6, 1.5, 200),
    delta=float(fit.model.rates.delta) * np.linspace(0.6, 1.5, 200),
)
sweep = sciml.parallel.sweep(misfit, grid, fit.model, progress=False)
print(sweep.summary())
lowest = sweep.member_params(int(np.nanargmin(sweep.values)))
print(f"lowest at beta = {lowest['beta']:.5g}, delta = {lowest['delta']:.5g}")

# %% Figure
fall = (np.asarray(sweep.on_grid()) - float(fit.loss)) / float(fit.sigma) ** 2
beta, delta = sweep.grid.axes["beta"], sweep.grid.axes["delta"]
figure, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
sciml.plot.surface(
    beta,
    delta,
    np.maximum(fall, 0.1),  # the colours are logarithmic, and the fall is zero at the estimate
    ax=ax,
    log=True,
    mark=(float(fit.model.rates.beta), float(fit.model.rates.delta)),
    labels=(
        "β, predation (1 / (thousand lynx × year))",
        "δ, growth by predation (1 / (thousand hares × year))",
        "fall of the log-likelihood below its maximum",
    ),
)
lines = ax.contour(beta, delta, fall.T, levels=(1, 3, 10, 30, 100), colors="white", linewidths=1)
ax.clabel(lines, fmt="%g")
figure.savefig(OUT / "lynx_hare_misfit.png", dpi=120)

# %% [markdown]
# ![The misfit over beta and delta](figures/lynx_hare_misfit.png)
#
# The misfit has one minimum, at the circle, which is the estimate. Its contours are narrower along $\delta$ than along
# $\beta$, so the data determine $\delta$ better.
#
# ## Key points
#
# - **Fit any PyTree.** `Parameters` contains a model and an initial state; `sciml.fit` adjusts its leaves.
# - **The noise is in the residuals.** Differences of logarithms stand for log-normal noise.
# - **The uncertainty is an ensemble.** `fit.sample` draws parameters, and `jax.vmap` of a solve runs them.
# - **Failures are data.** Ensembles and sweeps return a status for every member.
#
# The next tutorial, [from a network to an equation](lynx_hare_equation.md), finds the equations themselves in this record.
# [Bayesian inference for an epidemic](epidemic.md) samples a posterior instead of the estimated uncertainty.
