# %% [markdown]
# # A shock tube and its gradient
#
# A membrane between dense and thin gas in a tube bursts: a shock and a contact discontinuity move to the right, and a
# rarefaction to the left. This is Sod's problem for the Euler equations, with a known exact solution. This tutorial
# computes the sensitivity to the pressure on the left, and estimates this pressure from the records of three sensors.
#
# The code prints the errors on two grids, the derivatives of the state and of the shock position compared with finite
# differences and exact ones, and the estimated pressure and density.
#
# ![The tube compared with the exact solution; derivatives of the density and of the gas to the right; records of three sensors](figures/shock_tube.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/shock_tube"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml import verify
from sciml.models import Euler
from sciml.spatial import Grid, Outflow

GAMMA, MEMBRANE, END = 1.4, 0.5, 0.2
RIGHT = jnp.array([0.125, 0.0, 0.1])  # density, velocity, pressure
QUIET = (0.74, 0.80)  # between contact and shock at the end, whatever else varies here

# %% [markdown]
# The unknowns: the gas on the left of the membrane, at rest.


# %%
class Gas(NamedTuple):
    pressure: jax.Array
    density: jax.Array

    @property
    def state(self) -> jax.Array:
        return jnp.stack([self.density, jnp.zeros_like(self.density), self.pressure])


# %% [markdown]
# Both sides as arrays.


# %%
def gas(pressure: float | jax.Array, density: float | jax.Array = 1.0) -> Gas:
    return Gas(jnp.asarray(pressure, float), jnp.asarray(density, float))


# %% [markdown]
# Solve for density, velocity and pressure at some times: shape (times, 3, cells).


# %%
def run(left: Gas, cells: int, times: jax.Array) -> jax.Array:
    grid = Grid(cells)
    law = Euler(grid, Outflow(), GAMMA)
    (x,) = grid.centers
    start = law.conserved(jnp.where((x < MEMBRANE)[None], left.state[:, None], RIGHT[:, None]))
    # forward mode: one number goes in, and a field comes out
    sol = sciml.solve(
        law, start, t0=0.0, t1=times[-1], saveat=times, adjoint=sciml.adjoints.Direct()
    )
    return jax.vmap(law.primitive)(sol.ys)


# %% [markdown]
# The same at the end only: shape (3, cells).


# %%
def at_end(pressure: jax.Array, cells: int) -> jax.Array:
    return run(gas(pressure), cells, jnp.array([END]))[-1]


# %% [markdown]
# The exact solution of the Riemann problem.


# %%
def exact(left: Gas, x: jax.Array, t: float | jax.Array) -> jax.Array:
    return verify.reference("riemann_euler", left.state, RIGHT, (x - MEMBRANE) / t, GAMMA)


# %% [markdown]
# The exact position of the shock, from the jump conditions of Rankine and Hugoniot.


# %%
def exact_shock(pressure: jax.Array) -> jax.Array:
    behind = exact(gas(pressure), jnp.asarray(0.77), END)[2]
    sound = jnp.sqrt(GAMMA * RIGHT[2] / RIGHT[0])
    ratio = (GAMMA + 1) / (2 * GAMMA) * behind / RIGHT[2] + (GAMMA - 1) / (2 * GAMMA)
    return MEMBRANE + END * sound * jnp.sqrt(ratio)


# %% [markdown]
# The numerical position of the shock, from the mass of gas: a sharp shock at this position would have swept up as
# much.


# %%
def shock(density: jax.Array) -> jax.Array:
    cells = density.shape[0]
    (x,) = Grid(cells).centers
    behind = jnp.mean(density, where=(x > QUIET[0]) & (x < QUIET[1]))
    swept = jnp.sum(jnp.where(x > QUIET[1], density - RIGHT[0], 0.0)) / cells
    return QUIET[1] + swept / (behind - RIGHT[0])


# %% [markdown]
# The state, and its derivative with respect to the pressure on the left, on a grid.


# %%
class Slopes(NamedTuple):
    cells: int
    w: np.ndarray
    by_pressure: np.ndarray


