# %% [markdown]
# # The memory of a gradient: comparison of adjoints
#
# A gradient processes the steps of a solve in reverse order and needs their states. For a grid of a million cells and ten
# thousand steps they exceed the memory of most machines. This tutorial differentiates a wave with respect to the speed of
# sound at every grid point, and compares the memory and time of five adjoints.
#
# The code prints the prediction of `inspect.adjoint_memory` and the measurements:
#
# ![Time of the gradient over its memory for five adjoints; the gradient](figures/gradient_memory.png)
#
# ## Predict the memory before you run
#
# ```python
# import diffrax
# import jax
# import jax.numpy as jnp
# import sciml
#
# def wave(t, y, speed):
#     pressure, rate = y
#     around = sum(jnp.roll(pressure, shift, axis) for axis in (0, 1) for shift in (-1, 1))
#     return rate, speed**2 * (around - 4 * pressure)
#
# grid = jax.ShapeDtypeStruct((128, 128), jnp.float32)  # nothing that large need exist
# table = sciml.inspect.adjoint_memory(
#     wave, (grid, grid), args=grid, t0=0.0, t1=400.0, dt=0.1, solver=diffrax.Ralston(), budget=64 * 2**20,
#     adjoints=(sciml.adjoints.Checkpointed, sciml.adjoints.Reversible),
# )
# print(table)
# assert table.recommended == sciml.adjoints.Checkpointed(levels=2)
# ```
#
# Pass `table.recommended` to `solve(..., adjoint=...)`. Without `adjoints` the table lists all adjoints; for those that
# do not support this solve it gives the reason.
#
# ## The cost of each adjoint
#
# - `Direct` stores all intermediate values of every step, and `Checkpointed(levels=1)` the state of every step: the most
#   memory.
# - `Checkpointed` with more levels stores few states and recomputes the others (blue line). The second level costs one
#   more solve and saves nearly all of the memory, which is why it is the default. On a machine whose memory is slow
#   compared with its arithmetic it even saves time.
# - `Reversible` runs the method backwards. Its memory does not depend on the number of steps; every step takes two steps
#   of the method, one forwards and one backwards.
# - `Backsolve` integrates the equation backwards, `Gauss` reads the solution from a table of steps. They approximate the
#   gradient of the continuous equation, with an error of the size of the step errors; the tutorial prints the difference.
#
# All of them work for a wave without losses. In heat conduction or with friction the past cannot be reconstructed:
# `Reversible` and `Backsolve` then return NaN, while `Checkpointed` and `Gauss` work.
#
# ## Next steps
#
# - [Adjoints and sensitivities](../guides/adjoints.md): the equations and the support matrix.
# - `sciml.checkpointed_scan`: the same levels for your own loop.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/gradient_memory"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import statistics
import time
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import matplotlib.ticker
import numpy as np

import sciml

SIZE, STEPS = 128, 400
END = 0.4
MIB = 2**20
COLOURS = {
    "Direct": "#000000",
    "Checkpointed": "#0072B2",
    "Reversible": "#009E73",
    "Backsolve": "#D55E00",
    "Gauss": "#CC79A7",
}
POLICIES = {
    "Direct()": sciml.adjoints.Direct(),
    "Checkpointed(levels=1)": sciml.adjoints.Checkpointed(levels=1),
    "Checkpointed(levels=2)": sciml.adjoints.Checkpointed(levels=2),
    "Checkpointed(levels=3)": sciml.adjoints.Checkpointed(levels=3),
    "Reversible()": sciml.adjoints.Reversible(),
    "Backsolve()": sciml.adjoints.Backsolve(),
    "Gauss(memory=4 MiB)": sciml.adjoints.Gauss(memory=4 * MIB),
}

# %% [markdown]
# The model is the wave equation on the periodic unit square: pressure and its rate of change, with a speed in every
# cell.


# %%
def wave(t: Any, y: tuple[jax.Array, jax.Array], speed: jax.Array) -> tuple[jax.Array, jax.Array]:
    del t
    pressure, rate = y
    around = sum(jnp.roll(pressure, shift, axis) for axis in (0, 1) for shift in (-1, 1))
    return rate, speed**2 * SIZE**2 * (around - 4 * pressure)


