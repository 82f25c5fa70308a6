# %% [markdown]
# # Full-waveform inversion in three dimensions with limited memory
#
# A block of 24 x 24 x 16 cells contains two hidden bodies. Six charges are fired one after the other, and 100 receivers,
# on the surface and in boreholes, record the pressure. As in [two dimensions](waveform_inversion.md), the unknown is the
# speed of sound in every cell,
#
# $$
# \min_c \; J(c) = \sum_{\text{shots}} \sum_{\text{receivers}} \int \big(p(c) - p_\text{recorded}\big)^2\, dt.
# $$
#
# In three dimensions the states of all steps do not fit into memory. You will learn to
#
# - measure the memory and the time of a gradient with several adjoints, and select one
#   ([adjoints](../guides/adjoints.md));
# - recognise an adjoint that does not work for a model with losses;
# - integrate the mismatch with leapfrog, next to the sound;
# - reconstruct 9216 unknowns with L-BFGS.
#
# Lengths are in kilometres, times in seconds, speeds in km/s.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/waveform_inversion_3d"))
OUT.mkdir(parents=True, exist_ok=True)
STEPS = int(os.environ.get("STEPS", "12"))

# %%
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import sciml
from sciml.models import Acoustic, PointSources, Ricker, Sampled, Sound
from sciml.spatial import Grid, Points

MIB = 2**20

# %% [markdown]
# ## The experiment
#
# Six absorbing cells surround the block except at the surface, which reflects. The pulse has 4 Hz, that is waves of half a
# kilometre.

# %%
CELLS, LAYER, H = (24, 24, 16), 6, 0.05
SHAPE = (CELLS[0] + 2 * LAYER, CELLS[1] + 2 * LAYER, CELLS[2] + LAYER)
LOW = (-LAYER * H, -LAYER * H, -(CELLS[2] + LAYER) * H)
GRID = Grid(SHAPE, LOW, ((CELLS[0] + LAYER) * H,) * 2 + (0.0,))
PULSE, FASTEST = Ricker(4.0), 2.8
END, TIMES = 1.2, 160

# %% [markdown]
# The known part of the rock: the speed increases with depth. The unknown part: a hard body and a soft one.

# %%
x, y, z = ((np.arange(n) + 0.5) * H for n in CELLS)
x, y, z = x[:, None, None], y[None, :, None], (z - CELLS[2] * H)[None, None, :]
background = jnp.asarray(1.8 - 0.6 * z + 0 * x * y, float)
truth = np.asarray(background)
for middle, radii, more in (
    ((0.4, 0.45, -0.4), (0.2, 0.15, 0.12), 0.3),
    ((0.85, 0.75, -0.3), (0.14, 0.2, 0.1), -0.3),
):
    far = np.sqrt(sum(((a - m) / r) ** 2 for a, m, r in zip((x, y, z), middle, radii)))
    truth = truth + more / (1 + np.exp((far - 1) * min(radii) / (0.5 * H)))
truth = jnp.asarray(truth, float)

# %% [markdown]
# There are 8 x 8 receivers just below the surface, and 9 in each of four boreholes at the corners. Four charges are in
# boreholes at the sides, two at the bottom.

# %%
side = CELLS[0] * H
u = (np.arange(8) + 0.5) / 8 * side
top = np.stack(np.meshgrid(u, u, [-0.025], indexing="ij"), -1).reshape(-1, 3)
depths = -0.06 - 0.085 * np.arange(9)
holes = [[a, b, c] for a in (-0.05, side + 0.05) for b in (-0.05, side + 0.05) for c in depths]
RECEIVERS = Points(GRID, np.concatenate([top, holes]))
CHARGES = np.array(
    [
        [-0.05, 0.6, -0.6],
        [1.25, 0.6, -0.6],
        [0.6, -0.05, -0.3],
        [0.6, 1.25, -0.3],
        [0.35, 0.35, -0.85],
        [0.85, 0.85, -0.85],
    ]
)