# %% [markdown]
# Compare the state with the exact one, and the derivatives of state and shock with finite differences and exact ones.


# %%
def slopes(cells: int) -> Slopes:
    def evaluate(pressure):
        w = at_end(pressure, cells)
        return w, shock(w[0])

    one, step = jnp.asarray(1.0), 2e-3
    with_slopes = jax.jit(lambda p: jax.jvp(evaluate, (p,), (one,)))
    (w, place), (by_pressure, moves) = with_slopes(one)
    (above, right), (below, left) = with_slopes(one + step)[0], with_slopes(one - step)[0]
    differences = (above - below) / (2 * step)
    apart = float(jnp.linalg.norm(by_pressure - differences) / jnp.linalg.norm(differences))
    off = jnp.mean(jnp.abs(w - exact(gas(1.0), Grid(cells).centers[0], END)), axis=1)
    print(
        f"{cells} cells: mean errors of density {off[0]:.5f}, velocity {off[1]:.5f}, pressure {off[2]:.5f}"
    )
    print(
        f"  the shock is at {place:.5f}, exactly at {exact_shock(one):.5f}; a unit of pressure moves it"
    )
    print(f"  by {moves:.4f}, by {(right - left) / (2 * step):.4f} by finite differences,", end=" ")
    print(f"by {jax.grad(exact_shock)(one):.4f} exactly")
    print(f"  the derivative of the state is {100 * apart:.2f}% off finite differences", flush=True)
    return Slopes(cells, np.asarray(w), np.asarray(by_pressure))


# %%
SENSORS, WIDTH, CELLS, NOISE = jnp.array([0.3, 0.6, 0.8]), 0.04, 200, 0.02
TIMES = jnp.linspace(0.0, 0.25, 51)[1:]
TRUE, GUESS = gas(1.4, 1.2), gas(0.8, 0.8)

# %% [markdown]
# The data of the sensors: the mean pressure over each, from the exact solution, with noise; shape (times, sensors).


# %%
def recorded(key: jax.Array) -> jax.Array:
    across = SENSORS[:, None] + WIDTH * (jnp.arange(40) + 0.5) / 40 - WIDTH / 2
    pressure = jax.vmap(lambda t: jnp.mean(exact(TRUE, across, t)[2], axis=1))(TIMES)
    return pressure + NOISE * jax.random.normal(key, pressure.shape)


# %% [markdown]
# The predictions for the sensors.


# %%
@jax.jit
def computed(left: Gas) -> jax.Array:
    (x,) = Grid(CELLS).centers
    over = jnp.abs(x - SENSORS[:, None]) < WIDTH / 2
    return run(left, CELLS, TIMES)[:, 2] @ (over / jnp.sum(over, axis=1, keepdims=True)).T


# %% [markdown]
# Fit the gas on the left with the Levenberg-Marquardt method, from a wrong guess.


# %%
def recover(records: jax.Array) -> Gas:
    fit = sciml.fit(
        GUESS,
        lambda left, records: (computed(left) - records) / NOISE,
        records,
        positive=True,
        rtol=1e-3,  # noise leaves no more digits
        progress=False,
    )
    print(
        f"{int(fit.n_steps)} steps from pressure {GUESS.pressure:.1f} and density {GUESS.density:.1f}:"
    )
    for name, value, error, true in zip(Gas._fields, fit.model, fit.standard_errors, TRUE):
        print(f"  {name}: {value:.4f} +- {error:.4f}, true {true:.1f}")
    return fit.model


# %%
INK, BLUE, RED = "0.15", "#0072B2", "#D55E00"


