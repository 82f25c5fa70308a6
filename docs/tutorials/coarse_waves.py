# %% [markdown]
# # A learned closure for waves on a coarse grid
#
# In the Kuramoto-Sivashinsky equation, long waves are unstable and short ones are damped, and the nonlinear term
# transfers energy between them:
#
# $$
# u_t = -u u_x - u_{xx} - u_{xxxx}.
# $$
#
# A coarse grid represents nearly all of this energy, but its solution diverges from the true one, because unresolved
# waves act on resolved ones. A neural network learns this effect as a closure, in the form of additional fluxes.
#
# The code prints how long each grid is accurate, and the long-time errors of the energies of its modes.
#
# ![Waves over time on a fine grid, a coarse one, and with the closure; errors; energies](figures/coarse_waves.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/coarse_waves"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import sciml
from sciml import training
from sciml.models import KuramotoSivashinsky
from sciml.models.neural import SpectralClosure

LENGTH, FINE, COARSE = 96.0, 192, 72
SPACING = (
    0.5  # interval of saved times, and steps of the coarse grid; the fine grid uses half of them
)
RECORDS, HELD_BACK, KEPT = 24, 8, 121
GREY, BLUE = "0.6", "#0072B2"

# %% [markdown]
# Restrict a field to its lowest modes, which the coarse grid resolves, at the points of that grid.


# %%
def averaged(u, points=COARSE):
    modes = jnp.fft.rfft(u)[..., : points // 2 + 1] * (points / u.shape[-1])
    resolved = jnp.arange(points // 2 + 1) < points / 3
    return jnp.fft.irfft(jnp.where(jnp.broadcast_to(resolved, modes.shape), modes, 0), points)


# %% [markdown]
# The initial states are random long waves, integrated for some hundred time units until they are chaotic.


# %%
def starts(key, points):
    heights, phases = jax.random.normal(key, (2, RECORDS + HELD_BACK, 8, 1))
    k = 2 * jnp.pi / points * jnp.arange(1.0, 9.0)[:, None]
    return jnp.sum(heights * jnp.sin(k * jnp.arange(points) + 2 * phases), axis=1) / 2


# %% [markdown]
# Solve from an initial state, and return the field at all saved times.


# %%
def solved(model, u, end, dt=SPACING, every=SPACING):
    saveat = jnp.linspace(0.0, end, round(end / every) + 1)
    return sciml.solve(model, u, t0=0.0, t1=end, saveat=saveat, dt=dt, throw=False).ys


# %% [markdown]
# Train the closure: match rates of change first, then predictions of growing length.


# %%
def train(model, fields, rates):
    def misfit(model, batch, key):
        field, rate = batch
        return jnp.mean((jax.vmap(lambda u: model(0.0, u, None))(field) - rate) ** 2)

    rows = [jnp.asarray(x.reshape(-1, COARSE)) for x in (fields, rates)]
    none = float(misfit(model.model, rows, None))
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, 600, 0.05))
    only = lambda model: model.net  # noqa: E731
    found = training.train(
        model,
        misfit,
        tuple(rows),
        optimiser=optimiser,
        steps=600,
        batch_size=64,
        where=only,
        progress=False,
    )
    print(
        f"rates: the coarse grid lacks {none:.2e}, with the closure {found.history.loss[-20:].mean():.2e}"
    )
    ts = SPACING * np.arange(KEPT, dtype=np.float32)
    for length, steps in ((4, 150), (12, 150)):
        problem = training.rollouts(
            found.model,
            [ts] * len(fields),
            list(fields),
            length=length,
            stride=length // 2,
            dt=SPACING,
            scale=0.1,
        )
        optimiser = optax.adam(optax.cosine_decay_schedule(2e-3, steps, 0.05))
        found = training.train(
            *problem,
            optimiser=optimiser,
            steps=steps,
            batch_size=16,
            where=only,
            progress=False,
            key=jax.random.key(1),
        )
        first, last = found.history.loss[:10].mean(), found.history.loss[-10:].mean()
        print(f"predictions over {length * SPACING:g}: loss {first:.4f}, then {last:.4f}")
    return found.model


# %% [markdown]
# The mean energy of each mode.


# %%
def spectrum(u):
    return np.mean(np.abs(np.fft.rfft(u) / u.shape[-1]) ** 2, axis=tuple(range(u.ndim - 1)))


