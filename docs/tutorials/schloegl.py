# %% [markdown]
# # Stochastic simulation of molecules: Schloegl's reactions
#
# Schloegl's reactions are autocatalytic and bistable: they have stable states at two counts. What happens from a count
# between them? This tutorial solves them in four ways: with the stochastic simulation algorithm (SSA, Gillespie's
# method), the chemical Langevin equation (an SDE for large counts), the deterministic rate equation, and the exact master
# equation.
#
# ![Paths of the SSA and of the Langevin equation, the rate equation, and the distribution at the end](figures/schloegl.png)
#
# The deterministic rate equation goes down from 247 and up from 250. Stochastic paths go either way with equal
# probability and fluctuate about the stable states.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/schloegl"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml.models import Schloegl

BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
START, END, MOST, MIDDLE = 250.0, 5.0, 1000, 248
TS = np.linspace(0.0, END, 251)
MODEL = Schloegl()

# %% [markdown]
# Gillespie's algorithm is exact and takes one step per reaction.


# %%
def one_by_one(key: jax.Array) -> jax.Array:
    return sciml.solve(
        MODEL, jnp.full(1, START), t0=0.0, t1=END, key=key, saveat=TS, max_steps=60_000
    ).ys[:, 0]


# %% [markdown]
# The chemical Langevin equation is the diffusion limit for large counts, with the same propensities.


# %%
def langevin(key: jax.Array) -> jax.Array:
    noisy = MODEL.langevin()
    return sciml.solve(noisy, jnp.full(1, START), t0=0.0, t1=END, dt=0.005, key=key, saveat=TS).ys[
        :, 0
    ]


# %% [markdown]
# The rate equation is the limit without noise.


# %%
def rate_equation(start: jax.Array) -> jax.Array:
    return sciml.solve(MODEL.rate_equations, start[None], t0=0.0, t1=END, saveat=TS).ys[:, 0]


# %% [markdown]
# The distribution at the end follows from the master equation, a stiff linear system for the probabilities of 0 to
# 1000 molecules.


# %%
def master_equation() -> jax.Array:
    n = jnp.arange(MOST + 1.0)
    rates = jax.vmap(lambda n: MODEL.propensities(n[None], None))(n)
    up, down = rates[:, 0] + rates[:, 2], rates[:, 1] + rates[:, 3]
    up = up.at[-1].set(0.0)  # nothing leaves upwards

    def flow(t, p, args):
        across = up[:-1] * p[:-1] - down[1:] * p[1:]  # from each count to the next
        return jnp.concatenate([-across, jnp.zeros(1)]) + jnp.concatenate([jnp.zeros(1), across])

    start = jnp.zeros(MOST + 1).at[int(START)].set(1.0)
    options = dict(solver=sciml.solvers.Rodas5P(), rtol=1e-5, atol=1e-8)
    return sciml.solve(flow, start, t0=0.0, t1=END, **options).ys[-1]


# %% [markdown]
# The distance of two distributions is half the sum of the differences of their shares: 0 if they are equal, 1 if they
# do not overlap.


# %%
def distance(counts: np.ndarray, law: np.ndarray, width: int = 50) -> float:
    edges = np.arange(0, MOST + 1, width) - 0.5
    shares = np.histogram(counts, edges)[0] / len(counts)
    exact = np.add.reduceat(law, np.arange(0, MOST + 1, width))[: len(shares)]
    return float(0.5 * np.abs(shares - exact).sum())


# %% Figure
def draw(paths: dict[str, np.ndarray], law: np.ndarray, path: pathlib.Path) -> None:
    figure, axes = plt.subplots(
        1, 4, figsize=(14, 4.0), layout="constrained", sharey=True, width_ratios=(1.2, 1.2, 1.2, 1)
    )
    for ax, (name, ys), colour in zip(axes, paths.items(), (BLUE, VERMILION, GREEN)):
        ax.plot(TS, ys[:30].T, color=colour, linewidth=0.5 if len(ys) > 30 else 1.5)
        ax.set(title=name, xlabel="time", xlim=(0, END))
    axes[0].set(ylabel="count", ylim=(0, 750))
    edges = np.arange(0, MOST + 1, 25) - 0.5
    for (name, ys), colour in zip(list(paths.items())[:2], (BLUE, VERMILION)):
        axes[3].hist(
            ys[:, -1],
            edges,
            density=True,
            orientation="horizontal",
            histtype="step",
            color=colour,
            label=name,
        )
    axes[3].plot(law, np.arange(MOST + 1), color="black", linewidth=1.2, label="master equation")
    axes[3].set(title="at the end", xlabel="probability", xlim=(0, None), xticks=[0, 0.005, 0.01])
    axes[3].xaxis.set_major_formatter("{x:g}")
    axes[3].legend(frameon=False, fontsize=8)
    for ax in axes:
        ax.axhline(MIDDLE, color="0.7", linewidth=0.8, zorder=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize("medium")
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
law = np.asarray(jax.jit(master_equation)(), np.float64)
low = law[:MIDDLE].sum()
print(
    f"master equation: probabilities add up to {law.sum():.5f}, {100 * low:.1f}% are below {MIDDLE}"
)

# %%
paths = {}
for name, solve, members in (
    ("one by one", one_by_one, 1000),
    ("Langevin equation", langevin, 2000),
):
    run = jax.jit(jax.vmap(solve)).lower(jax.random.split(jax.random.key(1), members)).compile()
    begin = time.perf_counter()
    ys = paths[name] = np.asarray(run(jax.random.split(jax.random.key(0), members)))
    each = 1e6 * (time.perf_counter() - begin) / members
    share, off = np.mean(ys[:, -1] < MIDDLE), np.sqrt(low * (1 - low) / members)
    print(f"{name}: {members} paths, {each:.0f} us each")
    print(
        f"  {100 * share:.1f}% +- {100 * off:.1f}% are below, {distance(ys[:, -1], law):.3f} from the exact law"
    )

# %%
starts = jnp.array([50.0, 200.0, 247.0, 250.0, 400.0, 700.0])
paths["rate equation"] = np.asarray(jax.jit(jax.vmap(rate_equation))(starts))
ends = paths["rate equation"][:, -1]
print("rate equation: from " + ", ".join(f"{a:.0f} to {b:.0f}" for a, b in zip(starts, ends)))
draw(paths, law, OUT / "schloegl.png")

# %% [markdown]
# ## Key points
#
# - **One model, three descriptions.** `models.Schloegl()` defines propensities: `solve(model, ..., key=key)` simulates
#   single reactions, `model.langevin()` is a `sciml.AbstractStochastic`, and `model.rate_equations` a vector field, all
#   with the same parameters.
# - **Cost.** The SSA takes one step per reaction, and reactions are more frequent in the upper state. The number of steps
#   of the Langevin equation does not depend on the counts. The tutorial prints the time per path of each, without
#   compilation.
# - **Verification.** The master equation is a stiff linear equation for the probabilities of a thousand counts with a
#   tridiagonal matrix, which `Rodas5P` detects. The tutorial compares the fraction of paths in the lower state, and the
#   histograms, with the exact distribution.
# - **Long times.** Paths rarely switch between the states within five units of time. The stationary distribution is
#   `verify.reference("one_step_law")`; the [gallery](../guides/model_gallery.md) shows it.
