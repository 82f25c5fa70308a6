# %% [markdown]
# # A custom PDE: a forest fire
#
# A fire spreads through a forest (an advection-diffusion-reaction equation). Heat $T$ diffuses and is carried by the wind
# $w$; fuel $f$ burns where it is hot enough, and releases heat:
#
# $$
# \partial_t T = D \nabla^2 T - w \cdot \nabla T + q f\, r(T) - c T, \qquad
# \partial_t f = -b f\, r(T), \qquad r(T) = \frac{1}{1 + e^{(1 - T) / s}}.
# $$
#
# sciml does not include this model. This tutorial writes it in twenty lines, solves and plots it, and computes with one
# gradient where less fuel would reduce the fire most.
#
# ![The fire at three times; the gradient of the burnt area with respect to the fuel at every point](figures/wildfire.png)
#
# The road in the middle stops the fire except at a gap. The right picture shows the sensitivity of the burnt fraction to
# the fuel at every point. It is largest on the flanks, where the fire barely spreads, and at the road. Where nothing
# burns, additional fuel lowers the burnt fraction.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/wildfire"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml import spatial
from sciml.spatial import Extrapolate, Grid, Laplacian, Neumann, Upwind

# %% [markdown]
# The model stores two operators of [`sciml.spatial`](../guides/pdes.md) and its parameters; `__call__` returns the
# derivative.


# %%
class Wildfire(sciml.AbstractModel):
    laplacian: Laplacian
    upwind: Upwind
    wind: jax.Array = eqx.field(converter=sciml.parameter)
    diffusivity: jax.Array = eqx.field(default=0.001, converter=sciml.parameter)
    heat: jax.Array = eqx.field(default=12.0, converter=sciml.parameter)
    cooling: jax.Array = eqx.field(default=1.0, converter=sciml.parameter)
    burning: jax.Array = eqx.field(default=2.0, converter=sciml.parameter)
    width: jax.Array = eqx.field(default=0.1, converter=sciml.parameter)

    def __call__(self, t, y, args):
        temperature, fuel = y
        fire = fuel * jax.nn.sigmoid((temperature - 1.0) / self.width)
        carried = self.diffusivity * self.laplacian(temperature) - self.upwind(
            temperature, self.wind
        )
        return carried + self.heat * fire - self.cooling * temperature, -self.burning * fire

    def spectrum(self, t, y, args):  # optional: with it, `solve` selects stable steps
        return (
            self.upwind.spectrum(self.wind)
            - self.diffusivity * self.laplacian.spectral_radius
            - self.cooling
        )


# %%
GRID = Grid((64, 64))
END = 7.0

# %% [markdown]
# The forest has a random density of fuel, and a road with a gap.


# %%
def forest() -> jax.Array:
    rough = spatial.gaussian_random_field(
        GRID, lambda k: (1.0 + (k / 20.0) ** 2) ** -3.0, key=jax.random.key(3)
    )
    x, y = GRID.centers
    road = (jnp.abs(x - 0.55) < 0.06) & (jnp.abs(y - 0.4) > 0.1)
    return jnp.where(road, 0.0, jnp.clip(1.0 + 0.25 * rough / jnp.std(rough), 0.3, 1.7))


# %% [markdown]
# The fire starts at one point.


# %%
def spark() -> jax.Array:
    return 4.0 * spatial.pulse(GRID, (0.15, 0.55), width=0.04)


# %% [markdown]
# Solve. No step size is given: `solve` selects a stable one from the `spectrum` of the model.


# %%
def burn(model: Wildfire, fuel: jax.Array, times: jax.Array) -> sciml.Solution:
    options = dict(solver=diffrax.Bosh3(), stepsize_controller=diffrax.ConstantStepSize())
    return sciml.solve(model, (spark(), fuel), t0=0.0, t1=END, saveat=times, **options)


# %% [markdown]
# The objective is the burnt share of the fuel.


