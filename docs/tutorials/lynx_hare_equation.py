# %% [markdown]
# # From a neural network to an equation: UDE and SINDy
#
# [Lynx and hare](lynx_hare.md) fits a known equation. In this tutorial the equation is discovered from the data. The
# growth of hares and the starvation of lynx are known; a neural network represents the interaction, which gives a
# universal differential equation (UDE),
#
# $$
# \frac{\mathrm{d} \ln x}{\mathrm{d} t} = a + g_1(x, y), \qquad
# \frac{\mathrm{d} \ln y}{\mathrm{d} t} = -c + g_2(x, y).
# $$
#
# The network is trained on 42 noisy numbers, and sparse identification (SINDy, symbolic regression) extracts an equation
# from it.
#
# ![The data with the solution of the discovered equation; rates per head of the network, of the equation, and as published](figures/lynx_hare_equation.png)
#
# Left: the solution of the discovered equation. Right: rates per head, dots for the network at all times of the data,
# lines for the equation. Nothing but the data forces the network to be linear.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/lynx_hare_equation"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import sciml
from sciml import training
from sciml.models.neural import UniversalODE
from sciml.models.sparse import Polynomials

HARE, LYNX = "#0072B2", "#D55E00"  # blue and vermilion, which colour-blind readers tell apart
PUBLISHED = np.array(
    [0.545, 0.028, 0.803, 0.024]
)  # Carpenter (2018), posterior means of alpha, beta, gamma, delta
NOISE = 0.25  # of the logarithms, about what that fit found
OPTIONS = dict(dt=0.1)

# %% [markdown]
# The data: years since 1900, and logarithms of the pelts in thousands, hares first.

# %%
years = np.arange(21, dtype=np.float32)
hares = """30.0 47.2 70.2 77.4 36.3 20.6 18.1 21.4 22.0 25.4 27.1
           40.3 57.0 76.6 52.3 19.5 11.2 7.6 14.6 16.2 24.7"""
lynx = """4.0 6.1 9.8 35.2 59.4 41.7 19.0 13.0 8.3 9.1 7.4
          8.0 12.3 19.5 45.7 51.1 29.7 15.8 9.7 10.1 8.6"""
pelts = np.stack([np.array(text.split(), float) for text in (hares, lynx)], axis=1)
logs = np.log(pelts, dtype=np.float32)

# %% [markdown]
# The known part of the model: without each other, hares multiply and lynx starve. The state is logarithmic.


# %%
class Alone(sciml.AbstractModel):
    rates: jax.Array = eqx.field(default=(0.6, -0.6), converter=sciml.parameter)

    def __call__(self, t, u, args):
        return self.rates.astype(u.dtype)


# %% [markdown]
# The growth rates per head, as a function of both numbers.


# %%
class OfNumbers(sciml.AbstractModel):
    term: Callable

    def __call__(self, t, u, args):
        return self.term(t, jnp.exp(u), args)


# %% [markdown]
# Train the universal differential equation: match slopes first, then multiple shooting over windows of 5 and 10
# years.


# %%
def train(years, logs):
    model = UniversalODE(Alone(), 2, width=8, depth=1, scale=50.0, gain=0.3, key=jax.random.key(0))
    model = model.with_term(
        OfNumbers(model.term)
    )  # the input of the network is numbers, not their logarithms
    problem = training.collocate(model, years, logs)
    found = training.train(
        *problem, optimiser=optax.adamw(2e-2, weight_decay=1e-2), steps=500, progress=False
    )
    print(
        f"collocation: misfit of slopes {found.history.loss[0]:.2f}, then {found.history.loss[-1]:.3f}"
    )
    problem = training.multiple_shooting(
        found.model, years, logs, length=5, penalty=30.0, scale=NOISE, **OPTIONS
    )
    for steps in (400, 400):
        optimiser = optax.adamw(optax.cosine_decay_schedule(1e-2, steps, 0.05), weight_decay=1e-2)
        found = training.train(*problem, optimiser=optimiser, steps=steps, progress=False)
        last = {name: values[-1] for name, values in found.history.metrics.items()}
        print(
            f"windows of {problem.data.ts.shape[1] - 1} years: misfit {last['misfit']:.2f}, gap {last['gap']:.4f}"
        )
        windows, problem = problem.data, problem.longer(found.model)
    return found.model, windows


# %% [markdown]
# Evaluate the trained model four times a year: states as logarithms, and their rates.


# %%
def along(shooting, windows):
    def window(u0, ts):
        at = jnp.linspace(ts[0], ts[-1], 4 * (len(ts) - 1) + 1)
        return sciml.solve(shooting.dynamics, u0, t0=ts[0], t1=ts[-1], saveat=at, **OPTIONS).ys

    us = jax.vmap(window)(shooting.starts, windows.ts).reshape(-1, 2)
    return us, jax.vmap(lambda u: shooting.dynamics(0.0, u, None))(us)


# %% [markdown]
# Fit the recovered equation to the record, with its initial state.


