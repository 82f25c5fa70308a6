# %% [markdown]
# # A custom stencil
#
# Barkley's model of an excitable medium is a rule for a cell and its four neighbours: above a threshold the cell fires,
# the excitation spreads, and a second field inhibits it. This tutorial writes the rule as a stencil, compares XLA with a
# kernel, and computes the sensitivity to the conductance of the medium.
#
# ![The wave at two times; the gradient of the excited area with respect to the conductance](figures/own_stencil.png)
#
# ## The rule
#
# ```python
# import jax
# import jax.numpy as jnp
# from sciml.kernels import select
# from sciml.kernels.stencil import StencilUpdate, evolve
# from sciml.spatial import Boundaries, Grid, Neumann
#
# def barkley(nb, p):
#     u, v = nb("u"), nb("v")
#     around = nb("u", -1, 0) + nb("u", 1, 0) + nb("u", 0, -1) + nb("u", 0, 1) - 4 * u
#     threshold = (v + p["b"]) / p["a"]
#     fired = u + p["step"] * p["rate"] * u * (1 - u) * (u - threshold)
#     return {"u": fired + p["diffusivity"] * nb("conductance") * around, "v": v + p["step"] * (u - v)}
#
# grid = Grid((24, 20))
# update = StencilUpdate(
#     barkley, fields=("u", "v"), coefficients=("conductance",), boundary=Boundaries(grid, Neumann(0.0))
# )
# params = {"diffusivity": 0.18, "step": 0.02, "a": 0.75, "b": 0.02, "rate": 50.0}
# state = {"u": jnp.zeros(grid.shape).at[:12, 8:11].set(1.0), "v": jnp.zeros(grid.shape).at[:12, :8].set(0.4)}
# rest = {"conductance": jnp.ones(grid.shape)}
# end = evolve(update, state, 100, params, coefficients=rest)
# ```
#
# ## Selecting a backend
#
# `select` returns the backend and the reason. Without a suitable kernel it is XLA. JAX's interpreter runs a kernel on any
# machine; the tutorial prints its difference from XLA, which is at most rounding.
#
# ```python
# print(select(update, state, params, coefficients=rest).reason)
# checked = evolve(update, state, 4, params, coefficients=rest, impl="pallas", interpret=True, steps_per_pass=2)
# assert jnp.allclose(checked["u"], evolve(update, state, 4, params, coefficients=rest)["u"], atol=1e-5)
# ```
#
# On a machine with a GPU or a TPU the tutorial also runs the kernel with `impl="pallas"`, and prints both times.
#
# ## The gradient
#
# The excited fraction of the medium 200 steps later is one number. One call computes its gradient with respect to the
# conductance of every cell, and the tutorial compares it with finite differences. In the right picture, red cells increase
# the excited area if their conductance increases. The effect is largest in the poorly conducting disc and at the tip of
# the spiral.
#
# ```python
# def fired(conductance):
#     return jnp.mean(evolve(update, state, 50, params, coefficients={"conductance": conductance})["u"])
#
# gradient = jax.grad(fired)(rest["conductance"])
# assert gradient.shape == grid.shape
# ```

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/own_stencil"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import time

import jax
import jax.numpy as jnp
import numpy as np

from sciml.kernels import select
from sciml.kernels.stencil import StencilUpdate, evolve
from sciml.spatial import Boundaries, Grid, Neumann

GRID = Grid((192, 160))
PARAMS = {"diffusivity": 0.18, "step": 0.02, "a": 0.75, "b": 0.02, "rate": 50.0}

# %% [markdown]
# Barkley's model of an excitable medium: `u` fires above a threshold and spreads, `v` follows and damps it.


# %%
def barkley(nb, p):
    u, v = nb("u"), nb("v")
    around = nb("u", -1, 0) + nb("u", 1, 0) + nb("u", 0, -1) + nb("u", 0, 1) - 4 * u
    threshold = (v + p["b"]) / p["a"]
    fired = u + p["step"] * p["rate"] * u * (1 - u) * (u - threshold)
    return {
        "u": fired + p["diffusivity"] * nb("conductance") * around,
        "v": v + p["step"] * (u - v),
    }


# %% [markdown]
# The initial state is a broken wave, whose free end will curl.


