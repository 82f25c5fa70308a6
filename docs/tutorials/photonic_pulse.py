# %% [markdown]
# # Inverse design of an antireflection coating
#
# Silicon reflects a third of the incident light. This tutorial optimises the permittivities of six coating layers, each a
# tenth of a wavelength thick, for a broadband pulse:
#
# $$
# \min_\varepsilon \; \frac{\int E_\text{back}^2\, dt}{\int E_\text{in}^2\, dt}.
# $$
#
# You will learn to
#
# - solve Maxwell's equations for a pulse, with absorbing layers ([wave equations](../guides/waves.md));
# - differentiate the reflected energy with respect to the medium, and check this gradient;
# - optimise the layers with an optimiser of optax;
# - compute reflectance spectra from one pulse, and compare them with exact ones.
#
# Lengths are in wavelengths of the middle of the spectrum, times in its periods, and the speed of light is 1.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/photonic_pulse"))
OUT.mkdir(parents=True, exist_ok=True)
STEPS = int(os.environ.get("STEPS", "60"))

# %%
import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import sciml
from sciml import verify
from sciml.models import FieldSource, Maxwell, Ricker
from sciml.spatial import Grid

# %% [markdown]
# ## The medium
#
# The grid has 60 cells per wavelength. The light comes through vacuum, meets the coating at $x = 2$, and then silicon to
# the end of the grid.

# %%
CELLS, LAYERS, THICK, SURFACE, SILICON = 60, 6, 0.1, 2.0, 12.0
GRID = Grid(6 * CELLS, 0.0, 6.0)


def medium(coating: jax.Array) -> jax.Array:
    layers = jnp.repeat(coating, round(THICK * CELLS))
    before = jnp.ones(round(SURFACE * CELLS))
    behind = jnp.full(GRID.shape[0] - before.size - layers.size, SILICON)
    return jnp.concatenate([before, layers, behind])


# %% [markdown]
# ## The pulse
#
# `models.Maxwell` has a permittivity in every cell. A sheet of current at $x = 0.6$ sends a pulse of two periods, which
# contains all frequencies of interest. The last 12 cells on each side absorb waves; silicon extends into them. The
# absorbing layers dissipate, so steps cannot be reversed: `adjoints.Checkpointed` stores some states and recomputes the
# steps between them. The gradient costs about two more runs.

# %%
END = 9.0
TIMES = jnp.linspace(0.0, END, 451)


def run(permittivity: jax.Array) -> jax.Array:
    """The electric field at all times and places."""
    options = dict(layers=12, polarization="Ez", tuned=1.0)
    place = Maxwell(GRID, permittivity, **options).points("Ez", [0.6])
    model = Maxwell(GRID, permittivity, **options, source=FieldSource("Ez", place, Ricker(1.0)))
    adjoint = sciml.adjoints.Checkpointed(memory=2**25)
    settings = dict(dt=1 / 150, saveat=TIMES, solver=diffrax.Bosh3(), adjoint=adjoint)
    return sciml.solve(model, model.start(), t0=0.0, t1=END, **settings).ys.fields["Ez"]


# %% [markdown]
# A receiver at $x = 1.2$ hears the pulse twice: on its way to the silicon, and on its way back. A run in vacuum gives the
# incoming signal, and subtracting it leaves the reflection.

# %%
RECEIVER = round(1.2 * CELLS)
incoming = run(jnp.ones(GRID.shape))[:, RECEIVER]


def reflected(coating: jax.Array) -> jax.Array:
    return run(medium(coating))[:, RECEIVER] - incoming


# %% [markdown]
# The unknowns are any real numbers `z`. A sigmoid maps them to permittivities between vacuum and silicon, so the
# optimisation needs no bounds.


# %%
def permittivities(z: jax.Array) -> jax.Array:
    return 1 + (SILICON - 1) * jax.nn.sigmoid(z)


@jax.jit
def share(z: jax.Array) -> jax.Array:
    """The reflected fraction of the energy of the pulse."""
    return jnp.sum(reflected(permittivities(z)) ** 2) / jnp.sum(incoming**2)


# %% [markdown]
# ## Check the gradient
#
# Compare the gradient with a finite difference along a random direction before you rely on it.

# %%
evaluate = jax.jit(jax.value_and_grad(share))
z = jnp.zeros(LAYERS)  # the same permittivity in all layers
_, gradient = evaluate(z)
ahead = jnp.asarray(np.random.default_rng(0).normal(size=z.shape), float)
difference = (float(share(z + 1e-2 * ahead)) - float(share(z - 1e-2 * ahead))) / 2e-2
slope = float(jnp.vdot(gradient, ahead))
print(f"along a direction: {slope:.4g} by the adjoint, {difference:.4g} by finite differences")

# %% [markdown]
# ## Optimise