# %% Figure
def draw(path, truth, runs, errors, spectra):
    figure = plt.figure(figsize=(11.0, 6.2), layout="constrained")
    grid = figure.add_gridspec(2, 6)
    end = SPACING * (KEPT - 1)
    for i, (name, u) in enumerate((("fine", truth), *runs.items())):
        ax = figure.add_subplot(grid[0, 2 * i : 2 * i + 2])
        drawn = ax.imshow(
            u[0].T,
            origin="lower",
            aspect="auto",
            cmap="RdBu_r",
            vmin=-3,
            vmax=3,
            extent=(0, end, 0, LENGTH),
        )
        ax.set(title=name, xlabel="time", ylabel="x" if i == 0 else None)
    figure.colorbar(drawn, ax=ax, label="u")
    left, right = figure.add_subplot(grid[1, :3]), figure.add_subplot(grid[1, 3:])
    for (name, error), colour in zip(errors.items(), (GREY, BLUE)):
        left.semilogy(SPACING * np.arange(1, KEPT), error[1:], color=colour, label=name)
    left.axhline(np.std(truth), color="black", linewidth=0.8, linestyle="--")
    left.text(1, 1.1 * np.std(truth), "size of the waves", fontsize=8)
    left.set(xlabel="time", ylabel="error of u", xlim=(0, end))
    k = 2 * np.pi / LENGTH * np.arange(1, COARSE // 3)
    for (name, energy), colour, width in zip(spectra.items(), ("black", GREY, BLUE), (3, 1.2, 1.2)):
        right.semilogy(k, energy[1 : COARSE // 3], color=colour, linewidth=width, label=name)
    right.set(xlabel="wavenumber", ylabel="energy, over long times")
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


# %% [markdown]
# ## Results

# %%
begun = time.perf_counter()
fine, coarse = (KuramotoSivashinsky(points=n, length=LENGTH) for n in (FINE, COARSE))


# %%
def record(u):
    chaos = solved(fine, u, 150.0, dt=0.25, every=150.0)[-1]
    us = solved(fine, chaos, SPACING * (KEPT - 1), dt=0.25)
    return averaged(us), averaged(jax.vmap(lambda u: fine(0.0, u, None))(us))


# %%
fields, rates = map(np.asarray, jax.vmap(record)(starts(jax.random.key(0), FINE)))
print(f"{len(fields)} records of the fine grid: {time.perf_counter() - begun:.1f} s")

# %%
model = SpectralClosure(coarse, 1, width=12, depth=2, radius=2, scale=2.0, key=jax.random.key(1))
model = train(model, fields[HELD_BACK:], rates[HELD_BACK:])
print(f"trained after {time.perf_counter() - begun:.1f} s")

# %%
truth, end = fields[:HELD_BACK], SPACING * (KEPT - 1)
run = eqx.filter_jit(lambda m, u, end: jax.vmap(lambda u: solved(m, u, end))(u))
models = {"coarse": coarse, "with the closure": model}
runs = {name: np.asarray(run(m, truth[:, 0], end)) for name, m in models.items()}
errors = {name: np.sqrt(np.mean((u - truth) ** 2, axis=(0, 2))) for name, u in runs.items()}
for name, u in runs.items():
    each = np.sqrt(np.mean((u - truth) ** 2, axis=2)) > 0.5 * np.std(truth)
    until = SPACING * np.where(each.any(axis=1), each.argmax(axis=1), KEPT - 1)
    print(
        f"{name}: error {errors[name][20]:.4f} at time {20 * SPACING:g}, right until {np.median(until):.1f}"
    )
ratio = errors["coarse"][20] / errors["with the closure"][20]
print(f"the closure divides the error by {ratio:.1f}")

# %%
longer = {name: np.asarray(run(m, truth[:, 0], 600.0))[:, 200:] for name, m in models.items()}
spectra = {"fine": spectrum(fields)} | {name: spectrum(u) for name, u in longer.items()}
for name, energy in list(spectra.items())[1:]:
    off = np.abs(np.log(energy[1 : COARSE // 3] / spectra["fine"][1 : COARSE // 3]))
    print(f"{name}: energies of modes off by a factor of {np.exp(off.mean()):.2f} in the mean")
draw(OUT / "coarse_waves.png", truth, runs, errors, spectra)

# %% [markdown]
# ## Key points
#
# - **First rates, then the solver.** The missing rate is known at every recorded state: the filtered rate of the fine
#   grid minus the rate of the coarse one. Fitting it needs no solve. To reduce accumulated errors, `training.rollouts`
#   then trains through the solver, over predictions of two and then six units of time.
# - **Conservation.** `models.neural.SpectralClosure` computes fluxes, so the mean of the field is conserved up to
#   rounding. All points share the same network, and it adds nothing to modes that would cause aliasing.
# - **The stiff part remains exact.** The closure is part of the slow term of an `AbstractSemilinear`, so `solve` still
#   selects `ETDRK` with the same steps.
# - **Long-time statistics.** Chaos limits the time for which any model is accurate. After that time the energies of the
#   waves matter, as in climate models. The last panel shows them over 500 units of time; training used predictions of
#   six.
#
# ## References
#
# Y. Bar-Sinai, S. Hoyer, J. Hickey and M. P. Brenner, Learning data-driven discretizations for partial differential equations,
# PNAS 116:15344, 2019; K. Um, R. Brand, Y. Fei, P. Holl and N. Thuerey, Solver-in-the-Loop, NeurIPS 2020.
