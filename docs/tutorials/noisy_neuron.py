# %% [markdown]
# # A noise-driven neuron: coherence resonance
#
# A resting nerve cell never fires; with noise it fires at random. This tutorial runs ensembles of the FitzHugh-Nagumo
# neuron with noise (an SDE),
#
# $$
# \mathrm{d}v = \left(v - \tfrac{v^3}{3} - w\right) \mathrm{d}t, \qquad
# \mathrm{d}w = \varepsilon (v + a) \, \mathrm{d}t + \sqrt{\varepsilon} D \, \mathrm{d}W,
# $$
#
# and shows that firing is most regular at intermediate noise, which is called coherence resonance.
#
# ![Bands of the voltage with three strengths of noise; irregularity and rate of spikes](figures/noisy_neuron.png)
#
# With weak noise a cell waits for a long, random time. With intermediate noise it fires as soon as it can, and its
# recovery always takes the same time. Strong noise also disturbs the recovery. On the left, cells that start together
# soon desynchronise: the bands cover the whole spike, and the median does not represent a single cell.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/noisy_neuron"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml.models import FitzHughNagumo

BLUE, VERMILION = "#0072B2", "#D55E00"
MEMBERS, LONGEST = 250, 10_000.0
STRENGTHS = np.geomspace(0.025, 0.4, 9)
SHOWN, SHOWN_UNTIL = (0, 4, 8), 1500.0
TS = np.linspace(0.0, SHOWN_UNTIL, 1501)

# %% [markdown]
# The model adds noise to the recovery variable of the FitzHugh-Nagumo equations.


# %%
class NoisyNeuron(sciml.AbstractStochastic):
    cell: FitzHughNagumo
    strength: jax.Array
    noise = "additive"

    def drift(self, t, y, args):
        return self.cell(t, y, args)

    def diffusion(self, t, y, args):
        size = self.strength * jnp.sqrt(self.cell.epsilon)
        return jnp.stack([jnp.zeros_like(size), size]).astype(y.dtype)


# %%
CELL = FitzHughNagumo(
    a=1.05, b=0.0, epsilon=0.01, current=0.0
)  # Pikovsky and Kurths (1997); without noise it is at rest
REST = jnp.array([-1.05, -1.05 + 1.05**3 / 3])
FIRED = jnp.array([1.0, -2 / 3])  # on its way up in a spike

# %% [markdown]
# Simulate the voltages of an ensemble that starts at rest.


# %%
def paths(strength: jax.Array, keys: jax.Array) -> jax.Array:
    def solve(key):
        options = dict(t0=0.0, t1=SHOWN_UNTIL, dt=0.1, saveat=TS, max_steps=20_000)
        return sciml.solve(NoisyNeuron(CELL, strength), REST, key=key, **options).ys[:, 0]

    return jax.vmap(solve)(keys)


# %% [markdown]
# Compute the time from one spike to the next: an event ends the solve.


# %%
def interval(strength: jax.Array, key: jax.Array) -> jax.Array:
    spike = sciml.Event(lambda t, y, args: y[0] - 1.0, direction=1)
    sol = sciml.solve(
        NoisyNeuron(CELL, strength),
        FIRED,
        t0=0.0,
        t1=LONGEST,
        dt=0.1,
        key=key,
        events=spike,
        max_steps=110_000,
    )
    return jnp.where(sol.status == sciml.Status.event, sol.t_reached, jnp.nan)


# %% [markdown]
# The coefficient of variation of the intervals: 0 for a clock, 1 for a Geiger counter.


# %%
def irregularity(intervals: np.ndarray) -> np.ndarray:
    return np.nanstd(intervals, axis=-1) / np.nanmean(intervals, axis=-1)


# %% Figure
def draw(voltages: np.ndarray, intervals: np.ndarray, path: pathlib.Path) -> None:
    figure = plt.figure(figsize=(12, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2.2, 1))
    axes = left.subplots(len(SHOWN), 1, sharex=True, sharey=True)
    for ax, i, ys in zip(axes, SHOWN, voltages):
        levels = np.quantile(ys, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        ax.fill_between(
            TS, levels[0], levels[4], color=BLUE, alpha=0.15, linewidth=0, label="90% of all"
        )
        ax.fill_between(TS, levels[1], levels[3], color=BLUE, alpha=0.35, linewidth=0, label="50%")
        ax.plot(TS, levels[2], color=BLUE, linewidth=1.2, label="median")
        ax.plot(TS, ys[0], color="0.25", linewidth=0.7, label="one cell")
        ax.set_title(f"noise {STRENGTHS[i]:.3f}", loc="left", fontsize="medium")
        ax.set(xlim=(0, SHOWN_UNTIL), ylim=(-2.3, 2.3), ylabel="voltage")
    axes[-1].set_xlabel("time")
    left.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False
    )
    above, below = right.subplots(2, 1, sharex=True)
    above.plot(STRENGTHS, irregularity(intervals), "o-", color=VERMILION)
    best = int(np.argmin(irregularity(intervals)))
    above.axvline(STRENGTHS[best], color="0.7", linewidth=0.8, zorder=0)
    above.set(ylabel="irregularity of intervals", ylim=(0, None))
    below.plot(STRENGTHS, np.nanmean(intervals, axis=1), "o-", color=BLUE)
    below.set(xscale="log", xlabel="noise", ylabel="mean interval", ylim=(0, None))
    below.xaxis.set_major_formatter("{x:g}")
    below.set_xticks([0.03, 0.1, 0.3])
    below.xaxis.set_minor_formatter("")
    for ax in (*axes, above, below):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
keys = jax.random.split(jax.random.key(0), MEMBERS)
shown = jnp.asarray(STRENGTHS[list(SHOWN)])
voltages = np.asarray(jax.jit(jax.vmap(paths, (0, None)))(shown, keys[:200]))
for strength, ys in zip(shown, voltages):
    fired = np.mean(np.any(ys[:, TS <= 100] > 1, axis=1))
    print(f"noise {strength:.3f}: {100 * fired:.0f}% of the cells have fired by time 100")

# %%
every = jax.jit(jax.vmap(jax.vmap(interval, (None, 0)), (0, None)))
intervals = np.asarray(every(jnp.asarray(STRENGTHS), keys))
found = irregularity(intervals)
best = int(np.argmin(found))
print(f"{np.isfinite(intervals).sum()} of {intervals.size} intervals ended")
for strength, mean, value in zip(STRENGTHS, np.nanmean(intervals, axis=1), found):
    print(f"  noise {strength:.3f}: a spike every {mean:.0f}, irregularity {value:.3f}")
print(
    f"spikes are most regular with noise of {STRENGTHS[best]:.3f}: {found[best]:.2f}, at the ends "
    f"{found[0]:.2f} and {found[-1]:.2f}"
)
draw(voltages, intervals, OUT / "noisy_neuron.png")

# %% [markdown]
# ## Key points
#
# - **Composition of models.** `NoisyNeuron` contains `models.FitzHughNagumo` and adds additive noise, so `solve` selects
#   `SRA1`.
# - **First passages are events.** An event without an update ends the solve when the path first crosses a level, and
#   `sol.t_reached` is that time. `jax.vmap` over keys and noise strengths runs all paths, without storing them.
# - **Step size.** A path can cross the level and return between two steps. In this model a crossing takes many steps.
#
# ## References
#
# A. S. Pikovsky and J. Kurths, Coherence resonance in a noise-driven excitable system, Physical Review Letters 78:775, 1997.