# %%
def refine(equation, years, logs):
    def predicted(model, at):
        field, u0 = model
        return sciml.solve(
            field,
            u0,
            t0=0.0,
            t1=20.0,
            saveat=at,
            adjoint=sciml.adjoints.Direct(),
            throw=False,
            **OPTIONS,
        ).ys

    def residuals(model, data):
        return (predicted(model, data[0]) - data[1]) / NOISE

    start = OfNumbers(equation), jnp.asarray(logs[0])
    found = sciml.fit(
        start, residuals, data=(jnp.asarray(years), jnp.asarray(logs)), progress=False
    )
    squares = float(jnp.sum(residuals(found.model, (years, logs)) ** 2))
    return found.model[0].term, predicted(found.model, jnp.linspace(0.0, 20.0, 201)), squares


# %% Figure
def draw(path, years, logs, us, rates, equation, curve):
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10.0, 4.0), layout="constrained", width_ratios=(3, 2)
    )
    for i, (name, colour) in enumerate((("hare", HARE), ("lynx", LYNX))):
        left.plot(1900 + years, np.exp(logs[:, i]), "o", color=colour, markersize=4)
        left.plot(1900 + np.linspace(0, 20, 201), np.exp(curve[:, i]), color=colour, label=name)
        other = 1 - i
        x = np.exp(us[:, other])
        right.plot(x, rates[:, i], ".", color=colour, markersize=4)
        ends = np.linspace(0.0, x.max(), 2)
        first, second = ((1, -1), (-1, 1))[i] * PUBLISHED.reshape(2, 2)[i]
        numbers = jnp.zeros((2, 2)).at[:, other].set(ends)
        lines = jax.vmap(lambda n: equation(0.0, n, None))(numbers)[:, i]
        right.plot(
            ends, lines, color=colour, label=f"{name} per head, over {('hare', 'lynx')[other]}"
        )
        right.plot(ends, first + second * ends, "--", color="black", linewidth=0.8)
    right.plot([], [], ".", color="0.5", label="the network")
    right.plot([], [], "--", color="black", linewidth=0.8, label="published")
    left.set(
        xlabel="year",
        ylabel="pelts [thousands]",
        xlim=(1899.5, 1920.5),
        ylim=(0, None),
        xticks=range(1900, 1921, 5),
    )
    right.set(xlabel="numbers of the other [thousands]", ylabel="rate [1/year]")
    left.legend(frameon=False)
    right.legend(frameon=False, fontsize=8)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
shooting, windows = train(years, logs)
us, rates = along(shooting, windows)

# %% [markdown]
# Find the equation: the candidate terms are all products of up to two numbers.

# %%
names, outputs = ("hare", "lynx"), ("d ln(hare)/dt", "d ln(lynx)/dt")
best = None
for threshold in (0.2, 0.6):
    found = training.sindy(
        Polynomials(2),
        np.exp(us),
        np.asarray(rates),
        threshold=threshold,
        names=names,
        outputs=outputs,
    )
    equation, curve, squares = refine(found.model, years, logs)
    parameters = len(found.model.places) + 2
    bic = squares + parameters * np.log(logs.size)
    print(
        f"terms of {threshold:.0%} of the rates and more explain {found.score.min():.0%} of what the network says;"
    )
    print(
        f"  fitted to the record: misfit {squares:.1f} with {parameters} parameters, BIC {bic:.1f}"
    )
    if best is None or bic < best[0]:
        best = bic, found, equation, curve
_, found, equation, curve = best
print("the network says:", *found.model.equations(), sep="\n  ")
print("the record says:", *equation.equations(), sep="\n  ")
apart = abs(np.abs(np.asarray(equation.coefficients)) / PUBLISHED - 1).max()
print(f"the rates differ from the published ones by {apart:.1%} at most")
draw(OUT / "lynx_hare_equation.png", years, logs, us, rates, equation, curve)

# %% [markdown]
# ## Key points
#
# - **Three steps.** `training.collocate` fits the vector field to the slopes of smoothed curves (gradient matching),
#   without a solve. Its weights initialise `training.multiple_shooting`, with windows of five years, then of ten.
# - **Replaceable terms.** The network needs numbers, but the state contains logarithms: `with_term` replaces the term by
#   another callable, here one that contains the network.
# - **The number of terms.** With a low threshold the equation reproduces the network, including noise. Both equations are
#   fitted to the data, and the Bayesian information criterion (BIC), the misfit plus a penalty for parameters, selects
#   the smaller one. For the larger one, `fit` warns that the data hardly determine it.
# - **The equation is a model.** It can be printed, and its coefficients are leaves, which `sciml.fit`
#   refines on the data. They are within a few percent of the values that Carpenter (2018) published.
#
# ## References
#
# B. Carpenter, Predator-Prey Population Dynamics: the Lotka-Volterra model in Stan, 2018; C. Rackauckas et al., Universal
# Differential Equations for Scientific Machine Learning, 2020.