# %%
optimiser = optax.adam(0.15)
state, history = optimiser.init(z), []
for number in range(STEPS + 1):
    value, gradient = evaluate(z)
    history.append(float(value))
    if number % 10 == 0:
        print(f"step {number:3}: {value:7.3%} of the energy is reflected")
    if number < STEPS:
        update, state = optimiser.update(gradient, state)
        z = optax.apply_updates(z, update)
coating = permittivities(z)
print("permittivities: " + ", ".join(f"{x:.2f}" for x in coating.tolist()))
bare = float(share(jnp.full(LAYERS, 40.0)))
print(f"reflected: {bare:.2%} by bare silicon, {history[-1]:.3%} by the layers found")

# %% Figure
figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
shown = {"bare silicon": jnp.full(LAYERS, SILICON), "with the layers found": coating}
for ax, (title, layers) in zip(axes, shown.items()):
    field = np.asarray(run(medium(layers)))
    size = 0.5 * np.abs(field).max()
    options = dict(origin="lower", aspect="auto", extent=(0, 6, 0, END), vmin=-size, vmax=size)
    ax.imshow(field, cmap="RdBu_r", **options)
    for x in (SURFACE, SURFACE + LAYERS * THICK):
        ax.axvline(x, color="0.15", linewidth=0.6)
    ax.set(xlabel="x", ylabel="time")
    ax.set_title(f"electric field, {title}", loc="left", fontsize="medium")
edges = SURFACE + THICK * np.arange(LAYERS + 1)
heights = [1.0, *coating.tolist(), SILICON]
axes[2].stairs(heights, [1.8, *edges, 2.8], color="#0072B2", baseline=None, linewidth=2)
axes[2].set(xlabel="x", ylabel="permittivity", ylim=(0, 13))
axes[2].set_title("the layers found", loc="left", fontsize="medium")
axes[2].spines[["top", "right"]].set_visible(False)
figure.savefig(OUT / "photonic_pulse.png", dpi=110)

# %% [markdown]
# ![The pulse at bare silicon and at the optimised layers, over place and time; the permittivities of the layers](figures/photonic_pulse.png)
#
# The optimum is a graded index. Light is reflected where the permittivity jumps; many small jumps reflect little, and
# their reflections cancel.
#
# ## Spectra from one pulse
#
# The Fourier transforms of the reflected and of the incoming signal give the reflectance at every frequency of the pulse.
# `verify.reference("layered_medium")` computes the exact reflectance from transfer matrices, at one frequency at a time.

# %%
FREQUENCIES = np.linspace(0.6, 1.5, 46)


def reflectance(coating: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    turns = np.exp(2j * np.pi * FREQUENCIES[:, None] * np.asarray(TIMES))
    back, there = np.asarray(reflected(coating)), np.asarray(incoming)
    found = np.abs(turns @ back) ** 2 / np.abs(turns @ there) ** 2
    stack, thick = [1.0, *coating.tolist(), SILICON], [THICK] * LAYERS
    at = [verify.reference("layered_medium", 2 * np.pi * f, stack, thick) for f in FREQUENCIES]
    return found, np.array([float(exact.reflectance) for exact in at])


media = {
    "bare silicon": jnp.full(LAYERS, SILICON),
    "equal layers": permittivities(jnp.zeros(LAYERS)),
    "layers found": coating,
}
spectra = {name: reflectance(layers) for name, layers in media.items()}
off = max(float(np.max(np.abs(found - exact))) for found, exact in spectra.values())
print(f"reflectances differ from the exact ones by {100 * off:.2f} percent points at most")

# %% Figure
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.semilogy(100 * np.array(history), color="0.15")
left.set_yticks([2, 5, 10, 20], labels=["2", "5", "10", "20"])
left.minorticks_off()
left.set(xlabel="step", ylabel="reflected energy (%)")
for (name, (found, exact)), colour in zip(spectra.items(), ("0.5", "#D55E00", "#0072B2")):
    right.plot(FREQUENCIES, 100 * exact, color=colour, linewidth=1)
    right.plot(FREQUENCIES[::3], 100 * found[::3], "o", color=colour, markersize=3, label=name)
right.set(xlabel="frequency", ylabel="reflectance (%)", ylim=(0, 42))
right.set_title("dots: from the pulse; lines: exact", loc="left", fontsize="medium")
right.legend(frameon=False, ncols=3, loc="upper center", handletextpad=0.1)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(OUT / "photonic_pulse_spectra.png", dpi=110)

# %% [markdown]
# ![The reflected energy over the steps of the optimiser; reflectance spectra](figures/photonic_pulse_spectra.png)
#
# ## Key points
#
# - **The medium is a leaf.** The permittivity of every cell has a gradient, and any parametrisation of it can be
#   optimised.
# - **One run contains all frequencies**, because the pulse does.
# - **The adjoint is an argument.** See [adjoints and sensitivities](../guides/adjoints.md) for the others.
#
# [Full-waveform inversion](waveform_inversion.md) uses the same gradient to find an unknown medium from measurements.
