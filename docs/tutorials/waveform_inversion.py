# %% [markdown]
# # Full-waveform inversion
#
# A body of 64 x 64 cells lies in a tank of water. Eight transmitters send one pulse each, and 64 receivers around the
# body record the sound. Full-waveform inversion searches for the medium whose computed sound matches the records,
#
# $$
# \min_c \; J(c) = \sum_{\text{shots}} \sum_{\text{receivers}} \int \big(p(c) - p_\text{recorded}\big)^2\, dt,
# $$
#
# with one unknown per cell of the body. It is used in seismic exploration and medical ultrasound. You will learn to
#
# - compute sound in a medium with absorbing layers, sources and receivers ([wave equations](../guides/waves.md));
# - add the mismatch to the state, so that one solve returns it;
# - differentiate it with respect to 4096 unknowns with limited memory ([adjoints](../guides/adjoints.md));
# - reconstruct the medium with L-BFGS.
#
# ![The body, the reconstructed speed of sound, a section, and the progress](figures/waveform_inversion.png)
#
# Lengths are in millimetres, times in microseconds, speeds in mm/µs, which is km/s.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/waveform_inversion"))
OUT.mkdir(parents=True, exist_ok=True)
STEPS = int(os.environ.get("STEPS", "12"))

# %%
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import sciml
from sciml.models import Acoustic, PointSources, Ricker, Sampled
from sciml.spatial import Grid, Points

# %% [markdown]
# ## The experiment
#
# Around the body there are 3 mm of water, and around these 8 absorbing cells, which do not reflect. The transmitters and
# receivers are at equal distances on a square 2 mm outside the body. The pulse has 0.12 MHz, that is waves of 12 mm.

# %%
SIZE, WATER, LAYER, TANK = 64, 3, 8, 1.5
EDGE = WATER + LAYER
GRID = Grid((SIZE + 2 * EDGE,) * 2, -EDGE, SIZE + EDGE)
PULSE = Ricker(0.12)
END, TIMES = 60.0, 240


def around(count: int, distance: float = 2.0) -> jax.Array:
    along = (np.arange(count) + 0.5) / count * 4
    edge, part = along.astype(int), along % 1
    x = np.choose(edge, [part, 1 + 0 * part, 1 - part, 0 * part])
    y = np.choose(edge, [0 * part, part, 1 + 0 * part, 1 - part])
    return jnp.asarray((SIZE + 2 * distance) * np.stack([x, y], axis=1) - distance, float)


PLACES, RECEIVERS = around(8), Points(GRID, around(64))

# %% [markdown]
# The true body is a soft ellipse with one harder and two softer inclusions. Its edges are smooth over about two cells.

# %%
x, y = (np.arange(SIZE) + 0.5)[:, None], (np.arange(SIZE) + 0.5)[None, :]
truth = np.full((SIZE, SIZE), TANK)
for middle, radii, value in (
    ((32, 32), (26, 22), 1.54),
    ((24, 36), (8, 6), 1.60),
    ((42, 38), (5, 7), 1.46),
    ((36, 22), (9, 4), 1.49),
):
    far = np.hypot((x - middle[0]) / radii[0], (y - middle[1]) / radii[1])
    inside = 1 / (1 + np.exp((far - 1) * min(radii) / 0.6))
    truth += inside * (value - truth)
truth = jnp.asarray(truth, float)

# %% [markdown]
# `models.Acoustic` has a speed of sound in every cell of the tank, and a source for the transmitter.


# %%
def medium(speed: jax.Array, place: jax.Array, order: int = 4) -> Acoustic:
    source = PointSources(GRID, place, PULSE)
    speed = jnp.pad(speed, EDGE, constant_values=TANK)
    return Acoustic(GRID, speed, layers=LAYER, source=source, order=order, tuned=TANK)


# %% [markdown]
# Record the shots. The records come from a finer method than the inversion uses, of order eight with half the step, and
# they contain noise of 2%. Otherwise the inversion could reproduce its own errors (the inverse crime). `jax.lax.map` runs
# the shots one after another.

# %%
FRAMES = (80, 116, 152)


def listen(speed: jax.Array, place: jax.Array, order: int = 4, refine: int = 1):
    """The records of the receivers, and the pressure at three times."""
    model = medium(speed, place, order)
    ts = jnp.linspace(0.0, END, TIMES + 1)
    options = dict(dt=END / TIMES / refine, saveat=ts, solver=diffrax.Bosh3(), throw=False)
    sounds = sciml.solve(model, model.rest(), t0=0.0, t1=END, **options).ys
    frames = model.pressure(jax.tree.map(lambda x: x[np.array(FRAMES)], sounds))
    return model.record(sounds, RECEIVERS), frames


