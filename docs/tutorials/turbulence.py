# %% [markdown]
# # Two-dimensional turbulence
#
# In two dimensions vortices merge instead of breaking up. Energy moves to larger vortices and is conserved, while
# enstrophy, $\tfrac12 \langle \omega^2 \rangle$, moves to thin filaments, where viscosity dissipates it.
# `models.Vorticity` solves the vorticity equation
#
# $$
# \omega_t = -u \cdot \nabla \omega + \nu \nabla^2 \omega
# $$
#
# in a periodic box with a spectral method.
#
# The code prints the loss of energy and enstrophy, and checks that the loss equals the viscous dissipation, $2 \nu \int
# \tfrac12 \langle \omega^2 \rangle\, dt$.
#
# ![Vorticity at three times, spectra, energy and enstrophy](figures/turbulence.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/turbulence"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml.models import Vorticity
from sciml.spatial import Grid, gaussian_random_field

POINTS, VISCOSITY = 128, 2e-3
GRID = Grid((POINTS, POINTS), 0.0, 2 * np.pi)
TIMES = (0.0, 5.0, 20.0)

# %% [markdown]
# The initial state contains random vortices of an eighth of the box, with a root mean square velocity of one.


# %%
def start() -> jax.Array:
    vorticity = gaussian_random_field(
        GRID, lambda k: (k / 6) ** 6 / (1 + (k / 6) ** 18), key=jax.random.key(3)
    )
    model = Vorticity(GRID)
    return vorticity / jnp.sqrt(2 * model.energy(vorticity))


# %% [markdown]
# Each step integrates viscosity exactly; transport limits the step size.


# %%
def run(model: Vorticity) -> sciml.Solution:
    return sciml.solve(
        model, start(), t0=0.0, t1=TIMES[-1], dt=0.0125, saveat=jnp.linspace(0.0, TIMES[-1], 81)
    )


# %% Figure
def draw(model: Vorticity, sol: sciml.Solution, path: pathlib.Path) -> None:
    figure = plt.figure(figsize=(10, 7), layout="constrained")
    grid = figure.add_gridspec(2, 6, height_ratios=(1.2, 1))
    left, right = figure.add_subplot(grid[1, :3]), figure.add_subplot(grid[1, 3:])
    for i, (t, colour) in enumerate(zip(TIMES, ("0.6", "#0072B2", "#D55E00"))):
        vorticity = sol.ys[int(np.argmin(np.abs(np.asarray(sol.ts) - t)))]
        extreme = float(jnp.max(jnp.abs(vorticity))) * 0.8
        ax = figure.add_subplot(grid[0, 2 * i : 2 * i + 2])
        extent = (0, 2 * np.pi, 0, 2 * np.pi)
        drawn = ax.imshow(
            vorticity.T, origin="lower", extent=extent, cmap="RdBu_r", vmin=-extreme, vmax=extreme
        )
        ax.set_title(f"vorticity, t = {t:g}", loc="left", fontsize="medium")
        ax.set_xticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
        ax.set_yticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
        figure.colorbar(drawn, ax=ax, shrink=0.56)
        k, energy = model.energy_spectrum(vorticity)
        shown = (k >= 1) & (k <= POINTS / 3)
        left.loglog(k[shown], energy[shown], color=colour, label=f"t = {t:g}")
    k = np.array([8.0, 40.0])
    left.loglog(k, 8 * k**-3, color="0.3", linestyle="--", linewidth=1)
    left.text(22, 2e-3, "$k^{-3}$", color="0.3")
    left.set_ylim(1e-9, 1)
    left.set_xlabel("wavenumber k")
    left.set_ylabel("energy E(k)")
    left.legend(frameon=False, fontsize="small")
    for quantity, name, colour in (
        (model.energy, "energy", "#0072B2"),
        (model.enstrophy, "enstrophy", "#D55E00"),
    ):
        values = jax.vmap(quantity)(sol.ys)
        right.semilogy(sol.ts, values / values[0], color=colour, label=name)
    right.set_xlabel("time")
    right.set_ylabel("over that of the start")
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


# %% [markdown]
# ## Results

# %%
model = Vorticity(GRID, viscosity=VISCOSITY)
begin = time.perf_counter()
sol = jax.block_until_ready(run(model))
print(f"{sol.solver}, {int(sol.stats.accepted)} steps: {time.perf_counter() - begin:.1f} s")
energy, enstrophy = (np.asarray(jax.vmap(f)(sol.ys)) for f in (model.energy, model.enstrophy))
taken = 2 * VISCOSITY * np.trapezoid(enstrophy, np.asarray(sol.ts))
print(
    f"energy fell by {1 - energy[-1] / energy[0]:.1%}, enstrophy by {1 - enstrophy[-1] / enstrophy[0]:.1%}"
)
print(f"energy lost {energy[0] - energy[-1]:.5f}, taken by viscosity {taken:.5f}")
draw(model, sol, OUT / "turbulence.png")

# %% [markdown]
# ## Key points
#
# - **The type of the model selects the method**: viscosity is diagonal in Fourier modes, so `solve` selects `ETDRK`,
#   which integrates it exactly. Only transport limits the step size.
# - **The discretisation conserves energy and enstrophy.** Modes that would cause aliasing are removed (dealiasing), and
#   in the remaining modes transport conserves both up to rounding.
# - **The forcing and the initial state are leaves**: with `kolmogorov_forcing` the same model is Kolmogorov flow, and you
#   can differentiate with respect to all of it.
#
# ```python
# import jax
# import jax.numpy as jnp
# import sciml
# from sciml.models import Vorticity, kolmogorov_forcing
# from sciml.spatial import Grid, random_vortices
#
# grid = Grid((32, 32), 0.0, 2 * jnp.pi)
# model = Vorticity(grid, viscosity=0.02, drag=0.1, forcing=kolmogorov_forcing(grid, waves=2))
# y0 = random_vortices(grid, key=jax.random.key(0))
#
# def energy(y0):
#     return model.energy(sciml.solve(model, y0, t0=0.0, t1=1.0, dt=0.05).ys[-1])
#
# print(energy(y0), jnp.linalg.norm(jax.grad(energy)(y0)))
# ```