# %%
def burnt(model: Wildfire, fuel: jax.Array) -> jax.Array:
    left = burn(model, fuel, jnp.array([END])).ys[1][-1]
    return 1.0 - jnp.sum(left) / jnp.sum(fuel)


# %% Figure
def draw(sol: sciml.Solution, gradient: np.ndarray, path: pathlib.Path) -> None:
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), layout="constrained", sharey=True)
    shown = dict(origin="lower", extent=(0, 1, 0, 1))
    temperatures, fuels = (np.asarray(x) for x in sol.ys)
    for ax, t, temperature, fuel in zip(axes, np.asarray(sol.ts), temperatures, fuels):
        image = ax.imshow(fuel.T, cmap="YlGn", vmin=0.0, vmax=1.7, **shown)
        hot = np.ma.masked_less(temperature.T, 0.5)
        fire = ax.imshow(hot, cmap="autumn_r", vmin=0.5, vmax=4.0, **shown)
        ax.set_title(f"t = {t:.1f}", loc="left", fontsize="medium")
    figure.colorbar(image, ax=list(axes[:3]), label="fuel", shrink=0.85, pad=0.01)
    figure.colorbar(fire, ax=list(axes[:3]), label="temperature", shrink=0.85, pad=0.01)
    largest = float(np.abs(gradient).max())
    scale = matplotlib.colors.SymLogNorm(largest / 100, vmin=-largest, vmax=largest)
    image = axes[3].imshow(gradient.T, cmap="RdBu_r", norm=scale, **shown)
    figure.colorbar(image, ax=axes[3], label="burnt part per fuel added here", shrink=0.85)
    axes[3].set_title("gradient of the burnt part", loc="left", fontsize="medium")
    for ax in axes:
        ax.set_xlabel("x")
    axes[0].set_ylabel("y")
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
model = Wildfire(Laplacian(GRID, Neumann(0.0)), Upwind(GRID, Extrapolate()), wind=[0.08, 0.0])
fuel = forest()
sol = burn(model, fuel, jnp.array([1.0, 3.0, END]))
print(f"{int(sol.stats.accepted)} steps of {END / int(sol.stats.accepted):.3g}, by {sol.solver}")

# %%
value, (by_model, by_fuel) = jax.jit(jax.value_and_grad(burnt, argnums=(0, 1)))(model, fuel)
print(f"{100 * float(value):.1f}% has burnt")
wind, cooling = 0.01 * by_model.wind[0], 0.01 * by_model.cooling * model.cooling
print(f"of all fuel, wind that is faster by 0.01 burns {100 * float(wind):+.2f}% more,")
print(f"and cooling that is stronger by 1% {100 * float(cooling):+.2f}%")

# %% [markdown]
# Check the gradient: remove a little fuel in the cell where it matters most, and solve again.

# %%
i, j = (int(n) for n in np.unravel_index(int(jnp.argmax(by_fuel)), GRID.shape))
x, y = (float(np.asarray(c).ravel()[n]) for c, n in zip(GRID.centers, (i, j)))
foretold = -0.01 * float(by_fuel[i, j])
change = float(jax.jit(burnt)(model, fuel.at[i, j].add(-0.01)) - value)
print(
    f"where it matters most, at ({x:.2f}, {y:.2f}), 0.01 less fuel: foretold {foretold:.2e}, found {change:.2e}"
)
draw(sol, np.asarray(by_fuel), OUT / "wildfire.png")

# %% [markdown]
# ## Key points
#
# - **The module is the equation.** `Wildfire` has two operators of [`sciml.spatial`](../guides/pdes.md) and its
#   parameters as fields; `__call__` returns the derivative of a state of two arrays.
# - **`spectrum` is optional.** With it `solve` selects a stable step, so the tutorial does not set `dt`. See [time
#   steps](../guides/pdes.md#time-steps-and-stability-cfl-condition).
# - **One gradient for all parameters**: `jax.value_and_grad(burnt, argnums=(0, 1))` computes the derivatives with respect
#   to wind, cooling, all other parameters, and the fuel at 4096 points. The tutorial checks one of them by finite
#   differences.