def medium(speed: jax.Array, place: Any, order: int = 4) -> Acoustic:
    speed = jnp.pad(speed, ((LAYER, LAYER), (LAYER, LAYER), (LAYER, 0)), mode="edge")
    source = PointSources(GRID, place, PULSE)
    layers = {"x": LAYER, "y": LAYER, "z-": LAYER}
    sides = {"x": "rigid", "y": "rigid", "z-": "rigid", "z+": "free"}
    options = dict(boundary=sides, layers=layers, source=source, order=order, tuned=FASTEST)
    return Acoustic(GRID, speed, **options)


# %% [markdown]
# The records are computed with differences of order eight and half the step, and contain noise of 2%, to avoid the inverse
# crime: an inversion that reproduces its own errors.


# %%
class Shots(NamedTuple):
    places: jax.Array  # (shots, 3)
    recorded: jax.Array  # (shots, times, receivers)


def listen(place: jax.Array) -> jax.Array:
    model = medium(truth, place, order=8)
    ts = jnp.linspace(0.0, END, TIMES + 1)
    sol = sciml.solve(model, model.rest(), t0=0.0, t1=END, dt=END / TIMES / 2, saveat=ts)
    return model.record(sol.ys, RECEIVERS)


traces = jax.jit(lambda places: jax.lax.map(listen, places))(jnp.asarray(CHARGES, float))
noise = 0.02 * jnp.std(traces) * jax.random.normal(jax.random.key(0), traces.shape)
shots = Shots(jnp.asarray(CHARGES, float), traces + noise)
print(f"{len(CHARGES)} shots at {len(RECEIVERS.positions)} receivers: {traces.size} numbers")

# %% [markdown]
# ## The mismatch
#
# Leapfrog integrates sound in two halves: the velocity, then the pressure. `Mismatch` adds the integral of the mismatch to
# the first half, so the sound is compared with the record at the ends of steps. `first_drive` and `second_drive` return
# rates, `move_first` and `move_second` the halves after a time `h`.


# %%
class Mismatch(sciml.AbstractPartitioned):
    medium: Acoustic
    recorded: Sampled

    def first_drive(self, t: Any, y: tuple[Sound, jax.Array], args: Any) -> Any:
        apart = self.medium.record(y[0], RECEIVERS) - self.recorded(t)
        return self.medium.first_drive(t, y[0], args), jnp.sum(apart**2)

    def second_drive(self, t: Any, y: tuple[Sound, jax.Array], args: Any) -> Any:
        return self.medium.second_drive(t, y[0], args)

    def move_first(self, h: Any, y: tuple[Sound, jax.Array], drive: Any, args: Any) -> Any:
        return self.medium.move_first(h, y[0], drive[0], args), y[1] + h * drive[1]

    def move_second(self, h: Any, y: tuple[Sound, jax.Array], drive: Any, args: Any) -> Any:
        return self.medium.move_second(h, y[0], drive, args), y[1]


def mismatch(speed: jax.Array, place: Any, recorded: jax.Array, adjoint: Any) -> jax.Array:
    model = Mismatch(medium(speed, place), Sampled(recorded, END / TIMES))
    start = model.medium.rest(), jnp.zeros(())
    return sciml.solve(model, start, t0=0.0, t1=END, dt=END / TIMES, adjoint=adjoint).ys[1][-1]


# %% [markdown]
# ## The memory of a gradient
#
# Compile the gradient of one shot with four adjoints. The compiler reports the memory; the time is the shortest of
# ten runs, which take turns.

# %%
state = jax.tree.leaves(medium(background, CHARGES[0]).rest())
mib = sum(x.size * x.dtype.itemsize for x in state) / MIB
print(f"a state takes {mib:.2f} MiB, the states of all {TIMES} steps {TIMES * mib:.0f} MiB")

