# %% [markdown]
# # A map of patterns: sweep of the Gray-Scott model
#
# Two substances are fed, react, decay and diffuse (a reaction-diffusion system),
#
# $$
# \partial_t u = D_u \nabla^2 u - u v^2 + F (1 - u), \qquad \partial_t v = D_v \nabla^2 v + u v^2 - (F + k) v,
# $$
#
# and form spots, worms, mazes or nothing, depending on the feed rate $F$ and the kill rate $k$. This tutorial maps these
# patterns by a parameter sweep over 144 pairs, each a separate field.
#
# One pair, over time:
#
# ![Spots that grow, divide and fill the box](figures/gray_scott_map_spots.png)
#
# All pairs:
#
# ![Every pattern at its place in the plane of the rates, and how much it varies](figures/gray_scott_map.png)
#
# Every small square on the left is a separate box with the same initial state. Left of the dashed line, $F = 4 (F +
# k)^2$, there are further uniform steady states besides the trivial one. Most patterns occur close to it, on both sides.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/gray_scott_map"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import time

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml import models, parallel, spatial
from sciml.spatial import Grid, Periodic

GRID = Grid((64, 64), 0.0, 1.0)
END, STEP = 4000.0, 2.0
EULER = diffrax.Euler()
FEEDS = np.linspace(0.010, 0.065, 12, dtype=np.float32)
KILLS = np.linspace(0.045, 0.067, 12, dtype=np.float32)

# %% [markdown]
# The initial state contains only food, except for a few spots.


# %%
def start() -> jax.Array:
    spots = spatial.random_spots(GRID, 12, radius=0.04, key=jax.random.key(1))
    return jnp.stack([1.0 - 0.5 * spots, 0.25 * spots]).astype(jnp.float32)


# %% [markdown]
# One member returns the fields at the end for one feed rate and one kill rate.


# %%
def pattern(rates: dict[str, jax.Array], y0: jax.Array) -> sciml.Solution:
    model = models.GrayScott(GRID, Periodic(), feed=rates["feed"], kill=rates["kill"])
    # the rates are traced, so an unstable step would set a status instead of raising an error
    return sciml.solve(model, y0, t0=0.0, t1=END, dt=STEP, solver=EULER, throw=False)


# %% Figure
def one_pattern(out: pathlib.Path) -> None:
    model = models.GrayScott(GRID, Periodic(), feed=0.035, kill=0.062)
    times = jnp.array([0.0, 500.0, 1500.0, END])
    sol = sciml.solve(
        model, start(), t0=0.0, t1=END, saveat=times, solver=EULER
    )  # no `dt`: a stable step
    limit = sciml.solvers.stability(EULER).longest_step(model.spectrum(0.0, start(), None))
    print(
        f"the longest stable step is {float(limit):.3g}; {int(sol.stats.accepted)} steps of {END:.0f} time units"
    )
    try:
        sciml.solve(model, start(), t0=0.0, t1=END, dt=10.0, solver=EULER)
    except ValueError as error:
        print(f"and a longer one is refused: {error}")

    figure, axes = plt.subplots(1, 4, figsize=(12, 3.1), layout="constrained", sharey=True)
    for ax, t, (_, v) in zip(axes, np.asarray(sol.ts), np.asarray(sol.ys), strict=True):
        image = ax.imshow(
            v.T, origin="lower", extent=(0, 1, 0, 1), cmap="magma", vmin=0.0, vmax=0.4
        )
        ax.set_title(f"t = {t:.0f}", loc="left", fontsize="medium")
        ax.set_xlabel("x")
        ax.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
    axes[0].set_ylabel("y")
    figure.colorbar(image, ax=axes, label="v", shrink=0.75)
    figure.savefig(out / "gray_scott_map_spots.png", dpi=120)


# %% [markdown]
# The sweep runs all pairs of rates, with a progress bar.


# %%
def sweep_rates() -> sciml.parallel.SweepResult:
    begun = time.perf_counter()
    grid = parallel.parameter_grid(feed=FEEDS, kill=KILLS)
    result = parallel.sweep(pattern, grid, start(), output=lambda sol: sol.ys[-1, 1], block=12)
    print(f"{result.summary()}\nin {time.perf_counter() - begun:.1f} s")
    return result


# %% [markdown]
# Measure the share of the box that contains the second substance,


# %%
def alive(fields: np.ndarray) -> np.ndarray:
    return np.mean(fields > 0.1, axis=(-2, -1))


# %% [markdown]
# and the standard deviation over the box, which is zero for a uniform state.


# %%
def varied(fields: np.ndarray) -> np.ndarray:
    return np.std(fields, axis=(-2, -1))


# %% Figure
def draw(fields: np.ndarray, path: pathlib.Path) -> None:
    feeds, kills, n, _ = fields.shape
    mosaic = fields.transpose(0, 3, 1, 2).reshape(feeds * n, kills * n)
    half = (FEEDS[1] - FEEDS[0]) / 2, (KILLS[1] - KILLS[0]) / 2
    extent = (KILLS[0] - half[1], KILLS[-1] + half[1], FEEDS[0] - half[0], FEEDS[-1] + half[0])
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.6), layout="constrained", sharey=True)
    shown = dict(origin="lower", extent=extent, aspect="auto")
    image = left.imshow(mosaic, cmap="magma", vmin=0.0, vmax=0.4, **shown)
    figure.colorbar(image, ax=left, label="v at the end")
    image = right.imshow(varied(fields), cmap="viridis", vmin=0.0, **shown)
    figure.colorbar(image, ax=right, label="standard deviation of v over the box")
    f = np.linspace(float(extent[2]), float(extent[3]), 200)
    f = f[f > 0]
    right.plot(np.sqrt(f) / 2 - f, f, color="white", linestyle="--", label="F = 4 (F + k)²")
    right.set_xlim(extent[:2])
    right.legend(loc="upper left", frameon=False, labelcolor="white")
    for ax, title in ((left, "Patterns"), (right, "How much they vary")):
        ax.set_xlabel("kill k")
        ax.set_title(title, loc="left", fontsize="medium")
    left.set_ylabel("feed F")
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
one_pattern(OUT)
fields = sweep_rates().on_grid()
there = alive(fields) > 0
patterns = int(np.sum(varied(fields) > 0.02))
print(
    f"{int(np.sum(there))} of {there.size} are alive at the end, {patterns} of them with a pattern"
)
draw(fields, OUT / "gray_scott_map.png")

# %% [markdown]
# ## Key points
#
# - **No `dt`** in the first part: Euler's method uses a stable step, and a longer one raises an error that gives the
#   limit. See [time steps](../guides/pdes.md#time-steps-and-stability-cfl-condition).
# - **A member is a function** of its two rates. `parallel.parameter_grid` creates the members, `parallel.sweep` runs them
#   in blocks on all devices with a progress bar, and `SweepResult.on_grid` returns the fields with two axes for the
#   rates.
# - **`output`** selects one field of each member on the device, which reduces the transfer to the host.