# %% [markdown]
# The initial state is a pulse at rest.


# %%
def start() -> tuple[jax.Array, jax.Array]:
    x = (jnp.arange(SIZE) + 0.5) / SIZE
    pulse = jnp.exp(-200 * ((x[:, None] - 0.4) ** 2 + (x - 0.5) ** 2))
    return pulse, jnp.zeros_like(pulse)


# %% [markdown]
# The result is the signal at a line of receivers at the end.


# %%
def loss(speed: jax.Array, adjoint: Any) -> jax.Array:
    sol = sciml.solve(
        wave,
        start(),
        t0=0.0,
        t1=END,
        dt=END / STEPS,
        args=speed,
        solver=diffrax.Ralston(),
        adjoint=adjoint,
    )
    return jnp.mean(sol.ys[0][-1][SIZE // 8] ** 2)


# %% [markdown]
# Measure the median time of a compiled function.


# %%
def seconds(run: Callable[..., Any], *args: Any, repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(run(*args))
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


# %% [markdown]
# Measure the memory in MiB, and the time of the gradient relative to the solve, for each policy.


# %%
def measure(speed: jax.Array) -> dict[str, tuple[float, float]]:
    solve = jax.jit(lambda speed: loss(speed, sciml.adjoints.Checkpointed())).lower(speed).compile()
    base = seconds(solve, speed)
    state = sum(x.size * x.dtype.itemsize for x in start())
    print(f"a state takes {state / MIB:.2f} MiB, the solve {base:.2f} s")
    found, exact = {}, None
    for name, adjoint in POLICIES.items():
        compiled = (
            jax.jit(jax.grad(lambda speed, adjoint=adjoint: loss(speed, adjoint)))
            .lower(speed)
            .compile()
        )
        memory = compiled.memory_analysis().temp_size_in_bytes / MIB
        gradient = compiled(speed)
        exact = gradient if exact is None else exact
        error = float(jnp.linalg.norm(gradient - exact) / jnp.linalg.norm(exact))
        ratio = seconds(compiled, speed) / base
        print(
            f"{name:24} {memory:8.1f} MiB   {ratio:5.1f} times the solve   differs by {error:.0e} from Direct()"
        )
        found[name] = memory, ratio
    return found


# %% Figure
def draw(found: dict[str, tuple[float, float]], speed: jax.Array, path: pathlib.Path) -> None:
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=(3, 2)
    )
    for kind, colour in COLOURS.items():
        points = sorted(point for name, point in found.items() if name.startswith(kind))
        left.plot(*zip(*points, strict=True), "o-", color=colour, label=kind)
    left.set_xscale("log", base=2)
    left.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    left.set_ylim(bottom=0)
    left.set_xlabel("temporary memory of the gradient, MiB")
    left.set_ylabel("time of the gradient over that of the solve")
    left.legend(frameon=False)
    gradient = np.asarray(
        jax.jit(jax.grad(loss), static_argnums=1)(speed, sciml.adjoints.Checkpointed())
    )
    extreme = np.abs(gradient).max()
    drawn = right.imshow(
        gradient.T, origin="lower", extent=(0, 1, 0, 1), cmap="RdBu_r", vmin=-extreme, vmax=extreme
    )
    right.set_title("derivative by the speed at each point", loc="left", fontsize="medium")
    figure.colorbar(drawn, ax=right, shrink=0.8)
    figure.savefig(path, dpi=120)
    print(f"\nwrote {path}")


# %% [markdown]
# ## Results

# %%
speed = jnp.ones((SIZE, SIZE))
options = dict(
    args=speed, t0=0.0, t1=END, dt=END / STEPS, solver=diffrax.Ralston(), budget=32 * MIB
)
table = sciml.inspect.adjoint_memory(wave, start(), **options)
print("predicted, before anything runs:")
print(table)
print(f"recommended within 32 MiB: {table.recommended}\n")
draw(measure(speed), speed, OUT / "gradient_memory.png")