ADJOINTS = {
    "Checkpointed(levels=1)": sciml.adjoints.Checkpointed(levels=1),
    "Checkpointed(memory=32 MiB)": sciml.adjoints.Checkpointed(memory=32 * MIB),
    "Checkpointed(levels=3)": sciml.adjoints.Checkpointed(levels=3),
    "Reversible()": sciml.adjoints.Reversible(),
}
shot = background, shots.places[0], shots.recorded[0]
gradient = jax.jit(jax.grad(mismatch), static_argnums=3)
compiled = {name: gradient.lower(*shot, adjoint).compile() for name, adjoint in ADJOINTS.items()}
seconds = dict.fromkeys(ADJOINTS, np.inf)
for _ in range(10):
    for name, run in compiled.items():
        begin = time.perf_counter()
        jax.block_until_ready(run(*shot))
        seconds[name] = min(seconds[name], time.perf_counter() - begin)

exact, costs = compiled["Checkpointed(levels=1)"](*shot), {}
for name, run in compiled.items():
    memory = run.memory_analysis().temp_size_in_bytes / MIB
    error = float(jnp.linalg.norm(run(*shot) - exact) / jnp.linalg.norm(exact))
    costs[name] = memory, seconds[name]
    print(f"{name:28} {memory:6.1f} MiB  {seconds[name]:5.2f} s per shot  error {error:.0e}")

# %% Figure
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
shown = {name: cost for name, cost in costs.items() if name != "Reversible()"}
ax.plot(*zip(*shown.values()), color="0.7", zorder=0)
for (name, cost), colour in zip(shown.items(), ("#0072B2", "#D55E00", "#009E73")):
    ax.plot(*cost, "o", color=colour, markersize=9, label=name)
ax.set(xscale="log", xlim=(8, 250), xlabel="memory of a gradient (MiB)", ylabel="seconds per shot")
ax.set_ylim(0, 1.9 * max(seconds for _, seconds in shown.values()))
ax.set_xticks([10, 20, 50, 100, 200], labels=["10", "20", "50", "100", "200"])
ax.minorticks_off()
ax.legend(frameon=False, loc="upper right")
ax.spines[["top", "right"]].set_visible(False)
figure.savefig(OUT / "waveform_inversion_3d_memory.png", dpi=110)

# %% [markdown]
# ![Seconds per shot over the memory of a gradient, for three adjoints](figures/waveform_inversion_3d_memory.png)
#
# `Checkpointed(levels=1)` stores the state of every step. With `memory=` it stores the states that fit and recomputes the
# steps between them: 5x less memory for about the same time. `levels=3` stores the fewest. The gradient is the same up to
# rounding. `sciml.inspect.adjoint_memory` prints such a table without running anything.
#
# Leapfrog steps can be undone, and `Reversible()` stores no state. But the absorbing layers dissipate what leaves the
# block, so backward steps cannot reconstruct it. This is detected, and the gradient is NaN, not wrong.
#
# ## The gradient of all shots
#
# Check it with a finite difference along a random direction.

# %%
ADJOINT = ADJOINTS["Checkpointed(memory=32 MiB)"]


@jax.jit
@jax.value_and_grad
def evaluate(speed: jax.Array, shots: Shots) -> jax.Array:
    return jnp.sum(jax.lax.map(lambda shot: mismatch(speed, *shot, ADJOINT), shots))


speed = background
value, gradient = evaluate(speed, shots)
ahead = jnp.asarray(np.random.default_rng(0).normal(size=speed.shape), float)
more, less = (float(evaluate(speed + step * ahead, shots)[0]) for step in (2e-3, -2e-3))
slope = float(jnp.vdot(gradient, ahead))
print(
    f"along a direction: {slope:.4g} by the adjoint, {(more - less) / 4e-3:.4g} by finite differences"
)

# %% [markdown]
# ## Inversion
#
# L-BFGS starts from the known part. The first step changes no speed by more than 0.04 km/s, and a step is halved until the
# mismatch decreases. The truth is only used to print the error of the speed.