# %% Figure
def draw(found: list[Slopes], records: jax.Array, left: Gas, path: pathlib.Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 7), layout="constrained")
    fine = jnp.linspace(0.0, 1.0, 4001)
    truth, ahead = jax.jvp(
        lambda p: exact(gas(p), fine, END), (jnp.asarray(1.0),), (jnp.asarray(1.0),)
    )
    colours = (RED, BLUE)
    ax = axes[0, 0]
    ax.plot(fine, truth[0], color=INK, linewidth=1, label="density, exact")
    ax.plot(fine, truth[2], color="0.6", linewidth=1, label="pressure, exact")
    x = np.asarray(Grid(found[0].cells).centers[0])
    ax.plot(x, found[0].w[0], "o", color=RED, markersize=2, label=f"{found[0].cells} cells")
    ax.plot(x, found[0].w[2], "o", color=RED, markersize=2)
    ax.set_title("Sod's tube at the end", loc="left", fontsize="medium")
    ax = axes[0, 1]
    for one, colour in zip(found, colours):
        ax.plot(
            Grid(one.cells).centers[0],
            one.by_pressure[0],
            color=colour,
            linewidth=1,
            label=f"{one.cells} cells",
        )
    ax.plot(fine, ahead[0], color=INK, linewidth=1, linestyle="--", label="exact, beside the jumps")
    ax.set_title(
        "the density's derivative by the pressure on the left", loc="left", fontsize="medium"
    )
    ax = axes[1, 0]
    for one, colour in zip(found, colours):
        places = Grid(one.cells).centers[0]
        ax.plot(
            places, np.cumsum(one.by_pressure[0][::-1])[::-1] / one.cells, color=colour, linewidth=1
        )
    finest = jnp.linspace(0.0, 1.0, 40001)
    above, below = (
        np.asarray(exact(gas(1.0 + step), finest, END)[0], np.float64) for step in (2e-2, -2e-2)
    )
    ax.plot(
        finest,
        np.cumsum(((above - below) / 4e-2)[::-1])[::-1] / 40000,
        "--",
        color=INK,
        linewidth=1,
    )
    ax.set_title(
        "gas gained to the right of x, for a unit of pressure", loc="left", fontsize="medium"
    )
    for one in (axes[0, 0], axes[0, 1], ax):
        one.set_xlabel("x")
    axes[0, 0].legend(frameon=False, fontsize="small")
    axes[0, 1].legend(frameon=False, fontsize="small")
    ax = axes[1, 1]
    fitted, guessed = computed(left), computed(GUESS)
    for number, colour in enumerate((RED, "#009E73", BLUE)):
        ax.plot(TIMES, records[:, number], "o", color=colour, markersize=2.5)
        ax.plot(
            TIMES, fitted[:, number], color=colour, linewidth=1, label=f"x = {SENSORS[number]:.1f}"
        )
        ax.plot(TIMES, guessed[:, number], ":", color=colour, linewidth=1)
    ax.set_title(
        "pressure at sensors: recorded, found; dotted: the guess", loc="left", fontsize="medium"
    )
    ax.set_xlabel("time")
    ax.legend(frameon=False, fontsize="small")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


# %% [markdown]
# ## Results

# %%
begin = time.perf_counter()
found = [slopes(cells) for cells in (200, 400)]
records = recorded(jax.random.key(0))
left = recover(records)
draw(found, records, left, OUT / "shock_tube.png")
print(f"{time.perf_counter() - begin:.0f} s in all; the figure is in {OUT}")

# %% [markdown]
# ## Key points
#
# - **The derivative of a moving jump is a spike.** In smooth regions the derivative is close to the exact one. At the
#   shock and the contact it is a spike, which at the shock is twice as high on twice as many cells: a delta function. The
#   value in one cell therefore contains little information about the shock position.
# - **The area of the spike is right.** Its integral from the right end is the mass beyond a point, and its step at the
#   shock is the density jump times the displacement of the shock. Use integrals as objectives: `shock` is the position at
#   which a sharp shock would have swept up the same mass. Its derivative matches finite differences, and the exact one to
#   half a percent.
# - **Sensors have a width.** Each averages over 0.04. A point sensor would see the shock pass instantly, and the
#   objective would be piecewise constant.
# - **Discretisation error.** The data come from the exact solution. The estimate is off by two standard errors, because
#   these only account for the noise; on the grid the shock is 0.001 ahead.
# - **One parameter, many outputs**: `adjoints.Direct()` supports forward mode, and `sciml.fit` selects the cheaper mode.
#   The steps follow the waves (`cfl`), also in the gradient.