class Shots(NamedTuple):
    places: jax.Array  # (shots, 2)
    recorded: jax.Array  # (shots, times, receivers)


experiment = jax.jit(lambda places: jax.lax.map(lambda place: listen(truth, place, 8, 2), places))
traces, frames = experiment(PLACES)
noise = 0.02 * jnp.std(traces) * jax.random.normal(jax.random.key(0), traces.shape)
shots = Shots(PLACES, traces + noise)
print(f"{len(PLACES)} shots at {len(RECEIVERS.positions)} receivers: {traces.size} numbers")

# %% [markdown]
# ## The mismatch and its gradient
#
# `Mismatch` is a model whose state is the sound and the integral of the mismatch: one solve returns $J$, without storing
# the field over time.


# %%
class Mismatch(sciml.AbstractModel):
    medium: Acoustic
    recorded: Sampled

    def __call__(self, t: Any, y: tuple, args: Any) -> tuple:
        sound, _ = y
        apart = self.medium.record(sound, RECEIVERS) - self.recorded(t)
        return self.medium(t, sound, args), jnp.sum(apart**2)


def mismatch(speed: jax.Array, place: jax.Array, recorded: jax.Array) -> jax.Array:
    model = Mismatch(medium(speed, place), Sampled(recorded, END / TIMES))
    start = model.medium.rest(), jnp.zeros(())
    adjoint = sciml.adjoints.Checkpointed(memory=2**25)
    options = dict(dt=END / TIMES, solver=diffrax.Bosh3(), adjoint=adjoint)
    return sciml.solve(model, start, t0=0.0, t1=END, **options).ys[1][-1]


@jax.jit
@jax.value_and_grad
def evaluate(speed: jax.Array, shots: Shots) -> jax.Array:
    return jnp.sum(jax.lax.map(lambda shot: mismatch(speed, *shot), shots))


# %% [markdown]
# `Checkpointed(memory=2**25)` stores as many states of a shot as fit into 32 MiB, and would recompute others. Absorbed
# sound cannot be reconstructed, so `Reversible` does not work here. On a CPU `jax.lax.map` over shots is as fast as
# `jax.vmap` for states of this size. On a GPU `jax.vmap` runs them in parallel, and `sciml.parallel.ensemble` distributes
# them over devices.
#
# Check the gradient with a finite difference along a random direction.

# %%
speed = jnp.full((SIZE, SIZE), TANK)
value, gradient = evaluate(speed, shots)
ahead = jnp.asarray(np.random.default_rng(0).normal(size=speed.shape), float)
more, less = (float(evaluate(speed + step * ahead, shots)[0]) for step in (1e-3, -1e-3))
slope = float(jnp.vdot(gradient, ahead))
print(
    f"along a direction: {slope:.4g} by the adjoint, {(more - less) / 2e-3:.4g} by finite differences"
)

# %% [markdown]
# ## Inversion
#
# Start from water everywhere. The L-BFGS of optax gives the direction, and the step is halved until the mismatch
# decreases. The truth is only used to print the error of the speed.

# %%
optimiser = optax.scale_by_lbfgs(memory_size=10)
state, first, history = optimiser.init(speed), float(value), []
advance = jax.jit(optimiser.update)
for number in range(STEPS + 1):
    error = 1000 * float(jnp.sqrt(jnp.mean((speed - truth) ** 2)))
    history.append((float(value) / first, error))
    print(f"step {number:2}: mismatch {float(value) / first:.5f}, error {error:4.1f} m/s")
    if number == STEPS:
        break
    ahead, state = advance(gradient / first, state, speed)
    for length in (1.0, 0.5, 0.25, 0.125, 0.0625):
        trial = evaluate(speed - length * ahead, shots)
        if trial[0] < value:
            break
    speed, (value, gradient) = speed - length * ahead, trial
found = speed

# %% Figure
INK, BLUE, RED = "0.15", "#0072B2", "#D55E00"
figure, panels = plt.subplots(2, 2, figsize=(9, 7.6), layout="constrained")
low, high = float(truth.min()), float(truth.max())
shown = {"the body": truth, "found from eight shots": found}
for ax, (title, field) in zip(panels[0], shown.items()):
    options = dict(origin="lower", extent=(0, SIZE, 0, SIZE), vmin=low, vmax=high)
    image = ax.imshow(np.asarray(field).T, cmap="viridis", **options)
    ax.plot(*np.asarray(PLACES).T, "*", color=RED, markersize=10, label="transmitter")
    ax.plot(*np.asarray(RECEIVERS.positions).T, ".", color=INK, markersize=4, label="receiver")
    ax.set(xlabel="x (mm)", ylabel="y (mm)", xlim=(-3, SIZE + 3), ylim=(-3, SIZE + 3))
    ax.set_title(title, loc="left", fontsize="medium")