# %%
optimiser = optax.scale_by_lbfgs(memory_size=8)
state, first, history = optimiser.init(speed), float(value), []
advance = jax.jit(optimiser.update)
for number in range(STEPS + 1):
    error = 1000 * float(jnp.sqrt(jnp.mean((speed - truth) ** 2)))
    history.append((float(value) / first, error))
    print(f"step {number:2}: mismatch {float(value) / first:.4f}, error {error:4.1f} m/s")
    if number == STEPS:
        break
    ahead, state = advance(gradient / first, state, speed)
    if number == 0:
        steepest = gradient / jnp.max(jnp.abs(gradient))
        ahead = ahead * 0.04 * jnp.linalg.norm(steepest) / jnp.linalg.norm(ahead)
    for length in (1.0, 0.5, 0.25, 0.125):
        trial = evaluate(speed - length * ahead, shots)
        if trial[0] < value:
            break
    speed, (value, gradient) = speed - length * ahead, trial
found = speed
falls, errors = np.array(history).T
print(f"the error of the speed fell from {errors[0]:.1f} to {errors[-1]:.1f} m/s")
print(f"the mismatch fell to {falls[-1]:.1%} of the start")

# %% Figure
figure = plt.figure(figsize=(11, 6), layout="constrained")
grid = figure.add_gridspec(2, 3, height_ratios=(1.4, 1), width_ratios=(1, 1, 0.9))
deep = CELLS[2] * H
level, row = 8, 9
off = float(jnp.max(jnp.abs(truth - background)))
for i, (title, field) in enumerate({"the rock": truth, "found": found}.items()):
    change = np.asarray(field - background)
    style = dict(origin="lower", cmap="RdBu_r", vmin=-off, vmax=off)
    ax = figure.add_subplot(grid[0, i])
    image = ax.imshow(change[:, :, level].T, extent=(0, side, 0, side), **style)
    ax.set_title(f"{title}, depth {-z[0, 0, level]:.2f} km", loc="left", fontsize="medium")
    ax.axhline((row + 0.5) * H, color="0.5", linewidth=0.8, linestyle="--")
    places = np.asarray(RECEIVERS.positions)
    ax.plot(places[:, 0], places[:, 1], ".", color="0.15", markersize=3, label="receivers")
    ax.plot(CHARGES[:, 0], CHARGES[:, 1], "*", color="#D55E00", markersize=9, label="charges")
    ax.set(xlabel="x (km)", ylabel="y (km)", xlim=(-0.12, side + 0.12), ylim=(-0.12, side + 0.12))
    below = figure.add_subplot(grid[1, i])
    below.imshow(change[:, row, :].T, extent=(0, side, -deep, 0), **style)
    below.set(xlabel="x (km)", ylabel="z (km)", xlim=(-0.12, side + 0.12))
    below.set_title(f"{title}, along the dashed line", loc="left", fontsize="medium")
key = figure.add_subplot(grid[1, 2])
key.legend(*ax.get_legend_handles_labels(), loc="upper left", frameon=False)
key.axis("off")
label = "speed minus its known part (km/s)"
figure.colorbar(image, ax=key, label=label, location="bottom", fraction=0.1)
progress = figure.add_subplot(grid[0, 2])
progress.semilogy(falls, color="0.15", label="mismatch")
progress.semilogy(errors / errors[0], color="#D55E00", label="error of the speed")
progress.set(xlabel="step of L-BFGS", ylabel="relative to the start", ylim=(0.03, 1.1))
progress.set_yticks([1, 0.5, 0.2, 0.1, 0.05], labels=["1", "0.5", "0.2", "0.1", "0.05"])
progress.minorticks_off()
progress.legend(frameon=False, loc="lower left")
progress.spines[["top", "right"]].set_visible(False)
figure.savefig(OUT / "waveform_inversion_3d.png", dpi=110)

# %% [markdown]
# ![Sections of the rock and of its reconstruction, and the progress](figures/waveform_inversion_3d.png)
#
# The region between charges and receivers is reconstructed. At the bottom, far from receivers, little changes.
#
# ## Key points
#
# - **Memory is an argument.** Select the adjoint after you have seen its memory and time.
# - **Not every adjoint works** for every model; a wrong one returns NaN.
# - **A model with two halves can be extended** by a quantity that is integrated with one of them.