# %%
def start() -> dict[str, jax.Array]:
    y, x = np.mgrid[: GRID.shape[0], : GRID.shape[1]]
    u = (x < GRID.shape[1] // 2) & (x > GRID.shape[1] // 2 - 12) & (y < GRID.shape[0] // 2)
    v = 0.4 * (x < GRID.shape[1] // 2 - 12) * (y < GRID.shape[0] // 2)
    return {"u": jnp.asarray(u, jnp.float32), "v": jnp.asarray(v, jnp.float32)}


# %% [markdown]
# The conductance is one, and a fifth of that in a disc.


# %%
def conductance() -> jax.Array:
    y, x = np.mgrid[: GRID.shape[0], : GRID.shape[1]]
    return jnp.asarray(np.where((y - 130) ** 2 + (x - 110) ** 2 < 20**2, 0.2, 1.0), jnp.float32)


# %% [markdown]
# Compare a kernel in JAX's interpreter with the reference, on a corner of the field.


# %%
def compare(update: StencilUpdate) -> None:
    corner = Boundaries(Grid((40, 150)), Neumann(0.0))
    small = StencilUpdate(
        update.fn, fields=update.fields, coefficients=update.coefficients, boundary=corner
    )
    state = {name: x[70:110, :150] for name, x in start().items()}
    rest = {"conductance": conductance()[70:110, :150]}
    expected = evolve(small, state, 20, PARAMS, coefficients=rest)
    how = dict(impl="pallas", interpret=True, steps_per_pass=2)
    found = jax.jit(lambda s: evolve(small, s, 20, PARAMS, coefficients=rest, **how))(state)
    error = np.max([np.abs(found[name] - expected[name]) for name in found])
    moved = np.max(np.abs(expected["u"] - state["u"]))
    print(f"the kernel differs from XLA by {error:.1e} at most, after a change of {moved:.2f}")


# %% [markdown]
# Measure the time of 1000 compiled steps.


# %%
def seconds(update: StencilUpdate, impl: str) -> float:
    rest = {"conductance": conductance()}
    run = jax.jit(lambda s: evolve(update, s, 1000, PARAMS, coefficients=rest, impl=impl))
    jax.block_until_ready(run(start()))
    began = time.perf_counter()
    jax.block_until_ready(run(start()))
    return time.perf_counter() - began


# %% Figure
def draw(frames: list, gradient: jax.Array, path: pathlib.Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 4), layout="constrained")
    top = float(np.quantile(np.abs(gradient), 0.995))
    shown = [
        ("u after 1000 steps", frames[0]["u"], {"cmap": "magma"}),
        ("u after 2000 steps", frames[1]["u"], {"cmap": "magma"}),
        ("what fires, by the conductance", gradient, {"cmap": "RdBu_r", "vmin": -top, "vmax": top}),
    ]
    for at, (title, field, how) in zip(axes, shown):
        at.imshow(np.asarray(field), origin="lower", **how)
        at.set_title(title, loc="left", fontsize="medium")
        at.set_xticks([])
        at.set_yticks([])
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
update = StencilUpdate(
    barkley,
    fields=("u", "v"),
    coefficients=("conductance",),
    boundary=Boundaries(GRID, Neumann(0.0)),
)
rest = {"conductance": conductance()}
chosen = select(update, start(), PARAMS, coefficients=rest)
print(f"evolve runs by {chosen.backend}, because {chosen.reason}")
compare(update)
print(f"1000 steps by XLA: {1e3 * seconds(update, 'auto'):.0f} ms")
if jax.default_backend() in ("gpu", "tpu"):
    print(f"1000 steps by the kernel: {1e3 * seconds(update, 'pallas'):.0f} ms")

# %%
frames = [start()]
for _ in range(2):
    frames.append(evolve(update, frames[-1], 1000, PARAMS, coefficients=rest))


# %%
def fired(conductance):
    return jnp.mean(
        evolve(update, frames[1], 200, PARAMS, coefficients={"conductance": conductance})["u"]
    )


# %%
gradient = jax.jit(jax.grad(fired))(rest["conductance"])
slope = (fired(rest["conductance"] + 0.002) - fired(rest["conductance"] - 0.002)) / 0.004
print(
    f"slope along a uniform change: {float(jnp.sum(gradient)):.4f}, by differences {float(slope):.4f}"
)
draw(frames[1:], gradient, OUT / "own_stencil.png")
