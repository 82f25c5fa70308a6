# %% [markdown]
# # A field from measurements: diffusivity inversion
#
# A plate is heated on one side, and thermometers measure the spread of heat. The temperature follows the heat equation
#
# $$
# \partial_t T = \nabla \cdot (D \nabla T),
# $$
#
# with an unknown diffusivity $D$ in all 256 cells. This tutorial recovers $D$ from two noisy experiments with 64
# thermometers (an inverse problem).
#
# ![True and recovered diffusivity, their difference, and the standard error](figures/recovered_diffusivity.png)
#
# The dots are the thermometers. The fit also provides the standard error on the right, which is large where the data
# carry little information.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/recovered_diffusivity"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml.models import Diffusion
from sciml.spatial import Dirichlet, Grid, Neumann

GRID = Grid((16, 16))
END = 8.0
TIMES = jnp.linspace(1.0, END, 8)
SENSORS = np.arange(1, 16, 2)  # along each axis, so 64 of 256 cells have one
NOISE = 0.005  # of a temperature difference of one
ROUGHNESS = 0.35  # expected difference of log D between neighbours
STEP = 0.025  # stable for Bosh3 up to a diffusivity of five times that of the plate

# %% [markdown]
# The true field: a plate with two inclusions, one of which conducts better and one worse.


# %%
def truth() -> jax.Array:
    x, y = GRID.centers
    better = jnp.exp(-((x - 0.3) ** 2 + (y - 0.65) ** 2) / 0.02)
    worse = jnp.exp(-((x - 0.7) ** 2 + (y - 0.35) ** 2) / 0.02)
    return 0.01 * jnp.exp(0.9 * better - 1.2 * worse)


# %% [markdown]
# Solve the heat equation in the plate, which is hot on one side and cold on the opposite one.


# %%
def heated(side: str) -> Callable[[jax.Array], Diffusion]:
    hot, cold, other = f"{side}-", f"{side}+", "y" if side == "x" else "x"
    sides = {hot: Dirichlet(1.0), cold: Dirichlet(0.0), other: Neumann(0.0)}
    return lambda diffusivity: Diffusion(GRID, sides, diffusivity)


# %% [markdown]
# The sensors record two experiments, heated from the left and from below: shape (2, times, 8, 8).


# %%
def measured(diffusivity: jax.Array) -> jax.Array:
    def experiment(side):
        model = heated(side)(diffusivity)
        # forward mode: the Jacobian is one pass with one lane per parameter
        options = dict(solver=diffrax.Bosh3(), adjoint=sciml.adjoints.Direct())
        sol = sciml.solve(
            model, jnp.zeros(GRID.shape), t0=0.0, t1=END, dt=STEP, saveat=TIMES, **options
        )
        return sol.ys[:, SENSORS][:, :, SENSORS]

    return jnp.stack([experiment("x"), experiment("y")])


# %% [markdown]
# The unknown of the fit.


# %%
class Plate(eqx.Module):
    diffusivity: jax.Array


# %% [markdown]
# The residuals: temperatures in units of the noise, and differences of log D between neighbours in units of the
# roughness.


# %%
def residuals(plate: Plate, data: jax.Array) -> tuple[jax.Array, ...]:
    log = jnp.log(plate.diffusivity)
    smooth = [jnp.diff(log, axis=axis) / ROUGHNESS for axis in (0, 1)]
    return ((measured(plate.diffusivity) - data) / NOISE, *smooth)


# %% Figure
def draw(exact: np.ndarray, found: np.ndarray, spread: np.ndarray, path: pathlib.Path) -> None:
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained", sharey=True)
    levels = dict(vmin=float(exact.min()), vmax=float(exact.max()), cmap="viridis")
    error = found / exact - 1
    largest = float(np.abs(error).max())
    panels = [
        (exact, "true D", levels),
        (found, "recovered D", levels),
        (error, "relative error", dict(vmin=-largest, vmax=largest, cmap="RdBu_r")),
        (spread / found, "relative standard error", dict(vmin=0.0, cmap="magma")),
    ]
    for ax, (values, title, options) in zip(axes, panels, strict=True):
        image = ax.imshow(values.T, origin="lower", extent=(0, 1, 0, 1), **options)
        figure.colorbar(image, ax=ax, shrink=0.85)
        ax.set_title(title, loc="left", fontsize="medium")
        ax.set_xlabel("x")
    axes[0].set_ylabel("y")
    x, y = (np.asarray(c).ravel()[SENSORS] for c in GRID.centers)
    axes[0].plot(*(c.ravel() for c in np.meshgrid(x, y)), "w.", markersize=3)
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
exact = truth()
clean = jax.jit(measured)(exact)
data = clean + NOISE * jax.random.normal(jax.random.key(0), clean.shape)
print(f"{data.size} temperatures with noise of {NOISE}, {exact.size} unknown diffusivities")

# %%
start = Plate(jnp.full(GRID.shape, 0.01))
fit = sciml.fit(start, residuals, data, positive=True, sigma=1.0, rtol=1e-2, atol=1e-2)
found = fit.model.diffusivity
misfit = (jax.jit(measured)(found) - data) / NOISE
error = np.asarray(found / exact - 1)
spread = np.asarray(fit.standard_errors.diffusivity)
within = np.mean(np.abs(np.asarray(found - exact)) < 2 * spread)
print(f"{fit.message} {fit.n_steps} steps")
print(f"misfit {float(jnp.sqrt(jnp.mean(misfit**2))):.2f} standard deviations of the noise")
before = np.asarray(start.diffusivity / exact - 1)
print(
    f"relative error: {np.sqrt(np.mean(before**2)):.3f} before, {np.sqrt(np.mean(error**2)):.3f} after"
)
print(f"{100 * within:.0f}% of the cells lie within two standard errors of the truth")
draw(np.asarray(exact), np.asarray(found), spread, OUT / "recovered_diffusivity.png")

# %% [markdown]
# ## Key points
#
# - **The field is a parameter** of `sciml.models.Diffusion`, and `positive=True` fits its logarithm.
# - **The regularisation is a residual**: differences of $\log D$ between neighbours, relative to the expected roughness.
#   It is a prior, and the standard errors include it.
# - **Forward mode**: a Jacobian with respect to several hundred parameters is one solve with one lane per parameter,
#   `adjoint=sciml.adjoints.Direct()`.
# - **Verification**: the misfit has the size of the noise, and the truth lies within two standard errors nearly
#   everywhere; the tutorial prints both.