panels[0, 1].axhline(36.5, color="white", linewidth=1, linestyle="--")
panels[0, 0].legend(loc="lower right", bbox_to_anchor=(0.97, 0.03), framealpha=0.9)
figure.colorbar(image, ax=panels[0], label="speed of sound (mm/µs)", shrink=0.9)
section, progress = panels[1]
x = np.arange(SIZE) + 0.5
section.plot(x, np.asarray(truth)[:, 36], color=INK, label="the body")
section.plot(x, np.asarray(found)[:, 36], color=BLUE, label="found")
section.axhline(TANK, color="0.6", linestyle=":", label="water, the start")
section.set(xlabel="x (mm)", ylabel="speed at y = 36.5 mm (mm/µs)")
section.legend(frameon=False)
falls, errors = np.array(history).T
progress.semilogy(falls, color=INK, label="mismatch")
progress.semilogy(errors / errors[0], color=RED, label="error of the speed")
progress.set(xlabel="step of L-BFGS", ylabel="relative to the start")
progress.legend(frameon=False)
for ax in panels[1]:
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(OUT / "waveform_inversion.png", dpi=110)

# %%
print(f"the error of the speed fell from {errors[0]:.1f} to {errors[-1]:.1f} m/s")
print(f"the mismatch fell to {falls[-1]:.2%} of the mismatch in water")

# %% [markdown]
# The picture at the top of this page shows the result. The rest of the mismatch is noise.
#
# ## The sound of one shot
#
# Receivers opposite the first transmitter show how the records constrain the medium: sound arrives earlier or later than
# in water, and the sound computed in the medium found matches the records.

# %% Figure
hear = jax.jit(lambda speed: listen(speed, PLACES[0])[0])
in_water, in_found = (np.asarray(hear(field)) for field in (jnp.full_like(truth, TANK), found))
figure = plt.figure(figsize=(10, 6.4), layout="constrained")
grid = figure.add_gridspec(2, 3, height_ratios=(1.15, 1))
extreme = 0.5 * float(jnp.max(jnp.abs(frames)))
for i, frame in enumerate(frames[0]):
    ax = figure.add_subplot(grid[0, i])
    options = dict(origin="lower", extent=(-EDGE, SIZE + EDGE) * 2, vmin=-extreme, vmax=extreme)
    ax.imshow(np.asarray(frame).T, cmap="RdBu_r", **options)
    levels = (1.48, 1.52, 1.57)
    ax.contour(x, x, np.asarray(truth).T, levels=levels, colors="0.4", linewidths=0.6)
    box = (-WATER, -WATER), SIZE + 2 * WATER, SIZE + 2 * WATER
    ax.add_patch(plt.Rectangle(*box, fill=False, linestyle="--", color="0.5"))
    ax.set_title(f"pressure after {FRAMES[i] * END / TIMES:.0f} µs", loc="left", fontsize="medium")
    ax.set(xlabel="x (mm)", ylabel="y (mm)" if i == 0 else None)
ts = np.linspace(0.0, END, TIMES + 1)
for i, receiver in enumerate((36, 40, 44)):
    ax = figure.add_subplot(grid[1, i])
    recorded = np.asarray(shots.recorded[0])[:, receiver]
    ax.plot(ts, recorded, color=INK, linewidth=2.5, alpha=0.5, label="recorded")
    ax.plot(ts, in_water[:, receiver], color="0.55", linestyle=":", label="in water")
    ax.plot(ts, in_found[:, receiver], color=BLUE, linewidth=1, label="in the medium found")
    place = np.asarray(RECEIVERS.positions)[receiver]
    title = f"receiver at ({place[0]:.0f}, {place[1]:.0f}) mm"
    ax.set_title(title, loc="left", fontsize="medium")
    ax.set(xlim=(30, END), xlabel="time (µs)", ylabel="pressure" if i == 0 else None)
    ax.spines[["top", "right"]].set_visible(False)
handles, labels = ax.get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
figure.savefig(OUT / "waveform_inversion_shot.png", dpi=110)

# %% [markdown]
# ![The sound of one shot, and the signals of three receivers](figures/waveform_inversion_shot.png)
#
# The dashed square is the end of the tank; the absorbing layers outside of it do not reflect.
#
# ## Key points
#
# - **The medium is a leaf.** `jax.grad` of the mismatch has the shape of the medium.
# - **The mismatch is part of the state**, so the field is not stored over time.
# - **The adjoint is an argument.** It decides how much memory a gradient takes.
# - **The optimiser is a Python loop around one compiled function**, so any optimiser works.
#
# [The next tutorial](waveform_inversion_3d.md) does the same in three dimensions, where the memory of the gradient is the
# problem. [Inverse design](photonic_pulse.md) searches for the best medium instead of the true one.
